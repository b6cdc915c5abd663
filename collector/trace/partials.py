"""What one group of files amounts to, as partials that merge in the order of the groups to the last bit.

Floating-point sums depend on their order. So that one machine and many give the same table, the files are cut into
the same groups everywhere; a group is summed by one thread in the order of its rows; and the partials are added in
the order of the groups. Who works out which group, and when, changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files as packaged
from typing import Any, TypeVar

import pyarrow as pa

from rooflens.collector.trace.condition import failed, one_line
from rooflens.collector.trace.duck import at_once, closed, connected, memory_bytes, sql_text
from rooflens.collector.trace.files import TraceFile, TraceFiles
from rooflens.collector.trace.listing import is_local, opened
from rooflens.collector.trace.plausible import columns_sql, is_finite
from rooflens.records import RooflensError
from rooflens.trace_records import CELL_KEYS, CELL_SUMS, HISTOGRAM_BASE, TraceFacts

GROUP_ROWS = 1_000_000  # of one group, unless a file has more: a second of work, far more than a query costs
GROUP_FILES = 512
Answer = TypeVar("Answer")
LEAST_US = 0.01  # shorter times share a bin of the histogram


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of each group; ``where`` was checked, ``limit_bytes`` is what one thread may use.

    With ``finite`` numbers that are none are not known; this is asked only of groups that have some.
    """

    width_s: float
    from_unix_s: float | None = None
    to_unix_s: float | None = None
    where: str | None = None
    limit_bytes: int | None = None
    finite: bool = False


Known = tuple[str, int, int, int | None]  # see Group.engines


@dataclass(frozen=True, slots=True)
class Group:
    """Files that are summed together: all with the same ``columns``, the names alone.

    ``engines`` tell of each digest of facts the place of its engine in the order of labels, its devices, and the KV
    blocks of its pool, None where not known: a restart may have changed them. Where the files are ``doubled``, a step
    may be in them more than once, or in those of ``earlier``, which have smaller URLs.
    """

    urls: tuple[str, ...]
    columns: tuple[str, ...]
    engines: tuple[Known, ...]
    rows: int
    doubled: bool = False
    earlier: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Partial:
    """The sums of one group and its histogram, as Arrow tables, and one line for each file that failed."""

    cells: pa.Table
    histogram: pa.Table
    problems: tuple[str, ...] = ()


def groups_of(files: TraceFiles) -> tuple[Group, ...]:
    """The files cut into groups: by host, then time; the same for the same files, wherever they are worked out."""
    place = {label: at for at, label in enumerate(files.labels)}
    known = {digest: (place[facts.label], *sizes_of(facts)) for digest, facts in files.facts.items()}
    groups: list[Group] = []
    members: list[TraceFile] = []
    rows = 0
    for file in sorted(files.files, key=_by_host):
        full = rows + file.footer.rows > GROUP_ROWS or len(members) == GROUP_FILES
        if members and (full or _alike(file) != _alike(members[0])):
            groups.append(_group(members, known))
            members, rows = [], 0
        members.append(file)
        rows += file.footer.rows
    return (*groups, _group(members, known)) if members else tuple(groups)


def sizes_of(facts: TraceFacts) -> tuple[int, int | None]:
    """(devices, KV blocks of the pool or None) of a run."""
    return max(1, facts.devices), (facts.info.kv_blocks if facts.info else None) or None


def _alike(file: TraceFile) -> tuple[tuple[tuple[str, str], ...], bool]:
    """What files of one group have in common."""
    return file.columns, bool(file.earlier) or file.repeats


def _group(files: Sequence[TraceFile], known: Mapping[str, tuple[int, int, int | None]]) -> Group:
    digests = dict.fromkeys(digest for file in files for digest in file.footer.facts if digest in known)
    columns, doubled = _alike(files[0])
    return Group(
        urls=tuple(file.url for file in files),
        columns=tuple(name for name, _ in columns),
        engines=tuple((digest, *known[digest]) for digest in digests),
        rows=sum(file.footer.rows for file in files),
        doubled=doubled,
        earlier=tuple(dict.fromkeys(url for file in files for url in file.earlier)),
    )


def _by_host(file: TraceFile) -> tuple[str, float, str]:
    hosts = sorted({facts.host for facts in file.footer.facts.values()})
    return (hosts[0] if hosts else "", file.first_unix_s, file.url)


