"""Steps into frames: which rows stayed, left or came since an earlier frame, packed for the ring."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import Any

from rooflens.ring import (
    ANCHOR,
    ANCHOR_STRUCT,
    APPENDED,
    DRAFTS,
    EXTRAS,
    EXTRAS_STRUCT,
    LENGTHS,
    PREFILL,
    REJECTED,
    REMOVED,
    U32,
)

# Beyond this many removals a keyframe is smaller and quicker than searching each of them.
MOST_REMOVALS = 24


def removals(old: Sequence[Any], new: Sequence[Any]) -> tuple[list[int], int] | None:
    """How ``new`` follows from ``old`` by removals and then appends.

    Returns the removed positions of ``old`` and how many leading entries of ``new`` survived; what comes after
    those was appended. None if more than MOST_REMOVALS entries left. Each removal is found by halving, so that
    the comparison runs in C.
    """
    removed: list[int] = []
    at_old = at_new = 0
    old_size, new_size = len(old), len(new)
    while at_old < old_size:
        span = min(old_size - at_old, new_size - at_new)
        if old[at_old : at_old + span] == new[at_new : at_new + span]:
            at_old, at_new = at_old + span, at_new + span
            removed.extend(range(at_old, old_size))
            break
        low, high = 0, span  # the first difference lies in [low, high)
        while high - low > 1:
            middle = (low + high) // 2
            if old[at_old + low : at_old + middle] == new[at_new + low : at_new + middle]:
                low = middle
            else:
                high = middle
        at_old, at_new = at_old + low, at_new + low
        removed.append(at_old)
        at_old += 1
        if len(removed) > MOST_REMOVALS:
            return None
    return (removed, at_new) if len(removed) <= MOST_REMOVALS else None


def known_removals(old: Sequence[str], new: Sequence[str], gone: Sequence[str]) -> tuple[list[int], int] | None:
    """The answer of removals(), given who is ``gone``; None if the lists do not look like it.

    Looks only at the seams, where a removal closed up, and at the end: reading hundreds of entries whose objects have
    left the processor's caches costs more than the rest of the hook. The caller compares the sums of the contexts.
    """
    removed: list[int] = []
    for name in gone:
        try:
            position = old.index(name)
        except ValueError:
            continue
        if position not in removed:  # preempted and then ended: once
            removed.append(position)
    removed.sort()
    survivors = len(old) - len(removed)
    if len(new) < survivors or len(removed) > MOST_REMOVALS:
        return None
    last = len(old) - 1
    for before, position in enumerate(removed):
        follows = position + 1
        if follows <= last and follows not in removed and new[position - before] is not old[follows]:
            return None
    while last in removed:
        last -= 1
    if survivors and (new[survivors - 1] is not old[last] or (0 not in removed and new[0] is not old[0])):
        return None
    return removed, survivors


def _numbers(values: Iterable[int]) -> bytes:
    packed = array("I", values)
    return U32.pack(len(packed)) + packed.tobytes()


def _shorts(values: Sequence[int]) -> bytes:
    return array("H", values).tobytes() + (b"\0\0" if len(values) & 1 else b"")


class Payload:
    """Collects the sections of one frame; call the methods in the order in which they stand here."""

    __slots__ = ("_parts", "sections")

    def __init__(self) -> None:
        self.sections = 0
        self._parts: list[bytes] = []

    def _add(self, section: int, part: bytes) -> None:
        self.sections |= section
        self._parts.append(part)

    def lengths(self, contexts: Iterable[int]) -> None:
        """Keyframe: the context of every row, in tokens."""
        self._add(LENGTHS, _numbers(contexts))

    def removed(self, positions: Sequence[int]) -> None:
        """Edit frame: rows of the base frame that are gone."""
        if positions:
            self._add(REMOVED, _numbers(positions))

    def appended(self, contexts: Sequence[int]) -> None:
        """Edit frame: contexts of the rows that came, in tokens."""
        if contexts:
            self._add(APPENDED, _numbers(contexts))

    def prefill(self, rows: Sequence[int], queries: Sequence[int]) -> None:
        """Rows that are prefilling and how many tokens each computes; every other row computes 1 + drafts."""
        if rows:
            self._add(PREFILL, _numbers(rows) + array("I", queries).tobytes())

    def drafts(self, drafted: Sequence[int], rejected: Sequence[int]) -> None:
        """Draft tokens verified and rejected, one figure a row each."""
        if any(drafted):
            self._add(DRAFTS, _shorts(drafted))
            if any(rejected):
                self._add(REJECTED, _shorts(rejected))

    def extras(self, values: Sequence[int]) -> None:
        """EXTRA_FIELDS of this step, for the steps that have any."""
        self._add(EXTRAS, EXTRAS_STRUCT.pack(*values))

    def anchor(self, unix_ns: int, monotonic_ns: int) -> None:
        """Ties the monotonic clock to the wall clock."""
        self._add(ANCHOR, ANCHOR_STRUCT.pack(unix_ns, monotonic_ns))

    def tobytes(self) -> bytes:
        """All sections, one after the other."""
        return b"".join(self._parts)
