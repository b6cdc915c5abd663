"""Where the level of a noisy series moves: a scan of intervals with a bound on false alarms, robust to odd values.

Every split of every interval of a fixed set (as in seeded binary segmentation) is judged by how far the means of its
two sides differ, in units of the noise. The noise is the larger of two: from differences of neighbours, which steps do
not disturb, and what is left beside the step; it is widened for correlation in time. What was found is as unlikely
as the best of all splits that were looked at (a union bound over a t distribution), so the chance of a false alarm
is at most what ``most_chance`` says for noise of that kind. Odd values are cut to a few times the noise first. What
moved beside the values (the mix) is taken off, and a smooth curve that explains them as well is a drift and no change.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from rooflens.analyzer.history.series_noise import Series, calmed, deviation_of, noise_of, two_tails
from rooflens.analyzer.history.step_fit import Fit, Mix, is_step, step_fit, unmixed

LEAST_SIDE = 4  # values on each side of a split: fewer say nothing of a level
LEAST_VALUES = 16  # of a series: in a shorter one correlation in time cannot be told from a step
SHRINK = math.sqrt(0.5)  # from one layer of intervals to the next
WITHIN = 1.92  # of the log-likelihood: half of the chi-square value of one parameter at 95 %
TWO_SIDED = 1.96


@dataclass(frozen=True, slots=True)
class Level:
    """The level moves before position ``at``, surely between ``first`` and ``last``; ``move`` is of the values.

    ``error`` is the standard error of ``move``; ``chance`` bounds the chance of as much from noise alone.
    ``mixed`` where what moved beside the values may be all of it.
    """

    at: int
    first: int
    last: int
    move: float
    error: float
    chance: float
    mixed: bool = False


def levels(
    values: Series, most_chance: float, least_move: float, least_side: int = LEAST_SIDE, mix: Mix | None = None
) -> list[Level]:
    """Every change of level in ``values``, in order; none where there are too few values to tell.

    ``mix`` of shape (values, k) are logarithms of what is no change of level where it moves the values.

    A level that does not last for ``least_side`` values (LEAST_SIDE or more) before and after is none.
    """
    count = len(values)
    if count < max(LEAST_VALUES, 2 * least_side):
        return []
    values = values if mix is None else unmixed(values, mix)
    noise = noise_of(values)
    calm = calmed(values, noise)
    layers = _layers(count, least_side)
    looks = sum(len(starts) * (size - 2 * least_side + 1) for size, starts in layers)
    far = NormalDist().inv_cdf(1 - most_chance / (2 * looks)) * noise  # what a t distribution needs at least
    likely = [ends for size, starts in layers for ends in _likely(calm, size, starts, far**2, least_side)]
    found = [_best(calm, ends, noise, looks, least_side) for ends in likely]
    found = [one for one in found if one.chance <= most_chance and abs(one.move) >= least_move]
    chosen: list[Level] = []
    for one in sorted(found, key=lambda level: (level.chance, -abs(level.move))):
        if all(abs(one.at - other.at) >= least_side for other in chosen):
            chosen.append(one)
    asked = _Asked(values, mix, noise, most_chance, least_move, looks)
    return _settled(asked, sorted(chosen, key=lambda level: level.at))


@cache
def _layers(count: int, least_side: int) -> tuple[tuple[int, NDArray[np.int64]], ...]:
    """(length, starts) of ever shorter intervals, each shifted by half of its length: some hold one change alone."""
    length, last, found = float(count), 0, []
    while length >= 2 * least_side:
        size = math.ceil(length)
        parts = max(1, 2 * math.ceil(count / size) - 1)
        if size != last:
            starts = np.unique(np.round(np.linspace(0, count - size, parts)).astype(np.int64))
            found.append((size, starts))
        length, last = length * SHRINK, size
    return tuple(found)


def _likely(
    calm: Series, size: int, starts: NDArray[np.int64], least_gain: float, least_side: int
) -> Iterator[tuple[int, int]]:
    """The intervals of one length that have a split worth a look."""
    sums = np.concatenate(([0.0], np.cumsum(calm)))
    left = np.arange(least_side, size - least_side + 1)
    before = sums[starts[:, None] + left] - sums[starts, None]
    total = (sums[starts + size] - sums[starts])[:, None]
    move = (total - before) / (size - left) - before / left
    gain = (move**2 * (left * (size - left) / size)).max(axis=1)
    for start in starts[gain >= least_gain].tolist():
        yield start, start + size


def _best(calm: Series, ends: tuple[int, int], noise: float, looks: int, least_side: int) -> Level:
    """The best split of one interval."""
    start, end = ends
    part = calm[start:end]
    count = len(part)
    left = np.arange(least_side, count - least_side + 1, dtype=np.float64)
    sums = np.cumsum(part)
    before = sums[least_side - 1 : count - least_side]
    move = (sums[-1] - before) / (count - left) - before / left
    weight = left * (count - left) / count
    gain = weight * move**2  # by how much the split lowers the sum of squares
    best = int(np.argmax(gain))
    split = least_side + best
    low, high = before[best] / left[best], (sums[-1] - before[best]) / (count - left[best])
    rest = part - np.where(np.arange(count) < split, low, high)
    deviation, widening = deviation_of(rest, noise)
    error = deviation * math.sqrt(widening / weight[best])
    freedom = max(2.0, (count - 2) / widening)
    chance = min(1.0, looks * two_tails(abs(move[best]) / error, freedom))
    inside = np.flatnonzero(gain >= gain[best] - 2 * WITHIN * widening * deviation**2) + least_side
    return Level(start + split, start + int(inside[0]), start + int(inside[-1]), float(move[best]), error, chance)


@dataclass(frozen=True, slots=True)
class _Asked:
    values: Series
    mix: Mix | None
    noise: float
    most_chance: float
    least_move: float
    looks: int

    def told(self, start: int, split: int, end: int, mix: Mix | None) -> tuple[Fit, bool]:
        """The step at ``split`` between its neighbours, and whether it is one."""
        values = self.values[start:end]
        fit = step_fit(values, split - start, None if mix is None else mix[start:end], self.noise)
        clear = fit.chance * self.looks <= self.most_chance and abs(fit.move) >= self.least_move
        return fit, clear and fit.sure and is_step(fit.even, split - start, fit, self.noise)


def _settled(asked: _Asked, chosen: list[Level]) -> list[Level]:
    """Each change measured between its neighbours, the mix taken off; those that vanish then are dropped.

    One that is there only while the mix is left in is kept as ``mixed``.
    """
    mixed: list[Level] = []
    while True:
        ends = [0, *(one.at for one in chosen), len(asked.values)]
        told = [asked.told(ends[at], one.at, ends[at + 2], asked.mix) for at, one in enumerate(chosen)]
        if all(kept for _, kept in told):
            found = [_level(one, fit, asked.looks) for one, (fit, _) in zip(chosen, told, strict=True)]
            return sorted([*found, *mixed], key=lambda level: level.at)
        worst = max((at for at, (_, kept) in enumerate(told) if not kept), key=lambda at: told[at][0].chance)
        if asked.mix is not None:
            fit, there = asked.told(ends[worst], chosen[worst].at, ends[worst + 2], None)
            if there:
                mixed.append(replace(_level(chosen[worst], fit, asked.looks), mixed=True))
        chosen = [one for at, one in enumerate(chosen) if at != worst]


def _level(one: Level, fit: Fit, looks: int) -> Level:
    return Level(one.at, one.first, one.last, fit.move, fit.error, min(1.0, looks * fit.chance))
