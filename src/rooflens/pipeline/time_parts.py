"""Where every second goes that an engine is watched; the parts add up to the time watched, whatever comes in."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rooflens.analyzer.sums import filled, split_intervals, steps_of
from rooflens.model_records import Bound, StepAnalysis
from rooflens.records import StepTable

BOUND_PARTS = {Bound.MEMORY: "memory", Bound.COMPUTE: "compute", Bound.LINK: "link"}
QUEUES = ("running", "waiting", "deferred")
CLOCK_S = 1e-9  # what the clocks resolve: less is rounding
Column = NDArray[Any]


class TimeParts:
    """Splits the time from ``from_monotonic_s`` on into catalogue.TIME_PARTS, read by read."""

    def __init__(self, from_monotonic_s: float, before: StepTable, intervals: bool = False) -> None:
        """``before`` are the steps before that moment: the last one says whether requests were there.

        ``intervals`` is whether a row is not a step but all that happened from one reading of a page to the next.
        """
        self.until_s = from_monotonic_s
        self._intervals = intervals
        self._empty = leaves_nothing(before)[-1].item() if len(before) else not intervals

    def add(self, steps: StepTable, analysis: StepAnalysis | None) -> dict[str, float]:
        """Seconds by part of the time up to the last of these steps' output; ``analysis`` is theirs row by row.

        A part that the source or the analysis does not tell is left out.
        """
        if not len(steps):
            return {}
        if self._intervals and len(steps) == 1 and (parts := self._add_one(steps, analysis)) is not None:
            return parts
        output = np.maximum.accumulate(np.maximum(steps["output_monotonic_s"].astype(np.float64), self.until_s))
        previous = np.concatenate(([self.until_s], output[:-1]))
        self.until_s = float(output[-1])
        timed = steps.where("observed_s")
        observed = np.where(timed, np.maximum(filled(steps, "observed_s"), 0.0), 0.0)
        if self._intervals or bool((steps_of(steps) > 1).any()):
            begun = np.clip(_submits(steps, previous), previous, output)
            busy, idle, unknown = split_intervals(steps, begun, output)
            parts = _by_bound(busy, observed, analysis)
            parts["not_recorded"] = float((unknown + begun - previous).sum())
            self._empty = False  # what comes after a reading, the next one tells
            return parts | _idle(steps, float(idle.sum()))
        empty = leaves_nothing(steps)
        resting = np.concatenate(([self._empty], empty[:-1]))
        self._empty = bool(empty[-1])
        busy = np.minimum(observed, output - previous)  # of a step that had begun before we watched, from then on
        gap = output - previous - busy
        parts = _by_bound(busy, observed, analysis)
        parts["not_recorded"] = float(gap[~timed].sum())
        parts["between_steps"] = float(gap[timed & ~resting].sum())
        return parts | _idle(steps, float(gap[timed & resting].sum()))

    def _add_one(self, steps: StepTable, analysis: StepAnalysis | None) -> dict[str, float] | None:
        """As ``add`` of one interval, which is what a page brings in a turn; None where its figures are odd."""
        output_s, observed_s = float(steps["output_monotonic_s"][0]), _only(steps, "observed_s")
        submit_s = _only(steps, "submit_monotonic_s")
        floor_s = float(analysis.floor_s[0]) if analysis is not None and analysis.compared[0] else 0.0
        if not all(map(math.isfinite, (output_s, observed_s or 0.0, submit_s or 0.0, floor_s))):
            return None
        previous_s, observed_s = self.until_s, None if observed_s is None else max(observed_s, 0.0)
        self.until_s = output_s = max(output_s, previous_s)
        begun_s = previous_s if submit_s is None else min(max(submit_s, previous_s), output_s)
        busy_s = min(observed_s or 0.0, output_s - begun_s)
        running = _only(steps, "running")
        empty = observed_s is not None and running == 0
        empty = empty and not any(_only(steps, name) for name in QUEUES)
        rest_s = output_s - begun_s - busy_s
        parts = _one_by_bound(busy_s, observed_s or 0.0, floor_s, analysis)
        parts["not_recorded"] = (0.0 if empty else rest_s) + begun_s - previous_s
        self._empty = False
        idle_s = rest_s if empty else 0.0
        return parts | ({"idle": idle_s} if idle_s > CLOCK_S or running is not None else {})

    def rest_until(self, until_monotonic_s: float, sure: bool = False) -> dict[str, float]:
        """Idle seconds up to a moment before which no step began; ``sure`` that no request was there either."""
        if not (self._empty or sure) or until_monotonic_s <= self.until_s:
            return {}
        idle_s, self.until_s = until_monotonic_s - self.until_s, until_monotonic_s
        return {"idle": idle_s}

    def end_at(self, now_monotonic_s: float) -> dict[str, float]:
        """The engine is gone: what happened since its last step was not recorded, unless there was nothing to do."""
        rest_s, self.until_s = max(0.0, now_monotonic_s - self.until_s), max(self.until_s, now_monotonic_s)
        return {"idle" if self._empty else "not_recorded": rest_s}


def _idle(steps: StepTable, idle_s: float) -> dict[str, float]:
    """The idle time, of an engine that tells of its queue: of another there may have been more."""
    return {"idle": idle_s} if idle_s > CLOCK_S or steps.where("running").any() else {}


def _by_bound(busy: Column, observed: Column, analysis: StepAnalysis | None) -> dict[str, float]:
    if analysis is None:
        return {"not_modelled": float(busy.sum())}
    compared = analysis.compared
    floor = np.minimum(np.where(compared, analysis.floor_s, 0.0), observed)
    share = np.divide(busy, observed, out=np.zeros(len(busy)), where=observed > 0)
    parts = {name: float((floor * share)[compared & (analysis.bound == b)].sum()) for b, name in BOUND_PARTS.items()}
    if not analysis.compute_known:
        del parts["compute"]
    parts["beyond_floor"] = float(((observed - floor) * share)[compared].sum())
    parts["not_modelled"] = float(busy[~compared].sum())
    return parts


def _one_by_bound(busy_s: float, observed_s: float, floor_s: float, analysis: StepAnalysis | None) -> dict[str, float]:
    """As _by_bound, of one row."""
    if analysis is None or not analysis.compared[0]:
        parts = {} if analysis is None else dict.fromkeys((*BOUND_PARTS.values(), "beyond_floor"), 0.0)
        parts["not_modelled"] = busy_s
    else:
        share, floor_s = busy_s / observed_s if observed_s > 0 else 0.0, min(floor_s, observed_s)
        bound = analysis.bound[0]
        parts = {name: floor_s * share if bound == b else 0.0 for b, name in BOUND_PARTS.items()}
        parts |= {"beyond_floor": (observed_s - floor_s) * share, "not_modelled": 0.0}
    if analysis is not None and not analysis.compute_known:
        del parts["compute"]
    return parts


def _only(steps: StepTable, name: str) -> float | None:
    """The figure of the only row; None where it is not known."""
    column, known = steps.columns.get(name), steps.known.get(name)
    return None if column is None or (known is not None and not known[0]) else float(column[0])


def _submits(steps: StepTable, otherwise: Column) -> Column:
    if "submit_monotonic_s" not in steps.columns:
        return otherwise
    return np.where(steps.where("submit_monotonic_s"), steps["submit_monotonic_s"], otherwise)


def leaves_nothing(steps: StepTable) -> NDArray[np.bool_]:
    """After which steps no request was left, as far as the engine tells its whole queue."""
    nothing = np.ones(len(steps), dtype=bool)
    for name in QUEUES:
        nothing &= steps.where(name) & (steps[name] == 0) if name in steps.columns else False
    return nothing
