"""Timings of single requests, as llama.cpp prints them at their end, as rows: the decode of one request each.

Of requests that ran at one time the steps were shared, and no line says which: their time is left out. Where no line
tells when slots began, the stamp of a request less its total time does. The server times
a request from its first token on, which the pass over its prompt brought, and every accepted draft saves a pass: steps
are its tokens less one less the drafts accepted. The programs' own blocks ("load time" ... "runs") count their calls.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from rooflens.adapters.logs.clock import STAMP_S, Moment
from rooflens.adapters.scrape.rows import Row
from rooflens.live_records import Derived
from rooflens.log_records import LogRecord
from rooflens.records import StepKind

OVERLAP = "requests ran at one time and shared their steps: the step times of these are not known"
UNSURE = "the log does not say when requests began: whether one ran alone is not known, nor are its step times"
LONGEST_S = 86_400.0
SLACK_S = 0.002
MOST_SLOTS = 1024
MOST_HELD = 512


@dataclass(slots=True)
class _Ended:
    """A request that ended; ``begun_s`` is when it began, by its total time, None where that is not known."""

    values: Mapping[str, float]
    counts: Mapping[str, float] | None
    moment: Moment | None
    end_s: float
    begun_s: float | None
    sure_s: float
    at_once: float
    alone: bool | None  # None while it is not known
    together: bool = False  # with another one, by their spans
    apart: bool = True  # from all others, by their spans


class Requests:
    """The requests of one server in the order in which they ended.

    Where no line tells how many ran at a time, a request waits for those that end after it: any of them may have begun
    before it ended.
    """

    def __init__(self) -> None:
        self.complaints: dict[str, None] = {}
        self._last_end_s = 0.0
        self._slots: set[int] = set()
        self._held: deque[_Ended] = deque()
        self._spans: deque[_Ended] = deque(maxlen=MOST_HELD)
        self._released_s: dict[int, float | None] = {}  # slots that stopped, and no time of a request was told yet
        self._all_told = True  # when each request began

    def take(self, record: LogRecord, moment: Moment | None, server_slots: float | None = None) -> list[Row]:
        """The rows that are known now: of a request that ended, and of those that waited; none while it runs.

        ``server_slots`` is how many requests the server runs at a time, where it says so.
        """
        ended = self._ended(record, moment, server_slots)
        if ended is None:
            return []
        self._held.append(ended)
        many = len(self._held) > MOST_HELD
        found = []
        while self._held and (many or self._held[0].alone is not None):
            found.append(self._row(self._held.popleft(), whole=True))
            many = False
        return [row for row in found if row is not None]

    def close(self, before_s: float | None = None) -> list[Row]:
        """The rows that waited; with ``before_s``, of a log that goes on, those that ended before it.

        What ran beside them may then still run: their times are not known.
        """
        found = []
        while self._held and (before_s is None or self._held[0].end_s < before_s):
            found.append(self._row(self._held.popleft(), whole=before_s is None))
        return [row for row in found if row is not None]

    def _ended(self, record: LogRecord, moment: Moment | None, server_slots: float | None) -> _Ended | None:
        values, slot = record.values, record.ranks.get("slot")
        tokens, seconds, total_s = values.get("generated_tokens"), values.get("generation_s"), values.get("total_s")
        if seconds is None and total_s is None and "sequence_tokens" in values:
            self._release(slot, moment)
        if tokens is None or seconds is None or not 0 < seconds < LONGEST_S or not tokens >= 1:
            self._all_told = self._all_told and total_s is None and seconds is None
            return None
        if slot is not None and len(self._slots) < MOST_SLOTS:
            self._slots.add(slot)
        end_s = moment.monotonic_s if moment is not None else self._last_end_s + seconds
        sure_s = moment.sure_s if moment is not None else 0.0
        most = self._most(slot, values.get("slots_busy_max"), server_slots)
        after = end_s - seconds >= self._last_end_s - sure_s - SLACK_S  # else one ended after this one had begun
        alone = None if most is None else most == 1 and (after or slot is not None)
        self._last_end_s = max(self._last_end_s, end_s)
        known = moment is not None and total_s is not None and seconds - SLACK_S <= total_s < LONGEST_S
        begun_s = end_s - total_s if known and total_s is not None else None
        at_once = max(most or server_slots or 0.0, float(len(self._slots)), 1.0)
        counts = _counts(values, tokens, program=slot is None and "load_s" in values)
        ended = _Ended(values, counts, moment, end_s, begun_s, sure_s, at_once, alone)
        self._beside(ended, slot)
        return ended

    def _release(self, slot: int | None, moment: Moment | None) -> None:
        """A slot stopped: its times stand right before or after that, or it was given up and has none."""
        if moment is not None and 0 <= moment.monotonic_s - self._last_end_s <= moment.sure_s + SLACK_S:
            return
        if slot is None or slot in self._released_s or len(self._released_s) >= MOST_SLOTS:
            self._all_told = False
        else:
            self._released_s[slot] = None if moment is None else moment.monotonic_s

    def _beside(self, ended: _Ended, slot: int | None) -> None:
        """Compare its span with those of the requests that ended before it."""
        if slot is not None and slot in self._released_s:
            stopped_s = self._released_s.pop(slot)
            self._all_told = self._all_told and stopped_s is not None and ended.end_s - stopped_s <= STAMP_S
        if ended.begun_s is None:
            self._all_told = False
            return
        for other in self._spans if self._all_told else ():
            between_s, sure_s = ended.begun_s - other.end_s, max(ended.sure_s, other.sure_s)
            if between_s < sure_s - SLACK_S:
                ended.apart = other.apart = False
            if between_s < -sure_s - SLACK_S:
                ended.together = other.together = True
        self._spans.append(ended)

    def _row(self, ended: _Ended, *, whole: bool) -> Row | None:
        """The row of a request; ``whole`` is whether all that ran beside it has ended."""
        counts, values = ended.counts, ended.values
        if counts is None:
            return None
        by_spans = whole and self._all_told and ended.apart and not self._released_s
        alone = by_spans if ended.alone is None else ended.alone
        if not alone:
            self.complaints[OVERLAP if ended.alone is not None or ended.together else UNSURE] = None
        at_once = max(ended.at_once, float(len(self._slots))) if ended.alone is None else ended.at_once
        seconds, steps, moment = values["generation_s"], counts["requests"], ended.moment
        columns: dict[str, float | None] = {
            **counts,
            "unix_s": moment.unix_s if moment is not None else None,
            "submit_monotonic_s": ended.end_s - seconds,
            "output_monotonic_s": ended.end_s,
            "observed_s": seconds if alone else None,
            # At least: every pass is shared by as many at most.
            "resolution_steps": max(1, int(steps / (1.0 if alone else at_once))),
        }
        words = "the decode of one request alone, over its passes: tokens less the first, less the drafts accepted"
        derived = (Derived("step_s", seconds / steps, "s", words),) if alone else ()
        return Row({name: value for name, value in columns.items() if value is not None}, derived)

    @staticmethod
    def _most(slot: int | None, busy: float | None, server_slots: float | None) -> float | None:
        """How many ran at one time at most; None where that is not known. Without a slot it is a program's only one."""
        return 1.0 if slot is None or server_slots == 1 else busy


