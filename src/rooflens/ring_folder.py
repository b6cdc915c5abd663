"""Where rings live: the folder, its permissions, names, and how many dead ones are kept."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import socket
import stat
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from rooflens.records import RooflensError
from rooflens.ring import OWN_RINGS, STATE, STATE_MORE, STATE_OFFSET, is_live
from rooflens.ring_writer import RingWriter

FOLDER_VARIABLE = "ROOFLENS_DIR"
SUFFIX = ".ring"
DEVICE_SUFFIX = ".device"  # a worker's ring of device times: no steps, so no verb takes it for an engine's
DRAFT_S = 60.0  # to lay out a ring takes milliseconds; whoever is in another PID namespace has had time enough
KEPT_DEAD_RINGS = 2  # of each rank and kind: the last crash and the one before it
# Tried in turn until one fits: at 100 steps a second eleven minutes, three minutes, twenty seconds.
SIZES: tuple[tuple[int, int], ...] = ((65536, 8 << 20), (16384, 2 << 20), (2048, 256 << 10))
DEVICE_SIZES: tuple[tuple[int, int], ...] = tuple((slots, 64 << 10) for slots, _ in SIZES)  # only events have text


def default_folder(environment: Mapping[str, str] | None = None) -> Path:
    """ROOFLENS_DIR, else a private folder in shared memory, else one in the temporary folder."""
    named = (os.environ if environment is None else environment).get(FOLDER_VARIABLE)
    if named:
        return Path(named)
    memory = Path("/dev/shm")
    parent = memory if memory.is_dir() and os.access(memory, os.W_OK) else Path(tempfile.gettempdir())
    return parent / f"rooflens-{os.getuid()}"


def demo_place() -> Path:
    """A folder beside the default one, or in ROOFLENS_DIR: a demo never takes the place of an engine's rings."""
    folder = default_folder()
    return folder / "demo" if os.environ.get(FOLDER_VARIABLE) else folder.with_name(f"{folder.name}-demo")


def demo_folder() -> Path:
    """The folder for a demo to write to; with ROOFLENS_DIR that one is made.

    RooflensError if ROOFLENS_DIR is unfit: who may write there could put another folder in the place of this one.
    """
    if os.environ.get(FOLDER_VARIABLE):
        os.close(open_folder(default_folder(), create=True))
    return demo_place()


def host_name() -> str:
    """This host's name with anything unfit for a file name replaced."""
    return re.sub(r"[^A-Za-z0-9_.]", "_", socket.gethostname()) or "host"


def open_folder(folder: Path, create: bool = False) -> int:
    """A descriptor of the folder, after the checks that make it safe to write or read there.

    A private folder belongs to this user and nobody else may write to it; a setgid folder (Kubernetes fsGroup)
    may also belong to root. RooflensError says which check failed.
    """
    if create:
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700, parents=True)
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise RooflensError(
                f"ring folder {folder} is a symbolic link or no folder: set {FOLDER_VARIABLE}"
            ) from None
        raise RooflensError(f"ring folder {folder}: {os.strerror(error.errno or 0)}") from None
    status = os.fstat(descriptor)
    setgid = bool(status.st_mode & stat.S_ISGID)
    owners = {os.geteuid()} | ({0} if setgid or not create else set())
    problem = None
    if status.st_uid not in owners and os.geteuid() != 0:
        problem = f"belongs to user {status.st_uid}"
    elif os.geteuid() == 0 and create and status.st_uid != 0 and not setgid:
        problem = f"belongs to user {status.st_uid}, not to root who writes here"
    elif status.st_mode & 0o022 and not setgid:
        problem = "can be written by other users"
    if problem:
        os.close(descriptor)
        raise RooflensError(f"ring folder {folder} {problem}: use a private folder, set {FOLDER_VARIABLE}")
    return descriptor


