"""How far two recordings of the same engine would lie apart: block bootstrap, slow drift, and the spread of runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rooflens.analyzer.diff.steps import Column, Index

DRAWS = 400
SCALES = (1, 2, 4)  # adjacent blocks that are drawn together: of 32 blocks stretches of a 32nd to an 8th of the run
DRIFT_AHEAD = 2.0  # times what the variance grows from the shortest stretches to the longest
SEED = 20
GRADES = 1024  # values of a cell are kept to so many ranks, which bounds the memory of the bootstrap
PRIOR_RUNS = 12  # degrees of freedom of the guess from one run a side: its drift, and what starts may differ by
# Two-sided 95 % of Student's t by degrees of freedom.
STUDENT = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14, 2.13, 2.12, 2.11, 2.10)


def student(freedom: int) -> float:
    """How many standard errors the 95 % interval reaches to either side."""
    return STUDENT[freedom - 1] if freedom <= len(STUDENT) else 1.96 + 2.4 / freedom


@dataclass(frozen=True, slots=True)
class Level:
    """A quantile of some values, and that of each draw by scale, (draws,) each; NaN where a draw has none of them."""

    value: float
    drawn: tuple[Column, ...]


def draws_of(blocks: list[Index], draws: int = DRAWS, seed: int = SEED) -> tuple[NDArray[np.float64], ...]:
    """How often each block counts in each draw, of each of SCALES an array (draws, blocks).

    Each list of blocks, those of one run in order of time, is drawn from by itself: in stretches of so many adjacent
    blocks as the scale says.
    """
    random = np.random.default_rng(seed)
    total = sum(len(each) for each in blocks)
    found = []
    for scale in SCALES:
        counts = np.zeros((draws, total))
        for each in blocks:
            parts = max(2, len(each) // scale)
            of_part = np.arange(len(each)) * parts // len(each)
            counts[:, each] = random.multinomial(parts, np.full(parts, 1 / parts), size=draws)[:, of_part]
        found.append(counts)
    return tuple(found)


def drift_of(variances: Sequence[float]) -> float:
    """What slow drift adds to the variance between two recordings, from those of draws of short to long stretches.

    White noise gives the same variance at every scale. What grows with the length of the stretches goes on growing
    beyond what one recording is long enough to show: as much again is assumed.
    """
    return DRIFT_AHEAD * max(0.0, max(variances) - variances[0])


def level_of(
    values: Column, weight: Column, block: Index, counts: Sequence[NDArray[np.float64]], quantile: float
) -> Level:
    """The weighted quantile of ``values``, whose blocks index the columns of each of ``counts``."""
    order = np.argsort(values, kind="stable")
    ranked, w, of_block = values[order], weight[order], block[order]
    grade = (np.arange(len(ranked)) * GRADES // len(ranked)) if len(ranked) > GRADES else np.arange(len(ranked))
    grades = int(grade[-1]) + 1
    mass = np.zeros((counts[0].shape[1], grades))
    np.add.at(mass, (of_block, grade), w)
    middle = np.bincount(grade, ranked) / np.bincount(grade)
    whole = _quantiles(mass.sum(axis=0)[None, :], middle, quantile)[0]
    return Level(float(whole), tuple(_quantiles(each @ mass, middle, quantile) for each in counts))


def slow_of(
    values: Column, weight: Column, block: Index, counts: Sequence[NDArray[np.float64]], quantile: float
) -> Level:
    """How far the weighted mean of ``values`` lies above their ``quantile``, in parts of that: what slow steps cost."""
    quiet = level_of(values, weight, block, counts, quantile)
    mean = mean_of(values, weight, block, counts, quantile)
    with np.errstate(invalid="ignore", divide="ignore"):
        drawn = tuple(high / low - 1 for high, low in zip(mean.drawn, quiet.drawn, strict=True))
    return Level(mean.value / quiet.value - 1, drawn)


def mean_of(
    values: Column, weight: Column, block: Index, counts: Sequence[NDArray[np.float64]], quantile: float
) -> Level:
    """The weighted mean of ``values``; ``quantile`` is not used."""
    blocks = counts[0].shape[1]
    mass, heap = np.bincount(block, weight, blocks), np.bincount(block, weight * values, blocks)
    with np.errstate(invalid="ignore", divide="ignore"):
        drawn = tuple((each @ heap) / (each @ mass) for each in counts)
    return Level(float(heap.sum() / mass.sum()), drawn)


def _quantiles(mass: NDArray[np.float64], values: Column, quantile: float) -> Column:
    """Of each row of masses the quantile, between the middles of the values' masses."""
    heaped = np.cumsum(mass, axis=1)
    total = heaped[:, -1]
    want = quantile * total
    at = np.minimum((heaped < want[:, None]).sum(axis=1), len(values) - 1)
    rows = np.arange(len(mass))
    upper, own = heaped[rows, at], np.maximum(mass[rows, at], 1e-300)
    part = np.clip((want - (upper - own)) / own, 0.0, 1.0) - 0.5
    beside = np.clip(at + np.sign(part).astype(np.int64), 0, len(values) - 1)
    found = values[at] + np.abs(part) * (values[beside] - values[at])
    return np.where(total > 0, found, np.nan)
