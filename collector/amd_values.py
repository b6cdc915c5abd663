"""What amdsmi answers into SI units: its dictionaries carry integers, "N/A", and the largest integer for nothing."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rooflens.collector.plausible import plausible
from rooflens.device_records import CounterSource, DeviceFacts, DeviceSample, Throttle

MIB = 1 << 20
KIB = 1 << 10
MHZ = 1e6
NOTHING = frozenset([0xFFFF, 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF])

# The accumulators of the firmware count its own cycles, ``accumulation_counter`` all of them: the quotient of two
# differences is the share of time in a reason (amdsmi.h, amdsmi_gpu_metrics_t: PVIOL and TVIOL).
CYCLES = "accumulation_counter"
RESIDENCIES = {
    Throttle.POWER_CAP: ("ppt_residency_acc",),
    Throttle.HARDWARE_THERMAL: ("prochot_residency_acc",),
    Throttle.THERMAL: ("socket_thm_residency_acc", "vr_thm_residency_acc", "hbm_thm_residency_acc"),
}


def number(value: Any) -> float | None:
    """A finite number that is not below zero; None for text, flags and what stands for nothing."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value in NOTHING:
        return None
    return float(value) if math.isfinite(value) and value >= 0 else None


def numbers(value: Any) -> list[float | None]:
    """A list of such numbers; empty for what is no list."""
    return [number(each) for each in value] if isinstance(value, list | tuple) else []


def first(values: Iterable[float | None]) -> float | None:
    """The first that is known."""
    return next((value for value in values if value is not None), None)


def scaled(value: float | None, scale: float) -> float | None:
    """In another unit, None as it was."""
    return None if value is None else value * scale


def text(value: Any) -> str | None:
    """A line of text that says something."""
    told = value.strip() if isinstance(value, str) else ""
    return told if told and told != "N/A" and told.isprintable() else None


@dataclass(frozen=True, slots=True)
class Reading:
    """What was read of one device at one moment; ``late_s`` is how long reading it took.

    ``metrics`` is amdsmi_get_gpu_metrics_info, ``energy`` amdsmi_get_energy_count, ``vram``
    amdsmi_get_gpu_vram_usage; the clocks (``gfx``, ``mem``: amdsmi_get_clock_info) and ``power``
    (amdsmi_get_power_info) are asked for only where ``metrics`` has none.
    """

    monotonic_s: float
    late_s: float = 0.0
    metrics: Mapping[str, Any] = field(default_factory=dict)
    energy: Mapping[str, Any] = field(default_factory=dict)
    vram: Mapping[str, Any] = field(default_factory=dict)
    gfx: Mapping[str, Any] = field(default_factory=dict)
    mem: Mapping[str, Any] = field(default_factory=dict)
    power: Mapping[str, Any] = field(default_factory=dict)


def sm_clock_mhz(metrics: Mapping[str, Any]) -> float | None:
    """The mean over the dies of a device, each of which has a clock of its own, or the one there is."""
    dies = [clock for clock in numbers(metrics.get("current_gfxclks")) if clock]
    return sum(dies) / len(dies) if dies else number(metrics.get("current_gfxclk"))


def power_w(answer: Mapping[str, Any]) -> float | None:
    """Of metrics or of amdsmi_get_power_info: now, or the driver's average."""
    return first(number(answer.get(key)) for key in ("current_socket_power", "average_socket_power"))


def sample_of(uuid: str, then: Reading, now: Reading) -> DeviceSample:
    """The window between two readings, of a device of which nothing else is known."""
    return window_of(uuid, then, now)[0]


def window_of(
    uuid: str, then: Reading, now: Reading, facts: DeviceFacts | None = None
) -> tuple[DeviceSample, tuple[str, ...]]:
    """The window between two readings, and in words what was left out of it because it cannot be.

    ``dram_ratio`` stays None: umc_activity and mem_activity_acc are documented as the activity of the memory
    controller. The firmware of some chips (MI300) fills them with a share of bandwidth, that of others with time busy,
    and nothing that is read tells which. ``kernel_ratio`` is gfx_activity. There is no counter of tensor pipes, and
    that of PCIe (pcie_bandwidth_acc) adds both directions up.
    """
    metrics = now.metrics
    activity = number(metrics.get("average_gfx_activity"))
    used_mib = number(now.vram.get("vram_used"))
    throttling = metrics.get("throttle_status")
    sample = DeviceSample(
        uuid,
        CounterSource.AMDSMI,
        then.monotonic_s,
        now.monotonic_s,
        slack_s=max(then.late_s, now.late_s),
        nvlink_tx_bytes_per_s=_link_bytes_per_s(then, now, "xgmi_write_data_acc"),
        nvlink_rx_bytes_per_s=_link_bytes_per_s(then, now, "xgmi_read_data_acc"),
        sm_clock_hz=scaled(first((sm_clock_mhz(metrics), number(now.gfx.get("clk")))), MHZ),
        memory_clock_hz=scaled(first((number(metrics.get("current_uclk")), number(now.mem.get("clk")))), MHZ),
        power_w=first((power_w(metrics), power_w(now.power))),
        energy_j=_energy_j(then.energy, now.energy),
        temperature_celsius=first(number(metrics.get(key)) for key in ("temperature_hotspot", "temperature_edge")),
        memory_used_bytes=None if used_mib is None else round(used_mib) * MIB,
        # The library tells that something holds the clocks back, and not what.
        throttles=() if throttling is False else None,
        throttled_s=_throttled_s(then, now),
        kernel_ratio=None if activity is None or activity > 100 else activity / 100,
    )
    return plausible(sample, facts)


def _grown(then: Mapping[str, Any], now: Mapping[str, Any], key: str) -> float | None:
    """How much a counter grew; None where it is not known, or began anew."""
    before, after = number(then.get(key)), number(now.get(key))
    return None if before is None or after is None or after < before else after - before


def _energy_j(then: Mapping[str, Any], now: Mapping[str, Any]) -> float | None:
    """The accumulator counts in ``counter_resolution`` micro joules, 15.259 on all chips so far."""
    microjoules = number(now.get("counter_resolution"))
    return None if not microjoules else scaled(_grown(then, now, "energy_accumulator"), microjoules * 1e-6)


def _link_bytes_per_s(then: Reading, now: Reading, key: str) -> float | None:
    """Bytes per second over all XGMI links; the accumulators count KB, which are taken for 1024 bytes."""
    pairs = zip(numbers(then.metrics.get(key)), numbers(now.metrics.get(key)), strict=False)
    grown = [after - before for before, after in pairs if before is not None and after is not None]
    if not grown or min(grown) < 0:
        return None
    return sum(grown) * KIB / (now.monotonic_s - then.monotonic_s)


def _throttled_s(then: Reading, now: Reading) -> dict[Throttle, float]:
    """Seconds in each reason; of several sensors of one reason the longest, for they may overlap."""
    cycles = _grown(then.metrics, now.metrics, CYCLES)
    if not cycles:
        return {}
    span_s, found = now.monotonic_s - then.monotonic_s, {}
    for reason, keys in RESIDENCIES.items():
        grown = [spent for key in keys if (spent := _grown(then.metrics, now.metrics, key)) is not None]
        if grown:
            found[reason] = span_s * min(max(grown) / cycles, 1.0)
    return found
