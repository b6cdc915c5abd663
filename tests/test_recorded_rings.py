"""The recorded runs of tests/data/traces: they can be read, say what their README says, and name nobody."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from cut_ring import cut
from recorded_rings import HARDWARE, NAMES, TRACES, unpacked

from rooflens.adapters.recorder import Recorder
from rooflens.cli import main
from rooflens.pipeline import read_ring

STEPS = {"vllm-a": 371, "vllm-b": 371, "embedded": 426, "embedded-slow": 367}


@pytest.mark.parametrize("name", NAMES)
def test_analyze_reads_each_under_its_own_roof(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = unpacked(name, tmp_path)
    assert main(["analyze", str(path), "--hardware", str(HARDWARE), "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert found["steps"] == STEPS[name]
    assert (found["ending"], found["lost_steps"], found["torn_steps"]) == ("ended", 0, 0)
    assert not found["measurement_invalid"]
    assert {"decode", "mixed", "prefill"} <= {phase["name"] for phase in found["phases"]}


@pytest.mark.parametrize("name", NAMES)
def test_each_is_small_and_names_no_machine(name: str) -> None:
    packed = (TRACES / f"{name}.ring.gz").read_bytes()
    assert len(packed) < 400_000
    raw = gzip.decompress(packed)
    for word in (b"/work", b"/tmp", b"/home", b"/root", b'"vm-'):
        assert word not in raw, word


def test_a_cut_ring_says_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOFLENS_DIR", str(tmp_path / "rings"))
    with Recorder("test-engine", strict=True) as recorder:
        for number in range(20):
            with recorder.step(contexts=[30 + number, 7], kv_blocks_used=3):
                pass
    assert recorder.path is not None
    cut(recorder.path, tmp_path / "small.ring.gz")
    small = tmp_path / "small.ring"
    small.write_bytes(gzip.decompress((tmp_path / "small.ring.gz").read_bytes()))
    small.chmod(0o600)
    before, after = read_ring(recorder.path), read_ring(small)
    assert small.stat().st_size < recorder.path.stat().st_size / 10
    assert len(after.steps) == 20
    assert before.info is not None
    assert after.info is not None
    assert after.info.instance == before.info.instance.replace(before.info.host or "", "host-a", 1)
    assert before.steps.columns.keys() == after.steps.columns.keys()
    for name, column in before.steps.columns.items():
        assert np.array_equal(column, after.steps.columns[name]), name
