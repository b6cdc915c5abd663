"""Whether the KV pool, or the batch cap, is what keeps requests waiting; row by row."""

from __future__ import annotations

import numpy as np

from rooflens.analyzer.sums import Column, Mask, filled, steps_of
from rooflens.records import EngineInfo, StepTable

FULL_RATIO = 0.9  # engines keep a watermark of free blocks, and blocks are counted after the step gave some back
FLAT_SHARE = 0.8  # of the steps at the very same batch while requests wait: only a cap holds it so level


def batch_of(table: StepTable) -> Column:
    """Mean sequences a step, for each row."""
    return filled(table, "requests") / steps_of(table)


def admitted(table: StepTable) -> Column:
    """Requests admitted to the batch, for each row; the batch itself where the engine does not tell."""
    rows = table.where("running")
    return np.where(rows, filled(table, "running"), batch_of(table)) if rows.any() else batch_of(table)


def pool_known(table: StepTable, info: EngineInfo | None) -> bool:
    """Whether size and use of the pool are known for at least one row."""
    return bool(info is not None and info.kv_blocks and table.where("kv_blocks_used").any())


def full(table: StepTable, info: EngineInfo | None) -> Mask:
    """Rows after which the pool was full: nearly all of it used, or no room for one more sequence of their mean size.

    False where size or use of the pool is not known.
    """
    if not pool_known(table, info) or info is None or info.kv_blocks is None:
        return np.zeros(len(table), dtype=bool)
    used = filled(table, "kv_blocks_used")
    running = np.maximum(admitted(table), 1.0)
    no_room = (running > 1) & (info.kv_blocks - used < used / running)
    rows: Mask = table.where("kv_blocks_used") & ((used >= FULL_RATIO * info.kv_blocks) | no_room)
    return rows


def queued(table: StepTable) -> Mask:
    """Rows after which requests waited for capacity; deferred ones wait for something else and do not count."""
    rows: Mask = filled(table, "waiting") > 0
    return rows


def below_stated_cap(table: StepTable, info: EngineInfo | None) -> Mask:
    """Rows whose batch is not at the cap that the engine states; all rows where it states none."""
    if info is None or not info.max_sequences:
        return np.ones(len(table), dtype=bool)
    return ~at_cap(table, info)


def at_cap(table: StepTable, info: EngineInfo | None) -> Mask:
    """Rows whose batch is at the cap on sequences.

    Of an engine that does not state its cap: rows at the largest batch, where most rows are while requests wait.
    """
    running = admitted(table)
    if info is not None and info.max_sequences:
        return np.asarray(running >= info.max_sequences - 0.5)  # a mean over steps rounds
    waiting = queued(table)
    if not waiting.any():
        return np.zeros(len(table), dtype=bool)
    level = np.asarray(running >= running[waiting].max() - 0.5)
    steps = steps_of(table)
    flat = float(steps[level & waiting].sum()) >= FLAT_SHARE * float(steps[waiting].sum())
    return level if flat else np.zeros(len(table), dtype=bool)


def budget_full(table: StepTable, info: EngineInfo | None) -> Mask:
    """Rows that computed as many tokens as the engine allows in a step, and prefilled: nothing more could join."""
    if info is None or not info.max_batched_tokens or "query_tokens" not in table.columns:
        return np.zeros(len(table), dtype=bool)
    prefilling = filled(table, "prefill_tokens") > 0
    return np.asarray(prefilling & (filled(table, "query_tokens") / steps_of(table) >= info.max_batched_tokens - 0.5))


def share(rows: Mask, table: StepTable) -> float:
    """The part of the engine steps that ``rows`` stand for, 0 to 1."""
    steps = steps_of(table)
    return float(steps[rows].sum() / steps.sum()) if len(table) else 0.0
