"""Whether others use what is to be measured, and who: a roof that is measured beside them is what they leave."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rooflens.collector.calibrate.drivers import ask, attempt
from rooflens.collector.cpu_facts import first_line, lines_of, load_average, usable_cores

BUSY_SHARE = 0.25  # of the usable cores; above it others took a good part of the memory's rate too
LOAD_SHARE = 0.5  # of the cores, for the one-minute load, which tells of what was before
LOOK_S = 0.5
MOST_PROCESSES = 20_000
MOST_NAMED, LEAST_CORES = 3, 0.1  # processes that are named, and what is worth it
BUSY_KERNEL_RATIO = 0.1  # GPU-Util: that something ran, which is all that it says


@dataclass(frozen=True, slots=True)
class CpuUse:
    """Processor seconds so far: of the usable cores, of this process, and stolen by other machines on this host."""

    busy_s: float
    own_s: float
    stolen_s: float
    monotonic_s: float


def cpu_use(root: Path = Path("/")) -> CpuUse | None:
    """What /proc/stat has counted on the cores that this process may use; None where it does not say."""
    names, found = {f"cpu{core}" for core in usable_cores()}, []
    for line in lines_of(root / "proc/stat"):
        name, *words = line.split()[:9] or [""]
        if name in names and len(words) == 8 and all(word.isdigit() for word in words):
            found.append([int(word) / _ticks() for word in words])
    if not found:
        return None
    # user, nice, system, idle, iowait, irq, softirq, steal: proc_stat(5)
    busy_s = sum(sum(words) - words[3] - words[4] for words in found)
    own = os.times()
    return CpuUse(busy_s, sum(own[:4]), sum(words[7] for words in found), time.monotonic())


def others_cores(before: CpuUse, after: CpuUse) -> float:
    """How many cores others used between the two, those of other machines on this host included."""
    span_s = max(after.monotonic_s - before.monotonic_s, 1e-3)
    return max(0.0, (after.busy_s - before.busy_s) - (after.own_s - before.own_s)) / span_s


def too_much(cores: float) -> bool:
    """Whether so many cores in use by others disturb a measurement."""
    return cores > BUSY_SHARE * len(usable_cores())


def cpu_busy(root: Path = Path("/"), sleep: Callable[[float], None] = time.sleep) -> str | None:
    """Who uses this processor now, in words; None if nobody does so much that it disturbs. Takes half a second."""
    before, processes = cpu_use(root), _processes(root)
    if before is None:
        count = len(usable_cores())
        load = load_average(root)
        return f"the load is {load:.1f} on {count} cores" if load > LOAD_SHARE * count else None
    sleep(LOOK_S)
    after = cpu_use(root)
    if after is None or not too_much(others_cores(before, after)):
        return None
    span_s = max(after.monotonic_s - before.monotonic_s, 1e-3)
    used = {pid: (name, s - processes[pid][1]) for pid, (name, s) in _processes(root).items() if pid in processes}
    used.pop(os.getpid(), None)
    shares = {pid: (name, used_s / span_s) for pid, (name, used_s) in used.items()}
    return _told(others_cores(before, after), (after.stolen_s - before.stolen_s) / span_s, shares)


def unnamed(used: str) -> str:
    """The same without names and numbers of processes, which say nothing to whoever reads it later."""
    return used.partition(": ")[0].partition(" (")[0]


def _told(cores: float, stolen_cores: float, processes: dict[int, tuple[str, float]]) -> str:
    """Who uses so many cores: the processes that use most, and what no process that can be seen accounts for."""
    most = sorted(processes.items(), key=lambda item: -item[1][1])[:MOST_NAMED]
    words = [f"{name} (process {pid}) {used:.1f}" for pid, (name, used) in most if used >= LEAST_CORES]
    rest = cores - stolen_cores - sum(used for _, used in processes.values())
    small = sum(used for _, used in processes.values()) - sum(used for _, (_, used) in most if used >= LEAST_CORES)
    if stolen_cores >= LEAST_CORES:
        words.append(f"other machines of this host {stolen_cores:.1f}")
    if small >= LEAST_CORES:
        words.append(f"smaller ones {small:.1f}")
    if rest >= LEAST_CORES:
        words.append(f"short-lived or hidden ones {rest:.1f}")
    whole = f"others use {cores:.1f} of {len(usable_cores())} cores"
    return f"{whole}: {', '.join(words)}" if words else whole


def _processes(root: Path) -> dict[int, tuple[str, float]]:
    """Name and processor seconds of each process that can be seen."""
    found = {}
    folders = (one for one in (root / "proc").glob("[0-9]*") if one.name.isdecimal())
    for _, folder in zip(range(MOST_PROCESSES), folders, strict=False):
        head, _, rest = first_line(folder / "stat").rpartition(")")
        words = rest.split()
        if len(words) > 12 and words[11].isdigit() and words[12].isdigit():
            name = "".join(letter for letter in head.partition("(")[2] if letter.isprintable())
            found[int(folder.name)] = name, (int(words[11]) + int(words[12])) / _ticks()
    return found


def _ticks() -> int:
    return os.sysconf("SC_CLK_TCK")


def gpu_busy(library: Any, handle: Any, own_contexts: int) -> str | None:
    """Who uses this NVIDIA device now, in words; None if nobody does, or if NVML does not say.

    ``own_contexts`` of its compute processes are this one: in a container NVML names them by numbers of the host.
    """
    running = ask(library, "nvmlDeviceGetComputeRunningProcesses", handle) or []
    others = sorted(one.pid for one in running if one.pid != os.getpid())
    if len(others) == len(running):
        others = others[own_contexts:]
    if others:
        words = ", ".join(str(pid) for pid in others[:4])
        return f"{len(others)} other process{'es compute' if len(others) > 1 else ' computes'} on it ({words})"
    ratio = attempt(lambda: library.nvmlDeviceGetUtilizationRates(handle).gpu / 100.0)
    if ratio is not None and ratio > BUSY_KERNEL_RATIO and not own_contexts:
        return f"kernels ran on it for {ratio:.0%} of the last moment"
    return None
