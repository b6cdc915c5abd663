"""Whether this machine has a device for computing, or a driver of one: as the kernel tells it, without any library."""

from __future__ import annotations

from functools import cache
from pathlib import Path

# What the drivers make: NVIDIA's (its /proc is seen in containers too), AMD's amdkfd, WSL's for both.
DRIVERS = ("proc/driver/nvidia", "dev/nvidiactl", "dev/kfd", "dev/dxg")
PCI = "sys/bus/pci/devices"  # Documentation/ABI/testing/sysfs-bus-pci of Linux; a folder a device: vendor, class, ...
VENDORS = ("0x10de", "0x1002")  # NVIDIA, AMD/ATI: pci.ids
CLASSES = ("0x03", "0x12")  # display controllers, processing accelerators: pci.ids


@cache
def device_here(root: Path = Path("/")) -> bool:
    """Whether there is a driver or a device of NVIDIA or AMD; looked for once, for it is asked at every turn."""
    if any((root / driver).exists() for driver in DRIVERS):
        return True
    return any(
        _word(device / "vendor") in VENDORS and _word(device / "class").startswith(CLASSES)
        for device in (root / PCI).glob("*")
    )


def _word(path: Path) -> str:
    try:
        return path.read_text("ascii").strip().lower()
    except (OSError, ValueError):
        return ""
