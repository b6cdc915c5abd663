"""What else than a ring `rooflens analyze` reads: one file a format, the first that knows a file reports it."""

from __future__ import annotations

import os
import stat
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from rooflens.records import RooflensError

HEAD_BYTES = 256 << 10  # of the content, as far as it takes to tell a format
GZIP = b"\x1f\x8b"


@dataclass(frozen=True, slots=True)
class Asked:
    """What the command line says of a recording that may not say it itself: ``model`` is a name or a config.json.

    ``parts`` are the files of a rotated log, the oldest first, where the path is one of several.
    """

    hardware: str | None = None
    model: str | None = None
    calibration: str | None = None
    devices: int | None = None
    parts: tuple[Path, ...] = ()


class Format(Protocol):
    """One format: a module with these two."""

    def is_mine(self, head: str) -> bool:
        """Whether a file whose content begins with ``head`` (decoded, bad bytes replaced) is of this format."""
        ...

    def report(self, path: Path, asked: Asked) -> tuple[dict[str, Any], str]:
        """What the file says, for --json and for the terminal; RooflensError in one line if it cannot be read."""
        ...


# In the order in which they are asked: the surest signs first.
FORMATS: tuple[str, ...] = (
    "forward_pass",
    "profiler",
    "benchmark",
    "page",
    "sensor",
    "log",
)


def format_of(path: Path) -> Callable[[Path, Asked], tuple[dict[str, Any], str]] | None:
    """How to report the file at ``path``; None where none of the formats is its own."""
    from importlib import import_module

    head = head_of(path)
    if head is None:
        return None
    for name in FORMATS:
        module: Format = import_module(f"rooflens.cli.recorded.{name}")
        if module.is_mine(head):
            return module.report
    return None


def head_of(path: Path) -> str | None:
    """How the content of a file begins, unpacked where it is packed; None for a ring or what is no file to read."""
    from rooflens.ring import MAGIC

    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return None
        with path.open("rb") as opened:
            begin = opened.read(HEAD_BYTES)
        if begin[: len(MAGIC)] == MAGIC:
            return None
        if begin[:2] == GZIP:
            begin = zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(begin, HEAD_BYTES)
    except zlib.error:
        raise RooflensError(f"{path}: cannot be unpacked: it is damaged") from None
    except OSError as error:
        why = error.strerror or "cannot be read"
        raise RooflensError(f"{path}: {why[:1].lower()}{why[1:]}") from None
    return begin.decode("utf-8", "replace")  # of a packed file that was cut off, what stood before
