"""Which devices this machine has, as NVML names them; asked in a process of its own, which needs no NumPy."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rooflens.analyzer.hardware import find_hardware
from rooflens.cli import apart
from rooflens.model_records import HardwareSpec
from rooflens.records import RooflensError

MODULE = "rooflens.cli.devices"
NVML = "NVML, the library of NVIDIA's driver,"
# As nvml.h numbers them; without either there is no driver.
DRIVER_NOT_LOADED, LIBRARY_NOT_FOUND = 9, 12
ABSENT = (DRIVER_NOT_LOADED, LIBRARY_NOT_FOUND)
NO_DEVICE = "NVIDIA's driver is loaded but shows no device here (a container may have been given none)"
REASONS = ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")


@dataclass(frozen=True, slots=True)
class NamedDevice:
    """One device: ``name`` as its driver spells it, None where ``problem`` says why it is not told.

    ``sliced`` is whether it is cut into MIG slices. ``clocks`` are the SM clock now and at most in MHz, and the bits
    of what holds it down, 0 where the device does not say.
    """

    name: str | None = None
    sliced: bool = False
    clocks: tuple[int, int, int] | None = None
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class NamedDevices:
    """All of them; ``problem`` is why there are none. ``absent``: there is no driver, or no device."""

    devices: tuple[NamedDevice, ...] = ()
    problem: str | None = None
    absent: bool = False
    crashed: bool = False

    @property
    def silent(self) -> str | None:
        """Why a driver that is there says nothing of its devices."""
        return None if self.absent else self.problem

    @property
    def names(self) -> list[str]:
        """Of those that told theirs."""
        return [each.name for each in self.devices if each.name is not None]


def named_devices(ended: Callable[[], bool] = lambda: False) -> NamedDevices:
    """What NVML says, or why it says nothing; within seconds, whatever the driver does, or once ``ended`` is true."""
    try:
        said = apart.ask(MODULE, NVML, ended)
    except apart.Unanswered as error:
        return NamedDevices(problem=str(error), crashed=error.crashed)
    devices = [{**each, "clocks": tuple(each["clocks"]) if each["clocks"] else None} for each in said["devices"]]
    return NamedDevices(tuple(NamedDevice(**each) for each in devices), said["problem"], said["absent"])


def told() -> dict[str, Any]:
    """The same from inside this process, which goes down with its driver."""
    return asdict(_devices())


def _devices() -> NamedDevices:
    try:
        import pynvml  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        return NamedDevices(problem="no NVIDIA driver", absent=True)
    try:
        pynvml.nvmlInit()
        count = pynvml.nvmlDeviceGetCount()
    except Exception as error:  # whatever the driver says, who asks goes on
        from rooflens.collector.nvml.library import unloadable

        code = getattr(error, "value", None)
        if code == LIBRARY_NOT_FOUND and (broken := unloadable()) is not None:
            return NamedDevices(problem=broken)
        if code in ABSENT:
            return NamedDevices(problem=f"no NVIDIA driver ({error})", absent=True)
        return NamedDevices(problem=f"NVIDIA's driver fails ({error})")
    found = tuple(_device(pynvml, index) for index in range(count))
    with suppress(Exception):
        pynvml.nvmlShutdown()
    return NamedDevices(found, None if found else NO_DEVICE, absent=not found)


def _device(nvml: Any, index: int) -> NamedDevice:
    """One of them, which may be lost while the others are well."""
    clocks, sliced = None, False
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        name = nvml.nvmlDeviceGetName(handle)
    except Exception as error:
        return NamedDevice(problem=str(error))
    with suppress(Exception):  # a device that knows no slices
        sliced = bool(nvml.nvmlDeviceGetMigMode(handle)[0])
    with suppress(Exception):
        clocks = _clocks(nvml, handle)
    return NamedDevice(name.decode("utf-8", "replace") if isinstance(name, bytes) else str(name), sliced, clocks)


def _clocks(nvml: Any, handle: Any) -> tuple[int, int, int]:
    reasons = 0
    for name in REASONS:  # a driver has the old one, both, or some day only the new one
        with suppress(nvml.NVMLError, AttributeError):
            reasons = getattr(nvml, name)(handle)
            break
    now_mhz = nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)
    return now_mhz, nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_SM), reasons


def proc_names(root: Path) -> list[str]:
    """The product names that the kernel's module gives, for who has no NVML."""
    found = []
    for file in sorted((root / "proc" / "driver" / "nvidia" / "gpus").glob("*/information")):
        with suppress(OSError):
            found += re.findall(r"^Model:\s*(.+?)\s*$", file.read_text(errors="replace"), re.MULTILINE)
    return found


def hardware_here(
    pages: Iterable[str], ended: Callable[[], bool] = lambda: False
) -> tuple[HardwareSpec | None, NamedDevices]:
    """What engines of this machine run on, where NVML names one kind of device and its roof is known; else None.

    None too where a page of another machine is among those read, whose devices may be others, and where a device is
    cut into MIG slices, which are other devices than the whole. With it what NVML said.
    """
    from rooflens.pipeline.pages import is_loopback  # with all that watching needs

    if not all(is_loopback(url) for url in pages):
        return None, NamedDevices()
    here = named_devices(ended)
    kinds = set(here.names)
    if len(kinds) != 1 or any(each.sliced for each in here.devices):
        return None, here
    try:
        return find_hardware(kinds.pop()), here
    except RooflensError:  # a device that is not known
        return None, here


if __name__ == "__main__":
    apart.answer(told)
