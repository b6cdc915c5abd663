"""Measures one device of this machine, within the time given, if nobody else uses it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any

from rooflens.calibration_records import Calibration, MachineIdentity, Measured
from rooflens.collector.calibrate import all_reduce, busy, torch_device
from rooflens.collector.calibrate.drivers import DriverDevice, attempt, nvidia_devices, nvml
from rooflens.collector.calibrate.identity import identity_of_cpu, identity_of_torch
from rooflens.collector.calibrate.read_json import as_line
from rooflens.collector.calibrate.rounds import Clock, Outcome, Rounds
from rooflens.collector.calibrate.versions import versions_of_numpy, versions_of_torch
from rooflens.collector.cpu_facts import usable_cores
from rooflens.model_records import DISTURBED
from rooflens.records import RooflensError

Progress = Callable[[str, float], None]
Values = dict[str, dict[int | str | None, Measured]]

NAMELESS = "this machine has no id of its own: another one just like it would take this calibration for its own"
DISTURBED_SPREAD_RATIO = 0.1  # at least, beside others: they come and go in less and in more than a run takes
LONGEST_S = 60.0
ENOUGH_S = 30.0  # for one device; more rounds would say the same
MEASURED_SHARE = 0.9  # of the time; the rest is for filling arrays and for the last sample
HELD_BYTES = 2e9  # of a device's memory, by others: far more than its driver and this process take for themselves
REDUCE_SHARE = 0.4  # of the time, for the all-reduce between devices: their processes start for ten seconds


def calibrate(
    device: str | None = None,
    seconds: float = LONGEST_S,
    progress: Progress | None = None,
    force: bool = False,
    clock: Clock = time.perf_counter,
) -> Calibration:
    """What ``device`` reaches: cpu (through NumPy), torch-cpu, cuda or cuda:N (through torch, also ROCm).

    None is the first device that torch sees, else the CPU. Takes at most ``seconds``, a minute at most; half of that
    is enough for one device, and less gives a larger spread and fewer sizes. ``progress`` is called with words and
    the share of the time that is over. RooflensError where the device is not there, or is used by others, unless
    ``force``; then ``flags`` say so with words that begin with model_records.DISTURBED.
    """
    if not math.isfinite(seconds) or seconds <= 0:
        raise RooflensError(f"a calibration of {seconds:g} s: give a time above 0, such as --seconds 30")
    start_s = clock()
    chosen = device or _default_device()
    try:
        found = _of(chosen, seconds, progress, force, clock, start_s)
    except MemoryError:
        raise RooflensError(f"not enough memory to measure {chosen}: free some, or give less --seconds") from None
    return found.calibration(clock() - start_s)


def _of(chosen: str, seconds: float, progress: Progress | None, force: bool, clock: Clock, start_s: float) -> _Found:
    """What was found of this device; RooflensError where nothing was."""
    if chosen == "cpu":
        meter = Meter(progress, clock, start_s, min(seconds, ENOUGH_S))
        found = _of_cpu(meter, force)
    else:
        torch = torch_device.torch_here(chosen)
        target = torch_device.resolve(torch, chosen)
        meter = Meter(progress, clock, start_s, min(seconds, LONGEST_S if _several(torch, target) else ENOUGH_S))
        found = _of_torch(torch, target, meter, force)
    if not found.outcome.measured:
        why = next(iter(found.outcome.problems), "no time")
        raise RooflensError(f"nothing of {chosen} could be measured: {why}; give more --seconds")
    meter.end()
    return found


class Meter:
    """Tells how much of the time is over: from 0 to 1, never less than before."""

    def __init__(self, progress: Progress | None, clock: Clock, start_s: float, seconds: float) -> None:
        self._progress, self.clock, self._start_s, self.seconds = progress, clock, start_s, seconds
        self._told = 0.0
        self._say("looking who else uses it", 0.0)

    def tell(self, words: str) -> None:
        """What is done now."""
        self._say(words, min(0.99, (self.clock() - self._start_s) / self.seconds))

    def end(self) -> None:
        """All of it is done."""
        self._say("done", 1.0)

    def deadline_s(self, share: float) -> float:
        """When this share of the time is over."""
        return self._start_s + share * self.seconds

    def left_s(self) -> float:
        """What is left of the time."""
        return self._start_s + self.seconds - self.clock()

    def _say(self, words: str, ratio: float) -> None:
        self._told = max(self._told, ratio)
        if self._progress is not None:
            self._progress(words, self._told)


@dataclass(slots=True)
class _Found:
    identity: MachineIdentity
    outcome: Outcome
    versions: dict[str, str]
    clocks_hz: dict[str, float]
    flags: list[str]
    all_reduce_s: dict[int, tuple[tuple[int, Measured], ...]]

    def calibration(self, took_s: float) -> Calibration:
        flags = [*self.flags, *self.outcome.problems]
        disturbed = any(flag.startswith(DISTURBED) for flag in flags)
        values = _at_least(self.outcome.measured, DISTURBED_SPREAD_RATIO) if disturbed else self.outcome.measured
        if self.identity.machine is None and self.identity.device_uuid is None:
            flags.append(NAMELESS)
        return Calibration(
            identity=self.identity,
            measured_unix_s=time.time(),
            took_s=took_s,
            versions={name: as_line(version) for name, version in self.versions.items()},
            clocks_hz=self.clocks_hz,
            reads=_curve(values.get("reads", {})),
            copies=_curve(values.get("copies", {})),
            attention=_curve(values.get("attention", {})),
            products={str(name): value for name, value in values.get("products", {}).items()},
            launch_s=values.get("launch_s", {}).get(None),
            graph_launch_s=values.get("graph_launch_s", {}).get(None),
            all_reduce_s=self.all_reduce_s,
            flags=tuple(as_line(flag) for flag in flags),
        )


def _at_least(values: Values, spread_ratio: float) -> Values:
    """The same with no spread below this one."""
    return {
        field: {key: replace(one, spread_ratio=max(one.spread_ratio, spread_ratio)) for key, one in found.items()}
        for field, found in values.items()
    }


def _curve(values: dict[int | str | None, Measured]) -> tuple[tuple[int, Measured], ...]:
    return tuple(sorted(((int(key or 0), value) for key, value in values.items()), key=lambda point: point[0]))


def _default_device() -> str:
    if find_spec("torch") is None:
        return "cpu"
    try:
        there = torch_device.torch_here("cuda").cuda.is_available()
    except RooflensError:
        return "cpu"
    return "cuda:0" if there else "cpu"


def without_torch(identities: Callable[[], Iterable[MachineIdentity]]) -> str | None:
    """That a driver sees a GPU which is not chosen, since torch does not see it; None if none is passed over.

    ``identities`` asks the drivers, and only where the choice falls on the CPU.
    """
    if _default_device() != "cpu":
        return None
    devices = [identity for identity in identities() if identity.kind != "cpu"]
    if not devices:
        return None
    why = "no torch is installed here" if find_spec("torch") is None else "torch does not see it"
    return f"the CPU is measured, not {devices[0].name}: {why}; run this with the Python of the engine to measure that"


def _refuse(what: str, used: str | None, force: bool) -> list[str]:
    """The flag of a measurement that others disturb; RooflensError unless that is wanted."""
    if used is None:
        return []
    if not force:
        raise RooflensError(f"{what} is in use: {used}; stop that, or measure what it leaves with --force")
    return [f"{DISTURBED}: {busy.unnamed(used)}"]


def _of_cpu(meter: Meter, force: bool) -> _Found:
    try:
        from rooflens.collector.calibrate import cpu
    except ImportError:
        raise RooflensError("calibration needs NumPy: pip install 'rooflens[sidecar]'") from None

    flags = _refuse("this processor", busy.cpu_busy(), force)
    clocks, before = cpu.CoreClock(), busy.cpu_use()
    meter.tell("filling memory")
    with ThreadPoolExecutor(len(usable_cores())) as pool:
        quantities = cpu.quantities(meter.seconds, meter.clock, pool)
        outcome = Rounds(meter.clock, meter.tell, clocks.look).run(quantities, meter.deadline_s(MEASURED_SHARE))
    flags += cpu.flags(cpu.largest_bytes(meter.seconds)) + ([] if flags else _disturbed_while(before))
    return _Found(identity_of_cpu(), outcome, versions_of_numpy(), clocks.clocks_hz(), flags, {})


def _several(torch: Any, device: Any) -> bool:
    return bool(device.type == "cuda" and torch.cuda.device_count() > 1)


def _of_torch(torch: Any, device: Any, meter: Meter, force: bool) -> _Found:
    if device.type == "cpu":
        flags, before = _refuse("this processor", busy.cpu_busy(), force), busy.cpu_use()
        outcome = torch_device.measure(torch, device, meter.seconds, meter.deadline_s(MEASURED_SHARE), meter.clock,
                                       meter.tell)  # fmt: skip
        flags = ["measured through torch", *flags, *([] if flags else _disturbed_while(before))]
        return _Found(identity_of_cpu(), outcome, versions_of_torch(torch, "cpu"), {}, flags, {})
    with nvml() as library:
        devices = [] if library is None or torch.version.hip else nvidia_devices(library)
        used = _used(library, devices, torch)  # before torch opens the device and is one of those who use it
        identity = identity_of_torch(device)
        mine = used[identity.device_uuid] if identity.device_uuid in used else _held(torch, device)
        flags = _refuse(f"{device} ({identity.name})", mine, force)
        handles = {one.uuid: one.handle for one in devices}
        clocks = torch_device.DeviceClocks(library, handles.get(identity.device_uuid or ""))
        share = MEASURED_SHARE - (REDUCE_SHARE if _several(torch, device) else 0.0)
        outcome = torch_device.measure(torch, device, meter.seconds, meter.deadline_s(share), meter.clock, meter.tell,
                                       clocks.look)  # fmt: skip
        clocks_hz = clocks.clocks_hz()
    reduced = _all_reduce(torch, used, meter, force, outcome) if _several(torch, device) else {}
    return _Found(identity, outcome, versions_of_torch(torch, device.type), clocks_hz, flags, reduced)


def _used(library: Any, devices: list[DriverDevice], torch: Any) -> dict[str | None, str | None]:
    """By uuid, who uses each NVIDIA device."""
    own = 1 if torch.cuda.is_initialized() else 0
    return {device.uuid: busy.gpu_busy(library, device.handle, own) for device in devices}


def _held(torch: Any, device: Any) -> str | None:
    """That others hold memory of a device of which no driver's library says who uses it; None if they do not."""
    found = attempt(torch.cuda.mem_get_info, device)
    if found is None:
        return None
    others = found[1] - found[0] - torch.cuda.memory_reserved(device)
    return f"others hold {others / 1e9:.1f} GB of its memory" if others > HELD_BYTES else None


def _all_reduce(
    torch: Any, used: dict[str | None, str | None], meter: Meter, force: bool, outcome: Outcome
) -> dict[int, tuple[tuple[int, Measured], ...]]:
    """Between all devices, and between two where time is left for it; what is not known goes to ``outcome``."""
    found = {}
    count = torch.cuda.device_count()
    if any(used.values()) and not force:
        outcome.problems.append("all_reduce is not known: another of the devices is in use")
        return {}
    for devices in sorted({2, count}, reverse=True):
        meter.tell(f"all-reduce between {devices} devices")
        curve, problem = all_reduce.between("nccl", devices, max(0.0, meter.left_s()))
        if curve is not None:
            found[devices] = curve
        if problem is not None:
            outcome.problems.append(problem)
    return found


def _disturbed_while(before: busy.CpuUse | None) -> list[str]:
    """The flag of a measurement beside others who came after it began."""
    after = busy.cpu_use()
    if before is None or after is None:
        return []
    cores = busy.others_cores(before, after)
    return [f"{DISTURBED}: {cores:.1f} of {len(usable_cores())} cores"] if busy.too_much(cores) else []
