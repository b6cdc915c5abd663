"""One part of the step time of all matched regimes: its levels on both sides, their difference, and its noise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rooflens.analyzer.diff.fit import QUIET
from rooflens.analyzer.diff.noise import PRIOR_RUNS, Level, drift_of, level_of, student
from rooflens.analyzer.diff.result import Change
from rooflens.analyzer.diff.steps import Column, Index

LEAST_CELL_STEPS = 20  # of a regime on either side


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


def channel(
    ground: Ground, values: Column, quantile: float, log: bool, floor: float, tilt: Sequence[Column]
) -> Channel:
    """Compare ``values`` (steps,), ratios of a step's expected time, at ``quantile`` between the sides.

    With ``log`` the difference is that of logarithms. ``floor`` is the least standard deviation between two runs of the
    same engine. ``tilt``, of each scale (draws, matched), is what the draws' own slopes add to a regime's difference.
    """
    pairs = [_pair(ground, values, code, quantile) for code in ground.matched]
    size = _size(log)
    found = np.array([float(size(b.value) - size(a.value)) for a, b in pairs])
    whole, regimes = [], []
    for scale, leaning in enumerate(tilt):
        with np.errstate(invalid="ignore", divide="ignore"):
            drawn = np.stack([size(b.drawn[scale]) - size(a.drawn[scale]) for a, b in pairs], axis=1) + leaning
        drawn = np.where(np.isfinite(drawn), drawn, found)
        whole.append(float((drawn @ ground.shares).var(ddof=1)))
        regimes.append(drawn.var(axis=0, ddof=1))
    added, freedom = _between_runs(ground, values, pairs, log, floor, drift_of(whole))
    by_regime = [(float(f), float(v) + added) for f, v in zip(found, np.max(regimes, axis=0), strict=True)]
    return Channel(tuple(pairs), float(found @ ground.shares), whole[0] + added, freedom, tuple(by_regime))


def _size(log: bool) -> Callable[[Any], Any]:
    return np.log if log else np.asarray


def _pair(ground: Ground, values: Column, code: int, quantile: float) -> tuple[Level, Level]:
    of_side = []
    for side in (0, 1):
        rows = (ground.regime == code) & (ground.side == side)
        of_side.append(level_of(values[rows], ground.weight[rows], ground.block[rows], ground.counts, quantile))
    return of_side[0], of_side[1]


def _between_runs(
    ground: Ground, values: Column, pairs: Sequence[tuple[Level, Level]], log: bool, floor: float, drift: float
) -> tuple[float, int]:
    """(variance that runs add to a difference, degrees of freedom of its root).

    Of one run a side it is guessed from ``drift``, the variance of the difference that this adds, and ``floor``; more
    runs correct that guess by their own spread, as though the guess were worth PRIOR_RUNS degrees of freedom.
    """
    per_difference = sum(1 / len(each) for each in ground.runs)
    guess = drift / per_difference + floor**2
    seen = sum(len(each) for each in ground.runs) - 2
    if not seen:
        return guess * per_difference, PRIOR_RUNS
    rest = _centred(ground, values, pairs, log)
    spread = 0.0
    for numbers in ground.runs:
        levels = np.array([float(np.quantile(rest[ground.run == number], QUIET)) for number in numbers])
        spread += float(((levels - levels.mean()) ** 2).sum())
    return (PRIOR_RUNS * guess + spread) / (PRIOR_RUNS + seen) * per_difference, PRIOR_RUNS + seen


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
