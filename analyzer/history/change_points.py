"""When the step time of an engine moved beside its bound, in which regimes, by how much, and how sure that is."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rooflens.analyzer.history.phases import kind_name
from rooflens.analyzer.history.records import ChangePoint
from rooflens.analyzer.history.steps_in_series import LEAST_SIDE, LEAST_VALUES, TWO_SIDED, Level, levels
from rooflens.analyzer.history.sums import Column, Groups, Table, by_group, unique_rows

FALSE_ALARMS = 0.05  # of reports without a change, at most: the chance is shared out to all series of a report
LEAST_MOVE = math.log(1.02)  # a smaller move is within what regimes differ by inside
LEAST_SEEN = 8  # windows of a regime that give it a usual level
LEAST_STEPS = 3  # compared steps of a regime in a window: fewer are no mean
LEAST_SIDE_S = 5.0  # before and after: what lasts shorter is no change, the worst windows show it
ALL = "all regimes"
RULE = (
    "a change is a step in the logarithm of observed over bound, by engine and regime and of all regimes of an engine "
    "together: a seeded scan with a robust noise that allows for correlation in time, at a chance of a false alarm of "
    f"at most {FALSE_ALARMS:.0%} a report (neighbouring windows correlated up to 0.5), of at least "
    f"{math.expm1(LEAST_MOVE):.0%} for at least {LEAST_SIDE_S:.0f} s"
)


@dataclass(frozen=True, slots=True)
class Series:
    """The logarithm of slowdown of one regime of one engine, or of all of them, by window; ``weight`` in seconds."""

    engine: int
    regime: str
    window: Groups
    value: Column
    weight: Column


@dataclass(frozen=True, slots=True)
class Ratios:
    """Of each (engine, regime, window) with enough steps the logarithm of slowdown, and the busy seconds."""

    engine: Groups
    regime: Groups
    window: Groups
    value: Column
    seconds: Column
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
        names=tuple(_regime_name(*key) for key in zip(*(column.tolist() for column in keys), strict=True)),
    )


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
            found.append(_series(ratios, rows, name, ratios.value[rows]))
    usual = usual_of(ratios)
    for rows in _groups(ratios.engine):
        rows = rows[np.isfinite(usual[rows])]
        if len(np.unique(ratios.regime[rows])) > 1:
            found.append(_pooled(ratios, rows, ratios.value[rows] - usual[rows]))
    return [one for one in found if len(one.window) >= LEAST_VALUES]


def _series(ratios: Ratios, rows: NDArray[np.int64], name: str, value: Column) -> Series:
    return Series(int(ratios.engine[rows[0]]), name, ratios.window[rows], value, ratios.seconds[rows])


def _pooled(ratios: Ratios, rows: NDArray[np.int64], value: Column) -> Series:
    """All regimes of one engine, each beside its own median, weighted by their time."""
    windows, place = np.unique(ratios.window[rows], return_inverse=True)
    place = np.asarray(place, np.int64).reshape(-1)
    weight = by_group(ratios.seconds[rows], place, len(windows))
    mean = by_group(ratios.seconds[rows] * value, place, len(windows)) / weight
    return Series(int(ratios.engine[rows[0]]), ALL, windows, mean, weight)


def change_points(table: Table, width_s: float, labels: tuple[str, ...]) -> tuple[ChangePoint, ...]:
    """Every change of every engine, the costliest first."""
    series = series_of(ratios_of(table))
    least = max(LEAST_SIDE, math.ceil(LEAST_SIDE_S / width_s))
    by_engine: dict[int, list[Seen]] = {}
    for one in series:
        for level in levels(one.value, FALSE_ALARMS / len(series), LEAST_MOVE, least):
            by_engine.setdefault(one.engine, []).append(Seen(one, level))
    found = []
    for engine, each in by_engine.items():
        together = sorted(_together(each, least), key=lambda group: _when(group).window)
        ends = [*(_when(group).window for group in together[1:]), None]
        for group, end in zip(together, ends, strict=True):
            found.append(_change(table, group, end, width_s, labels[engine], len(series)))
    return tuple(sorted(found, key=lambda change: -abs(change.cost_device_s or 0.0)))


@dataclass(frozen=True, slots=True)
class Seen:
    """A change of level in one series; windows in which a regime was not seen are between its values."""

    series: Series
    level: Level

    @property
    def window(self) -> int:
        """The first window after the change, as far as this series tells."""
        return int(self.series.window[self.level.at])

    @property
    def first(self) -> int:
        """The earliest window that the change may begin in: after the last of the level before."""
        return int(self.series.window[self.level.first - 1]) + 1

    @property
    def last(self) -> int:
        """The latest one."""
        return int(self.series.window[self.level.last])


def _together(found: list[Seen], near: int) -> Iterator[list[Seen]]:
    """Changes of several regimes that may be one and the same, the surest first.

    Two that are fewer than ``near`` windows apart are: what lay between would have been too short to be told.
    """
    left = sorted(found, key=lambda seen: (seen.level.chance, seen.last - seen.first))
    while left:
        best = left[0]
        group = [one for one in left if _alike(best, one, near)]
        yield group
        left = [one for one in left if one not in group]


def _when(group: list[Seen]) -> Seen:
    """The one that tells the moment best: of those that agree with the surest, with the fewest windows between."""
    surest = group[0]
    agreeing = [one for one in group if one.first <= surest.last and surest.first <= one.last]
    return min(agreeing, key=lambda seen: seen.last - seen.first)


def _alike(best: Seen, other: Seen, near: int) -> bool:
    close = other.first - near < best.last and best.first < other.last + near
    return close and (best.level.move > 0) == (other.level.move > 0)


def _change(table: Table, group: list[Seen], end: int | None, width_s: float, label: str, looked: int) -> ChangePoint:
    """One change: its size from the surest of ``group``, which comes first, up to window ``end``."""
    when, surest = _when(group), group[0]
    level = surest.level
    factor = math.exp(level.move)
    names = tuple(dict.fromkeys(one.series.regime for one in group if one.series.regime != ALL)) or (ALL,)
    alone = [one for one in group if one.series.regime != ALL] or group
    slower = "longer" if factor > 1 else "shorter"
    return ChangePoint(
        engine=label,
        at_unix_s=when.window * width_s,
        from_unix_s=when.first * width_s,
        to_unix_s=when.last * width_s,
        regimes=names,
        factor=factor,
        factor_low=math.exp(level.move - TWO_SIDED * level.error),
        factor_high=math.exp(level.move + TWO_SIDED * level.error),
        confidence=1 - min(1.0, level.chance * looked),
        cost_device_s=sum(_cost(table, one, when.window, end) for one in alone),
        text=f"steps take {abs(factor - 1):.1%} {slower} beside their bound ({', '.join(names[:3])})",
    )


def _cost(table: Table, seen: Seen, start: int, end: int | None) -> float:
    """Device-seconds that a series' time from ``start`` on has above what it had before."""
    rows = seen.series.window >= start
    if end is not None:
        rows &= seen.series.window < end
    longer = 1 - math.exp(-seen.level.move)
    return float(seen.series.weight[rows].sum()) * longer * int(table.devices[seen.series.engine])
