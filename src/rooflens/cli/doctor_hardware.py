"""What `rooflens doctor` says of the machine: its devices, their clocks, and the processors that an engine may use."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from rooflens.analyzer.hardware import find_hardware
from rooflens.cli.devices import proc_names
from rooflens.cli.doctor_checks import Check, Machine, Standing
from rooflens.records import RooflensError

# Bits of NVML's clock event reasons that slow a busy device down, with what each says of the machine.
SLOWED = {
    0x4: "its power limit",
    0x8: "a hardware slowdown",
    0x20: "its temperature (software)",
    0x40: "its temperature (hardware)",
    0x80: "the power brake of its supply",
}

LOOK = "look at nvidia-smi and the kernel's log (NVRM, Xid): the device is to be reset, or the machine restarted"


def check_devices(machine: Machine) -> Iterator[Check]:
    """Which devices there are, and the id of each that the roofline needs."""
    here = machine.devices
    whole = [each.name for each in here.devices if each.name is not None and not each.sliced]
    names = whole if here.devices else proc_names(machine.root)
    if here.silent is not None:
        yield Check("devices", Standing.BROKEN, here.silent, LOOK)
    elif not names and not here.devices:
        yield Check("devices", Standing.NOTE, f"{here.problem}: an engine has the CPU only",
                    "for an engine on this CPU: --hardware this-cpu")  # fmt: skip
    silent = [each.problem for each in here.devices if each.name is None]
    for problem in dict.fromkeys(silent):
        yield Check("devices", Standing.BROKEN, f"{silent.count(problem)} of {len(here.devices)} does not answer "
                    f"({problem})", LOOK)  # fmt: skip
    for name in dict.fromkeys(names):
        yield _roof(name, f"{names.count(name)} x " if names.count(name) > 1 else "")
    cut = [each.name for each in here.devices if each.name is not None and each.sliced]
    for name in dict.fromkeys(cut):
        yield _roof_of_slices(name, f"{cut.count(name)} x " if cut.count(name) > 1 else "")


def _roof(name: str, count: str) -> Check:
    try:
        spec = find_hardware(name)
    except RooflensError:
        return Check("devices", Standing.MISSING, f"{count}{name}: its roof is not known",
                     "describe it in a TOML file and give --hardware FILE.toml")  # fmt: skip
    return Check("devices", Standing.OK, f"{count}{name}: --hardware {spec.id}")


def _roof_of_slices(name: str, count: str) -> Check:
    """The roof of the whole is none of an engine on a slice."""
    try:
        slices = [f"--hardware {find_hardware(name).id}-mig-{each.profile}" for each in find_hardware(name).slices]
    except RooflensError:
        slices = []
    how = " or ".join(slices[:1] + slices[-1:]) if len(slices) > 1 else "".join(slices)
    return Check("devices", Standing.NOTE, f"{count}{name}, cut into MIG slices: the roof is that of a slice",
                 f"the slice of the engine, such as {how}: nvidia-smi -L names it" if how
                 else "describe the slice in a TOML file and give --hardware FILE.toml")  # fmt: skip


def check_clocks(machine: Machine) -> Iterator[Check]:
    """Whether a device is held below its highest clock; the floor is that of the highest."""
    for index, device in enumerate(machine.devices.devices):
        if device.clocks is None:
            continue
        now_mhz, most_mhz, reasons = device.clocks
        told = f"device {index} at {now_mhz:,} of {most_mhz:,} MHz"
        slowed = [why for bit, why in SLOWED.items() if reasons & bit]
        if slowed:
            yield Check("clocks", Standing.NOTE, f"{told}, held down by {' and '.join(slowed)}",
                        "the floor is that of the highest clock: look at nvidia-smi -q -d CLOCK,POWER,TEMPERATURE")  # fmt: skip  # noqa: E501
        else:
            yield Check("clocks", Standing.OK, told)


def check_processors(machine: Machine) -> Iterator[Check]:
    """Whether a control group gives an engine fewer processors than it has processes that never sleep."""
    for pid, quota in _quotas(machine).items():
        needed = sum(1 for other in machine.processes if _group(machine.root, other) == _group(machine.root, pid)) + 1
        if quota < needed:
            yield Check("processors", Standing.NOTE,
                        f"vLLM (process {pid}) may use {quota:g} processors and has {needed - 1} processes",
                        f"raise the CPU limit of its container to {needed} or more, or drop it: steps wait for it")  # fmt: skip  # noqa: E501


def _quotas(machine: Machine) -> dict[int, float]:
    """One process of each control group that limits processors, with the limit."""
    found: dict[str, tuple[int, float]] = {}
    for pid in machine.processes:
        group = _group(machine.root, pid)
        if group is not None and group not in found and (quota := _quota(machine.root, group)) is not None:
            found[group] = (pid, quota)
    return dict(found.values())


def _group(root: Path, pid: int) -> str | None:
    """The control group of a process that limits processors: that of version 2, else the cpu controller's."""
    with suppress(OSError):
        lines = (root / "proc" / str(pid) / "cgroup").read_text(errors="replace").splitlines()
        for wanted in ("", "cpu"):
            for _, names, path in (line.split(":", 2) for line in lines if line.count(":") >= 2):
                if wanted in names.split(","):
                    return path.strip("/")
    return None


def _quota(root: Path, group: str) -> float | None:
    """Processors that a control group may use, its parents included; None without a limit.

    In a container the group's path may be that of the host, while what is mounted begins at the group itself.
    """
    fewest: float | None = None
    parts = group.split("/") if group else []
    places = ["/".join(parts[:depth]) for depth in range(len(parts), -1, -1)]
    for base in (root / "sys" / "fs" / "cgroup", root / "sys" / "fs" / "cgroup" / "cpu"):
        for place in places:
            words = _words(base / place / "cpu.max") or [
                *_words(base / place / "cpu.cfs_quota_us"), *_words(base / place / "cpu.cfs_period_us")
            ]  # fmt: skip
            if len(words) == 2 and words[0].isdigit() and words[1].isdigit() and int(words[1]):
                quota = int(words[0]) / int(words[1])
                fewest = quota if fewest is None else min(fewest, quota)
    return fewest


def _words(file: Path) -> list[str]:
    with suppress(OSError):
        return file.read_text(errors="replace").split()
    return []


HARDWARE_CHECKS: tuple[Callable[[Machine], Iterator[Check]], ...] = (check_devices, check_clocks, check_processors)
