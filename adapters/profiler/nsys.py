"""The SQLite that ``nsys export --type sqlite`` writes: NVTX ranges around steps, kernels and copies, launches.

Tables are there only if something was recorded for them, and columns differ between versions; of each what is there is
used. Times are nanoseconds after the start of the session. ``globalTid >> 24`` and ``globalPid >> 24`` name a process
(NVIDIA, "SQLite Export Schema Reference"). A range's name is in ``text`` or, by ``textId``, in StringIds.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from rooflens.adapters.profiler.boundaries import boundary
from rooflens.adapters.profiler.capture import Capture, Work
from rooflens.adapters.profiler.kernels import COPIES, OTHER, class_of
from rooflens.records import RooflensError

FORMAT = "nsys SQLite"
HEAD = "SQLite format 3"
RANGES = "NVTX_EVENTS"
KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"
GRAPHS = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"  # whole graphs, with --cuda-graph-trace=graph
COPYING = ("CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET")
LAUNCHES = "CUPTI_ACTIVITY_KIND_RUNTIME"
SESSION = "TARGET_INFO_SESSION_START_TIME"
DEVICES = "TARGET_INFO_GPU"
CACHE_KIB = 65_536
Tell = Callable[[float], None]


def read_nsys(path: Path, tell: Tell = lambda _ratio: None) -> Capture:
    """The ranges, the work and the launches of a file, which is not written to.

    RooflensError for a database of something else, a damaged one, or one that holds too much.
    """
    place = f"file:{quote(str(path.absolute()))}?mode=ro&immutable=1"
    try:
        with closing(sqlite3.connect(place, uri=True)) as database:
            database.text_factory = lambda raw: raw.decode("utf-8", "replace")
            database.execute(f"PRAGMA cache_size=-{CACHE_KIB}")
            database.execute("PRAGMA trusted_schema=0")
            return _Reader(database).read(tell)
    except sqlite3.Error as error:
        raise RooflensError(f"the database cannot be read: {error}") from None
    except UnicodeDecodeError:  # in what SQLite says of a damaged schema
        raise RooflensError("the database cannot be read: it is damaged") from None


class _Reader:
    """One database."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database
        self._found = Capture(FORMAT)
        rows = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        self._tables = {str(name) for (name,) in rows if name in _WANTED}

    def read(self, tell: Tell) -> Capture:
        if not self._tables & {RANGES, KERNELS}:
            raise RooflensError("a database, but not one that 'nsys export --type sqlite' writes")
        database, found = self._database, self._found
        database.create_function("is_step", 1, lambda name: boundary(str(name)) is not None, deterministic=True)
        self._session()
        self._devices()
        for done, part in enumerate((self._ranges, self._launches, self._kernels, self._graphs, self._copies)):
            part()
            tell((done + 1) / 5)
        found.events = len(found.kernels) + len(found.launch_s) + len(found.ranges)
        return found

    def _columns(self, table: str) -> set[str]:
        if table not in self._tables:
            return set()
        return {str(row[1]) for row in self._database.execute(f"PRAGMA table_info({table})")}

    def _session(self) -> None:
        if "utcEpochNs" in self._columns(SESSION):
            row = self._database.execute(f"SELECT utcEpochNs FROM {SESSION}").fetchone()
            if row and isinstance(row[0], int):
                self._found.unix_s = row[0] / 1e9

    def _devices(self) -> None:
        if {"id", "name"} <= self._columns(DEVICES):
            rows = self._database.execute(f"SELECT id, name FROM {DEVICES} LIMIT 1024")
            self._found.device_names = {number: str(name) for number, name in rows if isinstance(number, int)}

    def _process(self, number: int) -> int:
        return self._found.process(number, f"process {number & 0xFFFFFF}")

    def _ranges(self) -> None:
        columns = self._columns(RANGES)
        if not {"start", "end", "globalTid"} <= columns:
            return
        names = [f"e.{name}" for name in ("text",) if name in columns]
        join = ""
        if "textId" in columns and "StringIds" in self._tables:
            names.append("s.value")
            join = "LEFT JOIN StringIds s ON s.id = e.textId"
        if not names:
            return
        name = f"COALESCE({', '.join(names)})" if len(names) > 1 else names[0]
        query = (
            f"SELECT e.start, e.end, e.globalTid >> 24, {name} FROM {RANGES} e {join} "
            f"WHERE e.end > e.start AND {name} IS NOT NULL AND is_step({name})"
        )
        for start, end, process, text in self._database.execute(query):
            if (told := boundary(str(text))) and _times(start, end) and isinstance(process, int):
                self._found.add_range(self._process(process), start / 1e9, end / 1e9, told)

    def _launches(self) -> None:
        if not {"start", "correlationId", "globalTid"} <= self._columns(LAUNCHES):
            return
        query = f"SELECT start, correlationId, globalTid >> 24 FROM {LAUNCHES} WHERE correlationId > 0"
        for start, correlation, process in self._database.execute(query):
            if _times(start, start) and isinstance(correlation, int) and isinstance(process, int):
                self._found.add_launch(self._process(process), correlation, start / 1e9)

    def _kernels(self) -> None:
        columns = self._columns(KERNELS)
        named = next((name for name in ("demangledName", "shortName", "mangledName") if name in columns), None)
        if named is None or "StringIds" not in self._tables:
            self._work(KERNELS, OTHER)
            return
        rows = self._database.execute(f"SELECT id, value FROM StringIds WHERE id IN (SELECT {named} FROM {KERNELS})")
        self._work(KERNELS, OTHER, named, {number: class_of(str(name)) for number, name in rows})

    def _graphs(self) -> None:
        self._work(GRAPHS, OTHER)

    def _copies(self) -> None:
        for table in COPYING:
            self._work(table, COPIES)

    def _work(self, table: str, kind: int, named: str = "NULL", classes: dict[int, int] | None = None) -> None:
        columns = self._columns(table)
        if not {"start", "end"} <= columns:
            return
        given = {name: name if name in columns else "0" for name in ("deviceId", "correlationId", "globalPid")}
        query = (
            f"SELECT start, end, {given['deviceId']}, {given['correlationId']}, {given['globalPid']} >> 24, {named} "
            f"FROM {table}"
        )
        work: Work = self._found.kernels
        for start, end, device, correlation, process, name in self._database.execute(query):
            if not _times(start, end) or not isinstance(process, int):
                self._found.odd += 1
                continue
            found = (classes or {}).get(name, kind)
            work.add(self._process(process), device or 0, start / 1e9, end / 1e9, correlation or 0, found)


_WANTED = {RANGES, KERNELS, GRAPHS, *COPYING, LAUNCHES, SESSION, DEVICES, "StringIds"}


def _times(start: object, end: object) -> bool:
    return isinstance(start, int) and isinstance(end, int) and 0 <= start <= end < 1 << 62
