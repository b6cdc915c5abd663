"""The state folder and the folders in it: where they are, and that nobody else can write there."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from rooflens.records import RooflensError

ELSEWHERE = "give --state a folder of your own, or --no-state"
PRIVATE = 0o700


def state_folder(environ: Mapping[str, str]) -> Path:
    """Where state is kept; each kind of it has a folder of its own below it.

    ROOFLENS_STATE, or ROOFLENS_STATE_DIR, the older name of the same, else rooflens in XDG_STATE_HOME, else in
    ~/.local/state. RooflensError where none of them is known.
    """
    named = environ.get("ROOFLENS_STATE") or environ.get("ROOFLENS_STATE_DIR")
    if named:
        return Path(named)
    if environ.get("XDG_STATE_HOME", "").startswith("/"):  # its specification has relative ones ignored
        return Path(environ["XDG_STATE_HOME"], "rooflens")
    home = environ.get("HOME")
    if not home:
        raise RooflensError("no HOME to keep state below: set ROOFLENS_STATE to a folder")
    return Path(home, ".local", "state", "rooflens")


@contextmanager
def opened(folder: Path, create: bool) -> Iterator[int | None]:
    """A descriptor of ``folder``, one of a kind of state, for this user alone; None where it is missing.

    With ``create`` it is made, with mode 0700. A symbolic link of another user on the way there is not followed, and
    the folder itself must be no link. RooflensError, one line, for one that is unfit or cannot be made.
    """
    try:
        descriptor = _descriptor(folder, create)
    except FileNotFoundError:
        if create:
            raise RooflensError(f"state folder {folder}: it cannot be made; {ELSEWHERE}") from None
        descriptor = None
    except OSError as error:
        odd = error.errno in (errno.ELOOP, errno.ENOTDIR, errno.EEXIST)
        why = "a symbolic link or what is no folder is in its place" if odd else said(error)
        raise RooflensError(f"state folder {folder}: {why}; {ELSEWHERE}") from None
    try:
        yield descriptor
    finally:
        if descriptor is not None:
            os.close(descriptor)


def unfit_for_writing(folder: Path) -> str | None:
    """Why nothing could be kept in ``folder``, one of a kind of state, in one line; None if it can. Makes it."""
    try:
        with opened(folder, create=True) as descriptor:
            fits = descriptor is not None and os.access(".", os.W_OK | os.X_OK, dir_fd=descriptor)
    except RooflensError as error:
        return str(error)
    return None if fits else f"state folder {folder}: it cannot be written; {ELSEWHERE}"


def _descriptor(folder: Path, create: bool) -> int:
    if "\0" in str(folder):
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
    whole = Path(os.path.abspath(folder))
    _refuse_planted(whole)
    if create and not whole.is_dir():
        whole.parent.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
        whole.mkdir(mode=PRIVATE, exist_ok=True)
    descriptor = os.open(whole, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    status = os.fstat(descriptor)
    problem = None
    if status.st_uid != os.geteuid():
        problem = f"it belongs to user {status.st_uid}"
    elif status.st_mode & 0o022:
        problem = "other users can write to it"
    if problem is not None:
        os.close(descriptor)
        raise RooflensError(f"state folder {folder}: {problem}; {ELSEWHERE}")
    return descriptor


def _refuse_planted(whole: Path) -> None:
    """RooflensError for a symbolic link on the way that neither this user nor root has made."""
    for part in (whole, *whole.parents):
        try:
            status = os.lstat(part)
        except (FileNotFoundError, NotADirectoryError):
            continue
        if stat.S_ISLNK(status.st_mode) and status.st_uid not in (os.geteuid(), 0):
            raise RooflensError(f"state folder {whole}: {part} is a link of another user; {ELSEWHERE}")


def said(error: OSError) -> str:
    """What the system says of it, as a part of a sentence."""
    return (error.strerror or str(error)).lower()
