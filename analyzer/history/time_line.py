"""The time line: all engines together window by window, and each engine's own windows as columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rooflens.analyzer.history.amounts import Sums, slowdown, tokens_of, whole
from rooflens.analyzer.history.records import WindowPoint
from rooflens.analyzer.history.sums import WAITING, Column, Groups, Table, by_group, known, ratio, sums_by, unique_rows

LEAST_COVERED = 0.25  # of a window at an end: what a few steps did there is no rate to show beside the others
MOST_POINTS = 20_000  # of engine_windows: what a page in a browser still draws
NEEDED = (
    "steps", "observed_s", "observed_steps", "observed_max_s", "generated_tokens", "generated_steps",
    "requests", "requests_steps", "wasted_s", "wasted_of_s", "wasted_device_s", "compared_memory_s", "compared_mfu_s",
    "compared_observed_s", "mfu_observed_s", WAITING, "kv_ratio_s", "kv_ratio_of_s", "first_unix_s", "last_unix_s",
)  # fmt: skip


def windows_of(table: Table, width_s: float, first_unix_s: float, last_unix_s: float) -> tuple[WindowPoint, ...]:
    """Every window in which a step ended, oldest first; one without a step is left out."""
    numbers = np.unique(table["window"])
    place = np.searchsorted(numbers, table["window"])
    sums = sums_by(table, place, len(numbers), NEEDED)
    (of_pair, _), by_engine = unique_rows(place, table["engine"])
    engines = np.bincount(of_pair, minlength=len(numbers))
    busiest_s = np.zeros(len(numbers))
    np.fmax.at(busiest_s, of_pair, by_group(table["observed_s"], by_engine, len(of_pair)))
    seconds = covered_s(numbers * width_s, width_s, first_unix_s, last_unix_s, busiest_s)
    over_s = np.where((len(numbers) > 2) & (seconds < LEAST_COVERED * width_s), np.nan, seconds)
    return tuple(
        _point(sums, at, float(number * width_s), (float(seconds[at]), float(over_s[at])), int(engines[at]))
        for at, number in enumerate(numbers.tolist())
    )


def covered_s(start_unix_s: Column, width_s: float, first_unix_s: Any, last_unix_s: Any, busy_s: Column) -> Column:
    """The seconds that the steps of each window are spread over.

    Of a window that is recorded in part it is that part, but not less than ``busy_s``, what its steps took: the first
    of the last window began before it.
    """
    part = np.minimum(start_unix_s + width_s, last_unix_s) - np.maximum(start_unix_s, first_unix_s)
    found: Column = np.where(part < width_s, np.fmax(np.maximum(part, 0.0), busy_s), part)
    return found


def _point(sums: Sums, at: int, start_unix_s: float, seconds: tuple[float, float], engines: int) -> WindowPoint:
    one = {name: float(column[at]) for name, column in sums.items()}
    return WindowPoint(
        start_unix_s=start_unix_s,
        seconds=seconds[0],
        engines=engines,
        steps=whole(one["steps"]),
        steps_per_s=ratio(one["steps"], seconds[1]),
        tokens_per_s=ratio(tokens_of(one), seconds[1]),
        batch=ratio(one["requests"], one["requests_steps"]),
        step_mean_s=ratio(one["observed_s"], one["observed_steps"]),
        step_max_s=known(one["observed_max_s"]),
        slowdown=slowdown(sums, at),
        mbu=ratio(one["compared_memory_s"], one["compared_observed_s"]),
        mfu=ratio(one["compared_mfu_s"], one["mfu_observed_s"]),
        waiting=known(one[WAITING]),
        kv_used_ratio=ratio(one["kv_ratio_s"], one["kv_ratio_of_s"]),
        wasted_device_s=known(one["wasted_device_s"]),
    )


def silent_s(table: Table, width_s: float) -> float:
    """The time of whole windows between the first and the last that no step of any engine touches."""
    numbers, place = np.unique(table["window"], return_inverse=True)
    if len(numbers) < 2:
        return 0.0
    begun = np.full(len(numbers), np.inf)
    np.fmin.at(begun, place.reshape(-1), table["begun_unix_s"])
    begun = np.minimum.accumulate(begun[::-1])[::-1]  # whatever ends later may have begun before
    until = np.minimum(numbers[1:], np.floor(begun[1:] / width_s))
    return float(np.maximum(until - numbers[:-1] - 1, 0.0).sum() * width_s)


def engine_windows(table: Table, width_s: float, order: Sequence[int]) -> dict[str, list[float | int | None]]:
    """One row a window and engine, as columns; ``order`` are the engines' numbers in the order of the report.

    ``engine`` counts in that order. Of very many only those of the first engines.
    """
    rank = np.empty(len(order), np.int64)
    rank[list(order)] = np.arange(len(order))
    found, _ = unique_rows(rank[table["engine"]], table["window"])
    pairs: Groups = np.stack(found)
    if pairs.shape[1] > MOST_POINTS:
        pairs = pairs[:, pairs[0] < max(1, pairs[0][MOST_POINTS])]
    engine, window, place = pairs[0], pairs[1], _places(pairs, rank[table["engine"]], table["window"])
    sums = sums_by(table.take(place >= 0), place[place >= 0], len(engine), NEEDED)
    seconds, over_s = _of_engines(table, rank, engine, window * width_s, sums["observed_s"], width_s)
    values = {
        "seconds": seconds,
        "steps": sums["steps"],
        "observed_s": sums["observed_s"],
        "slowdown": _over(sums["wasted_of_s"], sums["wasted_of_s"] - sums["wasted_s"]),
        "tokens_per_s": _over(tokens_of(sums), over_s),
        "wasted_device_s": sums["wasted_device_s"],
        "batch": _over(sums["requests"], sums["requests_steps"]),
        "step_mean_s": _over(sums["observed_s"], sums["observed_steps"]),
    }
    columns: dict[str, list[float | int | None]] = {
        "engine": [int(each) for each in engine.tolist()],
        "window": [int(each) for each in window.tolist()],
    }
    return columns | {name: [known(each) for each in column.tolist()] for name, column in values.items()}


def _of_engines(
    table: Table, rank: Groups, engine: Groups, start_unix_s: Column, busy_s: Column, width_s: float
) -> tuple[Column, Column]:
    """(seconds of each window of an engine, the same or NaN where they are too few for a rate)."""
    ends = sums_by(table, rank[table["engine"]], len(rank), ("begun_unix_s", "last_unix_s"))
    first, last = ends["begun_unix_s"][engine], ends["last_unix_s"][engine]
    seconds = covered_s(start_unix_s, width_s, first, last, busy_s)
    many = last - first > 2 * width_s
    return seconds, np.where(many & (seconds < LEAST_COVERED * width_s), np.nan, seconds)


def _places(pairs: Groups, engine: Groups, window: Groups) -> Groups:
    """Of each cell its column in ``pairs`` (sorted by both), -1 for one that was left out."""
    if not pairs.shape[1]:
        return np.full(len(engine), -1, np.int64)
    low, width = int(pairs[1].min()), int(pairs[1].max() - pairs[1].min()) + 1
    keys = pairs[0] * width + pairs[1] - low
    inside = (window >= low) & (window < low + width)
    mine = engine * width + np.where(inside, window - low, 0)
    at = np.minimum(np.searchsorted(keys, mine), len(keys) - 1)
    return np.where(inside & (keys[at] == mine), at, -1)


def _over(part: Column, whole_: Column) -> Column:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(whole_ > 0, part / whole_, np.nan)
