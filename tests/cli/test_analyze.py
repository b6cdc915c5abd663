from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from rooflens.adapters.embedded.shape import SMALL
from rooflens.adapters.recorder import Recorder
from rooflens.cli import main


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "rings"
    place.mkdir(mode=0o700)
    monkeypatch.setenv("ROOFLENS_DIR", str(place))
    monkeypatch.delenv("ROOFLENS_DISABLE", raising=False)
    return place


@pytest.fixture
def recorder(folder: Path) -> Iterator[Recorder]:
    """An engine that served one prompt and some decode steps, with drafts, a preemption and a queue."""
    made = Recorder(
        "test-engine", strict=True, model_name="tiny", model_config=SMALL.config(128), weight_dtype="bfloat16",
        kv_blocks=100, block_tokens=16,
    )  # fmt: skip
    facts: dict[str, Any] = {"prompt_tokens": 30, "new_requests": 1, "prefix_hit_local_tokens": 6}
    with made.step(contexts=[6], queries=[24], kv_blocks_used=2, waiting=3, oldest_wait_s=0.5, **facts):
        time.sleep(0.002)
    for number in range(8):
        with made.step(contexts=[30 + number], kv_blocks_used=3, waiting=3, running=1, preempted=int(number == 4)):
            time.sleep(0.001)
    with made.step(contexts=[38], drafts=[3]) as step:
        step.rejected = [1]
    yield made
    made.close()


