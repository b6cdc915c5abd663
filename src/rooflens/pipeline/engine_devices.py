"""Which devices an engine runs on: said by the engine, by its workers, by who computes on them, or as the only ones."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rooflens.device_records import DeviceFacts
from rooflens.records import EngineInfo

MOST_ANCESTORS = 64  # a process tree is no deeper; pids may form a ring while processes come and go
HOW = (
    "start it with ROOFLENS_DEVICE_TIME=1, so that its workers name them, or run the sidecar in its PID namespace, "
    "where the processes of devices are seen"
)
INITIAL_PID_NAMESPACE = "pid:[4026531836]"  # PROC_PID_INIT_INO of Linux (include/linux/proc_ns.h)
ParentOf = Callable[[int], int | None]


@dataclass(frozen=True, slots=True)
class Claimant:
    """One live engine. ``pid`` is its process as this host numbers it, ``worker_uuids`` what its workers' rings name.

    ``here`` is False for an engine that may run on another machine.
    """

    run: str
    info: EngineInfo | None
    pid: int | None = None
    worker_uuids: tuple[str, ...] = ()
    here: bool = True

    @property
    def expected(self) -> int:
        """How many devices it has, as far as its facts say; 0 on a CPU or where nothing is known."""
        if self.info is None or self.info.device == "cpu":
            return 0
        return self.info.tensor_parallel * self.info.pipeline_parallel


@dataclass(frozen=True, slots=True)
class EngineDevices:
    """The devices of one engine; ``expected`` is how many it has. ``problem`` is one line where they are not known.

    ``shared`` is whether a process that is not its own computes on one of them, None where that cannot be told: as
    false inside a container, where the driver leaves out processes of other PID namespaces.
    """

    uuids: tuple[str, ...] = ()
    expected: int = 0
    problem: str | None = None
    shared: bool | None = None


def pid_namespace_here() -> str | None:
    """The PID namespace of this process as Linux names it, None where that is not to be seen."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return None


def engine_devices(
    engines: Sequence[Claimant],
    devices: Sequence[DeviceFacts],
    parent_of: ParentOf,
    pid_namespace: Callable[[], str | None] = pid_namespace_here,
) -> dict[str, EngineDevices]:
    """The devices of each engine by its run: those that it names, else those of its workers, else those on which its
    processes compute, else all there are where that is the right number and nobody else's.
    """
    spelling = {facts.uuid.casefold(): facts.uuid for facts in devices}
    named = {engine.run: _named(engine, spelling) for engine in engines}
    computing = _computing(engines, devices, parent_of)
    uuids = {engine.run: named[engine.run] or computing.get(engine.run, ()) for engine in engines}
    left = [e for e in engines if e.here and not uuids[e.run] and not (e.info and e.info.device == "cpu")]
    whole = [facts.uuid for facts in devices if facts.uuid not in _parents(devices)]
    taken = any(uuids.values())
    if len(left) == 1 and not taken and whole and left[0].expected == len(whole):
        uuids[left[0].run] = tuple(sorted(whole))
    found = {}
    all_seen = pid_namespace() == INITIAL_PID_NAMESPACE
    by_uuid = {facts.uuid: facts for facts in devices}
    for engine in engines:
        problem = None
        if engine in left and not uuids[engine.run] and devices:
            count = f"{len(whole)} devices" if len(whole) > 1 else "device"
            problem = f"whether it runs on the {count} of this host, and on which, is not known: {HOW}"
        expected = max(engine.expected, len(uuids[engine.run]))
        partly = not named[engine.run] and 0 < len(uuids[engine.run]) < expected
        if partly:
            problem = f"only {len(uuids[engine.run])} of its {expected} devices are known, by its processes: {HOW}"
        answers = [_neighbours(engine, engines, by_uuid.get(uuid), parent_of) for uuid in uuids[engine.run]]
        alone = all_seen and not partly and bool(answers) and None not in answers
        shared = True if True in answers else False if alone else None
        found[engine.run] = EngineDevices(uuids[engine.run], expected, problem, shared)
    return found


def _neighbours(
    engine: Claimant, engines: Sequence[Claimant], device: DeviceFacts | None, parent_of: ParentOf
) -> bool | None:
    """Whether a process computes on a device that the engine neither is, nor started, nor was started by.

    The API server is above the engine core and may compute for it. None where it cannot be told. Where none of the
    engine's own processes is seen there, those that are may be its workers (Ray starts them apart) or be numbered
    otherwise; one whose parent is not seen is gone, or hidden.
    """
    if device is None or engine.pid is None:
        return None
    alike = sum(engine.pid == other.pid for other in engines)
    above = {engine.pid, *_ancestors(engine.pid, parent_of)}
    pids = {other.pid for other in engines if other.pid is not None}
    own, strange, hidden = 0, 0, alike > 1
    for pid in device.pids:
        if _first_of(pids, pid, parent_of) == engine.pid:
            own += 1
        elif pid not in above:
            gone = parent_of(pid) is None
            hidden, strange = hidden or gone, strange + (not gone)
    if not own:
        return None
    return True if strange else None if hidden else False


def _named(engine: Claimant, spelling: Mapping[str, str]) -> tuple[str, ...]:
    """What the engine itself or its workers say, spelt as the device spells it."""
    told = (engine.info.device_uuids if engine.info else ()) or engine.worker_uuids
    keys = dict.fromkeys(uuid.casefold() for uuid in told)
    spelt = {uuid.casefold(): uuid for uuid in told} | {key: spelling[key] for key in keys if key in spelling}
    return tuple(sorted(spelt[key] for key in keys))


def _computing(
    engines: Sequence[Claimant], devices: Sequence[DeviceFacts], parent_of: ParentOf
) -> dict[str, tuple[str, ...]]:
    """The devices on which an engine's process or one that it started computes; not of a pid that two engines have."""
    pids = Counter(engine.pid for engine in engines if engine.pid is not None)
    runs = {engine.pid: engine.run for engine in engines if engine.pid is not None and pids[engine.pid] == 1}
    found: dict[str, set[str]] = {}
    parents = _parents(devices)
    for facts in devices:
        if facts.uuid in parents:
            continue
        for pid in facts.pids:
            owner = _first_of(runs, pid, parent_of)
            if owner is not None:
                found.setdefault(runs[owner], set()).add(facts.uuid)
    return {run: tuple(sorted(uuids)) for run, uuids in found.items()}


def _first_of(pids: Iterable[int], pid: int, parent_of: ParentOf) -> int | None:
    """The nearest of these processes among ``pid`` and its ancestors."""
    wanted = set(pids)
    line = (pid, *_ancestors(pid, parent_of))
    return next((each for each in line if each > 1 and each in wanted), None)


def _ancestors(pid: int, parent_of: ParentOf) -> list[int]:
    """The processes above one, nearest first, as far as they are seen."""
    found: list[int] = []
    current = parent_of(pid) if pid > 1 else None
    while current is not None and current > 0 and len(found) < MOST_ANCESTORS:
        found.append(current)
        current = parent_of(current) if current > 1 else None
    return found


def _parents(devices: Sequence[DeviceFacts]) -> frozenset[str]:
    """Devices that are cut into slices: nobody computes on the whole of them."""
    cut = {facts.parent_uuid.casefold() for facts in devices if facts.parent_uuid}
    return frozenset(facts.uuid for facts in devices if facts.uuid.casefold() in cut)


def parent_here(pid: int) -> int | None:
    """The parent of a process of this host, None where it is gone or not to be seen."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        return int(status.rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return None
