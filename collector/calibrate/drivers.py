"""The devices as their drivers name them, through NVML and amdsmi where those are; nothing where they are not."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

Answer = TypeVar("Answer")
Address = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class DriverDevice:
    """One device, or MIG slice of one: its ``uuid``, product ``name`` and PCI ``address`` (domain, bus, device).

    A MIG slice has none of its own. ``hip_uuid`` is what HIP calls an AMD device; amdsmi calls it something else.
    ``handle`` is what the library knows it by, as long as that is open.
    """

    kind: str
    uuid: str
    name: str
    address: Address | None = None
    hip_uuid: str | None = None
    handle: Any = field(default=None, compare=False, repr=False)


@contextmanager
def nvml() -> Iterator[Any]:
    """The module pynvml, initialised, for as long as the block runs; None where there is no library or no driver.

    NVML counts who initialised it, so this disturbs nobody who uses it beside.
    """
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:  # no module, no library, no driver, no permission: all of them mean that there is none
        yield None
        return
    try:
        yield pynvml
    finally:
        with suppress(Exception):
            pynvml.nvmlShutdown()


def attempt(call: Callable[..., Answer], *arguments: Any) -> Answer | None:
    """What the driver answers; None where it refuses or does not know the call, since each may fail alone."""
    try:
        return call(*arguments)
    except Exception:
        return None


def ask(library: Any, name: str, *arguments: Any) -> Any:
    """The same of a call by its name, which older bindings may not have."""
    return attempt(lambda: getattr(library, name)(*arguments))


def nvidia_devices(library: Any) -> list[DriverDevice]:
    """Every NVIDIA device that NVML shows, MIG slices in place of a device that is cut into them."""
    found = []
    for index in range(ask(library, "nvmlDeviceGetCount") or 0):
        handle = ask(library, "nvmlDeviceGetHandleByIndex", index)
        if handle is None:
            continue
        slices = list(_slices(library, handle))
        pci = ask(library, "nvmlDeviceGetPciInfo", handle)
        address = (pci.domain, pci.bus, pci.device) if pci is not None and not slices else None
        found += [_nvidia(library, one, address) for one in slices or [handle]]
    return [device for device in found if device is not None]


def _slices(library: Any, handle: Any) -> Iterator[Any]:
    mode = ask(library, "nvmlDeviceGetMigMode", handle)
    if not mode or mode[0] != 1:
        return
    for number in range(ask(library, "nvmlDeviceGetMaxMigDeviceCount", handle) or 0):
        one = ask(library, "nvmlDeviceGetMigDeviceHandleByIndex", handle, number)
        if one is not None:
            yield one


def _nvidia(library: Any, handle: Any, address: Address | None) -> DriverDevice | None:
    uuid = text(ask(library, "nvmlDeviceGetUUID", handle))
    if uuid is None:
        return None
    name = text(ask(library, "nvmlDeviceGetName", handle)) or "NVIDIA"
    return DriverDevice("cuda", uuid, name, address, handle=handle)


def amd_devices() -> list[DriverDevice]:
    """Every AMD device that amdsmi shows.

    The library is left initialised: it does not count who uses it, and a probe in this process may.
    """
    try:
        with redirect_stdout(io.StringIO()):  # it prints where it finds no library
            import amdsmi

        amdsmi.amdsmi_init()
        handles = amdsmi.amdsmi_get_processor_handles()
    except Exception:  # it raises KeyError where its library is not installed
        return []
    found = []
    for handle in handles:
        uuid = text(ask(amdsmi, "amdsmi_get_gpu_device_uuid", handle))
        if uuid is None:
            continue
        asic = ask(amdsmi, "amdsmi_get_gpu_asic_info", handle) or {}
        numbers = ask(amdsmi, "amdsmi_get_gpu_enumeration_info", handle) or {}
        address = address_of(text(ask(amdsmi, "amdsmi_get_gpu_device_bdf", handle)) or "")
        name, hip_uuid = text(asic.get("market_name")) or "AMD", text(numbers.get("hip_uuid"))
        found.append(DriverDevice("rocm", uuid, name, address, hip_uuid))
    return found


def address_of(words: str) -> Address | None:
    """Domain, bus and device of a PCI address such as 0000:c1:00.0."""
    try:
        domain, bus, device = words.split(".")[0].split(":")
        return int(domain, 16), int(bus, 16), int(device, 16)
    except ValueError:
        return None


def text(value: Any) -> str | None:
    """A driver's words, which older bindings give as bytes; None where there are none."""
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    return value if isinstance(value, str) and value else None
