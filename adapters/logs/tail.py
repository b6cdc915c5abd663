"""The end of a file that is being written, as tail -F gives it: through renaming, truncation and absence."""

from __future__ import annotations

import os
import stat
import time
from dataclasses import dataclass
from pathlib import Path

from rooflens.adapters.logs.files import GZIP, PACKED

READ_BYTES = 1 << 20  # at a time
LATEST_BYTES = 64 << 10  # before the live end: the last lines tell what holds when the next one comes
MARK_BYTES = 1024  # before the place that was read, a stamp among them: they differ where the file is another
NOT_THERE = "the file is not there yet: it is read as soon as it is"
GONE = "the file is gone: it is read again as soon as it is back"
FOLDER = "this is a folder: name the file that the engine writes"
IS_PACKED = "this file is packed: 'rooflens analyze' reads it; name the one that is written"
FOREIGN = "this is no file that lines can be read of"


@dataclass(frozen=True, slots=True)
class Piece:
    """What was read: ``begins`` where it is the beginning of a file.

    ``old_s`` is of what was there before the first look: how long ago its last line was written.
    """

    data: bytes
    begins: bool = False
    old_s: float | None = None


class Tail:
    """Follows one path. The first file is read from its live end on, all that come later from their beginnings."""

    def __init__(self, path: Path) -> None:
        self.problem: str | None = NOT_THERE
        self.head = b""  # what the first file began with, for the facts of its start
        self._path = path
        self._file: int | None = None
        self._key: tuple[int, int] | None = None
        self._place = 0
        self._mark = b""
        self._seen = False
        self._fresh = False
        self._past = 0

    @property
    def open(self) -> bool:
        """Whether a file is there to be read."""
        return self._file is not None

    def read(self, head_bytes: int = 0) -> list[Piece]:
        """What was written since the last call, at most READ_BYTES of each file; never waits, never raises.

        ``head_bytes`` of the first file are read beside its live end, into ``head``.
        """
        try:
            return self._read(head_bytes)
        except OSError as error:
            self._let_go()
            self.problem = (error.strerror or "the file cannot be read").lower()
            return []

    def close(self) -> None:
        """Let go of the file."""
        self._let_go()

    def _read(self, head_bytes: int) -> list[Piece]:
        try:
            status: os.stat_result | None = os.stat(self._path)
        except FileNotFoundError:
            status = None
        key = None if status is None else (status.st_dev, status.st_ino)
        pieces: list[Piece] = []
        if self._file is not None and key != self._key:
            pieces += self._rest()  # of the file that was renamed: its writer may still end a line there
            if pieces:
                return pieces
            self._let_go()
        if status is None:
            self.problem = GONE if self._seen else NOT_THERE
            self._fresh = True
            return pieces
        if self._file is None and not self._take_up(status, head_bytes):
            return pieces
        return pieces + self._rest()

    def _take_up(self, status: os.stat_result, head_bytes: int) -> bool:
        """Open the file that is there now; False for one that no lines can be read of."""
        if stat.S_ISDIR(status.st_mode):
            self.problem = FOLDER
            return False
        if not (stat.S_ISREG(status.st_mode) or stat.S_ISFIFO(status.st_mode) or stat.S_ISCHR(status.st_mode)):
            self.problem = FOREIGN
            return False
        file = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        self._file, self._key = file, (status.st_dev, status.st_ino)
        self._place, self._mark, self._past = 0, b"", 0
        if not stat.S_ISREG(status.st_mode):
            self._place = -1
        elif (begin := os.pread(file, 8, 0))[: len(GZIP)] == GZIP or any(begin.startswith(m) for m in PACKED):
            self._let_go()
            self.problem = IS_PACKED
            return False
        elif not self._seen and not self._fresh:
            self.head = os.pread(file, min(head_bytes, status.st_size), 0)
            self._place = max(status.st_size - LATEST_BYTES, 0)
            self._past = status.st_size
        self._seen, self.problem = True, None
        return True

    def _rest(self) -> list[Piece]:
        file = self._file
        if file is None:
            return []
        if self._place < 0:
            return self._flowing(file)
        size = os.fstat(file).st_size
        anew = size < self._place or (
            self._mark and os.pread(file, len(self._mark), self._place - len(self._mark)) != self._mark
        )
        if anew:
            self._place, self._mark, self._past = 0, b"", 0
        begins = self._place == 0
        most = READ_BYTES if self._place >= self._past else self._past - self._place
        data = os.pread(file, most, self._place)
        if not data:
            return []
        old_s = max(time.time() - os.fstat(file).st_mtime, 0.0) if self._place < self._past else None
        self._place += len(data)
        self._mark = (self._mark + data)[-MARK_BYTES:]
        return [Piece(data, begins, old_s)]

    def _flowing(self, file: int) -> list[Piece]:
        """A pipe, or a terminal: what is there now."""
        try:
            data = os.read(file, READ_BYTES)
        except BlockingIOError:
            return []
        return [Piece(data)] if data else []

    def _let_go(self) -> None:
        if self._file is not None:
            os.close(self._file)
        self._file = self._key = None
