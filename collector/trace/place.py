"""A local folder as the place of a trace: whole files below it, put there so that nobody can redirect them."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

from rooflens.records import RooflensError

ASIDE = ".writing"  # ends the name of a file that is being written, which nobody reads
# The group may read: a trace holds no prompt, but names of hosts and models are nobody else's business. Where the
# folder is setgid (a volume of Kubernetes with fsGroup) that is the group of the pod, else the user's own.
FOLDER_MODE, FILE_MODE = 0o750, 0o640
NEXT = "give --trace another folder, or mend this one"


class Place(Protocol):
    """Where the files of a trace go."""

    shown: str  # as a person may see it, without credentials

    def write(self, folders: Sequence[str], name: str, data: Any) -> None:
        """Put the bytes under ``name`` in these folders, one below the other; there when this returns, or not at all.

        OSError, or RooflensError in one line, where that cannot be done.
        """
        ...


class LocalPlace:
    """The folder ``root``, made where it is missing; RooflensError in one line for one that cannot be used."""

    def __init__(self, root: Path) -> None:
        self.root = Path(os.path.abspath(root))
        self.shown = str(root)
        if "\0" in str(root):
            raise RooflensError("the trace's folder has a NUL in its name")
        try:
            self.root.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
            with self._opened(()) as folder:
                self._device = os.fstat(folder).st_dev
        except (FileExistsError, NotADirectoryError):
            raise RooflensError(f"trace folder {root}: it is no folder; give --trace another place") from None
        except OSError as error:
            raise RooflensError(f"trace folder {root}: {reason(error)}; {NEXT}") from None
        if not os.access(self.root, os.W_OK | os.X_OK):
            raise RooflensError(f"trace folder {root}: this user may not write there; {NEXT}")

    def write(self, folders: Sequence[str], name: str, data: Any) -> None:
        """See Place: aside, synced, renamed, and the folder synced."""
        with self._opened(folders) as folder:
            put(folder, name, data)

    @contextmanager
    def _opened(self, folders: Sequence[str]) -> Iterator[int]:
        """A descriptor of the folder below root, made where it is missing; no link on the way is followed."""
        with suppress(FileExistsError):
            self.root.mkdir(mode=FOLDER_MODE)  # the trace was removed as a whole: begin it anew
        folder = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            if os.fstat(folder).st_dev != getattr(self, "_device", os.fstat(folder).st_dev):
                raise RooflensError(f"trace folder {self.shown}: its file system is not mounted any more; mount it")
            for name in folders:
                folder = _below(folder, name)
            yield folder
        finally:
            os.close(folder)


def _below(folder: int, name: str) -> int:
    """The folder ``name`` in ``folder``, made where it is missing; closes ``folder`` where that works."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        found = os.open(name, flags, dir_fd=folder)
    except FileNotFoundError:
        with suppress(FileExistsError):
            os.mkdir(name, FOLDER_MODE, dir_fd=folder)
            os.fsync(folder)
        found = os.open(name, flags, dir_fd=folder)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise RooflensError(f"{name} in the trace is a link or no folder: remove it") from None
        raise
    os.close(folder)
    return found


def put(folder: int, name: str, data: Any) -> None:
    """Write ``data`` to ``name`` in the folder of this descriptor: aside, synced, renamed, the folder synced.

    OSError where it cannot be written; then nothing is left.
    """
    aside = f".{name}.{os.getpid()}{ASIDE}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(aside, flags, FILE_MODE, dir_fd=folder)
    except FileExistsError:  # of a process with this number that was killed
        os.unlink(aside, dir_fd=folder)
        descriptor = os.open(aside, flags, FILE_MODE, dir_fd=folder)
    try:
        with open(descriptor, "wb") as opened:
            opened.write(data)
            opened.flush()
            os.fsync(opened.fileno())
        os.replace(aside, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with suppress(OSError):
            os.unlink(aside, dir_fd=folder)
        raise
    os.fsync(folder)


def reason(error: OSError) -> str:
    """What the system says of it, as a part of a sentence and without a path."""
    if error.errno == errno.ENOSPC:
        return "no space is left on the disk"
    return (os.strerror(error.errno) if error.errno else type(error).__name__).lower()