def report(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main(["analyze", *words, "--json"]) == 0
    (one,) = json.loads(capsys.readouterr().out)
    assert isinstance(one, dict)
    return one


def test_the_time_adds_up_by_phase(recorder: Recorder, capsys: pytest.CaptureFixture[str]) -> None:
    recorder.close()
    found = report(capsys, "--hardware", "h100-sxm5-80")
    phases = {phase["name"]: phase for phase in found["phases"]}
    assert {name: phase["steps"] for name, phase in phases.items()} == {
        "prefill": 1, "decode": 8, "verify": 1, "between steps": 0,
    }  # fmt: skip
    assert sum(phase["seconds"] for phase in phases.values()) == pytest.approx(found["span_s"])
    assert sum(phase["share_ratio"] for phase in phases.values()) == pytest.approx(1)
    for name in ("prefill", "decode"):
        floor = phases[name]["floor"]
        assert 0 < floor["floor_s"] <= floor["serial_floor_s"] < floor["observed_s"]
        assert floor["bound_steps"]
    assert not found["measurement_invalid"]
    assert found["ending"] == "ended"
    assert found["totals"]["preempted"] == 1
    assert found["ratios"]["draft_acceptance"] == pytest.approx(2 / 3)
    assert found["ratios"]["prefix_hit"] == pytest.approx(0.2)
    assert found["ratios"]["kv_used_max"] == pytest.approx(0.03)
    assert found["spreads"]["waiting"]["max"] == 3


def test_the_text_says_it_all(recorder: Recorder, capsys: pytest.CaptureFixture[str]) -> None:
    recorder.event("sleep")
    assert main(["analyze", str(recorder.path), "--hardware", "h100-sxm5-80"]) == 0
    text = capsys.readouterr().out
    for words in (
        "test-engine", "; live", "where the time went", "x floor", "compute", "decode", "verify", "between steps",
        "KV cache used", "accepted 66.7%", "prefixes  20.0%", "1 preemptions", "3,350.0 GB/s", "events    sleep",
    ):  # fmt: skip
        assert words in text, words


def test_without_hardware_the_floor_is_said_to_be_unknown(
    recorder: Recorder, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["analyze"]) == 0
    text = capsys.readouterr().out
    assert "give --hardware ID" in text
    assert "x floor" not in text
    assert report(capsys)["floor_problem"] == "the hardware is not known: give --hardware ID"


def test_a_step_in_flight_has_an_age(recorder: Recorder, capsys: pytest.CaptureFixture[str]) -> None:
    with recorder.step(contexts=[41]):
        time.sleep(0.02)
        found = report(capsys)
        assert main(["analyze"]) == 0
    assert found["ending"] == "live"
    assert found["in_flight"]["ordinal"] == 11
    assert found["in_flight"]["age_s"] >= 0.02
    assert "live, step 11 (1 sequences, 1 tokens) running for" in capsys.readouterr().out
    assert report(capsys)["in_flight"] is None


def test_faster_than_possible_is_measurement_invalid(
    recorder: Recorder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    slow = (files("rooflens.analyzer") / "data/hardware/h100-sxm5-80.toml").read_text()
    lines = [
        "memory_bandwidth_bytes_per_s = 1e8" if line.startswith("memory_bandwidth_bytes_per_s") else line
        for line in slow.splitlines()
    ]
    lines = [line for line in lines if not line.startswith("cache_bytes")]
    file = tmp_path / "slow.toml"
    file.write_text("\n".join(lines))
    found = report(capsys, "--hardware", str(file))
    assert found["measurement_invalid"]
    assert found["below_floor_steps"] == 10
    phases = {phase["name"]: phase for phase in found["phases"]}
    assert phases["decode"]["floor"]["mbu"] > 1  # nothing is clipped
    assert main(["analyze", "--hardware", str(file)]) == 0
    assert "measurement_invalid" in capsys.readouterr().out


def test_a_model_whose_fields_are_missing_is_one_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Recorder("moe", strict=True, model_config={"num_experts": 8}) as recorder, recorder.step(contexts=[1]):
        pass
    assert (
        "hidden_size or n_embd or d_model or dim is missing"
        in report(capsys, "--hardware", "h100-sxm5-80")["floor_problem"]
    )


def test_lost_steps_are_said(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import rooflens.adapters.recorder as module
    from rooflens.ring_folder import create_ring

    small = pytest.MonkeyPatch()
    small.setattr(module, "create_ring", lambda place, rank: create_ring(place, rank, ((16, 4096),)))
    recorder = Recorder("small", strict=True)
    small.undo()
    for number in range(40):
        with recorder.step(contexts=[number]):
            pass
    found = report(capsys)
    assert (found["lost_steps"], found["steps"]) == (24, 16)
    assert "not recorded" in {phase["name"] for phase in found["phases"]}
    recorder.close()


def test_an_engine_that_made_no_step_yet(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recorder = Recorder("young", strict=True)
    assert report(capsys)["steps"] == 0
    assert main(["analyze"]) == 0
    assert "no step recorded yet" in capsys.readouterr().out
    recorder.close()


@pytest.mark.parametrize("content", [b"", b"RFLNRING", b"\x7fELF" * 3000])
def test_a_bad_ring_is_one_line_and_code_2(folder: Path, content: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    bad = folder / "bad.ring"
    bad.write_bytes(content)
    assert main(["analyze", str(bad)]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.count("\n") == 1
    assert str(bad) in told.err


def test_a_bad_ring_does_not_hide_the_good_ones(recorder: Recorder, capsys: pytest.CaptureFixture[str]) -> None:
    assert recorder.path is not None
    (recorder.path.parent / "bad.ring").write_bytes(b"")
    assert main(["analyze"]) == 2
    told = capsys.readouterr()
    assert "test-engine" in told.out
    assert "bad.ring" in told.err


def test_no_ring_says_the_next_step(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder.rmdir()
    assert main(["analyze"]) == 2
    assert "no ring in" in capsys.readouterr().err
    assert main(["analyze", str(folder / "missing.ring")]) == 2
    assert "no such file" in capsys.readouterr().err


def test_without_numpy_there_is_a_raw_answer(
    recorder: Recorder, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from rooflens.cli import analyze

    monkeypatch.setattr(analyze, "find_spec", lambda _name: None)
    found = report(capsys)
    assert found["steps_by_kind"] == {"prefill": 1, "decode": 8, "verify": 1}
    assert found["query_tokens"] == 24 + 8 + 4
    assert found["step_max_s"] >= 0.002
    assert main(["analyze"]) == 0
    assert "pip install 'rooflens[sidecar]'" in capsys.readouterr().out
    assert "numpy" in sys.modules
