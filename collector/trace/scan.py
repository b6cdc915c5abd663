"""The rows of a trace, a bounded piece at a time: steps with their bounds, events, counters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rooflens.collector.trace.condition import COLUMN_TYPES, checked, failed, quoted
from rooflens.collector.trace.duck import closed
from rooflens.collector.trace.file import footer_of
from rooflens.collector.trace.files import TraceFile, TraceFiles, beside_urls, is_meant, metadata_of_file
from rooflens.collector.trace.listing import is_local, opened, reason
from rooflens.collector.trace.plausible import LEFT_OUT, tidy
from rooflens.collector.trace.schema import steps_of
from rooflens.collector.trace.whole import check
from rooflens.records import RooflensError, StepTable
from rooflens.trace_records import TraceFacts, TraceFilter, TraceTable

PART_ROWS = 100_000
KEYS = ("facts", "run", "sequence", "unix_s")
KIND = "kind"  # which every reader of whole steps asks for


@dataclass(frozen=True, slots=True)
class TracePart:
    """Some steps of one engine, all with the same facts. ``table`` has the columns that were asked for, ``steps`` those
    of them that a StepTable holds; both have the same rows."""

    facts: TraceFacts
    steps: StepTable
    table: pa.Table


def parts_of(
    files: TraceFiles, chosen: TraceFilter, columns: Sequence[str] | None = None, problems: list[str] | None = None
) -> Iterator[TracePart]:
    """The steps that are asked for, file by file in the order of time, each once.

    ``columns`` None gives all that a file has; facts, run, sequence and unix_s are always there, and a column that an
    older file lacks is null. A file that cannot be read becomes a line in ``problems`` and the others are given;
    without ``problems`` RooflensError is raised.
    """
    condition, left_out = _Condition.of(files, chosen), 0
    for file in files.files:
        try:
            for batch in _batches(file, _wanted(file, columns, condition)):
                rows, lost = tidy(batch, [file.url])
                left_out += lost
                yield from _split(_filtered(rows, chosen, condition), files, columns)
        except (pa.ArrowException, OSError) as error:
            _told(file.url, error, problems)
    if left_out and problems is not None:
        problems.append(LEFT_OUT.format(left_out))


def events_of(
    files: TraceFiles, chosen: TraceFilter, problems: list[str] | None = None
) -> Iterator[tuple[dict[str, TraceFacts], pa.Table]]:
    """Events and findings beside the steps: the facts of a file by digest, and its rows that are asked for."""
    for url in beside_urls(files.places, TraceTable.EVENTS, chosen):
        try:
            facts = {
                d: each for d, each in footer_of(url, metadata_of_file(url)).facts.items() if is_meant(each, chosen)
            }
            check(url)
            for batch in _batches_of(url, None):
                table = _within(batch, chosen, "unix_s")
                table = table.filter(pc.is_in(table.column("facts"), pa.array(list(facts), pa.string())))
                if table.num_rows:
                    yield facts, table
        except (pa.ArrowException, OSError, KeyError, RooflensError) as error:
            _told(url, error, problems)


def counters_of(files: TraceFiles, chosen: TraceFilter, problems: list[str] | None = None) -> Iterator[pa.Table]:
    """Samples of devices beside the steps, of the hosts of the chosen engines."""
    hosts = pa.array(sorted({facts.host for facts in files.facts.values()}), pa.string())
    for url in beside_urls(files.places, TraceTable.COUNTERS, chosen):
        try:
            check(url)
            for batch in _batches_of(url, None):
                table = _within(batch, chosen, "end_unix_s")
                if chosen.engines:
                    table = table.filter(pc.is_in(table.column("host"), hosts))
                if table.num_rows:
                    yield table
        except (pa.ArrowException, OSError, KeyError, RooflensError) as error:
            _told(url, error, problems)


def meant_rows(table: pa.Table, files: TraceFiles, chosen: TraceFilter) -> pa.Table:
    """The steps of ``table`` for which the condition of ``chosen`` holds, such as on bounds that were made anew."""
    condition = _Condition.of(files, chosen)
    return table if condition is None or not table.num_rows else condition.rows(table)


@dataclass(frozen=True, slots=True)
class _Condition:
    """A condition on steps, with the columns that it may name."""

    where: str
    names: tuple[str, ...]

    @classmethod
    def of(cls, files: TraceFiles, chosen: TraceFilter) -> _Condition | None:
        spanned = sorted({name for file in files.files for name, _ in file.columns if name not in COLUMN_TYPES})
        where = checked(chosen.where, spanned)
        if where is None:
            return None
        return cls(where, tuple(name for name in (*COLUMN_TYPES, *spanned) if name.lower() in where.lower()))

    def rows(self, table: pa.Table) -> pa.Table:
        """Those for which it is true, in their order."""
        missing = [
            f"NULL::{COLUMN_TYPES.get(n, 'DOUBLE')} AS {quoted(n)}" for n in self.names if n not in table.column_names
        ]
        with closed() as connection:
            connection.register("given", table.append_column("row#", pa.array(range(table.num_rows), pa.int64())))
            steps = f"(SELECT {', '.join(['*', *missing])} FROM given) AS steps"
            query = f'SELECT "row#" FROM {steps} WHERE (\n{self.where}\n) ORDER BY 1'
            try:
                found = connection.sql(query).to_arrow_table()
            except Exception as error:
                raise (failed(self.where, error) or error) from None
        return table.take(found.column(0))


def _wanted(file: TraceFile, columns: Sequence[str] | None, condition: _Condition | None) -> list[str] | None:
    if columns is None:
        return None
    there = {name for name, _ in file.columns}
    names = dict.fromkeys([*KEYS, *columns, *(condition.names if condition else ())])
    return [name for name in names if name in there]


def _batches(file: TraceFile, names: list[str] | None) -> Iterator[pa.Table]:
    """The file's rows, without those that an earlier file or row has."""
    seen = _keys(file.earlier) if file.earlier else None
    for table in _batches_of(file.url, names):
        if seen is None and not file.repeats:
            yield table
            continue
        seen = set() if seen is None else seen
        keys = list(zip(table.column("run").to_pylist(), table.column("sequence").to_pylist(), strict=True))
        fresh = np.zeros(len(keys), dtype=bool)
        for row, key in enumerate(keys):
            fresh[row] = key[1] is None or key not in seen
            if file.repeats:
                seen.add(key)
        yield table.filter(pa.array(fresh))


