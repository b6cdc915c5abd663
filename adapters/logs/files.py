"""The lines of a log, whatever is in the file: packed or not, of any size, in bounded memory; nothing raises midway."""

from __future__ import annotations

import codecs
import os
import re
import stat
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import BinaryIO

from rooflens.records import RooflensError

CHUNK_BYTES = 1 << 20
UNPACK_BYTES = 8 << 10  # at a time: where a packed file is damaged, what was unpacked with it is lost
LONGEST_LINE_BYTES = 64 << 10  # more is no line of a log: its beginning is taken, the rest is passed over
GZIP = b"\x1f\x8b"
# Formats that are named and not unpacked.
PACKED = {
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\xfd7zXZ\x00": "xz",
    b"BZh": "bzip2",
    b"PK\x03\x04": "zip",
}
# Deflate packs no more than 1032 to 1. Logs whose lines differ in their numbers alone reach a tenth of it.
BOMB_RATIO, BOMB_BYTES = 500, 256 << 20
LONG_LINES = "lines longer than {:,} bytes: their beginnings are read"
CUT_OFF = "the packed file is cut off: it is read as far as it goes"
DAMAGED = "the packed file is damaged: it is read as far as it goes"
BOMB = f"it unpacks to more than {BOMB_RATIO} times its size, as no log does: the rest is left out"
NO_TEXT = "{:,} of {:,} bytes are no text: passed over"
UTF_16 = "it is written in UTF-16: read as such"
CONTROL = bytes(set(range(32)) - set(b"\t\n\r\x1b\x00"))  # NUL is counted apart: a truncated file is full of them
BOMS = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
Tell = Callable[[float], None]


class LineCutter:
    """Bytes as they come into lines of text; of a line that never ends, the first LONGEST_LINE_BYTES.

    Lines end in LF, CR LF or CR (progress bars begin theirs anew with it). NUL bytes are left out, UTF-16 is told by
    its mark or by a NUL in every other byte. ``long_lines``, ``odd_bytes`` and ``bytes`` count what was seen.
    """

    def __init__(self) -> None:
        self.long_lines = self.odd_bytes = self.bytes = 0
        self.encoding: str | None = None  # of two bytes a character
        self._decoder: codecs.IncrementalDecoder | None = None
        self._rest = b""
        self._skipping = False

    @property
    def problems(self) -> tuple[str, ...]:
        """What was odd, one line each."""
        found = [UTF_16] if self.encoding else []
        if self.long_lines:
            found.append(f"{self.long_lines:,} " + LONG_LINES.format(LONGEST_LINE_BYTES))
        if self.odd_bytes * 100 > self.bytes:
            found.append(NO_TEXT.format(self.odd_bytes, self.bytes))
        return tuple(found)

    def take(self, chunk: bytes) -> Iterator[str]:
        """The lines that ``chunk`` ends."""
        if not self.bytes:
            self.encoding = utf_16(chunk)
            if self.encoding:
                self._decoder = codecs.getincrementaldecoder(self.encoding)("replace")
        self.bytes += len(chunk)
        if self._decoder is not None:
            chunk = self._decoder.decode(chunk).encode("utf-8", "replace")
        if b"\0" in chunk:
            chunk = chunk.translate(None, b"\0")
        self.odd_bytes += len(chunk) - len(chunk.translate(None, CONTROL))
        if b"\r" in chunk:
            chunk = chunk.replace(b"\r", b"\n")  # an empty line more says nothing
        first, newline, rest = chunk.partition(b"\n")
        if self._skipping and newline:
            self._skipping = False
        elif not self._skipping:
            self._rest += first[: LONGEST_LINE_BYTES + 1 - len(self._rest)]
            if len(self._rest) > LONGEST_LINE_BYTES:
                yield self._cut(self._rest)
                self._rest, self._skipping = b"", not newline
            elif newline:
                yield self._rest.decode("utf-8", "replace")
                self._rest = b""
        if newline:
            yield from self._whole(rest)

    def _whole(self, chunk: bytes) -> Iterator[str]:
        lines = chunk.split(b"\n")
        last = lines.pop()
        for line in lines:
            yield line.decode("utf-8", "replace") if len(line) <= LONGEST_LINE_BYTES else self._cut(line)
        if len(last) > LONGEST_LINE_BYTES:
            yield self._cut(last)
            last, self._skipping = b"", True
        self._rest = last

    def _cut(self, line: bytes) -> str:
        self.long_lines += 1
        return line[:LONGEST_LINE_BYTES].decode("utf-8", "replace")

    def end(self) -> Iterator[str]:
        """The last line, where nothing ends it."""
        rest, self._rest, self._skipping = self._rest, b"", False
        if rest:
            yield rest.decode("utf-8", "replace")


def utf_16(begin: bytes) -> str | None:
    """The encoding of a text that begins so, if it is one of two bytes a character."""
    for mark, name in BOMS.items():
        if begin.startswith(mark):
            return name
    head = begin[:256]
    if len(head) >= 16:
        for name, zeros, others in (("utf-16-le", head[1::2], head[::2]), ("utf-16-be", head[::2], head[1::2])):
            if zeros.count(0) > 0.9 * len(zeros) and others.count(0) == 0:
                return name
    return None


