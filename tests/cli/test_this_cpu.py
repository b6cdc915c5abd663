"""The roof of this machine for an engine's own bytes: the same in every verb, and measured apart."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from rooflens.adapters.embedded.engine import Settings, recorder_for
from rooflens.adapters.embedded.shape import SMALL, shape_for
from rooflens.cli import main, this_cpu
from rooflens.collector.cpu_roof import measure_cpu
from rooflens.collector.step_roof import measure_step_roof
from rooflens.model_records import HardwareSpec
from rooflens.records import EngineInfo

ROOF = HardwareSpec("this-cpu", "c", "unknown", 1 << 34, 1e10, {"fp32": 1e11}, {"fp32": 1e11}, origin="measured")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int | None]:
    """What was measured, in the place of measuring."""
    seen: list[int | None] = []

    def measured(read_bytes: int | None, threads: int | None = None) -> HardwareSpec:
        seen.append(read_bytes)
        return ROOF

    monkeypatch.setattr(this_cpu, "measured", measured)
    return seen


def ended_ring(folder: Path) -> Path:
    with recorder_for(SMALL, Settings(), 128, strict=True, folder=folder) as recorder:
        for context in range(8):
            with recorder.step(contexts=[context]) as step:
                step.generated_tokens = 1
    assert recorder.path is not None
    return recorder.path


def test_the_bytes_are_those_that_the_demo_measures() -> None:
    for shape in (SMALL, shape_for(32 << 20, 64 << 30)[0]):
        info = EngineInfo(instance="i", engine="e", model_config=shape.config(128), weight_dtype="float32")
        assert this_cpu.read_bytes_of(info) == 4 * shape.read_elements
        assert this_cpu.read_bytes_of(replace(info, weight_dtype="bfloat16")) == 2 * shape.read_elements
    assert this_cpu.read_bytes_of(replace(info, tensor_parallel=2)) is None
    assert this_cpu.read_bytes_of(replace(info, model_config=None)) is None


def test_analyze_judges_a_demo_as_the_demo_did(
    tmp_path: Path, asked: list[int | None], capsys: pytest.CaptureFixture[str]
) -> None:
    """One measurement for all rings that read the same, and for an engine that is named this-cpu as well."""
    ended_ring(tmp_path)
    ended_ring(tmp_path)
    for words in ((), ("--hardware", "this-cpu")):
        assert main(["analyze", str(tmp_path), "--json", *words]) == 0
        found = json.loads(capsys.readouterr().out)
        assert [ring["hardware"]["cache_bytes"] for ring in found] == [None, None]
    assert asked == [4 * SMALL.read_elements] * 2


def test_top_measures_for_the_engine_that_is_there(
    tmp_path: Path, asked: list[int | None], capsys: pytest.CaptureFixture[str]
) -> None:
    with recorder_for(SMALL, Settings(), 128, strict=True, folder=tmp_path) as recorder:
        with recorder.step(contexts=[1]):
            pass
        assert main(["top", str(tmp_path), "--once", "--hardware", "this-cpu"]) == 0
    assert main(["top", str(tmp_path), "--once", "--hardware", "this-cpu"]) == 0
    assert asked == [4 * SMALL.read_elements, None]
    config = tmp_path / "config.json"
    config.write_text(json.dumps(SMALL.config(128)))
    assert main(["top", str(tmp_path), "--once", "--hardware", "this-cpu", "--model", str(config)]) == 0
    assert asked[2] == 4 * SMALL.read_elements
    assert "this-cpu" in capsys.readouterr().out


def test_what_was_measured_apart_comes_back_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for spec in (measure_step_roof(1, 0.05), measure_cpu(seconds=0.2, root=tmp_path)):  # a machine with small caches
        assert this_cpu._from_json(json.loads(json.dumps(asdict(spec)))) == spec
    monkeypatch.setattr(this_cpu, "STEP_ROOF_S", 0.05)
    monkeypatch.setattr(this_cpu, "LARGEST_BYTES", 2 << 20)
    assert this_cpu.measure(1 << 40).read_curve[0][0] == 2 << 20
    monkeypatch.setattr("rooflens.collector.cpu_roof.measure_cpu", lambda progress: ROOF)
    assert this_cpu.measure(0) is ROOF
