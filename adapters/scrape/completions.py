"""Tokens that are counted when their request ends: a rate over several lifetimes of requests, and said to be one.

Over a shorter time such a count stands still and leaps: of one request of 80,000 tokens all come at once.
"""

from __future__ import annotations

from collections import deque

from rooflens.adapters.scrape.readings import Reading
from rooflens.live_records import Derived

KEYS = ("completed_tokens", "completed_tokens_sum")
AT_ONCE = ("generated_tokens", "decode_tokens", "inter_token_count")  # an engine with one of these needs no other
LIFETIMES = 4.0  # requests that began before the window are about as many as those that end after it
LEAST_S, UNKNOWN_S, LONGEST_S = 30.0, 60.0, 600.0
MOST_KEPT = 256


class Completions:
    """Follows what one run of an engine counts as its requests end."""

    def __init__(self) -> None:
        self._past: deque[tuple[float, float]] = deque()  # monotonic seconds, tokens
        self._lifetime_s: float | None = None

    def note(self, reading: Reading) -> None:
        """The next reading of the run; one that lies too near to the one before is left out."""
        tokens = next((value for key in KEYS if (value := reading.get(key)) is not None), None)
        if tokens is None or any(reading.get(key) is not None for key in AT_ONCE):
            return
        total_s, count = reading.get("lifetime_sum"), reading.get("lifetime_count")
        self._lifetime_s = total_s / count if total_s is not None and count else None
        now_s = reading.monotonic_s
        if len(self._past) > 1 and now_s - self._past[-2][0] < LONGEST_S / MOST_KEPT:
            self._past.pop()
        self._past.append((now_s, tokens))
        while len(self._past) > 2 and now_s - self._past[1][0] >= self._wanted_s:
            self._past.popleft()

    @property
    def _wanted_s(self) -> float:
        if self._lifetime_s is None:
            return UNKNOWN_S
        return min(max(LIFETIMES * self._lifetime_s, LEAST_S), LONGEST_S)

    def rate(self) -> Derived | None:
        """Tokens a second over the window; None while it is not long enough, or nothing is counted so."""
        if len(self._past) < 2:
            return None
        (first_s, first), (last_s, last) = self._past[0], self._past[-1]
        span_s = last_s - first_s
        if span_s < self._wanted_s:
            return None
        lifetimes = "" if self._lifetime_s is None else f", {span_s / self._lifetime_s:.3g} lifetimes of a request"
        words = f"completion-weighted: tokens of the requests that ended in the last {span_s:.0f} s{lifetimes}"
        return Derived("completed_tokens_per_s", (last - first) / span_s, "1/s", words)
