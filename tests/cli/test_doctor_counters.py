"""What `rooflens doctor` says of counters and of calibrations."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cli.doctor_machines import machine
from cli.driver import nvml
from cli.pages import served
from cli.test_find_servers import closed_port

from rooflens.calibration_records import Calibration, MachineIdentity, Measured
from rooflens.cli import doctor_counters
from rooflens.cli.doctor_checks import Check, Standing
from rooflens.cli.doctor_counters import Library, check_calibration, check_counters, check_exporter
from rooflens.collector.calibrate import save
from rooflens.device_records import CounterSource, DeviceFacts, DeviceSample, Throttle
from rooflens.protocols import Probed

OK, NOTE, MISSING, BROKEN = Standing.OK, Standing.NOTE, Standing.MISSING, Standing.BROKEN
FACTS = DeviceFacts("GPU-1", CounterSource.NVML, "NVIDIA H200", 0, counters=True)
SAMPLE = DeviceSample(
    "GPU-1", CounterSource.NVML, 0.0, 1.0, dram_ratio=0.5, sm_clock_hz=1.5e9, power_w=400.0, throttles=()
)
NOW_S = 1_796_000_000.0
READS = ((1 << 30, Measured(4e12, 4.1e12, 0.01, 9)),)
RATES = {"bf16": Measured(7e14, 7.1e14, 0.01, 9)}


class MadeProbe:
    """Gives the same answer each time; ``asked`` counts them."""

    def __init__(self, answer: Probed) -> None:
        self.answer, self.asked = answer, 0

    def sample(self) -> Probed:
        self.asked += 1
        return self.answer


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "proc" / "net").mkdir(parents=True)
    (tmp_path / "proc" / "net" / "tcp").write_text("head\n")
    return tmp_path


def counters(
    root: Path, monkeypatch: pytest.MonkeyPatch, *answers: Probed, names: tuple[str, ...] = ("NVIDIA H200",)
) -> list[Check]:
    """What the check says where the libraries answer so."""
    made = tuple(Library("NVML", lambda a=a: MadeProbe(a), "pip install it") for a in answers)  # type: ignore[misc]
    monkeypatch.setattr(doctor_counters, "libraries", lambda: made)
    monkeypatch.setitem(sys.modules, "pynvml", nvml(list(names)))
    monkeypatch.setattr(doctor_counters, "PAUSE_S", 0.0)
    return list(check_counters(machine(root)))


def test_what_would_be_read_of_equal_devices_is_said_once(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    both = (FACTS, replace(FACTS, uuid="GPU-2", index=1))
    (found,) = counters(root, monkeypatch, Probed(both, (SAMPLE, replace(SAMPLE, uuid="GPU-2"))))
    read = "2 x NVIDIA H200: NVML reads DRAM bandwidth, clocks, power, throttle reasons"
    assert found == Check("counters", OK, read)


@pytest.mark.parametrize(
    ("facts", "sample", "standing", "said"),
    [
        ({}, {"dram_ratio": None}, MISSING, "not its bandwidth, which it can measure"),
        ({"counters": False}, {"dram_ratio": None}, NOTE, "no bandwidth: this device or driver does not measure it"),
        ({"counters": None}, {"dram_ratio": None}, NOTE, "no bandwidth: this device or driver does not measure it"),
        ({"parent_uuid": "GPU-0", "mig_profile": "1g.10gb"}, {}, OK, "NVIDIA H200, MIG slice 1g.10gb: NVML reads"),
        ({}, {"uuid": "GPU-other"}, BROKEN, "shows it but answers nothing"),
    ],
)
def test_devices_of_which_less_is_read(
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    facts: dict[str, Any],
    sample: dict[str, Any],
    standing: Standing,
    said: str,
) -> None:
    (found,) = counters(root, monkeypatch, Probed((replace(FACTS, **facts),), (replace(SAMPLE, **sample),)))
    assert (found.standing, said in found.found, found.remedy is None) == (standing, True, standing is OK)


def test_a_device_held_down_has_reasons_to_read(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for throttles, read in (((Throttle.POWER_CAP,), True), (None, False)):
        (found,) = counters(root, monkeypatch, Probed((FACTS,), (replace(SAMPLE, throttles=throttles),)))
        assert ("throttle reasons" in found.found) is read


def test_what_a_library_complains_of_is_told(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = tuple(f"device 0 does not tell thing {number}" for number in range(9))
    found = counters(root, monkeypatch, Probed((FACTS,), (SAMPLE,), problems=lines))
    assert [(check.standing, check.found) for check in found[1:]] == [(NOTE, line) for line in lines[:4]]


def test_a_device_without_a_library(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (found,) = counters(root, monkeypatch, Probed(problems=("no library",)))
    assert (found.standing, found.remedy) == (MISSING, "pip install it")
    assert counters(root, monkeypatch, Probed(problems=("no library",)), names=()) == []


PAGE = b"""# HELP DCGM_FI_DEV_SM_CLOCK SM clock frequency (in MHz).
DCGM_FI_DEV_SM_CLOCK{gpu="0",UUID="GPU-1",Hostname="a"} 1500
DCGM_FI_DEV_SM_CLOCK{gpu="1",UUID="GPU-2",Hostname="a"} 1500
"""


@pytest.mark.parametrize(
    ("page", "standing", "said"),
    [
        (PAGE, NOTE, "2 devices, without the bandwidth"),
        (PAGE + b'DCGM_FI_PROF_DRAM_ACTIVE{gpu="0",UUID="GPU-1"} 0.5\n', OK, "2 devices, with the bandwidth"),
        (b'DCGM_FI_PROF_DRAM_UTIL_RATIO{gpu="0",uuid="GPU-1"} 0.5\n', OK, "1 device, with the bandwidth"),
        (b"node_load1 0.5\n", None, ""),
    ],
)
def test_a_page_of_dcgm_exporter(root: Path, page: bytes, standing: Standing | None, said: str) -> None:
    with served({"/metrics": page}) as port:
        line = f"head\n 0: 0100007F:{port:04X} 00000000:0000 0A\n"
        (root / "proc" / "net" / "tcp").write_text(line)
        found = list(check_exporter(machine(root, exporter_ports=[port, closed_port()])))
    assert [(check.standing, said in check.found) for check in found] == ([(standing, True)] if standing else [])


def calibration(**identity: Any) -> Calibration:
    made = {"kind": "cuda", "name": "NVIDIA H200", "device_uuid": "GPU-1", "machine": "m"}
    return Calibration(MachineIdentity(**made | identity), NOW_S, 30.0, {"torch": "2.9.0"}, reads=READS, products=RATES)


def calibrations(monkeypatch: pytest.MonkeyPatch, folder: Path, now_s: float, *here: MachineIdentity) -> list[Check]:
    """What the check says on a machine with these devices, the processor among them."""
    cpu = MachineIdentity("cpu", "a processor", "m")
    monkeypatch.setenv("ROOFLENS_STATE_DIR", str(folder))
    monkeypatch.setattr("rooflens.collector.calibrate.identities_here", lambda: (cpu, *here))
    monkeypatch.setattr("rooflens.collector.calibrate.versions_here", lambda: {"torch": "2.9.1"})
    monkeypatch.setattr(doctor_counters.time, "time", lambda: now_s)
    return list(check_calibration(machine(folder)))


def test_a_calibration_of_this_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = calibration()
    save(made, tmp_path)
    (found,) = calibrations(monkeypatch, tmp_path, NOW_S, made.identity)
    assert found == Check("calibration", OK, "NVIDIA H200: measured 2026-11-30")


def test_a_calibration_that_others_disturbed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = replace(calibration(), flags=("others used the machine: 1 other process computes on it (7)",))
    save(made, tmp_path)
    (found,) = calibrations(monkeypatch, tmp_path, NOW_S, made.identity)
    assert found.standing is NOTE
    assert found.found.startswith("NVIDIA H200: measured 2026-11-30 while others used it")
    assert found.remedy == "rooflens calibrate, when nothing else runs"


def test_a_calibration_that_no_longer_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = calibration()
    save(made, tmp_path)
    (found,) = calibrations(monkeypatch, tmp_path, NOW_S + 200 * 86400, made.identity)
    assert (found.standing, found.remedy) == (NOTE, "rooflens calibrate")
    assert found.found.endswith("is not used: it was measured 200 days ago")
    (found,) = calibrations(monkeypatch, tmp_path, NOW_S, replace(made.identity, units=7))
    assert (found.standing, found.remedy) == (NOTE, "rooflens calibrate")
    assert "it is of another machine: units is not known there and 7 here" in found.found


def test_devices_that_were_never_calibrated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = [calibration(device_uuid=f"GPU-{number}").identity for number in range(8)]
    (found,) = calibrations(monkeypatch, tmp_path, NOW_S, *here)
    assert found == Check("calibration", NOTE, "8 x NVIDIA H200 was never calibrated", "rooflens calibrate")
    (found,) = calibrations(monkeypatch, tmp_path, NOW_S)
    assert found.found == "a processor was never calibrated"


def test_without_a_place_for_calibrations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ROOFLENS_STATE_DIR", "XDG_STATE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    (found,) = check_calibration(machine(tmp_path))
    assert (found.standing, "set ROOFLENS_STATE" in found.found) == (NOTE, True)
