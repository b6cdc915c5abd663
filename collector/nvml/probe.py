"""The counters of NVIDIA devices, sampled for as long as anyone likes whatever the driver does meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Set

from rooflens.collector.nvml.device import Device
from rooflens.collector.nvml.facts import find_devices
from rooflens.collector.nvml.failures import LIBRARY
from rooflens.collector.nvml.gpm import GpmRequest
from rooflens.collector.nvml.library import Library
from rooflens.device_records import DeviceFacts
from rooflens.protocols import Probed

FASTEST_PERIOD_S = 0.25
PCIE_PERIOD_S = 1.0  # the fastest at which eight devices' 40 ms of calls for PCIe find room
LOOK_S = 10.0  # how often facts and processes are read again
LONGEST_PERIODS = 10  # a window of more is not one that a mean tells anything of
NO_DEVICE = "NVML: no device: the driver is loaded but shows none here (a container may have been given none)"


class NvmlProbe:
    """A Probe of NVML. ``sample`` is for one thread; ``watch`` may be called from any.

    A sample is the window since the last call, so the first call brings devices and no sample, and a call within
    200 ms of the last one brings nothing new. Devices are known by uuid: an index may change, and after a loss NVML is
    opened anew, with growing pauses of a minute at most, and all devices are looked for again.
    """

    def __init__(self, period_s: float = 1.0, clock: Callable[[], float] = time.monotonic) -> None:
        self.period_s = max(FASTEST_PERIOD_S, period_s)
        self._clock = clock
        self._library = Library(self.period_s, clock)
        self._watched: frozenset[str] | None = None
        self._spelling: dict[str, str] = {}  # of devices that are asked for
        self._request: GpmRequest | None = None
        self._devices: dict[str, Device] = {}
        self._looked_s: float | None = None
        self._seen: dict[str, str] = {}  # whole devices that were here, by uuid in lower case

    def watch(self, uuids: frozenset[str] | None) -> None:
        """Sample these devices from now on, None for all; the facts of all devices are told in any case."""
        self._spelling = {uuid.lower(): uuid for uuid in uuids or ()}
        self._watched = None if uuids is None else frozenset(self._spelling)

    def sample(self) -> Probed:
        """The counters since the last call. Never raises; blocks for as long as the driver does."""
        try:
            return self._sample()
        except Exception as error:
            self._looked_s = None
            return Probed(problems=(f"NVML: a sample failed ({type(error).__name__}: {error}): please report it",))

    def close(self) -> None:
        """Give back all that is held of NVML; a later sample opens it again."""
        self._drop_devices()
        self._library.close()

    def _sample(self) -> Probed:
        library, watched = self._library, self._watched
        if not library.open():
            return Probed(problems=(library.problem,) if library.problem else ())
        self._look_if_due()
        longest_s = self.period_s * LONGEST_PERIODS
        samples = []
        for uuid, device in self._devices.items():
            if watched is not None and uuid.lower() not in watched:
                device.rest()
                continue
            made = device.sample(longest_s, pcie_calls=self.period_s >= PCIE_PERIOD_S)
            if made is not None:
                samples.append(made)
        divided = {facts.parent_uuid.lower() for facts in self._facts() if facts.parent_uuid}
        absent = self._absent() - divided
        library.reopen_wanted = library.reopen_wanted or bool(absent) or not self._devices
        asked = watched or frozenset()
        problems = tuple(self._problems(watched, absent if watched is None else absent & watched, divided & asked))
        facts = tuple(self._facts())
        lacks = tuple(library.failures.lacking(self._devices.keys()))
        if library.reopen_due:
            self._reopen()
        elif not library.reopen_wanted:
            library.settled()
        return Probed(devices=facts, samples=tuple(samples), problems=problems, lacks=lacks)

    def _absent(self) -> Set[str]:
        """Devices that are asked for, or were here before, and are not now; only NVML opened anew shows them again.

        Slices come and go as they are made, and a device that was divided is here in its slices.
        """
        facts = self._facts()
        self._seen |= {fact.uuid.lower(): fact.uuid for fact in facts if fact.parent_uuid is None}
        for fact in facts:
            self._seen.pop((fact.parent_uuid or "").lower(), None)
        return ((self._watched or frozenset()) | self._seen.keys()) - {fact.uuid.lower() for fact in facts}

    def _facts(self) -> list[DeviceFacts]:
        return [device.facts for device in self._devices.values()]

    def _problems(self, watched: frozenset[str] | None, absent: Set[str], divided: Set[str]) -> Iterator[str]:
        """One line for each device and kind of failure; of devices that nobody asks for, nothing."""
        unasked = {uuid for uuid in self._devices if watched is not None and uuid.lower() not in watched}
        lines = list(self._library.failures.lines(self._library.failures.owners() - unasked))
        if not self._devices and not lines:
            yield NO_DEVICE
        yield from lines
        for uuid in sorted(divided):
            yield (
                f"NVML: {self._spelt(uuid)} is divided into MIG slices, and only a slice has counters of its own: "
                "start the engine with the uuid of its slice (MIG-..., as nvidia-smi -L lists them)"
            )
        for uuid in sorted(absent):
            where = "it fell off the bus, or is not given to this container; looked for again"
            yield f"NVML: {self._spelt(uuid)} is not here: {where}"

    def _spelt(self, uuid: str) -> str:
        """As the device says it, or who asks for it."""
        return self._seen.get(uuid) or self._spelling.get(uuid, uuid)

    def _look_if_due(self) -> None:
        now_s = self._clock()
        due = self._looked_s is None or now_s - self._looked_s >= LOOK_S
        if due or not all(device.is_there() for device in self._devices.values()):
            self._look()

    def _look(self) -> None:
        """Find the devices that are there now; one that was there goes on with its window."""
        self._looked_s = self._clock()
        if self._request is None:
            self._request = GpmRequest(self._library)
        failures = self._library.failures
        failures.forget(failures.owners() - self._devices.keys() - {LIBRARY})  # what did not answer is asked again
        everything = find_devices(self._library)
        if everything is None:
            return
        before, self._devices = self._devices, {}
        for found in everything:
            uuid = found.facts.uuid
            known = before.get(uuid)
            if known is not None and known.is_same(found):
                known.update(found)
                self._devices[uuid] = before.pop(uuid)
            else:
                self._devices[uuid] = Device(self._library, self._request, found, self._clock)
        for gone in before.values():
            gone.free()
        failures.forget(before.keys() - self._devices.keys())

    def _reopen(self) -> None:
        """Open NVML anew and begin the next windows at once, so that devices which are well lose no time."""
        self._drop_devices()
        if self._library.reopen():
            self._look()
            for uuid, device in self._devices.items():
                if self._watched is None or uuid.lower() in self._watched:
                    device.begin()

    def _drop_devices(self) -> None:
        for device in self._devices.values():
            device.free()
        self._devices = {}
        self._looked_s = None
