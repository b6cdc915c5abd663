"""The fields of DCGM that are read from a dcgm-exporter page: their spellings, units and what they are of.

Names, units and bits: NVIDIA/DCGM dcgmlib/dcgm_fields.h (the old names are aliases of the new ones since DCGM 4.6), the
lower case ones NVIDIA/dcgm-exporter etc/1.x-compatibility-metrics.csv.
"""

from __future__ import annotations

from dataclasses import dataclass

from rooflens.collector.plausible import (
    MOST_CLOCK_HZ,
    MOST_LINK_BYTES_PER_S,
    MOST_MEMORY_BYTES,
    MOST_PCIE_BYTES_PER_S,
    MOST_POWER_W,
    MOST_TEMPERATURE_CELSIUS,
)
from rooflens.device_records import Throttle

MIB = float(1 << 20)


@dataclass(frozen=True, slots=True)
class Field:
    """``key`` is what rooflens calls it, ``scale`` takes it to SI; a value above ``most`` (in SI) cannot be.

    ``board``: it is of the whole board, even on a series that is labelled as a MIG slice.
    """

    key: str
    spellings: tuple[str, ...]
    scale: float = 1.0
    most: float | None = None
    board: bool = False


def _ratio(key: str, *spellings: str) -> Field:
    return Field(key, spellings, most=1.0)


def _rate(key: str, *spellings: str) -> Field:
    """Bytes per second, whatever their TYPE line says: older lists of the exporter call them counters by mistake
    (NVIDIA/dcgm-exporter#87 and #88)."""
    most = MOST_PCIE_BYTES_PER_S if key.startswith("pcie") else MOST_LINK_BYTES_PER_S
    return Field(key, spellings, most=most, board=True)


FIELDS = (
    _ratio("dram_ratio", "DCGM_FI_PROF_DRAM_ACTIVE", "DCGM_FI_PROF_DRAM_UTIL_RATIO", "dcgm_fi_prof_dram_active"),
    _ratio(
        "tensor_ratio",
        "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
        "DCGM_FI_PROF_TENSOR_UTIL_RATIO",
        "dcgm_fi_prof_pipe_tensor_active",
    ),
    _ratio("sm_ratio", "DCGM_FI_PROF_SM_ACTIVE", "DCGM_FI_PROF_SM_UTIL_RATIO", "dcgm_fi_prof_sm_active"),
    _ratio(
        "sm_occupancy_ratio",
        "DCGM_FI_PROF_SM_OCCUPANCY",
        "DCGM_FI_PROF_SM_OCCUPANCY_RATIO",
        "dcgm_fi_prof_sm_occupancy",
    ),
    _ratio(
        "graphics_ratio",
        "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
        "DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO",
        "dcgm_fi_prof_gr_engine_active",
    ),
    _rate("pcie_tx_bytes_per_s", "DCGM_FI_PROF_PCIE_TX_BYTES", "dcgm_fi_prof_pcie_tx_bytes"),
    _rate("pcie_rx_bytes_per_s", "DCGM_FI_PROF_PCIE_RX_BYTES", "dcgm_fi_prof_pcie_rx_bytes"),
    _rate("nvlink_tx_bytes_per_s", "DCGM_FI_PROF_NVLINK_TX_BYTES"),
    _rate("nvlink_rx_bytes_per_s", "DCGM_FI_PROF_NVLINK_RX_BYTES"),
    _rate("c2c_tx_bytes_per_s", "DCGM_FI_PROF_C2C_TX_ALL_BYTES"),
    _rate("c2c_rx_bytes_per_s", "DCGM_FI_PROF_C2C_RX_ALL_BYTES"),
    Field("sm_clock_hz", ("DCGM_FI_DEV_SM_CLOCK", "dcgm_sm_clock"), 1e6, MOST_CLOCK_HZ),
    Field("memory_clock_hz", ("DCGM_FI_DEV_MEM_CLOCK", "dcgm_memory_clock"), 1e6, MOST_CLOCK_HZ),
    Field("sm_clock_max_hz", ("DCGM_FI_DEV_MAX_SM_CLOCK",), 1e6, MOST_CLOCK_HZ),
    Field("memory_clock_max_hz", ("DCGM_FI_DEV_MAX_MEM_CLOCK",), 1e6, MOST_CLOCK_HZ),
    Field(
        "power_w",
        ("DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_BOARD_POWER_WATTS", "dcgm_power_usage"),
        most=MOST_POWER_W,
        board=True,
    ),
    Field(
        "power_limit_w",
        ("DCGM_FI_DEV_ENFORCED_POWER_LIMIT", "DCGM_FI_DEV_BOARD_POWER_LIMIT_ENFORCED_WATTS"),
        most=MOST_POWER_W,
        board=True,
    ),
    Field("energy_j", ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "dcgm_total_energy_consumption"), 1e-3, board=True),
    Field(
        "temperature_celsius",
        ("DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_GPU_TEMP_CELSIUS", "dcgm_gpu_temp"),
        most=MOST_TEMPERATURE_CELSIUS,
    ),
    Field("memory_used_bytes", ("DCGM_FI_DEV_FB_USED", "dcgm_fb_used"), MIB, MOST_MEMORY_BYTES),
    Field("memory_free_bytes", ("DCGM_FI_DEV_FB_FREE", "dcgm_fb_free"), MIB, MOST_MEMORY_BYTES),
    Field("memory_reserved_bytes", ("DCGM_FI_DEV_FB_RESERVED",), MIB, MOST_MEMORY_BYTES),
    Field("memory_bytes", ("DCGM_FI_DEV_FB_TOTAL",), MIB, MOST_MEMORY_BYTES),
    Field("throttles", ("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS")),
    # In percent under both names: the exporter prints DCGM's integer.
    Field("kernel_ratio", ("DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_GPU_UTIL_RATIO", "dcgm_gpu_utilization"), 0.01, 1.0),
)
BY_SPELLING = {spelling: field for field in FIELDS for spelling in field.spellings}
BOARD_KEYS = frozenset(field.key for field in FIELDS if field.board)

