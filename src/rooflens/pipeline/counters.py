"""What only ever rises: one sum and one histogram, whatever is added to them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rooflens import catalogue as metrics
from rooflens.metric_records import HistogramValue, Metric, Sample

BOUNDS = np.array(metrics.STEP_BUCKETS_S)
Column = NDArray[Any]


@dataclass(slots=True)
class Sum:
    """A counter. ``refused`` counts amounts that were left out: a negative one, or one that is no finite number."""

    metric: Metric
    labels: tuple[str, ...]
    created_unix_s: float
    value: float = 0.0
    refused: int = 0
    # As long as the value is the same: most series do not move from one turn to the next.
    _told: Sample | None = field(default=None, init=False, repr=False, compare=False)

    def grow(self, amount: float) -> None:
        """Add an amount, unless the sum would fall or be no number any more."""
        grown = self.value + amount
        if math.isfinite(grown) and grown >= self.value:
            self.value = grown
        else:
            self.refused += 1

    def grow_by_all(self, amounts: Column) -> None:
        """Add many; those that cannot be are left out one by one, for they must not hide in the sum of all."""
        if len(amounts) == 1:  # a page's turn
            amount = float(amounts[0])
            if math.isfinite(amount) and amount >= 0:
                self.grow(amount)
            else:
                self.refused += 1
            return
        good = np.isfinite(amounts) & (amounts >= 0)
        self.refused += len(amounts) - int(good.sum())
        self.grow(float(amounts[good].sum(dtype=np.float64)))

    def sample(self) -> Sample:
        """The series as it stands."""
        told = self._told
        if told is None or told.value != self.value:
            told = self._told = Sample(self.metric, self.labels, self.value, self.created_unix_s)
        return told


@dataclass(slots=True)
class Histogram:
    """Step times in the catalogue's buckets; ``refused`` as of Sum."""

    metric: Metric
    labels: tuple[str, ...]
    created_unix_s: float
    total: float = 0.0
    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))
    refused: int = 0

    def take(self, seconds: Column, weights: Column) -> None:
        """Rows of ``weights`` steps that took ``seconds`` together: each counts as so many of its mean.

        Their sum is right, their spread is not known.
        """
        seconds = np.maximum(seconds, 0.0)
        good = np.isfinite(seconds) & np.isfinite(weights) & (weights > 0)
        self.refused += len(seconds) - int(good.sum())
        seconds, weights = seconds[good], weights[good]
        grown = self.total + float(seconds.sum())
        places = np.searchsorted(BOUNDS, seconds / weights, side="left")
        found = np.bincount(places, weights, minlength=len(BOUNDS) + 1).round()
        if not math.isfinite(grown):
            self.refused += 1
            return
        self.total = grown
        self.counts = [before + int(more) for before, more in zip(self.counts, found.tolist(), strict=True)]

    def sample(self) -> Sample:
        """The series as it stands."""
        return Sample(self.metric, self.labels, HistogramValue(tuple(self.counts), self.total), self.created_unix_s)
