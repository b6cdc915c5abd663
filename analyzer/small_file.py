"""A file that a user names and that is read whole: a model's config, a device's facts."""

from __future__ import annotations

import os
import stat
from pathlib import Path

MOST_BYTES = 16 << 20  # the longest config.json of a known model has some hundred thousand


def small_text(path: Path) -> str:
    """The text of the file, in UTF-8 with or without a mark; OSError for one that is none, ValueError for other text.

    What never ends (a device, a pipe that nobody writes to) and what is longer than MOST_BYTES is not read.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError("not a regular file")
        raw = file.read(MOST_BYTES + 1)
    if len(raw) > MOST_BYTES:
        raise OSError(f"longer than {MOST_BYTES >> 20} MB")
    return raw.decode("utf-8-sig")


def plain_reason(error: Exception) -> str:
    """Why a file could not be read, in one line of plain words, without number and without the path again."""
    if isinstance(error, FileNotFoundError):
        return "no such file"
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno).lower()
    return (str(error).splitlines() or [type(error).__name__])[0]