# DCGM_CLOCKS_EVENT_REASON_*; bit 0 (idle) and bit 8 (the display's clocks) hold nothing back that computes.
REASON_BITS = {
    0x02: Throttle.APPLICATION_CLOCKS,
    0x04: Throttle.POWER_CAP,
    0x08: Throttle.HARDWARE_SLOWDOWN,
    0x10: Throttle.SYNC_BOOST,
    0x20: Throttle.THERMAL,
    0x40: Throttle.HARDWARE_THERMAL,
    0x80: Throttle.POWER_BRAKE,
}

# Time in each reason since the driver was loaded, in nanoseconds. The *_VIOLATION fields are left out: the exporter's
# own lists give their unit as microseconds in some versions and as nanoseconds in others.
THROTTLED_NS = {
    "DCGM_FI_DEV_CLOCKS_EVENT_REASON_SW_POWER_CAP_NS": Throttle.POWER_CAP,
    "DCGM_FI_DEV_CLOCKS_EVENT_REASON_SYNC_BOOST_NS": Throttle.SYNC_BOOST,
    "DCGM_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN_NS": Throttle.THERMAL,
    "DCGM_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN_NS": Throttle.HARDWARE_THERMAL,
    "DCGM_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN_NS": Throttle.POWER_BRAKE,
}
BY_SPELLING |= {
    spelling: Field(f"throttled_s.{reason}", (spelling,), 1e-9) for spelling, reason in THROTTLED_NS.items()
}

# What DCGM writes where it has no value: blank, not found, not supported, not permitted (dcgm_structs.h). The
# exporter leaves such series out since 2021, older ones print them; the 64-bit integers are one number as a double.
BLANKS = frozenset([*(float(0x7FFFFFF0 + n) for n in range(4)), *(float((1 << 47) + n) for n in range(4))])
LEAST_BLANK = float(0x7FFFFFFFFFFFFFF0)

UUID_LABELS = ("UUID", "uuid")
MODEL_LABELS = ("modelName", "model_name")
DRIVER_LABELS = ("DCGM_FI_DRIVER_VERSION", "DCGM_FI_SYSTEM_DRIVER_VERSION")
SLICE_LABEL, PROFILE_LABEL, SLICE_UUID_LABEL = "GPU_I_ID", "GPU_I_PROFILE", "dra_mig_device_uuid"
# A series with one of these is of a link, a switch or a processor, not of a device.
OTHER_LABELS = frozenset(["nvlink", "nvswitch", "cpu", "cpucore"])


def throttles(mask: float) -> tuple[Throttle, ...]:
    """The reasons that a bit mask of DCGM names."""
    return tuple(reason for bit, reason in REASON_BITS.items() if int(mask) & bit)
