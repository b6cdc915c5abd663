"""An NVIDIA driver for tests, as its Python binding shows it."""

from __future__ import annotations

import types
from typing import Any


def nvml(names: list[str], reasons: int = 0, now_mhz: int = 1980, sliced: bool = False) -> types.ModuleType:
    """A driver with these devices."""
    made = types.ModuleType("pynvml")
    functions: dict[str, Any] = {
        "NVMLError": type("NVMLError", (Exception,), {}), "NVML_CLOCK_SM": 1,
        "nvmlInit": lambda: None, "nvmlShutdown": lambda: None, "nvmlDeviceGetCount": lambda: len(names),
        "nvmlDeviceGetHandleByIndex": lambda index: index, "nvmlDeviceGetName": lambda handle: names[handle],
        "nvmlDeviceGetCurrentClocksThrottleReasons": lambda handle: reasons,
        "nvmlDeviceGetClockInfo": lambda handle, kind: now_mhz, "nvmlDeviceGetMaxClockInfo": lambda handle, kind: 1980,
        "nvmlDeviceGetMigMode": lambda handle: [int(sliced), int(sliced)],
    }  # fmt: skip
    vars(made).update(functions)
    return made


def lose(made: types.ModuleType, call: str, index: int) -> None:
    """Have this call fail for one device as for one that fell off the bus."""
    well = getattr(made, call)

    def lost(handle: int) -> Any:
        if handle == index:
            raise made.NVMLError("GPU is lost")
        return well(handle)

    setattr(made, call, lost)
