"""Frames back into lengths, and lengths into the sums that the roofline needs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rooflens.collector.payload import Ints, Sections
from rooflens.collector.slot_columns import SlotColumns
from rooflens.records import SPANNED_COLUMNS
from rooflens.ring import EDIT, KEY, REPEAT
from rooflens.spans import CHUNK, OVER, pairs_within, parse, spanned, within

KEPT_FRAMES = 16  # a frame goes on from one at most 15 steps back
# The sums, in the order of the columns of ``sums``; all in tokens but the blocks. Those over spans follow.
SUMS = ("causal_pairs", "prefill_pairs", "context_blocks", "max_context_tokens")


def sum_names(spans: Sequence[str]) -> tuple[str, ...]:
    """SUMS, then SPANNED_COLUMNS over each of ``spans``."""
    return (*SUMS, *(spanned(name, span) for span in spans for name in SPANNED_COLUMNS))


@dataclass(slots=True)
class Lengths:
    """One step's rows: context before the step and tokens computed, shape (rows,); which rows prefill."""

    contexts: Ints
    queries: Ints
    prefill_rows: Ints
    after: Ints


def plain_run(contexts: Ints, steps: int, block_tokens: int, spans: Sequence[str] = ()) -> Ints:
    """The sums of ``steps`` decode steps in a row, one token a row each, shape (sums, steps).

    No loop over steps or rows. A row crosses into a new block when its context is a multiple of the block; the count
    of rows that do so in step k depends only on the remainders of the first contexts.
    """
    rows = len(contexts)
    index = np.arange(steps, dtype=np.int64)
    sums = np.zeros((len(SUMS) + len(SPANNED_COLUMNS) * len(spans), steps), dtype=np.int64)
    if not rows:
        return sums
    sums[0] = int(contexts.sum()) + rows * (index + 1)
    remainders = np.bincount(contexts % block_tokens, minlength=block_tokens)
    crossing = remainders[(-index) % block_tokens]
    sums[2] = int(blocks(contexts, block_tokens).sum()) + np.concatenate(([0], np.cumsum(crossing[:-1])))
    sums[3] = int(contexts.max()) + index
    for at, span in enumerate(spans, start=1):
        place = len(SUMS) + len(SPANNED_COLUMNS) * (at - 1)
        sums[place], sums[place + 1] = _span_run(contexts, steps, span)
    return sums


def _span_run(contexts: Ints, steps: int, span: str) -> tuple[Ints, Ints]:
    """Cached tokens and pairs over one span in each of ``steps`` decode steps, each of shape (steps,).

    In a window a row grows by one token a step until it is full; in a chunk it does so too, and is empty again when
    its context is a multiple of the chunk. How many rows do either in step k is counted once, from the first contexts.
    """
    rows, limit = len(contexts), parse(span)
    if limit.kind == OVER:
        return _over_run(contexts, steps, limit.tokens)
    first = int(within(contexts, span).sum())
    if limit.kind == CHUNK:
        period = min(limit.tokens, steps + 1)  # a row that starts anew after more steps than these counts nowhere
        turns = np.bincount(np.minimum((-contexts - 1) % limit.tokens, period - 1), minlength=period)
        index = np.arange(steps, dtype=np.int64)
        turning = turns[index % limit.tokens]
        grown = np.cumsum(rows - limit.tokens * turning)
        cached = first + np.concatenate(([0], grown[:-1]))
        return cached, cached + rows
    room = np.bincount(np.clip(limit.tokens - contexts, 0, steps + 1), minlength=steps + 2)
    growing = rows - np.cumsum(room)[:steps]  # rows with room for more than k tokens, k = 0, 1, ...
    after = first + np.cumsum(growing)
    return np.concatenate(([first], after[:-1])), after


def _over_run(contexts: Ints, steps: int, limit: int) -> tuple[Ints, Ints]:
    """The same over the whole of the contexts that have more than ``limit`` tokens by then.

    A row's context counts from the step in which it is over; what a query sees is the next step's context.
    """
    start = np.clip(limit + 1 - contexts, 0, steps + 1)
    rows = np.cumsum(np.bincount(start, minlength=steps + 2))[: steps + 1]
    first = np.zeros(steps + 2, dtype=np.int64)
    np.add.at(first, start, contexts)
    cached = np.cumsum(first)[: steps + 1] + rows * np.arange(steps + 1, dtype=np.int64)
    return cached[:-1], cached[1:]


