"""Made counters of a window, unless said otherwise: one device of this engine alone, covered, at its highest clocks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from made_windows import INFO, ROOFLINE, case, window

from rooflens.analyzer.roofline import Roofline
from rooflens.analyzer.rules.case import Case
from rooflens.device_records import CounterSource, WindowCounters
from rooflens.live_records import Window
from rooflens.records import EngineInfo, StepTable

PLAIN: dict[str, Any] = {
    "source": CounterSource.NVML, "devices": 1, "devices_expected": 1, "covered_ratio": 1.0, "sm_clock_ratio": 1.0,
    "memory_clock_ratio": 1.0, "shared": False,
}  # fmt: skip
HEALTHY: dict[str, Any] = {
    "dram_ratio": 0.7, "tensor_ratio": 0.1, "sm_ratio": 0.9, "sm_occupancy_ratio": 0.3, "graphics_ratio": 0.97,
    "kernel_ratio": 1.0, "power_w": 500.0, "power_ratio": 0.71, "counter_bytes": 1.05e12, "counter_bytes_low": 1.0e12,
    "counter_bytes_high": 1.1e12, "model_bytes": 1.0e12, "model_bytes_low": 0.98e12, "model_bytes_high": 1.02e12,
    "ratio": 1.05, "ratio_low": 0.98, "ratio_high": 1.12, "engine_core_cores": 0.8, "engine_core_busiest_cores": 0.7,
}  # fmt: skip


def counters(**facts: Any) -> WindowCounters:
    """The counters of one device, with ``facts``; what is not given is not known."""
    return WindowCounters(**(PLAIN | facts))


def beside(table: StepTable | Window, info: EngineInfo = INFO, roofline: Roofline = ROOFLINE, **facts: Any) -> Case:
    """What a rule would get of a window with such counters."""
    made = table if isinstance(table, Window) else window(table, info, roofline)
    return case(replace(made, counters=counters(**facts)), info=info, roofline=roofline)