def create_ring(
    folder: Path, rank: int, sizes: tuple[tuple[int, int], ...] = SIZES, suffix: str = SUFFIX
) -> tuple[RingWriter, Path]:
    """A new ring named ``<host>-<random>-<rank>.ring``, as large as there is room for, and its path.

    Removes dead rings of this host, rank and suffix beyond KEPT_DEAD_RINGS first; RooflensError if the folder is
    unfit or full.
    """
    descriptor = open_folder(folder, create=True)
    try:
        mode = 0o640 if os.fstat(descriptor).st_mode & stat.S_ISGID else 0o600
        # Ranks die together: each looks after its own rings, or the last crash of the others would be lost.
        prune(descriptor, rank, suffix)
        name = f"{host_name()}-{secrets.token_hex(4)}-{rank}{suffix}"
        for slot_count, arena_bytes in sizes:
            try:
                return _create(descriptor, name, mode, slot_count, arena_bytes, rank), folder / name
            except OSError as error:
                if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.ENOMEM):
                    raise RooflensError(f"ring folder {folder}: {os.strerror(error.errno or 0)}") from None
        raise RooflensError(f"ring folder {folder} is full: not even the smallest ring fits, set {FOLDER_VARIABLE}")
    finally:
        os.close(descriptor)


def _create(folder: int, name: str, mode: int, slot_count: int, arena_bytes: int, rank: int) -> RingWriter:
    # The final name appears only once the ring is laid out and locked: nobody sees, or prunes, half a ring.
    draft = f".{name}.{os.getpid()}"
    flags = os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(draft, flags, mode, dir_fd=folder)
    writer = None
    try:
        os.fchmod(descriptor, mode)
        writer = RingWriter(descriptor, slot_count, arena_bytes, rank)
        os.rename(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(draft, dir_fd=folder)
        if writer is not None:
            writer.close()
        else:
            os.close(descriptor)
        raise
    return writer


def prune(folder: int, rank: int, suffix: str = SUFFIX, keep: int = KEPT_DEAD_RINGS) -> None:
    """Remove dead rings of this host, user, rank and suffix except ``keep``; a live ring is never touched.

    Rings of engines that died are kept before those that ended in order, the newest first.
    """
    mine = re.compile(f"{re.escape(host_name())}-[0-9a-f]{{8}}-{rank}{re.escape(suffix)}")
    draft = re.compile(rf"\.{mine.pattern}\.([1-9][0-9]{{0,8}})")
    dead: list[tuple[bool, float, str]] = []
    for name in os.listdir(folder):
        if half := draft.fullmatch(name):
            _prune_draft(folder, name, int(half[1]))
        if not mine.fullmatch(name):
            continue
        with contextlib.suppress(OSError):
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid():
                ending = _ending(folder, name, status)
                if ending is not None:
                    dead.append((ending, status.st_mtime, name))
    for _, _, name in sorted(dead, reverse=True)[keep:]:
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=folder)


def _prune_draft(folder: int, name: str, pid: int) -> None:
    """Remove what a process left behind that was killed while it made its ring."""
    with contextlib.suppress(OSError):
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        mine = stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid()
        if not mine or time.time() - status.st_mtime < DRAFT_S:
            return
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            os.unlink(name, dir_fd=folder)


def _ending(folder: int, name: str, status: os.stat_result) -> bool | None:
    """Whether the ring's engine died, False if it ended in order (or this is no ring), None while it is live."""
    if (status.st_dev, status.st_ino) in OWN_RINGS:
        return None  # not to be opened: closing it would drop this process's own lock
    descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=folder)
    try:
        if is_live(descriptor):
            return None
        state = os.pread(descriptor, STATE_MORE.size, STATE_OFFSET + STATE.size)
    finally:
        os.close(descriptor)
    return len(state) == STATE_MORE.size and not STATE_MORE.unpack(state)[0]


def list_rings(folder: Path, suffix: str = SUFFIX) -> list[Path]:
    """The rings of a folder with this suffix, newest first; RooflensError if the folder is unfit."""
    descriptor = open_folder(folder)
    try:
        names = [name for name in os.listdir(descriptor) if name.endswith(suffix) and not name.startswith(".")]
        stamped = []
        for name in names:
            with contextlib.suppress(OSError):
                stamped.append((os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_mtime, name))
    finally:
        os.close(descriptor)
    return [folder / name for _, name in sorted(stamped, reverse=True)]
