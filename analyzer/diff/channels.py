"""One part of the step time of all matched regimes: its levels on both sides, their difference, and its noise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rooflens.analyzer.diff.fit import QUIET
from rooflens.analyzer.diff.noise import PRIOR_RUNS, Level, drift_of, level_of, mean_of, slow_of, student
from rooflens.analyzer.diff.result import Change
from rooflens.analyzer.diff.steps import Column, Index
from rooflens.analyzer.sums import Mask

TREND_NOISE = 12.0  # times the variance of a run, which halves differ by four times of: three such are no trend
Measure = Callable[[Column, Column, Index, Sequence[NDArray[np.float64]], float], Level]


@dataclass(frozen=True, slots=True)
class Ground:
    """Rows of both sides and how they are drawn: arrays of shape (steps,), ``counts`` (draws, blocks) of
    each scale.

    ``runs`` is, of each side, which of the numbers in ``run`` are its.
    """

    regime: Index
    side: Index
    run: Index
    block: Index
    weight: Column
    counts: tuple[NDArray[np.float64], ...]
    runs: tuple[tuple[int, ...], tuple[int, ...]]
    matched: tuple[int, ...]
    shares: Column  # of the matched regimes in the whole, adding up to 1


@dataclass(frozen=True, slots=True)
class Channel:
    """Levels of each matched regime by side, the whole's difference and its interval, and that of each regime.

    ``variance`` is that of the whole's difference; ``freedom`` its degrees.
    """

    levels: tuple[tuple[Level, Level], ...]
    whole: float
    variance: float
    freedom: int
    by_regime: tuple[tuple[float, float], ...]  # difference, variance

    def change(self, log: bool) -> Change:
        """The whole's difference with its 95 % interval."""
        return change_of(self.whole, self.variance, self.freedom, log)

    def regime_change(self, at: int, log: bool) -> Change:
        """That of one regime."""
        return change_of(*self.by_regime[at], self.freedom, log)


def change_of(value: float, variance: float, freedom: int, log: bool) -> Change:
    """A difference with its interval, from logarithms where ``log``."""
    reach = student(freedom) * float(np.sqrt(variance))
    ends = [value, value - reach, value + reach]
    return Change(*(float(np.expm1(end)) if log else float(end) for end in ends))


def channel(ground: Ground, values: Column, log: bool, floor: float, tilt: Sequence[Column]) -> Channel:
    """Compare ``values`` (steps,), ratios of a step's expected time, at the quantile QUIET between the sides.

    With ``log`` the difference is that of logarithms. ``floor`` is the least standard deviation between two runs of the
    same engine. ``tilt``, of each scale (draws, matched), is what the draws' own slopes add to a regime's difference.
    """
    pairs = [_pair(ground, values, code, level_of) for code in ground.matched]
    rest = _centred(ground, values, pairs, log)
    spread = _spread(ground, lambda rows: float(np.quantile(rest[rows], QUIET)))
    return _channel(ground, pairs, log, floor, tilt, spread, _trend(ground, rest))


def mean_channel(ground: Ground, values: Column, floor: float, tilt: Sequence[Column]) -> Channel:
    """Compare the means of ``values`` (steps,), what disturbs a run included; differences of logarithms."""
    pairs = [_pair(ground, values, code, mean_of) for code in ground.matched]
    inside = np.isin(ground.regime, ground.matched)
    spread = _spread(ground, lambda rows: float(np.log(values[rows & inside].mean())) if (rows & inside).any() else 0.0)
    return _channel(ground, pairs, True, floor, tilt, spread, 0.0)


def slow_channel(ground: Ground, values: Column, floor: float) -> Channel:
    """Compare between the sides how far the mean of ``values`` (steps,) lies above the quiet one, in parts of that.

    Values are taken in parts of their own run's quiet one, so that runs of different pace are no slow steps.
    """
    inside = np.isin(ground.regime, ground.matched)
    own, tails = values.copy(), {}
    for number in (each for side in ground.runs for each in side):
        rows = ground.run == number
        if (rows & inside).any():
            own[rows] /= float(np.quantile(values[rows & inside], QUIET))
            tails[number] = float(own[rows & inside].mean()) - 1
    pairs = [_pair(ground, own, code, slow_of) for code in ground.matched]
    none = [np.zeros((len(each), len(ground.matched))) for each in ground.counts]
    spread = _spread(ground, lambda rows: tails.get(int(ground.run[rows][0]), 0.0))
    return _channel(ground, pairs, False, floor, none, spread, 0.0)


