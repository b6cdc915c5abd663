"""What the headers of weight files list: tensors with their size, and the file they come from opened with care."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from rooflens.records import RooflensError

MOST_JSON_BYTES = 100_000_000  # an index of a quarter of a million tensors has 30 MB


@dataclass(frozen=True, slots=True)
class Tensor:
    """``dtype`` as the file spells it, a name of safetensors or of GGUF; ``size_bytes`` is what it takes there."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    size_bytes: int

    @property
    def elements(self) -> int:
        """Stored elements: packed ones count as one."""
        found = 1
        for length in self.shape:
            found *= length
        return found


def open_regular(path: Path) -> tuple[BinaryIO, int]:
    """The file opened for reading and its size in bytes; RooflensError for one that is none or cannot be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
        raise fault(path, reason) from error
    file = open(descriptor, "rb")  # noqa: SIM115 - the caller closes it
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        file.close()
        raise fault(path, "not a regular file")
    return file, status.st_size


def json_file(path: Path) -> Any:
    """What a JSON file says, an index of shards; RooflensError in one line if it cannot be read."""
    file, size = open_regular(path)
    with file:
        if size > MOST_JSON_BYTES:
            raise fault(path, f"longer than {MOST_JSON_BYTES // 1_000_000} MB")
        try:
            return json.loads(file.read(MOST_JSON_BYTES + 1).decode("utf-8-sig"))
        except (OSError, ValueError, RecursionError) as error:
            raise fault(path, f"cannot be read as JSON: {str(error) or type(error).__name__}") from error


def named(path: Path) -> str:
    """A file with its folder, or a folder, as a message names it."""
    folder = path.parent.name
    return f"{folder[-40:]}/{path.name[-80:]}" if folder and not path.is_dir() else path.name[-80:]


def fault(path: Path, what: str) -> RooflensError:
    """That the header of a file cannot be believed, in one line; for a damaged file with what to do about it."""
    damaged = "cut short" in what or "header" in what
    remedy = "; fetch it again" + (", or say --weights" if path.suffix == ".safetensors" else "") if damaged else ""
    return RooflensError(f"{named(path)}: {' '.join(what.split())[:200]}{remedy}")


def refuse_overlap(path: Path, ranges: Iterable[tuple[int, int, str]]) -> None:
    """RooflensError where two of the byte ranges (begin, end, name) share a byte."""
    reached, before = 0, ""
    for begin, end, name in sorted(ranges):
        if begin < reached and end > begin:
            raise fault(path, f"the header lies: tensors {before[:60]!r} and {name[:60]!r} share bytes")
        if end > reached:
            reached, before = end, name
