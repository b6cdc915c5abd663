"""What lowered clocks cost the steps of a window, by published kernels at these clocks and at the datasheet's."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rooflens.analyzer.reachable_steps import Reachable
from rooflens.analyzer.rules.bounds import NOISE_RATIO, bounds
from rooflens.analyzer.rules.case import Case
from rooflens.analyzer.rules.clocks import MEMORY_CLOCK, SM_CLOCK, Clocks, of_low, steps_at
from rooflens.analyzer.rules.mixed_rows import widened
from rooflens.analyzer.sums import Mask, filled
from rooflens.model_records import StepAnalysis
from rooflens.records import StepTable

LONGER_RATIO = 1.05  # of a step at the datasheet's clocks: the steps that the clocks are judged on


@dataclass(frozen=True, slots=True)
class ThrottleCost:
    """Seconds that low clocks cost the compared steps.

    Seconds of the device where it timed at least half of the steps (then of these alone), observed ones else.
    ``possible_s`` is what usual kernels lose by them in the time that the steps took. ``shown_s`` is as much of it as
    the steps are slower than usual kernels are at the datasheet's clocks, ``low_s`` as much as they are slower than
    slow ones, ``high_s`` the most that any kernels of the spread lose. Only where it is ``clear`` the steps are slower
    than that spread. ``contradicted`` are clocks at which the device cannot have made these steps.
    """

    possible_s: float
    shown_s: float
    low_s: float
    high_s: float
    clear: bool
    contradicted: bool


def throttle_cost(case: Case, clocks: Clocks, low: tuple[str, ...]) -> ThrottleCost | None:
    """What the clocks named in ``low`` cost; None where it is not known what kernels reach.

    Nobody recorded the clocks of the devices that kernels were published on, and large products draw all the power
    that a card is given: steps as fast as published ones may have been made at no lower a clock than those. So the cost
    is held against how slow the steps are, those that the clocks make longer by 5 % at least.
    """
    found = bounds(case)
    if found is None:
        return None
    roofline, analysis = found
    table = case.windows[-1].steps
    full, present = (steps_at(roofline, table, analysis, *at) for at in ((1.0, 1.0), of_low(clocks, low)))
    if full is None or present is None:
        return None
    full, present = (widened(reach, table, analysis) for reach in (full, present))
    contradicted = _too_fast(table, analysis, clocks, low)
    rows = analysis.compared & (present.reachable_s >= LONGER_RATIO * full.reachable_s)
    if not rows.any():
        return ThrottleCost(0.0, 0.0, 0.0, 0.0, False, contradicted)
    rows, taken_s = _taken(table, analysis, rows)
    lost = [_lost_s(taken_s, *ends) for ends in zip(_ends(full, rows), _ends(present, rows), strict=True)]
    _, usual_s, slow_s = _ends(full, rows)
    shown_s = max(0.0, min(taken_s, _ends(present, rows)[1]) - usual_s)
    low_s = min(*lost, max(0.0, taken_s - slow_s))
    return ThrottleCost(lost[1], shown_s, low_s, max(lost), taken_s > slow_s, contradicted)


def _taken(table: StepTable, analysis: StepAnalysis, rows: Mask) -> tuple[Mask, float]:
    """Which of ``rows`` to judge and their seconds: of the device where at least half have them, observed ones else.

    A clock cannot lengthen what a step waits for the host, which is host_overhead's.
    """
    timed = rows & table.where("device_s")
    if timed.any() and timed.sum() * 2 >= rows.sum():
        return timed, float(filled(table, "device_s")[timed].sum())
    return rows, float(analysis.observed_s[rows].sum())


def _too_fast(table: StepTable, analysis: StepAnalysis, clocks: Clocks, low: tuple[str, ...]) -> bool:
    """Whether the steps took less than the strict floor is at these clocks."""
    rows, taken_s = _taken(table, analysis, analysis.compared)
    sm = (clocks.sm or 1.0) if SM_CLOCK in low else 1.0
    memory = (clocks.memory or 1.0) if MEMORY_CLOCK in low else 1.0
    floor_s = np.maximum(analysis.floor_s, np.maximum(analysis.compute_s / sm, analysis.memory_s / memory))
    return bool(taken_s < (1 - NOISE_RATIO) * floor_s[rows].sum())


def _ends(reach: Reachable, rows: Mask) -> tuple[float, float, float]:
    """Seconds of all rows by fast, usual and slow kernels."""
    fast_s, usual_s, slow_s = (float(c[rows].sum()) for c in (reach.fast_s, reach.reachable_s, reach.slow_s))
    return fast_s, usual_s, slow_s


def _lost_s(taken_s: float, full_s: float, present_s: float) -> float:
    """What of ``present_s`` the lower clocks are, in as much of it as was really taken."""
    return min(taken_s, present_s) * (1 - full_s / present_s) if present_s > 0 else 0.0
