"""What a deployment's own steps teach about the model of what is reachable: bounded, by regime, and ready or not.

Two corrections that are never used together. ``Correction`` is learned while an engine runs: the median of observed
over reachable time of each workload regime, every ratio clipped, so that no odd window moves it far. ``Fit`` has two
physical parameters, found from published or recorded points: ``fit`` finds both from steps of one deployment,
``fit_pair`` a scale alone from other models on the same hardware and engine.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rooflens.records import RooflensError, StepKind, StepTable

Column = NDArray[np.float64]
Rows = NDArray[np.bool_]
LEAST_RATIO, MOST_RATIO = 0.5, 2.0  # of observed to reachable: beyond it the model or the measurement is wrong
READY_WINDOWS = 6  # as many as the rules see
KEPT_WINDOWS = 64  # of a regime; older ones make way, so that a change is learned within them
HUBER = 0.2  # of the logarithm: a point that misses by more than a fifth counts only in proportion
ROUNDS, SETTLED = 100, 1e-10  # of the fit
PHASES = frozenset(kind.name.lower() for kind in StepKind)
MOST_BITS = 64  # of a batch or a context
# Models that weigh as much as no correction at all: the variance of a model's scale within its pair of hardware and
# engine is about three times that of the pairs (0.20 and 0.12 of the logarithm, benchmarks/prove_roofline.py).
PRIOR_MODELS = 3


@dataclass(frozen=True, slots=True, order=True)
class Regime:
    """Steps that are alike: their phase, the power of two of their batch, the power of four of their mean context."""

    phase: str
    batch: int
    context: int

    def __str__(self) -> str:
        return f"{self.phase} batch {2**self.batch}-{2 ** (self.batch + 1) - 1} context {4**self.context}+"


def regime_of(phase: str, batch: float, context_tokens: float) -> Regime:
    """The regime of a step of ``batch`` sequences with ``context_tokens`` each on average; both at least 1."""
    return Regime(phase, int(math.log2(max(1.0, batch))), int(math.log2(max(1.0, context_tokens)) / 2))


@dataclass(frozen=True, slots=True)
class Correction:
    """Learned state: of each regime the clipped ratios of its last windows, oldest first. A value, never changed."""

    ratios: Mapping[Regime, tuple[float, ...]] = field(default_factory=dict)

    def learned(self, observed: Mapping[Regime, tuple[float, float]]) -> Correction:
        """The same with one more window: (observed seconds, reachable seconds) of each of its regimes."""
        found = dict(self.ratios)
        for regime, (observed_s, reachable_s) in observed.items():
            if observed_s > 0 and reachable_s > 0:
                ratio = min(MOST_RATIO, max(LEAST_RATIO, observed_s / reachable_s))
                found[regime] = (*found.get(regime, ()), ratio)[-KEPT_WINDOWS:]
        return Correction(found)

    def followed_by(self, later: Correction) -> Correction:
        """Both as one, of windows that were seen by different observers or one after the other."""
        found = dict(self.ratios)
        for regime, ratios in later.ratios.items():
            found[regime] = (*found.get(regime, ()), *ratios)[-KEPT_WINDOWS:]
        return Correction(found)

    def ready(self, regime: Regime) -> bool:
        """Whether enough windows were seen to correct by."""
        return len(self.ratios.get(regime, ())) >= READY_WINDOWS

    def factor(self, regime: Regime) -> float | None:
        """What to multiply reachable time by, 0.5 to 2; None before it is ready."""
        return median(self.ratios[regime]) if self.ready(regime) else None

    def error_ratio(self, regime: Regime) -> float | None:
        """How far a window of the regime usually lies from its correction, as a part of it; None before it is ready."""
        factor = self.factor(regime)
        return None if factor is None else median(abs(r / factor - 1) for r in self.ratios[regime])


def window_times(table: StepTable, observed_s: Column, reachable_s: Column) -> dict[Regime, tuple[float, float]]:
    """(observed, reachable) seconds of each regime of a window; steps of which one of the two is NaN are left out.

    All three have the shape (steps,). A row that stands for several steps counts by its means.
    """
    known = np.isfinite(observed_s) & np.isfinite(reachable_s) & (reachable_s > 0)
    return {
        regime: (float(observed_s[rows].sum()), float(reachable_s[rows].sum()))
        for regime, rows in by_regime(table, known)
    }


def by_regime(table: StepTable, known: Rows) -> Iterator[tuple[Regime, Rows]]:
    """Each regime among the rows where ``known`` is True, with the mask of its rows, both of the shape (steps,)."""
    steps = table["resolution_steps"] if table.has("resolution_steps") else np.ones(len(table))
    known = known & table.where("kind") & table.where("requests") & table.where("context_tokens")
    known &= table["requests"] > 0
    batch = table["requests"] / np.maximum(steps, 1)
    context = table["context_tokens"] / np.maximum(table["requests"], 1)
    keys = np.stack(
        [
            table["kind"].astype(np.int64),
            np.log2(np.maximum(batch, 1.0)).astype(np.int64),
            (np.log2(np.maximum(context, 1.0)) / 2).astype(np.int64),
        ]
    )
    for kind, size, length in np.unique(keys[:, known], axis=1).T:
        rows = (keys == np.array([[kind], [size], [length]])).all(axis=0) & known
        yield Regime(StepKind(int(kind)).name.lower(), int(size), int(length)), rows


def as_data(correction: Correction) -> list[dict[str, object]]:
    """The correction as plain values for a file."""
    return [
        {"phase": r.phase, "batch": r.batch, "context": r.context, "ratios": list(ratios)}
        for r, ratios in sorted(correction.ratios.items())
    ]


def from_data(data: object) -> Correction:
    """The correction that as_data wrote; RooflensError in one line for anything else."""
    if not isinstance(data, list):
        raise RooflensError("a learned correction must be a list: remove the file to learn anew")
    found = {}
    for row in data:
        try:
            regime = regime_from(row)
            ratios = tuple(float(ratio) for ratio in row["ratios"])
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise RooflensError(f"a learned correction is damaged ({error}): remove the file to learn anew") from error
        if not all(LEAST_RATIO <= ratio <= MOST_RATIO for ratio in ratios):
            raise RooflensError("a learned correction has a ratio out of 0.5 to 2: remove the file to learn anew")
        found[regime] = ratios[-KEPT_WINDOWS:]
    return Correction(found)


def regime_from(row: Mapping[str, Any]) -> Regime:
    """The regime that a row of a file names; KeyError, TypeError, ValueError or OverflowError for what is none."""
    regime = Regime(str(row["phase"]), int(row["batch"]), int(row["context"]))
    if regime.phase not in PHASES or not 0 <= regime.batch < MOST_BITS or not 0 <= regime.context < MOST_BITS:
        raise ValueError("it names no regime")
    return regime


@dataclass(frozen=True, slots=True)
class Point:
    """One measured step: its seconds, what is reachable for it without any correction, and the layers it runs."""

    observed_s: float
    reachable_s: float
    layers: float


@dataclass(frozen=True, slots=True)
class Fit:
    """t = ``scale`` x reachable + ``per_layer_s`` x layers: how the kernels of an engine compare, and what it adds."""

    scale: float
    per_layer_s: float

    def seconds(self, reachable_s: float, layers: float) -> float:
        """The step's expected time."""
        return self.scale * reachable_s + self.per_layer_s * layers


