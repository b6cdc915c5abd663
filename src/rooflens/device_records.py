"""The vocabulary of counters: devices, processes, and windows of them; frozen, SI units, None for not known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class CounterSource(StrEnum):
    """Where the counters of a device come from; of several for one device the earlier one is taken."""

    NVML = "nvml"
    AMDSMI = "amdsmi"
    DCGM = "dcgm"


class Throttle(StrEnum):
    """Why a busy device may run below its highest clock; a flag alone is no finding."""

    POWER_CAP = "power_cap"
    POWER_BRAKE = "power_brake"
    THERMAL = "thermal"
    HARDWARE_THERMAL = "hardware_thermal"
    HARDWARE_SLOWDOWN = "hardware_slowdown"
    SYNC_BOOST = "sync_boost"
    APPLICATION_CLOCKS = "application_clocks"


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """What a device says of itself; a MIG slice is a device with a ``uuid`` of its own and ``parent_uuid``.

    ``memory_bandwidth_bytes_per_s`` is bus width x 2 x the highest memory clock: what a share of the DRAM bandwidth is
    a share of. ``counters`` is whether the device measures its own bandwidth (NVML: nvmlGpmQueryDeviceSupport), None
    where it does not say. ``index`` may change while the device stays; nothing is joined by it. ``pids`` are processes
    that compute on it, as this process namespace numbers them.
    """

    uuid: str
    source: CounterSource
    name: str | None = None
    index: int | None = None
    parent_uuid: str | None = None
    mig_profile: str | None = None
    memory_bytes: int | None = None
    unified_memory: bool | None = None
    memory_bandwidth_bytes_per_s: float | None = None
    sm_clock_max_hz: float | None = None
    memory_clock_max_hz: float | None = None
    power_limit_w: float | None = None
    power_limit_max_w: float | None = None
    driver_version: str | None = None
    counters: bool | None = None
    pids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class DeviceSample:
    """Counters of one device over one window [``start_monotonic_s``, ``end_monotonic_s``] of this host's clock.

    Either end may be off by ``slack_s`` (a counter that its driver refreshes every 100 ms). Ratios are 0 to 1 and means
    over the window: ``dram_ratio`` of the DRAM bandwidth, ``tensor_ratio`` the time a tensor pipe was busy (an upper
    bound of MFU), ``sm_ratio`` SMs busy, ``sm_occupancy_ratio`` warps, ``graphics_ratio`` time in which anything
    computed. Rates are from the device's view. Clocks, power, temperature and memory are as they were at the end,
    ``energy_j`` is spent over the window, ``throttled_s`` accumulated in it by reason; ``throttles`` are those in force
    at its end, None where the device does not say. ``kernel_ratio`` is GPU-Util, the time in which a kernel ran:
    no evidence of anything but of a contradiction. A sample over a gap in reading has only what was counted in it
    (``energy_j``, ``throttled_s``, bytes of links that are counted): no means, no clocks and no power.
    """

    uuid: str
    source: CounterSource
    start_monotonic_s: float
    end_monotonic_s: float
    slack_s: float = 0.0
    dram_ratio: float | None = None
    tensor_ratio: float | None = None
    sm_ratio: float | None = None
    sm_occupancy_ratio: float | None = None
    graphics_ratio: float | None = None
    pcie_tx_bytes_per_s: float | None = None
    pcie_rx_bytes_per_s: float | None = None
    nvlink_tx_bytes_per_s: float | None = None
    nvlink_rx_bytes_per_s: float | None = None
    c2c_tx_bytes_per_s: float | None = None
    c2c_rx_bytes_per_s: float | None = None
    sm_clock_hz: float | None = None
    memory_clock_hz: float | None = None
    power_w: float | None = None
    energy_j: float | None = None
    temperature_celsius: float | None = None
    memory_used_bytes: int | None = None
    throttles: tuple[Throttle, ...] | None = None
    throttled_s: Mapping[Throttle, float] = field(default_factory=dict)
    kernel_ratio: float | None = None

    @property
    def span_s(self) -> float:
        """How long the window was."""
        return self.end_monotonic_s - self.start_monotonic_s


class ProcessRole(StrEnum):
    """What a process of an engine does."""

    ENGINE_CORE = "engine_core"
    API_SERVER = "api_server"
    WORKER = "worker"


@dataclass(frozen=True, slots=True)
class ProcessSample:
    """Processor time of the processes of one role of one engine over one window; ``engine_pid`` is its engine core's.

    ``cores`` is their processor seconds for each second together, ``busiest_cores`` those of the busiest thread of any
    of them (1.0: a thread that never waits), None where threads are not told; ``processes`` is how many there are.
    """

    engine_pid: int
    role: ProcessRole
    start_monotonic_s: float
    end_monotonic_s: float
    cores: float
    processes: int
    busiest_cores: float | None = None


@dataclass(frozen=True, slots=True)
class ClockJump:
    """This host's clocks went apart: the wall clock was set, or the machine was suspended, by ``seconds``.

    It was found at ``monotonic_s`` and happened after ``since_monotonic_s``, when the clocks were last compared; None
    where that is not told.
    """

    monotonic_s: float
    seconds: float
    suspended: bool = False
    since_monotonic_s: float | None = None


@dataclass(frozen=True, slots=True)
class WindowCounters:
    """The counters of an engine's devices beside one window of its steps.

    ``devices`` of ``devices_expected`` were joined, over the stretch of the window that samples of all of them cover:
    ``covered_ratio`` of it. ``counter_bytes`` (DRAM, all devices together) and ``model_bytes`` are those of that
    stretch; steps at its ends count by the part of their time inside. ``ratio`` is counter over model bytes; low and
    high are hard bounds as far as the ends of samples and steps are uncertain, and the low end is at the memory clock
    that was read. Means are over covered time and devices; ``sm_clock_ratio`` and ``memory_clock_ratio`` are of the
    highest clock. ``throttled_ratio`` is the share of the time in which the device worked, by reason.
    ``engine_core_cores`` and ``engine_core_busiest_cores`` are the processor time of the engine core.
    ``complaints`` are what the counters themselves got wrong, in words. ``shared`` is whether another engine or process
    computes on one of the devices, whose part of the counters cannot be told apart. An engine of several devices runs
    as fast as its slowest: SM clock, ``throttled_ratio`` and power are those of ``slowest_uuid``;
    ``memory_clock_ratio`` and ``graphics_ratio_low`` are the lowest of the devices' means. ``capped_power_ratio`` is
    the draw over the limit in samples in which a power cap was in force, ``power_limit_room_ratio`` the highest limit
    that the device takes over the one that it has. All of it is None, or empty, where not known.
    """

    source: CounterSource | None
    devices: int
    devices_expected: int
    covered_ratio: float
    counter_bytes: float | None = None
    counter_bytes_low: float | None = None
    counter_bytes_high: float | None = None
    model_bytes: float | None = None
    model_bytes_low: float | None = None
    model_bytes_high: float | None = None
    ratio: float | None = None
    ratio_low: float | None = None
    ratio_high: float | None = None
    dram_ratio: float | None = None
    tensor_ratio: float | None = None
    sm_ratio: float | None = None
    sm_occupancy_ratio: float | None = None
    graphics_ratio: float | None = None
    kernel_ratio: float | None = None
    sm_clock_hz: float | None = None
    sm_clock_ratio: float | None = None
    memory_clock_ratio: float | None = None
    power_w: float | None = None
    power_ratio: float | None = None
    energy_j: float | None = None
    throttled_ratio: Mapping[Throttle, float] = field(default_factory=dict)
    engine_core_cores: float | None = None
    engine_core_busiest_cores: float | None = None
    complaints: tuple[str, ...] = ()
    shared: bool | None = None
    graphics_ratio_low: float | None = None
    slowest_uuid: str | None = None
    capped_power_ratio: float | None = None
    power_limit_room_ratio: float | None = None


@dataclass(frozen=True, slots=True)
class DeviceView:
    """One device that engines here run on: its facts and newest sample, which of several sources was taken, and in
    ``problem`` why a counter of it is not known, in one line.
    """

    facts: DeviceFacts
    source: CounterSource
    sample: DeviceSample | None
    problem: str | None = None
