"""A step's share of what counters counted over a stretch of time: apportioned by the model, not measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from rooflens.collector.device_tracks import Floats, Track, tracks_of
from rooflens.collector.step_traffic import SHORTEST_S, Ramp, StepTimes, as_floats, step_times
from rooflens.device_records import DeviceFacts, DeviceSample
from rooflens.records import StepTable

SUMS_RATIO = 1e-9  # of all bytes
ROUNDING_RATIO = 1e-3  # of a step's time: clocks of a machine that runs for months have a tenth of a microsecond


def bandwidths_of(facts: DeviceFacts | None, datasheet_bytes_per_s: float | None) -> tuple[float, ...]:
    """What 100 % of a device's DRAM bandwidth may be, in bytes/s: as the device says, then as the datasheet does.

    Empty where neither is known, and of a MIG slice: what its share is a share of is documented nowhere.
    """
    if facts is not None and facts.parent_uuid is not None:
        return ()
    own = None if facts is None else facts.memory_bandwidth_bytes_per_s
    return tuple(bandwidth for bandwidth in (own, datasheet_bytes_per_s) if bandwidth is not None and bandwidth > 0)


def apportioned_bytes(
    steps: StepTable,
    step_bytes: NDArray[np.float64] | None,
    samples: Mapping[str, Sequence[DeviceSample]],
    facts: Mapping[str, DeviceFacts],
    datasheet_bytes_per_s: float | None,
) -> tuple[Floats, NDArray[np.bool_]]:
    """The counter bytes of each step, over all devices in ``samples`` together, and where they are known.

    The bytes of a sample go to the steps that it overlaps, in proportion to the model's bytes of each that lie in it;
    a step whose bytes are not modelled counts as if it moved what the modelled ones in the sample do in its time. What
    was counted while no step ran stays out. So the sum over the steps is the sum over the samples that overlap one.
    A step is known where samples of all devices cover the whole of it; else its bytes are of the part that is covered.
    """
    count = len(steps)
    nothing: Floats = np.zeros(count)
    times, modelled = step_times(steps), as_floats(step_bytes, count)
    known: NDArray[np.bool_] = np.full(count, bool(samples) and count > 0)
    if not count:
        return nothing, known
    spreads = _Spreads(times, modelled)
    tracks, _ = tracks_of(float(times.begin_s.min()), float(times.end_s.max()), samples)
    told = {track.uuid: track.take(_told(track)) for track in tracks}
    moved = nothing
    for uuid in samples:
        track, bandwidths = told.get(uuid), bandwidths_of(facts.get(uuid), datasheet_bytes_per_s)
        if track is None or not bandwidths:
            known[:] = False
            continue
        moved = moved + spreads.shares(track, bandwidths[0])
        known &= _covers(track, times)
    return moved, known


def _told(track: Track) -> NDArray[np.bool_]:
    return np.array([sample.dram_ratio is not None for sample in track.samples])


class _Spreads:
    """The running sums by which samples are spread over steps."""

    def __init__(self, times: StepTimes, modelled: Floats) -> None:
        self._times = times
        self._span_s = times.end_s - times.begin_s
        self._known = np.isfinite(modelled)
        self._bytes = np.where(self._known, modelled, 0.0)
        known, unknown = self._known, ~self._known
        self._moved = Ramp(times.begin_s, times.end_s, self._bytes)
        self._modelled_s = Ramp(times.begin_s[known], times.end_s[known], self._span_s[known])
        self._other_s = Ramp(times.begin_s[unknown], times.end_s[unknown], self._span_s[unknown])

    def shares(self, track: Track, bandwidth: float) -> Floats:
        """What each step gets of the bytes of one device's samples."""
        ratio = np.array([sample.dram_ratio for sample in track.samples], dtype=np.float64)
        span_s = track.end_s - track.start_s
        moved, modelled_s, other_s = (
            ramp(track.end_s) - ramp(track.start_s) for ramp in (self._moved, self._modelled_s, self._other_s)
        )
        # Without any modelled byte in a sample all of its steps count by their time. What the running sums cannot tell
        # from rounding is no byte.
        by_bytes = moved > SUMS_RATIO * self._bytes.sum()
        rate = np.divide(moved, modelled_s, out=np.ones_like(moved), where=by_bytes & (modelled_s > 0))
        weight = np.where(by_bytes, moved + rate * other_s, modelled_s + other_s)
        each = np.divide(
            ratio * bandwidth * span_s, weight, out=np.zeros_like(weight), where=by_bytes | (weight > SHORTEST_S / 1000)
        )
        begin, end = self._times.begin_s, self._times.end_s

        def lying_in(each_second: Floats) -> Floats:
            spread = Ramp(track.start_s, track.end_s, each_second * span_s)
            return spread(end) - spread(begin)

        shares: Floats = self._bytes / self._span_s * lying_in(np.where(by_bytes, each, 0.0))
        if not self._known.all():
            shares += np.where(self._known, 0.0, lying_in(np.where(by_bytes, each * rate, 0.0)))
        by_time = ~by_bytes & (each > 0)
        if by_time.any():
            shares += lying_in(np.where(by_time, each, 0.0))
        return np.maximum(shares, 0.0)


def _covers(track: Track, times: StepTimes) -> NDArray[np.bool_]:
    """Which steps the samples of a device cover as a whole, as far as sums of floats tell."""
    covered = Ramp(track.start_s, track.end_s, track.end_s - track.start_s)
    span_s = times.end_s - times.begin_s
    found: NDArray[np.bool_] = covered(times.end_s) - covered(times.begin_s) >= (1 - ROUNDING_RATIO) * span_s
    return found
