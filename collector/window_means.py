"""What counters say of a stretch on average: over time and devices, clocks only of when a device worked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any

import numpy as np

from rooflens.collector.covered import Joined
from rooflens.collector.device_tracks import Floats
from rooflens.collector.step_traffic import StepTimes
from rooflens.device_records import DeviceFacts, DeviceSample, ProcessRole, ProcessSample, Throttle

LEAST_TOLD_RATIO = 0.5  # of the time must be told for a mean to be one of the stretch
CLOCK_HELD_S = 0.02  # a device keeps its clocks for longer than this after its last kernel
MEANS = ("dram_ratio", "tensor_ratio", "sm_ratio", "sm_occupancy_ratio", "graphics_ratio", "kernel_ratio", "power_w")
CLOCKS = ("sm_clock_hz", "memory_clock_hz")
_values_of = attrgetter(*MEANS, *CLOCKS, "energy_j")
_limits_of = attrgetter("power_limit_w", "sm_clock_max_hz", "memory_clock_max_hz")


def dram_ratios(part: Joined) -> Floats:
    """The share of the DRAM bandwidth of each joined sample of a device; NaN where it is not told."""
    return np.array([sample.dram_ratio for sample in part.track.samples], dtype=np.float64)


def window_means(parts: Sequence[Joined], facts: Mapping[str, DeviceFacts], times: StepTimes) -> dict[str, Any]:
    """The fields of WindowCounters that are means or sums over what is joined of every device.

    A mean is of the time that tells it, which must be half of it at least. A clock was read at the end of a sample: it
    counts by the part of the sample in which the device worked (``graphics_ratio``, else ``dram_ratio``, else all of
    it), and only where a step was under way then, or just before, so that the low clock of an idle device is not taken
    for a throttled one; None where no reading was. ``energy_j`` is the sum over all devices, None where a sample does
    not tell it.
    """
    samples = [sample for part in parts for sample in part.track.samples]
    weight_s = np.concatenate([part.weight_s for part in parts])
    span_s = np.concatenate([part.track.end_s - part.track.start_s for part in parts])
    values = np.array([_values_of(sample) for sample in samples], dtype=np.float64).T
    named = dict(zip((*MEANS, *CLOCKS, "energy_j"), values, strict=True))
    found: dict[str, Any] = {name: mean(named[name], weight_s) for name in MEANS}
    nothing = (None, None, None)
    of_device = [nothing if (known := facts.get(p.track.uuid)) is None else _limits_of(known) for p in parts]
    limits = np.repeat(np.array(of_device, dtype=np.float64), [len(part.track.samples) for part in parts], axis=0)
    power, sm, memory = (np.where(limit > 0, limit, np.nan) for limit in limits.T)
    working_s = weight_s * _working(named, samples, times)
    found["power_ratio"] = mean(named["power_w"] / power, weight_s)
    found["sm_clock_hz"] = mean(named["sm_clock_hz"], working_s)
    found["sm_clock_ratio"] = mean(named["sm_clock_hz"] / sm, working_s)
    found["memory_clock_ratio"] = mean(named["memory_clock_hz"] / memory, working_s)
    energy = float((named["energy_j"] * (weight_s / span_s)).sum())
    found["energy_j"] = None if np.isnan(energy) else energy
    found["throttled_ratio"] = throttled_ratio(samples, weight_s.tolist(), span_s.tolist())
    return found


def mean(values: Floats, weight: Floats) -> float | None:
    """The weighted mean of those that are not NaN; None where they have less than LEAST_TOLD_RATIO of the weight."""
    told = ~np.isnan(values)
    whole, part = float(weight.sum()), float(weight[told].sum())
    if part <= 0 or part < LEAST_TOLD_RATIO * whole:
        return None
    return float((values[told] * weight[told]).sum()) / part


def _working(named: Mapping[str, Floats], samples: Sequence[DeviceSample], times: StepTimes) -> Floats:
    """How much the clocks of each sample count, 0 to 1."""
    share = np.where(np.isnan(named["graphics_ratio"]), named["dram_ratio"], named["graphics_ratio"])
    share = np.where(np.isnan(share), 1.0, share)
    if not len(times.end_s):
        return share
    ends = np.array([sample.end_monotonic_s for sample in samples])
    return np.where(times.busy_between(ends - CLOCK_HELD_S, ends), share, 0.0)


def throttled_ratio(
    samples: Sequence[DeviceSample], weights_s: Sequence[float], spans_s: Sequence[float]
) -> dict[Throttle, float]:
    """The share of the time by reason, over the samples that tell of it; a reason that none tells of is left out.

    Of each sample the accumulated time is taken where it has one, else the reason counts for all of it, or nothing of
    it, as the flag at its end says.
    """
    throttled: dict[Throttle, float] = {}
    told: dict[Throttle, float] = {}
    for sample, weight_s, span_s in zip(samples, weights_s, spans_s, strict=True):
        shares = {} if sample.throttles is None else {reason: float(reason in sample.throttles) for reason in Throttle}
        shares |= {reason: min(max(spent_s / span_s, 0.0), 1.0) for reason, spent_s in sample.throttled_s.items()}
        for reason, share in shares.items():
            throttled[reason] = throttled.get(reason, 0.0) + share * weight_s
            told[reason] = told.get(reason, 0.0) + weight_s
    return {reason: throttled[reason] / told[reason] for reason in Throttle if told.get(reason)}


def engine_core(processes: Sequence[ProcessSample], start_s: float, end_s: float) -> dict[str, float | None]:
    """The processor time of the engine core over a window: all of its processes, and their busiest thread.

    Weighted by how much of a sample lies in the window; of several engine cores at once the means are of one.
    """
    cores = [sample for sample in processes if sample.role is ProcessRole.ENGINE_CORE]
    edges = np.array([(sample.start_monotonic_s, sample.end_monotonic_s) for sample in cores], dtype=np.float64)
    starts, ends = edges.reshape(-1, 2).T
    weight = np.maximum(np.minimum(ends, end_s) - np.maximum(starts, start_s), 0.0)
    used = np.array([sample.cores for sample in cores], dtype=np.float64)
    busiest = np.array([sample.busiest_cores for sample in cores], dtype=np.float64)
    return {"engine_core_cores": mean(used, weight), "engine_core_busiest_cores": mean(busiest, weight)}
