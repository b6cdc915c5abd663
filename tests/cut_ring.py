"""Makes a ring small and stateless enough to be committed: no empty slots, no name of the machine, gzip.

python tests/cut_ring.py RING TARGET.ring.gz
"""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from zlib import crc32

from rooflens.ring import (
    HEADER,
    INFO_BYTES,
    INFO_HEAD,
    INFO_OFFSET,
    SLOT_BYTES,
    SLOTS_OFFSET,
    STATE,
    STATE_OFFSET,
    U32,
    parse_header,
)

# Facts that name a machine; its name is also the first part of an instance.
HOST = "host-a"
MACHINE: dict[str, object] = {"host": HOST, "pod": None, "device_uuids": []}
PID = 4242


def cut(source: Path, target: Path) -> None:
    """Write ``source`` without the slots and arena that were never used; ValueError for a ring that has wrapped."""
    raw = source.read_bytes()
    header = parse_header(raw[:INFO_OFFSET], source.name)
    sequence, head = STATE.unpack_from(raw, STATE_OFFSET)
    if sequence > header.slot_count or head > header.arena_bytes:
        raise ValueError(f"{source}: the ring has wrapped, its first steps are gone")
    slots, arena = max(sequence, 1), max(head, 8)
    page = bytearray(raw[:INFO_OFFSET])
    fixed = list(HEADER.unpack_from(page))
    fixed[5], fixed[7], fixed[8], fixed[11] = slots, SLOTS_OFFSET + slots * SLOT_BYTES, arena, PID
    packed = HEADER.pack(*fixed)
    layout = bytes(page[fixed[15] : fixed[15] + fixed[16]])
    page[: len(packed)] = packed
    U32.pack_into(page, len(packed), crc32(packed + layout))
    infos = b"".join(_stripped(raw, INFO_OFFSET + turn * INFO_BYTES) for turn in (0, 1))
    body = raw[SLOTS_OFFSET : SLOTS_OFFSET + slots * SLOT_BYTES]
    lengths = raw[header.arena_offset : header.arena_offset + arena]
    target.write_bytes(gzip.compress(bytes(page) + infos + body + lengths, mtime=0))


def _stripped(raw: bytes, at: int) -> bytes:
    """One info area, with what names the machine replaced."""
    size, check = INFO_HEAD.unpack_from(raw, at)
    text = raw[at + INFO_HEAD.size : at + INFO_HEAD.size + size]
    if not size or crc32(text) != check:
        return bytes(INFO_BYTES)
    info = json.loads(text)
    info["instance"] = info["instance"].replace(info.get("host") or HOST, HOST, 1)
    info.update({name: value for name, value in MACHINE.items() if name in info})
    text = json.dumps(info, separators=(",", ":")).encode()
    return (INFO_HEAD.pack(len(text), crc32(text)) + text).ljust(INFO_BYTES, b"\0")


if __name__ == "__main__":
    cut(Path(sys.argv[1]), Path(sys.argv[2]))
