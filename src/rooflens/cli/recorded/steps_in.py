"""The steps that any recording holds, a bounded piece at a time: what exports and the Python API read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rooflens import __version__
from rooflens.analyzer.roofline import Roofline
from rooflens.cli.calibrations import Calibrations
from rooflens.cli.recorded.held import Held, held_at
from rooflens.collector.trace.beside import event_of
from rooflens.collector.trace.condition import COLUMN_TYPES, checked
from rooflens.collector.trace.duck import closed
from rooflens.collector.trace.files import find_trace, is_meant, is_trace, time_of
from rooflens.collector.trace.scan import KEYS, counters_of, events_of, parts_of
from rooflens.collector.trace.schema import keyframes_of, to_arrow
from rooflens.findings import Finding
from rooflens.model_records import HardwareSpec, StepAnalysis
from rooflens.records import RingEvent, RooflensError, StepTable
from rooflens.trace_records import KEYFRAME_COLUMNS, TraceFacts, TraceFilter, TraceRows

Tell = Callable[[str, float], None]
Period = Callable[[float | None], tuple[float | None, float | None]]
ROW = "row#"
NO_STEPS = "no steps: the recording is empty"
SHOWN = 6  # names in one line


@dataclass(slots=True)
class Roofs:
    """The bounds of steps that come without, or that are wanted on other hardware or of another model.

    ``model`` is a config.json for engines that do not state theirs. ``problems`` are why there are none, in lines.
    """

    hardware: HardwareSpec | None = None
    model: Mapping[str, Any] | None = None
    calibrations: Calibrations | None = None
    problems: dict[str, None] = field(default_factory=dict)
    _roofs: dict[int, tuple[TraceFacts, Roofline | None]] = field(default_factory=dict)
    _facts: dict[str, TraceFacts] = field(default_factory=dict)

    @property
    def wanted(self) -> bool:
        """Whether bounds that were captured are to be worked out again."""
        return self.hardware is not None or self.model is not None

    def facts(self, facts: TraceFacts) -> TraceFacts:
        """The facts with what is named here."""
        if not self.wanted:
            return facts
        info = facts.info
        if info is not None and info.model_config is None and self.model is not None:
            info = replace(info, model_config=dict(self.model))
        return replace(facts, info=info, hardware=self.hardware or facts.hardware)

    def known(self, facts: TraceFacts, digest: str) -> TraceFacts:
        """The same object for the same digest of a file."""
        if digest not in self._facts:
            self._facts[digest] = self.facts(facts)
        return self._facts[digest]

    def analysis(self, facts: TraceFacts, steps: StepTable) -> StepAnalysis | None:
        """The bounds; None, with a line in ``problems``, where there are none."""
        key = id(facts)  # a digest of a thousand engines takes a second; what is kept here is not given anew
        try:
            if key not in self._roofs:
                self._roofs[key] = facts, None
                self._roofs[key] = facts, self._roof(facts)
            roof = self._roofs[key][1]
            return roof.analyse_all(steps) if roof is not None else None
        except RooflensError as error:
            self.problems[f"{facts.label}: no bounds: {error}"] = None
            return None

    def _roof(self, facts: TraceFacts) -> Roofline | None:
        if facts.hardware is None:
            raise RooflensError("the hardware is not known: name it")
        if facts.info is None:
            raise RooflensError("the engine's facts are not recorded")
        uuids = facts.info.device_uuids
        calibration = self.calibrations.of_device(facts.hardware, uuids) if self.calibrations else None
        return Roofline.of(facts.info, facts.hardware, calibration)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is asked of recordings: ``period`` gives the ends in Unix seconds once the last step's time is known, None
    for an end that is open; ``relative`` says that it needs that time."""

    roofs: Roofs = field(default_factory=Roofs)
    period: Period = lambda last_unix_s: (None, None)
    relative: bool = False
    engines: tuple[str, ...] = ()
    where: str | None = None


