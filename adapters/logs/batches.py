"""SGLang's lines: one every so many decode steps, with the rate since the last, and one for each prefill batch.

Its throughput is tokens over the time since the decode line before (or since the counter was begun), so the first one
after an idle engine holds the idle time: it is absurdly low, and left out. A prefill batch is a step of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rooflens.adapters.logs.clock import Moment
from rooflens.adapters.logs.facts import Facts
from rooflens.adapters.scrape.rows import Row
from rooflens.live_records import Derived
from rooflens.records import StepKind

STEPS_A_LINE = 40.0  # --decode-log-interval
MOST_STEPS = 100_000.0
IDLE_RATIO = 5.0  # times the usual pace of a step: nothing but a pause makes it so slow from one line to the next
MOST_RATE_PER_S = 1e9
AFTER_IDLE = "the first rate after an idle time holds that time: left out"
RESET = "a rate is negative or beyond any engine: the interval is left out"
SET = "the clock of the log went back: the interval is left out"


@dataclass(slots=True)
class _Prefills:
    """The prefill batches since the last decode line."""

    batches: float = 0.0
    sequences: float = 0.0
    tokens: float = 0.0
    hit_tokens: float = 0.0
    from_idle: bool = False


class DecodeLines:
    """The decode and prefill lines of one rank."""

    def __init__(self) -> None:
        self.complaints: dict[str, None] = {}
        self.steps_a_line = STEPS_A_LINE
        self._last: Mapping[str, float] | None = None
        self._last_s: float | None = None
        self._prefills = _Prefills()
        self._pace_s: float | None = None  # of a step, at the last line that was taken
        self._preempted = 0.0

    def prefill(self, values: Mapping[str, float]) -> None:
        """A prefill batch; one that nothing runs beside begins after an idle time, or is the second of a burst."""
        found = self._prefills
        found.batches += 1
        found.sequences += _count(values, "context_requests", "new_requests")
        found.tokens += _count(values, "context_tokens", "prompt_tokens")
        found.hit_tokens += _count(values, "cached_tokens")
        if values.get("running") == 0:
            found.from_idle = True

    def preempt(self, values: Mapping[str, float]) -> None:
        """Requests lost their place in the pool."""
        self._preempted += max(_count(values, "preempted", "retracted"), 1.0)

    def decode(self, values: Mapping[str, float], moment: Moment | None, facts: Facts, number: int) -> Row | None:
        """The row of the steps since the decode line before; None where that cannot be told."""
        before, prefills, preempted = self._last, self._prefills, self._preempted
        last_s = self._last_s
        self._last, self._prefills, self._preempted = values, _Prefills(), 0.0
        rate, running = values.get("generated_tokens_per_s"), values.get("running")
        if moment is not None:
            self._last_s = moment.monotonic_s
            if moment.set:
                self.complaints[SET] = None
                return None
        if rate is None or running is None or not 0 < rate <= MOST_RATE_PER_S or running <= 0:
            if rate is not None and not 0 <= rate <= MOST_RATE_PER_S:
                self.complaints[RESET] = None
            return None
        ends = [end for end in ((before or {}).get("running"), running) if end]
        sequences = sum(ends) / len(ends)
        length = max(values.get("acceptance_length", 1.0), 1.0)
        pace_s = sequences * length / rate
        slow = self._pace_s is not None and pace_s > IDLE_RATIO * self._pace_s
        if prefills.from_idle or before is None or (slow and not prefills.batches):
            if before is not None:
                self.complaints[AFTER_IDLE] = None
            return None
        self._pace_s = pace_s
        steps = self.steps_a_line
        blocks, drafts = facts.pool[0] if facts.pool else None, facts.get("speculative_tokens")
        span_s = steps * pace_s
        end_s = moment.monotonic_s if moment is not None else (last_s or 0.0) + span_s
        self._last_s = end_s
        told = _Interval(values, sequences, length, steps, span_s, end_s, prefills, preempted, blocks, drafts)
        return told.row(moment, number)


@dataclass(frozen=True, slots=True)
class _Interval:
    values: Mapping[str, float]
    sequences: float
    length: float
    steps: float
    span_s: float
    end_s: float
    prefills: _Prefills
    preempted: float
    blocks: float | None
    drafts: float | None

    def row(self, moment: Moment | None, number: int) -> Row:
        """The columns; a part of the time went into prefill batches where there were any, and no line says which."""
        values, prefills = self.values, self.prefills
        rows, generated = self.sequences * self.steps, self.sequences * self.steps * self.length
        mixed = prefills.batches > 0
        tokens, drafts = values.get("kv_used_tokens", values.get("kv_tokens")), self.drafts
        kind = StepKind.MIXED if mixed else StepKind.VERIFY if self.length > 1 else StepKind.DECODE
        query = generated if self.length == 1 else rows * (1 + drafts) if drafts else None
        context = None if tokens is None else tokens * self.steps
        columns: dict[str, float | None] = {
            "sequence": number,
            "kind": kind,
            "unix_s": moment.unix_s if moment is not None else None,
            "submit_monotonic_s": self.end_s - self.span_s,
            "output_monotonic_s": self.end_s,
            "observed_s": self.span_s,
            "resolution_steps": round(self.steps + prefills.batches),
            "requests": rows + prefills.sequences,
            "prefill_requests": prefills.sequences,
            "query_tokens": None if query is None else query + prefills.tokens,
            "prefill_tokens": prefills.tokens,
            "sampled_rows": None if query is None else query + prefills.sequences,
            "generated_tokens": generated,
            "prefix_hit_local_tokens": prefills.hit_tokens,
            "preempted": self.preempted,
            "running": values.get("running"),
            "waiting": values.get("waiting"),
            "kv_blocks_used": self._blocks(tokens),
            "context_tokens": context,
            "context_blocks": context,
            "prefill_pairs": None if mixed else 0.0,
            "causal_pairs": None if context is None or mixed or self.length > 1 else context + rows,
            "graph_mode": None,
        }
        return Row({name: value for name, value in columns.items() if value is not None}, self._derived())

    def _blocks(self, tokens: float | None) -> float | None:
        """Blocks as the pool counts them: of one token each."""
        used = self.values.get("kv_used_ratio")
        return tokens if tokens is not None else None if used is None or self.blocks is None else used * self.blocks

    def _derived(self) -> tuple[Derived, ...]:
        words = f"{self.steps:g} steps a line x sequences / rate"
        if self.prefills.batches:
            words += "; prefill batches in between are in it"
        return (
            Derived("resolution_steps", self.steps, "", "as many decode steps as a line stands for"),
            Derived("observed_s", self.span_s, "s", words),
            Derived("step_s", self.span_s / self.steps, "s", words + "; over the steps"),
        )


def _count(values: Mapping[str, float], *names: str) -> float:
    """The first of these that is told, 0 where none is."""
    return next((max(values[name], 0.0) for name in names if name in values), 0.0)
