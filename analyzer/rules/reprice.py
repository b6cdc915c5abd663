"""What captured steps would have cost under a change: the same rows put through the roofline again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rooflens.analyzer.roofline import Roofline
from rooflens.analyzer.rules.pool import batch_of
from rooflens.analyzer.sums import Column, Mask, steps_of
from rooflens.model_records import Bound, StepAnalysis
from rooflens.records import StepTable
from rooflens.spans import split

KERNEL_ERROR = 0.2  # of what is reachable: published steps miss it by an eighth in the middle (docs/accuracy.md)
LARGEST_BATCH = 4096  # beyond every engine's default cap; a search for the ridge ends here
PER_SEQUENCE = (
    "requests", "query_tokens", "sampled_rows", "context_tokens", "causal_pairs", "prefill_pairs", "context_blocks",
    "lora_rows",
)  # fmt: skip


def changed(table: StepTable, columns: Mapping[str, NDArray[Any]]) -> StepTable:
    """The table with some columns replaced; what is known stays known."""
    return StepTable({**table.columns, **columns}, table.known)


def scaled(table: StepTable, factor: Column) -> StepTable:
    """The steps with ``factor`` times their sequences, each of the same context; the pool's use is left out.

    Shared prefixes are not shared out again: what more sequences read is counted whole, which keeps a price modest.
    """
    columns = {n: table[n] * factor for n in table.columns if split(n)[0] in PER_SEQUENCE}
    kept = {n: column for n, column in table.columns.items() if n != "kv_blocks_used"}
    return StepTable({**kept, **columns}, table.known)


def without_cache(roofline: Roofline, step_bytes: float) -> Roofline:
    """The roofline that counts every byte, at the rate measured for as many as a step reads where there is a curve.

    A strict floor leaves out what the last cache may keep from step to step. What binds the steps, and what a larger
    batch would cost, is decided by all bytes: they are read once a step from wherever they are.
    """
    hardware = roofline.hardware
    if not hardware.cache_bytes:
        return roofline
    rate = hardware.memory_bandwidth_bytes_per_s
    if hardware.read_curve and step_bytes > 0:
        sizes, rates = zip(*sorted(hardware.read_curve), strict=True)
        rate = float(np.interp(np.log(step_bytes), np.log(sizes), rates))
    counting_all = replace(hardware, cache_bytes=None, memory_bandwidth_bytes_per_s=rate)
    return roofline.on(counting_all)


def step_bytes(analysis: StepAnalysis, table: StepTable) -> float:
    """Bytes that one step moves on one device, on average."""
    rows = analysis.modelled
    total = sum(float(column[rows].sum()) for column in analysis.group_bytes.values())
    return total / max(float(steps_of(table)[rows].sum()), 1.0) / analysis.devices


@dataclass(frozen=True, slots=True)
class Larger:
    """Steps at a larger batch: seconds saved for the same tokens, and how step time grows (a ratio, 1 is not at all).

    ``low`` takes what lies above the curve of at_larger_batch, and as much of the curve itself as kernels miss it by,
    to grow with the batch; ``high`` takes what lies above to be constant. Which one is nearer is not known, so what is
    said to be saved is the middle.
    """

    low_s: float
    high_s: float
    step_growth_low: float
    step_growth_high: float

    @property
    def saved_s(self) -> float:
        """The middle between the two assumptions."""
        return (self.low_s + self.high_s) / 2


def at_larger_batch(roofline: Roofline, table: StepTable, rows: Mask, target: float) -> Larger | None:
    """The rows of ``rows`` (one at least compared) re-evaluated with ``target`` sequences a step; None without any.

    For the same tokens, B / B' as many steps are needed; each takes longer as what is reachable does, or where that is
    not known as the floor with the experts that more tokens are expected to touch.
    """
    chosen = table.take(rows)
    before = roofline.analyse_all(chosen)
    ok = before.compared & (batch_of(chosen) > 0)
    if not ok.any():
        return None
    factor = np.maximum(target / np.maximum(batch_of(chosen), 1e-9), 1.0)
    after = roofline.analyse_all(scaled(chosen, factor))
    observed, curve, fewer = before.observed_s[ok], _curve(before)[ok], 1.0 / factor[ok]
    growth = _curve(after)[ok] / curve
    usual = np.minimum(curve, observed)
    sure = np.minimum(np.maximum((1 - KERNEL_ERROR) * curve, before.expected_s[ok]), observed)
    total_s = float(observed.sum())
    fast, slow = usual * growth + observed - usual, sure * growth + (observed - sure) * factor[ok]
    return Larger(
        low_s=float((observed - slow * fewer).sum()),
        high_s=float((observed - fast * fewer).sum()),
        step_growth_low=float(fast.sum()) / total_s,
        step_growth_high=float(slow.sum()) / total_s,
    )


def _curve(analysis: StepAnalysis) -> Column:
    """How long steps take by their work: what is reachable, or the expected floor where that is not known."""
    found: Column = analysis.expected_s if analysis.reachable_s is None else analysis.reachable_s
    return found


def ridge_batch(roofline: Roofline, table: StepTable, rows: Mask) -> int:
    """The largest batch, a power of two times the mean one of ``rows``, at which most of their time is memory-bound.

    Found by doubling: where exactly the knee lies does not change the advice. LARGEST_BATCH where memory always binds.
    """
    chosen = table.take(rows)
    batch = max(1.0, float(np.mean(batch_of(chosen))))
    factor = 1.0
    while batch * factor * 2 <= LARGEST_BATCH:
        analysis = roofline.analyse(scaled(chosen, np.full(len(chosen), factor * 2)))
        memory = analysis.modelled & (analysis.bound == Bound.MEMORY)
        if float(analysis.floor_s[memory].sum()) < 0.5 * float(np.nansum(analysis.floor_s)):
            return round(batch * factor)
        factor *= 2
    return LARGEST_BATCH
