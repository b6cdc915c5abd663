"""Which Parquet files lie at a place: a trace, a folder of one, a file, a glob, or the URL of an object store."""

from __future__ import annotations

import glob
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from rooflens.records import RooflensError
from rooflens.trace_records import TraceTable

SUFFIX = ".parquet"
MAGIC = re.compile(r"[*?\[]")
HOUR = re.compile(r"(?:^|/)date=(\d{4}-\d{2}-\d{2})/hour=(\d{1,2})/")
HOUR_S = 3600.0
LOCAL = ("file", "local")


@dataclass(frozen=True, slots=True)
class Listed:
    """A file by its path, or its URL where it is not local; ``size_bytes`` None where the store does not say."""

    url: str
    size_bytes: int | None = None

    def hour_unix_s(self) -> float | None:
        """The beginning of the hour that its folders name; None where they name none."""
        found = HOUR.search(self.url)
        if found is None:
            return None
        try:
            return datetime.strptime(f"{found[1]} {int(found[2]):02}", "%Y-%m-%d %H").replace(tzinfo=UTC).timestamp()
        except ValueError:
            return None


def is_trace(place: str) -> bool:
    """Whether what a user named is a trace: a folder of one, a Parquet file, a glob of them, an object store's URL."""
    bare = place.rstrip("/")
    if bare.endswith(SUFFIX) or ("://" in place and not place.startswith(("http://", "https://"))):
        return True
    path = os.path.expanduser(bare)
    if os.path.isdir(path):
        if os.path.isdir(os.path.join(path, TraceTable.STEPS)):
            return True
        return any(name.endswith(SUFFIX) for _, _, names in os.walk(path) for name in names)
    if MAGIC.search(path) and not os.path.exists(path):
        return any(found.endswith(SUFFIX) or is_trace(found) for found in glob.iglob(path))
    return False


def listed(place: str, table: TraceTable, problems: list[str]) -> list[Listed]:
    """The files of ``table`` at ``place``, in order; a folder that cannot be listed becomes a line in ``problems``.

    RooflensError in one line where there is nothing at ``place`` or its store does not answer.
    """
    filesystem, path = opened(place)
    local = is_local(filesystem)
    try:
        found = list(_at(filesystem, path, table, problems))
    except RooflensError:
        raise
    except Exception as error:  # each store has its own errors
        raise RooflensError(f"{place}: {reason(error)}") from None
    if found or table is not TraceTable.STEPS:
        return [Listed(name if local else filesystem.unstrip_protocol(name), size) for name, size in sorted(found)]
    if not MAGIC.search(path) and not filesystem.exists(path):
        raise RooflensError(f"{place}: there is nothing here: name a trace folder, a {SUFFIX} file or a glob")
    return []


def opened(place: str) -> tuple[Any, str]:
    """The file system of a path or URL, and the path in it; RooflensError in one line for one that is not known."""
    from fsspec.core import url_to_fs
    from fsspec.implementations.local import LocalFileSystem

    if "://" not in place and "::" not in place:
        return LocalFileSystem(), os.path.abspath(os.path.expanduser(place)).rstrip("/") or "/"
    try:
        filesystem, path = url_to_fs(os.path.expanduser(place))
    except (ImportError, ValueError) as error:
        raise RooflensError(f"{place}: {' '.join(str(error).split())}") from None
    except Exception as error:
        raise RooflensError(f"{place}: {reason(error)}") from None
    return filesystem, path.rstrip("/") or "/"


def is_local(filesystem: Any) -> bool:
    """Whether its paths can be opened as they are."""
    names = filesystem.protocol if isinstance(filesystem.protocol, tuple | list) else (filesystem.protocol,)
    return any(name in LOCAL for name in names)


def reason(error: BaseException) -> str:
    """An error of a file system in one line."""
    if isinstance(error, OSError) and error.errno:
        return (os.strerror(error.errno) if error.errno else "").lower()
    return " ".join(f"{type(error).__name__}: {error}".split())[:200]


def _at(filesystem: Any, path: str, table: TraceTable, problems: list[str]) -> Iterator[tuple[str, int | None]]:
    if MAGIC.search(path) and not filesystem.exists(path):
        places = sorted(filesystem.glob(_moved(path, table)))
        if table is TraceTable.STEPS:
            fixed = MAGIC.split(path, maxsplit=1)[0]
            places = [place for place in places if not _of_other_table(f"{place}/", fixed)]
    elif filesystem.isdir(path):
        trace = filesystem.isdir(f"{path.rstrip('/')}/{TraceTable.STEPS}")
        places = [f"{path.rstrip('/')}/{table}" if trace else _moved(path, table)]
    elif table is TraceTable.STEPS:
        places = [path]
    else:
        places = [_moved(path, table).rpartition("/")[0]]
    for place in dict.fromkeys(places):
        if table is not TraceTable.STEPS and (not _names(place, table) or not filesystem.exists(place)):
            continue
        yield from _below(filesystem, place, table, problems)


def _below(filesystem: Any, place: str, table: TraceTable, problems: list[str]) -> Iterator[tuple[str, int | None]]:
    """The Parquet files at or below one place, those of other tables left out."""
    if filesystem.isfile(place):
        if place.endswith(SUFFIX):
            yield place, filesystem.info(place).get("size")
        return
    if is_local(filesystem):

        def note(error: OSError) -> None:
            problems.append(f"{error.filename}: {reason(error)}: what lies below was left out")

        for folder, _, names in os.walk(place, onerror=note):
            for name in names:
                path = os.path.join(folder, name)
                if name.endswith(SUFFIX) and not name.startswith(".") and not _of_other_table(path, place, table):
                    if _is_special(path):
                        problems.append(f"{path}: no regular file: left out")
                        continue
                    yield path, None
        return
    for path, info in filesystem.find(place, detail=True).items():
        name = path.rpartition("/")[2]
        if name.endswith(SUFFIX) and not name.startswith(".") and not _of_other_table(path, place, table):
            yield path, info.get("size")


def _is_special(path: str) -> bool:
    """Whether it is a pipe, a device or the like, which may never end; a link that leads nowhere is not."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


def _of_other_table(path: str, place: str, table: TraceTable = TraceTable.STEPS) -> bool:
    """Whether the folders between ``place`` and ``path`` say that it holds another table."""
    between = path.removeprefix(place).split("/")[:-1]
    return any(other in between for other in TraceTable if other is not table)


def _moved(path: str, table: TraceTable) -> str:
    """The same place in another table of the trace."""
    parts = path.split("/")
    for at in range(len(parts) - 1, -1, -1):
        if parts[at] == TraceTable.STEPS:
            return "/".join([*parts[:at], str(table), *parts[at + 1 :]])
    return path


def _names(place: str, table: TraceTable) -> bool:
    return str(table) in place.split("/")
