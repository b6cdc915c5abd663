"""Whether others use the processor or the device, from made-up /proc and NVML; whoever it is, is named."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rooflens.collector.calibrate import busy
from rooflens.collector.cpu_facts import usable_cores

TICKS = os.sysconf("SC_CLK_TCK")
CORES = len(usable_cores())


def put(root: Path, path: str, words: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(words)


def stat_lines(busy_s: float, stolen_s: float = 0.0) -> str:
    """Of all cores: ``busy_s`` each in user mode, a lot idle and waiting."""
    words = f"{round(busy_s * TICKS)} 0 0 90000 500 0 0 {round(stolen_s * TICKS)} 77 77"
    return "\n".join(["cpu  1 1 1 1 1 1 1 1 1 1", *(f"cpu{core} {words}" for core in usable_cores()), "intr 5"])


def process(pid: int, name: str, used_s: float) -> str:
    fields = " ".join(["S", *["0"] * 10, str(round(used_s * TICKS)), "0", *["0"] * 30])
    return f"{pid} ({name}) {fields}\n"


class Machine:
    """A /proc on which, while somebody looks, each core is used by others for so long, and stolen for so long."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch, used_s: float, stolen_s: float = 0.0) -> None:
        self._root, self._used_s, self._stolen_s, self._now_s = root, used_s, stolen_s, 100.0
        monkeypatch.setattr(busy.time, "monotonic", lambda: self._now_s)
        monkeypatch.setattr(busy.os, "times", lambda: (0.0, 0.0, 0.0, 0.0, 0.0))
        put(root, "proc/stat", stat_lines(50.0))
        put(root, "proc/4242/stat", process(4242, "a (busy) one", 7.0))
        put(root, f"proc/{os.getpid()}/stat", process(os.getpid(), "this", 1.0))

    def sleep(self, seconds: float) -> None:
        self._now_s += seconds
        put(self._root, "proc/stat", stat_lines(50.0 + self._used_s * seconds, self._stolen_s * seconds))
        put(self._root, "proc/4242/stat", process(4242, "a (busy) one", 7.0 + self._used_s * CORES * seconds))
        put(self._root, f"proc/{os.getpid()}/stat", process(os.getpid(), "this", 900.0))


def test_a_quiet_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(tmp_path, monkeypatch, used_s=0.2)
    assert busy.cpu_busy(tmp_path, machine.sleep) is None


def test_who_uses_the_processor_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(tmp_path, monkeypatch, used_s=0.8)
    found = busy.cpu_busy(tmp_path, machine.sleep)
    used = f"{0.8 * CORES:.1f}"
    assert found == f"others use {used} of {CORES} cores: a (busy) one (process 4242) {used}"


def test_other_machines_on_the_same_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(tmp_path, monkeypatch, used_s=0.1, stolen_s=0.5)
    found = busy.cpu_busy(tmp_path, machine.sleep)
    assert found is not None
    assert f", other machines of this host {0.5 * CORES:.1f}" in found


def test_processes_that_cannot_be_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(tmp_path, monkeypatch, used_s=0.8)
    put(tmp_path, "proc/4242/stat", "gone")
    monkeypatch.setattr(busy, "_processes", lambda _root: {})
    used = f"{0.8 * CORES:.1f}"
    assert busy.cpu_busy(tmp_path, machine.sleep) == (
        f"others use {used} of {CORES} cores: short-lived or hidden ones {used}"
    )


def test_the_figures_add_up_to_the_whole() -> None:
    used = {7: ("cc1", 0.5), 8: ("make", 0.02), 9: ("python", 0.25), 10: ("ld", 0.2), 11: ("as", 0.15)}
    found = busy._told(cores=2.22, stolen_cores=0.4, processes=used)
    assert found == (
        f"others use 2.2 of {CORES} cores: cc1 (process 7) 0.5, python (process 9) 0.2, ld (process 10) 0.2, "
        "other machines of this host 0.4, smaller ones 0.2, "
        "short-lived or hidden ones 0.7"
    )
    assert busy._told(0.6, 0.0, {}).startswith(f"others use 0.6 of {CORES} cores: short-lived or hidden ones")


def test_what_this_process_uses_is_not_others(monkeypatch: pytest.MonkeyPatch) -> None:
    before = busy.CpuUse(busy_s=10.0, own_s=3.0, stolen_s=0.0, monotonic_s=100.0)
    after = replace(before, busy_s=14.0, own_s=6.5, monotonic_s=102.0)
    assert busy.others_cores(before, after) == pytest.approx(0.25)
    assert busy.others_cores(before, replace(after, own_s=9.0)) == 0.0


@pytest.mark.parametrize(("load", "expected"), [("0.40", None), ("64.00", "the load is 64.0")])
def test_where_only_the_load_is_told(tmp_path: Path, load: str, expected: str | None) -> None:
    put(tmp_path, "proc/loadavg", f"{load} 0.5 0.5 1/98 12944\n")
    found = busy.cpu_busy(tmp_path, lambda _seconds: None)
    assert found == (None if expected is None else f"{expected} on {CORES} cores")


def test_this_very_machine_can_be_asked() -> None:
    found = busy.cpu_use()
    assert found is not None
    assert found.busy_s > 0
    assert found.own_s > 0


def made_nvml(pids: list[int] | None, kernel_percent: int | None) -> Any:
    def answered(value: Any) -> Callable[[str], Any]:
        def call(_handle: str) -> Any:
            if value is None:
                raise RuntimeError("not supported")
            return value

        return call

    return SimpleNamespace(
        nvmlDeviceGetComputeRunningProcesses=answered(None if pids is None else [SimpleNamespace(pid=p) for p in pids]),
        nvmlDeviceGetUtilizationRates=answered(None if kernel_percent is None else SimpleNamespace(gpu=kernel_percent)),
    )


OWN = os.getpid()
DEVICES: list[tuple[list[int] | None, int | None, int, str | None]] = [
    ([], 0, 0, None),
    (None, None, 0, None),  # nothing is said, so nothing is known against it
    ([OWN], 0, 1, None),
    ([OWN, 7], 0, 1, "1 other process computes on it (7)"),
    ([7], 0, 0, "1 other process computes on it (7)"),
    ([7], 0, 1, None),  # in a container this process has another number
    ([3, 7, 5], 0, 1, "2 other processes compute on it (5, 7)"),
    ([], 60, 0, "kernels ran on it for 60% of the last moment"),
    ([], 60, 1, None),  # they were ours
    (list(range(1, 9)), 0, 0, "8 other processes compute on it (1, 2, 3, 4)"),
]


@pytest.mark.parametrize(("pids", "kernel_percent", "own", "expected"), DEVICES)
def test_who_uses_a_device(pids: list[int] | None, kernel_percent: int | None, own: int, expected: str | None) -> None:
    assert busy.gpu_busy(made_nvml(pids, kernel_percent), "handle", own) == expected
