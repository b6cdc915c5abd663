"""SGLang's lines: one every so many decode steps, with the rate since the last, and one for each prefill batch.

Its throughput is tokens over the time since the decode line before (or since the counter was begun), so the first one
after an idle engine holds the idle time: it is absurdly low, and left out. A prefill batch is a step of its own. How
many steps a line stands for is an argument of the server; where it is not told, the tokens between two stamps tell it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rooflens.adapters.logs.clock import Moment
from rooflens.adapters.logs.facts import Facts
from rooflens.adapters.scrape.rows import Row
from rooflens.live_records import Derived
from rooflens.records import StepKind

STEPS_A_LINE = 40.0  # --decode-log-interval, where neither it nor the time between lines is told
MOST_STEPS = 100_000.0
IDLE_RATIO = 2.0  # times the usual pace of a step: nothing but a pause makes it so slow for one line without a prefill
UNEVEN_RATIO = 2.0  # the batch at one end of an interval over that at the other: in between it is anybody's guess
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
        self._last: Mapping[str, float] | None = None
        self._line_s: float | None = None  # stamp of the line that the next interval begins at
        self._end_s: float | None = None  # of the last row
        self._prefills = _Prefills()
        self._pace_s: float | None = None  # of a step, at the last usual line without prefills
        self._odd_s: float | None = None  # the same of the line before this one, where it was an unusual one
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
        before, prefills, preempted, line_s = self._last, self._prefills, self._preempted, self._line_s
        self._last, self._prefills, self._preempted = values, _Prefills(), 0.0
        if moment is not None:
            self._line_s = moment.monotonic_s
            if moment.set:
                self.complaints[SET] = None
                return None
        rate, running = values.get("generated_tokens_per_s"), values.get("running")
        if rate is None or running is None or not 0 < rate <= MOST_RATE_PER_S or not running > 0:
            if rate is not None and not 0 <= rate <= MOST_RATE_PER_S:
                self.complaints[RESET] = None
            return None
        if before is None:
            return None  # its rate began with the engine
        ends = [end for end in (before.get("running"), running) if end and end > 0]
        sequences = sum(ends) / len(ends)
        length = max(values.get("acceptance_length", 1.0), 1.0)
        pace_s = sequences * length / rate
        paused, hasty = self._unusual(pace_s, prefills)
        if paused:
            self.complaints[AFTER_IDLE] = None
            return None
        told, gap_s = facts.get("steps_a_line"), None
        if moment is not None and line_s is not None:
            gap_s = moment.monotonic_s - line_s
        if not told and gap_s is not None and gap_s / pace_s < 1:
            # Stamps that are too coarse, or out of order: the next line tells of this interval as well.
            self._last, self._line_s = before, line_s
            self._prefills, self._preempted = prefills, preempted
            return None
        steps = told if told and told >= 1 else gap_s / pace_s if gap_s is not None else STEPS_A_LINE
        steps, span_s = min(steps, MOST_STEPS), min(steps, MOST_STEPS) * pace_s
        if gap_s is not None and moment is not None:
            span_s = max(min(span_s, gap_s + moment.sure_s), gap_s - moment.sure_s)
        sure = max(ends) <= UNEVEN_RATIO * min(ends) and not hasty
        begin_s, end_s = self._place(moment, span_s)
        if not end_s > begin_s or not span_s > 0:
            return None
        interval = _Interval(values, sequences, length, steps, span_s, begin_s, end_s, prefills, preempted, facts, sure)
        return interval.row(moment, number)

    def _unusual(self, pace_s: float, prefills: _Prefills) -> tuple[bool, bool]:
        """Whether a pause is in the time of these steps, and whether they are too quick for the batch at both ends.

        A pace that stays is neither.
        """
        usual_s, odd_s = self._pace_s, self._odd_s
        stays = odd_s is not None and odd_s <= pace_s * IDLE_RATIO and pace_s <= odd_s * IDLE_RATIO
        slow = usual_s is not None and pace_s > IDLE_RATIO * usual_s and not prefills.batches and not stays
        hasty = usual_s is not None and pace_s * UNEVEN_RATIO < usual_s and not stays
        if prefills.from_idle or slow or hasty:
            self._odd_s = pace_s
        else:
            self._odd_s = None
            self._pace_s = usual_s if prefills.batches else pace_s
        return prefills.from_idle or slow, hasty

    def _place(self, moment: Moment | None, span_s: float) -> tuple[float, float]:
        """Begin and end of a row on the clock: rows follow each other, stamps tell where to a second or better."""
        last_s = self._end_s
        if moment is None:
            begin_s = last_s or 0.0
            end_s = begin_s + span_s
        else:
            end_s = moment.monotonic_s
            if last_s is not None and not moment.set:
                end_s = max(end_s, min(last_s + span_s, end_s + moment.sure_s))
            begin_s = end_s - span_s if last_s is None else max(end_s - span_s, last_s)
        self._end_s = end_s if last_s is None else max(end_s, last_s)
        return begin_s, end_s


@dataclass(frozen=True, slots=True)
class _Interval:
    values: Mapping[str, float]
    sequences: float
    length: float
    steps: float
    span_s: float
    begin_s: float
    end_s: float
    prefills: _Prefills
    preempted: float
    facts: Facts
    timed: bool  # whether steps and sequences are sure enough for a time beside a floor

    def row(self, moment: Moment | None, number: int) -> Row:
        """The columns; a part of the time went into prefill batches where there were any, and no line says which."""
        values, prefills = self.values, self.prefills
        rows, generated = self.sequences * self.steps, self.sequences * self.steps * self.length
        mixed = prefills.batches > 0
        tokens, verified = values.get("kv_used_tokens"), self.facts.get("speculative_tokens")
        kind = StepKind.MIXED if mixed else StepKind.VERIFY if self.length > 1 else StepKind.DECODE
        query = generated if self.length == 1 else rows * verified if verified else None
        context = self._context(tokens)
        columns: dict[str, float | None] = {
            "sequence": number,
            "kind": kind,
            "unix_s": moment.unix_s if moment is not None else None,
            "submit_monotonic_s": self.begin_s,
            "output_monotonic_s": self.end_s,
            "observed_s": self.span_s if self.timed else None,
            "resolution_steps": max(round(self.steps + prefills.batches), 1),
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
            "context_blocks": None if context is None else context / self._page,
            "prefill_pairs": None if mixed else 0.0,
            "causal_pairs": None if context is None or mixed or self.length > 1 else context + rows,
            "graph_mode": None,
        }
        return Row({name: value for name, value in columns.items() if value is not None}, self._derived())

    @property
    def _page(self) -> float:
        """Tokens of a block: pages of the pool, of one token each where no other size is told."""
        pool = self.facts.pool
        return float(pool[1]) if pool else max(self.facts.get("block_tokens") or 1.0, 1.0)

    def _blocks(self, tokens: float | None) -> float | None:
        used, pool = self.values.get("kv_used_ratio"), self.facts.pool
        if tokens is not None:
            return tokens / self._page
        return None if used is None or pool is None else used * pool[0]

    def _context(self, tokens: float | None) -> float | None:
        """Contexts summed over the steps, at the least; None where the pool holds those of requests that do not run.

        The line tells the pool at its end, in whole pages: each step before it had one token less of each sequence,
        and prompts that came in between were not there from the first one on.
        """
        coming = [self.values.get(name) for name in ("preallocating", "transferring")]
        alone = self.facts.words.get("role") != "decode" and not any(value is not None for value in coming)
        if tokens is None or not (alone or coming == [0, 0]):
            return None
        grown = self.sequences * self.length * (self.steps + 1) / 2 + self.sequences * (self._page - 1)
        return max(tokens - grown - self.prefills.tokens - self.prefills.hit_tokens, 0.0) * self.steps

    def _derived(self) -> tuple[Derived, ...]:
        told = self.facts.get("steps_a_line")
        words = f"{self.steps:g} steps a line x sequences / rate"
        if self.prefills.batches:
            words += "; prefill batches in between are in it"
        why = "as many decode steps as a line stands for" if told else "rate x time between lines / sequences"
        steps = Derived("resolution_steps", self.steps, "", why)
        if not self.timed:
            return (steps,)
        return (
            steps,
            Derived("observed_s", self.span_s, "s", words),
            Derived("step_s", self.span_s / self.steps, "s", words + "; over the steps"),
        )


def _count(values: Mapping[str, float], *names: str) -> float:
    """The first of these that is told, 0 where none is."""
    return next((max(values[name], 0.0) for name in names if name in values), 0.0)
