"""Steps cut into windows: tumbling, by the time of their output, the same however the steps were read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rooflens.collector.tables import concatenated
from rooflens.live_records import Derived
from rooflens.protocols import Batch
from rooflens.records import RingEvent, StepTable

MOST_COMPLAINTS = 16  # kept of one window; a source that finds fault with everything must not fill the memory


@dataclass(frozen=True, slots=True)
class WindowSettings:
    """When a window closes: at ``window_s`` seconds and ``least_steps`` steps, in any case at the two upper limits."""

    window_s: float = 10.0
    least_steps: int = 50
    most_window_s: float = 60.0
    most_steps: int = 5000


@dataclass(frozen=True, slots=True)
class Stretch:
    """A closed window before anything is computed of it; ``whole`` as in live_records.Window."""

    steps: StepTable
    start_monotonic_s: float
    end_monotonic_s: float
    events: tuple[RingEvent, ...]
    lost_steps: int
    torn_steps: int
    derived: tuple[Derived, ...]
    complaints: tuple[str, ...]
    whole: bool


@dataclass(slots=True)
class _Beside:
    """What came with the steps and belongs to the window that is open when it is read."""

    events: list[RingEvent] = field(default_factory=list)
    lost_steps: int = 0
    torn_steps: int = 0
    derived: dict[str, Derived] = field(default_factory=dict)
    complaints: dict[str, None] = field(default_factory=dict)


class WindowBuilder:
    """Cuts the steps of one run of one engine; another run needs another builder, so no window mixes two.

    A window begins where the one before it ended, or with its first step where that is longer ago than a window may
    last. It ends with the step that makes it long enough; one that stays open for ``most_window_s`` ends there.
    """

    def __init__(self, settings: WindowSettings) -> None:
        self._settings = settings
        self._parts: list[StepTable] = []
        self._count = 0
        self._start_s = 0.0
        self._ended_s: float | None = None
        self._beside = _Beside()

    def add(self, batch: Batch) -> list[Stretch]:
        """Take what one read brought; the windows that it completes."""
        beside = self._beside
        beside.events += batch.events
        beside.lost_steps += batch.lost_steps
        beside.torn_steps += batch.torn_steps
        beside.derived |= {value.name: value for value in batch.derived}
        beside.complaints |= dict.fromkeys(batch.complaints[:MOST_COMPLAINTS])
        return list(self._cut(batch.steps)) if len(batch.steps) else []

    def advance(self, now_monotonic_s: float) -> list[Stretch]:
        """Close the open window if it has been open for too long; for an engine that makes no steps."""
        late = self._count and now_monotonic_s - self._start_s >= self._settings.most_window_s
        return [self._close(self._start_s + self._settings.most_window_s, whole=False)] if late else []

    def flush(self) -> list[Stretch]:
        """Close what is open: the engine has ended."""
        if not self._count:
            return []
        return [self._close(float(self._parts[-1]["output_monotonic_s"][-1]), whole=False)]

    def _cut(self, steps: StepTable) -> Iterator[Stretch]:
        outputs = steps["output_monotonic_s"].astype(np.float64)
        sizes = steps["resolution_steps"] if "resolution_steps" in steps.columns else np.ones(len(steps), np.int64)
        ordinals = np.cumsum(sizes)
        at = 0
        while at < len(steps):
            before = int(ordinals[at - 1]) if at else 0
            if not self._count:
                self._open(steps, at)
            end, end_s, whole = self._end_of(outputs[at:], ordinals[at:] - before)
            if end:
                self._parts.append(steps if end == len(steps) else steps.take(np.arange(at, at + end)))
                self._count += int(ordinals[at + end - 1]) - before
            if end_s is not None:
                yield self._close(end_s, whole)
            at += end

    def _open(self, steps: StepTable, at: int) -> None:
        output_s = float(steps["output_monotonic_s"][at])
        begun_s = output_s
        if "submit_monotonic_s" in steps.columns and bool(steps.where("submit_monotonic_s")[at]):
            begun_s = min(output_s, float(steps["submit_monotonic_s"][at]))
        follows = self._ended_s is not None and output_s - self._ended_s < self._settings.most_window_s
        self._start_s = self._ended_s if self._ended_s is not None and follows else begun_s

    def _end_of(self, outputs: NDArray[Any], ordinals: NDArray[Any]) -> tuple[int, float | None, bool]:
        """How many of the rows the open window takes, when it then ends (None: not yet), and whether it is whole."""
        limits = self._settings
        ages, counts = outputs - self._start_s, self._count + ordinals
        enough = ((ages >= limits.window_s) & (counts >= limits.least_steps)) | (counts >= limits.most_steps)
        late = np.flatnonzero(ages >= limits.most_window_s)[:1].tolist()
        done = np.flatnonzero(enough)[:1].tolist()
        if late and (not done or late[0] <= done[0]):
            if not self._count and not late[0]:  # one step that lasted longer than a window may
                return 1, float(outputs[0]), False
            return late[0], self._start_s + limits.most_window_s, False
        if done:
            return done[0] + 1, float(outputs[done[0]]), True
        return len(outputs), None, False

    def _close(self, end_s: float, whole: bool) -> Stretch:
        beside, self._beside = self._beside, _Beside()
        self._beside.events = [event for event in beside.events if event.monotonic_s > end_s]
        stretch = Stretch(
            steps=concatenated(self._parts),
            start_monotonic_s=self._start_s,
            end_monotonic_s=end_s,
            events=tuple(event for event in beside.events if event.monotonic_s <= end_s),
            lost_steps=beside.lost_steps,
            torn_steps=beside.torn_steps,
            derived=tuple(beside.derived.values()),
            complaints=tuple(beside.complaints)[:MOST_COMPLAINTS],
            whole=whole,
        )
        self._parts, self._count, self._ended_s = [], 0, end_s
        return stretch


def last_rows(tables: Sequence[StepTable], most: int) -> StepTable:
    """The last ``most`` rows of tables that follow each other."""
    kept: list[StepTable] = []
    missing = most
    for table in reversed(tables):
        if missing <= 0:
            break
        kept.append(table if len(table) <= missing else table.take(np.arange(len(table) - missing, len(table))))
        missing -= len(kept[-1])
    return concatenated(kept[::-1])
