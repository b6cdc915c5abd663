"""Timings of single requests, as llama.cpp prints them at their end, as rows: the decode of one request each.

Of requests that ran at one time the steps were shared, and no line says which: their time is left out.
"""

from __future__ import annotations

from rooflens.adapters.logs.clock import Moment
from rooflens.adapters.scrape.rows import Row
from rooflens.live_records import Derived
from rooflens.log_records import LogRecord
from rooflens.records import StepKind

OVERLAP = "requests ran at one time and shared their steps: the step times of these are not known"
LONGEST_S = 86_400.0
SLACK_S = 0.002


class Requests:
    """The requests of one server in the order in which they ended."""

    def __init__(self) -> None:
        self.complaints: dict[str, None] = {}
        self._last_end_s = 0.0
        self._slots: set[int] = set()

    def take(self, record: LogRecord, moment: Moment | None, number: int) -> Row | None:
        """The row of a request that ended; None for what a request says while it runs."""
        values = record.values
        tokens, seconds = values.get("generated_tokens"), values.get("generation_s")
        if tokens is None or seconds is None or not 0 < seconds < LONGEST_S or tokens < 1:
            return None
        slot = record.ranks.get("slot")
        if slot is not None and len(self._slots) < 1024:
            self._slots.add(slot)
        end_s = moment.monotonic_s if moment is not None else self._last_end_s + seconds
        begun_s = end_s - seconds
        sure_s = moment.sure_s if moment is not None else 0.0
        shared = begun_s < self._last_end_s - sure_s - SLACK_S or (moment is None and len(self._slots) > 1)
        if shared:
            self.complaints[OVERLAP] = None
        self._last_end_s = max(self._last_end_s, end_s)
        columns: dict[str, float | None] = {
            "sequence": number,
            "kind": StepKind.DECODE,
            "unix_s": moment.unix_s if moment is not None else None,
            "submit_monotonic_s": begun_s,
            "output_monotonic_s": end_s,
            "observed_s": None if shared else seconds,
            "resolution_steps": round(tokens),
            "requests": tokens,
            "query_tokens": tokens,
            "sampled_rows": tokens,
            "prefill_tokens": 0,
            "generated_tokens": tokens,
            **_contexts(values.get("prompt_tokens"), values.get("sequence_tokens"), tokens),
        }
        words = "the decode of one request alone; its steps are its tokens"
        derived = () if shared else (Derived("step_s", seconds / tokens, "s", words),)
        return Row({name: value for name, value in columns.items() if value is not None}, derived)


def _contexts(prompt: float | None, context: float | None, tokens: float) -> dict[str, float]:
    """Contexts grow from the prompt by one token a step; what was found in a cache is in the total alone."""
    begin = context - tokens if context is not None and context >= tokens else prompt
    if begin is None:
        return {}
    total = tokens * begin + tokens * (tokens - 1) / 2
    return {"context_tokens": total, "causal_pairs": total + tokens, "prefill_pairs": 0.0}