class LogFiles:
    """The lines of one log, of several files after each other; ``problems`` is what was odd, once they were read."""

    def __init__(self, paths: Sequence[Path], tell: Tell | None = None) -> None:
        """``tell`` is called now and then with the part that is read, 0 to 1."""
        self.problems: dict[str, None] = {}
        self.lines = 0
        self._paths, self._tell = tuple(paths), tell
        self._sizes = [_size(path) for path in self._paths]

    def __iter__(self) -> Iterator[str]:
        """The lines; RooflensError in one line for a file that cannot be opened at all."""
        before = 0
        for path, size in zip(self._paths, self._sizes, strict=True):
            cutter = LineCutter()
            for chunk in self._chunks(path, before):
                for line in cutter.take(chunk):
                    self.lines += 1
                    yield line
            for line in cutter.end():
                self.lines += 1
                yield line
            before += size
            of_it = f"{path.name}: " if len(self._paths) > 1 else ""
            self.problems |= {of_it + problem: None for problem in cutter.problems}

    def _chunks(self, path: Path, before: int) -> Iterator[bytes]:
        try:
            with path.open("rb") as file:
                yield from unpacked(self._told(file, before), self._complain)
        except OSError as error:
            raise RooflensError(f"{path}: {(error.strerror or 'cannot be read').lower()}") from None

    def _told(self, file: BinaryIO, before: int) -> Iterator[bytes]:
        whole, read = max(sum(self._sizes), 1), before
        while chunk := file.read(CHUNK_BYTES):
            read += len(chunk)
            yield chunk
            if self._tell is not None:
                self._tell(min(read / whole, 1.0))

    def _complain(self, problem: str) -> None:
        self.problems[problem] = None


def unpacked(chunks: Iterable[bytes], complain: Callable[[str], None]) -> Iterator[bytes]:
    """What ``chunks`` hold, unpacked where they are gzip, piece by piece; RooflensError for another packing."""
    coming = iter(chunks)
    first = next(coming, b"")
    for magic, name in PACKED.items():
        if first.startswith(magic):
            raise RooflensError(f"the file is packed with {name}: unpack it first; gzip and plain text are read")
    if not first.startswith(GZIP):
        if first:
            yield first
        yield from coming
        return
    small = (
        each[at : at + UNPACK_BYTES] for each in chain((first,), coming) for at in range(0, len(each), UNPACK_BYTES)
    )
    yield from _gunzipped(small, complain)


def _gunzipped(coming: Iterator[bytes], complain: Callable[[str], None]) -> Iterator[bytes]:
    """Every member of a gzip file; what follows the last one and is none is left out, as gzip does."""
    chunk, unpacker = next(coming, b""), zlib.decompressobj(wbits=31)
    packed_bytes, plain_bytes = len(chunk), 0
    while chunk:
        try:
            plain = unpacker.decompress(chunk, CHUNK_BYTES)
        except zlib.error:
            complain(DAMAGED)
            return
        plain_bytes += len(plain)
        if plain:
            yield plain
        if plain_bytes > BOMB_BYTES and plain_bytes > BOMB_RATIO * packed_bytes:
            complain(BOMB)
            return
        if unpacker.eof:
            chunk, unpacker = unpacker.unused_data.lstrip(b"\0"), zlib.decompressobj(wbits=31)
            if chunk and not chunk.startswith(GZIP[: len(chunk)]):
                return
            begun = bool(chunk)
        else:
            chunk, begun = unpacker.unconsumed_tail, True
        if not chunk and (more := next(coming, b"")):
            chunk, packed_bytes = more, packed_bytes + len(more)
            begun = True
    if begun:
        complain(CUT_OFF)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


# server.log.2.gz, server.log-20260701, server.log.2026-07-01_12: what logrotate, Python and container runtimes append.
ROTATED = re.compile(
    r"^(?P<base>.+?)(?:(?:\.(?P<number>\d{1,4}))|(?:[.-](?P<date>\d{4}-?\d{2}-?\d{2}[T_-]?[\d.:-]{0,12})))?(?P<gz>\.gz)?$"
)


def place_in_set(name: str) -> tuple[str, tuple[int, int, str]]:
    """The name that the files of a rotated log share, and what they are sorted by, the oldest first."""
    found = ROTATED.match(name)
    if found is None:
        return name, (2, 0, "")
    base, number, date = found["base"], found["number"], found["date"]
    if number is not None:
        return base, (0, -int(number), "")
    return (base, (1, 0, date)) if date is not None else (base, (2, 0, ""))


def sets_of(paths: Sequence[Path]) -> list[tuple[Path, ...]]:
    """``paths`` with the files of one rotated log together, the oldest first; the order of the logs is kept."""
    found: dict[tuple[Path, str], list[Path]] = {}
    for path in paths:
        found.setdefault((path.parent, place_in_set(path.name)[0]), []).append(path)
    return [
        tuple(sorted(dict.fromkeys(parts), key=lambda part: place_in_set(part.name)[1])) for parts in found.values()
    ]


def files_in(folder: Path) -> list[Path]:
    """The files of a folder that may be logs, by name: regular, not hidden, not empty."""
    try:
        with os.scandir(folder) as entries:
            found = [
                Path(entry.path)
                for entry in entries
                if not entry.name.startswith(".") and entry.is_file() and entry.stat().st_size
            ]
    except OSError as error:
        raise RooflensError(f"{folder}: {(error.strerror or 'cannot be read').lower()}") from None
    return sorted(path for path in found if stat.S_ISREG(path.stat().st_mode))
