"""An open ring file: header, engine info, and the slots that are whole."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import stat
import struct
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

from rooflens.records import EngineInfo, RooflensError
from rooflens.ring import (
    INFO_BYTES,
    INFO_HEAD,
    INFO_OFFSET,
    OWN_RINGS,
    STAMP,
    STAMP_OFFSET,
    STAMPS,
    STATE,
    STATE_MORE,
    STATE_OFFSET,
    RingHeader,
    is_live,
    parse_header,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

LOCK = struct.Struct("@hhqqi4x")  # struct flock of 64-bit Linux: type, whence, start, length, process
MOST_RING_BYTES = 128 << 20  # eight times the largest that is made; a reader may hold all of it at once
LAST_SEQUENCE = 1 << 62  # no engine gets there; a state that says so was overwritten by something else


@dataclass(frozen=True, slots=True)
class RingState:
    """The writer's own counts; ``arena_head`` in bytes, ``closed`` if the engine ended the ring in order."""

    sequence: int
    arena_head: int
    closed: bool
    hook_failures: int
    dropped_payloads: int
    info_area: int


@dataclass(frozen=True, slots=True)
class InFlight:
    """A step that was scheduled and whose output has not been seen; submit in seconds of the engine's clock."""

    ordinal: int
    submit_monotonic_s: float
    tokens: int
    requests: int


@dataclass(frozen=True, slots=True)
class Slots:
    """The whole slots of one read in order, and how far it came: ``last`` is the newest sequence it looked at.

    ``lost`` were overwritten before they could be read, ``torn`` fail their check sum.
    """

    slots: NDArray[Any]
    last: int
    lost: int
    torn: int


def slot_dtype(header: RingHeader) -> np.dtype[Any]:
    """The slots as the ring itself describes them; fields that this version does not know are skipped."""
    import numpy as np

    names, formats, offsets = zip(*[(n, f"<{kind}", o) for n, kind, o in header.slot_layout], strict=True)
    return np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": header.slot_bytes})


