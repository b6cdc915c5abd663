"""Prefixes that sequences share: they are read once at least, not once for each sequence."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rooflens.analyzer.spans import OVER, parse, spanned, split
from rooflens.analyzer.step_rows import Column, Rows
from rooflens.records import StepTable

CONTEXT = "context_tokens"


class SharedBlocks:
    """Bounds what is read of the cache by what the blocks held can store; for chunks of one table, in order.

    If contexts sum to C and the blocks hold H tokens, at least H of C are distinct, and C - H are read twice at
    most: so a window of each sequence, S tokens in all, has at least S - (C - H) distinct ones, and S / n of n
    sequences. Blocks are whole, so the bound is exact to one block a sequence. A model whose layers all have windows
    holds no more than its longest one reaches: there C is the sum over that. One whose indexers look at contexts over a
    length holds all of them.

    ``groups`` of layers may have blocks of their own out of one pool, of which all together are counted. The layers
    that see the whole context hold the largest part, and each of the other groups no more than a window, what is being
    computed and two blocks of each sequence.
    """

    def __init__(self, names: Sequence[str], block_tokens: int | None, groups: int = 1) -> None:
        self._groups = max(1, groups)
        self._places = {name: at for at, name in enumerate(names) if split(name)[0] == CONTEXT}
        self._block_tokens = block_tokens
        self._share = 1.0  # of the last certain step before
        spans = [split(name)[1] for name in self._places]
        everything = any(span[:1] in ("", OVER) for span in spans)
        longest = max(spans, key=lambda span: parse(span).tokens if span else 0, default="")
        self._whole = spanned(CONTEXT, "" if everything else longest)
        self._windows = [name for name in self._places if name != self._whole and split(name)[1][0] != OVER]

    def bound(self, rows: Rows, matrix: Column) -> None:
        """Lower the rows of ``matrix`` (features, steps) that are contexts."""
        if not self._block_tokens or not self._places or "kv_blocks_used" not in rows.table.columns:
            return
        place = self._places.get(self._whole)
        whole = rows[CONTEXT] if place is None else matrix[place].copy()
        spans = [matrix[self._places[name]] for name in self._windows]
        share = self._shares(rows, whole, np.maximum.reduce(spans) if spans else np.zeros(len(rows)))
        if bool((share >= 1.0).all()):
            return
        twice = whole * (1.0 - share)
        for name, at in self._places.items():
            if name == self._whole:
                matrix[at] *= share
            else:
                matrix[at] = np.maximum(matrix[at] - twice, matrix[at] / self._sequences(rows))

    def _sequences(self, rows: Rows) -> Column:
        """Sequences of a step, infinite where not known."""
        return np.maximum(rows.filled("requests", np.inf) / np.maximum(rows.steps, 1.0), 1.0)

    def _own(self, rows: Rows, held: Column, windows: Column) -> Column:
        """Tokens in the blocks of the layers whose contexts are counted, of those in all blocks."""
        if self._groups == 1:
            return held
        rest = windows + rows["query_tokens"] + 2 * (self._block_tokens or 1) * rows.filled("requests", np.inf)
        return np.maximum(held / self._groups, held - (self._groups - 1) * rest)

    def _shares(self, rows: Rows, contexts: Column, windows: Column) -> Column:
        """What part of the contexts the blocks held can store at most, for each step; 1 where nothing is shared.

        The blocks are counted after the step, when what ended in it, or was preempted for the next, is free already:
        such a step takes the share of the step before. A row of several steps has their mean of blocks beside their
        sum of contexts; what ended in one of them hardly moves the mean, and only towards a lower floor.
        """
        blocks = rows["kv_blocks_used"]
        steps = np.maximum(rows.steps, 1.0)
        many = rows.steps > 1 if isinstance(rows.steps, np.ndarray) else np.zeros(len(rows), dtype=bool)
        certain = rows.known("kv_blocks_used") & (contexts > 0)
        certain &= ~many | (blocks > 0)  # contexts in no block: the gauge was read in another moment
        for name in ("finished_requests", "preempted"):
            if name in rows.table.columns:
                certain &= many | (rows.known(name) & (rows[name] == 0))
        if "preempted" in rows.table.columns:
            after = rows.table["preempted"][rows.start + 1 : rows.end + 1] == 0
            certain[: len(after)] &= many[: len(after)] | after
        held = self._own(rows, blocks * (self._block_tokens or 1) * steps, windows)
        share = np.minimum(1.0, held / np.maximum(contexts, 1.0))
        before, at = self._share, np.flatnonzero(certain)
        if len(at):
            self._share = float(share[at[-1]])
        if len(at) == len(rows):
            return share
        last = np.maximum.accumulate(np.where(certain, np.arange(len(rows)), -1))
        return np.where(last < 0, before, share[np.maximum(last, 0)])


def stand_alone(table: StepTable, block_tokens: int | None) -> bool:
    """Whether what is read of the cache in these steps is the same whatever steps stand before and behind them.

    So it is where no blocks are counted, and of rows of several steps, each with the mean of its own blocks.
    """
    if not block_tokens or "kv_blocks_used" not in table.columns:
        return True
    if not (table.has("kv_blocks_used") and table.has("resolution_steps")):
        return False
    return bool((table["resolution_steps"] > 1).all() and (table["kv_blocks_used"] > 0).all())
