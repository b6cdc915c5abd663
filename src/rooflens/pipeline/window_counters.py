"""The counters beside an engine's windows: joined when a window closes, and again as later samples cover more of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rooflens.device_records import WindowCounters
from rooflens.live_records import Window, WindowFigures
from rooflens.model_records import StepAnalysis
from rooflens.records import StepTable

COVERED_RATIO = 0.999  # of a window: no later sample would tell more of it
CountersOf = Callable[[float, float, StepTable, NDArray[Any]], WindowCounters | None]
Apportioned = Callable[[], NDArray[Any] | None]
ApportionedOf = Callable[[StepTable, StepAnalysis | None], Apportioned | None]


def step_bytes(steps: StepTable, analysis: StepAnalysis | None) -> NDArray[Any]:
    """The DRAM bytes that the model says each step moves, all devices together; NaN where it is not modelled."""
    if analysis is None:
        return np.full(len(steps), np.nan)
    moved = sum(analysis.group_bytes.values(), start=np.zeros(len(steps)))  # states and gathered rows included
    return np.where(analysis.modelled, moved, np.nan)


@dataclass(frozen=True, slots=True)
class _Joined:
    """What a window is joined by."""

    start_monotonic_s: float
    end_monotonic_s: float
    steps: StepTable
    bytes: NDArray[Any]


class CountedWindows:
    """The kept windows of one engine with what they are joined by; ``counters_of`` joins one.

    ``apportioned_of`` shares out over steps what was counted while they ran.
    """

    def __init__(self, most: int) -> None:
        self.counters_of: CountersOf | None = None
        self.apportioned_of: ApportionedOf | None = None
        self._joined: deque[_Joined] = deque(maxlen=most)

    def counters(
        self, start_s: float, end_s: float, steps: StepTable, analysis: StepAnalysis | None
    ) -> WindowCounters | None:
        """Those of a window that closes now, None where no device and no process is known."""
        self._joined.append(_Joined(start_s, end_s, steps, step_bytes(steps, analysis)))
        return self._of(self._joined[-1])

    def again(
        self, windows: Sequence[Window], figures: Sequence[WindowFigures]
    ) -> tuple[tuple[Window, ...], tuple[WindowFigures, ...]]:
        """The kept windows, before a new one closes, with the counters of those that were not covered joined anew."""
        if self.counters_of is None:
            return tuple(windows), tuple(figures)
        new_windows, new_figures = list(windows), list(figures)
        for at, joined in enumerate(self._joined):
            had = windows[at].counters
            if had is not None and had.covered_ratio >= COVERED_RATIO:
                continue
            found = self._of(joined)
            if found is not None and found.covered_ratio > (had.covered_ratio if had else -1.0):
                new_windows[at] = replace(windows[at], counters=found)
                new_figures[at] = replace(figures[at], counters=found)
        return tuple(new_windows), tuple(new_figures)

    def apportioned(self, steps: StepTable, analysis: StepAnalysis | None) -> Apportioned | None:
        """How to work out what the devices counted, shared out over these steps; None where nothing of it is known."""
        return None if self.apportioned_of is None else self.apportioned_of(steps, analysis)

    def _of(self, joined: _Joined) -> WindowCounters | None:
        if self.counters_of is None:
            return None
        return self.counters_of(joined.start_monotonic_s, joined.end_monotonic_s, joined.steps, joined.bytes)