def _counts(values: Mapping[str, float], tokens: float, program: bool) -> dict[str, float] | None:
    """What the timed passes computed; None where there was none. Drafts were all verified, each beside one token."""
    tokens = tokens if program else tokens - 1
    accepted, drafted = values.get("accepted_tokens", 0.0), values.get("drafted_tokens", 0.0)
    steps = tokens - accepted
    if not steps >= 1 or not 0 <= accepted <= drafted:
        return None
    found: dict[str, float] = {
        "kind": StepKind.VERIFY if drafted else StepKind.DECODE,
        "requests": steps,
        "query_tokens": steps + drafted,
        "sampled_rows": steps + drafted,
        "prefill_tokens": 0.0,
        "generated_tokens": tokens,
    }
    if drafted:
        found |= {"drafted_tokens": drafted, "accepted_tokens": accepted, "rejected_tokens": drafted - accepted}
    return found | _contexts(values.get("prompt_tokens"), values.get("sequence_tokens"), tokens, steps, steps + drafted)


def _contexts(
    prompt: float | None, context: float | None, tokens: float, steps: float, query: float
) -> dict[str, float]:
    """Contexts grow from the prompt by one token a pass at least; what was found in a cache is in the total alone."""
    begin = prompt if context is None else context - tokens
    if begin is None or begin < 0:
        return {}
    total = steps * begin + steps * (steps - 1) / 2
    return {"context_tokens": total, "causal_pairs": total + query, "prefill_pairs": 0.0}
