"""`rooflens doctor` beside the NVML double: the real nvidia-ml-py reads a library that plays an H200 and an A100."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from cli.doctor_machines import machine
from nvml_fixture import SOURCES, Double, build, loaded

from rooflens.cli import doctor_counters
from rooflens.cli.doctor import examine
from rooflens.cli.doctor_checks import Check, Standing
from rooflens.cli.doctor_counters import Library, check_counters
from rooflens.collector.nvml import NvmlProbe

PROFILE = (SOURCES / "decode.profile").read_text()


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def double(library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Double]:
    """The driver's library; what doctor sleeps passes on its clock."""
    (tmp_path / "proc" / "net").mkdir(parents=True)
    (tmp_path / "proc" / "net" / "tcp").write_text("head\n")
    monkeypatch.setenv("ROOFLENS_STATE_DIR", str(tmp_path / "state"))
    with loaded(library, tmp_path) as opened:
        made = (Library("NVML", lambda: NvmlProbe(clock=opened.clock), "pip install it"),)
        monkeypatch.setattr(doctor_counters, "libraries", lambda: made)
        monkeypatch.setattr(doctor_counters.time, "sleep", lambda s: opened.clock.at(opened.clock.now_s + s))
        yield opened


def counters(tmp_path: Path) -> list[Check]:
    return list(check_counters(machine(tmp_path)))


def test_a_device_with_bandwidth_counters_and_one_without(double: Double, tmp_path: Path) -> None:
    double.play(PROFILE)
    hopper, ampere = counters(tmp_path)[:2]
    assert hopper.standing is Standing.OK
    assert hopper.found.startswith("NVIDIA H200: NVML reads DRAM bandwidth, tensor cores, SMs")
    assert "throttle reasons" in hopper.found
    assert ampere.standing is Standing.NOTE
    assert ampere.found.startswith("NVIDIA A100-SXM4-80GB: NVML reads PCIe, NVLink, clocks, power, energy")
    assert ampere.found.endswith("no bandwidth: this device or driver does not measure it")


def test_counters_that_may_not_be_read_need_somebody_to_act(double: Double, tmp_path: Path) -> None:
    double.play(f"{PROFILE}fail 0 nvmlGpmSampleGet 4\n")
    found = counters(tmp_path)
    assert found[0].standing is Standing.MISSING
    assert "not its bandwidth, which it can measure" in found[0].found
    assert "NVreg_RestrictProfilingToAdminUsers" in str(found[0].remedy)
    assert [check.found for check in found[2:] if "no permission for bandwidth and activity (GPM)" in check.found]


def test_every_device_is_named_and_none_is_calibrated(double: Double, tmp_path: Path) -> None:
    double.play(PROFILE)
    found = list(examine(machine(tmp_path)))
    assert [check.found for check in found if check.name == "devices"] == [
        "NVIDIA H200: --hardware h200-sxm-141",
        "NVIDIA A100-SXM4-80GB: --hardware a100-sxm4-80",
    ]
    assert [check.found for check in found if check.name == "calibration"] == [
        "NVIDIA H200 was never calibrated",
        "NVIDIA A100-SXM4-80GB was never calibrated",
    ]
    assert not [check for check in found if "could not be looked at" in check.found]
