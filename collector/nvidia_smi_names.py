"""What nvidia-smi calls each sensor, in its three forms, and what it is called here."""

from __future__ import annotations

from collections.abc import Mapping

MIB = 1024.0**2
# Every value that a record may hold, and what it is.
SENSORS: Mapping[str, str] = {
    "memory_total_bytes": "device memory",
    "memory_used_bytes": "device memory in use",
    "memory_free_bytes": "device memory that is free",
    "memory_reserved_bytes": "device memory that the driver keeps",
    "process_used_bytes": "device memory of all processes that are listed",
    "gpu_busy_ratio": "time in which any kernel ran",
    "memory_busy_ratio": "time in which device memory was read or written; no bandwidth",
    "power_w": "power drawn",
    "power_limit_w": "most power that may be drawn",
    "temperature_celsius": "temperature of the device",
    "memory_temperature_celsius": "temperature of its memory",
    "sm_clock_hz": "clock of the multiprocessors",
    "sm_clock_max_hz": "highest clock of the multiprocessors",
    "memory_clock_hz": "clock of the memory",
    "memory_clock_max_hz": "highest clock of the memory",
    "dram_ratio": "GPM: bandwidth of device memory in use",
    "sm_ratio": "GPM: multiprocessors that work",
    "tensor_ratio": "GPM: time in which a tensor pipe worked",
    "occupancy_ratio": "GPM: warps that are resident",
    "pcie_tx_bytes_per_s": "sent over PCIe",
    "pcie_rx_bytes_per_s": "received over PCIe",
    "nvlink_tx_bytes_per_s": "sent over NVLink",
    "nvlink_rx_bytes_per_s": "received over NVLink",
    "reason_idle": "1 where clocks are low for lack of work",
    "reason_application_clocks": "1 where clocks are held by a setting",
    "reason_power_cap": "1 where software holds clocks for the power limit",
    "reason_hw_slowdown": "1 where hardware slows the device",
    "reason_hw_thermal": "1 where hardware slows it for heat",
    "reason_hw_power_brake": "1 where an outside signal slows it",
    "reason_sync_boost": "1 where another device holds its clocks",
    "reason_sw_thermal": "1 where software slows it for heat",
    "reason_display": "1 where a display holds its clocks",
}
UNITS = {"MiB": MIB, "MB": MIB, "GiB": MIB * 1024, "KiB": 1024.0, "W": 1.0, "C": 1.0, "MHz": 1e6,
         "MiB/s": MIB, "MB/s": MIB, "KB/s": 1000.0, "GPM:MiB/s": MIB, "mW": 1e-3}  # fmt: skip
# Of --query-gpu: the column without its unit.
COLUMNS = {
    "memory.total": "memory_total_bytes",
    "memory.used": "memory_used_bytes",
    "memory.free": "memory_free_bytes",
    "memory.reserved": "memory_reserved_bytes",
    "utilization.gpu": "gpu_busy_ratio",
    "utilization.memory": "memory_busy_ratio",
    "power.draw": "power_w",
    "power.draw.instant": "power_w",
    "power.draw.average": "power_w",
    "power.limit": "power_limit_w",
    "enforced.power.limit": "power_limit_w",
    "temperature.gpu": "temperature_celsius",
    "temperature.memory": "memory_temperature_celsius",
    "clocks.sm": "sm_clock_hz",
    "clocks.current.sm": "sm_clock_hz",
    "clocks.mem": "memory_clock_hz",
    "clocks.current.memory": "memory_clock_hz",
    "clocks.max.sm": "sm_clock_max_hz",
    "clocks.max.memory": "memory_clock_max_hz",
    "clocks.max.mem": "memory_clock_max_hz",
    "used_memory": "process_used_bytes",
    "used_gpu_memory": "process_used_bytes",
}
REASONS = {
    "gpu_idle": "reason_idle", "idle": "reason_idle", "applications_clocks_setting": "reason_application_clocks",
    "sw_power_cap": "reason_power_cap", "hw_slowdown": "reason_hw_slowdown",
    "hw_thermal_slowdown": "reason_hw_thermal", "hw_power_brake_slowdown": "reason_hw_power_brake",
    "sync_boost": "reason_sync_boost", "sw_thermal_slowdown": "reason_sw_thermal",
    "display_clock_setting": "reason_display",
}  # fmt: skip
# Of dmon: the column of the first head line.
DMON = {
    "pwr": "power_w", "gtemp": "temperature_celsius", "temp": "temperature_celsius",
    "mtemp": "memory_temperature_celsius", "sm": "gpu_busy_ratio", "mem": "memory_busy_ratio",
    "mclk": "memory_clock_hz", "pclk": "sm_clock_hz", "fb": "memory_used_bytes", "rxpci": "pcie_rx_bytes_per_s",
    "txpci": "pcie_tx_bytes_per_s", "dram": "dram_ratio", "smutil": "sm_ratio", "smocc": "occupancy_ratio",
    "mmaact": "tensor_ratio", "pcitx": "pcie_tx_bytes_per_s", "pcirx": "pcie_rx_bytes_per_s",
    "nvltx": "nvlink_tx_bytes_per_s", "nvlrx": "nvlink_rx_bytes_per_s",
}  # fmt: skip
# Of -q: the section and the label in it.
SECTIONS = {
    ("FB Memory Usage", "Total"): "memory_total_bytes",
    ("FB Memory Usage", "Used"): "memory_used_bytes",
    ("FB Memory Usage", "Free"): "memory_free_bytes",
    ("FB Memory Usage", "Reserved"): "memory_reserved_bytes",
    ("Utilization", "GPU"): "gpu_busy_ratio",
    ("Utilization", "Gpu"): "gpu_busy_ratio",
    ("Utilization", "Memory"): "memory_busy_ratio",
    ("Temperature", "GPU Current Temp"): "temperature_celsius",
    ("Temperature", "Memory Current Temp"): "memory_temperature_celsius",
    ("Clocks", "SM"): "sm_clock_hz",
    ("Clocks", "Memory"): "memory_clock_hz",
    ("Max Clocks", "SM"): "sm_clock_max_hz",
    ("Max Clocks", "Memory"): "memory_clock_max_hz",
}
POWER = {"Power Draw": "power_w", "Average Power Draw": "power_w", "Instantaneous Power Draw": "power_w",
         "Current Power Limit": "power_limit_w", "Enforced Power Limit": "power_limit_w"}  # fmt: skip
WORDS = {"name": "name", "gpu_name": "name", "driver_version": "driver", "uuid": "uuid", "gpu_uuid": "uuid",
         "pstate": "performance_state"}  # fmt: skip
# Columns of dmon that tell nothing of a model's steps.
OTHER_DMON = ("enc", "dec", "jpg", "ofa", "bar1", "ccpm", "sbecc", "dbecc", "pci", "pviol", "tviol", "gract", "intutil",
              "fp64", "fp32", "fp16")  # fmt: skip
