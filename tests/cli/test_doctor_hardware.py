"""What `rooflens doctor` says of devices, their clocks, and processors."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from cli.doctor_machines import machine
from cli.driver import lose, nvml
from cli.test_find_rings import SERVER, process

from rooflens.cli.doctor_checks import Standing
from rooflens.cli.doctor_hardware import check_clocks, check_devices, check_processors

OK, NOTE, MISSING, BROKEN = Standing.OK, Standing.NOTE, Standing.MISSING, Standing.BROKEN


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A machine on which nothing runs."""
    (tmp_path / "proc" / "net").mkdir(parents=True)
    (tmp_path / "proc" / "net" / "tcp").write_text("head\n")
    return tmp_path


def test_devices_have_the_id_of_their_roof(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", nvml(["NVIDIA H200", "NVIDIA H200", "NVIDIA Odd\x1b 1"]))
    known, odd = check_devices(machine(root))
    assert (known.standing, known.found) == (OK, "2 x NVIDIA H200: --hardware h200-sxm-141")
    assert (odd.standing, odd.found) == (MISSING, "NVIDIA Odd\x1b 1: its roof is not known")


def test_a_lost_device_is_said_beside_the_others(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = nvml(["NVIDIA H200"] * 8)
    lose(made, "nvmlDeviceGetHandleByIndex", 0)
    monkeypatch.setitem(sys.modules, "pynvml", made)
    asked = machine(root)
    lost, others = check_devices(asked)
    assert (lost.standing, lost.found) == (BROKEN, "1 of 8 does not answer (GPU is lost)")
    assert (others.standing, others.found) == (OK, "7 x NVIDIA H200: --hardware h200-sxm-141")
    assert [check.found.partition(" at ")[0] for check in check_clocks(asked)] == [f"device {n}" for n in range(1, 8)]


@pytest.mark.parametrize(
    ("name", "remedy"),
    [("NVIDIA H200", "such as --hardware h200-sxm-141-mig-1g.18gb or "), ("NVIDIA Odd 1", "describe the slice in")],
)
def test_a_device_cut_into_slices_is_not_given_the_roof_of_the_whole(
    root: Path, monkeypatch: pytest.MonkeyPatch, name: str, remedy: str
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", nvml([name], sliced=True))
    (found,) = check_devices(machine(root))
    assert (found.standing, found.found) == (NOTE, f"{name}, cut into MIG slices: the roof is that of a slice")
    assert remedy in str(found.remedy)


def test_without_the_binding_the_driver_is_read(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    (cpu,) = check_devices(machine(root))
    assert (cpu.standing, cpu.remedy) == (NOTE, "for an engine on this CPU: --hardware this-cpu")
    assert list(check_clocks(machine(root))) == []
    place = root / "proc" / "driver" / "nvidia" / "gpus" / "0000:01:00.0"
    place.mkdir(parents=True)
    (place / "information").write_text("Model: \t\t NVIDIA H200\nIRQ: 1\n")
    (found,) = check_devices(machine(root))
    assert found.found == "NVIDIA H200: --hardware h200-sxm-141"


@pytest.mark.parametrize(
    ("reasons", "said"), [(0x1, None), (0x4, "its power limit"), (0x48, "a hardware slowdown and")]
)
def test_clocks(root: Path, monkeypatch: pytest.MonkeyPatch, reasons: int, said: str | None) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", nvml(["NVIDIA H200"], reasons, 1200))
    (found,) = check_clocks(machine(root))
    assert found.found.startswith("device 0 at 1,200 of 1,980 MHz")
    assert (found.standing, said or "") == (NOTE if said else OK, said or "")
    assert (said or "") in found.found


def test_the_new_name_of_the_reasons_is_asked_first(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = nvml(["NVIDIA H200"], 0x4)
    monkeypatch.setitem(sys.modules, "pynvml", made)
    vars(made)["nvmlDeviceGetCurrentClocksEventReasons"] = lambda handle: 0x20
    assert "held down by its temperature (software)" in next(check_clocks(machine(root))).found

    def refused(handle: int) -> int:
        raise made.NVMLError("Function Not Found")

    vars(made)["nvmlDeviceGetCurrentClocksEventReasons"] = refused
    assert "held down by its power limit" in next(check_clocks(machine(root))).found
    del vars(made)["nvmlDeviceGetCurrentClocksThrottleReasons"]
    assert next(check_clocks(machine(root))).standing is OK


@pytest.mark.parametrize(
    ("files", "noted"),
    [
        ({"pod/cpu.max": "200000 100000"}, "2 processors and has 2 processes"),
        ({"cpu.max": "150000 100000", "pod/cpu.max": "max 100000"}, "1.5 processors"),
        ({"cpu/pod/cpu.cfs_quota_us": "100000", "cpu/pod/cpu.cfs_period_us": "100000"}, "1 processors"),
        ({"pod/cpu.max": "400000 100000"}, None),
        ({"pod/cpu.max": "max 100000"}, None),
        ({"cpu/pod/cpu.cfs_quota_us": "-1", "cpu/pod/cpu.cfs_period_us": "100000"}, None),
        ({}, None),
    ],
)
def test_a_limit_of_processors_below_the_processes(root: Path, files: dict[str, str], noted: str | None) -> None:
    for pid in (41, 42):
        process(root, pid, SERVER, "A=b")
        (root / "proc" / str(pid) / "cgroup").write_text(
            "5:cpu,cpuacct:/pod\n" if "cpu/" in str(files) else "0::/pod\n"
        )
    for name, content in files.items():
        file = root / "sys" / "fs" / "cgroup" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
    found = list(check_processors(machine(root)))
    assert [noted in check.found for check in found if noted] == ([True] if noted else [])
    assert len(found) == (1 if noted else 0)