class StepsIn:
    """Steps, events and counters at some places; ``problems`` are one line each, of what was left out."""

    def __init__(self, places: Sequence[str], wanted: Wanted, tell: Tell) -> None:
        """Look at every place; RooflensError in one line where nothing can be read or nothing is meant."""
        self.problems: list[str] = []
        self.roofs, self._tell, self._wanted = wanted.roofs, tell, wanted
        traces = [place for place in places if is_trace(place)]
        others = [place for place in places if place not in traces]
        held = list(held_at(others, self.problems, tell)) if others or not traces else []
        engines = TraceFilter(engines=wanted.engines)
        self._files = find_trace(traces, engines, tell, False) if traces and wanted.relative else None
        times = [*map(_last, held), self._files.last_unix_s if self._files else None]
        last = max((time for time in times if time is not None), default=None)
        begin, end = wanted.period(last)
        self.chosen = TraceFilter(begin, end, wanted.engines, wanted.where)
        checked(wanted.where)
        self._files = find_trace(traces, self.chosen, tell) if traces else None
        self.problems += self._files.problems if self._files else ()
        self._held = [_Ready.of(each, self.roofs, self.chosen) for each in held if is_meant(each.facts, self.chosen)]
        if not self._files:
            self._refuse_nothing(held)

    def _refuse_nothing(self, held: Sequence[Held]) -> None:
        if any(len(ready.table) for ready in self._held):
            return
        if not self._held and held:
            labels = sorted({each.facts.label for each in held})
            more = f" and {len(labels) - SHOWN} more" if len(labels) > SHOWN else ""
            wanted = ", ".join(self.chosen.engines)
            raise RooflensError(f"no engine matches {wanted}: there are {', '.join(labels[:SHOWN])}{more}")
        if not self._held and self.problems:
            raise RooflensError(self.problems[0])
        times = [t for each in held for t in _span(each)]
        if not times:
            raise RooflensError(NO_STEPS)
        holds = f"the recording holds {time_of(min(times))} to {time_of(max(times))}"
        if self.chosen.where is not None:
            raise RooflensError(f"no steps where {' '.join(self.chosen.where.split())} in what was asked for: {holds}")
        raise RooflensError(f"no steps in the period that was asked for: {holds}")

    @property
    def rows(self) -> int:
        """Steps, of a trace those that a filter will leave out included."""
        return sum(len(each.table) for each in self._held) + (self._files.rows if self._files else 0)

    @property
    def first_unix_s(self) -> float | None:
        """About when the first step was; None where no time is known."""
        times = [time for each in self._held if (time := pc.min(each.table.column("unix_s")).as_py()) is not None]
        if self._files and self._files.first_unix_s is not None:
            times.append(max(self._files.first_unix_s, self.chosen.from_unix_s or 0.0))
        return min(times, default=None)

    def _stored(self) -> TraceFilter:
        """What is asked of steps as they are stored: a condition on bounds is on those that are worked out again."""
        return replace(self.chosen, where=None) if self.roofs.wanted else self.chosen

    @property
    def begin_unix_s(self) -> float | None:
        """When the first of the steps began, long before its output where it stands for many; a look at all of them."""
        tables = [each.table for each in self._held]
        parts = parts_of(self._files, self._stored(), ["observed_s"], []) if self._files else ()
        found = [_begin(table) for table in (*tables, *(part.table for part in parts))]
        return min((time for time in found if time is not None), default=self.first_unix_s)

    @property
    def facts(self) -> tuple[TraceFacts, ...]:
        """Those of all engines, in the order of their labels."""
        found = [each.facts for each in self._held]
        if self._files:
            found += [self.roofs.known(facts, digest) for digest, facts in self._files.facts.items()]
        return tuple(sorted(found, key=lambda facts: (facts.label, facts.run)))

    def tables(self, columns: Sequence[str] | None = None) -> Iterator[tuple[TraceFacts, pa.Table]]:
        """The steps of one engine at a time in the order of time, as tables of collector.trace.schema.

        ``columns`` None gives all; facts, run, sequence and unix_s are always there.
        """
        names = None if columns is None else [*dict.fromkeys((*KEYS, *columns))]
        for ready in self._held:
            if len(ready.table):
                yield ready.facts, ready.table if names is None else ready.table.select(names)
        if self._files is None:
            return
        done, again = 0, self.roofs.wanted
        for part in parts_of(self._files, self._stored(), None if again else columns, self.problems):
            facts, table = part.facts, part.table
            if again:
                facts = self.roofs.known(facts, table.column("facts")[0].as_py())
                its = set(table.column_names)
                frames = keyframes_of(table) if {name for name, _, _ in KEYFRAME_COLUMNS} <= its else {}
                table = to_arrow(TraceRows(facts, part.steps, self.roofs.analysis(facts, part.steps), frames))
                if not len(table := _within(table, self.chosen)):
                    continue
                table = table if names is None else table.select(names)
            done += len(table)
            yield facts, table
            self._tell(f"{done:,} steps", min(1.0, done / max(1, self.rows)))

    def events(self) -> Iterator[tuple[TraceFacts, float, RingEvent | Finding]]:
        """Events and findings with the Unix seconds of each; one that is damaged is a line in ``problems``."""
        for ready in self._held:
            yield from ((ready.facts, unix_s, event) for unix_s, event in ready.events)
        for facts, table in events_of(self._files, self.chosen, self.problems) if self._files else ():
            for row in table.to_pylist():
                try:
                    found = event_of(row)
                except RooflensError as error:
                    self.problems.append(str(error))
                    continue
                its = facts[row["facts"]]
                yield self.roofs.known(its, row["facts"]), row["unix_s"], found

    def event_tables(self) -> Iterator[pa.Table]:
        """The same as rows of collector.trace.beside."""
        from rooflens.collector.trace.beside import events_table
        from rooflens.trace_records import TraceEvents

        yield events_table([TraceEvents(ready.facts, ready.events) for ready in self._held])
        for _, table in events_of(self._files, self.chosen, self.problems) if self._files else ():
            yield table

    def counters(self) -> Iterator[pa.Table]:
        """Samples of devices."""
        if self._files:
            yield from counters_of(self._files, self.chosen, self.problems)


