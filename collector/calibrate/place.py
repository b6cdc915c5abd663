"""Where a calibration is written to: whole or not at all, and known to be possible before a minute is measured."""

from __future__ import annotations

import errno
import os
import stat
import tempfile
import time
from contextlib import suppress
from pathlib import Path

ASIDE = ".writing-"
LEFT_AFTER_S = 3600.0  # nothing is written for so long: whoever wrote this was killed


def check(path: Path, with_folders: bool = False) -> None:
    """OSError where ``put`` could not write to ``path``; leaves nothing behind.

    With ``with_folders`` folders that are missing will be made before that.
    """
    if _is_special(path):
        if not os.access(path, os.W_OK):
            raise _fault(errno.EACCES, path)
        return
    folder = _end(path).parent
    while with_folders and not folder.exists() and folder != folder.parent:
        folder = folder.parent
    number, aside = tempfile.mkstemp(prefix=ASIDE, dir=folder)
    os.close(number)
    os.unlink(aside)


def put(path: Path, words: str) -> None:
    """Write ``words`` to ``path``, readable by its owner only; whoever reads meanwhile finds the older file.

    A symbolic link stays, and what it points to is replaced. A device or a pipe is written to. OSError where that
    cannot be.
    """
    if _is_special(path):
        with open(path, "w", encoding="utf-8") as file:
            file.write(words)
        return
    end = _end(path)
    number, aside = tempfile.mkstemp(prefix=ASIDE, dir=end.parent)  # 0600
    try:
        with os.fdopen(number, "w", encoding="utf-8") as file:
            file.write(words)
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, end)
    except BaseException:
        with suppress(OSError):
            os.unlink(aside)
        raise


def sweep(folder: Path) -> None:
    """Remove what processes that were killed left of their writing in ``folder``."""
    for left in folder.glob(f"{ASIDE}*"):
        with suppress(OSError):
            if time.time() - left.lstat().st_mtime > LEFT_AFTER_S:
                left.unlink()


def _is_special(path: Path) -> bool:
    """Whether it is something that must not be replaced by a file; OSError for a folder, or a name that cannot be."""
    if "\0" in str(path):
        raise _fault(errno.EINVAL, path)
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return False
    if stat.S_ISDIR(mode):
        raise _fault(errno.EISDIR, path)
    return not stat.S_ISREG(mode)


def _end(path: Path) -> Path:
    return Path(os.path.realpath(path))


def _fault(number: int, path: Path) -> OSError:
    return OSError(number, os.strerror(number), str(path))
