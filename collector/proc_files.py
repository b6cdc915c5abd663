"""Files of /proc and /sys, which may be missing or hold anything."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path


def first_line(file: Path) -> str:
    """The first line of a file of /proc or /sys without its ends, empty where there is none."""
    return next(lines_of(file), "").strip()


def lines_of(file: Path) -> Iterator[str]:
    """The lines of such a file; none where it cannot be read."""
    try:
        yield from file.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return
