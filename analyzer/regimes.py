"""What the windows of a deployment teach about its own regimes, as figures: learned, shown, and used for no verdict."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from rooflens.analyzer.correction import Correction, Regime, window_times
from rooflens.live_records import WindowFigures
from rooflens.model_records import RegimeFigures, StepAnalysis
from rooflens.records import StepTable

Times = Mapping[Regime, tuple[float, float]]
NEEDED = ("kind", "requests", "context_tokens")
WINDOW_STEPS = 50  # of a recording: as many as a window of a live engine has at the least


def times_of(table: StepTable, analysis: StepAnalysis | None) -> Times:
    """(observed, reachable) seconds of each regime among the compared steps.

    Empty where what is reachable is not known, or where the steps together were faster than possible: a wrong roof or
    a wrong clock teaches nothing.
    """
    if analysis is None or analysis.reachable_s is None or not all(name in table.columns for name in NEEDED):
        return {}
    compared = analysis.compared
    if float(analysis.observed_s[compared].sum()) < float(analysis.floor_s[compared].sum()):
        return {}
    return window_times(table, np.where(compared, analysis.observed_s, np.nan), analysis.reachable_s)


def learned_from(table: StepTable, analysis: StepAnalysis | None) -> Correction:
    """What a whole recording teaches, in windows of WINDOW_STEPS; a last, shorter one is left out."""
    correction = Correction()
    if analysis is None or analysis.reachable_s is None:
        return correction
    chosen = {name: table.columns[name] for name in (*NEEDED, "resolution_steps") if name in table.columns}
    masks = {name: table.known[name] for name in chosen if name in table.known}
    for end in range(WINDOW_STEPS, len(table) + 1, WINDOW_STEPS):
        rows = slice(end - WINDOW_STEPS, end)
        part = StepTable({n: c[rows] for n, c in chosen.items()}, {n: mask[rows] for n, mask in masks.items()})
        beside = replace(
            analysis,
            compared=analysis.compared[rows],
            observed_s=analysis.observed_s[rows],
            floor_s=analysis.floor_s[rows],
            reachable_s=analysis.reachable_s[rows],
        )
        correction = correction.learned(times_of(part, beside))
    return correction


def regime_figures(correction: Correction) -> tuple[RegimeFigures, ...]:
    """Every regime that was seen, in order of phase, batch and context."""
    return tuple(
        RegimeFigures(
            phase=regime.phase,
            batch_from=1 << regime.batch,
            batch_to=(2 << regime.batch) - 1,
            context_from=4**regime.context if regime.context else 0,
            context_to=4 ** (regime.context + 1) - 1,
            windows=len(ratios),
            ready=correction.ready(regime),
            ratio=correction.factor(regime),
            error_ratio=correction.error_ratio(regime),
        )
        for regime, ratios in sorted(correction.ratios.items())
    )


def with_usual(figures: WindowFigures, times: Times, correction: Correction) -> WindowFigures:
    """``figures`` with what each kind of its steps usually takes: reachable time, each regime by its own ratio.

    ``times`` are those of the same window, ``correction`` what earlier ones taught. None for a kind of which a regime
    is not ready, or of which a step tells of no regime.
    """
    return replace(
        figures,
        kinds={
            name: replace(kind, usual_s=_usual_s(kind.reachable_s, name, times, correction))
            for name, kind in figures.kinds.items()
        },
    )


def _usual_s(reachable_s: float | None, phase: str, times: Times, correction: Correction) -> float | None:
    parts = {regime: seconds[1] for regime, seconds in times.items() if regime.phase == phase}
    factors = {regime: correction.factor(regime) for regime in parts}
    if reachable_s is None or not math.isclose(sum(parts.values()), reachable_s, rel_tol=1e-6):
        return None
    known = [factor * parts[regime] for regime, factor in factors.items() if factor is not None]
    return sum(known) if len(known) == len(parts) else None
