"""The metrics of devices, of their counters beside an engine's steps, and of the probes that read them."""

from __future__ import annotations

from collections.abc import Mapping

from rooflens.calibration_records import CeilingOrigin
from rooflens.device_records import CounterSource, ProcessRole, Throttle
from rooflens.metric_records import BY_INTERVALS, PREFIX, Kind, Metric, engine_metric

DEVICE_LABELS = ("device_uuid", "source")
COUNTER_SOURCES = tuple(str(source) for source in CounterSource)
PROBES = (*COUNTER_SOURCES, "host")
DIRECTIONS = ("tx", "rx")
CEILINGS = tuple(str(origin) for origin in CeilingOrigin)


def _device(
    name: str, kind: Kind, unit: str, text: str, reading: str, *labels: str,
    values: Mapping[str, tuple[str, ...]] | None = None,
) -> Metric:  # fmt: skip
    """A metric of one device: its uuid and what reads it come first."""
    closed = {"source": COUNTER_SOURCES, **(values or {})}
    return Metric(PREFIX + name, kind, unit, text, (*DEVICE_LABELS, *labels), reading, closed)


C, G, I = Kind.COUNTER, Kind.GAUGE, Kind.INFO  # noqa: E741

GLANCE = "The last sample, for a glance; absent where the device does not measure it."
BOTH_WAYS: Mapping[str, tuple[str, ...]] = {"direction": DIRECTIONS}

DEVICE_INFO = _device(
    "device_info", I, "", "Facts of a device as labels; hardware is its id where it is known here.",
    "`rooflens_device_power_watts * on (instance, device_uuid, source) group_left (device_name) rooflens_device_info`.",
    "hardware", "device_name", "driver_version", "mig_profile",
)  # fmt: skip
DEVICE_UP = _device(
    "device_up", G, "", "1 while the counters of a device are read, else 0.",
    "Alert on `rooflens_device_up == 0`: all other gauges of that device are absent then.",
)  # fmt: skip
DRAM_RATIO = _device(
    "device_dram_ratio", G, "ratio", "Part of the DRAM bandwidth that was used.",
    "The last sample, for a glance; over any window: `rate(rooflens_device_dram_bytes_total[5m]) / "
    "rooflens_device_memory_bandwidth_bytes_per_second`.",
)  # fmt: skip
TENSOR_RATIO = _device(
    "device_tensor_ratio", G, "ratio", "Part of the time in which a tensor pipe was busy.",
    f"An upper bound of MFU, not MFU. {GLANCE}",
)  # fmt: skip
SM_RATIO = _device("device_sm_ratio", G, "ratio", "Part of the SMs that were busy.", GLANCE)
OCCUPANCY_RATIO = _device(
    "device_sm_occupancy_ratio", G, "ratio", "Warps that were resident, of the most there can be.", GLANCE
)
GRAPHICS_RATIO = _device(
    "device_graphics_ratio", G, "ratio", "Part of the time in which anything computed.",
    f"Low while requests are there: the device waits for the host. {GLANCE}",
)  # fmt: skip
DRAM_BYTES = _device(
    "device_dram_bytes_total", C, "bytes",
    "Bytes moved between a device and its DRAM: dram_ratio of the bandwidth at the highest memory clock.",
    "Bandwidth used over any window: `rate(rooflens_device_dram_bytes_total[5m])`. It assumes that memory runs at its "
    "highest clock; below it, that many fewer bytes may have moved: multiply by `rooflens_device_memory_clock_hertz / "
    "rooflens_device_memory_clock_max_hertz` for the least. Absent where it is not measured.",
)  # fmt: skip
PCIE_BYTES = _device(
    "device_pcie_bytes_total", C, "bytes", "Bytes over PCIe, as seen from the device.",
    "`rate(rooflens_device_pcie_bytes_total[5m])`.", "direction", values=BOTH_WAYS,
)  # fmt: skip
NVLINK_BYTES = _device(
    "device_nvlink_bytes_total", C, "bytes", "Bytes over all links to other devices, as seen from the device.",
    "`rate(rooflens_device_nvlink_bytes_total[5m])`.", "direction", values=BOTH_WAYS,
)  # fmt: skip
C2C_BYTES = _device(
    "device_c2c_bytes_total", C, "bytes", "Bytes over the link to the host's CPU chip, as seen from the device.",
    "`rate(rooflens_device_c2c_bytes_total[5m])`.", "direction", values=BOTH_WAYS,
)  # fmt: skip
SM_CLOCK = _device(
    "device_sm_clock_hertz", G, "hertz", "Clock of the SMs.",
    "Part of the highest clock: `rooflens_device_sm_clock_hertz / rooflens_device_sm_clock_max_hertz`.",
)  # fmt: skip
SM_CLOCK_MAX = _device("device_sm_clock_max_hertz", G, "hertz", "Highest clock of the SMs.", "The datasheet's clock.")
MEMORY_CLOCK = _device(
    "device_memory_clock_hertz", G, "hertz", "Clock of the memory.",
    "Below the highest one all bandwidth is less: "
    "`rooflens_device_memory_clock_hertz / rooflens_device_memory_clock_max_hertz`.",
)  # fmt: skip
MEMORY_CLOCK_MAX = _device(
    "device_memory_clock_max_hertz", G, "hertz", "Highest clock of the memory.", "The bandwidth is said of it."
)
BANDWIDTH = _device(
    "device_memory_bandwidth_bytes_per_second", G, "bytes_per_second",
    "DRAM bandwidth of a device by its bus width and highest memory clock.",
    "What rooflens_device_dram_ratio is a part of.",
)  # fmt: skip
POWER = _device(
    "device_power_watts", G, "watts", "Power drawn.",
    "Part of the limit: `rooflens_device_power_watts / rooflens_device_power_limit_watts`.",
)  # fmt: skip
POWER_LIMIT = _device(
    "device_power_limit_watts", G, "watts", "Power limit in force.", "The roof of rooflens_device_power_watts."
)
ENERGY = _device(
    "device_energy_joules_total", C, "joules", "Energy spent.",
    "Mean power over any window: `rate(rooflens_device_energy_joules_total[5m])`.",
)  # fmt: skip
TEMPERATURE = _device("device_temperature_celsius", G, "celsius", "Temperature of the device.", GLANCE)
MEMORY_USED = _device(
    "device_memory_used_bytes", G, "bytes", "Memory in use, by anybody.",
    "Part of it: `rooflens_device_memory_used_bytes / rooflens_device_memory_bytes`.",
)  # fmt: skip
MEMORY = _device("device_memory_bytes", G, "bytes", "Memory of the device.", "See rooflens_device_memory_used_bytes.")
THROTTLED = _device(
    "device_throttled_seconds_total", C, "seconds", "Time in which a device was held below its highest clock, by why.",
    "Share of the time: `rate(rooflens_device_throttled_seconds_total[5m])`. A device at its power limit is no fault "
    "by itself: see the finding throttling.", "reason",
    values={"reason": tuple(str(reason) for reason in Throttle)},
)  # fmt: skip
PROBE_FAILURES = Metric(
    PREFIX + "probe_failures_total", C, "", "Reads of counters that failed or came too late, by what is read.",
    ("source",), "`rate(rooflens_probe_failures_total[5m]) > 0`: /api/v1/engines says what is wrong.",
    {"source": PROBES},
)  # fmt: skip

