"""Sums of cells as figures: one record for an engine, or for all of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rooflens.analyzer.histogram import quantile
from rooflens.analyzer.history.records import Amounts
from rooflens.analyzer.history.sums import Column, known, ratio
from rooflens.trace_records import Cells

Sums = Mapping[str, Column]
QUANTILES = (0.5, 0.9)
MOST_UNTOLD = 0.01  # of the steps


def amounts_at(
    sums: Sums, at: int, basis: str | None, step_s: tuple[float | None, ...], span_s: float | None = None
) -> Amounts:
    """The figures of group ``at`` of ``sums``; ``step_s`` are the quantiles of its steps as QUANTILES names them.

    ``span_s`` is given where it is not simply from the first output to the last.
    """
    one = {name: float(column[at]) for name, column in sums.items()}
    first, last, observed = (one[name] for name in ("first_unix_s", "last_unix_s", "observed_s"))
    span = span_s if span_s is not None else span_of(first, last, observed)
    return Amounts(
        rows=whole(one["rows"]),
        steps=whole(one["steps"]),
        first_unix_s=known(first),
        last_unix_s=known(last),
        span_s=span,
        observed_s=known(observed),
        step_mean_s=ratio(observed, one["observed_steps"]),
        step_max_s=longest_s(one),
        step_p50_s=step_s[0],
        step_p90_s=None if one["averaged_steps"] > 0 else step_s[1],
        requests_mean=ratio(one["requests"], one["requests_steps"]),
        context_mean_tokens=ratio(one["context_tokens"], one["context_requests"]),
        **{name: known(one[name]) for name in TOKENS},
        waiting_mean=known(one["waiting_mean"]),
        queued_ratio=ratio(one["queued_s"], one["waiting_of_s"]),
        kv_used_ratio=ratio(one["kv_ratio_s"], one["kv_ratio_of_s"]),
        kv_used_max_ratio=known(one["kv_ratio_max"]),
        compared_steps=whole(one["compared_steps"]),
        compared_s=known(one["compared_observed_s"]),
        floor_s=known(one["compared_floor_s"]),
        expected_s=known(one["compared_expected_s"]),
        reached_s=known(one["reached_observed_s"]),
        reachable_s=known(one["reachable_s"]),
        x_floor=ratio(one["compared_observed_s"], one["compared_floor_s"]),
        x_expected=ratio(one["compared_observed_s"], one["compared_expected_s"]),
        x_reachable=ratio(one["reached_observed_s"], one["reachable_s"]),
        mbu=ratio(one["compared_memory_s"], one["compared_observed_s"]),
        mfu=ratio(one["compared_mfu_s"], one["mfu_observed_s"]),
        below_floor_steps=whole(one["below_floor_steps"]),
        wasted_s=known(one["wasted_s"]),
        wasted_of_s=known(one["wasted_of_s"]),
        waste_basis=basis,
        **{name: known(one[name]) for name in HOST},
    )


TOKENS = (
    "generated_tokens", "prefill_tokens", "query_tokens", "recomputed_tokens", "drafted_tokens", "accepted_tokens",
    "preempted",
)  # fmt: skip
HOST = ("schedule_s", "update_s", "executor_s", "wait_s", "device_s")


def whole(value: float) -> int:
    """A count; 0 where nobody counted."""
    return round(value) if np.isfinite(value) else 0


def longest_s(one: Mapping[str, float]) -> float | None:
    """The longest single step; None where rows stand for several steps, of which only the mean is known."""
    return None if one["averaged_steps"] > 0 else known(one["observed_max_s"])


def span_of(first_unix_s: float, last_unix_s: float, observed_s: float) -> float:
    """Seconds from the first output to the last, but not less than the engine was busy."""
    between = last_unix_s - first_unix_s
    return max(known(between) or 0.0, known(observed_s) or 0.0)


def tokens_of(sums: Mapping[str, Any]) -> Any:
    """Generated tokens, of a group or of each; NaN where they are known of some steps only: no rate follows of these.

    A step in a hundred may be without, as the first of a recording is.
    """
    told = sums["generated_steps"] >= (1 - MOST_UNTOLD) * sums["steps"]
    return np.where(told, sums["generated_tokens"], np.nan)


def slowdown(sums: Sums, at: int) -> float | None:
    """Observed time over the basis of waste."""
    spent = float(sums["wasted_of_s"][at])
    return ratio(spent, spent - float(sums["wasted_s"][at]))


def step_quantiles(cells: Cells, longest_s: float, rows: NDArray[np.bool_] | None = None) -> tuple[float | None, ...]:
    """QUANTILES of the time of single steps in the histogram's ``rows``, seconds; None of no step.

    ``longest_s`` is the longest of them, NaN where not known: a bin may reach beyond it.
    """
    bins, steps = cells.histogram["bin"], cells.histogram["steps"]
    if rows is not None:
        bins, steps = bins[rows], steps[rows]
    if not len(steps) or not int(steps.sum()):
        return tuple(None for _ in QUANTILES)
    found = (quantile(bins, steps, each) for each in QUANTILES)
    return tuple(None if each is None else float(np.fmin(each, longest_s)) for each in found)
