"""What one window of a live engine amounts to, from steps recorded one by one and from rows of several alike."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rooflens.analyzer.sums import Column, Mask, known_sum, split_intervals, steps_of, time_spent, total
from rooflens.live_records import KindFigures, Window, WindowFigures
from rooflens.model_records import Bound, StepAnalysis
from rooflens.records import StepKind, StepTable


def window_figures(window: Window) -> WindowFigures:
    """The figures of ``window``; definitions are those of WindowFigures, means are over engine steps.

    Of a row that stands for several steps, counts and times are their sums and gauges their means. The time between
    them is not known; their step time is known as a mean only, so that a kind with such a row has a median of means,
    and neither a 99th percentile nor a maximum.
    """
    table = window.steps
    steps = steps_of(table)
    span_s = max(0.0, window.end_monotonic_s - window.start_monotonic_s)
    between_s, idle_s, not_recorded_s = _unbusy(window, steps, span_s)
    used = _of_pool(window, table)
    figures = WindowFigures(
        start_unix_s=window.start_unix_s,
        end_unix_s=window.end_unix_s,
        steps=round(float(steps.sum())),
        span_s=span_s,
        busy_s=float(_observed(table).sum()),
        between_s=between_s,
        idle_s=idle_s,
        not_recorded_s=not_recorded_s,
        kinds=_kinds(table, steps, window.analysis),
        generated_tokens=total(table, "generated_tokens"),
        prefill_tokens=total(table, "prefill_tokens"),
        recomputed_tokens=total(table, "recomputed_tokens"),
        preempted=total(table, "preempted"),
        batch_mean=_per_step(table, "requests", steps),
        batch_max=_largest_batch(table, steps),
        running_mean=_mean(table, "running", steps),
        running_max=_largest(table, "running"),
        waiting_mean=_mean(table, "waiting", steps),
        waiting_share=_share_waiting(table, steps),
        deferred_mean=_mean(table, "deferred", steps),
        oldest_wait_max_s=_largest_wait_s(table),
        kv_used_mean=_weighted_mean(used[0], steps[used[1]]) if used else None,
        kv_used_max=float(used[0].max()) if used else None,
        context_tokens_mean=_context_mean(table, np.ones(len(table), dtype=bool)),
    )
    return _with_bounds(figures, window.analysis)


def _unbusy(window: Window, steps: Column, span_s: float) -> tuple[float | None, float | None, float]:
    """Seconds (between steps, idle, not known what) of a window; with the busy ones they make up the span of a page."""
    table = window.steps
    if not _has_times(table):
        return None, None, max(0.0, span_s - float(_observed(table).sum()))
    if window.source.single_steps and bool((steps == 1).all()):
        spent = time_spent(table)
        return spent.between_s, spent.idle_s, spent.unrecorded_s
    begun, output = table["submit_monotonic_s"], table["output_monotonic_s"]
    busy, idle, unknown = split_intervals(table, begun, output)
    outside_s = max(0.0, span_s - float((busy + idle + unknown).sum()))
    rested_s = min(window.rested_s, outside_s)
    idle_s = float(idle.sum()) + rested_s if table.where("running").any() else None
    return None, idle_s, float(unknown.sum()) + outside_s - rested_s


def _has_times(table: StepTable) -> bool:
    return len(table) > 0 and all(
        n in table.columns for n in ("submit_monotonic_s", "output_monotonic_s", "observed_s")
    )


def _observed(table: StepTable) -> Column:
    """Observed seconds, 0 where not known."""
    if "observed_s" not in table.columns:
        return np.zeros(len(table))
    return np.where(table.where("observed_s"), np.maximum(table["observed_s"], 0.0), 0.0)


def _kinds(table: StepTable, steps: Column, analysis: StepAnalysis | None) -> Mapping[str, KindFigures]:
    """Figures by kind, in the order of StepKind; a row of several steps has the kind its source gave it."""
    if "kind" not in table.columns:
        return {}
    known = table.where("kind")
    present = set(table["kind"][known].tolist())
    return {
        kind.name.lower(): _kind(table, known & (table["kind"] == kind), steps, analysis)
        for kind in StepKind
        if kind in present
    }


def _kind(table: StepTable, rows: Mask, steps: Column, analysis: StepAnalysis | None) -> KindFigures:
    timed = rows & table.where("observed_s")
    seconds, weights = _observed(table)[timed], steps[timed]
    single = bool((weights == 1).all())
    chosen = table.take(rows)
    return KindFigures(
        steps=round(float(steps[rows].sum())),
        observed_s=float(seconds.sum()),
        step_p50_s=weighted_median(seconds / weights, weights),
        step_p99_s=float(np.percentile(seconds, 99)) if single and len(seconds) else None,
        step_max_s=float(seconds.max()) if single and len(seconds) else None,
        batch_mean=_per_step(chosen, "requests", steps[rows]),
        query_tokens=round(known_sum(chosen, "query_tokens") or 0.0),
        context_tokens_mean=_context_mean(table, rows),
        **_compared(rows, steps, analysis),
    )


def _compared(rows: Mask, steps: Column, analysis: StepAnalysis | None) -> dict[str, Any]:
    """Bounds and observed time of those ``rows`` that can be compared; nothing where none can."""
    rows = rows & analysis.compared if analysis is not None else rows
    if analysis is None or not rows.any():
        return {}
    return {
        "floor_s": float(analysis.floor_s[rows].sum()),
        "expected_s": float(analysis.expected_s[rows].sum()),
        "reachable_s": float(analysis.reachable_s[rows].sum()) if analysis.reachable_s is not None else None,
        "compared_s": float(analysis.observed_s[rows].sum()),
        "compared_steps": round(float(steps[rows].sum())),
    }


def weighted_median(values: Column, weights: Column) -> float | None:
    """The value below which half of the weight lies; the plain median where all weights are equal; None of nothing."""
    if not len(values):
        return None
    if bool((weights == weights[0]).all()):
        return float(np.median(values))
    order = np.argsort(values)
    reached = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(reached, reached[-1] / 2)])


def _weighted_mean(values: NDArray[np.float64], weights: Column) -> float | None:
    return float((values * weights).sum() / weights.sum()) if len(values) else None


def _per_step(table: StepTable, name: str, steps: Column) -> float | None:
    """The mean over steps of a column that is a sum in a row of several."""
    rows = table.where(name)
    return float(table[name][rows].sum() / steps[rows].sum()) if rows.any() else None


def _mean(table: StepTable, name: str, steps: Column) -> float | None:
    """The mean over steps of a column that is a mean already in a row of several."""
    rows = table.where(name)
    return _weighted_mean(table[name][rows].astype(np.float64), steps[rows]) if rows.any() else None


def _largest(table: StepTable, name: str) -> float | None:
    rows = table.where(name)
    return float(table[name][rows].max()) if rows.any() else None


def _largest_batch(table: StepTable, steps: Column) -> int | None:
    """The largest batch; of a row of several steps their mean, rounded."""
    rows = table.where("requests")
    return round(float((table["requests"][rows] / steps[rows]).max())) if rows.any() else None


def _share_waiting(table: StepTable, steps: Column) -> float | None:
    rows = table.where("waiting")
    return _weighted_mean((table["waiting"][rows] > 0).astype(np.float64), steps[rows]) if rows.any() else None


def _largest_wait_s(table: StepTable) -> float | None:
    """The longest wait seen; not known where there was a queue and no wait of it is known."""
    if "waiting" in table.columns:
        queued = table.where("waiting") & (table["waiting"] > 0)
        if queued.any() and not (queued & table.where("oldest_wait_s")).any():
            return None
    return _largest(table, "oldest_wait_s")


def _context_mean(table: StepTable, rows: Mask) -> float | None:
    """Mean context of a sequence: tokens in the cache before the step over sequences in the step."""
    rows = rows & table.where("context_tokens") & table.where("requests")
    sequences = float(table["requests"][rows].sum()) if rows.any() else 0.0
    return float(table["context_tokens"][rows].sum()) / sequences if sequences else None


def _of_pool(window: Window, table: StepTable) -> tuple[Column, Mask] | None:
    """The used part of the pool for the rows of the mask; None where pool or use is not known."""
    blocks = window.info.kv_blocks if window.info else None
    rows = table.where("kv_blocks_used")
    return (table["kv_blocks_used"][rows] / blocks, rows) if blocks and rows.any() else None


def _with_bounds(figures: WindowFigures, analysis: StepAnalysis | None) -> WindowFigures:
    """With the figures of the compared steps; as it was where none could be compared."""
    if analysis is None or not analysis.compared.any():
        return figures
    rows = analysis.compared
    observed_s, floor = float(analysis.observed_s[rows].sum()), analysis.floor_s[rows]
    at_peak_s = float((analysis.mfu[rows] * analysis.observed_s[rows]).sum())
    bound = analysis.bound[rows]
    return replace(
        figures,
        floor_s=float(floor.sum()),
        expected_s=float(analysis.expected_s[rows].sum()),
        reachable_s=float(analysis.reachable_s[rows].sum()) if analysis.reachable_s is not None else None,
        compared_s=observed_s,
        mbu=float(analysis.memory_s[rows].sum()) / observed_s,
        mfu=at_peak_s / observed_s if analysis.compute_known else None,
        bound_s={kind.name.lower(): float(floor[bound == kind].sum()) for kind in Bound if (bound == kind).any()},
        weight_bytes=float(analysis.weight_bytes[rows].sum()),
        kv_bytes=float((analysis.kv_read_bytes[rows] + analysis.kv_write_bytes[rows]).sum()),
        flops=float(analysis.flops[rows].sum()),
    )