def fit(points: Iterable[Point]) -> Fit:
    """The two parameters that miss the logarithms of ``points`` least, robustly (Huber); both at least 0.

    With fewer than three points the scale alone: two parameters would go through two points whatever they are.
    RooflensError where there is no point, or one that is not positive.
    """
    rows = _checked(points)
    scale = math.exp(_log_scale(rows))
    if len(rows) < 3:
        return Fit(scale, 0.0)
    parts = np.array([[row.reachable_s, row.layers] for row in rows])
    log_s = np.log([row.observed_s for row in rows])
    starts = (np.array([scale, 0.0]), np.array([scale / 2, float(np.exp(log_s - np.log(parts[:, 1])).min()) / 2]))
    found = min((_descend(parts, log_s, start) for start in starts), key=lambda at: _miss(parts, log_s, at))
    return Fit(float(found[0]), float(found[1]))


def fit_pair(by_model: Mapping[str, Iterable[Point]], prior_models: float = PRIOR_MODELS) -> Fit:
    """A scale for another model on the same hardware and engine, from the points of each model that was measured.

    The mean over the models of their median log(observed / reachable), drawn towards no correction as though
    ``prior_models`` more had been measured that need none: two models of a pair agree so little that their own scale
    is worse than none. Without any model the scale is 1. A second parameter is not found: seconds a layer of one model
    say nothing of another's. RooflensError for a model without points or with one that is not positive.
    """
    found = [_log_scale(_checked(points)) for points in by_model.values()]
    return Fit(math.exp(math.fsum(found) / (len(found) + prior_models)) if found else 1.0, 0.0)


def _checked(points: Iterable[Point]) -> list[Point]:
    rows = list(points)
    if not rows:
        raise RooflensError("no points to fit: give at least one measured step")
    if not all(0 < value < math.inf for row in rows for value in (row.observed_s, row.reachable_s, row.layers)):
        raise RooflensError("a point to fit must have positive observed and reachable seconds and layers")
    return rows


def _log_scale(rows: Sequence[Point]) -> float:
    """The median logarithm of observed over reachable."""
    return median(math.log(row.observed_s / row.reachable_s) for row in rows)


def _descend(parts: Column, log_s: Column, at: Column) -> Column:
    """Weighted Gauss-Newton steps from ``at`` within both parameters >= 0, each halved until it is an improvement."""
    for _ in range(ROUNDS):
        expected = parts @ at
        missed = log_s - np.log(expected)
        weight = np.sqrt(np.minimum(1.0, HUBER / np.maximum(np.abs(missed), 1e-12)))
        slopes = parts / expected[:, None] * weight[:, None]
        free = _free(slopes, missed * weight, at)
        step = np.zeros(2)
        step[free] = np.linalg.lstsq(slopes[:, free], missed * weight, rcond=None)[0]
        before, size = _miss(parts, log_s, at), 1.0
        while size > SETTLED:
            there = np.maximum(at + size * step, 0.0)
            if there.any() and _miss(parts, log_s, there) < before * (1 - SETTLED):
                break
            size /= 2
        else:
            return at
        at = there
    return at


def _free(slopes: Column, missed: Column, at: Column) -> Sequence[int]:
    """Which parameters may move: not one at 0 that would fall below."""
    pull = slopes.T @ missed
    return [place for place in range(2) if at[place] > 0 or pull[place] > 0] or [0]


def _miss(parts: Column, log_s: Column, at: Column) -> float:
    """Huber's loss of the logarithms; infinite where nothing is expected to take any time."""
    expected = parts @ at
    if not (expected > 0).all():
        return math.inf
    missed = np.abs(log_s - np.log(expected))
    return float(np.where(missed <= HUBER, missed**2 / 2, HUBER * (missed - HUBER / 2)).sum())
