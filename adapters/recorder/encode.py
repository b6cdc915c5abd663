"""The lengths of one step as a frame: nothing but a repeat, an edit of the step before, or a keyframe."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import index

from rooflens.adapters.frames import Payload, removals
from rooflens.ring import EDIT, KEY, REPEAT

KEYFRAME_NS = 1_000_000_000  # a reader that starts late, or a lost frame, costs at most this much
LANE_BITS = 32  # contexts are added and compared all at once, as one long integer of 32-bit lanes
SHORTEST_QUERY = 1


@dataclass(slots=True)
class Rows:
    """The sequences of one step: contexts before it in tokens, what each computes, drafts to verify, which prefill.

    ``queries`` is None where every row computes one token; ``drafts`` is empty where nothing is verified.
    """

    contexts: array[int]
    queries: array[int] | None = None
    drafts: Sequence[int] = ()
    prefill: Sequence[int] = ()
    rejected: Sequence[int] = ()

    @property
    def query_tokens(self) -> int:
        """Tokens computed in the step."""
        return len(self.contexts) if self.queries is None else sum(self.queries)

    @property
    def prefill_tokens(self) -> int:
        """Of these, tokens of prefilling rows."""
        return len(self.prefill) if self.queries is None else sum(self.queries[row] for row in self.prefill)

    def reject(self, given: Sequence[int] | None) -> None:
        """How many drafts of each row were rejected; ValueError where that cannot be."""
        rejected = _whole(given)
        if not rejected:
            return
        if not self.drafts and not any(rejected):
            return
        if len(rejected) != len(self.drafts):
            raise ValueError(f"{len(rejected)} rejections for {len(self.drafts)} rows with drafts")
        if any(not 0 <= r <= d for r, d in zip(rejected, self.drafts, strict=True)):
            raise ValueError("a row rejects some or all of its drafts, no more")
        self.rejected = rejected


def rows_of(
    contexts: Sequence[int],
    queries: Sequence[int] | None,
    prefill: Sequence[int] | None,
    drafts: Sequence[int] | None,
) -> Rows:
    """Copy what an engine says of a step; ValueError or TypeError for lengths that cannot be.

    Without ``prefill``, the rows that compute more than one token and their drafts are taken to prefill.
    """
    packed = array("I", _numbers(contexts))
    if queries is None and drafts is None:
        return Rows(packed, None, (), _positions(_whole(prefill), len(packed)))
    drafted = _whole(drafts)
    if drafted and (len(drafted) != len(packed) or min(drafted) < 0):
        raise ValueError(f"{len(drafted)} drafts for {len(packed)} contexts")
    needed = [1 + count for count in drafted] or [1] * len(packed)
    query = array("I", needed if queries is None else _numbers(queries))
    if len(query) != len(packed):
        raise ValueError(f"{len(query)} queries for {len(packed)} contexts")
    if query and min(query) < SHORTEST_QUERY:
        raise ValueError("a row that computes nothing belongs in no step")
    more = [row for row, (count, least) in enumerate(zip(query, needed, strict=True)) if count != least]
    chosen = more if prefill is None else _positions(_whole(prefill), len(packed))
    if not set(more) <= set(chosen):
        raise ValueError("a row that is not prefilling computes one token and its drafts")
    return Rows(packed, query, drafted if any(drafted) else (), chosen)


def _numbers(values: Iterable[int]) -> Iterable[int]:
    """The values; TypeError for text, which would go on as its bytes."""
    if isinstance(values, bytes | bytearray | memoryview | str):
        raise TypeError("lengths are numbers, not text")
    return values


def _whole(values: Iterable[int] | None) -> list[int]:
    """Whole numbers of any sequence, an array of NumPy too; none for None."""
    given = [] if values is None else list(_numbers(values))
    if any(isinstance(value, bool) for value in given):
        raise TypeError("a mask is no list of numbers")
    return [index(value) for value in given]


def _positions(rows: Sequence[int], count: int) -> list[int]:
    chosen = sorted(set(rows))
    if chosen and not 0 <= chosen[0] <= chosen[-1] < count:
        raise ValueError(f"prefill names a row outside the {count} of the step")
    return chosen


class Encoder:
    """Follows the lengths of one ring's steps, in the order in which they are committed."""

    __slots__ = ("_after", "_keyed_ns", "_ones", "_rows")

    def __init__(self) -> None:
        self._keyed_ns = 0
        self._ones = 0
        self.forget()

    def forget(self) -> None:
        """The step before is not to be gone on from."""
        self._after = 0
        self._rows = -1

    def encode(self, rows: Rows, payload: Payload, now_ns: int) -> tuple[int, int]:
        """Write the length sections of a step; returns (frame, base). A step without rows is not to be given."""
        lanes = int.from_bytes(rows.contexts.tobytes(), "little")
        frame = self._frame(rows, payload, lanes, now_ns)
        queries = rows.queries
        if queries is not None:
            payload.prefill(rows.prefill, [queries[row] for row in rows.prefill])
            payload.drafts(rows.drafts, rows.rejected)
        elif rows.prefill:
            payload.prefill(rows.prefill, [1] * len(rows.prefill))
        self._follow(rows, lanes)
        return frame, 0 if frame == KEY else 1

    def _frame(self, rows: Rows, payload: Payload, lanes: int, now_ns: int) -> int:
        if self._rows >= 0 and now_ns - self._keyed_ns < KEYFRAME_NS:
            if self._rows == len(rows.contexts) and lanes == self._after:
                return REPEAT
            before = array("I", self._after.to_bytes(self._rows * LANE_BITS // 8, "little"))
            found = removals(before, rows.contexts)
            if found is not None:
                payload.removed(found[0])
                payload.appended(rows.contexts[found[1] :])
                return EDIT
        payload.lengths(rows.contexts)
        self._keyed_ns = now_ns
        return KEY

    def _follow(self, rows: Rows, lanes: int) -> None:
        count = len(rows.contexts)
        if count != self._rows:
            self._ones = int.from_bytes(array("I", [1]) * count, "little")
            self._rows = count
        if rows.queries is None:
            self._after = lanes + self._ones
            return
        after = (c + q for c, q in zip(rows.contexts, rows.queries, strict=True))
        if rows.rejected:
            after = (total - r for total, r in zip(after, rows.rejected, strict=True))
        self._after = int.from_bytes(array("I", after).tobytes(), "little")
