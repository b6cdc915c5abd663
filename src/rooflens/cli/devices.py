"""Which devices this machine has, as its driver names them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from rooflens.analyzer.hardware import find_hardware
from rooflens.model_records import HardwareSpec


def with_nvml(read: Callable[[Any, Any], Any]) -> list[Any]:
    """What ``read`` says of each device; ImportError without the binding, NVMLError without a driver."""
    import pynvml  # type: ignore[import-not-found,unused-ignore]

    pynvml.nvmlInit()
    try:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
        return [read(pynvml, handle) for handle in handles]
    finally:
        pynvml.nvmlShutdown()


def device_names(root: Path) -> tuple[list[str], str]:
    """The product names of the NVIDIA devices here, else why there are none."""
    try:
        return [str(name) for name in with_nvml(lambda nvml, handle: nvml.nvmlDeviceGetName(handle))], ""
    except ImportError:
        why = "no NVIDIA driver"
    except Exception as error:  # whatever the driver says, who asks goes on
        why = f"no NVIDIA driver ({error})"
    found = []
    for file in sorted((root / "proc" / "driver" / "nvidia" / "gpus").glob("*/information")):
        with suppress(OSError):
            found += re.findall(r"^Model:\s*(.+?)\s*$", file.read_text(errors="replace"), re.MULTILINE)
    return found, f"{why}: this machine has its CPU only"


def hardware_here(pages: Iterable[str]) -> HardwareSpec | None:
    """What engines of this machine run on, where NVML names one kind of device and its roof is known; else None.

    None too where a page of another machine is among those read, whose devices may be others, and where a device is
    cut into MIG slices, which are other devices than the whole.
    """
    from rooflens.pipeline.pages import is_loopback  # with all that watching needs

    if not all(is_loopback(url) for url in pages):
        return None
    try:
        kinds = set(with_nvml(_kind))
        return find_hardware(kinds.pop()) if len(kinds) == 1 and None not in kinds else None
    except Exception:  # a device that is not known, no binding, no driver: as if there were none
        return None


def _kind(nvml: Any, handle: Any) -> str | None:
    """The device's name, None if it is cut into slices."""
    with suppress(nvml.NVMLError):  # a device that knows no slices
        if nvml.nvmlDeviceGetMigMode(handle)[0]:
            return None
    return str(nvml.nvmlDeviceGetName(handle))
