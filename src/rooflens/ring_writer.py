"""The writer of a ring: one slot a step, never blocking, never growing."""

from __future__ import annotations

import fcntl
import json
import mmap
import os
import struct
import time
from collections.abc import Mapping
from typing import Any
from zlib import crc32

from rooflens.records import RooflensError
from rooflens.ring import (
    ANCHOR,
    ANCHOR_STRUCT,
    COLD,
    COLD_FIELDS,
    EVENT,
    HOT,
    HOT_FIELDS,
    INFO_BYTES,
    INFO_HEAD,
    INFO_OFFSET,
    JSON,
    OWN_RINGS,
    SLOT_BYTES,
    SLOT_FIELDS,
    SLOTS_OFFSET,
    STAMP,
    STAMP_OFFSET,
    STAMPS,
    STATE,
    STATE_MORE,
    STATE_OFFSET,
    U32,
    UNKNOWN,
    pack_header,
)

SEQUENCE_WORD = STATE_OFFSET // 8
STAMP_WORD = STAMP_OFFSET // 8
STAMP_WORDS = STAMP.size // 8

_MAXIMA = {name: (1 << 8 * int(kind[1])) - 1 for name, kind in SLOT_FIELDS}


def _saturated(named: tuple[tuple[str, str], ...], values: tuple[int, ...]) -> list[int]:
    return [max(0, min(int(value), _MAXIMA[name])) for (name, _), value in zip(named, values, strict=True)]


def pack_cold(*values: int) -> bytes:
    """COLD_FIELDS, packed; a value too large for its field becomes the largest one."""
    try:
        return COLD.pack(*values)
    except struct.error:
        return COLD.pack(*_saturated(COLD_FIELDS, values))


_pack_hot = HOT.pack


