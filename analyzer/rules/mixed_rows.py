"""Rows of a metrics page that hold steps with prompts and steps without: what is reachable for them is less certain."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rooflens.analyzer.reachable_steps import Reachable
from rooflens.analyzer.sums import filled, steps_of
from rooflens.model_records import StepAnalysis
from rooflens.records import StepTable

SLOW_RATIO = 0.5  # of the peaks: what published kernels reach at the slow end, or more


def widened(reach: Reachable, table: StepTable, analysis: StepAnalysis) -> Reachable:
    """``reach`` where a row stands for several steps of which some may carry prompts.

    It is put through the model as so many equal steps, each as long as the longer of its memory and compute side. Of
    unequal ones some are bound by the one and some by the other, so that all together take up to both sides: the
    shorter side comes on top, of slow kernels at the slow end, and half of that for usual ones.
    """
    mixed = (steps_of(table) > 1) & (filled(table, "prefill_tokens") > 0)
    if not mixed.any():
        return reach
    shorter_s = np.where(mixed, np.minimum(analysis.memory_s, analysis.compute_s), 0.0)
    slow_s = shorter_s / SLOW_RATIO
    return replace(reach, reachable_s=reach.reachable_s + slow_s / 2, slow_s=reach.slow_s + slow_s)