ENGINE_DEVICE = engine_metric(
    "engine_device_info", I, "", "One series for each device that an engine is known to run on.",
    "What moves on an engine's devices: `sum by (instance, model_name, engine) (rooflens_engine_device_info * "
    "on (instance, device_uuid) group_left sum by (instance, device_uuid) "
    "(rate(rooflens_device_dram_bytes_total[5m])))`.", "device_uuid",
)  # fmt: skip
COUNTED_RATIO = engine_metric(
    "counted_over_model_bytes_ratio", G, "ratio",
    "DRAM bytes that the devices counted over those that the model had to move, in the newest window with both.",
    "Near 1 the model tells what happens; far above it something else moves bytes, below it see the finding "
    "measurement_invalid. For a glance, absent once it is old; its interval is in /api/v1/engines.",
    page=BY_INTERVALS,
)  # fmt: skip
HOST_CPU = engine_metric(
    "host_cpu_seconds_total", C, "seconds", "Processor time of the engine's processes by what they do.",
    'Cores: `rate(rooflens_host_cpu_seconds_total{role="engine_core"}[5m])`; near 1 the engine core itself is what '
    "the devices wait for.", "role", values={"role": tuple(str(role) for role in ProcessRole)},
    page="Absent: a page does not tell its processes.",
)  # fmt: skip
CEILING_BANDWIDTH = engine_metric(
    "hardware_ceiling_bytes_per_second", G, "bytes_per_second",
    "Memory bandwidth of one device of the engine, by what the figure rests on.",
    'What the clocks of now leave of the paper: `rooflens_hardware_ceiling_bytes_per_second{origin="clock_adjusted"} / '
    'ignoring (origin) rooflens_hardware_ceiling_bytes_per_second{origin="datasheet"}`; likewise what '
    "rooflens calibrate measured. Which of them the floor uses: /api/v1/engines.", "origin",
    values={"origin": CEILINGS},
)  # fmt: skip
CEILING_FLOPS = engine_metric(
    "hardware_ceiling_flops_per_second", G, "flops_per_second",
    "Arithmetic rate of one device of the engine by number format, by what the figure rests on.",
    "As rooflens_hardware_ceiling_bytes_per_second.", "format", "origin", values={"origin": CEILINGS},
)  # fmt: skip

ENGINE_DEVICE_CATALOGUE = (ENGINE_DEVICE, COUNTED_RATIO, HOST_CPU, CEILING_BANDWIDTH, CEILING_FLOPS)
DEVICE_CATALOGUE = (
    DEVICE_INFO, DEVICE_UP, DRAM_RATIO, TENSOR_RATIO, SM_RATIO, OCCUPANCY_RATIO, GRAPHICS_RATIO, DRAM_BYTES, PCIE_BYTES,
    NVLINK_BYTES, C2C_BYTES, SM_CLOCK, SM_CLOCK_MAX, MEMORY_CLOCK, MEMORY_CLOCK_MAX, BANDWIDTH, POWER, POWER_LIMIT,
    ENERGY, TEMPERATURE, MEMORY_USED, MEMORY, THROTTLED, PROBE_FAILURES,
)  # fmt: skip
