"""The checksum of a file of a trace: a CRC-32 over all its bytes, in its own metadata.

Neither DuckDB nor PyArrow notices a flipped bit in a page or a footer: it is another number. The eight digits stand at
the beginning of the JSON under METADATA_KEY; the CRC is that of the file with zeros in their place, so that it covers
the footer too. Files from before have none, and are read.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow.parquet as pq

from rooflens.collector.trace.listing import is_local, opened, reason
from rooflens.records import RooflensError
from rooflens.trace_records import METADATA_KEY

BEGIN, DIGITS = b'{"crc32":"', 8
ZEROS = b"0" * DIGITS
PIECE_BYTES = 1 << 20
TAIL_BYTES = 8  # the length of the footer, and PAR1
THREADS = 4  # that read; zlib lets go of the interpreter
DAMAGED = "damaged, or written anew by another program: its bytes are not those that its checksum is of"


def with_room(said: bytes) -> bytes:
    """The JSON of a footer with room for the checksum."""
    return BEGIN + ZEROS + b'"' + (b"," if said[1:2] != b"}" else b"") + said[1:]


def sealed(data: bytearray, said: bytes) -> bytearray:
    """A whole file, its checksum written into ``said``, which is what with_room gave and stands in its footer."""
    at = data.rindex(said) + len(BEGIN)
    data[at : at + DIGITS] = b"%08x" % zlib.crc32(data)
    return data


def check(url: str) -> None:
    """RooflensError in one line where the bytes of a local file are not those that were written.

    Read in pieces of bounded size. A file in an object store is not read twice: its store has checksums of its own.
    """
    filesystem, path = opened(url)
    if not is_local(filesystem):
        return
    try:
        with open(path, "rb") as file:
            told, found = _told(file), 0
            if told is None:
                return
            place, crc = told
            while piece := file.read(PIECE_BYTES):
                end = file.tell()
                found = zlib.crc32(_zeroed(piece, place - (end - len(piece))), found)
    except (OSError, ValueError) as error:
        raise RooflensError(f"{url}: cannot be read: {reason(error)}") from None
    if b"%08x" % found != crc:
        raise RooflensError(f"{url}: {DAMAGED}")


def checked(urls: Sequence[str], done: Callable[[int], None] | None = None) -> Iterator[str | None]:
    """For each file in turn the line that ``check`` says of it, None where it is whole; ``done`` counts them."""

    def line(url: str) -> str | None:
        try:
            check(url)
        except RooflensError as error:
            return str(error)
        return None

    with ThreadPoolExecutor(min(THREADS, len(os.sched_getaffinity(0)))) as pool:
        for number, said in enumerate(pool.map(line, urls), 1):
            if done is not None:
                done(number)
            yield said


def _told(file: Any) -> tuple[int, bytes] | None:
    """Where in the file its checksum stands, and the checksum; None where it has none. The file is at its begin."""
    said = (pq.read_metadata(file).metadata or {}).get(METADATA_KEY, b"")
    if not said.startswith(BEGIN):
        return None
    size = file.seek(0, os.SEEK_END)
    file.seek(size - TAIL_BYTES)
    length = int.from_bytes(file.read(4), "little")
    begin = size - TAIL_BYTES - length
    file.seek(begin)
    at = begin + file.read(length).rindex(said) + len(BEGIN)
    file.seek(0)
    return at, said[len(BEGIN) : len(BEGIN) + DIGITS]


def _zeroed(piece: bytes, place: int) -> bytes:
    """The piece with zeros from ``place`` on, where that lies in it in whole or in part."""
    first, last = max(place, 0), min(place + DIGITS, len(piece))
    return piece if first >= last else piece[:first] + b"0" * (last - first) + piece[last:]
