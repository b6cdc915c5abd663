"""Steps as slices on tracks: when each was busy, what the host did meanwhile, and the counters beside them."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rooflens.exporters.trace_files.lanes import Lanes
from rooflens.exporters.trace_files.parts import StepRows
from rooflens.model_records import Bound
from rooflens.records import GraphMode, StepKind
from rooflens.trace_records import TraceFacts

KIND_NAMES = {int(kind): kind.name.lower() for kind in StepKind}
BOUND_NAMES = {int(bound): bound.name.lower() for bound in Bound}
GRAPH_NAMES = {int(mode): mode.name.lower() for mode in GraphMode if mode is not GraphMode.UNKNOWN}
STEPS, HOST = "steps", "host"
# An engine with steps in flight schedules the next ones before the output of the first: so many may be ahead.
HOST_AHEAD = 48
# Columns that a slice shows as they are, by the name that it shows them under.
SHOWN = {
    "sequence": "step",
    "requests": "batch",
    "prefill_requests": "prefill_requests",
    "query_tokens": "tokens",
    "prefill_tokens": "prefill_tokens",
    "generated_tokens": "generated_tokens",
    "drafted_tokens": "drafted_tokens",
    "accepted_tokens": "accepted_tokens",
    "recomputed_tokens": "recomputed_tokens",
    "context_tokens": "context_tokens",
    "preempted": "preempted",
}
ALWAYS = frozenset(("step", "batch", "tokens", "context_tokens"))  # the others only where they are not 0
TIMES = {"observed_s": "observed_ms", "floor_s": "floor_ms", "reachable_s": "reachable_ms", "device_s": "device_ms"}


class Counter(NamedTuple):
    """One line of values beside an engine's steps: ``unit`` is "" for a count, "1" for a ratio."""

    name: str
    unit: str


BATCH, WAITING = Counter("batch", ""), Counter("waiting", "")
KV_USED, MBU = Counter("KV cache used", "1"), Counter("MBU", "1")
SLOWDOWN = Counter("x reachable", "1")
COUNTERS = (BATCH, WAITING, KV_USED, MBU, SLOWDOWN)
DIGITS = 4  # of a ratio: a viewer shows no more, and a value that stays writes nothing


@dataclass(frozen=True, slots=True)
class Slice:
    """A piece of time on a track of a run, in whole units since the beginning; ``details`` only of a step."""

    track: str
    lane: int
    name: str
    begin: int
    end: int
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Value:
    """A counter's new value from ``at`` on."""

    counter: Counter
    at: int
    value: float


