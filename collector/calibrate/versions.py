"""Which releases measured, and which of them make a calibration old when they change."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from rooflens import __version__
from rooflens.collector.calibrate.drivers import ask, nvml, text

# What was measured through these changes with their kernels: by a major release, and by any release of a driver.
MAJOR = ("numpy", "torch")
EXACT = ("driver",)


def versions_here() -> dict[str, str]:
    """NumPy, torch and the NVIDIA driver as far as they are installed here; only the driver's library is loaded."""
    driver = driver_version()
    return installed_here() if driver is None else installed_here() | {"driver": driver}


def installed_here() -> dict[str, str]:
    """NumPy and torch as far as they are installed here; nothing of it is loaded, and no driver is asked."""
    found = {name: _installed(name) for name in MAJOR}
    return {name: value for name, value in found.items() if value is not None}


def versions_of_numpy() -> dict[str, str]:
    """Of a measurement through NumPy."""
    return _own() | {"numpy": _installed("numpy") or "unknown"}


def versions_of_torch(torch: Any, device_type: str) -> dict[str, str]:
    """Of a measurement through torch: its own, and of CUDA or HIP and the driver where a device is measured."""
    found = _own() | {"torch": str(torch.__version__)}
    if device_type == "cpu":
        return found
    more = {"cuda": torch.version.cuda, "hip": torch.version.hip, "driver": driver_version()}
    return found | {name: str(value) for name, value in more.items() if value}


def driver_version() -> str | None:
    """The NVIDIA driver's, None without one."""
    with nvml() as library:
        return None if library is None else text(ask(library, "nvmlSystemGetDriverVersion"))


def changed(then: Mapping[str, str], now: Mapping[str, str]) -> str | None:
    """What is another release now than when it was measured, as far as it matters and both are known."""
    for name in (*MAJOR, *EXACT):
        if name not in then or name not in now:
            continue
        before, after = (_major(value) if name in MAJOR else value for value in (then[name], now[name]))
        if before != after:
            return f"{name} was {then[name]} and is {now[name]}"
    return None


def _own() -> dict[str, str]:
    return {"rooflens": __version__, "python": platform.python_version()}


def _installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _major(release: str) -> str:
    return release.partition(".")[0]
