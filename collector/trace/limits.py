"""The size and the age of a trace in a local folder: the oldest hours go first, and nothing but what traces wrote."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from rooflens.collector.trace.place import ASIDE, reason
from rooflens.trace_records import METADATA_KEY, TraceTable
from rooflens.trace_tables import TraceLimits

FILE = re.compile(r"\d\d-[0-9a-f]{12}-\d{6,}\.parquet")
LEFTOVER = re.compile(rf"\.{FILE.pattern}\.\d+{re.escape(ASIDE)}")
LEFT_S = 900.0  # a file is written in seconds; what is aside for longer has lost its writer
HOUR_S = 3600.0
KEPT_EMPTY_S = 2 * HOUR_S  # the folder of this hour may be about to be used
FOLDERS = (re.compile(r"host=.+"), re.compile(r"date=(\d{4})-(\d\d)-(\d\d)"), re.compile(r"hour=(\d\d)"))


@dataclass(slots=True)
class Swept:
    """What one sweep removed, what is left, and one line on what hindered it."""

    files: int = 0
    bytes: int = 0
    left_bytes: int = 0
    problem: str | None = None


@dataclass(slots=True)
class _Hour:
    """A folder of one hour: its path below the trace, when it begins, and its files as (name, bytes)."""

    path: tuple[str, ...]
    begin_unix_s: float
    files: list[tuple[str, int]] = field(default_factory=list)


class Sweeper:
    """Holds the trace in ``root`` to its limits; symbolic links are never followed."""

    def __init__(self, root: Path, limits: TraceLimits) -> None:
        self._root, self._limits = root, limits
        self._listed: dict[tuple[str, ...], tuple[int, list[tuple[str, int]]]] = {}
        self._foreign: set[tuple[str, ...]] = set()

    def sweep(self, now_unix_s: float) -> Swept:
        """Remove what is too old or too much, what dead writers left aside, and the folders that this empties."""
        done = Swept()
        try:
            hours = sorted(self._hours(now_unix_s, done), key=lambda hour: (hour.begin_unix_s, hour.path))
        except OSError as error:
            done.problem = f"trace folder {self._root}: it cannot be listed: {reason(error)}"
            return done
        self._listed = {path: known for path, known in self._listed.items() if path in {hour.path for hour in hours}}
        done.left_bytes = sum(size for hour in hours for _, size in hour.files)
        oldest_unix_s = None if self._limits.max_age_s is None else now_unix_s - self._limits.max_age_s
        for hour in hours:
            aged = oldest_unix_s is not None and hour.begin_unix_s + HOUR_S < oldest_unix_s
            most_bytes = 0 if aged else self._limits.max_bytes
            if hour.files and (aged or (most_bytes is not None and done.left_bytes > most_bytes)):
                self._remove(hour, None if aged else most_bytes, done)
            if not hour.files and hour.begin_unix_s + HOUR_S < now_unix_s - KEPT_EMPTY_S:
                self._remove_empty(hour)
        return done

    def _hours(self, now_unix_s: float, done: Swept) -> Iterator[_Hour]:
        paths: list[tuple[str, ...]] = [(table,) for table in TraceTable if is_plain(self._root / table)]
        for pattern in FOLDERS:
            paths = [(*path, name) for path in paths for name in self._folders(path) if pattern.fullmatch(name)]
        for path in paths:
            date, hour = FOLDERS[1].fullmatch(path[2]), FOLDERS[2].fullmatch(path[3])
            assert date is not None
            assert hour is not None
            try:
                begin = datetime(*map(int, date.groups()), int(hour[1]), tzinfo=UTC)  # type: ignore[misc,arg-type]
            except ValueError:
                continue  # a month 13: none of ours
            with suppress(FileNotFoundError):
                yield _Hour(path, begin.timestamp(), self._files(path, now_unix_s, done))

    def _folders(self, path: Sequence[str]) -> list[str]:
        with suppress(FileNotFoundError), os.scandir(self._root.joinpath(*path)) as entries:
            return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
        return []  # another sidecar removed it meanwhile

    def _files(self, path: tuple[str, ...], now_unix_s: float, done: Swept) -> list[tuple[str, int]]:
        """The files of a folder by name; looked at anew only when something was put there or removed."""
        folder = self._root.joinpath(*path)
        changed_ns = folder.stat(follow_symlinks=False).st_mtime_ns
        known = self._listed.get(path)
        if known is not None and known[0] == changed_ns:
            return [(name, size) for name, size in known[1] if (*path, name) not in self._foreign]
        found, leftovers = [], False
        with os.scandir(folder) as entries:
            for entry in entries:
                if not entry.is_file(follow_symlinks=False):
                    continue
                if FILE.fullmatch(entry.name):
                    found.append((entry.name, entry.stat(follow_symlinks=False).st_size))
                elif LEFTOVER.fullmatch(entry.name):
                    if now_unix_s - entry.stat(follow_symlinks=False).st_mtime > LEFT_S:
                        self._unlink(path, entry.name, done)
                    leftovers = True
        found.sort()
        if not leftovers:
            self._listed[path] = (changed_ns, found)
        return [(name, size) for name, size in found if (*path, name) not in self._foreign]

    def _remove(self, hour: _Hour, most_bytes: int | None, done: Swept) -> None:
        """Remove files of the hour, the first ones first, all or until what is left is within ``most_bytes``."""
        for name, size in list(hour.files):
            if most_bytes is not None and done.left_bytes <= most_bytes:
                return
            if not self._is_trace(hour.path, name):
                self._foreign.add((*hour.path, name))
                done.left_bytes -= size
                hour.files.remove((name, size))
            elif self._unlink(hour.path, name, done):
                done.files, done.bytes, done.left_bytes = done.files + 1, done.bytes + size, done.left_bytes - size
                hour.files.remove((name, size))

    def _is_trace(self, path: Sequence[str], name: str) -> bool:
        """Whether its footer says that rooflens wrote it."""
        try:
            with self._opened(path) as folder:
                flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
                with open(os.open(name, flags, dir_fd=folder), "rb") as file:
                    return METADATA_KEY in (pq.read_metadata(file).metadata or {})
        except (OSError, ValueError, pa.ArrowException):
            return False

    def _unlink(self, path: Sequence[str], name: str, done: Swept) -> bool:
        try:
            with self._opened(path) as folder:
                os.unlink(name, dir_fd=folder)
        except FileNotFoundError:
            return True
        except OSError as error:
            done.problem = f"trace folder {self._root}: old files cannot be removed: {reason(error)}"
            return False
        return True

    def _remove_empty(self, hour: _Hour) -> None:
        for depth in (4, 3, 2):
            with suppress(OSError), self._opened(hour.path[: depth - 1]) as folder:
                os.rmdir(hour.path[depth - 1], dir_fd=folder)

    @contextmanager
    def _opened(self, path: Sequence[str]) -> Iterator[int]:
        """A descriptor of a folder below the trace; OSError for one that a link leads to."""
        folder = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for name in path:
                below = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
                os.close(folder)
                folder = below
            yield folder
        finally:
            os.close(folder)


def is_plain(path: Path) -> bool:
    """Whether there is a folder and no link to one."""
    return path.is_dir() and not path.is_symlink()
