"""What one group of files amounts to, as partials that merge in the order of the groups to the last bit.

Floating-point sums depend on their order. So that one machine and many give the same table, the files are cut into
the same groups everywhere; a group is summed by one thread in the order of its rows; and the partials are added in
the order of the groups. Who works out which group, and when, changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files as packaged
from typing import Any

import pyarrow as pa

from rooflens.collector.trace.condition import COLUMN_TYPES, one_line, quoted
from rooflens.collector.trace.duck import closed, connected, sql_text
from rooflens.collector.trace.files import TraceFile, TraceFiles
from rooflens.collector.trace.listing import is_local, opened
from rooflens.records import RooflensError
from rooflens.trace_records import CELL_KEYS, CELL_SUMS, HISTOGRAM_BASE, TraceFilter

GROUP_ROWS = 400_000  # of one group, unless a file has more: some tenths of a second, far more than a query costs
GROUP_FILES = 512
LEAST_US = 0.01  # shorter times share a bin of the histogram


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of each group. ``engines`` are the places of the chosen facts' engines by digest."""

    width_s: float
    engines: Mapping[str, int]
    from_unix_s: float | None = None
    to_unix_s: float | None = None
    where: str | None = None
    limit_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Group:
    """Files that are summed together: all with the same columns. ``earlier`` are read beside them for their keys."""

    files: tuple[TraceFile, ...]
    earlier: tuple[str, ...] = ()

    @property
    def rows(self) -> int:
        """Rows of its files."""
        return sum(file.footer.rows for file in self.files)


@dataclass(frozen=True, slots=True)
class Partial:
    """The sums of one group and its histogram, as Arrow tables, and one line for each file that failed."""

    cells: pa.Table
    histogram: pa.Table
    problems: tuple[str, ...] = ()


def groups_of(files: TraceFiles) -> tuple[Group, ...]:
    """The files cut into groups: by host, then time; the same for the same files, wherever they are worked out."""
    groups: list[Group] = []
    open_files: list[TraceFile] = []

    def close() -> None:
        if open_files:
            earlier = dict.fromkeys(url for file in open_files for url in file.earlier)
            groups.append(Group(tuple(open_files), tuple(earlier)))
            open_files.clear()

    rows = 0
    for file in sorted(files.files, key=_by_host):
        doubled = bool(file.earlier) or file.repeats
        fits = bool(open_files) and rows + file.footer.rows <= GROUP_ROWS and len(open_files) < GROUP_FILES
        alike = bool(open_files) and open_files[0].columns == file.columns
        alike = alike and doubled == (bool(open_files[0].earlier) or open_files[0].repeats)
        if not (fits and alike):
            close()
            rows = 0
        open_files.append(file)
        rows += file.footer.rows
    close()
    return tuple(groups)


def _by_host(file: TraceFile) -> tuple[str, float, str]:
    hosts = sorted({facts.host for facts in file.footer.facts.values()})
    return (hosts[0] if hosts else "", file.first_unix_s, file.url)


def partial_of(group: Group, question: Question) -> Partial:
    """The sums of a group; a file that cannot be read becomes a line, and the rest is summed without it."""
    import duckdb

    try:
        return _summed(group, question)
    except (duckdb.Error, OSError, RooflensError) as error:
        if len(group.files) == 1:
            words = f"{group.files[0].url}: cannot be read: {one_line(str(error).split(chr(10), 1)[0])[:200]}"
            return Partial(EMPTY_CELLS, EMPTY_HISTOGRAM, (words,))
    parts = [partial_of(replace(group, files=(file,)), question) for file in group.files]
    return Partial(
        pa.concat_tables([part.cells for part in parts]),
        pa.concat_tables([part.histogram for part in parts]),
        tuple(line for part in parts for line in part.problems),
    )


def _summed(group: Group, question: Question) -> Partial:
    with reading([*(file.url for file in group.files), *group.earlier], question.limit_bytes) as connection:
        connection.register("engines", _engines(group, question))
        connection.execute(chosen_view(group, question))
        return sums(connection, question.width_s)


def sums(connection: Any, width_s: float) -> Partial:
    """The partials of what ``chosen`` shows on this connection."""
    cells = connection.sql(text("part"), params={"width_s": width_s}).to_arrow_table()
    asked = {"base": HISTOGRAM_BASE, "least_us": LEAST_US}
    bins = connection.sql(text("histogram"), params=asked).to_arrow_table()
    return Partial(cells.cast(CELLS_SCHEMA), bins.cast(HISTOGRAM_SCHEMA))