def partial_of(group: Group, question: Question) -> Partial:
    """The sums of a group; a file that cannot be read becomes a line, and the rest is summed without it.

    RooflensError in one line for a condition that fails over a value.
    """
    import duckdb

    try:
        return _summed(group, question)
    except (duckdb.Error, OSError, RooflensError) as error:
        if question.where is not None and (told := failed(question.where, error)):
            raise told from None
        if len(group.urls) == 1:
            words = f"{group.urls[0]}: cannot be read: {one_line(str(error).split(chr(10), 1)[0])[:200]}"
            return Partial(EMPTY_CELLS, EMPTY_HISTOGRAM, (words,))
    parts = [partial_of(_alone(group, url), question) for url in group.urls]
    return Partial(
        pa.concat_tables([part.cells for part in parts]),
        pa.concat_tables([part.histogram for part in parts]),
        tuple(line for part in parts for line in part.problems),
    )


def _alone(group: Group, url: str) -> Group:
    """The group with one of its files only; the others still say which steps are theirs."""
    before = tuple(other for other in group.urls if other < url) if group.doubled else ()
    return replace(group, urls=(url,), earlier=tuple(dict.fromkeys((*group.earlier, *before))))


def _summed(group: Group, question: Question) -> Partial:
    limit_bytes = question.limit_bytes or memory_bytes() // at_once()
    found = on_chosen(group, question, limit_bytes, lambda connection: sums(connection, question.width_s))
    if question.finite or is_finite(found.cells):
        return found
    return _summed(group, replace(question, finite=True))


def on_chosen(group: Group, question: Question, limit_bytes: int, ask: Callable[[Any], Answer]) -> Answer:
    """What ``ask`` answers on a connection that shows the rows of a group that were asked for as ``chosen``."""
    with reading([*group.earlier, *group.urls], limit_bytes) as connection:
        engines = [dict(zip(ENGINES.names, one, strict=True)) for one in group.engines]
        connection.register("engines", pa.Table.from_pylist(engines, ENGINES))
        connection.execute(chosen_view(group, question))
        return ask(connection)


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
    columns = columns_sql(group.columns, group.urls, question.finite or question.where is not None)
    listed = ", ".join(f"'{sql_text(url)}'" for url in group.urls)
    extra = ", filename = true, file_row_number = true" if group.doubled else ""
    within = " AND ".join(conditions_of(replace(question, where=None))) or "true"
    read = f"read_parquet([{listed}], hive_partitioning = false{extra}) AS steps WHERE {within}"
    steps = f"SELECT {columns} FROM {read}"
    conditions = [f"(\n{question.where}\n)"] if question.where is not None else []
    if group.doubled:
        conditions.append(_once(group))
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    joined = f"({steps}) AS steps JOIN engines AS chosen_engines ON chosen_engines.digest = steps.facts"
    return f"CREATE TEMP VIEW chosen AS SELECT steps.*, chosen_engines.* EXCLUDE (digest) FROM {joined}{where}"


def conditions_of(question: Question) -> Iterator[str]:
    """The filter as conditions on ``steps``."""
    if question.from_unix_s is not None:
        yield f"steps.unix_s >= {question.from_unix_s!r}::DOUBLE"
    if question.to_unix_s is not None:
        yield f"steps.unix_s < {question.to_unix_s!r}::DOUBLE"
    if question.where is not None:
        yield f"(\n{question.where}\n)"


def _once(group: Group) -> str:
    """No file whose URL is smaller has the step, and no row before it in its own file."""
    values = ", ".join(f"'{sql_text(url)}'" for url in dict.fromkeys([*group.earlier, *group.urls]))
    return (
        f"NOT EXISTS (SELECT 1 FROM read_parquet([{values}], hive_partitioning = false, filename = true, "
        "file_row_number = true) AS earlier WHERE earlier.run = steps.run AND earlier.sequence = steps.sequence "
        "AND (earlier.filename < steps.filename OR (earlier.filename = steps.filename "
        "AND earlier.file_row_number < steps.file_row_number)))"
    )


def text(name: str) -> str:
    """One of the SQL texts beside this file."""
    return (packaged("rooflens.collector.trace") / "sql" / f"{name}.sql").read_text(encoding="utf-8")


ENGINES = pa.schema(
    [pa.field("digest", pa.string())]
    + [pa.field(name, pa.int64()) for name in ("engine", "engine_devices", "engine_pool_blocks")]
)
CELLS_SCHEMA = pa.schema(
    [pa.field(name, pa.int64()) for name in ("engine", *(name for name, _ in CELL_KEYS[1:]))]
    + [pa.field(name, pa.float64()) for name, _ in CELL_SUMS]
)
HISTOGRAM_SCHEMA = pa.schema([pa.field(name, pa.int64()) for name in ("engine", "kind", "bin", "steps")])
EMPTY_CELLS, EMPTY_HISTOGRAM = CELLS_SCHEMA.empty_table(), HISTOGRAM_SCHEMA.empty_table()
