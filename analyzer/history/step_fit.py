"""How large a step or a drift in a series is, less what moved beside it; and whether it is a step or a curve."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rooflens.analyzer.history.series_noise import CUT, Series, calmed, deviation_of, noise_of, two_tails

Mix = NDArray[np.float64]  # (values, what moved beside them), logarithms
# Observed time and its bound each grow by a power of 0 to 1 of batch and context, so the logarithm of their ratio has a
# slope of -1 to 1 to the logarithm of either: before the series tells, as likely as this deviation.
SLOPE = 0.5
SURE = 3.0  # errors that a move must have where the mix may be behind it
ROUNDS = 3
DEGREE = 3  # of the smooth curve
LEAST_BETTER = 3.0  # of twice the log-likelihood: a step whose place was chosen must beat the curve by as much


@dataclass(frozen=True, slots=True)
class Fit:
    """``move`` with what moved beside it taken off, ``error`` with what the mix leaves unknown; ``chance`` of noise.

    ``even`` are the values without the mix.
    """

    move: float
    error: float
    chance: float
    even: Series
    widening: float

    @property
    def sure(self) -> bool:
        """Whether the mix cannot be what moved."""
        return abs(self.move) >= SURE * self.error


def unmixed(values: Series, mix: Mix) -> Series:
    """The values less what the mix explains from one to the next; a jump, which may be a step, tells nothing."""
    moved, by = np.diff(values), np.diff(mix, axis=0)
    usual = [CUT * math.sqrt(2) * noise_of(column) for column in (values, *mix.T)]
    calm = (np.abs(np.column_stack([moved, by])) <= usual).all(axis=1)
    by, moved, variance = by[calm], moved[calm], 2 * noise_of(values) ** 2
    slopes = np.linalg.solve(by.T @ by / variance + np.eye(mix.shape[1]) / SLOPE**2, by.T @ moved / variance)
    even: Series = values - (mix - mix.mean(axis=0)) @ slopes
    return even


def step_fit(values: Series, split: int, mix: Mix | None, noise: float) -> Fit:
    """The step before ``split``, by medians."""
    shape = (np.arange(len(values)) >= split).astype(np.float64)
    even, inner = _even(values, shape, mix, noise)
    before, after = even[:split], even[split:]
    rest = calmed(np.concatenate([before - np.median(before), after - np.median(after)]), noise)
    return _told(float(np.median(after) - np.median(before)), shape, rest, (even, inner), noise)


def drift_fit(values: Series, mix: Mix | None, noise: float) -> Fit:
    """A straight line from the first to the last value."""
    shape = np.linspace(-0.5, 0.5, len(values))
    even, inner = _even(values, shape, mix, noise)
    calm = calmed(even, noise)
    move = float(shape @ (calm - calm.mean()) / (shape @ shape))
    return _told(move, shape, calm - calm.mean() - move * shape, (even, inner), noise)


def is_step(values: Series, split: int, fit: Fit, noise: float) -> bool:
    """Whether a step explains the values better than a smooth curve of as many parameters, its place chosen or not."""
    calm = calmed(values, noise)
    before, after = calm[:split], calm[split:]
    squares = float(((before - before.mean()) ** 2).sum() + ((after - after.mean()) ** 2).sum())
    at = np.linspace(-1, 1, len(calm))
    curve = np.polynomial.legendre.legvander(at, DEGREE)
    off = calm - curve @ np.linalg.lstsq(curve, calm, rcond=None)[0]
    smooth = float(off @ off)
    floor = noise**2 * 1e-6
    return len(calm) / fit.widening * math.log((smooth + floor) / (squares + floor)) >= LEAST_BETTER


def _even(values: Series, shape: Series, mix: Mix | None, noise: float) -> tuple[Series, Mix | None]:
    """The values less what the mix explains beside ``shape``; and the mix about its mean."""
    if mix is None or not mix.shape[1]:
        return values, None
    inner = mix - mix.mean(axis=0)
    design = np.column_stack([np.ones(len(values)), shape, inner])
    calm = calmed(values, noise)
    rest = calm - design[:, :2] @ np.linalg.lstsq(design[:, :2], calm, rcond=None)[0]
    found = np.zeros(design.shape[1])
    for _ in range(ROUNDS):
        deviation, widening = deviation_of(rest, noise)
        sums = design.T @ design / (deviation**2 * widening) + _prior(design.shape[1])
        found = np.linalg.solve(sums, design.T @ calm / (deviation**2 * widening))
        rest = calm - design @ found
    return values - inner @ found[2:], inner


def _prior(count: int) -> Mix:
    return np.diag([0.0, 0.0, *(1 / SLOPE**2,) * (count - 2)])


def _told(move: float, shape: Series, rest: Series, beside: tuple[Series, Mix | None], noise: float) -> Fit:
    even, inner = beside
    deviation, widening = deviation_of(rest, noise)
    variance = deviation**2 * widening
    off = shape - shape.mean()
    alone = math.sqrt(variance / float(off @ off))
    freedom = max(2.0, (len(rest) - 2) / widening)
    error = alone
    if inner is not None:
        design = np.column_stack([np.ones(len(rest)), shape, inner])
        error = math.sqrt(float(np.linalg.inv(design.T @ design / variance + _prior(design.shape[1]))[1, 1]))
    return Fit(move, max(alone, error), two_tails(abs(move) / alone, freedom), even, widening)
