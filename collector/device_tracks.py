"""The samples of each device of an engine, in order, without the impossible ones, and what of a window they cover."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from rooflens.device_records import ClockJump, CounterSource, DeviceSample

Floats = NDArray[np.float64]
Intervals = list[tuple[float, float]]

MOST_RATIO = 1.05  # of a resource can be used, as far as a driver rounds; more is a fault of the counter
ADJOIN_S = 1e-3  # samples that lie this close follow each other: their ends were read one after the other
RATIOS = ("dram_ratio", "tensor_ratio", "sm_ratio", "sm_occupancy_ratio", "graphics_ratio", "kernel_ratio")
_ratios_of = attrgetter(*RATIOS)
_times_of = attrgetter("start_monotonic_s", "end_monotonic_s", "slack_s")


@dataclass(frozen=True, slots=True)
class Track:
    """The samples of one device, in order of time, none of which overlaps another; arrays of shape (samples,)."""

    uuid: str
    source: CounterSource
    samples: tuple[DeviceSample, ...]
    start_s: Floats
    end_s: Floats
    slack_s: Floats

    @classmethod
    def of(cls, uuid: str, samples: Sequence[DeviceSample]) -> Track:
        """The track of at least one sample; one that begins about when the one before it ended begins just then."""
        start, end, slack = np.array([_times_of(sample) for sample in samples], dtype=np.float64).T
        start[1:] = np.where(start[1:] - end[:-1] <= ADJOIN_S, end[:-1], start[1:])
        return cls(uuid, samples[0].source, tuple(samples), start, end, np.maximum(slack, 0.0))

    def follows(self) -> NDArray[np.bool_]:
        """Whether each sample but the first begins where the one before it ended; shape (samples - 1,)."""
        found: NDArray[np.bool_] = self.start_s[1:] == self.end_s[:-1]
        return found

    def runs(self) -> Intervals:
        """The stretches that are covered without a gap."""
        breaks = np.flatnonzero(~self.follows())
        starts = self.start_s[np.concatenate(([0], breaks + 1))]
        ends = self.end_s[np.concatenate((breaks, [len(self.end_s) - 1]))]
        return list(zip(starts.tolist(), ends.tolist(), strict=True))

    def take(self, rows: NDArray[np.bool_]) -> Track | None:
        """The samples chosen by a mask; None without any."""
        if rows.all():
            return self
        chosen = [sample for sample, kept in zip(self.samples, rows.tolist(), strict=True) if kept]
        if not chosen:
            return None
        return Track(
            self.uuid, self.source, tuple(chosen), self.start_s[rows], self.end_s[rows], self.slack_s[rows]
        )  # fmt: skip


def tracks_of(
    start_s: float, end_s: float, samples: Mapping[str, Sequence[DeviceSample]], jumps: Sequence[ClockJump] = ()
) -> tuple[tuple[Track, ...], tuple[str, ...]]:
    """The tracks of all devices that were sampled in a window, and in words which samples were left out and why.

    Of several sources of one device the one that CounterSource names first is taken. Left out are samples of no
    length, with a share that no counter can have, that overlap one before them, and those that span a suspend.
    """
    found, complaints = [], []
    for uuid in sorted(samples):
        near = [s for s in samples[uuid] if not (s.end_monotonic_s <= start_s or s.start_monotonic_s >= end_s)]
        if not near:
            continue
        order = list(CounterSource)
        source = min((sample.source for sample in near), key=order.index)
        faults: Counter[str] = Counter()
        kept = list(_kept([s for s in near if s.source is source], jumps, faults))
        complaints += [f"{_count(count)} of {uuid} left out: {fault}" for fault, count in faults.items()]
        if kept:
            found.append(Track.of(uuid, kept))
    return tuple(found), tuple(complaints)


def _count(count: int) -> str:
    return "1 sample" if count == 1 else f"{count} samples"


def _kept(samples: list[DeviceSample], jumps: Sequence[ClockJump], faults: Counter[str]) -> Iterator[DeviceSample]:
    suspends = [jump for jump in jumps if jump.suspended]
    last_s = -math.inf
    for sample in sorted(
        samples, key=lambda s: s.start_monotonic_s if math.isfinite(s.start_monotonic_s) else -math.inf
    ):
        fault = _fault(sample, last_s, suspends)
        if fault is None:
            yield sample
            last_s = sample.end_monotonic_s
        else:
            faults[fault] += 1


def _fault(sample: DeviceSample, last_s: float, suspends: list[ClockJump]) -> str | None:
    """Why a sample cannot be joined, in words; None where it can."""
    start_s, end_s, _ = times = _times_of(sample)
    if not all(map(math.isfinite, times)) or end_s <= start_s:
        return "their window has no length"
    for name, value in zip(RATIOS, _ratios_of(sample), strict=True):
        if value is not None and not 0.0 <= value <= MOST_RATIO:
            return f"{name} is not between 0 and 1"
    if start_s < last_s - ADJOIN_S:
        return "they overlap the ones before them"
    if any(spans(sample, jump) for jump in suspends):
        return "the machine was suspended meanwhile"
    return None


def spans(sample: DeviceSample, jump: ClockJump) -> bool:
    """Whether a jump may have happened within a sample."""
    since_s = jump.monotonic_s if jump.since_monotonic_s is None else jump.since_monotonic_s
    return sample.start_monotonic_s <= jump.monotonic_s and sample.end_monotonic_s >= since_s


def in_both(first: Intervals, second: Intervals) -> Intervals:
    """The intersection of two unions of intervals, each in order."""
    found = []
    one = other = 0
    while one < len(first) and other < len(second):
        start_s, end_s = max(first[one][0], second[other][0]), min(first[one][1], second[other][1])
        if end_s > start_s:
            found.append((start_s, end_s))
        if first[one][1] < second[other][1]:
            one += 1
        else:
            other += 1
    return found


def common(tracks: Sequence[Track], start_s: float, end_s: float) -> Intervals:
    """Where, in [start_s, end_s], samples of all devices cover the time without a gap."""
    found = [(start_s, end_s)] if end_s > start_s else []
    for track in tracks:
        found = in_both(found, track.runs())
    return found


def overlap_s(track: Track, intervals: Intervals) -> Floats:
    """How long each sample is inside the intervals; shape (samples,)."""
    inside = np.zeros(len(track.samples))
    for start_s, end_s in intervals:
        inside += np.maximum(np.minimum(track.end_s, end_s) - np.maximum(track.start_s, start_s), 0.0)
    return inside
