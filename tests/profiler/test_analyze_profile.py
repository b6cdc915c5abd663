"""`rooflens analyze` of profiles: the recorded ones of tests/data/profiles, and some by hand."""

from __future__ import annotations

import builtins
import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from made_profiles import LATE, kineto, nsys, on_host
from recorded_rings import HARDWARE

from rooflens.cli import main
from rooflens.cli.recorded import head_of
from rooflens.cli.recorded.profiler import is_mine

DATA = Path(__file__).parents[1] / "data"
PROFILES = DATA / "profiles"
MODEL = PROFILES / "vllm-config.json"
NAMES = ("vllm", "vllm-detailed", "torch-loop", "rocm", "cuda-events")


def of(capsys: pytest.CaptureFixture[str], path: Path, *words: str) -> dict[str, Any]:
    assert main(["analyze", str(path), *words, "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert isinstance(found, dict)
    return found


def text(capsys: pytest.CaptureFixture[str], path: Path, *words: str) -> str:
    assert main(["analyze", str(path), *words]) == 0
    return capsys.readouterr().out


def fault(capsys: pytest.CaptureFixture[str], path: Path) -> str:
    assert main(["analyze", str(path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


def test_a_real_vllm_profile(capsys: pytest.CaptureFixture[str]) -> None:
    """Profiled between start and stop: what the load was is in the README."""
    found = of(capsys, PROFILES / "vllm.json.gz")
    (track,) = found["tracks"]
    assert (track["cut_by"], track["device"], track["steps"], track["empty_turns"]) == ("vLLM execute_...", None, 11, 1)
    assert [step["query_tokens"] for step in track["listed"][:3]] == [128, 87, 3]
    assert [step["kind"] for step in track["listed"][:3]] == ["mixed", "mixed", "decode"]
    assert 0 < track["busy_s"] < track["within_s"] < track["span_s"]
    assert track["busy_s"] + track["gap_s"] == pytest.approx(track["within_s"])
    assert sum(track["class_s"].values()) == pytest.approx(track["busy_s"])
    assert max(track["class_s"], key=track["class_s"].__getitem__) == "matrix products"
    assert track["class_s"]["attention"] > 0
    assert track["class_s"]["collectives"] == 0
    assert found["start_unix_s"] == pytest.approx(1796033550.752, abs=1e-3)


def test_a_profile_with_contexts_stands_beside_the_floor(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--hardware", str(HARDWARE), "--model", str(MODEL))
    (track,) = of(capsys, PROFILES / "vllm-detailed.json.gz", *words)["tracks"]
    assert track["floor_problem"] is None
    phases = {phase["name"]: phase for phase in track["summary"]["phases"]}
    assert {"decode", "mixed", "prefill"} <= phases.keys()
    for name in ("decode", "mixed", "prefill"):
        assert 0 < phases[name]["floor"]["floor_s"] < phases[name]["floor"]["observed_s"]
    contexts = [step["context_tokens"] for step in track["listed"]]
    assert contexts[:3] == [128, 256, 384]
    shown = text(capsys, PROFILES / "vllm-detailed.json.gz", *words)
    for line in ("where the time went", "x floor", "within the steps", "matrix products", "no operator: Python"):
        assert line in shown, line


def test_without_contexts_the_way_to_them_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    shown = text(capsys, PROFILES / "vllm.json.gz", "--hardware", str(HARDWARE), "--model", str(MODEL))
    assert "no contexts are told" in shown
    assert "detailed_trace_annotation true" in shown
    assert "give --model" in text(capsys, PROFILES / "vllm.json.gz", "--hardware", str(HARDWARE))


def test_a_loop_of_torch_and_its_worst_step(capsys: pytest.CaptureFixture[str]) -> None:
    shown = text(capsys, PROFILES / "torch-loop.json.gz")
    assert "ProfilerStep#N" in shown
    (worst,) = (line for line in shown.splitlines() if line.startswith("worst"))
    assert worst.split()[1:3] == ["number", "5,"]
    (track,) = of(capsys, PROFILES / "torch-loop.json.gz")["tracks"]
    assert (track["summary"], track["steps"]) == (None, 9)


@pytest.mark.parametrize(("name", "kernels"), [("rocm", 14), ("cuda-events", 5)])
def test_profiles_of_real_devices(name: str, kernels: int, capsys: pytest.CaptureFixture[str]) -> None:
    (track,) = of(capsys, PROFILES / f"{name}.json.gz")["tracks"]
    assert [step["kernels"] for step in track["listed"]] == [kernels]
    assert track["device"] is not None
    assert track["device_name"]


def test_the_device_that_a_profile_names_is_its_hardware(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = "execute_5_context_0(sq0sk0sqsq0sqsk0)_generation_1(sq1sk41sqsq1sqsk41)"
    ranges, kernels = [(0, 90_000, 7, name)], [(100_000, 900_000, 7, 0, 1, "nvjet_tst")]
    path = nsys(tmp_path / "p.sqlite", ranges, kernels, [(5_000, 7, 1)])
    found = of(capsys, path, "--model", str(MODEL))
    (track,) = found["tracks"]
    assert found["format"] == "nsys SQLite"
    assert track["floor_problem"] is None
    (phase,) = (one for one in track["summary"]["phases"] if one["name"] == "decode")
    assert 0 < phase["floor"]["floor_s"] < phase["seconds"] == pytest.approx(800e-6)
    assert "NVIDIA H100" in text(capsys, path)


def test_a_path_as_a_device_name_is_not_opened(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ranges, kernels = [(0, 90_000, 7, "execute_new_0_cached_1")], [(10_000, 20_000, 7, 0, 1, "gemm")]
    devices = [{"id": 0, "name": str(HARDWARE)}]
    path = kineto(tmp_path / "p.json", LATE, deviceProperties=devices)
    assert "the hardware is not known" in text(capsys, path, "--model", str(MODEL))
    assert of(capsys, nsys(tmp_path / "p.sqlite", ranges, kernels))["tracks"]


def test_one_line_for_what_cannot_be_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    without = kineto(tmp_path / "w.json", [on_host("aten::mm", 0, 5, "cpu_op")])
    line = fault(capsys, without)
    assert "no range of a step" in line
    assert "--profiler-config.profiler torch" in line
    cut = tmp_path / "cut.json"
    cut.write_text('{"schemaVersion": 1, "traceEvents": [{"ph": "X", "cat": "cpu')
    assert "cut off or damaged" in fault(capsys, cut)
    packed = tmp_path / "db.gz"
    packed.write_bytes(gzip.compress(b"SQLite format 3\0" + bytes(100)))
    assert "unpack it first" in fault(capsys, packed)
    damaged = tmp_path / "d.sqlite"
    damaged.write_bytes(b"SQLite format 3\0" + bytes(4096))
    assert "cannot be read" in fault(capsys, damaged)
    really = builtins.__import__

    def refused(name: str, *rest: Any) -> Any:
        if name == "ijson":
            raise ImportError(name)
        return really(name, *rest)

    monkeypatch.setattr(builtins, "__import__", refused)
    assert "pip install 'rooflens[trace]'" in fault(capsys, without)


def test_a_cut_off_profile_is_read_up_to_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = kineto(tmp_path / "p.json", LATE * 3)
    path.write_bytes(path.read_bytes()[:-400])
    assert "cut off or damaged" in text(capsys, path)
    assert of(capsys, path)["cut_off"]


def test_other_files_are_not_taken_for_profiles() -> None:
    others = [*(DATA / "benchmarks").rglob("*.json"), *(DATA / "benchmarks").rglob("*.txt"), *(DATA / "logs").iterdir()]
    heads = [head for path in others if path.is_file() and (head := head_of(path)) is not None]
    assert heads
    assert not [head[:80] for head in heads if is_mine(head)]
    assert all(is_mine(head_of(PROFILES / f"{name}.json.gz") or "") for name in NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_the_recorded_profiles_are_small_and_name_nobody(name: str) -> None:
    packed = (PROFILES / f"{name}.json.gz").read_bytes()
    assert len(packed) < 200_000
    raw = gzip.decompress(packed)
    for word in (b"/work", b"/tmp", b"/home", b"/root", b"host_name", b"traceName", b".py"):
        assert word not in raw, word
