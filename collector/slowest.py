"""Clocks, power and throttling of each device by itself: an engine of several runs as fast as its slowest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rooflens.collector.covered import Joined
from rooflens.collector.device_tracks import Floats
from rooflens.collector.step_traffic import StepTimes
from rooflens.device_records import CounterSource, DeviceFacts, DeviceSample, Throttle

LEAST_TOLD_RATIO = 0.5  # of the time must be told for a mean to be one of the stretch
CLOCK_HELD_S = 0.02  # a device keeps its clocks for longer than this after its last kernel
SAME_CLOCK_RATIO = 0.01  # of the highest clock, which moves in steps of nearly this
COUNTED_RATIO = 0.01  # of the flag's share; less accumulated than that is in another unit, or not counted
_values_of = attrgetter("graphics_ratio", "dram_ratio", "sm_clock_hz", "memory_clock_hz", "power_w")


@dataclass(frozen=True, slots=True)
class DeviceMeans:
    """Of one device what WindowCounters tells of all of them or of the slowest, by the same names."""

    uuid: str
    graphics_ratio: float | None
    sm_clock_hz: float | None
    sm_clock_ratio: float | None
    memory_clock_ratio: float | None
    power_w: float | None
    power_ratio: float | None
    capped_power_ratio: float | None
    power_limit_room_ratio: float | None
    throttled_ratio: dict[Throttle, float]

    @property
    def most_throttled_ratio(self) -> float:
        """The share of the reason that was in force for longest."""
        return max(self.throttled_ratio.values(), default=0.0)


@dataclass(slots=True)
class _Share:
    """Of one reason the sums over samples: accumulated, by the flags of the same samples, and by flags alone."""

    counted: list[float] = field(default_factory=lambda: [0.0, 0.0])
    beside: list[float] = field(default_factory=lambda: [0.0, 0.0])
    flagged: list[float] = field(default_factory=lambda: [0.0, 0.0])

    def ratio(self) -> float | None:
        """What is accumulated, unless its flag denies it, and flags where nothing is; None where neither is known."""
        counted, beside = _quotient(self.counted), _quotient(self.beside)
        denied = beside is not None and (counted is None or counted < COUNTED_RATIO * beside)
        taken = self.beside if denied else self.counted
        return _quotient([one + other for one, other in zip(taken, self.flagged, strict=True)])


def device_means(part: Joined, facts: DeviceFacts | None, times: StepTimes) -> DeviceMeans:
    """The means of what is joined of one device.

    A clock was read at the end of a sample: it counts by the part of the sample in which the device worked
    (``graphics_ratio``, else ``dram_ratio``, else all of it), and only where a step was under way then, or just before,
    so that the low clock of an idle device is not taken for a throttled one; None where no reading was. So do flags and
    the power drawn under a cap; accumulated times count by the part in which the device worked.
    """
    samples = part.track.samples
    graphics, dram, sm_hz, memory_hz, power_w = np.array([_values_of(s) for s in samples], dtype=np.float64).T
    share = np.where(np.isnan(graphics), dram, graphics)
    worked_s = part.weight_s * np.where(np.isnan(share), 1.0, share)
    seen_s = worked_s * _ended_in_work(part, times)
    limit_w, sm_max_hz, memory_max_hz = (
        getattr(facts, name, None) for name in ("power_limit_w", "sm_clock_max_hz", "memory_clock_max_hz")
    )
    most_w = None if facts is None else facts.power_limit_max_w
    capped = np.array([_capped(sample) for sample in samples])
    power_ratio = _over(power_w, limit_w)
    under_cap = capped & (seen_s > 0) & ~np.isnan(power_ratio)
    return DeviceMeans(
        uuid=part.track.uuid,
        graphics_ratio=mean(graphics, part.weight_s),
        sm_clock_hz=mean(sm_hz, seen_s),
        sm_clock_ratio=mean(_over(sm_hz, sm_max_hz), seen_s),
        memory_clock_ratio=mean(_over(memory_hz, memory_max_hz), seen_s),
        power_w=mean(power_w, part.weight_s),
        power_ratio=mean(power_ratio, part.weight_s),
        capped_power_ratio=mean(power_ratio[under_cap], seen_s[under_cap]),
        power_limit_room_ratio=most_w / limit_w if most_w and limit_w else None,
        throttled_ratio=throttled_ratio(samples, worked_s.tolist(), seen_s.tolist()),
    )


def slowest(devices: Sequence[DeviceMeans]) -> tuple[DeviceMeans, bool]:
    """The device with the lowest SM clock as a part of its highest, and whether anything tells that it is the slowest.

    Where no device tells its highest clock, the one with the lowest SM clock itself. Of several within
    SAME_CLOCK_RATIO the one with the lowest memory clock, then the one that was throttled most.
    """
    clocks = [each.sm_clock_ratio for each in devices]
    limit = min((ratio for ratio in clocks if ratio is not None), default=None)
    if limit is not None:
        limit += SAME_CLOCK_RATIO
    else:
        clocks = [each.sm_clock_hz for each in devices]
        lowest_hz = min((hz for hz in clocks if hz is not None), default=None)
        limit = None if lowest_hz is None else lowest_hz * (1 + SAME_CLOCK_RATIO)
    tied = [
        each
        for each, clock in zip(devices, clocks, strict=True)
        if limit is None or (clock is not None and clock <= limit)
    ]

    def rank(each: DeviceMeans) -> tuple[float, float, float]:
        memory = 1.0 if each.memory_clock_ratio is None else round(each.memory_clock_ratio, 2)
        return memory, -each.most_throttled_ratio, -(each.power_ratio or 0.0)

    found = min(tied, key=rank)
    told = limit is not None or found.memory_clock_ratio is not None or found.most_throttled_ratio > 0
    return found, told or len(devices) == 1


def throttled_ratio(
    samples: Sequence[DeviceSample], worked_s: Sequence[float], seen_s: Sequence[float]
) -> dict[Throttle, float]:
    """The share of the working time by reason, over the samples that tell of it; one that none tells of is left out.

    Of each sample the accumulated time is taken where it has one, else the reason counts for all of it, or nothing of
    it, as the flag at its end says. ``worked_s`` weighs times, ``seen_s`` flags.
    """
    shares: dict[Throttle, _Share] = {}
    for sample, whole_s, flag_s in zip(samples, worked_s, seen_s, strict=True):
        for reason, spent_s in sample.throttled_s.items():
            ratio = min(max(spent_s / sample.span_s, 0.0), 1.0)
            _add(shares.setdefault(reason, _Share()).counted, ratio, whole_s)
        if sample.throttles is None:
            continue
        for reason in Throttle:
            share = shares.setdefault(reason, _Share())
            into = share.beside if reason in sample.throttled_s else share.flagged
            _add(into, float(reason in sample.throttles), flag_s)
    found = {reason: shares[reason].ratio() for reason in Throttle if reason in shares}
    return {reason: ratio for reason, ratio in found.items() if ratio is not None}


def mean(values: Floats, weight: Floats) -> float | None:
    """The weighted mean of those that are not NaN; None where they have less than LEAST_TOLD_RATIO of the weight."""
    told = ~np.isnan(values)
    whole, part = float(weight.sum()), float(weight[told].sum())
    if part <= 0 or part < LEAST_TOLD_RATIO * whole:
        return None
    return float((values[told] * weight[told]).sum()) / part


def _over(values: Floats, limit: float | None) -> Floats:
    return values / limit if limit else np.full(len(values), np.nan)


def _ended_in_work(part: Joined, times: StepTimes) -> NDArray[Any]:
    """Whether the engine worked when each sample's clock was read; for one badly dated, whenever that may have been.

    The slack of NVML is of the counters that its driver refreshes; clocks are asked for when a sample ends.
    """
    if not len(times.end_s):
        return np.ones(len(part.track.samples))
    slack_s = np.zeros(len(part.track.samples)) if part.track.source is CounterSource.NVML else part.track.slack_s
    late_s = np.where(slack_s > CLOCK_HELD_S, slack_s, 0.0)
    ends = part.track.end_s
    first_s, last_s = ends - np.maximum(late_s, CLOCK_HELD_S), ends + late_s
    busy = times.busy_between(first_s, last_s)
    worked: NDArray[Any] = busy & ((late_s == 0) | ~_idle_within(part, times, first_s, last_s))
    return worked


def _idle_within(part: Joined, times: StepTimes, first_s: Floats, last_s: Floats) -> NDArray[Any]:
    """Whether the engine paused for longer than a clock is held within each interval, as far as its steps are known.

    They are known from the first part that is joined to the last one, and wherever there are any.
    """
    order = np.argsort(times.begin_s)
    known_s = min(float(part.begin_s.min()), float(times.first_s.min()))
    until_s = max(float(part.end_s.max()), float(times.end_s.max()))
    begins = np.concatenate(([known_s], np.maximum.accumulate(times.end_s[order]) + CLOCK_HELD_S))
    ends = np.concatenate((times.begin_s[order], [until_s]))
    pauses = ends > begins
    idle: NDArray[Any] = np.searchsorted(begins[pauses], last_s, side="left") > np.searchsorted(
        ends[pauses], first_s, side="right"
    )
    return idle


def _capped(sample: DeviceSample) -> bool:
    """Whether a power cap was in force when the power of a sample was read, at its end."""
    if sample.throttles is not None:
        return Throttle.POWER_CAP in sample.throttles
    return sample.throttled_s.get(Throttle.POWER_CAP, 0.0) >= LEAST_TOLD_RATIO * sample.span_s


def _add(sums: list[float], value: float, weight: float) -> None:
    sums[0] += value * weight
    sums[1] += weight


def _quotient(sums: Sequence[float]) -> float | None:
    return sums[0] / sums[1] if sums[1] > 0 else None
