"""The logarithm of slowdown of each regime of each engine by window, and what of the mix moved inside the regime."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rooflens.analyzer.history.phases import kind_name
from rooflens.analyzer.history.steps_in_series import LEAST_VALUES
from rooflens.analyzer.history.sums import Column, Groups, Table, by_group, unique_rows

LEAST_SEEN = 8  # windows of a regime that give it a usual level
LEAST_STEPS = 3  # compared steps of a regime in a window: fewer are no mean
ALL = "all regimes"
MIX = ("batch", "context", "tokens a request")  # means of a window, the last two of a request
Mix = NDArray[np.float64]  # (rows, len(MIX)): their logarithms, 0 for not known


@dataclass(frozen=True, slots=True)
class Series:
    """The logarithm of slowdown of one regime of one engine, or of all of them, by window; ``weight`` in seconds."""

    engine: int
    regime: str
    window: Groups
    value: Column
    weight: Column
    mix: Mix


@dataclass(frozen=True, slots=True)
class Ratios:
    """Of each (engine, regime, window) with enough steps the logarithm of slowdown, and the busy seconds."""

    engine: Groups
    regime: Groups
    window: Groups
    value: Column
    seconds: Column
    mix: Mix
    names: tuple[str, ...]


def ratios_of(table: Table, least_steps: int = LEAST_STEPS) -> Ratios:
    """What the cells say of slowdown; cells of fewer steps, or without a bound, are left out."""
    steps = np.where(table["wasted_of_s"] > 0, table["compared_steps"], 0.0)
    bound = table["wasted_of_s"] - table["wasted_s"]
    rows = (steps >= least_steps) & (bound > 0)
    chosen = table.take(rows)
    keys, regime = unique_rows(chosen["kind"], chosen["batch_log2"], chosen["context_log4"])
    return Ratios(
        engine=chosen["engine"],
        regime=regime,
        window=chosen["window"],
        value=np.log(chosen["wasted_of_s"] / bound[rows]),
        seconds=chosen["wasted_of_s"],
        mix=_mix_of(chosen),
        names=tuple(_regime_name(*key) for key in zip(*(column.tolist() for column in keys), strict=True)),
    )


def _mix_of(table: Table) -> Mix:
    """MIX of each cell; a regime is a factor of 2 in batch wide and of 4 in context, and they move inside it."""
    requests = table["requests"]
    pairs = ((requests, table["steps"]), (table["context_tokens"], requests), (table["query_tokens"], requests))
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.log(np.column_stack([part / whole for part, whole in pairs]))
    return np.where(np.isfinite(found), found, 0.0)


def _regime_name(kind: int, batch: int, context: int) -> str:
    first, last = 1 << max(0, batch), (2 << max(0, batch)) - 1
    size = f"{first}" if first == last else f"{first}-{last}"
    return f"{kind_name(kind)} batch {size} context {4**context if context > 0 else 0}+"


def usual_of(ratios: Ratios, every: bool = False) -> Column:
    """Of each row the median of its engine and regime, NaN where fewer than LEAST_SEEN windows were seen.

    With ``every`` the median of all that the engine did stands in for these.
    """
    found = np.full(len(ratios.value), np.nan)
    for rows in _groups(ratios.engine * max(1, len(ratios.names)) + ratios.regime):
        if len(rows) >= LEAST_SEEN:
            found[rows] = np.median(ratios.value[rows])
    if every:
        for rows in _groups(ratios.engine):
            left = rows[~np.isfinite(found[rows])]
            found[left] = np.median(ratios.value[rows])
    return found


def _groups(keys: Groups) -> Iterator[NDArray[np.int64]]:
    """The rows of each key, in order."""
    order = np.argsort(keys, kind="stable")
    edges = np.flatnonzero(np.diff(keys[order])) + 1
    yield from (part for part in np.split(order, edges) if len(part))


def series_of(ratios: Ratios) -> list[Series]:
    """Every regime of every engine that was seen often enough, then all regimes of each together."""
    found = []
    for rows in _groups(ratios.engine * max(1, len(ratios.names)) + ratios.regime):
        if len(rows) >= LEAST_VALUES:
            rows = rows[np.argsort(ratios.window[rows], kind="stable")]
            name = ratios.names[int(ratios.regime[rows[0]])]
            found.append(_series(ratios, rows, name))
    usual = usual_of(ratios)
    for rows in _groups(ratios.engine):
        rows = rows[np.isfinite(usual[rows])]
        if len(np.unique(ratios.regime[rows])) > 1:
            found.append(_pooled(ratios, rows, ratios.value[rows] - usual[rows]))
    return [one for one in found if len(one.window) >= LEAST_VALUES]


def _series(ratios: Ratios, rows: NDArray[np.int64], name: str) -> Series:
    engine, window = int(ratios.engine[rows[0]]), ratios.window[rows]
    return Series(engine, name, window, ratios.value[rows], ratios.seconds[rows], ratios.mix[rows])


def _pooled(ratios: Ratios, rows: NDArray[np.int64], value: Column) -> Series:
    """All regimes of one engine, each beside its own median, weighted by their time."""
    windows, place = np.unique(ratios.window[rows], return_inverse=True)
    place = np.asarray(place, np.int64).reshape(-1)
    weight = by_group(ratios.seconds[rows], place, len(windows))
    mix = ratios.mix[rows]
    for one in _groups(ratios.regime[rows]):
        mix[one] -= np.median(mix[one], axis=0)
    value, *moved = (by_group(ratios.seconds[rows] * each, place, len(windows)) / weight for each in (value, *mix.T))
    return Series(int(ratios.engine[rows[0]]), ALL, windows, value, weight, np.column_stack(moved))
