"""What a trace holds beside steps, column by column, and how its writer is bounded and doing; frozen, SI units."""

from __future__ import annotations

from dataclasses import dataclass

# Columns of events: name, Arrow type, what it is.
EVENT_COLUMNS: tuple[tuple[str, str, str], ...] = (
    ("facts", "string", "which of the facts in the file's metadata are this row's engine's"),
    ("run", "string", "one run of one engine"),
    ("unix_s", "double", "when it happened; of a finding when it began, changed or ended"),
    ("sequence", "int64", "position of an event in the ring; NULL for a finding"),
    ("monotonic_s", "double", "the same moment on the engine's host's clock; NULL for a finding"),
    ("class", "string", "event or finding"),
    ("name", "string", "of an event its name, of a finding its code"),
    ("severity", "string", "of a finding: critical, warning or info"),
    ("status", "string", "of a finding: firing, cleared or cannot_tell"),
    ("summary", "string", "of a finding: one line for a person"),
    ("detail", "string", "JSON: what the event tells, or the whole finding with evidence and price"),
)
# Columns of counters: name, Arrow type, what it is. A row is one window of one device.
COUNTER_COLUMNS: tuple[tuple[str, str, str], ...] = (
    ("host", "string", "where the device is"),
    ("uuid", "string", "the device; its facts are in the file's metadata"),
    ("source", "string", "nvml, amdsmi or dcgm"),
    ("start_unix_s", "double", "begin of the window"),
    ("end_unix_s", "double", "end of the window"),
    ("start_monotonic_s", "double", "begin of the window on the host's clock"),
    ("end_monotonic_s", "double", "end of the window on the host's clock"),
    ("slack_s", "double", "by how much either end may be off"),
    ("dram_ratio", "double", "of the DRAM bandwidth, mean over the window"),
    ("tensor_ratio", "double", "time a tensor pipe was busy: an upper bound of MFU"),
    ("sm_ratio", "double", "SMs busy"),
    ("sm_occupancy_ratio", "double", "warps resident"),
    ("graphics_ratio", "double", "time in which anything computed"),
    ("pcie_tx_bytes_per_s", "double", "PCIe, sent by the device"),
    ("pcie_rx_bytes_per_s", "double", "PCIe, received by the device"),
    ("nvlink_tx_bytes_per_s", "double", "NVLink, sent by the device"),
    ("nvlink_rx_bytes_per_s", "double", "NVLink, received by the device"),
    ("c2c_tx_bytes_per_s", "double", "chip to chip, sent by the device"),
    ("c2c_rx_bytes_per_s", "double", "chip to chip, received by the device"),
    ("sm_clock_hz", "double", "SM clock at the end"),
    ("memory_clock_hz", "double", "memory clock at the end"),
    ("power_w", "double", "power at the end"),
    ("energy_j", "double", "energy spent over the window"),
    ("temperature_celsius", "double", "temperature at the end"),
    ("memory_used_bytes", "int64", "memory used at the end"),
    ("kernel_ratio", "double", "GPU-Util: time in which a kernel ran, no evidence of anything but of a contradiction"),
    ("throttles", "list<string>", "reasons in force at the end; NULL where the device does not say"),
    ("throttled_power_cap_s", "double", "time throttled in the window: power cap"),
    ("throttled_power_brake_s", "double", "time throttled in the window: power brake"),
    ("throttled_thermal_s", "double", "time throttled in the window: temperature"),
    ("throttled_hardware_thermal_s", "double", "time throttled in the window: temperature, by the hardware"),
    ("throttled_hardware_slowdown_s", "double", "time throttled in the window: slowdown, by the hardware"),
    ("throttled_sync_boost_s", "double", "time throttled in the window: clocks tied to another device"),
    ("throttled_application_clocks_s", "double", "time throttled in the window: clocks that somebody set"),
)


@dataclass(frozen=True, slots=True)
class TraceLimits:
    """How large a trace may grow.

    ``max_bytes`` and ``max_age_s`` bound the folder: the oldest hours go first, None for without bound; an object store
    is left to its own lifecycle rules. ``memory_bytes`` bounds what waits to be written, ``items`` what was handed over
    and not looked at yet; what is beyond them is dropped and counted. A file holds ``period_s`` of wall time.
    """

    max_bytes: int | None = 10 << 30
    max_age_s: float | None = 14 * 86_400.0
    memory_bytes: int = 128 << 20
    items: int = 100_000
    period_s: float = 60.0


@dataclass(frozen=True, slots=True)
class TraceState:
    """How the writer of a trace is doing; counts are since it began.

    ``rows_written``, ``bytes_written`` and ``files_written`` are safe in their place; ``dropped_rows`` never got there;
    ``failures`` are attempts that failed. Rows are those of all tables. ``oldest_unwritten_s`` is how long the oldest
    row that waits has been waiting, None where none does. ``problem`` is one line on what hinders it, None while it is
    well.
    """

    rows_written: int = 0
    bytes_written: int = 0
    files_written: int = 0
    dropped_rows: int = 0
    failures: int = 0
    oldest_unwritten_s: float | None = None
    problem: str | None = None
