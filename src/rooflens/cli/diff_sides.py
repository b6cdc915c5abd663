"""One side of a comparison: its rings and traces read into runs, with what the engines say of themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rooflens.analyzer.diff.steps import COVARIATES, Run, run_of
from rooflens.cli.bar import Bar
from rooflens.cli.diff_period import Period, placed
from rooflens.cli.find_rings import rings_at
from rooflens.cli.recorded import format_of
from rooflens.collector.trace.listing import is_trace
from rooflens.model_records import HardwareSpec
from rooflens.records import EngineInfo, RooflensError, StepTable

if TYPE_CHECKING:
    import pyarrow as pa

    from rooflens.trace_records import TraceFacts

OPEN = Period()
# Of a trace only these columns are read.
COLUMNS = (
    "kind", "observed_s", "device_s", "submit_monotonic_s", "output_monotonic_s", *COVARIATES, "running", "waiting",
    "deferred", "resolution_steps", "reachable_s",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Side:
    """What was read of one side: ``infos`` and ``hardware`` are those that its runs state, ``problems`` lines."""

    places: tuple[str, ...]
    runs: tuple[Run, ...]
    infos: tuple[EngineInfo, ...]
    hardware: tuple[str, ...]
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is asked of a side besides its places; ``period`` is that of places without one of their own."""

    period: Period = OPEN
    engines: tuple[str, ...] = ()
    hardware: HardwareSpec | None = None


@dataclass(slots=True)
class _Found:
    runs: list[Run] = field(default_factory=list)
    infos: list[EngineInfo] = field(default_factory=list)
    hardware: set[str] = field(default_factory=set)
    problems: list[str] = field(default_factory=list)


def side_of(places: Sequence[str], wanted: Wanted, bar: Bar) -> Side:
    """Read every place of one side; RooflensError in one line for one that holds no steps."""
    found = _Found()
    for text in places:
        place, period = placed(text)
        its = replace(wanted, period=wanted.period if period.is_open else period)
        (_trace if is_trace(place) else _rings)(place, its, found, bar)
    if not found.runs and found.problems:
        raise RooflensError(found.problems[0])
    return Side(
        tuple(places), tuple(found.runs), tuple(found.infos), tuple(sorted(found.hardware)), tuple(found.problems)
    )


def _rings(place: str, wanted: Wanted, found: _Found, bar: Bar) -> None:
    from rooflens.pipeline import read_ring

    paths = rings_at([place])
    for number, path in enumerate(paths):
        if format_of(path) is not None:
            raise RooflensError(f"{path}: no recording of steps: diff compares rings and traces")
        bar.tell(f"reading {path.name}", number / len(paths))
        recording = read_ring(path)
        if not _is_meant(recording.info, path, wanted.engines):
            continue
        steps = recording.steps
        if len(steps):
            steps = _within(steps, wanted.period, f"{path}")
        _take(str(path), steps, recording.info, wanted.hardware, None, found)
    if not found.runs and not found.problems and wanted.engines:
        found.problems.append(f"{place}: no engine matches {', '.join(wanted.engines)}")


def _is_meant(info: EngineInfo | None, path: Path, patterns: Sequence[str]) -> bool:
    words = [path.name, *((info.instance, info.engine, info.model_name, info.host) if info else ())]
    return not patterns or any(fnmatchcase(word, pattern) for word in words if word for pattern in patterns)


def _within(steps: StepTable, period: Period, place: str) -> StepTable:
    if period.is_open:
        return steps
    if not steps.has("unix_s"):
        raise RooflensError(f"{place}: its steps tell no wall time: leave the period out")
    unix_s = steps["unix_s"]
    begin, end = period.between(float(unix_s.max()))
    kept = (unix_s >= begin) & (unix_s < end)
    if not kept.any():
        from rooflens.cli.report import time_text

        holds = f"{time_text(float(unix_s.min()))} to {time_text(float(unix_s.max()))}"
        raise RooflensError(
            f"{place}: no step in the period {period.begin or ''}..{period.end or ''}: it holds {holds}"
        )
    return steps.take(kept)


def _trace(place: str, wanted: Wanted, found: _Found, bar: Bar) -> None:
    from rooflens.collector.trace.files import find_trace
    from rooflens.collector.trace.scan import parts_of
    from rooflens.collector.trace.schema import steps_of
    from rooflens.trace_records import TraceFilter

    chosen = TraceFilter(engines=wanted.engines)
    files = find_trace([place], chosen, bar.tell, for_rows=wanted.period.is_open)
    if not wanted.period.is_open:
        if files.last_unix_s is None:
            raise RooflensError(f"{place}: its files tell no time: leave the period out")
        begin, end = (None if np.isinf(t) else t for t in wanted.period.between(files.last_unix_s))
        chosen = replace(chosen, from_unix_s=begin, to_unix_s=end)
        files = find_trace([place], chosen, bar.tell)
    found.problems += files.problems
    tables: dict[str, list[pa.Table]] = {}
    facts: dict[str, TraceFacts] = {}
    read = 0
    for part in parts_of(files, chosen, COLUMNS, found.problems):
        tables.setdefault(part.facts.run, []).append(part.table)
        facts[part.facts.run] = part.facts
        read += len(part.steps)
        bar.tell(f"reading {place}", min(1.0, read / max(files.rows, 1)))
    for run, pieces in tables.items():
        table = _joined(pieces)
        reachable = table.column("reachable_s") if "reachable_s" in table.column_names else None
        known = None if reachable is None else reachable.to_numpy(zero_copy_only=False).astype(np.float64)
        its = facts[run]
        if its.hardware is not None:
            found.hardware.add(its.hardware.id)
        _take(f"{its.label} {run}", steps_of(table), its.info, wanted.hardware, known, found)


def _joined(pieces: Sequence[pa.Table]) -> pa.Table:
    import pyarrow as pa

    names = [name for name in ("sequence", "unix_s", *COLUMNS) if all(name in each.column_names for each in pieces)]
    return pa.concat_tables([each.select(names) for each in pieces], promote_options="default").sort_by("sequence")


def _take(
    label: str,
    steps: StepTable,
    info: EngineInfo | None,
    hardware: HardwareSpec | None,
    reachable: Any,
    found: _Found,
) -> None:
    if hardware is not None and info is not None and len(steps):
        from rooflens.analyzer.roofline import analyse_engine

        try:
            reachable = analyse_engine(steps, info, hardware).reachable_s
        except RooflensError as error:
            found.problems.append(f"{label}: {error}")
        found.hardware.add(hardware.id)
    run = run_of(label, steps, reachable)
    if run is None:
        found.problems.append(f"{label}: no step with its kind, its batch and its time")
        return
    found.runs.append(run)
    if info is not None:
        found.infos.append(info)
