"""The bounds of the newest window: whether they are there, and whether what was observed is possible under them."""

from __future__ import annotations

from dataclasses import dataclass

from rooflens.analyzer.figures import MOST_BELOW_RATIO
from rooflens.analyzer.roofline import Roofline
from rooflens.analyzer.rules.answers import LEAST_STEPS, NO_HARDWARE, NO_MODEL
from rooflens.analyzer.rules.case import Case
from rooflens.analyzer.sums import steps_of
from rooflens.live_records import SourceKind
from rooflens.model_records import StepAnalysis

NOISE_RATIO = 0.03  # of the floor: clocks, and a roof that was measured on a machine that others use
LEAST_BELOW = 3  # single steps below the floor, so that one odd time stamp of a short window is none


@dataclass(frozen=True, slots=True)
class Below:
    """A window faster than possible: its time over its floor, rows below, and whether all of it together is."""

    ratio: float
    rows: int
    whole: bool


def below_floor(case: Case) -> Below | None:
    """How far the newest window lies below its floor; None where it does not, or where it cannot be told.

    It does where its steps together were faster by more than 3 %, or, of an engine whose steps cannot shorten each
    other, more than 2 % of them were.
    """
    window, figures = case.window, case.figures[-1] if case.figures else None
    if window is None or window.analysis is None or figures is None or figures.steps < LEAST_STEPS:
        return None
    if not figures.floor_s or not figures.compared_s:
        return None
    analysis, info = window.analysis, case.info
    ratio = figures.compared_s / figures.floor_s
    below = int((analysis.compared & (analysis.observed_s < analysis.floor_s * (1 - NOISE_RATIO))).sum())
    single = bool((steps_of(window.steps) == 1).all())
    synchronous = single and info is not None and info.async_scheduling is False and info.concurrent_batches == 1
    often = below >= max(LEAST_BELOW, MOST_BELOW_RATIO * float(analysis.compared.sum()))
    whole = ratio < 1 - NOISE_RATIO
    return Below(ratio, below, whole) if whole or (synchronous and often) else None


def bounds(case: Case) -> tuple[Roofline, StepAnalysis] | None:
    """What to decide and to price by; None where it is missing or does not fit, which ``no_roofline`` explains."""
    window = case.window
    if window is None or window.analysis is None or case.roofline is None or below_floor(case) is not None:
        return None
    return case.roofline, window.analysis


def no_roofline(case: Case) -> tuple[str, ...]:
    """What is missing for the bounds of the newest window; nothing where it has them and they fit."""
    if bounds(case) is not None:
        return ()
    if (below := below_floor(case)) is not None and case.roofline is not None:
        return (_that_fit(case, below),)
    missing = []
    if case.hardware is None:
        missing.append(NO_HARDWARE)
    if case.info is None or case.info.model_config is None:
        missing.append(NO_MODEL)
    window = case.window
    return tuple(missing) or (window.problem if window and window.problem else "the roofline of this engine",)


def _that_fit(case: Case, below: Below) -> str:
    """An engine with the hook states its model and formats, a page does not; what remains is the likely cause."""
    if case.hardware is not None and case.hardware.origin == "measured":
        cause = "the machine was measured while it was busy: measure it anew"
    elif case.window is not None and case.window.source is not SourceKind.RING:
        cause = "another --model, weights of fewer bits than its config states, or another --hardware"
    else:
        cause = "another --hardware"
    seen = f"took {below.ratio:.2f} times their floor" if below.whole else f"are below their floor {below.rows} times"
    return f"bounds that fit (the steps {seen}); likely {cause}"
