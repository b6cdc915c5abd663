"""What a device says of itself, and which devices and slices there are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rooflens.collector.nvml.failures import (
    GPM,
    IMPOSSIBLE,
    INVALID_ARGUMENT,
    LIBRARY,
    NOT_FOUND,
    NOT_SUPPORTED,
    SHARED,
)
from rooflens.collector.nvml.library import Attempt, Library
from rooflens.collector.plausible import plausible_facts
from rooflens.device_records import CounterSource, DeviceFacts

MHZ = 1e6
SM_CLOCK, MEMORY_CLOCK = 1, 2  # nvml.h, nvmlClockType_t
MEMORY_V2 = 0x2000028  # nvml.h, nvmlMemory_v2: its size and version
MOST_SLICES = 64
PROCESSES = "nvmlDeviceGetComputeRunningProcesses"
EMPTY = frozenset({INVALID_ARGUMENT, NOT_FOUND})  # a place without a slice


@dataclass(frozen=True, slots=True)
class Found:
    """One device: its facts and handles. ``whole`` is the handle of the whole GPU, ``instance`` the GPU instance of a
    slice; both say where what a slice does not know of itself is read."""

    facts: DeviceFacts
    handle: Any
    whole: Any
    instance: int | None = None


def find_devices(library: Library) -> list[Found] | None:
    """Every device that an engine can run on: whole ones, and instead of a divided one its slices.

    None where not even their number is told.
    """
    count = library.read(LIBRARY, "the number of devices", ("nvmlDeviceGetCount", ()))
    driver = library.read(LIBRARY, "the driver's version", ("nvmlSystemGetDriverVersion", ()))
    return None if count is None else [found for index in range(count) for found in _at(library, index, driver)]


def _at(library: Library, index: int, driver: str | None) -> Iterator[Found]:
    """The device of an index, or its slices; nothing where it does not answer."""
    owner = f"device {index}"
    handle = library.read(owner, "its handle", ("nvmlDeviceGetHandleByIndex", (index,)))
    uuid = None if handle is None else library.read(owner, "its uuid", ("nvmlDeviceGetUUID", (handle,)))
    if uuid is None:
        return
    slices = list(_slices(library, uuid, handle))
    if not slices:
        yield Found(_facts(library, uuid, handle, handle, index, driver), handle, handle)
    shared = {instance for instance, several in Counter(i for _, _, i in slices).items() if several > 1}
    for name, slice_handle, instance in slices:
        facts = _facts(library, name, slice_handle, handle, index, driver, uuid, instance in shared)
        yield Found(facts, slice_handle, handle, instance)


def _slices(library: Library, uuid: str, handle: Any) -> Iterator[tuple[str, Any, int | None]]:
    """(uuid, handle, GPU instance) of each MIG device of a GPU; nothing where it is not divided."""
    mode = library.read(uuid, "MIG mode", ("nvmlDeviceGetMigMode", (handle,)), ordinary=True)
    if not mode or not mode[0]:
        return
    most = library.read(uuid, "the number of its slices", ("nvmlDeviceGetMaxMigDeviceCount", (handle,)))
    for place in range(min(most or 0, MOST_SLICES)):
        what = f"its slice {place}"
        found = library.read(uuid, what, ("nvmlDeviceGetMigDeviceHandleByIndex", (handle, place)), expected=EMPTY)
        if found is None:
            continue
        name = library.read(uuid, f"the uuid of its slice {place}", ("nvmlDeviceGetUUID", (found,)))
        if name is not None:
            instance = library.read(name, "its GPU instance", ("nvmlDeviceGetGpuInstanceId", (found,)))
            yield name, found, instance


def memory_attempts(library: Library, handle: Any) -> tuple[Attempt, Attempt]:
    """The second version, which sets aside what the driver reserves, before the first."""
    version = library.constant("nvmlMemory_v2", MEMORY_V2)
    return ("nvmlDeviceGetMemoryInfo", (handle, version)), ("nvmlDeviceGetMemoryInfo", (handle,))


def _facts(
    library: Library,
    uuid: str,
    handle: Any,
    whole: Any,
    index: int,
    driver: str | None,
    parent_uuid: str | None = None,
    shared: bool = False,
) -> DeviceFacts:
    name = library.read(uuid, "its name", ("nvmlDeviceGetName", (handle,)))
    memory = library.read(uuid, "memory size", *memory_attempts(library, handle), ordinary=True)
    sm = library.read(uuid, "highest SM clock", ("nvmlDeviceGetMaxClockInfo", (whole, SM_CLOCK)))
    memory_clock = library.read(uuid, "highest memory clock", ("nvmlDeviceGetMaxClockInfo", (whole, MEMORY_CLOCK)))
    newer, older = PROCESSES, PROCESSES + "_v2"  # a driver before 2022 knows the older alone
    processes = library.read(uuid, "its processes", (newer, (handle,)), (older, (handle,)))
    base, _, profile = (name or "").partition(" MIG ")
    told = DeviceFacts(
        uuid=uuid,
        source=CounterSource.NVML,
        name=base or None,
        index=index,
        parent_uuid=parent_uuid,
        mig_profile=profile or None,
        memory_bytes=None if memory is None else int(memory.total),
        unified_memory=_unified(library, uuid, memory),
        memory_bandwidth_bytes_per_s=None if parent_uuid else _bandwidth(library, uuid, whole, memory_clock),
        sm_clock_max_hz=sm * MHZ if sm else None,
        memory_clock_max_hz=memory_clock * MHZ if memory_clock else None,
        power_limit_w=None if parent_uuid else _power_limit(library, uuid, whole),
        power_limit_max_w=None if parent_uuid else _highest_power_limit(library, uuid, whole),
        driver_version=driver,
        counters=_counters(library, uuid, whole, shared),
        pids=tuple(sorted({int(process.pid) for process in processes or ()})),
    )
    facts, beyond = plausible_facts(told)
    for words in beyond:  # forgotten before the next look, as ``NvmlProbe`` says
        library.failures.missing(uuid, words, IMPOSSIBLE)
    return facts


def _unified(library: Library, uuid: str, memory: Any) -> bool | None:
    """A device that supports no figure of memory has none of its own: it shares the host's (GB10, Jetson)."""
    if memory is not None:
        return False
    return True if library.failures.lacks(uuid, "memory size") else None


