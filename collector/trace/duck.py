"""DuckDB as it is used here: in memory, bounded, with no extension fetched and no file read but those it is given."""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rooflens.collector.cgroup import core_quota, memory_left_bytes
from rooflens.records import RooflensError

GIB = 1 << 30
MEMORY_BYTES = GIB  # of all connections of one question together
LEAST_BYTES = 96 << 20  # of one connection: below it DuckDB cannot hold a row group of each column
MEMORY_SHARE = 0.5  # of what the control group leaves
TEMPORARY_BYTES = 8 * GIB  # what a sort or a join may put on disk
MISSING = "reading a trace needs DuckDB and PyArrow: pip install 'rooflens[trace]'"


def cores() -> int:
    """Processors that this process may use, as a whole number of at least 1."""
    usable = len(os.sched_getaffinity(0))
    quota = core_quota()
    return max(1, usable if quota is None else min(usable, math.ceil(quota)))


def memory_bytes() -> int:
    """What all connections together may use: 1 GiB, or half of what the control group leaves."""
    left = memory_left_bytes()
    return MEMORY_BYTES if left is None else max(LEAST_BYTES, min(MEMORY_BYTES, int(left * MEMORY_SHARE)))


def at_once() -> int:
    """How many connections of one thread each may work at a time."""
    return max(1, min(cores(), memory_bytes() // LEAST_BYTES))


def connected(threads: int = 1, limit_bytes: int | None = None) -> Any:
    """A database in memory of its own; RooflensError in one line where DuckDB is not installed."""
    try:
        import duckdb
    except ImportError:
        raise RooflensError(MISSING) from None
    folder = Path(tempfile.gettempdir()) / f"rooflens-duckdb-{os.getpid()}"
    limit = limit_bytes or memory_bytes()
    connection = duckdb.connect(":memory:", config={"threads": threads})
    for setting in (
        f"memory_limit = '{limit // 1024}KiB'",
        f"temp_directory = '{sql_text(str(folder))}'",
        f"max_temp_directory_size = '{TEMPORARY_BYTES // 1024}KiB'",
        "autoinstall_known_extensions = false",
        "autoload_known_extensions = false",
        "enable_progress_bar = false",
        "TimeZone = 'UTC'",
    ):
        try:
            connection.execute(f"SET {setting}")
        except duckdb.Error:
            continue  # an older DuckDB, or one without that extension: a bound less, not an answer less
    return connection


@contextmanager
def closed(paths: Sequence[str] = (), threads: int = 1, limit_bytes: int | None = None) -> Iterator[Any]:
    """A connection that can read the files at ``paths`` and no other."""
    import duckdb

    connection = connected(threads, limit_bytes)
    try:
        if paths:
            listed = ", ".join(f"'{sql_text(path)}'" for path in paths)
            try:
                connection.execute(f"SET allowed_paths = [{listed}]")
            except duckdb.Error:  # before 1.2: what a condition may hold was checked without any file
                yield connection
                return
        connection.execute("SET enable_external_access = false")
        yield connection
    finally:
        connection.close()


def sql_text(text: str) -> str:
    """A text between single quotes."""
    return text.replace("'", "''")
