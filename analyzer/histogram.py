"""Quantiles of times that were counted in bins of a logarithm; off by at most one bin, 2 %."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rooflens.trace_records import HISTOGRAM_BASE

MICROSECOND_S = 1e-6


def quantile(bins: NDArray[Any], counts: NDArray[Any], q: float) -> float | None:
    """The time in seconds below which the part ``q`` of the counts lies, 0 to 1; None where nothing was counted.

    ``bins`` and ``counts`` have one shape, in any order; a bin may come more than once. Bin n holds times from
    HISTOGRAM_BASE ** n microseconds on. The answer is the geometric middle of the bin that holds the exact quantile, so
    it is off by at most 1 %, a bin by its rounding.
    """
    if not 0 <= q <= 1:
        raise ValueError(f"a quantile is a part of 0 to 1, not {q}")
    order = np.argsort(bins, kind="stable")
    reached = np.cumsum(np.asarray(counts, dtype=np.float64)[order])
    if not len(reached) or not reached[-1] > 0:
        return None
    at = int(np.searchsorted(reached, max(q * reached[-1], np.finfo(float).tiny)))
    return float(HISTOGRAM_BASE ** (float(bins[order][min(at, len(order) - 1)]) + 0.5)) * MICROSECOND_S
