"""The flight recorder: fixed slots and an arena in one shared-memory file, written by the engine, read by anyone.

Layout, little-endian, every offset said in the header::

    0        header: magic, versions, sizes, identity, then the slot layout as JSON
    512      state: last sequence, arena head, failures, closed flag, in-flight stamps
    4096     two info areas (engine facts as JSON), written in turn
    ...      slots of 128 bytes, one a step or event, addressed by (sequence - 1) % slot_count
    ...      arena for the length arrays; offsets grow without end, position = offset % arena_bytes

A slot and a payload each end in their CRC-32, so a reader needs no lock and no store order. A u32 of 0xFFFFFFFF is
"not known". Within a payload the sections follow each other in the order of their bits. ``base`` says how many steps
back the frame lies that a REPEAT or EDIT goes on from; events and dummy steps do not count.

A worker's own ring (suffix ``.device``) holds no steps but device spans: EVENT slots with the flag DEVICE_SPAN and no
sections, which a reader of steps passes over. In such a slot

    submit_ns, output_ns         the worker's clock when its first call began and its last one returned
    context_tokens               device time in nanoseconds
    schedule_ns, update_ns       the ordinal of the call among the worker's forward passes: low and high half
    wait_ns                      the worker's pause between execute_model and sample_tokens
    hook_ns                      what timing this pass cost the worker
    preempted                    passes that were not timed, since the worker began
    query_tokens, requests       as in a step
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import struct
import time
from dataclasses import dataclass
from zlib import crc32

from rooflens.records import RooflensError

MAGIC = b"RFLNRING"
FORMAT_MAJOR = 1  # a reader refuses another major version
FORMAT_MINOR = 0  # a newer minor version only adds fields
UNKNOWN = 0xFFFFFFFF
SLOT_BYTES = 128
STATE_OFFSET = 512
STAMP_OFFSET = 640
STAMPS = 16  # more than any engine keeps in flight
INFO_OFFSET = 4096
INFO_BYTES = 128 * 1024
SLOTS_OFFSET = INFO_OFFSET + 2 * INFO_BYTES

# The first fields change in every step; the others repeat over long stretches, so a writer may keep them packed.
HOT_FIELDS: tuple[tuple[str, str], ...] = (
    ("sequence", "u8"),
    ("arena_offset", "u8"),
    ("submit_ns", "u8"),
    ("output_ns", "u8"),
    ("context_tokens", "u8"),
    ("arena_bytes", "u4"),
    ("schedule_ns", "u4"),
    ("update_ns", "u4"),
    ("executor_ns", "u4"),
    ("wait_ns", "u4"),
    ("hook_ns", "u4"),
    ("kv_blocks_used", "u4"),
)
COLD_FIELDS: tuple[tuple[str, str], ...] = (
    ("query_tokens", "u4"),
    ("generated_tokens", "u4"),
    ("drafted_tokens", "u4"),
    ("rejected_tokens", "u4"),
    ("kv_blocks_cached", "u4"),
    ("waiting", "u4"),
    ("requests", "u4"),
    ("running", "u4"),
    ("prefill_tokens", "u4"),
    ("padded_tokens", "u4"),
    ("preempted", "u4"),
    ("prefill_requests", "u2"),
    ("deferred", "u2"),
    ("frame", "u1"),
    ("kind", "u1"),
    ("base", "u1"),
    ("graph_mode", "u1"),
    ("flags", "u2"),
    ("sections", "u2"),
)
SLOT_FIELDS = (*HOT_FIELDS, *COLD_FIELDS, ("crc", "u4"))
_CODES = {"u8": "Q", "u4": "I", "u2": "H", "u1": "B"}


def _struct_of(named: tuple[tuple[str, str], ...]) -> struct.Struct:
    return struct.Struct("<" + "".join(_CODES[kind] for _, kind in named))


HOT, COLD = _struct_of(HOT_FIELDS), _struct_of(COLD_FIELDS)
HEADER = struct.Struct("<8sHHIIIQQQIIIIQQQI")
STATE = struct.Struct("<QQ")  # last committed sequence, arena head
STATE_MORE = struct.Struct("<QQQQ")  # closed_ns, hook failures, dropped payloads, info area in use
STAMP = struct.Struct("<QQII")  # ordinal of the scheduled step, submit_ns, requests, tokens
U32 = struct.Struct("<I")
INFO_HEAD = struct.Struct("<II")

# frame
REPEAT, KEY, EDIT, EVENT = 0, 1, 2, 3
# sections of a payload, in the order of their bits
LENGTHS, REMOVED, APPENDED, PREFILL, DRAFTS, REJECTED, EXTRAS, ANCHOR, JSON = (1 << bit for bit in range(9))
# flags
RECOMPUTE, CONTEXT_DOUBTED, DEVICE_SPAN = 1, 2, 4

EXTRA_FIELDS: tuple[str, ...] = (
    "prompt_tokens",
    "new_requests",
    "prefix_hit_local_tokens",
    "prefix_hit_external_tokens",
    "recomputed_tokens",
    "discarded_tokens",
    "unprefilled_tokens",
    "finished_requests",
    "structured_rows",
    "lora_rows",
    "prompt_logprob_rows",
    "encoder_inputs",
    "invalid_draft_tokens",
    "unjudged_draft_tokens",
    "oldest_wait_us",
    "summed_wait_us",
)
EXTRAS_STRUCT = struct.Struct(f"<{len(EXTRA_FIELDS)}I")
ANCHOR_STRUCT = struct.Struct("<QQ")  # unix_ns, monotonic_ns

# Rings this process writes: closing any descriptor of such a file would drop its POSIX lock.
OWN_RINGS: dict[tuple[int, int], int] = {}
os.register_at_fork(after_in_child=OWN_RINGS.clear)  # a lock is its process's own, the child holds none


def layout_json() -> bytes:
    """The self-description that a reader of any version goes by."""
    offset, slot = 0, []
    for name, kind in SLOT_FIELDS:
        slot.append([name, kind, offset])
        offset += int(kind[1])
    return json.dumps({"slot": slot, "extras": EXTRA_FIELDS}, separators=(",", ":")).encode()


@dataclass(frozen=True, slots=True)
class RingHeader:
    """What a ring says of itself; offsets and sizes in bytes, times in nanoseconds."""

    major: int
    minor: int
    slot_bytes: int
    slot_count: int
    slots_offset: int
    arena_offset: int
    arena_bytes: int
    pid: int
    rank: int
    created_unix_ns: int
    created_monotonic_ns: int
    slot_layout: tuple[tuple[str, str, int], ...]
    extras: tuple[str, ...]

    @property
    def file_bytes(self) -> int:
        """The whole file."""
        return self.arena_offset + self.arena_bytes


def pack_header(slot_count: int, arena_bytes: int, pid: int, rank: int) -> bytes:
    """The first 4096 bytes of a new ring, without the state."""
    layout = layout_json()
    fixed = HEADER.pack(
        MAGIC, FORMAT_MAJOR, FORMAT_MINOR, INFO_OFFSET, SLOT_BYTES, slot_count, SLOTS_OFFSET,
        SLOTS_OFFSET + slot_count * SLOT_BYTES, arena_bytes, INFO_OFFSET, INFO_BYTES, pid, rank,
        time.time_ns(), time.monotonic_ns(), 1024, len(layout),
    )  # fmt: skip
    page = bytearray(INFO_OFFSET)
    page[: len(fixed)] = fixed
    U32.pack_into(page, len(fixed), crc32(fixed + layout))
    page[1024 : 1024 + len(layout)] = layout
    return bytes(page)


def parse_header(page: bytes, name: str) -> RingHeader:
    """Read a header page; RooflensError in one line for anything that is no readable ring."""
    if not page:
        raise RooflensError(f"{name} is empty: nothing was recorded, or not yet written")
    if len(page) < INFO_OFFSET or page[:8] != MAGIC:
        foreign = page[:8] != MAGIC[: len(page)]
        why = "it does not begin like one" if foreign else "it is truncated"
        raise RooflensError(f"{name} is not a rooflens ring: {why}")
    (_, major, minor, _, slot_bytes, slots, slots_at, arena_at, arena_bytes, _, _, pid, rank,
     unix_ns, mono_ns, layout_at, layout_bytes) = HEADER.unpack_from(page)  # fmt: skip
    if major != FORMAT_MAJOR:
        raise RooflensError(f"{name} has ring format {major}, this rooflens reads {FORMAT_MAJOR}: upgrade rooflens")
    layout = page[layout_at : layout_at + layout_bytes]
    (crc,) = U32.unpack_from(page, HEADER.size)
    if crc32(page[: HEADER.size] + layout) != crc:
        raise RooflensError(f"{name} has a damaged or half-written header: the engine died while creating it")
    try:
        described = json.loads(layout)
        slot = tuple((str(n), str(k), int(o)) for n, k, o in described["slot"])
        extras = tuple(map(str, described["extras"]))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise RooflensError(f"{name} has a damaged header: {error}") from None
    missing = {n for n, _ in SLOT_FIELDS} - {n for n, _, _ in slot}
    if missing:
        raise RooflensError(f"{name} lacks the slot fields {sorted(missing)}: written by an incompatible rooflens")
    fits = all(kind in _CODES and 0 <= at <= slot_bytes - int(kind[1]) for _, kind, at in slot)
    if not (fits and slots and arena_bytes and slots_at >= INFO_OFFSET and arena_at >= slots_at + slots * slot_bytes):
        raise RooflensError(f"{name} has a header that contradicts itself: it is damaged")
    return RingHeader(
        major, minor, slot_bytes, slots, slots_at, arena_at, arena_bytes, pid, rank, unix_ns, mono_ns,
        slot, extras,
    )  # fmt: skip


def is_live(fd: int) -> bool:
    """Whether the writer of an open ring still holds its lock; works across PID namespaces."""
    status = os.fstat(fd)
    if (status.st_dev, status.st_ino) in OWN_RINGS:
        return True
    try:
        fcntl.lockf(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EAGAIN):
            return True
        raise
    fcntl.lockf(fd, fcntl.LOCK_UN)
    return False