def _channel(
    ground: Ground,
    pairs: Sequence[tuple[Level, Level]],
    log: bool,
    floor: float,
    tilt: Sequence[Column],
    spread: float,
    trend: float,
) -> Channel:
    size = _size(log)
    found = np.array([float(size(b.value) - size(a.value)) for a, b in pairs])
    whole, regimes = [], []
    for scale, leaning in enumerate(tilt):
        with np.errstate(invalid="ignore", divide="ignore"):
            drawn = np.stack([size(b.drawn[scale]) - size(a.drawn[scale]) for a, b in pairs], axis=1) + leaning
        drawn = np.where(np.isfinite(drawn), drawn, found)
        whole.append(float((drawn @ ground.shares).var(ddof=1)))
        regimes.append(drawn.var(axis=0, ddof=1))
    ahead = max(0.0, trend - TREND_NOISE * whole[0] / sum(1 / len(each) for each in ground.runs))
    added, freedom = _between_runs(ground, floor, drift_of(whole), ahead, spread)
    by_regime = [(float(f), float(v) + added) for f, v in zip(found, np.max(regimes, axis=0), strict=True)]
    return Channel(tuple(pairs), float(found @ ground.shares), whole[0] + added, freedom, tuple(by_regime))


def _size(log: bool) -> Callable[[Any], Any]:
    return np.log if log else np.asarray


def _pair(ground: Ground, values: Column, code: int, measure: Measure) -> tuple[Level, Level]:
    of_side = []
    for side in (0, 1):
        rows = (ground.regime == code) & (ground.side == side)
        of_side.append(measure(values[rows], ground.weight[rows], ground.block[rows], ground.counts, QUIET))
    return of_side[0], of_side[1]


def _between_runs(ground: Ground, floor: float, drift: float, trend: float, spread: float) -> tuple[float, int]:
    """(variance that runs add to a difference, degrees of freedom of its root).

    Of one run a side it is guessed from ``drift``, the variance of the difference that this adds, from ``trend``, that
    of one run, and ``floor``. Of more runs their own ``spread`` is measured; the wider of both counts: a guess never
    hides what the runs show.
    """
    per_difference = sum(1 / len(each) for each in ground.runs)
    guess = drift / per_difference + trend + floor**2
    seen = sum(len(each) for each in ground.runs) - 2
    if seen and student(seen) ** 2 * spread / seen > student(PRIOR_RUNS) ** 2 * guess:
        return spread / seen * per_difference, seen
    return guess * per_difference, PRIOR_RUNS


def _trend(ground: Ground, rest: Column) -> float:
    """The mean square of what the second half of a run lies above its first: what it moves by in such a time."""
    found = []
    for number in (each for side in ground.runs for each in side):
        rows = ground.run == number
        late = ground.block > np.median(np.unique(ground.block[rows]))
        if (rows & late).any() and (rows & ~late).any():
            found.append(float(np.quantile(rest[rows & late], QUIET) - np.quantile(rest[rows & ~late], QUIET)))
    return float(np.mean(np.square(found))) if found else 0.0


def _spread(ground: Ground, of_run: Callable[[Mask], float]) -> float:
    """The squares of what the runs of each side differ by from their side's mean, added up."""
    found = 0.0
    for numbers in ground.runs:
        levels = np.array([of_run(ground.run == number) for number in numbers])
        found += float(((levels - levels.mean()) ** 2).sum())
    return found


def _centred(ground: Ground, values: Column, pairs: Sequence[tuple[Level, Level]], log: bool) -> Column:
    """Each value less the level of its regime and side; unmatched rows less their own median."""
    size = _size(log)
    with np.errstate(invalid="ignore", divide="ignore"):
        rest = np.asarray(size(values)).copy()
    for code in np.unique(ground.regime):
        for side in (0, 1):
            rows = (ground.regime == code) & (ground.side == side)
            if code in ground.matched:
                rest[rows] -= float(size(pairs[ground.matched.index(int(code))][side].value))
            elif rows.any():
                rest[rows] -= float(np.median(rest[rows]))
    return np.where(np.isfinite(rest), rest, 0.0)
