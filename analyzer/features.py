"""The sufficient statistics of a step: every flop and byte of a step is linear in these; one statistic, one row."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rooflens.records import RooflensError, StepTable

Column = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Feature:
    """``needs`` are the step columns that must be known for ``value`` (shape (steps,)) to mean anything."""

    needs: tuple[str, ...]
    value: Callable[[StepTable], Column]


def _column(name: str) -> Feature:
    return Feature((name,), lambda table: table[name].astype(np.float64))


def _passes(table: StepTable) -> Column:
    """Forward passes of a row: a window row stands for several, a step without a token for none."""
    return np.where(table["query_tokens"] > 0, _steps(table), 0.0)


def _steps(table: StepTable) -> Column:
    """How many engine steps each row stands for."""
    steps = table["resolution_steps"] if table.has("resolution_steps") else np.ones(len(table))
    return steps.astype(np.float64)


def _head_passes(table: StepTable) -> Column:
    """Passes that ran the head: those with a sampled row; of a window row at most as many as rows were sampled."""
    return np.minimum(_passes(table), table["sampled_rows"].astype(np.float64))


FEATURES: Mapping[str, Feature] = {
    "passes": Feature(("query_tokens",), _passes),
    "head_passes": Feature(("query_tokens", "sampled_rows"), _head_passes),
    "query_tokens": _column("query_tokens"),
    "sampled_rows": _column("sampled_rows"),
    "context_tokens": _column("context_tokens"),
    "causal_pairs": _column("causal_pairs"),
    "prefill_pairs": _column("prefill_pairs"),
    "context_blocks": _column("context_blocks"),
    "requests": _column("requests"),
}


def feature_matrix(
    table: StepTable, names: Sequence[str], block_tokens: int | None = None
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """The matrix (steps, len(names)) and the mask of steps for which every one of ``names`` is known.

    With ``block_tokens`` (tokens of one KV block), context_tokens is bounded by what the blocks held can store:
    sequences that share a prefix read it once at least, not once each. Blocks are whole, so the bound is exact
    to one block a sequence. Raises RooflensError for a column that the table does not have at all.
    """
    matrix = np.zeros((len(table), len(names)))
    known = np.ones(len(table), dtype=bool)
    for position, name in enumerate(names):
        feature = FEATURES[name]
        for column in feature.needs:
            if column not in table.columns:
                raise RooflensError(f"the recording has no column {column}: its roofline cannot be computed")
            known &= table.where(column)
        matrix[:, position] = feature.value(table)
        if name == "context_tokens" and block_tokens and "kv_blocks_used" in table.columns:
            matrix[:, position] *= _unique_share(table, matrix[:, position], block_tokens)
    return matrix, known


def _unique_share(table: StepTable, context_tokens: NDArray[np.float64], block_tokens: int) -> NDArray[np.float64]:
    """What part of the contexts the blocks held can store at most, for each step; 1 where nothing is shared.

    The blocks are counted after the step, when what ended in it, or was preempted for the next, is free already:
    such a step takes the share of the step before. A row of several steps has their mean of blocks beside their sum
    of contexts; what ended in one of them hardly moves the mean, and only towards a lower floor.
    """
    steps = _steps(table)
    many = steps > 1
    certain = table.where("kv_blocks_used") & (context_tokens > 0)
    certain &= ~many | (table["kv_blocks_used"] > 0)  # contexts in no block: the gauge was read in another moment
    for name in ("finished_requests", "preempted"):
        if name in table.columns:
            certain &= many | (table.where(name) & (table[name] == 0))
    if "preempted" in table.columns:
        certain[:-1] &= many[:-1] | (table["preempted"][1:] == 0)
    held = table["kv_blocks_used"].astype(np.float64) * block_tokens * np.maximum(steps, 1.0)
    share = np.where(certain, np.minimum(1.0, held / np.maximum(context_tokens, 1.0)), 1.0)
    last_certain = np.maximum.accumulate(np.where(certain, np.arange(len(share)), -1))
    return np.where(last_certain < 0, 1.0, share[np.maximum(last_certain, 0)])
