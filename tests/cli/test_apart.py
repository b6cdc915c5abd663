"""Drivers that hang, crash and print, asked by a real process of its own."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from cli.doctor_machines import machine
from cli.test_sidecar import sidecar
from pipeline.made_probes import wait_for

from rooflens.cli import apart
from rooflens.cli.apart import Unanswered, ask  # the real one, which the other tests here do without
from rooflens.cli.calibrations import Calibrations
from rooflens.cli.devices import MODULE, NamedDevice, named_devices
from rooflens.cli.doctor_checks import Standing
from rooflens.cli.doctor_counters import check_calibration, check_counters
from rooflens.cli.doctor_hardware import check_clocks, check_devices

DRIVER = """import os, pathlib, signal, sys, time
class NVMLError(Exception): pass
def nvmlInit():
    pathlib.Path(__file__).with_name("asked").touch()
    print("a driver that prints")
    {init}
def nvmlShutdown(): pass
def nvmlDeviceGetCount(): return 1
def nvmlDeviceGetHandleByIndex(index): return index
def nvmlDeviceGetName(handle): return "numpy" if "numpy" in sys.modules else "NVIDIA H200"
"""
CRASH, HANG = "os.kill(os.getpid(), signal.SIGSEGV)", "time.sleep(3600)"


def driver(folder: Path, init: str) -> Path:
    """The folder of a pynvml that does this first."""
    made = folder / "driver"
    made.mkdir()
    (made / "pynvml.py").write_text(DRIVER.format(init=init))
    return made


def apart_with(monkeypatch: pytest.MonkeyPatch, folder: Path, init: str, deadline_s: float = 10.0) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{driver(folder, init)}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.setattr(apart, "ask", lambda *words, **_: ask(*words, deadline_s=deadline_s))


def test_a_driver_that_answers_and_prints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    apart_with(monkeypatch, tmp_path, "pass")
    assert named_devices().devices == (NamedDevice("NVIDIA H200"),), "and NumPy is not loaded for it"


@pytest.mark.parametrize(
    ("init", "deadline_s", "said", "crashed"),
    [(CRASH, 10.0, "crashes (SIGSEGV)", True), (HANG, 1.0, "has not answered within 1 s: it hangs", False)],
)
def test_a_driver_that_does_not(
    init: str, deadline_s: float, said: str, crashed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    apart_with(monkeypatch, tmp_path, init, deadline_s)
    here = named_devices()
    assert (here.devices, here.crashed, here.absent) == ((), crashed, False)
    assert str(here.problem).endswith(said)
    asked = machine(tmp_path)
    (check,) = check_devices(asked)
    assert (check.standing, check.found) == (Standing.BROKEN, here.problem)
    assert list(check_clocks(asked)) == []
    assert [*check_counters(asked), *check_calibration(asked)] == [], (
        "a library that is known to hang is not asked again"
    )


def test_a_library_that_cannot_be_loaded_is_not_one_that_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "libnvidia-ml.so.1").write_text("no ELF\n" * 20)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    monkeypatch.setattr(apart, "ask", ask)
    here = named_devices()
    assert not here.absent
    assert str(here.silent).startswith("NVML: libnvidia-ml.so.1 cannot be loaded (")


def test_nobody_waits_for_it_once_the_end_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    apart_with(monkeypatch, tmp_path, HANG)
    with pytest.raises(Unanswered, match="was not waited for"):
        ask(MODULE, "it", lambda: True)


def test_calibrations_of_devices_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    apart_with(monkeypatch, tmp_path, CRASH)
    (identity,) = Calibrations(None)._here()
    assert identity.kind == "cpu"
    assert "no calibration of a device is used: a driver's library" in capsys.readouterr().err


def test_a_sidecar_survives_a_library_that_crashes_when_it_looks_for_devices(tmp_path: Path) -> None:
    with sidecar(str(tmp_path), PYTHONPATH=str(driver(tmp_path, CRASH))) as run:
        run.line("no engine yet")
        (hardware,) = [line for line in run.said if line.startswith("hardware")]
        assert "crashes (SIGSEGV)), so there is no floor: give --hardware ID" in hardware
        (counters,) = [line for line in run.said if line.startswith("counters")]
        assert counters.endswith("; NVML is left out, since it crashes")
        assert "NVML every" not in counters


def test_without_counters_no_driver_is_asked(tmp_path: Path) -> None:
    made = driver(tmp_path, HANG)
    for more, said in (
        (("--hardware", "h200-sxm-141"), "h200-sxm-141"),
        ((), "not known (--no-counters asks no driver)"),
    ):
        with sidecar(str(tmp_path), "--no-counters", *more, PYTHONPATH=str(made)) as run:
            run.line("no engine yet")
            assert any(line.startswith(f"hardware  {said}") for line in run.said)
    assert not (made / "asked").exists()


def test_a_sidecar_ends_while_a_driver_hangs(tmp_path: Path) -> None:
    made = driver(tmp_path, HANG)
    with sidecar(str(tmp_path), PYTHONPATH=str(made)) as run:
        wait_for((made / "asked").exists, "that the driver is asked")
        run.process.send_signal(signal.SIGTERM)
        assert run.process.wait(60) == 0
