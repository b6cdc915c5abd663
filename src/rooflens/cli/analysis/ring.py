"""A ring over time: its steps as a table in memory, and the sections of a trace below its own report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from importlib.util import find_spec
from typing import Any

import numpy as np

from rooflens.analyzer.history.overview import history_of
from rooflens.analyzer.roofline import Roofline
from rooflens.calibration_records import Calibration
from rooflens.cli.analysis.asked import Question
from rooflens.cli.analysis.text import sections
from rooflens.live_records import SourceKind
from rooflens.model_records import HardwareSpec, StepAnalysis
from rooflens.pipeline import Recording
from rooflens.pipeline.engine_roof import devices_of
from rooflens.pipeline.labels import model_name
from rooflens.records import RooflensError, StepTable
from rooflens.trace_records import TraceFacts, TraceFilter, TraceRows

NEEDS = ("duckdb", "pyarrow")
HINT = "for the time line, worst windows, changes and what-ifs: pip install 'rooflens[trace]'"
NOT_MEANT = "no engine of this name: it is {}"


def lacking(question: Question) -> str | None:
    """The line that stands for the sections where [trace] is not installed; RooflensError where they were asked for."""
    if all(find_spec(name) for name in NEEDS):
        return None
    if question.given:
        raise RooflensError(f"{', '.join(question.given)} need DuckDB and PyArrow: pip install 'rooflens[trace]'")
    return HINT


def facts_of(recording: Recording, hardware: HardwareSpec | None, problem: str | None) -> TraceFacts:
    """The ring's engine as facts of a trace."""
    info = recording.info
    return TraceFacts(
        run=recording.run,
        host=(info.host if info else None) or "unknown",
        model_name=model_name(info),
        engine=str(recording.rank),
        source=SourceKind.RING,
        info=info,
        hardware=hardware,
        devices=devices_of(info),
        problem=problem,
    )


def only_asked(recording: Recording, question: Question) -> tuple[Recording, TraceFilter]:
    """The recording with the steps that are asked for; RooflensError in one line where none is left."""
    steps = recording.steps
    chosen = question.chosen(float(steps["unix_s"][-1]) if len(steps) else None)
    if chosen == TraceFilter() or not len(steps):
        return recording, chosen
    from rooflens.collector.trace.files import is_meant

    facts = facts_of(recording, None, None)
    if not is_meant(facts, chosen):
        raise RooflensError(f"{recording.path}: {NOT_MEANT.format(facts.label)}")
    rows = np.ones(len(steps), bool)
    if chosen.from_unix_s is not None:
        rows &= steps["unix_s"] >= chosen.from_unix_s
    if chosen.to_unix_s is not None:
        rows &= steps["unix_s"] < chosen.to_unix_s
    if not rows.any():
        raise RooflensError(f"{recording.path}: no steps in the period that was asked for: {_period(steps)}")
    return replace(recording, steps=steps.take(rows)), chosen


def _period(steps: StepTable) -> str:
    from rooflens.cli.report import time_text

    return f"its steps are from {time_text(float(steps['unix_s'][0]))} to {time_text(float(steps['unix_s'][-1]))}"


def where_rows(recording: Recording, analysis: StepAnalysis | None, where: str) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The rows of the steps for which ``where`` holds; RooflensError in one line for one that cannot be read."""
    from rooflens.collector.trace.condition import checked
    from rooflens.collector.trace.duck import closed
    from rooflens.collector.trace.schema import to_arrow

    table = to_arrow(TraceRows(facts_of(recording, None, None), recording.steps, analysis))
    condition = checked(where, [name for name in table.column_names if "@" in name])
    place = "rooflens_row"
    with closed() as connection:
        import pyarrow as pa

        connection.register("given", table.append_column(place, pa.array(np.arange(len(table)))))
        found = connection.execute(f"SELECT {place} FROM given WHERE (\n{condition}\n) ORDER BY 1").fetchall()
    if not found:
        raise RooflensError(f"{recording.path}: no steps where {' '.join(where.split())}")
    return np.array([row[0] for row in found], np.int64)


def over_time(
    recording: Recording,
    analysis: StepAnalysis | None,
    hardware: HardwareSpec | None,
    calibration: Calibration | None,
    problem: str | None,
    question: Question,
    chosen: TraceFilter,
) -> tuple[Mapping[str, Any], list[str]]:
    """(the object of --json, lines) of the sections; RooflensError in one line where there are no steps."""
    from rooflens.cli.analysis.beside import of_ring
    from rooflens.cli.analysis.clocks import of_ring as clocks_of_ring
    from rooflens.cli.analysis.sets import Piece, answers, changes_of, invalid_in
    from rooflens.collector.trace.cells import cells_of_table
    from rooflens.collector.trace.schema import to_arrow

    changes = changes_of(question.set)
    facts = facts_of(recording, hardware, problem)
    table = to_arrow(TraceRows(facts, recording.steps, analysis))
    cells = cells_of_table(table, facts, TraceFilter(), question.window)
    clocks = clocks_of_ring(recording.steps, facts.label)
    beside = replace(
        of_ring(recording.steps, recording.events, facts.label, recording.lost_steps, chosen),
        notes=clocks.notes, clock_spans_s=clocks.spans_s, partial=chosen.where is not None,
    )  # fmt: skip
    history = history_of(cells, beside, question.price, question.most)
    if changes:
        piece = Piece(facts, recording.steps, {})

        def roof(_facts: TraceFacts) -> Roofline:
            if hardware is None or recording.info is None:
                raise RooflensError(problem or "the hardware is not known: give --hardware ID")
            return Roofline.of(recording.info, hardware, calibration)

        history = replace(history, what_ifs=answers([piece], changes, roof, question.price, invalid_in(history)))
    history = replace(history, chosen=asdict(chosen))
    return asdict(history), sections(history, question)
