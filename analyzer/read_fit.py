"""How long a read takes by its size: a latency and a fraction of the bandwidth, fitted to what was measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rooflens.records import RooflensError

Column = NDArray[np.float64]
SOFT = 0.1  # of the logarithm: a point that misses by more than a tenth counts in proportion, not squared
STARTS_S = (1e-4, 5e-6, 1e-7)  # latencies to begin from: of a slow host, of a kernel, of a call on a CPU
LEAST_LATENCY_S = 1e-9
ROUNDS, SETTLED = 100, 1e-12
LONGEST_STEP = 2.0  # of a logarithm


@dataclass(frozen=True, slots=True)
class ReadFit:
    """A read of n bytes takes ``latency_s`` + n / (``ratio`` x bandwidth).

    ``miss_ratio`` is the median distance of what was measured from that, as a part of it.
    """

    latency_s: float
    ratio: float
    miss_ratio: float


def read_fit(size_bytes: Sequence[float], seconds: Sequence[float], bandwidth_bytes_per_s: float) -> ReadFit:
    """The fit to the logarithms of the times with a soft loss, so that neither large reads nor odd ones decide alone.

    One point has no latency that could be told from its bytes: all of its time is taken for them. RooflensError for no
    point, or one that is not positive.
    """
    size, log_s = np.asarray(size_bytes, dtype=np.float64), np.asarray(seconds, dtype=np.float64)
    if not size.size or not (np.isfinite(size) & np.isfinite(log_s) & (size > 0) & (log_s > 0)).all():
        raise RooflensError("a read to fit must have positive bytes and seconds: give at least one that was measured")
    share_s, log_s = size / bandwidth_bytes_per_s, np.log(log_s)
    if len(set(size.tolist())) == 1:
        ratio = float(np.exp(np.median(np.log(share_s) - log_s)))
        return ReadFit(0.0, ratio, _missed(share_s, log_s, np.array([-np.inf, np.log(ratio)])))
    begins = [np.array([np.log(latency_s), np.log(0.8)]) for latency_s in STARTS_S]
    found = min((_descend(share_s, log_s, at) for at in begins), key=lambda at: _loss(_miss(share_s, log_s, at)))
    return ReadFit(float(np.exp(found[0])), float(np.exp(found[1])), _missed(share_s, log_s, found))


def _descend(share_s: Column, log_s: Column, at: Column) -> Column:
    """Damped, weighted Gauss-Newton steps in the logarithms of latency and ratio."""
    damping, loss = 1e-3, _loss(_miss(share_s, log_s, at))
    for _ in range(ROUNDS):
        miss = _miss(share_s, log_s, at)
        weight = 1 / np.sqrt(1 + (miss / SOFT) ** 2)
        waits_s, reads_s = np.exp(at[0]), share_s / np.exp(at[1])
        slopes = np.stack((waits_s / (waits_s + reads_s), -reads_s / (waits_s + reads_s)), axis=1)
        square = slopes.T @ (slopes * weight[:, None])
        pull = slopes.T @ (miss * weight)
        step = np.linalg.solve(square + damping * np.diag(np.diag(square) + SETTLED), pull)
        there = at - np.clip(step, -LONGEST_STEP, LONGEST_STEP)
        there[0] = max(there[0], np.log(LEAST_LATENCY_S))
        new = _loss(_miss(share_s, log_s, there))
        if new > loss:
            damping *= 8
            if damping > 1e9:
                return at
            continue
        at, damping, gained, loss = there, damping / 4, loss - new, new
        if gained <= SETTLED * max(loss, SETTLED):
            return at
    return at


def _miss(share_s: Column, log_s: Column, at: Column) -> Column:
    """By how much the logarithm of each time is fitted too high; ``share_s`` is its time at the whole bandwidth."""
    found: Column = np.log(np.exp(at[0]) + share_s / np.exp(at[1])) - log_s
    return found


def _loss(miss: Column) -> float:
    """The sum of 2 (sqrt(1 + z) - 1) with z = (miss / SOFT) squared, which scipy calls soft_l1."""
    return float((np.sqrt(1 + (miss / SOFT) ** 2) - 1).sum())


def _missed(share_s: Column, log_s: Column, at: Column) -> float:
    return float(np.median(np.abs(np.expm1(-_miss(share_s, log_s, at)))))
