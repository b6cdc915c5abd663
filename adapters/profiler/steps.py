"""A capture as steps: for each process and device when a step's work began and ended, and what it was spent on.

Work belongs to the step in whose range it was launched, or that began last before its launch: engines sample after
their range has ended. A step is there from its first kernel to its last; copies may run ahead of it on a stream of
their own and do not move its ends. Time in which several things run at once counts once: for kernels that compute
before collectives, for these before copies, so collectives and copies count where nothing hides them. Where no device
worked, operators on the host stand in, and those that belong to no class come last.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rooflens.adapters.profiler.boundaries import SGLANG, SGLANG_BATCH
from rooflens.adapters.profiler.capture import FEWER, HOST, MOST_INTERVALS, Capture, Range, Work
from rooflens.adapters.profiler.kernels import CLASSES, COLLECTIVES, COPIES, OTHER
from rooflens.records import RooflensError

if TYPE_CHECKING:
    from numpy.typing import NDArray

AFTER_RATIO = 1.0  # of a range's duration: what is launched so long after its end is still of its step
SHORTEST_GAP_S = 5e-6  # kernels that follow each other are a microsecond or two apart
_DEVICE_LEVELS = {COLLECTIVES: 1, COPIES: 2}
_HOST_LEVELS = {**_DEVICE_LEVELS, OTHER: 3}


@dataclass(frozen=True, slots=True)
class Track:
    """The steps of one process on one device, in order: arrays of shape (steps,), seconds after Capture's second 0.

    ``class_s`` has shape (steps, len(CLASSES)) and sums to ``busy_s``; ``summed_s`` (len(CLASSES),) counts kernels
    that ran at once each. Without any work in the file both are zero, ``worked`` is False, and the times are those of
    the range.
    """

    process: str
    device: int
    ranges: Sequence[Range]
    begin_s: NDArray[np.float64]
    end_s: NDArray[np.float64]
    busy_s: NDArray[np.float64]
    longest_gap_s: NDArray[np.float64]
    gaps: NDArray[np.int64]
    kernels: NDArray[np.int64]
    class_s: NDArray[np.float64]
    summed_s: NDArray[np.float64]
    worked: bool
    empty: int
    without_work: int

    def __len__(self) -> int:
        return len(self.begin_s)

    @property
    def family(self) -> int:
        """Whose ranges these are, an index of boundaries.FAMILIES."""
        return self.ranges[0].boundary.family


@dataclass(frozen=True, slots=True)
class _Work:
    """Work as arrays, in the order of its start."""

    process: NDArray[np.int32]
    device: NDArray[np.int32]
    start_s: NDArray[np.float64]
    end_s: NDArray[np.float64]
    launch_s: NDArray[np.float64]
    kind: NDArray[np.int8]

    def take(self, rows: NDArray[np.bool_]) -> _Work:
        """Those that are chosen."""
        if rows.all():
            return self
        return _Work(*(getattr(self, name)[rows] for name in self.__slots__))


@dataclass(frozen=True, slots=True)
class _Spent:
    """What the fields of a Track of these names are."""

    busy_s: NDArray[np.float64]
    longest_gap_s: NDArray[np.float64]
    gaps: NDArray[np.int64]
    kernels: NDArray[np.int64]
    class_s: NDArray[np.float64]
    summed_s: NDArray[np.float64]


def tracks_of(capture: Capture) -> list[Track]:
    """The steps of each process and device that has any; empty where the file holds no range of a step.

    RooflensError where no device worked and there were too many operators to keep.
    """
    on_device = len(capture.kernels) > 0
    if not on_device and capture.operators_dropped:
        raise RooflensError(f"more than {MOST_INTERVALS:,} kernels or operators: {FEWER}")
    work = _arrays(capture.kernels if on_device else capture.operators, capture if on_device else None)
    found = []
    for process in sorted({one.process for one in capture.ranges}):
        ranges = _ranges_of(capture.ranges, process)
        own = work.take(work.process == process)
        devices = sorted({int(device) for device in np.unique(own.device)}) or [HOST]
        for device in devices:
            track = _track(capture.processes[process], device, ranges, own.take(own.device == device))
            if len(track):
                found.append(track)
    return found


def _arrays(work: Work, launched: Capture | None) -> _Work:
    start = _column(work.start_s, np.float64)
    order = np.argsort(start, kind="stable")
    process, start = _column(work.process, np.int32)[order], start[order]
    launch = start
    if launched is not None and len(launched.launch_s):
        launch = _launch_times(launched, process, _column(work.correlation, np.int64)[order], start)
    device, kind = _column(work.device, np.int32)[order], _column(work.kernel_class, np.int8)[order]
    return _Work(process, device, start, _column(work.end_s, np.float64)[order], launch, kind)


def _column(values: array[Any], kind: Any) -> NDArray[Any]:
    """The same memory as an array, for there may be millions."""
    return np.frombuffer(values, dtype=kind) if len(values) else np.zeros(0, dtype=kind)


def _launch_times(
    capture: Capture, process: NDArray[Any], correlation: NDArray[np.int64], start: NDArray[np.float64]
) -> NDArray[np.float64]:
    """When each was launched; its own start where that is not known."""
    correlations = _column(capture.launch_correlation, np.int64)
    # One number for a pair: the rank of the correlation, in a block of its process.
    numbers = np.unique(correlations)
    known = _column(capture.launch_process, np.int32) * np.int64(len(numbers)) + np.searchsorted(numbers, correlations)
    order = np.argsort(known, kind="stable")
    known = known[order]
    rank = np.minimum(np.searchsorted(numbers, correlation), len(numbers) - 1)
    hit = (correlation > 0) & (numbers[rank] == correlation)
    wanted = process * np.int64(len(numbers)) + rank
    at = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
    hit &= known[at] == wanted
    return np.where(hit, _column(capture.launch_s, np.float64)[order[at]], start)


def _ranges_of(ranges: Sequence[Range], process: int) -> list[Range]:
    """The ranges of the family that tells most, in order, none within another."""
    own = [one for one in ranges if one.process == process]
    family = min(one.boundary.family for one in own)
    chosen: list[Range] = []
    outer = sorted(one.start_s for one in own if one.boundary.family == SGLANG_BATCH) if family == SGLANG else []
    last_outer = -1
    for one in sorted((one for one in own if one.boundary.family == family), key=lambda one: (one.start_s, -one.end_s)):
        inside = bisect_right(outer, one.start_s)
        if chosen and one.end_s <= chosen[-1].end_s:
            continue
        if chosen and inside and inside == last_outer:  # a pass that is cut into several graphs
            chosen[-1] = Range(process, chosen[-1].start_s, one.end_s, chosen[-1].boundary)
            continue
        last_outer = inside
        chosen.append(one)
    return chosen


def _track(process: str, device: int, ranges: Sequence[Range], work: _Work) -> Track:
    """The steps; windows of empty ones end the steps before them."""
    starts = np.array([one.start_s for one in ranges])
    ends = np.array([one.end_s for one in ranges])
    empty = np.array([one.boundary.empty for one in ranges])
    begin, end = starts.copy(), ends.copy()
    seen = np.ones(len(ranges), dtype=bool)
    if len(work.start_s):
        owner = np.searchsorted(starts, work.launch_s, side="right") - 1
        late = work.launch_s > (ends + AFTER_RATIO * (ends - starts))[owner]
        mine = (owner >= 0) & ~late & ((work.kind != COPIES) | (device == HOST))
        begin = np.full(len(ranges), np.inf)
        np.minimum.at(begin, owner[mine], work.start_s[mine])
        end = np.full(len(ranges), -np.inf)
        np.maximum.at(end, owner[mine], work.end_s[mine])
        seen = np.isfinite(begin)
        if device == HOST:  # Python between the operators is the step's own
            begin, end = starts.copy(), np.maximum(ends, end)
            seen[:] = True
    rows = np.flatnonzero(seen & ~empty)
    begin = np.maximum.accumulate(begin[rows])
    end = np.maximum(np.minimum(end[rows], np.append(begin[1:], np.inf)), begin)
    spent = _spent(work, begin, end, _HOST_LEVELS if device == HOST else _DEVICE_LEVELS)
    return Track(
        process,
        device,
        [one for one, kept in zip(ranges, seen & ~empty, strict=True) if kept],
        begin,
        end,
        spent.busy_s,
        spent.longest_gap_s,
        spent.gaps,
        spent.kernels,
        spent.class_s,
        spent.summed_s,
        worked=len(work.start_s) > 0,
        empty=int(empty.sum()),
        without_work=int((~seen & ~empty).sum()),
    )


def _spent(work: _Work, begin: NDArray[np.float64], end: NDArray[np.float64], levels: dict[int, int]) -> _Spent:
    """Busy seconds, the longest gap, gaps, kernels and seconds by class of each step, and the sums of kernels."""
    steps, classes = len(begin), len(CLASSES)
    if not steps or not len(work.start_s):
        floats, counts = np.zeros(steps), np.zeros(steps, dtype=np.int64)
        return _Spent(floats, floats.copy(), counts, counts.copy(), np.zeros((steps, classes)), np.zeros(classes))
    row: NDArray[Any] = np.searchsorted(begin, work.start_s, side="right") - 1
    inside = (row >= 0) & (work.start_s < end[np.maximum(row, 0)])
    own = work.take(inside)
    row = row[inside]
    stop = np.minimum(own.end_s, end[row])
    level = np.array([levels.get(number, 0) for number in range(classes)])[own.kind]
    class_s = np.zeros((steps, classes))
    before: NDArray[Any] = np.zeros(steps)
    union: NDArray[Any]
    for number in range(max(levels.values()) + 1):
        chosen = level <= number
        new_s = _uncovered(own.start_s[chosen], stop[chosen])
        union = np.bincount(row[chosen], new_s, steps)
        if number == 0:
            flat = np.bincount(row[chosen] * classes + own.kind[chosen], new_s, steps * classes)
            class_s += flat.reshape(steps, classes)
        else:
            (kind,) = (kind for kind, its in levels.items() if its == number)
            class_s[:, kind] += np.maximum(union - before, 0.0)
        before = union
    gap: NDArray[Any] = _gaps(own.start_s, stop, row)
    longest: NDArray[Any] = np.zeros(steps)
    np.maximum.at(longest, row, gap)
    gaps = np.bincount(row[gap >= SHORTEST_GAP_S], minlength=steps)
    summed = np.bincount(own.kind, stop - own.start_s, classes).astype(np.float64)
    return _Spent(before, longest, gaps, np.bincount(row, minlength=steps), class_s, summed)


def _uncovered(start: NDArray[np.float64], stop: NDArray[np.float64]) -> NDArray[np.float64]:
    """Of each interval, sorted by start, what none of those before it covers."""
    if not len(start):
        return start
    covered = np.concatenate([[-np.inf], np.maximum.accumulate(stop)[:-1]])
    new_s: NDArray[np.float64] = np.maximum(stop - np.maximum(start, covered), 0.0)
    return new_s


def _gaps(start: NDArray[np.float64], stop: NDArray[np.float64], row: NDArray[np.int64]) -> NDArray[np.float64]:
    """Before each interval the time in which nothing ran since its step's first."""
    if not len(start):
        return start
    covered = np.concatenate([start[:1], np.maximum.accumulate(stop)[:-1]])
    first = np.concatenate([[True], row[1:] != row[:-1]])
    gaps: NDArray[np.float64] = np.where(first, 0.0, np.maximum(start - covered, 0.0))
    return gaps