@dataclass(frozen=True, slots=True)
class _Ready:
    """What is asked for of a recording in memory, with its bounds."""

    facts: TraceFacts
    table: pa.Table
    events: tuple[tuple[float, RingEvent], ...]

    @classmethod
    def of(cls, held: Held, roofs: Roofs, chosen: TraceFilter) -> _Ready:
        facts = roofs.facts(held.facts)
        analysis = roofs.analysis(facts, held.steps) if roofs.wanted and len(held.steps) else None
        if analysis is not None:
            facts = replace(facts, roof_version=__version__)
        table = _within(to_arrow(TraceRows(facts, held.steps, analysis)), chosen)
        events = tuple(entry for entry in held.events if _inside(entry[0], chosen))
        return cls(facts, table, events)


def _within(table: pa.Table, chosen: TraceFilter) -> pa.Table:
    if chosen.from_unix_s is not None:
        table = table.filter(pc.greater_equal(table.column("unix_s"), chosen.from_unix_s))
    if chosen.to_unix_s is not None:
        table = table.filter(pc.less(table.column("unix_s"), chosen.to_unix_s))
    where = checked(chosen.where, [name for name in table.column_names if name not in COLUMN_TYPES])
    if where is None or not len(table):
        return table
    with closed() as connection:
        connection.register("steps", table.append_column(ROW, pa.array(range(len(table)), pa.int64())))
        found = connection.sql(f'SELECT "{ROW}" FROM steps WHERE (\n{where}\n) ORDER BY 1').to_arrow_table()
    return table.take(found.column(0))


def _begin(table: pa.Table) -> float | None:
    """The earliest time at which a step of the table was busy."""
    times = table.column("unix_s").to_numpy()
    busy = table.column("observed_s").to_numpy() if "observed_s" in table.column_names else np.zeros(len(times))
    begins = times - np.where(busy >= 0, busy, 0.0)
    begins = begins[np.isfinite(begins)]
    return float(begins.min()) if len(begins) else None


def _inside(unix_s: float, chosen: TraceFilter) -> bool:
    after = chosen.to_unix_s is not None and unix_s >= chosen.to_unix_s
    return not after and (chosen.from_unix_s is None or unix_s >= chosen.from_unix_s)


def _span(held: Held) -> tuple[float, ...]:
    steps = held.steps
    if "unix_s" not in steps.columns or not len(steps):
        return ()
    known = steps["unix_s"][steps.where("unix_s")]
    return (float(known.min()), float(known.max())) if len(known) else ()


def _last(held: Held) -> float | None:
    return max(_span(held), default=None)
