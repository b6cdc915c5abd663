"""Which engines of a recording ran while their wall clock was set, as the host's own clock tells it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rooflens.analyzer.history.clock import LEAST_S, HostClock, clock_line
from rooflens.collector.trace.files import TraceFiles
from rooflens.collector.trace.scan import parts_of
from rooflens.records import StepTable
from rooflens.trace_records import TraceFilter


@dataclass(frozen=True, slots=True)
class Clocks:
    """``spans_s`` by the host's clock of the engines whose wall clock was set, ``notes`` a line each."""

    spans_s: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def of_ring(steps: StepTable, label: str) -> Clocks:
    """Those of one ring."""
    clock = HostClock()
    if len(steps):
        clock.take(*(np.where(steps.where(name), steps[name], np.nan) for name in TIMES))
    return _told({label: [clock]})


TIMES = ("output_monotonic_s", "unix_s", "observed_s")


def of_trace(files: TraceFiles, chosen: TraceFilter) -> Clocks:
    """Those of a trace; only engines whose files' statistics do not rule it out are looked at step by step."""
    suspects = _suspects(files)
    if not suspects:
        return Clocks()
    runs = {facts.run for facts in files.facts.values() if facts.label in suspects}
    some = replace(files, files=tuple(file for file in files.files if runs & set(file.footer.runs)))
    clocks: dict[str, dict[str, HostClock]] = {}
    for part in parts_of(some, chosen, TIMES, []):
        if part.facts.label in suspects:
            clock = clocks.setdefault(part.facts.label, {}).setdefault(part.facts.run, HostClock())
            clock.take(*(_values(part.table, name) for name in TIMES))
    return _told({label: list(by_run.values()) for label, by_run in sorted(clocks.items())})


def _suspects(files: TraceFiles) -> set[str]:
    """Labels of which some run has times that are not equally far from the host's clock in all of its files."""
    ends: dict[str, list[float]] = {}
    for file in files.files:
        for run in file.footer.runs:
            ends.setdefault(run, []).extend(file.clock_offsets_s)
    moved = {run for run, found in ends.items() if found and max(found) - min(found) > LEAST_S}
    return {facts.label for facts in files.facts.values() if facts.run in moved}


def _values(table: pa.Table, name: str) -> NDArray[np.float64]:
    if name not in table.column_names:
        return np.full(len(table), np.nan)
    found: NDArray[np.float64] = table.column(name).cast(pa.float64()).to_numpy()
    return found


def _told(clocks: Mapping[str, list[HostClock]]) -> Clocks:
    jumps = {label: [jump for each in found for jump in each.jumps] for label, found in clocks.items()}
    spans = {label: sum(each.span_s for each in clocks[label]) for label, found in jumps.items() if found}
    return Clocks(spans, tuple(clock_line(label, found) for label, found in jumps.items() if found))
