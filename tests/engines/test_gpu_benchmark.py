"""The benchmark for a machine with a GPU, run to its end on a CPU with torch: its figures and what it leaves undone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.engine

RUN = Path(__file__).resolve().parents[2] / "benchmarks" / "gpu" / "run.py"
# By hand: 4 layers of hidden 1024, 16 heads, intermediate 4096, vocabulary 8192, all of it fp32.
LAYER = 4 * 1024 * 1024 + 3 * 1024 * 4096 + 2 * 1024
WEIGHT_BYTES = 4 * (4 * LAYER + 1024 + 8192 * 1024)
TOKEN_BYTES = 4 * 4 * 2 * 1024
CONTEXT = 256


def step_bytes(batch: int) -> int:
    """Weights, the cache that was there, the token that is written, a row of the embedding."""
    return WEIGHT_BYTES + batch * (CONTEXT * TOKEN_BYTES + TOKEN_BYTES + 4 * 1024)


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], str]:
    """What one run wrote down, and what it printed."""
    file = tmp_path_factory.mktemp("gpu") / "result.json"
    command = [sys.executable, "-P", str(RUN), "--device", "cpu", "--seconds", "1", "--json", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(file.read_text()), done.stdout


def test_the_bytes_of_the_model_are_those_counted_by_hand(outcome: tuple[dict[str, Any], str]) -> None:
    result, _ = outcome
    assert {loop["batch"] for loop in result["loops"]} == {1, 4}
    for loop in result["loops"]:
        assert loop["model_bytes"] == loop["bytes_by_hand"] == step_bytes(loop["batch"])
        assert loop["bytes_moved_by_hand"] == loop["passes"] * step_bytes(loop["batch"])


def test_every_loop_was_recorded_and_has_its_bounds(outcome: tuple[dict[str, Any], str]) -> None:
    result, printed = outcome
    names = ["eager, batch 1", "eager, batch 4", "pauses of the host, batch 1", "weights read twice, batch 1"]
    assert [loop["name"] for loop in result["loops"]] == names
    for loop in result["loops"]:
        assert loop["steps"] >= 1
        assert loop["floor_s"] > 0
        reachable_s = loop["reachable_calibrated_s"]  # not known where the runs of the calibration lie too far apart
        assert reachable_s is None or reachable_s >= loop["floor_s"]
        assert loop["recorder_p50_s"] > 0
        assert loop["name"] in printed


def test_a_pause_before_every_step_is_host_overhead(outcome: tuple[dict[str, Any], str]) -> None:
    """As long as the step itself, half of the time lies between steps; where too few were made it cannot be told."""
    said = {loop["name"]: loop["verdicts"]["host_overhead"]["status"] for loop in outcome[0]["loops"]}
    steps = {loop["name"]: loop["steps"] for loop in outcome[0]["loops"]}
    paused = "pauses of the host, batch 1"
    assert said[paused] == ("firing" if steps[paused] >= 20 else "cannot_tell")
    assert "firing" not in {status for name, status in said.items() if name != paused}


def test_what_was_expected_stands_beside_what_came(outcome: tuple[dict[str, Any], str]) -> None:
    result, printed = outcome
    found = {loop["made_for"]: loop["outcome"] for loop in result["loops"] if loop["made_for"]}
    assert (found["host_overhead"]["expected"], found["memory_bound_waste"]["outcome"]) == ("firing", "cannot tell")
    assert "host_overhead expected firing, got " in printed
    assert "neither device time nor a counter" in printed


def test_what_a_cpu_cannot_do_is_said_and_not_made_up(outcome: tuple[dict[str, Any], str]) -> None:
    result, printed = outcome
    for loop in result["loops"]:
        assert loop["device_p50_s"] is None
        assert loop["counters"] is None
        assert not loop["graphs"]
        assert loop["reachable_published_s"] is None
        assert loop["verdicts"]["memory_bound_waste"]["status"] != "firing"
    for line in result["not_done"]:
        assert line in printed
    assert [line.partition(":")[0] for line in result["not_done"]] == ["device time", "CUDA graphs", "counters"]


def test_the_result_names_machine_versions_and_commit(outcome: tuple[dict[str, Any], str]) -> None:
    machine = outcome[0]["machine"]
    assert {"commit", "cpu", "cores", "system", "load_average", "threads", "device"} <= machine.keys()
    assert machine["versions"]["torch"]
    assert outcome[0]["calibration"]["identity"]["kind"] == "cpu"


def test_without_a_gpu_it_says_so() -> None:
    none = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run([sys.executable, "-P", str(RUN)], capture_output=True, text=True, check=False, env=none)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "no cuda:0 here: give --device cpu for a run without a GPU\n"
