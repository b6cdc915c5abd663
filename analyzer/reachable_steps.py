"""What a well-tuned engine gets for each of many steps, and the interval around it that kernels spread over."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from rooflens.analyzer.products import product
from rooflens.analyzer.reachable import Terms, at_best, at_worst, terms_of
from rooflens.analyzer.work import Coefficients, Work
from rooflens.model_records import Efficiency, StepAnalysis
from rooflens.records import StepTable

if TYPE_CHECKING:
    from rooflens.analyzer.roofline import Roofline

Column = NDArray[np.float64]
Matrix = NDArray[np.float64]
BLOCK_STEPS = 512  # both sides of two dozen operators of them stay in the second-level cache


@dataclass(frozen=True, slots=True)
class Reachable:
    """For each step, seconds (steps,): floor <= ``fast_s`` <= ``reachable_s`` <= ``slow_s``, and expected <= reachable.

    ``reachable_s`` is what usual kernels take, ``fast_s`` the fastest of the same tables with as few experts as a pass
    can read, and ``slow_s`` kernels whose ratios lie as far on the other side. NaN where the step is not modelled.
    """

    fast_s: Column
    slow_s: Column
    reachable_s: Column


class CompiledTerms:
    """Terms as matrices over the features called ``names``: many steps are two products, a maximum and a few curves."""

    def __init__(self, terms: Terms, names: Sequence[str]) -> None:
        self._passes = tuple(names).index("passes")
        pairs = [pair for pair in terms.operators if any(pair)]
        one_sided = [memory or compute for memory, compute in pairs if not (memory and compute)]
        both = [pair for pair in pairs if all(pair)]
        self._memory = _matrix([memory for memory, _ in both], names)
        self._compute = _matrix([compute for _, compute in both], names)
        self._rest = _matrix([*one_sided, terms.launches], names).sum(axis=0, keepdims=True)
        self._messages = _matrix([each.message for each in terms.collectives], names)
        self._strict = _matrix([each.strict_s for each in terms.collectives], names)
        self._calls = [each.calls for each in terms.collectives]
        self._curves = [np.log(np.array(each.curve)).T for each in terms.collectives]

    def seconds(self, features: Matrix) -> Column:
        """Seconds (steps,) of steps with ``features`` (names, steps)."""
        found: Column = product(self._rest, features)[0]
        memory_s, compute_s = np.empty((2, len(self._memory), BLOCK_STEPS))
        for start in range(0, len(found), BLOCK_STEPS):
            block = features[:, start : start + BLOCK_STEPS]
            sides = (memory_s[:, : block.shape[1]], compute_s[:, : block.shape[1]])
            np.matmul(self._memory, block, out=sides[0])
            np.matmul(self._compute, block, out=sides[1])
            found[start : start + BLOCK_STEPS] += np.maximum(*sides, out=sides[0]).sum(axis=0)
        if self._calls:
            self._add_collectives(features, found)
        return found

    def _add_collectives(self, features: Matrix, found: Column) -> None:
        passes = features[self._passes]
        sizes = product(self._messages, features) / np.maximum(passes, 1e-9)
        strict_s = product(self._strict, features)
        for place, (calls, (log_size, log_s)) in enumerate(zip(self._calls, self._curves, strict=True)):
            each = np.exp(np.interp(np.log(np.maximum(sizes[place], 1.0)), log_size, log_s))
            found += np.maximum(np.where(sizes[place] > 0, calls * passes * each, 0.0), strict_s[place])


class SlowestStage:
    """The terms of every pipeline stage, of which the slowest counts."""

    def __init__(self, stages: Sequence[Terms], names: Sequence[str]) -> None:
        self._stages = tuple(CompiledTerms(terms, names) for terms in stages)

    def seconds(self, features: Matrix) -> Column:
        """Seconds (steps,) of steps with ``features`` (names, steps)."""
        found = self._stages[0].seconds(features)
        for stage in self._stages[1:]:
            np.maximum(found, stage.seconds(features), out=found)
        return found


class ReachableSteps:
    """The interval of one roofline, compiled once; ``names`` are the features it needs, those of the roofline first.

    ``features`` computes them, ``efficiency`` says what kernels reach.
    """

    def __init__(
        self, roofline: Roofline, efficiency: Efficiency, clock_ratio: float = 1.0, eager: bool = False
    ) -> None:
        self._stages, self._hardware, self._deployment = roofline.stages, roofline.hardware, roofline.deployment
        self._clock_ratio, self._eager, self.efficiency = clock_ratio, eager, efficiency
        usual = self._terms(self._stages, efficiency)
        used = sorted({name for each in usual for name in each.names} - set(roofline.names))
        self.names = (*roofline.names, *used)
        self._usual = SlowestStage(usual, self.names)
        self.features = roofline.features_called(self.names)

    def _terms(self, stages: Iterable[Sequence[Work]], reached: Efficiency) -> tuple[Terms, ...]:
        spread = self._deployment
        return tuple(terms_of(rows, self._hardware, reached, spread, self._clock_ratio, self._eager) for rows in stages)

    @cached_property
    def _fast(self) -> SlowestStage:
        """With as few experts as a pass can read; what else it is said in, the usual terms are too."""
        strict = [[replace(row, expert_bytes={}) for row in rows] for rows in self._stages]
        return SlowestStage(self._terms(strict, at_best(self.efficiency)), self.names)

    @cached_property
    def _slow(self) -> SlowestStage:
        return SlowestStage(self._terms(self._stages, at_worst(self.efficiency)), self.names)

    def seconds(self, features: Matrix) -> Column:
        """What usual kernels take for ``features`` (names, steps)."""
        return self._usual.seconds(features)

    def of(self, table: StepTable, analysis: StepAnalysis) -> Reachable:
        """The interval of every step of ``table``, of which ``analysis`` is."""
        ends = np.empty((3, len(table)))
        for place, features, _ in self.features.chunks(table):
            for row, terms in enumerate((self._fast, self._usual, self._slow)):
                ends[row, place] = terms.seconds(features)
        ends[0] = np.maximum(ends[0], analysis.floor_s)
        ends[1] = np.maximum(ends[1], analysis.expected_s)
        ends = np.where(analysis.modelled, np.maximum.accumulate(ends), np.nan)
        return Reachable(fast_s=ends[0], reachable_s=ends[1], slow_s=ends[2])


def reachable(
    roofline: Roofline,
    table: StepTable,
    analysis: StepAnalysis,
    clock_ratio: float = 1.0,
    eager: bool = False,
) -> Reachable | None:
    """The interval for every step of ``table``; None where the roofline knows of no kernels of such hardware.

    ``analysis`` is that of the same roofline and table; ``clock_ratio`` and ``eager`` as terms_of takes them.
    """
    if clock_ratio == 1.0 and eager == roofline.eager:
        usual = roofline.reached
        return usual.of(table, analysis) if usual else None
    if roofline.efficiency is None:
        return None
    return ReachableSteps(roofline, roofline.efficiency, clock_ratio, eager).of(table, analysis)


def _matrix(parts: Sequence[Coefficients], names: Sequence[str]) -> Matrix:
    """The coefficients (parts, names)."""
    found = [[part.get(name, 0.0) for name in names] for part in parts]
    return np.array(found, dtype=np.float64).reshape(len(parts), len(names))
