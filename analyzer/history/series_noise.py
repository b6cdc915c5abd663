"""The noise of a series of values: robust to odd ones and to steps, and as wide as correlation in time makes it."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Series = NDArray[np.float64]
CUT = 4.0  # times the noise from the running median: beyond it a value counts as if it were there
MAD_TO_DEVIATION = 1.4826  # of normal noise
MEDIAN_OF = 5  # values of the running median
BIAS, MOST_ALIKE = 6.0, 0.95  # of the correlation of neighbours: Kendall's 1 + 3 rho, for two fitted levels; its cap
BLOCKS, LEAST_BLOCK = 12, 4  # stretches whose means tell of slow wandering, and the values of the shortest


def noise_of(values: Series) -> float:
    """The deviation of single values, from the differences of neighbours."""
    differences = np.diff(values)
    spread = float(np.median(np.abs(differences - np.median(differences))))
    return max(MAD_TO_DEVIATION * spread / math.sqrt(2), 1e-6)


def calmed(values: Series, noise: float) -> Series:
    """The values, odd ones cut to CUT times the noise from the median of their neighbours."""
    half = MEDIAN_OF // 2
    padded = np.pad(values, half, mode="reflect") if len(values) > half else values
    middle = np.median(np.lib.stride_tricks.sliding_window_view(padded, MEDIAN_OF), axis=1)
    return np.clip(values, middle - CUT * noise, middle + CUT * noise)


def deviation_of(rest: Series, noise: float) -> tuple[float, float]:
    """The deviation of single values, and by how much correlation in time widens the variance of a mean (1 or more).

    The larger of two: what the correlation of neighbours makes of it, and how far the means of stretches differ.
    """
    count = len(rest)
    squares = float(rest @ rest)
    deviation = max(noise, math.sqrt(squares / max(1, count - 2)))
    if not squares:
        return deviation, 1.0
    alike = float(rest[1:] @ rest[:-1]) / squares
    alike += (1 + BIAS * max(0.0, alike)) / count  # what is estimated beside a fitted step comes out too low
    alike = min(MOST_ALIKE, max(0.0, alike))
    size = max(LEAST_BLOCK, count // BLOCKS)
    blocks = count // size
    means = rest[: blocks * size].reshape(blocks, size).mean(axis=1) if blocks > 2 else np.zeros(3)
    wander = float(means @ means) / max(1, blocks - 2) * size / deviation**2
    return deviation, max((1 + alike) / (1 - alike), wander)


def two_tails(t: float, freedom: float) -> float:
    """The chance that a t-distributed value is farther from 0 (Wallace's transformation to a normal one)."""
    z = (8 * freedom + 1) / (8 * freedom + 3) * math.sqrt(freedom * math.log1p(t * t / freedom))
    return math.erfc(z / math.sqrt(2))
