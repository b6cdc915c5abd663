"""Whose calibration it is: one processor as this process may use it, or one device by its own uuid."""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rooflens.calibration_records import MachineIdentity
from rooflens.collector.calibrate.drivers import Address, DriverDevice, amd_devices, nvidia_devices, nvml
from rooflens.collector.calibrate.read_json import as_line
from rooflens.collector.cpu_facts import (
    first_line,
    known_cache_bytes,
    known_memory_bytes,
    lines_of,
    usable_core_count,
    usable_cores,
)

# The machine id is confidential by its own manual (machine-id(5)): what is kept is a digest that names nothing else.
SALT = "rooflens calibration of machine "
DIGITS = 16
# The kernel keeps a part of memory for itself that changes from release to release.
MEMORY_UNIT_BYTES = 1 << 30


def machine_digest(root: Path = Path("/")) -> str | None:
    """A digest of this host's machine id, None where it has none (containers often have not)."""
    word = first_line(root / "etc/machine-id")
    if len(word) != 32 or not word.isalnum():
        return None
    return hashlib.sha256((SALT + word).encode()).hexdigest()[:DIGITS]


def identity_of_cpu(root: Path = Path("/")) -> MachineIdentity:
    """The processor, with as many cores as this process may use; ``root`` is where /proc, /sys and /etc are.

    Memory is rounded up to a GiB.
    """
    cores, memory_bytes = usable_cores(), known_memory_bytes(root)
    return MachineIdentity(
        kind="cpu",
        name=_processor_name(root),
        machine=machine_digest(root),
        memory_bytes=None if memory_bytes is None else -(-memory_bytes // MEMORY_UNIT_BYTES) * MEMORY_UNIT_BYTES,
        units=usable_core_count(root),
        cache_bytes=known_cache_bytes(cores, root),
    )


def _processor_name(root: Path) -> str:
    """'model name' of /proc/cpuinfo; where an architecture has none, its own numbers for maker and part."""
    found: dict[str, str] = {}
    for line in lines_of(root / "proc/cpuinfo"):
        name, _, value = line.partition(":")
        found.setdefault(name.strip(), value.strip())
    if found.get("model name"):
        return as_line(found["model name"])
    numbers = [found[name] for name in ("CPU implementer", "CPU part") if found.get(name)]
    return as_line(" ".join([platform.machine() or "cpu", *numbers]))


def identities_here() -> tuple[MachineIdentity, ...]:
    """This processor and every device that NVML or amdsmi shows; loads neither torch nor NumPy, never raises."""
    with nvml() as library:
        devices = [] if library is None else nvidia_devices(library)
    return (identity_of_cpu(), *(_identity(device) for device in [*devices, *amd_devices()]))


def _identity(device: DriverDevice) -> MachineIdentity:
    # The uuid is the device's own: sizes would add nothing but the difference between what two libraries say.
    return MachineIdentity(device.kind, as_line(device.name), machine_digest(), device.uuid or None)


def identity_of_torch(device: Any) -> MachineIdentity:
    """What torch calls ``device``, by the uuid and name that its driver has for it, as identities_here gives them.

    Without a driver's library it is torch's own uuid and name, under which only torch finds it again.
    """
    import torch

    chosen = torch.device(device)
    if chosen.type == "cpu":
        return identity_of_cpu()
    index = torch.cuda.current_device() if chosen.index is None else chosen.index
    facts = torch.cuda.get_device_properties(index)
    if torch.version.hip:
        found = match(facts, amd_devices(), None)
        return _identity(found or DriverDevice("rocm", hip_uuid(facts) or "", str(facts.name)))
    with nvml() as library:
        devices = [] if library is None else nvidia_devices(library)
    found = match(facts, devices, visible_slice(index, os.environ))
    return _identity(found or DriverDevice("cuda", cuda_uuid(facts) or "", str(facts.name)))


def match(facts: Any, devices: list[DriverDevice], slice_uuid: str | None) -> DriverDevice | None:
    """The driver's device that torch's properties are of: by uuid, by PCI address, or because there is no other."""
    named = {_bare(name) for name in (slice_uuid, cuda_uuid(facts), hip_uuid(facts)) if name}
    for device in devices:
        if named & {_bare(name) for name in (device.uuid, device.hip_uuid) if name}:
            return device
    address = _address(facts)
    for device in devices:
        if address is not None and device.address == address:
            return device
    return devices[0] if len(devices) == 1 else None


def _bare(uuid: str) -> str:
    """Without the words GPU- or MIG- before it: torch gives 16 bytes, and does not say which of both they are."""
    return uuid.lower().removeprefix("gpu-").removeprefix("mig-")


def visible_slice(index: int, environ: Mapping[str, str]) -> str | None:
    """The uuid of the MIG slice that CUDA_VISIBLE_DEVICES names in place ``index``; CUDA gives that of its parent."""
    words = [word.strip() for word in environ.get("CUDA_VISIBLE_DEVICES", "").split(",")]
    return words[index] if index < len(words) and words[index].startswith("MIG-") else None


def cuda_uuid(facts: Any) -> str | None:
    """torch's uuid of a CUDA device as NVML writes it; older releases of torch have none."""
    word = str(getattr(facts, "uuid", "") or "")
    return f"GPU-{word}" if word else None


def hip_uuid(facts: Any) -> str | None:
    """torch's uuid of a ROCm device as HIP writes it: its 16 bytes are the hexadecimal digits of a serial number."""
    word = str(getattr(facts, "uuid", "") or "").replace("-", "")
    try:
        digits = bytes.fromhex(word).decode("ascii")
    except ValueError:
        return None
    return f"GPU-{digits}" if digits.isalnum() else None


def _address(facts: Any) -> Address | None:
    found = [getattr(facts, name, None) for name in ("pci_domain_id", "pci_bus_id", "pci_device_id")]
    domain, bus, device = (value if isinstance(value, int) else -1 for value in found)
    return None if min(domain, bus, device) < 0 else (domain, bus, device)
