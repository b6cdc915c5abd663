"""Where the level of a noisy series moves: a scan of intervals with a bound on false alarms, robust to odd values.

Every split of every interval of a fixed set (as in seeded binary segmentation) is judged by how far the means of its
two sides differ, in units of the noise. The noise is the larger of two: from differences of neighbours, which steps do
not disturb, and what is left beside the step; it is widened for correlation in time. What was found is as unlikely
as the best of all splits that were looked at (a union bound over a t distribution), so the chance of a false alarm
is at most what ``most_chance`` says for noise of that kind. Odd values are cut to a few times the noise first. A
straight line that explains an interval better than a step is a drift and no change.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

Series = NDArray[np.float64]
LEAST_SIDE = 4  # values on each side of a split: fewer say nothing of a level
LEAST_VALUES = 16  # of a series: in a shorter one correlation in time cannot be told from a step
CUT = 4.0  # times the noise from the running median: beyond it a value counts as if it were there
MAD_TO_DEVIATION = 1.4826  # of normal noise
MEDIAN_OF = 5  # values of the running median
SHRINK = math.sqrt(0.5)  # from one layer of intervals to the next
WITHIN = 1.92  # of the log-likelihood: half of the chi-square value of one parameter at 95 %
TWO_SIDED = 1.96
BIAS, MOST_ALIKE = 6.0, 0.95  # of the correlation of neighbours: Kendall's 1 + 3 rho, for two fitted levels; its cap


@dataclass(frozen=True, slots=True)
class Level:
    """The level moves before position ``at``, surely between ``first`` and ``last``; ``move`` is of the values.

    ``error`` is the standard error of ``move``; ``chance`` bounds the chance of as much from noise alone.
    """

    at: int
    first: int
    last: int
    move: float
    error: float
    chance: float


def levels(values: Series, most_chance: float, least_move: float, least_side: int = LEAST_SIDE) -> list[Level]:
    """Every change of level in ``values``, in order; none where there are too few values to tell.

    A level that does not last for ``least_side`` values (LEAST_SIDE or more) before and after is none.
    """
    count = len(values)
    if count < max(LEAST_VALUES, 2 * least_side):
        return []
    noise = _noise(values)
    calm = _calmed(values, noise)
    layers = _layers(count, least_side)
    looks = sum(len(starts) * (size - 2 * least_side + 1) for size, starts in layers)
    far = NormalDist().inv_cdf(1 - most_chance / (2 * looks)) * noise  # what a t distribution needs at least
    likely = [ends for size, starts in layers for ends in _likely(calm, size, starts, far**2, least_side)]
    found = [one for ends in likely if (one := _best(calm, ends, noise, looks, least_side)) is not None]
    found = [one for one in found if one.chance <= most_chance and abs(one.move) >= least_move]
    chosen: list[Level] = []
    for one in sorted(found, key=lambda level: (level.chance, -abs(level.move))):
        if all(abs(one.at - other.at) >= least_side for other in chosen):
            chosen.append(one)
    return _settled(values, sorted(chosen, key=lambda level: level.at), noise, most_chance, least_move, looks)


def _noise(values: Series) -> float:
    """The deviation of single values, from the differences of neighbours."""
    differences = np.diff(values)
    spread = float(np.median(np.abs(differences - np.median(differences))))
    return max(MAD_TO_DEVIATION * spread / math.sqrt(2), 1e-6)


def _calmed(values: Series, noise: float) -> Series:
    """The values, odd ones cut to CUT times the noise from the median of their neighbours."""
    half = MEDIAN_OF // 2
    padded = np.pad(values, half, mode="reflect") if len(values) > half else values
    middle = np.median(np.lib.stride_tricks.sliding_window_view(padded, MEDIAN_OF), axis=1)
    return np.clip(values, middle - CUT * noise, middle + CUT * noise)


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


def _best(calm: Series, ends: tuple[int, int], noise: float, looks: int, least_side: int) -> Level | None:
    """The best split of one interval; None where a straight line does better."""
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
    squares = float(rest @ rest)
    if _line_squares(part) <= squares:
        return None
    deviation, widening = _deviation(rest, noise)
    error = deviation * math.sqrt(widening / weight[best])
    freedom = max(2.0, (count - 2) / widening)
    chance = min(1.0, looks * _two_tails(abs(move[best]) / error, freedom))
    inside = np.flatnonzero(gain >= gain[best] - 2 * WITHIN * widening * deviation**2) + least_side
    return Level(start + split, start + int(inside[0]), start + int(inside[-1]), float(move[best]), error, chance)


def _line_squares(part: Series) -> float:
    at = np.arange(len(part)) - (len(part) - 1) / 2
    off = part - part.mean()
    return float(off @ off - (at @ off) ** 2 / (at @ at))


def _deviation(rest: Series, noise: float) -> tuple[float, float]:
    """The deviation of single values, and by how much correlation in time widens the variance of a mean (1 or more)."""
    count = len(rest)
    squares = float(rest @ rest)
    deviation = max(noise, math.sqrt(squares / max(1, count - 2)))
    if not squares:
        return deviation, 1.0
    alike = float(rest[1:] @ rest[:-1]) / squares
    alike += (1 + BIAS * max(0.0, alike)) / count  # what is estimated beside a fitted step comes out too low
    alike = min(MOST_ALIKE, max(0.0, alike))
    widening = (1 + alike) / (1 - alike)
    return deviation, widening


def _two_tails(t: float, freedom: float) -> float:
    """The chance that a t-distributed value is farther from 0 (Wallace's transformation to a normal one)."""
    z = (8 * freedom + 1) / (8 * freedom + 3) * math.sqrt(freedom * math.log1p(t * t / freedom))
    return math.erfc(z / math.sqrt(2))


def _settled(
    values: Series, chosen: list[Level], noise: float, most_chance: float, least_move: float, looks: int
) -> list[Level]:
    """Each change measured between its neighbours, by medians; those that vanish then are dropped."""
    while True:
        ends = [0, *(one.at for one in chosen), len(values)]
        found = []
        for number, one in enumerate(chosen):
            before, after = values[ends[number] : one.at], values[one.at : ends[number + 2]]
            rest = np.concatenate([before - np.median(before), after - np.median(after)])
            deviation, widening = _deviation(_calmed(rest, noise), noise)
            error = deviation * math.sqrt(widening * (1 / len(before) + 1 / len(after)))
            move = float(np.median(after) - np.median(before))
            chance = min(1.0, looks * _two_tails(abs(move) / error, max(2.0, (len(rest) - 2) / widening)))
            found.append(Level(one.at, one.first, one.last, move, error, chance))
        kept = [one for one in found if one.chance <= most_chance and abs(one.move) >= least_move]
        if len(kept) == len(found):
            return kept
        worst = max((one for one in found if one not in kept), key=lambda level: level.chance)
        chosen = [one for one, told in zip(chosen, found, strict=True) if told is not worst]