class RingFile:
    """A ring opened for reading; safe beside a live writer, and after one that was killed."""

    def __init__(self, path: Path) -> None:
        """Open and check ``path``; RooflensError in one line if it is no ring that can be trusted and read."""
        self.path = path
        self.state_damaged = False
        self.most_slots: int | None = None  # that are given at once, None for all
        self._borrowed = False
        self._fd = self._open(path)
        try:
            self.header = parse_header(self._pread(INFO_OFFSET, 0), str(path))
            if self.header.file_bytes > MOST_RING_BYTES:
                raise RooflensError(
                    f"{path} says that it takes {self.header.file_bytes >> 20:,} MB, and no ring takes more than "
                    f"{MOST_RING_BYTES >> 20}: it is damaged"
                )
            if os.fstat(self._fd).st_size < self.header.file_bytes:
                raise RooflensError(f"{path} is truncated: the rest of the ring is missing")
        except BaseException:
            self.close()
            raise
        self._dtype: np.dtype[Any] | None = None

    def _open(self, path: Path) -> int:
        try:
            status = os.lstat(path)
            own = OWN_RINGS.get((status.st_dev, status.st_ino))
            if own is not None:  # closing a second descriptor would drop this process's own lock
                self._borrowed = True
                return own
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            why = "is a symbolic link" if error.errno == errno.ELOOP else os.strerror(error.errno or 0).lower()
            raise RooflensError(f"{path}: {why}") from None
        status = os.fstat(descriptor)
        setgid = bool(os.stat(path.parent).st_mode & stat.S_ISGID)
        if not stat.S_ISREG(status.st_mode):
            os.close(descriptor)
            raise RooflensError(f"{path} is not a file")
        if os.geteuid() != 0 and status.st_uid not in (os.geteuid(), 0) and not setgid:
            os.close(descriptor)
            raise RooflensError(f"{path} belongs to user {status.st_uid}: read it as that user or as root")
        return descriptor

    @property
    def dtype(self) -> np.dtype[Any]:
        """The slots' layout; NumPy is needed from here on, not for the header, the state and the raw slots."""
        if self._dtype is None:
            self._dtype = slot_dtype(self.header)
        return self._dtype

    @property
    def created(self) -> tuple[float, float]:
        """When the ring was made: monotonic seconds, and unix seconds at that moment."""
        return self.header.created_monotonic_ns / 1e9, self.header.created_unix_ns / 1e9

    @property
    def extras(self) -> tuple[str, ...]:
        """The extra fields of a payload, in their order."""
        return self.header.extras

    def close(self) -> None:
        """Let go of the file."""
        if not self._borrowed and self._fd >= 0:
            with contextlib.suppress(OSError):
                os.close(self._fd)
        self._fd = -1

    def _pread(self, size: int, at: int) -> bytes:
        try:
            return os.pread(self._fd, size, at)
        except OSError as error:
            raise RooflensError(f"{self.path}: {os.strerror(error.errno or 0).lower()}") from None

    def _read(self, size: int, at: int) -> bytes:
        raw = self._pread(size, at)
        if len(raw) != size:
            raise RooflensError(f"{self.path} was cut short while it was read")
        return raw

    def live(self) -> bool:
        """Whether the writer still holds the ring."""
        return is_live(self._fd)

    def holder(self) -> int | None:
        """The writer's process as this PID namespace numbers it; None where it is gone or not to be seen from here."""
        if sys.platform != "linux":
            return self.header.pid if self.live() else None
        status = os.fstat(self._fd)
        if (status.st_dev, status.st_ino) in OWN_RINGS:
            return os.getpid()  # nobody is told of a lock of its own
        asked = LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, *_, pid = LOCK.unpack(fcntl.fcntl(self._fd, fcntl.F_GETLK, asked))
        return int(pid) if kind != fcntl.F_UNLCK and pid > 0 else None

    def state(self) -> RingState:
        """The writer's counts at this moment."""
        raw = self._read(STATE.size + STATE_MORE.size, STATE_OFFSET)
        sequence, head = STATE.unpack_from(raw)
        if sequence > LAST_SEQUENCE:
            raise RooflensError(f"{self.path} has a damaged state: {sequence} steps cannot be")
        closed, failures, dropped, area = STATE_MORE.unpack_from(raw, STATE.size)
        return RingState(sequence, head, bool(closed), failures, dropped, area & 1)

    def info(self) -> EngineInfo | None:
        """The engine's facts; None if none were written or they are torn."""
        facts = self.facts()
        return EngineInfo.from_json(facts) if facts is not None else None

    def facts(self) -> dict[str, Any] | None:
        """The facts as they were written, with those that EngineInfo does not know; None as in info()."""
        for area in (self.state().info_area, 1 - self.state().info_area):
            raw = self._read(INFO_BYTES, INFO_OFFSET + area * INFO_BYTES)
            size, check = INFO_HEAD.unpack_from(raw)
            text = raw[INFO_HEAD.size : INFO_HEAD.size + size]
            if size and crc32(text) == check:
                with contextlib.suppress(ValueError, TypeError, AttributeError, RecursionError, RooflensError):
                    facts = json.loads(text)
                    EngineInfo.from_json(facts)
                    return dict(facts)
        return None

    def in_flight(self) -> list[InFlight]:
        """Stamped steps, newest first; the caller knows from the committed count which are still open."""
        raw = self._read(STAMP.size * STAMPS, STAMP_OFFSET)
        stamps = [STAMP.unpack_from(raw, index * STAMP.size) for index in range(STAMPS)]
        seen = [InFlight(o, ns / 1e9, tokens, requests) for o, ns, requests, tokens in stamps if o]
        return sorted(seen, key=lambda stamp: -stamp.ordinal)

    def slots(self, after: int) -> Slots:
        """The slots with a sequence above ``after``."""
        import numpy as np

        last = self.state().sequence
        first = max(after + 1, last - self.header.slot_count + 1)
        if self.most_slots is not None:
            last = min(last, first + self.most_slots - 1)
        if last < first:
            return Slots(np.empty(0, self.dtype), max(last, after), max(0, last - after), 0)
        raw = self.read_raw(first, last)
        good, newer = self._whole(raw, first)
        if not (good | newer).all():  # on some machines the count can be seen before the slot that it counts
            raw = self.read_raw(first, last)
            good, newer = self._whole(raw, first)
        if not good.any() and (first > after + 1 or newer.any()) and not self.live():
            scanned = self._scanned(after)
            self.state_damaged = scanned is not None
            if scanned is not None:
                return scanned
        slots = np.frombuffer(raw, self.dtype)
        lost = first - after - 1 + int(newer.sum())
        torn = len(slots) - int(good.sum()) - int(newer.sum())
        return Slots(slots if good.all() else slots[good], last, lost, torn)

    def _whole(self, raw: bytes, first: int) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Masks of the slots that are what they should be, and of those that the writer has come round to since."""
        import numpy as np

        slots = np.frombuffer(raw, self.dtype)
        wanted = np.arange(first, first + len(slots), dtype=np.uint64)
        body = self.header.slot_bytes - 4
        bodies = struct.iter_unpack(f"{body}s4x", raw)
        checks = np.fromiter((crc32(slot) for (slot,) in bodies), np.uint32, len(slots))
        whole = checks == slots["crc"]
        current = slots["sequence"] == wanted
        return whole & current, whole & ~current

    def read_raw(self, first: int, last: int) -> bytes:
        """The bytes of the slots from sequence ``first`` to ``last``, at most as many as the ring holds."""
        size, count, base = self.header.slot_bytes, self.header.slot_count, self.header.slots_offset
        start, end = (first - 1) % count, (last - 1) % count
        if start <= end:
            return self._read((end - start + 1) * size, base + start * size)
        return self._read((count - start) * size, base + start * size) + self._read((end + 1) * size, base)

    def scan(self) -> list[tuple[int, bytes]]:
        """Every whole slot by the sequence that it states itself, in order: what is left where the state is damaged."""
        size, count = self.header.slot_bytes, self.header.slot_count
        kind, at = next((kind, at) for name, kind, at in self.header.slot_layout if name == "sequence")
        found = []
        for index, (slot,) in enumerate(
            struct.iter_unpack(f"{size}s", self._read(size * count, self.header.slots_offset))
        ):
            sequence = int.from_bytes(slot[at : at + int(kind[1])], "little")
            if crc32(slot[:-4]) == int.from_bytes(slot[-4:], "little") and sequence and (sequence - 1) % count == index:
                found.append((sequence, slot))
        return sorted(found)

    def _scanned(self, after: int) -> Slots | None:
        """The slots above ``after`` without regard to the state; None where no slot is whole."""
        import numpy as np

        found = [(sequence, slot) for sequence, slot in self.scan() if sequence > after]
        if not found:
            return None
        last = found[-1][0]
        first = max(after + 1, last - self.header.slot_count + 1)
        slots = np.frombuffer(b"".join(slot for _, slot in found), self.dtype)
        return Slots(slots, last, first - after - 1, last - first + 1 - len(found))

    def payload(self, offset: int, size: int) -> bytes | None:
        """The payload of a slot; None if it was overwritten or is torn."""
        arena = self.header.arena_bytes
        if not 4 < size <= arena or offset + arena < self.state().arena_head:
            return None
        raw = self._pread(size, self.header.arena_offset + offset % arena)
        return raw[:-4] if len(raw) == size and crc32(raw[:-4]) == int.from_bytes(raw[-4:], "little") else None