def blocks(contexts: Ints, block_tokens: int) -> Ints:
    """KV blocks that hold each context, rounded up."""
    return -(-contexts // block_tokens)


def sums_of(lengths: Lengths, block_tokens: int, spans: Sequence[str] = ()) -> tuple[int, ...]:
    """The sums of one step. A query of q tokens after c has q*c + q*(q+1)/2 pairs under the causal mask."""
    contexts, queries = lengths.contexts, lengths.queries
    pairs = queries * contexts + queries * (queries + 1) // 2
    prefill = int(pairs[lengths.prefill_rows].sum())
    longest = int(contexts.max()) if len(contexts) else 0
    found = [int(pairs.sum()), prefill, int(blocks(contexts, block_tokens).sum()), longest]
    for span in spans:
        pairs = pairs_within(contexts, queries, span)
        found += [int(within(contexts, span).sum()), int(pairs.sum()), int(pairs[lengths.prefill_rows].sum())]
    return tuple(found)


class LengthDecoder:
    """Follows the frames of one ring; keeps what later frames may go on from.

    ``spans`` are those over which lengths are summed too; they may be set anew between two calls of decode.
    """

    def __init__(self, block_tokens: int, spans: Sequence[str] = ()) -> None:
        self.block_tokens = max(1, block_tokens)
        self.spans = tuple(spans)
        self.doubted = 0
        self._history: dict[int, Ints] = {}
        self._number = 0
        self._newest: tuple[int, Ints, Ints | None] | None = None  # place, contexts (after a step of one token each)

    def forget(self) -> None:
        """Steps were lost: nothing before them can be gone on from."""
        self._history.clear()

    @property
    def newest(self) -> tuple[int, Ints, Ints] | None:
        """The last slot of the last call with known lengths: its place, contexts and queries, both of shape (rows,)."""
        if self._newest is None:
            return None
        place, contexts, queries = self._newest
        return (place, contexts - 1, np.ones_like(contexts)) if queries is None else (place, contexts, queries)

    def decode(
        self,
        slots: SlotColumns,
        fresh: NDArray[np.bool_],
        sections_of: Callable[[int], Sections | None],
        visit: Callable[[int, Lengths], None] | None = None,
    ) -> tuple[Ints, NDArray[np.bool_]]:
        """What sum_names(spans) names for each slot, shape (sums, slots), and a mask of the slots with known lengths.

        ``slots`` are steps with rows in order; ``fresh[i]`` says that steps before i were lost; ``visit`` is
        called with every step's own lengths (slow; for full reconstruction).
        """
        sums = np.zeros((len(sum_names(self.spans)), len(slots)), dtype=np.int64)
        known = np.zeros(len(slots), dtype=bool)
        self._newest = None
        plain = (slots["frame"] == REPEAT) & (slots["base"] == 1) & (slots["sections"] == 0) & ~fresh
        edges = np.flatnonzero(np.diff(plain.astype(np.int8))) + 1
        bounds = [0, *edges.tolist(), len(slots)] if len(slots) else [0]
        for start, end in pairwise(bounds):
            if plain[start] and visit is None:
                self._run(slots, start, end, sums, known)
                continue
            for at in range(start, end):
                if fresh[at]:
                    self.forget()
                self._single(slots, at, sections_of, sums, known, visit)
        return sums, known

    def _run(self, slots: SlotColumns, start: int, end: int, sums: Ints, known: NDArray[np.bool_]) -> None:
        contexts = self._history.get(self._number)
        steps = end - start
        self._number += steps
        if contexts is None:
            return
        first, rows = int(slots["context_tokens"][start]), int(slots["requests"][start])
        if rows != len(contexts) or first != int(contexts.sum()) or not _same(slots["requests"][start:end], rows):
            self.doubted += 1
            self.forget()
            return
        sums[:, start:end] = plain_run(contexts, steps, self.block_tokens, self.spans)
        known[start:end] = True
        after = contexts + steps
        self._history, self._newest = {self._number: after}, (end - 1, after, None)

    def _single(
        self,
        slots: SlotColumns,
        at: int,
        sections_of: Callable[[int], Sections | None],
        sums: Ints,
        known: NDArray[np.bool_],
        visit: Callable[[int, Lengths], None] | None,
    ) -> None:
        self._number += 1
        sections = sections_of(at) if slots["sections"][at] else Sections()
        lengths = self._lengths(slots, at, sections) if sections is not None else None
        if lengths is not None and int(lengths.contexts.sum()) != int(slots["context_tokens"][at]):
            self.doubted += 1
            lengths = None
        if lengths is None:
            self.forget()
            return
        sums[:, at] = sums_of(lengths, self.block_tokens, self.spans)
        known[at] = True
        self._newest = (at, lengths.contexts, lengths.queries)
        self._history[self._number] = lengths.after
        self._history.pop(self._number - KEPT_FRAMES, None)
        if visit is not None:
            visit(at, lengths)

    def _lengths(self, slots: SlotColumns, at: int, sections: Sections) -> Lengths | None:
        rows, frame = int(slots["requests"][at]), int(slots["frame"][at])
        if frame == KEY:
            contexts = sections.lengths
        elif frame in (REPEAT, EDIT):
            contexts = self._history.get(self._number - int(slots["base"][at]))
            if contexts is not None and sections.removed is not None:
                if sections.removed.size and int(sections.removed.max()) >= len(contexts):
                    return None
                contexts = np.delete(contexts, sections.removed)
            if contexts is not None and sections.appended is not None:
                contexts = np.concatenate((contexts, sections.appended))
        else:
            return None
        if contexts is None or len(contexts) != rows:
            return None
        queries = np.ones(rows, dtype=np.int64)
        if sections.drafts is not None:
            queries += sections.drafts
        prefill = np.empty(0, dtype=np.int64)
        if sections.prefill_rows is not None and sections.prefill_queries is not None:
            prefill = sections.prefill_rows
            if prefill.size and int(prefill.max()) >= rows:
                return None
            queries[prefill] = sections.prefill_queries
        after = contexts + queries
        if sections.rejected is not None:
            after = after - sections.rejected
        return Lengths(contexts, queries, prefill, after)


def _same(column: NDArray[Any], value: int) -> bool:
    return bool((column == value).all())
