from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rooflens.cli import main
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
    assert set(found["events"]) == {"load_single", "load_batch", "load_long_prompts", "load_ended"}


def test_a_demo_that_may_not_record_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOFLENS_DISABLE", "1")
    with pytest.raises(RooflensError, match="ROOFLENS_DISABLE is set"):
        carry_out({"small": True, "phases": []}, 1, print, print)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--seconds", "0"), "--seconds 0 is not from"),
        (("--kv-blocks", "1", "--small", "--threads", "1", "--seconds", "3"), "never fits 1 KV blocks"),
    ],
)
def test_what_cannot_be_is_one_line(
    words: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setenv("ROOFLENS_DIR", str(tmp_path / "rings"))
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setattr("rooflens.cli.demo.ROOF_S", 0.5)
    assert main(["demo", *words]) == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert told in error
