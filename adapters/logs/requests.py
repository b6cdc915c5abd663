"""Timings of single requests, as llama.cpp prints them at their end, as rows: the decode of one request each.

Of requests that ran at one time the steps were shared, and no line says which: their time is left out. The server times
a request from its first token on, which the pass over its prompt brought, and every accepted draft saves a pass: steps
are its tokens less one less the drafts accepted. The programs' own blocks ("load time" ... "runs") count their calls.
"""

from __future__ import annotations

from collections.abc import Mapping

from rooflens.adapters.logs.clock import Moment
from rooflens.adapters.scrape.rows import Row
from rooflens.live_records import Derived
from rooflens.log_records import LogRecord
from rooflens.records import StepKind

OVERLAP = "requests ran at one time and shared their steps: the step times of these are not known"
UNSURE = "the log does not say when requests began: whether one ran alone is not known, nor are its step times"
LONGEST_S = 86_400.0
SLACK_S = 0.002
MOST_SLOTS = 1024


class Requests:
    """The requests of one server in the order in which they ended."""

    def __init__(self) -> None:
        self.complaints: dict[str, None] = {}
        self._last_end_s = 0.0
        self._slots: set[int] = set()

    def take(
        self, record: LogRecord, moment: Moment | None, number: int, server_slots: float | None = None
    ) -> Row | None:
        """The row of a request that ended; None for what one says while it runs, and where no step was timed.

        ``server_slots`` is how many requests the server runs at a time, where it says so.
        """
        values = record.values
        tokens, seconds = values.get("generated_tokens"), values.get("generation_s")
        if tokens is None or seconds is None or not 0 < seconds < LONGEST_S or not tokens >= 1:
            return None
        slot = record.ranks.get("slot")
        if slot is not None and len(self._slots) < MOST_SLOTS:
            self._slots.add(slot)
        end_s = moment.monotonic_s if moment is not None else self._last_end_s + seconds
        begun_s = end_s - seconds
        sure_s = moment.sure_s if moment is not None else 0.0
        most = self._most(slot, values.get("slots_busy_max"), server_slots)
        after = begun_s >= self._last_end_s - sure_s - SLACK_S  # else one ended after this one had begun
        alone = most == 1 and (after or slot is not None)
        self._last_end_s = max(self._last_end_s, end_s)
        counts = _counts(values, tokens, program=slot is None and "load_s" in values)
        if counts is None:
            return None
        if not alone:
            self.complaints[OVERLAP if most is not None else UNSURE] = None
        steps = counts["requests"]
        at_once = 1.0 if alone else max(most or server_slots or 0.0, float(len(self._slots)), 1.0)
        columns: dict[str, float | None] = {
            **counts,
            "sequence": number,
            "unix_s": moment.unix_s if moment is not None else None,
            "submit_monotonic_s": begun_s,
            "output_monotonic_s": end_s,
            "observed_s": seconds if alone else None,
            # At least: every pass is shared by as many at most.
            "resolution_steps": max(1, int(steps / at_once)),
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