class RingWriter:
    """Writes one ring. Not thread-safe: it belongs to the engine's loop thread."""

    def __init__(self, fd: int, slot_count: int, arena_bytes: int, rank: int) -> None:
        """Lay out and lock the open, empty file ``fd``; OSError where there is no room or a lock is held.

        Blocks are allocated up front: a write into a hole of a full tmpfs would be a SIGBUS in the engine.
        """
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        size = SLOTS_OFFSET + slot_count * SLOT_BYTES + arena_bytes
        os.posix_fallocate(fd, 0, size)
        self._fd = fd
        self._map = mmap.mmap(fd, size)
        self._words = memoryview(self._map).cast("Q")
        self._map[:INFO_OFFSET] = pack_header(slot_count, arena_bytes, os.getpid(), rank)
        self._slot_count = slot_count
        self._arena_at = SLOTS_OFFSET + slot_count * SLOT_BYTES
        self._arena_bytes = arena_bytes
        self._arena_head = 0
        self._failures = self._dropped_payloads = self._info_turn = 0
        self.sequence = 0
        self.pid = os.getpid()
        status = os.fstat(fd)
        self._key = (status.st_dev, status.st_ino)
        OWN_RINGS[self._key] = fd

    def commit(
        self,
        submit_ns: int,
        output_ns: int,
        context_tokens: int,
        schedule_ns: int,
        update_ns: int,
        executor_ns: int,
        wait_ns: int,
        hook_ns: int,
        kv_blocks_used: int,
        cold: bytes,
        payload: bytes = b"",
    ) -> None:
        """Write one slot: times in nanoseconds, ``cold`` from pack_cold, the sections of ``payload`` as cold says.

        A value too large for its field is written as the largest one; a payload that does not fit the arena is
        left out and counted.
        """
        sequence = self.sequence + 1
        offset = size = 0
        if payload:
            offset, size = self._store(payload + crc32(payload).to_bytes(4, "little"))
        try:
            body = _pack_hot(
                sequence, offset, submit_ns, output_ns, context_tokens, size, schedule_ns, update_ns, executor_ns,
                wait_ns, hook_ns, kv_blocks_used,
            ) + cold  # fmt: skip
        except struct.error:
            hot = (sequence, offset, submit_ns, output_ns, context_tokens, size, schedule_ns, update_ns, executor_ns)
            body = HOT.pack(*_saturated(HOT_FIELDS, (*hot, wait_ns, hook_ns, kv_blocks_used))) + cold
        check = crc32(body)
        at = SLOTS_OFFSET + (sequence - 1) % self._slot_count * SLOT_BYTES
        self._map[at : at + SLOT_BYTES] = body + check.to_bytes(4, "little")
        self.sequence = self._words[SEQUENCE_WORD] = sequence

    def _store(self, payload: bytes) -> tuple[int, int]:
        size = len(payload)
        if size > self._arena_bytes // 2:
            self._dropped_payloads += 1
            self._write_state()
            return 0, 0
        head = self._arena_head
        position = head % self._arena_bytes
        if position + size > self._arena_bytes:
            head += self._arena_bytes - position
            position = 0
        at = self._arena_at + position
        self._map[at : at + size] = payload
        self._arena_head = self._words[SEQUENCE_WORD + 1] = head + size
        return head, size

    def stamp(self, ordinal: int, submit_ns: int, tokens: int, requests: int) -> None:
        """Mark a step as in flight: what a reader needs to see an engine that hangs in it."""
        word = STAMP_WORD + (ordinal % STAMPS) * STAMP_WORDS
        words = self._words
        words[word] = ordinal
        words[word + 1] = submit_ns
        words[word + 2] = tokens << 32 | requests

    def unstamp(self, submit_ns: int | None = None) -> None:
        """Take back the stamp of a step that is never going to be committed; without ``submit_ns`` all stamps."""
        words = self._words
        for word in range(STAMP_WORD, STAMP_WORD + STAMPS * STAMP_WORDS, STAMP_WORDS):
            if submit_ns is None or words[word + 1] == submit_ns:
                words[word] = 0  # an ordinal that no step has

    def event(self, name: str, detail: Mapping[str, Any] | None = None) -> None:
        """Commit an event frame; ``detail`` must be JSON-ready and hold counts only."""
        text = json.dumps({"event": name, **(detail or {})}, separators=(",", ":")).encode()
        now = time.monotonic_ns()
        anchor = ANCHOR_STRUCT.pack(time.time_ns(), now)
        cold = {"frame": EVENT, "sections": ANCHOR | JSON}
        packed = pack_cold(*(cold.get(name, 0) for name, _ in COLD_FIELDS))
        payload = anchor + U32.pack(len(text)) + text
        self.commit(now, now, 0, 0, 0, UNKNOWN, UNKNOWN, 0, UNKNOWN, packed, payload)

    def set_info(self, info: Mapping[str, Any]) -> None:
        """Publish the engine's facts; an event frame marks the moment if steps were seen before."""
        text = json.dumps(info, separators=(",", ":")).encode()
        if len(text) > INFO_BYTES - INFO_HEAD.size:
            raise RooflensError(f"engine info of {len(text)} bytes does not fit the ring's {INFO_BYTES}")
        turn = 1 - self._info_turn
        at = INFO_OFFSET + turn * INFO_BYTES
        self._map[at : at + INFO_HEAD.size] = INFO_HEAD.pack(len(text), crc32(text))
        self._map[at + INFO_HEAD.size : at + INFO_HEAD.size + len(text)] = text
        self._info_turn = turn
        self._write_state()
        if self.sequence:
            self.event("info_changed")

    def count_failure(self) -> None:
        """Count one failure of the hook, where a reader sees it."""
        self._failures += 1
        self._write_state()

    def _write_state(self, closed_ns: int = 0) -> None:
        STATE_MORE.pack_into(
            self._map, STATE_OFFSET + STATE.size, closed_ns, self._failures, self._dropped_payloads, self._info_turn
        )

    def close(self) -> None:
        """Mark the ring as ended in order, and let go of it; the file stays for post-mortem reading."""
        if self._fd < 0:
            return
        self._write_state(time.monotonic_ns())
        OWN_RINGS.pop(self._key, None)
        self._words.release()
        self._map.close()
        os.close(self._fd)
        self._fd = -1
