"""Steps summed by engine, window, kind and regime, from the files of a trace or from a table in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pyarrow as pa

from rooflens.collector.trace.condition import COLUMN_TYPES, checked, failed, quoted
from rooflens.collector.trace.duck import at_once, closed, memory_bytes
from rooflens.collector.trace.files import Progress, TraceFiles
from rooflens.collector.trace.lengths import lengths, longest_of, longest_usual_s
from rooflens.collector.trace.merging import Merger
from rooflens.collector.trace.partials import (
    Group,
    Partial,
    Question,
    conditions_of,
    groups_of,
    partial_of,
    sizes_of,
    sums,
)
from rooflens.records import RooflensError
from rooflens.trace_records import Cells, TraceFacts, TraceFilter

WIDTHS_S = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 600.0, 1800.0, 3600.0, 7200.0, 86400.0)
MOST_WINDOWS, LEAST_WINDOWS = 400, 12
MOST_PAIRS = 20_000  # of window and engine: each has some cells of some 400 bytes
LEAST_ROWS = 3  # of the longest usual ones in a window
AHEAD = 2  # groups that each thread may be ahead of the merge


def cells_of(
    files: TraceFiles, chosen: TraceFilter, width_s: float | None = None, progress: Progress | None = None
) -> Cells:
    """The cells of all steps that are asked for; RooflensError in one line where there are none.

    ``width_s`` None chooses the smallest of WIDTHS_S that keeps the cells few. The result does not depend on how many
    cores worked on it.
    """
    width_s = width_s or width_of(files, chosen)
    groups = groups_of(files)
    threads = min(at_once(), len(groups)) or 1
    question = asked(files, chosen, width_s)
    question = replace(question, limit_bytes=memory_bytes() // threads)

    def parts() -> Iterator[Partial]:
        with ThreadPoolExecutor(threads) as pool:
            yield from in_order(groups, lambda group: pool.submit(partial_of, group, question), threads * AHEAD)

    return merged(files, chosen, groups, parts(), width_s, progress)


def asked(files: TraceFiles, chosen: TraceFilter, width_s: float) -> Question:
    """The question to each group of files, its condition checked; RooflensError in one line."""
    if not width_s > 0:
        raise RooflensError(f"--window: a width in seconds above 0, not {width_s}")
    spanned = {name for file in files.files for name, _ in file.columns if name not in COLUMN_TYPES}
    where = checked(chosen.where, sorted(spanned))
    return Question(width_s, chosen.from_unix_s, chosen.to_unix_s, where)


def in_order(groups: Sequence[Group], submit: Callable[[Group], Future[Partial]], ahead: int) -> Iterator[Partial]:
    """The partials in the order of the groups, with at most ``ahead`` worked on or waiting."""
    running: list[Future[Partial]] = []
    waiting = iter(groups)
    try:
        for group in waiting:
            running.append(submit(group))
            if len(running) >= ahead:
                yield running.pop(0).result()
        while running:
            yield running.pop(0).result()
    finally:
        for future in running:
            future.cancel()


def merged(
    files: TraceFiles,
    chosen: TraceFilter,
    groups: Sequence[Group],
    parts: Iterator[Partial],
    width_s: float,
    progress: Progress | None,
) -> Cells:
    """The partials of all groups, in their order, as cells; RooflensError where no step is left."""
    merger, done, rows = Merger(), 0, max(1, files.rows)
    for group, part in zip(groups, parts, strict=True):
        merger.add(part)
        done += group.rows
        if progress is not None:
            progress(f"{files.rows:,} steps in {len(files.files):,} files", done / rows)
    cells = merger.cells(width_s, facts_by_engine(files), len(files.files), files.problems)
    if not len(cells.columns["rows"]):
        raise RooflensError(_none(chosen, merger.problems))
    return cells


def facts_by_engine(files: TraceFiles) -> list[TraceFacts]:
    """The last facts of each engine, in the order of its labels."""
    last: dict[str, TraceFacts] = {}
    for file in files.files:
        for digest, facts in file.footer.facts.items():
            if digest in files.facts:
                last[facts.label] = facts
    return [last[label] for label in files.labels]


def width_of(files: TraceFiles, chosen: TraceFilter) -> float:
    """The smallest width that makes few windows of the period asked for, none shorter than some usual rows."""
    starts = [each for each in (files.first_unix_s, chosen.from_unix_s) if each is not None]
    ends = [each for each in (files.last_unix_s, chosen.to_unix_s) if each is not None]
    span_s = min(ends) - max(starts) if starts and ends else 0.0
    return chosen_width(span_s, len(files.labels), longest_usual_s(files, chosen))


def chosen_width(span_s: float, engines: int, longest_s: float = 0.0) -> float:
    """The smallest of WIDTHS_S with which ``span_s`` and so many engines make a bounded number of windows, each of some
    rows as long as ``longest_s``."""
    most = max(LEAST_WINDOWS, min(MOST_WINDOWS, MOST_PAIRS // max(1, engines)))
    return next(
        (width for width in WIDTHS_S if span_s / width <= most and width >= LEAST_ROWS * longest_s), WIDTHS_S[-1]
    )


def cells_of_table(table: pa.Table, facts: TraceFacts, chosen: TraceFilter, width_s: float | None = None) -> Cells:
    """The cells of one engine's steps in memory, such as those of a ring; RooflensError where none is left."""
    names = set(table.column_names)
    spanned = sorted(names - set(COLUMN_TYPES))
    where = checked(chosen.where, spanned)
    question = Question(width_s or 1.0, chosen.from_unix_s, chosen.to_unix_s, where)
    missing = [f"NULL::{kind} AS {quoted(name)}" for name, kind in COLUMN_TYPES.items() if name not in names]
    conditions = " AND ".join(conditions_of(question)) or "true"
    devices, pool = sizes_of(facts)
    merger = Merger()
    with closed() as connection:
        connection.register("given", table)
        steps = f"(SELECT {', '.join(['*', *missing])} FROM given) AS steps"
        connection.execute(
            f"CREATE TEMP VIEW chosen AS SELECT steps.*, 0::BIGINT AS engine, {devices}::BIGINT AS engine_devices, "
            f"{'NULL' if pool is None else pool}::BIGINT AS engine_pool_blocks FROM {steps} WHERE {conditions}"
        )
        try:
            width_s = width_s or _width_on(connection)
            merger.add(sums(connection, width_s))
        except Exception as error:
            raise (failed(where or "", error) or error) from None
    cells = merger.cells(width_s, [facts], 0)
    if not len(cells.columns["rows"]):
        raise RooflensError(_none(chosen, []))
    return cells


def _width_on(connection: Any) -> float:
    """The width for one engine's steps that are ``chosen`` here."""
    ((first, last),) = connection.sql("SELECT min(unix_s), max(unix_s) FROM chosen").fetchall()
    return chosen_width(0.0 if first is None else last - first, 1, longest_of(lengths(connection)))


def _none(chosen: TraceFilter, problems: Sequence[str]) -> str:
    if problems:
        return problems[0]
    condition = f" where {' '.join((chosen.where or '').split())}" if chosen.where else ""
    return f"no steps{condition} in what was asked for: widen --from, --to, --engine or --where"
