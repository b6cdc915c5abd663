"""What became of each request: first scheduled, thrown out and computed again, ended; the terms of the exact identity.

Over a run: query tokens = prompt - unprefilled - hits + generated - requests that generated + recomputed + discarded.
"""

from __future__ import annotations

from typing import Any

EXTRAS = (
    "new_requests", "prompt_tokens", "prefix_hit_local_tokens", "recomputed_tokens", "unprefilled_tokens",
    "finished_requests", "preempted", "discarded_tokens",
)  # fmt: skip


def prompt_of(state: Any) -> int:
    """Tokens of the prompt as it came; a request that was reset carries what it had generated behind it."""
    return state._true_initial_tokens or len(state.initial_tokens)


class Books:
    """Accounts of the requests of one scheduler. Bounded by the requests that it holds."""

    __slots__ = ("_high", "known", "scheduler", "terms")

    def __init__(self, scheduler: Any) -> None:
        self.scheduler = scheduler
        self.terms = dict.fromkeys(EXTRAS, 0)  # since they were last taken
        self.known: dict[str, Any] = {}  # requests that were scheduled, and their state
        self._high: dict[str, int] = {}  # tokens that a request which was thrown out had computed before

    @property
    def computes_again(self) -> bool:
        """Whether any request that was thrown out has not caught up yet."""
        return bool(self._high)

    def scheduled(self, state: Any, before: int, query: int) -> bool:
        """Account for a row; whether it computes again what it had computed. ``before`` and ``query`` in tokens."""
        name = state.request_id
        if not state.generated_tokens and self.known.get(name) is not state:
            if name not in self.known:
                self._first(state, before)
            self.known[name] = state
        if not self._high or name not in self._high:
            return False
        high = self._high[name]
        again = max(0, min(before + query, high) - before)
        self.terms["recomputed_tokens"] += again
        self.terms["prefix_hit_local_tokens"] += max(0, before - high)  # found, and never computed by this request
        if before + query >= high:
            del self._high[name]
        return again > 0

    def _first(self, state: Any, before: int) -> None:
        self.terms["new_requests"] += 1
        self.terms["prompt_tokens"] += prompt_of(state)
        self.terms["prefix_hit_local_tokens"] += before  # a child of a parallel request shares its parent's
        if len(self.known) > 64 + 2 * (len(self.scheduler.active_requests) + len(self.scheduler.waiting_requests)):
            self._forget_lost()

    def _forget_lost(self) -> None:
        """Requests that left on a way that nobody saw; not seen in any release."""
        held = self.scheduler.active_requests.keys() | self.scheduler.waiting_requests.keys()
        for name in self.known.keys() - held:
            self.known.pop(name)
            self._high.pop(name, None)

    def thrown_out(self, name: str, in_flight_after: int) -> Any:
        """A running request gives its blocks back; ``in_flight_after`` is its length once open steps are done.

        Returns its state, None where it was never scheduled.
        """
        state = self.known.get(name)
        if state is not None:
            self.terms["preempted"] += 1
            self._high[name] = max(self._high.get(name, 0), state.position_offset, in_flight_after)
        return state

    def ended(self, name: str) -> None:
        """A request left for good."""
        if self.known.pop(name, None) is not None:
            self.terms["finished_requests"] += 1
        self._high.pop(name, None)

    def cancelled(self, name: str) -> None:
        """A request was called off before it had ended; what of its prompt was never computed is known then."""
        state = self.scheduler.active_requests.get(name) or self.scheduler.waiting_requests.get(name)
        if state is not None and name in self.known:
            covered = max(state.position_offset, self._high.get(name, 0))
            self.terms["unprefilled_tokens"] += max(0, prompt_of(state) - covered)
        self.ended(name)

    def take(self) -> dict[str, int]:
        """The terms since the last call; those of zero are left out."""
        taken = {name: count for name, count in self.terms.items() if count}
        if taken:
            self.terms = dict.fromkeys(EXTRAS, 0)
        return taken
