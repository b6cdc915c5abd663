"""The join: what the devices of an engine counted in a window beside what the model says its steps must move."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rooflens.collector.apportioned import apportioned_bytes, bandwidths_of
from rooflens.collector.counter_bounds import Counted, counted, model_bounds, model_bytes, ratio_high, ratio_low
from rooflens.collector.covered import Joined, joined
from rooflens.collector.device_tracks import Floats, Intervals, Track, tracks_of
from rooflens.collector.step_traffic import StepTimes, StepTraffic, as_floats, lost_between, step_times
from rooflens.collector.window_means import clock_shares, dram_ratios, engine_core, window_means
from rooflens.device_records import (
    ClockJump,
    CounterSource,
    DeviceFacts,
    DeviceSample,
    ProcessSample,
    WindowCounters,
)
from rooflens.records import StepTable

__all__ = ["apportioned_bytes", "join_counters"]

# Of the steps' time in the stretch may go without a model. What such steps moved is then in the counter bytes and not
# in the model's, so up to this much in the ratio; the bounds let them move what the bandwidth allows.
UNMODELLED_RATIO = 0.01


def join_counters(
    start_s: float,
    end_s: float,
    steps: StepTable,
    step_bytes: NDArray[np.float64] | None,
    samples: Mapping[str, Sequence[DeviceSample]],
    facts: Mapping[str, DeviceFacts],
    expected: int,
    datasheet_bytes_per_s: float | None,
    jumps: Sequence[ClockJump] = (),
    processes: Sequence[ProcessSample] = (),
) -> WindowCounters:
    """The counters of one engine's devices beside its steps in [start_s, end_s] of the monotonic clock.

    ``steps`` are all whose output lies in the window, ``step_bytes`` the model's bytes of each over all devices
    together, NaN where not modelled, None without a model. ``samples`` and ``facts`` are by uuid; samples may reach
    beyond the window. ``datasheet_bytes_per_s`` is the DRAM bandwidth of one device. ``expected`` is how many devices
    the engine has: bytes are compared only where all of them were sampled, and nobody else's.

    Joined are whole samples between the window's start and its last output (a step under way after it is not known
    yet; it is taken to begin there), as ``rooflens.collector.covered`` says. A stretch with lost steps or steps without
    a model has no model bytes, unless they are less than UNMODELLED_RATIO of its steps' time. ``counter_bytes_low`` and
    ``_high`` shift the ends of the stretch by the samples' slack, at the rates beside them, and span the device's
    bandwidth and the datasheet's where they differ; where the memory clock is lower, the low end is at it.
    ``model_bytes_low`` and ``_high`` take each step across an end as all out and all in. ``ratio_low`` and
    ``ratio_high`` bound the quotient over the stretch that the counters really saw, in which both move together, so
    they are nearer than quotients of those. The ratio is None where it has no bounds.
    """
    times = step_times(steps)
    last_s = min(end_s, float(times.end_s.max())) if len(steps) else end_s
    tracks, complaints = tracks_of(start_s, end_s, samples, jumps)
    tracks, measured = _with_bandwidth(tracks)
    parts, covered = joined(tracks, start_s, last_s) if tracks else ((), [])
    found: dict[str, Any] = dict(engine_core(processes, start_s, end_s))
    if parts:
        found |= window_means(parts, facts, times)
    if len(parts) > expected:
        complaints += (f"counters of {len(parts)} devices for an engine of {expected}: their bytes are not compared",)
    if parts and len(parts) == expected:
        lost = lost_between(steps, times, start_s)
        moved = as_floats(step_bytes, len(steps))
        found |= _bytes(parts if measured else (), facts, datasheet_bytes_per_s, (times, moved, lost, start_s), covered)
    return WindowCounters(
        source=_source(parts),
        devices=len(parts),
        devices_expected=expected,
        covered_ratio=_length_s(covered) / float(end_s - start_s) if end_s > start_s else 0.0,
        complaints=(*complaints, *_said(jumps, start_s, end_s)),
        **found,
    )


def _with_bandwidth(tracks: tuple[Track, ...]) -> tuple[tuple[Track, ...], bool]:
    """The samples that tell the DRAM bandwidth, where every device has one that does; else all, and False."""
    told = [track.take(np.array([s.dram_ratio is not None for s in track.samples])) for track in tracks]
    chosen = tuple(track for track in told if track is not None)
    return (chosen, True) if len(chosen) == len(tracks) else (tracks, False)


def _length_s(intervals: Intervals) -> float:
    return float(sum(end_s - start_s for start_s, end_s in intervals))


def _source(parts: Sequence[Joined]) -> CounterSource | None:
    """Where the counters come from; of devices that differ the least trusted, which CounterSource names last."""
    order = list(CounterSource)
    return max((part.track.source for part in parts), key=order.index, default=None)


def _said(jumps: Sequence[ClockJump], start_s: float, end_s: float) -> list[str]:
    """In words, the jumps that may have happened in a window."""
    said = []
    for jump in jumps:
        since_s = jump.monotonic_s if jump.since_monotonic_s is None else jump.since_monotonic_s
        if jump.monotonic_s <= start_s or since_s > end_s:
            continue
        if jump.suspended:
            said.append(f"the machine was suspended for {jump.seconds:.3g} s: counters that span it are left out")
        else:
            said.append(f"the wall clock was set by {jump.seconds:+.3g} s; counters are joined by the monotonic clock")
    return said


def _bytes(
    parts: Sequence[Joined],
    facts: Mapping[str, DeviceFacts],
    datasheet_bytes_per_s: float | None,
    known: tuple[StepTimes, Floats, tuple[Floats, Floats], float],
    covered: Intervals,
) -> dict[str, float | None]:
    """The bytes of both sides, and their ratio; empty where the devices do not tell their bandwidth."""
    bandwidths = [bandwidths_of(facts.get(part.track.uuid), datasheet_bytes_per_s) for part in parts]
    if not parts or not all(bandwidths):
        return {}
    ratios, devices = [dram_ratios(part) for part in parts], len(parts)
    seen = counted(parts, ratios, [each[0] for each in bandwidths])
    least = most = seen
    clocks = [clock_shares(part, facts.get(part.track.uuid)) for part in parts]
    differ = any(len(set(each)) > 1 for each in bandwidths)
    if differ or any(bool((share < 1).any()) for share in clocks):
        least = counted(
            parts, [r * share for r, share in zip(ratios, clocks, strict=True)], [min(b) for b in bandwidths]
        )
    if differ:
        most = counted(parts, ratios, [max(each) for each in bandwidths])
    found: dict[str, float | None] = {
        "counter_bytes": seen.inner,
        "counter_bytes_low": least.low,
        "counter_bytes_high": most.high,
    }
    times, step_bytes, lost, start_s = known
    if not np.isfinite(step_bytes).any():
        return found
    traffic = StepTraffic(times, step_bytes, lost, start_s, sum(max(each) for each in bandwidths))
    starts, ends = np.array(covered).reshape(-1, 2).T
    if traffic.unmodelled_ratio(starts, ends) > UNMODELLED_RATIO:
        return found
    return found | _compared(seen, (least, most), traffic, devices)


def _compared(
    seen: Counted, extremes: tuple[Counted, Counted], traffic: StepTraffic, devices: int
) -> dict[str, float | None]:
    model = model_bytes(seen, traffic, devices)
    low, high = model_bounds(seen, traffic, devices)
    found: dict[str, float | None] = {"model_bytes": model, "model_bytes_low": low, "model_bytes_high": high}
    ratio_least, ratio_most = ratio_low(extremes[0], traffic, devices), ratio_high(extremes[1], traffic, devices)
    if model > 0 and ratio_least is not None and ratio_most is not None:
        found |= {"ratio": seen.inner / model, "ratio_low": ratio_least, "ratio_high": ratio_most}
    return found
