"""When the step time of an engine moved beside its bound, in which regimes, by how much, and how sure that is."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np

from rooflens.analyzer.history.ratio_series import ALL, MIX, Series, ratios_of, series_of
from rooflens.analyzer.history.records import ChangePoint
from rooflens.analyzer.history.series_noise import noise_of
from rooflens.analyzer.history.step_fit import drift_fit
from rooflens.analyzer.history.steps_in_series import LEAST_SIDE, TWO_SIDED, Level, levels
from rooflens.analyzer.history.sums import Table

FALSE_ALARMS = 0.05  # of reports without a change, at most: the chance is shared out to all series of a report
LEAST_MOVE = math.log(1.02)  # a smaller move is within what regimes differ by inside
LEAST_DRIFT = 40  # windows: a shorter one is how an engine begins
LEAST_SIDE_S = 5.0  # before and after: what lasts shorter is no change, the worst windows show it
RULE = (
    "a change is a step in the logarithm of observed over bound, by engine and regime and of all regimes of an engine "
    "together: a seeded scan with a robust noise that allows for correlation in time, at a chance of a false alarm of "
    f"at most {FALSE_ALARMS:.0%} a report (neighbouring windows correlated up to 0.5), of at least "
    f"{math.expm1(LEAST_MOVE):.0%} for at least {LEAST_SIDE_S:.0f} s; what a smooth curve explains as well is a drift, "
    "and what batch and context may have moved inside a regime is named as the mix"
)


def change_points(table: Table, width_s: float, labels: tuple[str, ...]) -> tuple[ChangePoint, ...]:
    """Every change of every engine, the costliest first."""
    series = series_of(ratios_of(table))
    least = max(LEAST_SIDE, math.ceil(LEAST_SIDE_S / width_s))
    by_engine: dict[int, list[Seen]] = {one.engine: [] for one in series}
    for one in series:
        for level in levels(one.value, FALSE_ALARMS / len(series), LEAST_MOVE, least, one.mix):
            by_engine[one.engine].append(Seen(one, level))
    found: list[ChangePoint] = []
    for engine, each in by_engine.items():
        steps, mixed = ([seen for seen in each if seen.level.mixed is told] for told in (False, True))
        together = sorted(_together(steps, least), key=lambda group: _when(group).window)
        ends = [*(_when(group).window for group in together[1:]), None][: len(together)]
        for group, end in zip(together, ends, strict=True):
            found.append(_change(table, group, end, width_s, labels[engine], len(series)))
        for group in _together([one for one in mixed if not _beside(one, together, least)], least):
            found.append(_mixed(group, width_s, labels[engine], len(series)))
        if not steps:
            own = [one for one in series if one.engine == engine]
            found += _drift(table, own, width_s, labels[engine], len(series))
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


def _beside(one: Seen, groups: list[list[Seen]], near: int) -> bool:
    """Whether a change that was told may be what ``one`` saw."""
    return any(_alike(other, one, near) for group in groups for other in group)


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
        text=f"steps take {_longer(factor)} beside their bound ({', '.join(names[:3])})",
    )


def _longer(factor: float) -> str:
    return f"{abs(factor - 1):.1%} {'longer' if factor > 1 else 'shorter'}"


def _mixed(group: list[Seen], width_s: float, label: str, looked: int) -> ChangePoint:
    """What the mix may have moved, as it was seen: no change of the engine, and without a price."""
    when, surest = _when(group), group[0]
    level, series = surest.level, surest.series
    moved = series.mix[level.at :].mean(axis=0) - series.mix[: level.at].mean(axis=0)
    named = [f"{name} {math.expm1(by):+.0%}" for name, by in zip(MIX, moved.tolist(), strict=True) if abs(by) > 0.01]
    factor = math.exp(level.move)
    return ChangePoint(
        engine=label,
        at_unix_s=when.window * width_s,
        from_unix_s=when.first * width_s,
        to_unix_s=when.last * width_s,
        regimes=(series.regime,),
        factor=factor,
        factor_low=math.exp(level.move - TWO_SIDED * level.error),
        factor_high=math.exp(level.move + TWO_SIDED * level.error),
        confidence=1 - min(1.0, level.chance * looked),
        cost_device_s=None,
        text=f"the mix moved ({', '.join(named) or 'a little'}), and with it steps take {_longer(factor)} beside their "
        f"bound; that the engine changed is not shown ({series.regime})",
        kind="mix",
    )


def _drift(table: Table, series: list[Series], width_s: float, label: str, looked: int) -> list[ChangePoint]:
    """The slow drift of an engine of which no step was told, in all it did: a regime alone has a mix of its own."""
    one = series[-1]  # all regimes together, where there are several
    if len(one.window) < LEAST_DRIFT or (len(series) > 1 and one.regime != ALL):
        return []
    fit = drift_fit(one.value, one.mix, noise_of(one.value))
    if not fit.sure or abs(fit.move) < LEAST_MOVE or fit.chance * looked > FALSE_ALARMS:
        return []
    first, last = float(one.window[0]) * width_s, float(one.window[-1] + 1) * width_s
    part = (one.window - one.window[0]) / max(1, one.window[-1] - one.window[0])
    weight = one.weight * table.devices_at(one.engine, one.window)
    cost = float((weight * -np.expm1(-fit.move * part)).sum())
    begin, end = (f"{datetime.fromtimestamp(each, UTC):%H:%M:%S}" for each in (first, last))
    factor = math.exp(fit.move)
    return [
        ChangePoint(
            engine=label,
            at_unix_s=first,
            from_unix_s=first,
            to_unix_s=last,
            regimes=(one.regime,),
            factor=factor,
            factor_low=math.exp(fit.move - TWO_SIDED * fit.error),
            factor_high=math.exp(fit.move + TWO_SIDED * fit.error),
            confidence=1 - min(1.0, fit.chance * looked),
            cost_device_s=cost,
            text=f"steps drifted from {begin} to {end} and take {_longer(factor)} beside their bound ({one.regime})",
            kind="drift",
        )
    ]


def _cost(table: Table, seen: Seen, start: int, end: int | None) -> float:
    """Device-seconds that a series' time from ``start`` on has above what it had before."""
    rows = seen.series.window >= start
    if end is not None:
        rows &= seen.series.window < end
    longer = 1 - math.exp(-seen.level.move)
    devices = table.devices_at(seen.series.engine, seen.series.window[rows])
    return float((seen.series.weight[rows] * devices).sum()) * longer