def _keys(urls: Sequence[str]) -> set[tuple[str, int]]:
    found: set[tuple[str, int]] = set()
    for url in urls:
        for table in _batches_of(url, ["run", "sequence"]):
            found.update(zip(table.column("run").to_pylist(), table.column("sequence").to_pylist(), strict=True))
    return found


def _batches_of(url: str, names: list[str] | None) -> Iterator[pa.Table]:
    with _parquet(url) as file:
        for batch in file.iter_batches(PART_ROWS, columns=names):
            yield pa.Table.from_batches([batch])


@contextmanager
def _parquet(url: str) -> Iterator[Any]:
    filesystem, path = opened(url)
    if is_local(filesystem):
        with pq.ParquetFile(path) as file:
            yield file
        return
    with filesystem.open(path, "rb") as stream, pq.ParquetFile(stream) as file:
        yield file


def _filtered(table: pa.Table, chosen: TraceFilter, condition: _Condition | None) -> pa.Table:
    table = _within(table, chosen, "unix_s")
    return table if condition is None or not table.num_rows else condition.rows(table)


def _within(table: pa.Table, chosen: TraceFilter, name: str) -> pa.Table:
    times = table.column(name)
    if chosen.from_unix_s is not None:
        table = table.filter(pc.greater_equal(times, chosen.from_unix_s))
        times = table.column(name)
    return table if chosen.to_unix_s is None else table.filter(pc.less(times, chosen.to_unix_s))


def _split(table: pa.Table, files: TraceFiles, columns: Sequence[str] | None) -> Iterator[TracePart]:
    """One part for each of the facts, in the order of their first row."""
    if columns is not None:
        names = dict.fromkeys([*KEYS, *columns])
        table = table.select([name for name in names if name in table.column_names])
    elif KIND not in table.column_names:
        table = table.append_column(KIND, pa.nulls(len(table), pa.int64()))
    column = table.column("facts")
    for digest in pc.unique(column).to_pylist():
        facts = files.facts.get(digest)
        if facts is None:
            continue
        rows = table.filter(pc.equal(column, digest))
        yield TracePart(facts, steps_of(rows), rows)


def _told(url: str, error: Exception, problems: list[str] | None) -> None:
    words = str(error) if isinstance(error, RooflensError) else f"{url}: cannot be read: {reason(error)}"
    if problems is None:
        raise RooflensError(words) from None
    problems.append(words)
