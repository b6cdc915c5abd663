"""A frame's payload taken apart; anything that does not add up gives None, never an exception."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rooflens.ring import (
    ANCHOR,
    ANCHOR_STRUCT,
    APPENDED,
    DRAFTS,
    EXTRAS,
    JSON,
    LENGTHS,
    PREFILL,
    REJECTED,
    REMOVED,
    U32,
)

Ints = NDArray[np.int64]


@dataclass(slots=True)
class Sections:
    """The sections that were there; token counts by row, positions of rows, extras by name."""

    lengths: Ints | None = None
    removed: Ints | None = None
    appended: Ints | None = None
    prefill_rows: Ints | None = None
    prefill_queries: Ints | None = None
    drafts: Ints | None = None
    rejected: Ints | None = None
    extras: dict[str, int] = field(default_factory=dict)
    anchor: tuple[int, int] | None = None
    detail: dict[str, Any] | None = None


class _Cursor:
    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._at = 0

    def take(self, size: int) -> bytes:
        part = self._raw[self._at : self._at + size]
        if len(part) != size:
            raise ValueError("section runs past the payload")
        self._at += size
        return part

    def count(self) -> int:
        return int(U32.unpack(self.take(4))[0])

    def u32(self, count: int) -> Ints:
        return np.frombuffer(self.take(4 * count), "<u4").astype(np.int64)

    def u16(self, count: int) -> Ints:
        return np.frombuffer(self.take(4 * ((count + 1) // 2)), "<u2")[:count].astype(np.int64)


def parse(raw: bytes, sections: int, rows: int, extras: Sequence[str]) -> Sections | None:
    """The sections of a payload of a frame with ``rows`` rows; None if it is malformed."""
    cursor, found = _Cursor(raw), Sections()
    try:
        if sections & LENGTHS:
            found.lengths = cursor.u32(cursor.count())
        if sections & REMOVED:
            found.removed = cursor.u32(cursor.count())
        if sections & APPENDED:
            found.appended = cursor.u32(cursor.count())
        if sections & PREFILL:
            count = cursor.count()
            found.prefill_rows, found.prefill_queries = cursor.u32(count), cursor.u32(count)
        if sections & DRAFTS:
            found.drafts = cursor.u16(rows)
        if sections & REJECTED:
            found.rejected = cursor.u16(rows)
        if sections & EXTRAS:
            found.extras = dict(zip(extras, cursor.u32(len(extras)).tolist(), strict=True))
        if sections & ANCHOR:
            found.anchor = ANCHOR_STRUCT.unpack(cursor.take(ANCHOR_STRUCT.size))
        if sections & JSON:
            detail = json.loads(cursor.take(cursor.count()))
            found.detail = detail if isinstance(detail, dict) else None
    except (ValueError, UnicodeDecodeError, RecursionError):
        return None
    return found
