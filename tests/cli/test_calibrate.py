"""`rooflens calibrate`, and how other verbs use what it keeps."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from made_calibrations import H100_IDENTITY, MIB, cpu_calibration, h100_calibration, measured

from rooflens import collector
from rooflens.adapters.embedded.engine import Settings, recorder_for
from rooflens.adapters.embedded.shape import SMALL
from rooflens.analyzer.calibrated import hardware_of
from rooflens.analyzer.hardware import find_hardware
from rooflens.calibration_records import Calibration
from rooflens.cli import main, this_cpu
from rooflens.cli.bar import Bar
from rooflens.cli.calibrations import Calibrations
from rooflens.cli.watched import _reachable
from rooflens.collector.calibrate import identity as identities
from rooflens.collector.calibrate import identity_of_cpu, load, save, versions_here
from rooflens.records import RooflensError

H100 = find_hardware("h100-sxm5-80")
Capture = pytest.CaptureFixture[str]


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
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """What was to be measured, in the place of measuring."""
    seen: list[tuple[Any, ...]] = []

    def calibrate(
        device: str | None, seconds: float, progress: Callable[[str, float], None], force: bool
    ) -> Calibration:
        seen.append((device, seconds, force))
        progress("filling memory", 0.1)
        progress("round 1", 0.5)
        progress("round 1", 0.6)
        return own()

    monkeypatch.setattr(collector.calibrate, "calibrate", calibrate)
    return seen


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that also has an H100."""
    here = (identity_of_cpu(), H100_IDENTITY, replace(H100_IDENTITY, device_uuid="GPU-other"))
    monkeypatch.setattr(identities, "identities_here", lambda: here)
    monkeypatch.setattr(collector.calibrate, "identities_here", lambda: here)


def of_gpu(**changes: Any) -> Calibration:
    return h100_calibration(**({"measured_unix_s": time.time(), "versions": {}} | changes))


def test_it_measures_keeps_and_tells(folder: Path, asked: list[tuple[Any, ...]], capsys: Capture) -> None:
    assert main(["calibrate"]) == 0
    out, err = capsys.readouterr()
    assert asked == [(None, 30.0, False)]
    (path,) = (folder / "calibrations").glob("*.json")
    assert load(path).identity == identity_of_cpu()
    assert f"file      {path}" in out.splitlines()
    rows = [line.split() for line in out.splitlines()]
    assert ["plain", "reads", "128", "MiB", "22", "GB/s", "25", "GB/s", "4.00%", "7"] in rows
    for words in ("80 GB/s", "90 GB/s", "4.00%", "attention", "400 GFLOP/s", "2 us", "floor, MBU"):
        assert words in out
    assert [line.split()[-1] for line in out.splitlines() if line.startswith("calibrated, the usual")] == [
        "reachable", "reachable",
    ]  # fmt: skip
    assert err.splitlines() == [" 10%  filling memory", " 50%  round 1"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--device", "cpu", "--seconds", "5", "--force"], ("cpu", 5.0, True)),
        (["--device", "1"], ("cuda:1", 30.0, False)),
        (["--device", "CUDA:0"], ("cuda:0", 30.0, False)),
    ],
)
def test_what_is_asked_for_is_measured(
    folder: Path, asked: list[tuple[Any, ...]], words: list[str], expected: tuple[Any, ...]
) -> None:
    assert main(["calibrate", *words]) == 0
    assert asked == [expected]


