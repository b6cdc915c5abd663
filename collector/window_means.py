"""What counters say of a stretch on average: over time and devices, clocks and power of the slowest of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any

import numpy as np

from rooflens.collector.covered import Joined
from rooflens.collector.device_tracks import Floats
from rooflens.collector.slowest import device_means, mean, slowest
from rooflens.collector.step_traffic import StepTimes
from rooflens.device_records import DeviceFacts, ProcessRole, ProcessSample

MEANS = ("dram_ratio", "tensor_ratio", "sm_ratio", "sm_occupancy_ratio", "graphics_ratio", "kernel_ratio")
OF_SLOWEST = (
    *("sm_clock_hz", "sm_clock_ratio", "power_w", "power_ratio", "capped_power_ratio", "power_limit_room_ratio"),
    "throttled_ratio",
)
CLOCK_ROUNDING_RATIO = 0.01  # of the highest memory clock: what drivers round, or name by another step
_values_of = attrgetter(*MEANS, "energy_j")


def dram_ratios(part: Joined) -> Floats:
    """The share of the DRAM bandwidth of each joined sample of a device; NaN where it is not told."""
    return np.array([sample.dram_ratio for sample in part.track.samples], dtype=np.float64)


def clock_shares(part: Joined, facts: DeviceFacts | None) -> Floats:
    """What part of its highest each sample's memory clock may have been, 1 where it is about that or not told.

    The lower of what was read at its two ends: a clock that rose in it was low for some of it.
    """
    highest_hz = None if facts is None else facts.memory_clock_max_hz
    read_hz = np.array([sample.memory_clock_hz for sample in part.track.samples], dtype=np.float64)
    if not highest_hz:
        return np.ones(len(read_hz))
    shares = np.where(read_hz > 0, read_hz / highest_hz, 1.0)
    shares[1:] = np.where(part.track.follows(), np.minimum(shares[1:], shares[:-1]), shares[1:])
    found: Floats = np.where(shares < 1 - CLOCK_ROUNDING_RATIO, shares, 1.0)
    return found


def window_means(parts: Sequence[Joined], facts: Mapping[str, DeviceFacts], times: StepTimes) -> dict[str, Any]:
    """The fields of WindowCounters that are means or sums over what is joined of every device.

    A mean is of the time that tells it, which must be half of it at least. Clocks, power and throttling are those of
    the slowest device, see ``rooflens.collector.slowest``, but the memory clock is the lowest of all. The lowest of the
    devices' means of graphics_ratio is known where all are. ``energy_j`` is the sum over all devices, None where a
    sample does not tell it.
    """
    samples = [sample for part in parts for sample in part.track.samples]
    weight_s = np.concatenate([part.weight_s for part in parts])
    span_s = np.concatenate([part.track.end_s - part.track.start_s for part in parts])
    values = np.array([_values_of(sample) for sample in samples], dtype=np.float64).T
    named = dict(zip((*MEANS, "energy_j"), values, strict=True))
    found: dict[str, Any] = {name: mean(named[name], weight_s) for name in MEANS}
    energy = float((named["energy_j"] * (weight_s / span_s)).sum())
    found["energy_j"] = None if np.isnan(energy) else energy
    devices = [device_means(part, facts.get(part.track.uuid), times) for part in parts]
    last, told = slowest(devices)
    found |= {name: getattr(last, name) for name in OF_SLOWEST}
    found["slowest_uuid"] = last.uuid if told else None
    worked = [each.graphics_ratio for each in devices if each.graphics_ratio is not None]
    found["graphics_ratio_low"] = min(worked) if len(worked) == len(devices) else None
    memory = [each.memory_clock_ratio for each in devices if each.memory_clock_ratio is not None]
    found["memory_clock_ratio"] = min(memory, default=None)
    return found


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
