"""When the steps of an engine moved their bytes, as cumulative sums: as it most likely was, and as it may have been."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rooflens.records import StepTable

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

SHORTEST_S = 1e-6  # a step takes time: what is spread over it needs some to be spread over


@dataclass(frozen=True, slots=True)
class StepTimes:
    """When each row's memory traffic was: in [begin_s, end_s], certainly in [first_s, end_s] of the monotonic clock.

    A step is busy for ``observed_s`` before its output, where that is known, else from its submit on; it may have moved
    bytes since its submit, as its output is seen a little after the device began the next one. A row that stands for
    several steps spans its interval, and the first of them may have begun one mean step before.
    """

    begin_s: Floats
    end_s: Floats
    first_s: Floats

    def busy_between(self, start_s: Floats, end_s: Floats) -> Mask:
        """Whether a step may have been under way at some moment of each interval; shape of ``start_s``."""
        begun = np.searchsorted(np.sort(self.first_s), end_s, side="right")
        ended = np.searchsorted(np.sort(self.end_s), start_s, side="left")
        busy: Mask = begun > ended
        return busy


def step_times(steps: StepTable) -> StepTimes:
    """The times of every row of ``steps``, which knows its outputs at least."""
    end = steps["output_monotonic_s"].astype(np.float64)
    latest = end - SHORTEST_S
    submit = _known_or(steps, "submit_monotonic_s", np.nan)
    observed = _known_or(steps, "observed_s", np.nan)
    several = _known_or(steps, "resolution_steps", 1.0)
    begin = np.where(np.isnan(observed) | (several > 1), submit, end - observed)
    begin = np.fmin(np.where(np.isnan(begin), end - observed, begin), latest)
    first = np.fmin(submit, begin)
    first = np.where(several > 1, first - (end - first) / np.maximum(several, 1.0), first)
    return StepTimes(begin, end, first)


def _known_or(steps: StepTable, name: str, otherwise: float) -> Floats:
    if name not in steps.columns:
        return np.full(len(steps), otherwise)
    column: Floats = steps[name].astype(np.float64)
    return column if name not in steps.known else np.where(steps.known[name], column, otherwise)


def lost_between(steps: StepTable, times: StepTimes, start_s: float) -> tuple[Floats, Floats]:
    """Where steps were lost: from the output before to the submit of each row whose beginning is therefore not known.

    A hook knows when a step began unless the one before it was lost; ``start_s`` stands for the output before the
    first row. Empty where no row tells when it began.
    """
    several = _known_or(steps, "resolution_steps", 1.0)
    told = steps.where("observed_s")
    rows = np.flatnonzero(~told & (several <= 1)) if bool(told.any()) else np.empty(0, np.int64)
    before = np.concatenate(([start_s], np.maximum.accumulate(times.end_s)[:-1])) if len(steps) else np.empty(0)
    begin, end = before[rows], times.begin_s[rows]
    kept = end - begin > SHORTEST_S
    return begin[kept], end[kept]


class Ramp:
    """The running sum of amounts that are each spread evenly over an interval; the intervals may overlap."""

    def __init__(self, begin_s: Floats, end_s: Floats, amount: Floats) -> None:
        rate = amount / (end_s - begin_s)
        at = np.concatenate((begin_s, end_s))
        order = np.argsort(at, kind="stable")
        self._at: Floats = at[order]
        slope = np.cumsum(np.concatenate((rate, -rate))[order])
        risen = np.cumsum(slope[:-1] * np.diff(self._at))
        self._sum: Floats = np.concatenate(([0.0], risen)) if len(at) else np.zeros(0)

    def __call__(self, at_s: Floats) -> Floats:
        """How much lies before each moment."""
        if not len(self._at):
            return np.zeros(np.shape(at_s))
        return np.interp(at_s, self._at, self._sum)


class _Passed:
    """The running sum of amounts that each count as a whole at one moment."""

    def __init__(self, at_s: Floats, amount: Floats) -> None:
        order = np.argsort(at_s, kind="stable")
        self._at: Floats = at_s[order]
        self._sum: Floats = np.concatenate(([0.0], np.cumsum(amount[order])))

    def up_to(self, at_s: Floats) -> Floats:
        found: Floats = self._sum[np.searchsorted(self._at, at_s, side="right")]
        return found

    def before(self, at_s: Floats) -> Floats:
        found: Floats = self._sum[np.searchsorted(self._at, at_s, side="left")]
        return found


class StepTraffic:
    """The model's bytes of an engine's steps, over all devices together, over time.

    Steps are known from ``start_s`` to the last output. ``peak_bytes_per_s`` is the highest rate of all devices
    together: bytes that are not modelled, or not known to have been moved at all, are no more than it allows.
    """

    def __init__(
        self, times: StepTimes, step_bytes: Floats, lost: tuple[Floats, Floats], start_s: float, peak_bytes_per_s: float
    ) -> None:
        begin, end, first = (np.concatenate(pair) for pair in (
            (times.begin_s, lost[0]), (times.end_s, lost[1]), (times.first_s, lost[0])
        ))  # fmt: skip
        moved = np.concatenate((step_bytes, np.full(len(lost[0]), np.nan)))
        modelled = np.isfinite(moved)
        self.start_s = start_s
        self.end_s = float(times.end_s.max()) if len(times.end_s) else start_s
        self._peak = peak_bytes_per_s
        least = np.where(modelled, moved, 0.0)
        self._likely = Ramp(begin, end, least)
        self._begun = [_Passed(first, least)] * 2
        self._ended = [_Passed(end, least)] * 2
        self._busy: tuple[Ramp, Ramp] | None = None
        if not modelled.all():
            unknown = ~modelled
            self._busy = (
                Ramp(begin, end, end - begin), Ramp(begin[unknown], end[unknown], (end - begin)[unknown])
            )  # fmt: skip
            most = np.where(modelled, moved, peak_bytes_per_s * (end - first))
            self._begun[1], self._ended[1] = _Passed(first, most), _Passed(end, most)

    def likely_bytes(self, at_s: Floats) -> Floats:
        """The bytes before each moment, those of a step spread evenly over its busy time."""
        return self._likely(at_s)

    def unmodelled_ratio(self, starts_s: Floats, ends_s: Floats) -> float:
        """The share of the steps' time in these intervals whose bytes are not modelled, or lost."""
        if self._busy is None:
            return 0.0
        busy_s, unknown_s = (float((ramp(ends_s) - ramp(starts_s)).sum()) for ramp in self._busy)
        return min(unknown_s / busy_s, 1.0) if busy_s > 0 else 0.0

    def begun_bytes(self, at_s: Floats, most: bool) -> Floats:
        """The bytes of all steps that may have begun before each moment; with ``most`` of those not seen as well."""
        begun = self._begun[most].before(at_s)
        return begun + self._peak * np.maximum(at_s - self.end_s, 0.0) if most else begun

    def ended_bytes(self, at_s: Floats, most: bool) -> Floats:
        """The bytes of all steps that had ended by each moment; with ``most``, less those that may not be seen."""
        ended = self._ended[most].up_to(at_s)
        return ended - self._peak * np.maximum(self.start_s - at_s, 0.0) if most else ended

    def bounds(self, starts_s: Floats, ends_s: Floats) -> tuple[float, float]:
        """The least and most bytes in these intervals: every step across an end all out, and all in."""
        least = self.ended_bytes(ends_s, most=False) - self.begun_bytes(starts_s, most=False)
        most = self.begun_bytes(ends_s, most=True) - self.ended_bytes(starts_s, most=True)
        return float(np.maximum(least, 0.0).sum()), float(most.sum())


def as_floats(values: NDArray[Any] | None, count: int) -> Floats:
    """``values`` as float64; NaN, not known, for each of ``count`` without them."""
    return np.full(count, np.nan) if values is None else values.astype(np.float64)