@dataclass(slots=True)
class RunLine:
    """The tracks of one run of one engine. ``ticks`` makes Unix seconds whole units since the beginning."""

    ticks: Callable[[float], int]
    lanes: Lanes = field(default_factory=Lanes)
    left_out: int = 0
    _host: list[tuple[int, int, str]] = field(default_factory=list)
    _host_end: int = 0
    _values: dict[Counter, float] = field(default_factory=dict)

    def take(self, rows: StepRows) -> Iterator[tuple[float, list[Slice | Value]]]:
        """Of each step its Unix seconds and what it adds; a step without a time is counted in ``left_out``."""
        names = list(rows.columns)
        for values in zip(*rows.columns.values(), strict=True):
            row = dict(zip(names, values, strict=True))
            unix_s, observed_s = row.get("unix_s"), row.get("observed_s")
            if unix_s is None or observed_s is None or not observed_s >= 0:
                self.left_out += 1
                continue
            placed = self.lanes.place(max(0, self.ticks(unix_s - observed_s)), max(0, self.ticks(unix_s)))
            if placed is None:
                self.left_out += 1
                continue
            lane, begin, end = placed
            made: list[Slice | Value] = [Slice(STEPS, lane, step_name(row), begin, end, step_details(row))]
            if lane == 0:  # beside it the clock was set back: a second value at the same time tells nothing
                made += self._counters(rows.facts, row, begin, end)
                made += self._host_slices(row, unix_s)
            yield unix_s, made

    def end(self) -> list[Slice | Value]:
        """What the host did last."""
        return [found for found in self._released(0) if found is not None]

    def _host_slices(self, row: Mapping[str, Any], unix_s: float) -> list[Slice | Value]:
        output_s, submit_s = row.get("output_monotonic_s"), row.get("submit_monotonic_s")
        if (schedule_s := row.get("schedule_s")) and output_s is not None and submit_s is not None:
            scheduled = unix_s - (output_s - submit_s)
            self._push(scheduled - schedule_s, scheduled, "schedule")
        if wait_s := row.get("wait_s"):
            self._push(unix_s - wait_s, unix_s, "wait for the output")
        if update_s := row.get("update_s"):
            self._push(unix_s, unix_s + update_s, "update")
        return [found for found in self._released(HOST_AHEAD) if found is not None]

    def _push(self, begin_s: float, end_s: float, name: str) -> None:
        heapq.heappush(self._host, (max(0, self.ticks(begin_s)), max(0, self.ticks(end_s)), name))

    def _released(self, keep: int) -> Iterator[Slice | None]:
        """In the order of time, one thread's: what overlaps what was there before is cut off in front."""
        while len(self._host) > keep:
            begin, end, name = heapq.heappop(self._host)
            begin = max(begin, self._host_end)
            if end <= begin:
                yield None
                continue
            self._host_end = end
            yield Slice(HOST, 0, name, begin, end)

    def _counters(self, facts: TraceFacts, row: Mapping[str, Any], begin: int, end: int) -> Iterator[Value]:
        found = {BATCH: row.get("requests"), WAITING: row.get("waiting"), KV_USED: _kv_used(facts, row)}
        of_step = {MBU: ratio(row.get("memory_s"), row.get("observed_s")),
                   SLOWDOWN: ratio(row.get("observed_s"), row.get("reachable_s"))}  # fmt: skip
        for counter, value in (found | of_step).items():
            if value is not None and self._values.get(counter) != value:
                self._values[counter] = value
                yield Value(counter, begin if counter in of_step or counter is BATCH else end, value)


def step_name(row: Mapping[str, Any]) -> str:
    """The kind of a step."""
    return KIND_NAMES.get(row.get("kind", -1), "step")


def step_details(row: Mapping[str, Any]) -> dict[str, Any]:
    """What a viewer shows of a step: times in ms, ratios, counts; nothing for what is not known."""
    found: dict[str, Any] = {}
    for column, name in SHOWN.items():
        value = row.get(column)
        if value is not None and (value or name in ALWAYS):
            found[name] = value
    for column, name in TIMES.items():
        if (value := row.get(column)) is not None:
            found[name] = round(value * 1e3, 6)
    ratios = {
        "x_reachable": ratio(row.get("observed_s"), row.get("reachable_s")),
        "mbu": ratio(row.get("memory_s"), row.get("observed_s")),
        "mfu": row["mfu"] and round(row["mfu"], DIGITS) if "mfu" in row else None,
    }
    found |= {name: value for name, value in ratios.items() if value is not None}
    if (many := row.get("resolution_steps")) is not None and many > 1:
        found["steps"] = many
    if (bound := row.get("bound")) is not None:
        found["bound"] = BOUND_NAMES.get(bound, str(bound))
    if (graph := GRAPH_NAMES.get(row.get("graph_mode", 0))) is not None:
        found["graph"] = graph
    return found


def ratio(part: float | None, whole: float | None) -> float | None:
    """part / whole to DIGITS; None where either is not known or there is no whole."""
    if part is None or not whole:
        return None
    found = part / whole  # of a whole that is nearly none no ratio is left
    return round(found, DIGITS) if math.isfinite(found) else None


def _kv_used(facts: TraceFacts, row: Mapping[str, Any]) -> float | None:
    return ratio(row.get("kv_blocks_used"), facts.info.kv_blocks if facts.info else None)
