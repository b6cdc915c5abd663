"""Lines of every few seconds, with means and gauges, as rows: what was done between two of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from statistics import median

from rooflens.adapters.logs.clock import Moment
from rooflens.adapters.logs.pace import Paces, checked
from rooflens.adapters.scrape.change import Change
from rooflens.adapters.scrape.readings import Reading
from rooflens.adapters.scrape.rows import Row, row_of
from rooflens.live_records import Derived

USUAL_S = 10.0  # vLLM's period, until the gaps tell another: its first engine's was 5 s, and it can be set
OFF_RATIO = 1.5  # of the period: a longer gap had lines that were not written, for the engine was idle
SHORTEST_S = 0.5  # lines closer together are of several writers
MOST_PERIOD_S = 60.0
GAPS, SURE_GAPS = 8, 3
MOST_RATE_PER_S = 1e9  # an engine finds at most some ten million cached tokens a second
RESET = (
    "a rate is negative or beyond any engine: its accounting went back, as preemption makes it in some releases; the "
    "interval is left out"
)
SET = "the clock of the log went back: the interval is left out"
GAUGES = {"running": "running", "waiting": "waiting", "waiting_deferred": "deferred", "swapped": "swapped",
          "kv_used": "kv_used_ratio"}  # fmt: skip
RATES = {"generated_tokens": "generated_tokens_per_s", "computed_prompt_tokens": "prompt_tokens_per_s"}
COUNTS = {"drafted": "drafted_tokens", "accepted": "accepted_tokens", "preempted": "preempted"}


@dataclass(frozen=True, slots=True)
class _Held:
    """What the engine held at a line, by the keys of a Reading."""

    monotonic_s: float
    unix_s: float | None
    values: Mapping[str, float]

    @property
    def may_work(self) -> bool:
        """Whether requests were there, or may have been: without any the engine may rest, and then is silent."""
        return self.values.get("running") != 0 or bool(self.values.get("waiting"))


class Intervals:
    """The periodic lines of one engine, as vLLM writes them; ``complaints`` are what was wrong, for the taking."""

    def __init__(self) -> None:
        self.complaints: dict[str, None] = {}
        self._gaps: deque[float] = deque(maxlen=GAPS)
        self._open: tuple[Moment | None, dict[str, float]] | None = None
        self._before: _Held | None = None
        self._paces = Paces()
        self._said: set[str] = set()

    @property
    def period_s(self) -> float:
        """The time between two lines, as the last ones were apart."""
        return median(self._gaps) if len(self._gaps) >= SURE_GAPS else USUAL_S

    @property
    def open_since_s(self) -> float | None:
        """When the line was written whose row has not been told; None without one."""
        return None if self._open is None or self._open[0] is None else self._open[0].monotonic_s

    def take(
        self, values: Mapping[str, float], moment: Moment | None, config: Mapping[str, str], number: int
    ) -> Row | None:
        """Take a line in; the row of the one before it, now that it is known what else belonged to that."""
        row = self.close(config, number, values)
        self._open = (moment, dict(values))
        return row

    def add(self, values: Mapping[str, float]) -> None:
        """What another line tells of the interval of the last one: drafts, preemptions."""
        if self._open is not None:
            self._open[1].update({name: value for name, value in values.items() if name not in self._open[1]})

    def close(self, config: Mapping[str, str], number: int, after: Mapping[str, float] | None = None) -> Row | None:
        """The row of the last line; None where there is none, or it tells of no work that can be counted.

        ``after`` is what the line after it says, where there is one.
        """
        if self._open is None:
            return None
        (told, values), self._open = self._open, None
        before = self._before
        moment = told or self._guessed()
        gap_s = None if before is None or moment.set else _gap_s(before, moment)
        if gap_s is not None and gap_s < SHORTEST_S:
            return None  # another writer's line of the same engine
        gauges = {ours: values[line] for ours, line in GAUGES.items() if values.get(line, -1.0) >= 0}
        if "waiting_deferred" in gauges and "waiting" in gauges:
            gauges["waiting_capacity"] = max(gauges["waiting"] - gauges["waiting_deferred"], 0.0)
        span_s = self._span_s(gap_s, before)
        joined = span_s == gap_s and before is not None
        measured = joined or (gap_s is not None and len(self._gaps) >= SURE_GAPS)
        self._before = _Held(moment.monotonic_s, moment.unix_s, gauges)
        if self._wrong(values, moment):
            return None
        if not measured:  # a rate over a time that nothing tells: the first line's, or after a rest among the first
            self._note(values)
            return None
        start = {**(before.values if joined and before is not None else {})}
        counted = {**_counted(values, span_s)}
        unix_s = moment.unix_s or 0.0
        began = Reading("", "0", unix_s - span_s, moment.monotonic_s - span_s, start | dict.fromkeys(counted, 0.0))
        ended = Reading("", "0", unix_s, moment.monotonic_s, gauges | counted, config)
        row = row_of(Change(began, ended), number)
        if row is None:
            return None
        ends = (start["running"], gauges["running"]) if start.get("running") and gauges.get("running") else None
        return _with_bounds(self._sure(row, span_s, ends, values, after), span_s, moment, guessed=told is None)

    def _sure(
        self,
        row: Row,
        span_s: float,
        ends: tuple[float, float] | None,
        values: Mapping[str, float],
        after: Mapping[str, float] | None,
    ) -> Row:
        """The row without steps that are not sure; ``ends`` are what ran at both, None where it is not known."""
        if ends is not None:
            most_per_s = self._paces.most_per_s(max(ends), None if after is None else _pace(after))
            row, why = checked(row, span_s, ends, most_per_s)
            if why is not None and why not in self._said:
                self._said.add(why)
                self.complaints[why] = None
        if ends is None or ends[0] == ends[1]:
            self._note(values)
        return row

    def _note(self, values: Mapping[str, float]) -> None:
        if (own := _pace(values)) is not None:
            self._paces.note(*own)

    def _wrong(self, values: Mapping[str, float], moment: Moment) -> bool:
        rates = [values[name] for name in RATES.values() if name in values]
        wrong = any(not 0 <= rate <= MOST_RATE_PER_S for rate in rates)
        if wrong:
            self.complaints[RESET] = None
        if moment.set:
            self.complaints[SET] = None
        return wrong or moment.set

    def _guessed(self) -> Moment:
        """Where a line without any time stands: a period after the one before."""
        last_s = self._before.monotonic_s if self._before is not None else 0.0
        return Moment(last_s + self.period_s, None, self.period_s)

    def _span_s(self, gap_s: float | None, before: _Held | None) -> float:
        """The seconds that a line tells of: since the line before, or a period where lines were not written."""
        if gap_s is not None and gap_s <= MOST_PERIOD_S and before is not None and before.may_work:
            self._gaps.append(gap_s)
        period_s = self.period_s
        return period_s if gap_s is None or gap_s > OFF_RATIO * period_s else gap_s


def _pace(values: Mapping[str, float]) -> tuple[float, float] | None:
    """(Running sequences, steps a second) of a line that tells of decode alone."""
    running, rate = values.get("running", 0.0), values.get("generated_tokens_per_s", 0.0)
    if values.get("prompt_tokens_per_s") != 0 or not running > 0 or not 0 < rate <= MOST_RATE_PER_S:
        return None
    return running, rate / running / max(values.get("acceptance_length", 1.0), 1.0)


def _gap_s(before: _Held, moment: Moment) -> float:
    """From line to line by their stamps: lines that were held back come at once, and late."""
    if before.unix_s is not None and moment.unix_s is not None:
        return moment.unix_s - before.unix_s
    return moment.monotonic_s - before.monotonic_s


def _counted(values: Mapping[str, float], span_s: float) -> dict[str, float]:
    """What was done in an interval, by the keys of a Reading; with drafts also how many sequences put out tokens."""
    found = {ours: values[line] * span_s for ours, line in RATES.items() if line in values}
    cumulative = "system_efficiency_ratio" in values  # vLLM's V0 engine counts drafts ever since it began
    counts = {} if cumulative else COUNTS
    found |= {ours: values[line] for ours, line in counts.items() if values.get(line, -1.0) >= 0}
    length, generated = values.get("acceptance_length"), found.get("generated_tokens")
    if length is not None and length >= 1 and generated:
        found["inter_token_count"] = generated / length
    return found


def _with_bounds(row: Row, span_s: float, moment: Moment, *, guessed: bool) -> Row:
    """The row with what is not sure of its interval: stamps of whole seconds, or none at all."""
    columns = dict(row.columns)
    if moment.unix_s is None:
        columns.pop("unix_s", None)
    words = "rate x time between two lines" + (", which tell no time: their usual distance" if guessed else "")
    share = 0.0 if guessed else moment.sure_s / span_s
    derived = list(row.derived)
    for name in ("generated_tokens", "prefill_tokens"):
        if (value := columns.get(name)) is not None:
            bounds = (value * max(1 - share, 0.0), value * (1 + share)) if not guessed else (None, None)
            derived.append(Derived(name, value, "", words, *bounds))
    return replace(row, columns=columns, derived=tuple(derived))
