"""`rooflens calibrate` refuses what it cannot do before it measures, and keeps only what can be used."""

from __future__ import annotations

import json
import os
import signal
import stat
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from made_calibrations import H100_IDENTITY, cpu_calibration, h100_calibration

from rooflens import collector
from rooflens.analyzer.calibrated import hardware_of
from rooflens.analyzer.hardware import find_hardware
from rooflens.calibration_records import Calibration
from rooflens.cli import main
from rooflens.cli.calibrations import Calibrations
from rooflens.cli.this_cpu import roof_here
from rooflens.collector.calibrate import identity_of_cpu, load, save, versions_here
from rooflens.records import RooflensError

Capture = pytest.CaptureFixture[str]
Say = Callable[[str, float], None]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty state folder of this user."""
    monkeypatch.setenv("ROOFLENS_STATE_DIR", str(tmp_path / "state"))
    return tmp_path / "state"


def own(**changes: Any) -> Calibration:
    """A calibration of this very machine, measured now."""
    made = {"identity": identity_of_cpu(), "measured_unix_s": time.time(), "versions": versions_here()}
    return cpu_calibration(**(made | changes))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str | None]:
    """The devices that were to be measured, in the place of measuring."""
    seen: list[str | None] = []

    def calibrate(device: str | None, seconds: float, progress: Say, force: bool) -> Calibration:
        seen.append(device)
        return own()

    monkeypatch.setattr(collector.calibrate, "calibrate", calibrate)
    return seen


REFUSED = [
    (["--device", ""], "--device '': give one of cpu, torch-cpu, cuda, cuda:N or N"),
    (["--device", " "], "--device ' ': give one of"),
    (["--device", "cpu:0"], "--device cpu:0: give one of"),
    (["--show", "--device", "cpu:0"], "--device cpu:0: give one of"),
    (["--device", "tpu"], "--device tpu: give one of"),
    (["--device", "torch-cpu"], "give --output FILE"),
    (["--show", "--device", "torch-cpu"], "is never kept"),
    (["--output", ""], "--output is empty"),
    (["--output", "/"], "--output /: is a directory"),
    (["--output", "."], "--output .: is a directory"),
    (["--output", "none/here.json"], "--output none/here.json: no such file or directory"),
    (["--output", "x" * 300], "file name too long"),
]


@pytest.mark.parametrize(("words", "expected"), REFUSED)
def test_it_is_refused_before_anything_is_measured(
    folder: Path, asked: list[str | None], words: list[str], expected: str, capsys: Capture
) -> None:
    assert main(["calibrate", *words]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert expected in line
    assert asked == []
    assert not folder.exists()


def test_a_state_folder_that_cannot_be_is_refused_before_anything_is_measured(
    folder: Path, asked: list[str | None], capsys: Capture
) -> None:
    folder.write_text("a file")
    assert main(["calibrate"]) == 2
    assert "set ROOFLENS_STATE_DIR to a folder that can be written" in capsys.readouterr().err
    assert asked == []


def test_torch_on_a_cpu_has_no_ceilings_and_says_why(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.setattr(collector.calibrate, "calibrate", lambda *_: own(versions={"torch": "2.13.0"}))
    assert main(["calibrate", "--device", "torch-cpu", "--output", os.devnull]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("ceilings")]
    assert line.startswith("ceilings  none: torch's reads pass the caches")


def test_torch_on_a_cpu_goes_to_a_file(folder: Path, asked: list[str | None], tmp_path: Path) -> None:
    assert main(["calibrate", "--device", "torch-cpu", "--output", str(tmp_path / "x.json")]) == 0
    assert asked == ["torch-cpu"]
    assert not folder.exists()


def test_output_goes_into_a_device_and_past_a_link_and_replaces_neither(
    folder: Path, asked: list[str | None], tmp_path: Path
) -> None:
    before, link = os.lstat(os.devnull), tmp_path / "link.json"
    link.symlink_to("end.json")
    for name in (os.devnull, str(link)):
        assert main(["calibrate", "--output", name]) == 0
    assert os.path.samestat(before, os.lstat(os.devnull))
    assert stat.S_ISCHR(os.lstat(os.devnull).st_mode)
    assert link.is_symlink()
    assert load(tmp_path / "end.json").reads


@pytest.mark.parametrize("lack", ["reads", "products"])
def test_a_hollow_one_does_not_replace_what_is_kept(
    folder: Path, monkeypatch: pytest.MonkeyPatch, lack: str, capsys: Capture
) -> None:
    path = save(own(took_s=12.0), folder)
    empty: dict[str, Any] = {"reads": {"reads": (), "copies": ()}, "products": {"products": {}}}
    hollow = own(flags=(f"{lack} 4096 is not known: too long",), **empty[lack])
    monkeypatch.setattr(collector.calibrate, "calibrate", lambda *_: hollow)
    assert main(["calibrate"]) == 2
    expected = f"not kept, for it holds no {lack} ({lack} 4096 is not known: too long): give more --seconds"
    assert expected in capsys.readouterr().err
    assert load(path).took_s == 12.0
    save(hollow, folder)  # as an older release may have done
    assert main(["calibrate", "--show", "--device", "cpu"]) == 1
    out = capsys.readouterr().out
    assert f"is not used: it holds no {lack}; measure again: rooflens calibrate" in out
    assert "no datasheet" not in out
    assert "ceilings  not known" in out


def test_a_signal_clears_the_bar_and_ends_with_the_shell_s_code(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    def calibrate(device: str | None, seconds: float, progress: Say, force: bool) -> Calibration:
        progress("round 1", 0.5)
        signal.raise_signal(signal.SIGTERM)
        return own()

    monkeypatch.setattr(collector.calibrate, "calibrate", calibrate)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as ended:
        main(["calibrate"])
    assert ended.value.code == 143
    assert capsys.readouterr().err.endswith("\r\033[K")
    assert signal.getsignal(signal.SIGTERM) is before
    assert not folder.exists()


def test_all_cores_are_measured_whatever_the_shell_tells(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    seen = []

    def calibrate(*_: object) -> Calibration:
        seen.append(os.environ.get("OMP_NUM_THREADS"))
        return own()

    monkeypatch.setattr(collector.calibrate, "calibrate", calibrate)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.delitem(sys.modules, "numpy", raising=False)  # as in a process that has just begun
    assert main(["calibrate", "--json"]) == 0
    assert seen == [None]
    out, err = capsys.readouterr()
    assert "OMP_NUM_THREADS not followed: all cores are measured" in err
    assert replace(load(Path(json.loads(out)[0]["path"])), measured_unix_s=0) == replace(own(), measured_unix_s=0)


# What other verbs make of one that cannot be used.


@pytest.mark.parametrize("lack", ["reads", "products"])
def test_a_hollow_file_is_named_and_a_hollow_kept_one_is_as_none(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lack: str, capsys: Capture
) -> None:
    roof = replace(find_hardware("l40s"), id="this-cpu", origin="measured")
    monkeypatch.setattr("rooflens.cli.predict_answer.measured_cpu", lambda: roof)
    empty: Any = () if lack == "reads" else {}
    path = save(own(**{lack: empty}), folder)
    words = ["predict", "--model", "qwen2.5-0.5b", "--hardware", "this-cpu", "--json"]
    assert main(words) == 0  # measured, as if there were none
    assert f"is not used: it holds no {lack}" in capsys.readouterr().err
    assert main([*words, "--calibration", str(path)]) == 2
    assert f"--calibration {path}: it holds no {lack}: measure again" in capsys.readouterr().err


def test_torch_on_this_cpu_says_what_is_reachable_below_a_roof_of_its_own(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    roof = hardware_of(own(), 128 << 20)
    monkeypatch.setattr("rooflens.cli.predict_answer.measured_cpu", lambda: roof)
    monkeypatch.setattr("rooflens.cli.this_cpu.measured", lambda *_: roof)
    path = save(own(versions={"torch": "0"}), tmp_path)
    words = ["predict", "--model", "qwen2.5-0.5b", "--hardware", "this-cpu", "--json", "--calibration", str(path)]
    assert main(words) == 0
    assert json.loads(capsys.readouterr().out)["reachable_origin"] == "calibrated"
    found, calibration = roof_here(Calibrations(str(path)), 128 << 20)
    assert (found, calibration) == (roof, load(path))


def test_a_file_of_another_card_than_the_engine_s_is_refused(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rooflens.cli.identities.machine_here", lambda: ((identity_of_cpu(), H100_IDENTITY), {}))
    path = save(h100_calibration(measured_unix_s=time.time(), versions={}), tmp_path)
    calibrations, h100 = Calibrations(str(path)), find_hardware("h100-sxm5-80")
    assert calibrations.of_device(h100) == calibrations.of_device(h100, ("gpu-MADE",)) == load(path)
    with pytest.raises(RooflensError, match="it is of GPU-made, the engine runs on GPU-other: calibrate one of these"):
        calibrations.of_device(h100, ("GPU-other",))


def test_a_folder_that_may_not_be_looked_into_is_said(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    def denied(path: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    for name in ("listdir", "lstat"):
        monkeypatch.setattr(os, name, denied)
    assert Calibrations(None).of_cpu() is None
    assert "calibrations: permission denied; check its owner and mode" in capsys.readouterr().err
