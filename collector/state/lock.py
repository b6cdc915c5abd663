"""One writer at a time for a file of the state folder, whichever process or thread it is in."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

SUFFIX = ".lock"
PAUSE_S = 0.005


class Busy(Exception):
    """Another process holds the lock for longer than was to be waited."""


@contextmanager
def locked(folder: int, name: str, patience_s: float) -> Iterator[None]:
    """Hold the lock of the file ``name`` in the folder of this descriptor; Busy after ``patience_s`` seconds.

    The lock is of a file beside it, since the file itself is replaced with each write, and is let go of by the
    kernel where its holder is killed. OSError where the file system knows no locks.
    """
    until_s = time.monotonic() + patience_s
    while True:
        descriptor = os.open(
            f"{name}{SUFFIX}", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=folder
        )
        try:
            _take(descriptor, until_s)
            if _in_place(descriptor, folder, name):
                yield
                return
        finally:
            os.close(descriptor)


def _take(descriptor: int, until_s: float) -> None:
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until_s:
                raise Busy from None
            time.sleep(PAUSE_S)


def _in_place(descriptor: int, folder: int, name: str) -> bool:
    """Whether the file that is locked is still the one that others find: it goes with a file that is dropped."""
    try:
        there = os.stat(f"{name}{SUFFIX}", dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return os.path.samestat(os.fstat(descriptor), there)
