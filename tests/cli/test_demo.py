from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rooflens.adapters.embedded.blocks import BlockPool
from rooflens.adapters.embedded.scheduler import Request, Scheduler
from rooflens.cli import main
from rooflens.cli.demo import BLOCK_TOKENS, OUTPUTS, longest_request_blocks
from rooflens.cli.embedded import carry_out
from rooflens.records import RooflensError

QUICK = ("demo", "--small", "--seconds", "3", "--threads", "1", "--json")


def demo(folder: Path, *words: str) -> dict[str, Any]:
    environment = {**os.environ, "ROOFLENS_DIR": str(folder / "rings")}
    command = [sys.executable, "-c", "import sys; from rooflens.cli import main; sys.exit(main())", *QUICK, *words]
    run = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert run.returncode == 0, run.stderr
    assert run.stderr == ""
    found = json.loads(run.stdout)
    assert isinstance(found, dict)
    return found


def test_the_demo_records_and_explains_itself(tmp_path: Path) -> None:
    found = demo(tmp_path, "--kv-blocks", "50", "--batch", "4")
    phases = {phase["name"]: phase for phase in found["phases"]}
    assert {"decode", "mixed", "between steps"} <= set(phases)
    assert phases["decode"]["floor"]["steps"] == phases["decode"]["steps"]
    assert found["ending"] == "ended"
    assert (found["lost_steps"], found["torn_steps"], found["doubted_frames"], found["hook_failures"]) == (0, 0, 0, 0)
    assert found["totals"]["preempted"] > 0
    assert found["totals"]["recomputed_tokens"] > 0
    assert found["spreads"]["requests"]["max"] == 4
    assert found["hardware"]["id"] == "this-cpu"
    assert found["why_smaller"] == "a small model was asked for"
    assert Path(found["ring"]).exists()
    assert Path(found["ring"]).parent == tmp_path / "rings" / "demo"
    assert (tmp_path / "rings" / "demo").stat().st_mode & 0o777 == 0o700
    assert set(found["events"]) == {"load_single", "load_batch", "load_long_prompts", "load_ended"}


def test_a_demo_that_may_not_record_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOFLENS_DISABLE", "1")
    with pytest.raises(RooflensError, match="ROOFLENS_DISABLE is set"):
        carry_out({"small": True, "phases": []}, 1, print, print)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--seconds", "0"), "--seconds 0 is not from 3 to 3,600"),
        (("--seconds", "nan"), "--seconds nan is not from"),
        (("--batch", "0"), "--batch 0 is not from 1 to"),
        (("--batch", "-3"), "--batch -3 is not from 1 to"),
        (("--threads", "0"), "--threads 0 is not from 1 to"),
        (("--prompt", "0"), "--prompt 0 is not from 1 to"),
        (("--host-delay", "-1"), "--host-delay -1 is not from 0 to"),
        (("--stall", "-1"), "--stall -1 is not from 0 to"),
        (("--stall-at", "0"), "--stall-at 0 is not from 1 to"),
        (("--neighbours", "-1"), "--neighbours -1 is not from 0 to"),
        (("--kv-blocks", "0"), "--kv-blocks 0 is not from 1 to"),
        (("--kv-blocks", "37"), "--kv-blocks 37 is too few: the longest request never fits, 38 blocks are needed"),
    ],
)
def test_what_cannot_be_is_one_line_before_anything_is_measured(
    words: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def measured(*_: object) -> None:
        raise AssertionError("measured first")

    monkeypatch.setattr("rooflens.cli.demo.best_threads", measured)
    monkeypatch.setattr("rooflens.collector.cpu_roof.measure_cpu", measured)
    assert main(["demo", *words]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.count("\n") == 1
    assert told in output.err


def test_the_blocks_said_to_be_needed_are_just_enough() -> None:
    pool = BlockPool(longest_request_blocks(512), BLOCK_TOKENS)
    Scheduler(pool, 1, 128).add(Request([0] * 512, OUTPUTS[1]))
    with pytest.raises(RooflensError, match="never fits"):
        Scheduler(BlockPool(pool.blocks - 1, BLOCK_TOKENS), 1, 128).add(Request([0] * 512, OUTPUTS[1]))
