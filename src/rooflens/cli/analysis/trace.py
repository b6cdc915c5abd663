"""Traces on disk or in an object store: one report over all engines of all places."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any

import pyarrow as pa

from rooflens.analyzer.history.joined import joined
from rooflens.analyzer.history.overview import Beside, history_of
from rooflens.analyzer.history.records import History
from rooflens.analyzer.roofline import Roofline
from rooflens.cli.analysis.asked import Question
from rooflens.cli.analysis.beside import of_trace
from rooflens.cli.analysis.clocks import of_trace as clocks_of_trace
from rooflens.cli.analysis.roofs import roof_texts, roofs_of
from rooflens.cli.analysis.sets import Piece, answers, changes_of, counted, invalid_in, keyframes_in, roof_of
from rooflens.cli.analysis.text import trace_text
from rooflens.cli.bar import Bar
from rooflens.cli.named import config_named, hardware_named, is_this_cpu
from rooflens.cli.recorded import Asked
from rooflens.collector.trace.cells import cells_of, cells_of_table, width_of
from rooflens.collector.trace.files import TraceFiles, find_trace
from rooflens.collector.trace.scan import meant_rows, parts_of
from rooflens.collector.trace.schema import steps_of, to_arrow
from rooflens.model_records import HardwareSpec, StepAnalysis
from rooflens.pipeline.engine_roof import devices_of
from rooflens.records import RooflensError, StepTable
from rooflens.trace_records import Cells, TraceFacts, TraceFilter, TraceRows

FORMAT = "trace"
NOT_BOTH = "--dask works on the bounds as they were captured: leave out --hardware and --model"
MEASURED = "--hardware this-cpu is for rings: name the device, or a TOML file, for a trace"


def report(places: Sequence[str], question: Question, asked: Asked) -> tuple[dict[str, Any], str]:
    """The trace at ``places``; RooflensError in one line where nothing of it can be read."""
    changes = changes_of(question.set)
    if is_this_cpu(asked.hardware):
        raise RooflensError(MEASURED)
    hardware, model = hardware_named(asked.hardware), config_named(asked.model)
    bar = Bar(quiet=True)
    try:
        files, chosen = _found(places, question, bar)
        again = _Again(hardware, model)
        cells = _cells(files, chosen, question, again, bar)
        problems: list[str] = []
        history = history_of(cells, _beside(files, chosen, problems), question.price, question.most)
        if changes:
            pieces = counted(_pieces(files, chosen, problems, again), files.rows, bar.tell)
            history = replace(
                history, what_ifs=answers(pieces, changes, again.roof, question.price, invalid_in(history))
            )
    finally:
        bar.end()
    history = replace(history, chosen=asdict(chosen))
    told = tuple(dict.fromkeys((*files.problems, *cells.problems, *problems, *again.problems)))
    roofs = roofs_of(again.facts(each) for each in files.facts.values())
    return as_json(places, len(files.files), told, history) | {"roofs": roofs}, trace_text(
        places, len(files.files), told, history, question, roof_texts(roofs)
    )


def as_json(places: Sequence[str], files: int, problems: Sequence[str], history: History) -> dict[str, Any]:
    """The object of --json."""
    return {
        "format": FORMAT,
        "places": list(places),
        "files": files,
        "problems": list(problems),
        "history": asdict(history),
    }


def _found(places: Sequence[str], question: Question, bar: Bar) -> tuple[TraceFiles, TraceFilter]:
    """The files and the filter; a time relative to the end takes a look at the whole trace first."""
    chosen = question.chosen()
    if question.relative:
        last = find_trace(places, TraceFilter(engines=question.engine), bar.tell, for_rows=False).last_unix_s
        chosen = question.chosen(last if last is not None else 0.0)
    return find_trace(places, chosen, bar.tell), chosen


class _Again:
    """Bounds worked out again where the user named other hardware or a model; else those that were captured."""

    def __init__(self, hardware: HardwareSpec | None, model: Any) -> None:
        self.hardware, self.model = hardware, model
        self.wanted = hardware is not None or model is not None
        self.problems: dict[str, None] = {}
        self._roofs: dict[str, Roofline | None] = {}

    def facts(self, facts: TraceFacts) -> TraceFacts:
        """The facts with what the user named; a model only where the engine does not state its own."""
        info = facts.info
        if info is not None and info.model_config is None and self.model is not None:
            info = replace(info, model_config=dict(self.model))
        devices = devices_of(info) if info is not None else facts.devices
        return replace(facts, info=info, hardware=self.hardware or facts.hardware, devices=devices)

    def roof(self, facts: TraceFacts) -> Roofline:
        """See roof_of."""
        return roof_of(facts)

    def roof_or_none(self, facts: TraceFacts) -> Roofline | None:
        """The roofline, None with a line in ``problems`` where there is none."""
        key = facts.digest
        if key not in self._roofs:
            try:
                self._roofs[key] = roof_of(facts)
            except RooflensError as error:
                self._roofs[key] = None
                self.problems[str(error)] = None
        return self._roofs[key]

    def analysis(self, facts: TraceFacts, steps: StepTable) -> StepAnalysis | None:
        """The bounds of some steps, None with a line in ``problems`` where there are none."""
        roof = self.roof_or_none(facts)
        try:
            return roof.analyse_all(steps) if roof else None
        except RooflensError as error:
            self.problems[f"{facts.label}: {error}"] = None
            return None


def _beside(files: TraceFiles, chosen: TraceFilter, problems: list[str]) -> Beside:
    """What is known beside the steps, and what cannot be told of these alone."""
    clocks = clocks_of_trace(files, chosen)
    found = of_trace(files, chosen, problems)
    return replace(
        found, notes=(*clocks.notes, *found.notes), clock_spans_s=clocks.spans_s, partial=chosen.where is not None
    )


def _cells(files: TraceFiles, chosen: TraceFilter, question: Question, again: _Again, bar: Bar) -> Cells:
    if question.dask is not None:
        if again.wanted:
            raise RooflensError(NOT_BOTH)
        from rooflens.collector.trace.dask_cells import cells_on

        return cells_on(question.dask, files, chosen, question.window, bar.tell)
    if not again.wanted:
        return cells_of(files, chosen, question.window, bar.tell)
    width_s = question.window or width_of(files, chosen)
    pieces, problems, done = [], list[str](), 0
    for facts, table in _tables(files, chosen, problems, again):
        pieces.append(cells_of_table(table, facts, TraceFilter(), width_s))
        done += len(table)
        bar.tell("working out the bounds again", done / max(1, files.rows))
    if not pieces:
        raise RooflensError(
            next(iter(problems), "no steps in what was asked for: widen --from, --to, --engine or --where")
        )
    return joined(pieces, len(files.files), tuple(problems))


def _tables(
    files: TraceFiles, chosen: TraceFilter, problems: list[str], again: _Again
) -> Iterator[tuple[TraceFacts, pa.Table]]:
    """Steps with their bounds; a condition is on those that are worked out again where some are."""
    if not again.wanted:
        yield from ((part.facts, part.table) for part in parts_of(files, chosen, None, problems))
        return
    for part in parts_of(files, replace(chosen, where=None), None, problems):
        facts = again.facts(part.facts)
        frames = keyframes_in(part.table, part.table.column_names)
        table = to_arrow(TraceRows(facts, part.steps, again.analysis(facts, part.steps), frames))
        table = meant_rows(table, files, chosen)
        if len(table):
            yield facts, table


def _pieces(files: TraceFiles, chosen: TraceFilter, problems: list[str], again: _Again) -> Iterator[Piece]:
    for facts, table in _tables(files, chosen, problems, again):
        yield Piece(again.facts(facts), steps_of(table), keyframes_in(table, table.column_names))


def say(problems: Sequence[str]) -> None:
    """Lines on standard error."""
    from rooflens.cli.output import one_line

    for line in problems:
        print(one_line(f"rooflens: {line}"), file=sys.stderr)