@pytest.mark.parametrize("words", ["--seconds 0", "--seconds 61", "--seconds nan", "--show --force"])
def test_what_cannot_be_is_refused_before_anything_is_measured(
    folder: Path, asked: list[tuple[Any, ...]], words: str, capsys: Capture
) -> None:
    assert main(["calibrate", *words.split()]) == 2
    assert asked == []
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_json_holds_the_calibration_its_ceilings_and_its_file(
    folder: Path, asked: list[tuple[Any, ...]], capsys: Capture
) -> None:
    assert main(["calibrate", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert found["reads"][0] == [16 * MIB, asdict(measured(80e9, 90e9))]
    assert found["hardware"] == "this-cpu"
    assert found["problem"] is None
    assert Path(found["path"]).parent == folder / "calibrations"
    used = {(one["origin"], one["number_format"]): one["used_for"] for one in found["ceilings"]}
    assert used["measured", None] == ["floor", "mbu"]
    assert used["calibrated", None] == ["reachable"]


def test_it_writes_where_it_is_told_and_for_its_owner_only(
    folder: Path, asked: list[tuple[Any, ...]], tmp_path: Path, capsys: Capture
) -> None:
    path = tmp_path / "here.json"
    assert main(["calibrate", "--output", str(path)]) == 0
    assert load(path) == replace(own(), measured_unix_s=load(path).measured_unix_s)
    assert path.stat().st_mode & 0o777 == 0o600
    assert not folder.exists()
    assert sorted(tmp_path.iterdir()) == [path]
    assert main(["calibrate", "--output", str(tmp_path / "none" / "here.json")]) == 2
    assert "no such file or directory" in capsys.readouterr().err


def test_show_prints_what_is_kept_and_measures_nothing(
    folder: Path, asked: list[tuple[Any, ...]], capsys: Capture
) -> None:
    assert main(["calibrate", "--show", "--device", "cpu"]) == 1
    assert "was never calibrated: rooflens calibrate" in capsys.readouterr().out
    save(own(), folder)
    assert main(["calibrate", "--show", "--device", "cpu"]) == 0
    assert "80 GB/s" in capsys.readouterr().out
    save(own(measured_unix_s=time.time() - 200 * 86400), folder)
    assert main(["calibrate", "--show", "--device", "cpu", "--json"]) == 1
    (found,) = json.loads(capsys.readouterr().out)
    assert "it was measured 200 days ago" in found["problem"]
    assert found["reads"][0][1]["median"] == 80e9
    assert asked == []


def test_show_tells_the_roof_by_the_bytes_of_a_pass_as_other_verbs_take_it(folder: Path, capsys: Capture) -> None:
    save(own(), folder)
    assert main(["calibrate", "--show", "--device", "cpu"]) == 0
    lines = capsys.readouterr().out.splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("the roof depends on the bytes"))
    assert [" ".join(line.split()) for line in lines[start + 1 : start + 6]] == [
        "memory, for a pass over floor, MBU reachable",
        "16 MiB 90 GB/s 80 GB/s",
        "32 MiB 70 GB/s 60 GB/s",
        "128 MiB 25 GB/s 20 GB/s",
        "512 MiB 23 GB/s 19 GB/s",
    ]
    assert max(len(line) for line in lines if not line.startswith("file ")) <= 120
    assert main(["calibrate", "--show", "--device", "cpu", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert found["pass_roofs"][-1] == pytest.approx([512 * MIB, 23e9, 19e9])
    save(own(launch_s=measured(2e-6, 1e-6, 1.5)), folder)
    assert main(["calibrate", "--show", "--device", "cpu"]) == 0
    out = capsys.readouterr().out
    assert "23 GB/s  not known" in out


def test_show_names_every_device(folder: Path, gpu: None, capsys: Capture) -> None:
    save(of_gpu(), folder)
    assert main(["calibrate", "--show", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert [one["identity"]["device_uuid"] for one in found] == ["GPU-made", "GPU-other", None]
    assert found[0]["hardware"] == "h100-sxm5-80"
    assert {one["origin"] for one in found[0]["ceilings"]} == {"datasheet", "calibrated", "clock_adjusted"}
    assert main(["calibrate", "--show", "--device", "cuda:0"]) == 0
    assert "reachable" in capsys.readouterr().out
    assert main(["calibrate", "--show", "--device", "cuda:2"]) == 2
    assert "show 2 such devices" in capsys.readouterr().err
    assert main(["calibrate", "--show", "--device", "tpu"]) == 2


def test_a_bar_on_a_terminal_replaces_itself(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    bar = Bar()
    bar.tell("round 1", 0.5)
    bar.tell("done\x1b[2J", 1.0)
    bar.end()
    shown = capsys.readouterr().err.split("\r\033[K")
    assert shown == ["", "############............  50%  round 1", "#" * 24 + " 100%  done?[2J", ""]


def test_a_log_gets_a_line_for_other_words_and_now_and_then_for_a_number(capsys: Capture) -> None:
    bar = Bar()
    bar.tell("warming up", 0.1)
    for number in range(1, 90):
        bar.tell(f"round {number}", 0.1 + number / 100)
    bar.tell("done", 1.0)
    bar.end()
    shown = [line.split(None, 1) for line in capsys.readouterr().err.splitlines()]
    assert [words for _, words in shown] == ["warming up", "round 1", "round 26", "round 51", "round 76", "done"]


def test_a_better_one_that_is_kept_stays(folder: Path, asked: list[tuple[Any, ...]], capsys: Capture) -> None:
    near = tuple((size * MIB, measured(5e9, spread_ratio=0.01)) for size in (1, 2, 3, 4, 5))
    better = own(took_s=61.0, reads=near, copies=(), attention=())
    path = save(better, folder)
    assert main(["calibrate"]) == 0
    out = capsys.readouterr().out
    assert load(path) == better
    assert "80 GB/s" in out  # the new one is printed
    assert not [line for line in out.splitlines() if line.startswith("file ")]
    (line,) = [line for line in out.splitlines() if line.startswith("warning   not kept: the one of ")]
    assert "it took 61 s, not 30, and its runs lie nearer together; --output FILE keeps both" in line
    assert str(path) in line
    assert main(["calibrate", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert found["path"] is None
    assert found["problem"].startswith("not kept: ")
    save(replace(better, took_s=59.0), folder)
    assert main(["calibrate"]) == 0
    assert load(path).took_s == 30.0


def test_a_gpu_that_only_the_engine_s_python_can_measure_is_said(
    folder: Path, asked: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setattr("rooflens.collector.calibrate.run.find_spec", lambda _name: None)
    monkeypatch.setattr("rooflens.cli.identities.machine_here", lambda: ((identity_of_cpu(), H100_IDENTITY), {}))
    assert main(["calibrate"]) == 0
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("rooflens: ")]
    assert line == (
        "rooflens: the CPU is measured, not NVIDIA H100 80GB HBM3: no torch is installed here; "
        "run this with the Python of the engine to measure that"
    )
    assert main(["calibrate", "--device", "cpu"]) == 0
    assert "rooflens: " not in capsys.readouterr().err


# How other verbs find it.


def test_a_kept_calibration_of_this_cpu_is_used_and_nothing_is_measured(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("measured")

    monkeypatch.setattr(this_cpu, "measured", never)
    monkeypatch.setattr("rooflens.cli.predict_answer.measured_cpu", never)
    save(own(), folder)
    with recorder_for(SMALL, Settings(), 128, strict=True, folder=tmp_path) as recorder:
        for context in range(8):
            with recorder.step(contexts=[context]) as step:
                step.generated_tokens = 1
    for words in ((), ("--hardware", "this-cpu")):
        assert main(["analyze", str(tmp_path), "--json", *words]) == 0
        (ring,) = json.loads(capsys.readouterr().out)
        assert ring["hardware"]["memory_bandwidth_bytes_per_s"] == 90e9  # of what the small model reads
        assert ring["efficiency"]["origin"] == "calibrated"
        assert ring["phases"][0]["floor"]["reachable_s"] is not None
    assert main(["top", str(tmp_path), "--once", "--hardware", "this-cpu"]) == 0
    assert main(["predict", "--model", "qwen2.5-0.5b", "--hardware", "this-cpu", "--json"]) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert found["reachable_origin"] == "calibrated"
    assert found["reachable_error_median_ratio"] is None  # which is of published kernels
    assert main(["predict", "--model", "qwen2.5-0.5b", "--hardware", "this-cpu"]) == 0
    text = capsys.readouterr().out
    assert "(calibrated 2" in text
    assert "published decode steps" not in text


def test_an_unsteady_one_says_once_why_nothing_is_reachable(folder: Path, tmp_path: Path, capsys: Capture) -> None:
    save(own(launch_s=measured(2e-6, 1e-6, 1.5)), folder)
    with recorder_for(SMALL, Settings(), 128, strict=True, folder=tmp_path) as recorder:
        for context in range(8):
            with recorder.step(contexts=[context]) as step:
                step.generated_tokens = 1
    assert main(["analyze", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "floor     this-cpu (measured): 90.0 GB/s" in out
    assert len([line for line in out.splitlines() if "reachable" in line]) == 1
    why = (
        "reachable is not known: runs of its calibration lie too far apart (launches by 150%): calibrate again in quiet"
    )
    assert why in " ".join(out.split())
    assert main(["predict", "--model", "qwen2.5-0.5b", "--hardware", "this-cpu"]) == 0
    assert "reachable is not known: runs" in capsys.readouterr().out


def test_a_sidecar_says_why_nothing_is_reachable_by_an_unsteady_one() -> None:
    one = own(launch_s=measured(2e-6, 1e-6, 1.5))
    assert _reachable(hardware_of(one, MIB), (one,)) == (
        "not known: runs of its calibration lie too far apart (launches by 150%): calibrate again in quiet"
    )
    assert _reachable(hardware_of(one, MIB), ()).startswith("not known: runs of its calibration")
    assert _reachable(hardware_of(own(), MIB), (own(),)).startswith("calibrated ")


@pytest.mark.parametrize("verb", ["analyze", "sidecar", "top"])
def test_help_says_that_this_cpu_is_measured_only_where_it_was_not_calibrated(verb: str, capsys: Capture) -> None:
    with pytest.raises(SystemExit):
        main([verb, "--help"])
    words = " ".join(capsys.readouterr().out.split())
    assert re.search(r"this-cpu \(as calibrated, else measured", words)


def test_none_measures_as_ever(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Capture) -> None:
    spec = replace(find_hardware("l40s"), id="this-cpu", origin="measured")
    monkeypatch.setattr("rooflens.cli.predict_answer.measured_cpu", lambda: spec)
    save(own(), folder)
    words = ["predict", "--model", "qwen2.5-0.5b", "--hardware", "this-cpu", "--json"]
    assert main([*words, "--calibration", "none"]) == 0
    assert json.loads(capsys.readouterr().out)["reachable_origin"] is None


def test_a_stale_one_is_said_once_and_left_and_used_where_it_is_named(
    folder: Path, tmp_path: Path, capsys: Capture
) -> None:
    path = save(own(measured_unix_s=time.time() - 200 * 86400), folder)
    calibrations = Calibrations(None)
    assert calibrations.of_cpu() is None
    assert calibrations.of_cpu() is None
    (line,) = capsys.readouterr().err.splitlines()
    assert "it was measured 200 days ago; measure again: rooflens calibrate" in line
    assert Calibrations(str(path)).of_cpu() == load(path)
    assert "is used although it was measured 200 days ago" in capsys.readouterr().err


def test_a_file_of_another_machine_is_refused_in_one_line(folder: Path, tmp_path: Path, capsys: Capture) -> None:
    path = save(own(identity=replace(identity_of_cpu(), machine="another")), tmp_path)
    words = ["predict", "--model", "qwen2.5-0.5b", "--hardware", "this-cpu", "--calibration", str(path)]
    assert main(words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "it is of another machine: machine is another there" in line
    assert line.endswith("rooflens calibrate")


@pytest.mark.parametrize("words", ["", "{", "{}", "[" * 100_000, json.dumps({"identity": 1})])
def test_a_file_that_is_none_is_one_line(folder: Path, tmp_path: Path, words: str, capsys: Capture) -> None:
    path = tmp_path / "bad.json"
    path.write_text(words)
    words_of = ["predict", "--model", "qwen2.5-0.5b", "--hardware", "h100-sxm5-80", "--calibration", str(path)]
    assert main(words_of) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_file_without_reads_says_nothing(folder: Path, tmp_path: Path) -> None:
    path = save(own(reads=()), tmp_path)
    with pytest.raises(RooflensError, match="no reads"):
        Calibrations(str(path)).of_cpu()
    save(own(reads=()), folder)
    assert Calibrations(None).of_cpu() is None


def test_of_several_devices_the_slowest_counts_unless_the_engine_names_its_own(folder: Path, gpu: None) -> None:
    fast, slow = of_gpu(), of_gpu(
        identity=replace(H100_IDENTITY, device_uuid="GPU-other"), reads=((64 * MIB, measured(1e12)),)
    )  # fmt: skip
    assert Calibrations(None).of_device(H100) is None
    save(fast, folder)
    assert Calibrations(None).of_device(H100) == fast
    save(slow, folder)
    assert Calibrations(None).of_device(H100) == slow
    assert Calibrations(None).of_device(H100, ("gpu-MADE",)) == fast
    assert Calibrations(None).of_device(H100, ("GPU-third",)) is None
    assert Calibrations(None).of_device(find_hardware("h200-sxm-141")) is None
    assert Calibrations("none").of_device(H100) is None
    assert Calibrations(None).of_device(None) is None
    file = str(save(of_gpu(), folder))
    assert Calibrations(file).of_device(H100) is not None
    with pytest.raises(RooflensError, match="the hardware is not known: give --hardware ID too"):
        Calibrations(file).of_device(None)


def test_predict_takes_a_device_s_calibration_only_where_it_is_named(
    folder: Path, gpu: None, tmp_path: Path, capsys: Capture
) -> None:
    path = save(of_gpu(), folder)
    words = ["predict", "--model", "meta-llama-3-8b", "--hardware", "h100-sxm5-80", "--json"]
    found = []
    for more in ([], ["--calibration", str(path)]):
        assert main([*words, *more]) == 0
        found.append(json.loads(capsys.readouterr().out))
    assert [one["reachable_origin"] for one in found] == ["published", "calibrated"]
    assert found[0]["floor_s"] == found[1]["floor_s"] < found[0]["reachable_s"] < found[1]["reachable_s"]
    assert main([*words[:4], "h200-sxm-141", "--calibration", str(path)]) == 2
    assert "it is of NVIDIA H100 80GB HBM3, not of h200-sxm-141" in capsys.readouterr().err
    assert main([*words[:4], "this-cpu", "--calibration", str(path)]) == 2
    assert "not of this CPU" in capsys.readouterr().err
