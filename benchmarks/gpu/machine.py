"""Which machine, which versions, which commit: what a result means nothing without."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
PACKAGES = ("torch", "numpy", "nvidia-ml-py")


def commit() -> str | None:
    """The commit of this checkout, with a + where files that git knows were changed; None outside of one."""
    head = _git("rev-parse", "HEAD")
    if head is None:
        return None
    return head + ("+" if _git("status", "--porcelain", "--untracked-files=no") else "")


def _git(*words: str) -> str | None:
    with suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(["git", "-C", str(REPOSITORY), *words], capture_output=True, text=True, timeout=30)
        return done.stdout.strip() if done.returncode == 0 else None
    return None


def identity(torch: Any, device: Any) -> dict[str, Any]:
    """The machine and the device; None for what is not known."""
    found: dict[str, Any] = {
        "measured_unix_s": time.time(),
        "commit": commit(),
        "system": platform.platform(),
        "architecture": platform.machine(),
        "cpu": _cpu_name(),
        "cores": len(os.sched_getaffinity(0)),
        "load_average": list(os.getloadavg()),
        "versions": {"python": platform.python_version(), **{name: _version(name) for name in PACKAGES}},
        "cuda": torch.version.cuda,
        "threads": torch.get_num_threads(),
        "device": str(device),
    }
    if device.type == "cuda":
        properties, uuid = torch.cuda.get_device_properties(device), uuid_of(device)
        found |= {
            "device_name": properties.name,
            "device_uuid": uuid,
            "device_memory_bytes": properties.total_memory,
            "multiprocessors": properties.multi_processor_count,
            "l2_cache_bytes": getattr(properties, "L2_cache_size", None),
            "driver": nvml_of(uuid, lambda nvml, _: _text(nvml.nvmlSystemGetDriverVersion())),
        }
    return found


def uuid_of(device: Any) -> str | None:
    """The UUID of a CUDA device, or of its MIG slice, as its driver writes it; None where there is none."""
    from rooflens.collector.calibrate import identity_of_torch

    found: str | None = identity_of_torch(device).device_uuid if device.type == "cuda" else None
    return found


def nvml_of(uuid: str | None, read: Callable[[Any, Any], Any]) -> Any:
    """What ``read`` says of one device by NVML; None where that fails."""
    if uuid is None:
        return None
    with suppress(Exception):
        import pynvml

        pynvml.nvmlInit()
        try:
            return read(pynvml, pynvml.nvmlDeviceGetHandleByUUID(uuid.encode()))
        finally:
            pynvml.nvmlShutdown()
    return None


def clocks(uuid: str | None) -> dict[str, int] | None:
    """The clocks in MHz, now and at most; None where NVML does not say."""

    def read(nvml: Any, handle: Any) -> dict[str, int]:
        domains = {"sm": nvml.NVML_CLOCK_SM, "memory": nvml.NVML_CLOCK_MEM}
        now = {f"{name}_mhz": nvml.nvmlDeviceGetClockInfo(handle, domain) for name, domain in domains.items()}
        most = {f"{name}_max_mhz": nvml.nvmlDeviceGetMaxClockInfo(handle, domain) for name, domain in domains.items()}
        return now | most

    found: dict[str, int] | None = nvml_of(uuid, read)
    return found


def _version(package: str) -> str | None:
    with suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(package)
    return None


def _cpu_name() -> str | None:
    with suppress(OSError):
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
        if found := re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE):
            return found[1].strip()
    return None


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