def _bandwidth(library: Library, uuid: str, whole: Any, clock_mhz: int | None) -> float | None:
    """Bus width x 2 x the highest memory clock: HBM, GDDR and LPDDR all move two words a cycle of the clock told.

    None of a slice: how much of it GPM takes for all there is to a slice is documented nowhere.
    """
    bits = library.read(uuid, "memory bus width", ("nvmlDeviceGetMemoryBusWidth", (whole,)))
    return bits / 8 * 2 * clock_mhz * MHZ if bits and clock_mhz else None


def _power_limit(library: Library, uuid: str, whole: Any) -> float | None:
    milliwatts = library.read(uuid, "power limit", ("nvmlDeviceGetEnforcedPowerLimit", (whole,)))
    return milliwatts / 1e3 if milliwatts else None


def _highest_power_limit(library: Library, uuid: str, whole: Any) -> float | None:
    """The highest limit that root could set; of its answer, the lowest and the highest, in milliwatts."""
    call = ("nvmlDeviceGetPowerManagementLimitConstraints", (whole,))
    milliwatts = library.read(uuid, "highest power limit", call)
    return milliwatts[1] / 1e3 if milliwatts and milliwatts[1] else None


def _counters(library: Library, uuid: str, whole: Any, shared: bool) -> bool | None:
    """Whether GPM tells of this device; a compute instance that shares its GPU instance has no counters of its own."""
    if shared:
        library.failures.missing(uuid, GPM, SHARED)
        return False
    support = library.read(uuid, GPM, ("nvmlGpmQueryDeviceSupport", (whole,)))
    if support is None:
        return False if library.failures.lacks(uuid, GPM) else None
    if not support.isSupportedDevice:
        library.failures.missing(uuid, GPM, NOT_SUPPORTED)
    return bool(support.isSupportedDevice)