def reading(urls: Sequence[str], limit_bytes: int | None = None) -> Any:
    """A connection, as a context, that can read the files at ``urls``, local or not."""
    filesystems = {}
    for url in urls:
        if "://" in url:
            filesystem, _ = opened(url)
            if not is_local(filesystem):
                filesystems[url.partition("://")[0]] = filesystem
    return closed(urls, 1, limit_bytes) if not filesystems else _remote(filesystems, limit_bytes)


def _remote(filesystems: Mapping[str, Any], limit_bytes: int | None) -> Any:
    from contextlib import closing

    connection = connected(1, limit_bytes)
    for filesystem in filesystems.values():
        connection.register_filesystem(filesystem)
    return closing(connection)


def chosen_view(group: Group, question: Question) -> str:
    """The rows of a group that were asked for, each once, as the view that part.sql reads."""
    names = [name for name, _ in group.files[0].columns]
    missing = [f"NULL::{kind} AS {quoted(name)}" for name, kind in COLUMN_TYPES.items() if name not in names]
    listed = ", ".join(f"'{sql_text(file.url)}'" for file in group.files)
    doubled = bool(group.earlier) or group.files[0].repeats
    extra = ", filename = true, file_row_number = true" if doubled else ""
    steps = f"SELECT {', '.join(['*', *missing])} FROM read_parquet([{listed}], hive_partitioning = false{extra})"
    conditions = list(conditions_of(question))
    if doubled:
        conditions.append(_once(group))
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    joined = f"({steps}) AS steps JOIN engines AS chosen_engines ON chosen_engines.digest = steps.facts"
    return f"CREATE TEMP VIEW chosen AS SELECT steps.*, chosen_engines.engine FROM {joined}{where}"


def conditions_of(question: Question) -> Iterator[str]:
    """The filter as conditions on ``steps``."""
    if question.from_unix_s is not None:
        yield f"steps.unix_s >= {question.from_unix_s!r}::DOUBLE"
    if question.to_unix_s is not None:
        yield f"steps.unix_s < {question.to_unix_s!r}::DOUBLE"
    if question.where is not None:
        yield f"(\n{question.where}\n)"


def _once(group: Group) -> str:
    """No file before this one has the step, and no row before it in its own file."""
    order = [*group.earlier, *(file.url for file in group.files)]
    rank = {url: at for at, url in enumerate(dict.fromkeys(order))}
    values = ", ".join(f"'{sql_text(url)}'" for url in rank)
    place = f"list_position([{values}], {{}}.filename)"
    before = place.format("earlier"), place.format("steps")
    return (
        f"NOT EXISTS (SELECT 1 FROM read_parquet([{values}], hive_partitioning = false, filename = true, "
        "file_row_number = true) AS earlier WHERE earlier.run = steps.run AND earlier.sequence = steps.sequence "
        f"AND ({before[0]} < {before[1]} OR ({before[0]} = {before[1]} "
        "AND earlier.file_row_number < steps.file_row_number)))"
    )


def _engines(group: Group, question: Question) -> pa.Table:
    here = [digest for digest in question.engines if any(digest in file.footer.facts for file in group.files)]
    places = pa.array([question.engines[digest] for digest in here], pa.int64())
    return pa.table({"digest": pa.array(here, pa.string()), "engine": places})


def question_of(files: TraceFiles, chosen: TraceFilter, width_s: float, where: str | None) -> Question:
    """What to ask of each group; ``where`` was checked."""
    place = {label: at for at, label in enumerate(files.labels)}
    engines = {digest: place[facts.label] for digest, facts in files.facts.items()}
    return Question(width_s, engines, chosen.from_unix_s, chosen.to_unix_s, where)


def text(name: str) -> str:
    """One of the SQL texts beside this file."""
    return (packaged("rooflens.collector.trace") / "sql" / f"{name}.sql").read_text(encoding="utf-8")


CELLS_SCHEMA = pa.schema(
    [pa.field(name, pa.int64()) for name in ("engine", *(name for name, _ in CELL_KEYS[1:]))]
    + [pa.field(name, pa.float64()) for name, _ in CELL_SUMS]
)
HISTOGRAM_SCHEMA = pa.schema([pa.field(name, pa.int64()) for name in ("engine", "kind", "bin", "steps")])
EMPTY_CELLS, EMPTY_HISTOGRAM = CELLS_SCHEMA.empty_table(), HISTOGRAM_SCHEMA.empty_table()
