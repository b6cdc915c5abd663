"""Where the real `rooflens sidecar` keeps what it learns, and what `rooflens doctor` says of it."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from cli.test_sidecar import sidecar
from made_engine import made_engine

from rooflens.analyzer.baseline import Baseline
from rooflens.analyzer.correction import Correction, Regime
from rooflens.cli import main
from rooflens.cli.doctor_checks import Machine, Standing
from rooflens.cli.doctor_state import check_state
from rooflens.cli.state_named import state_named
from rooflens.collector.state.cursors import Cursors
from rooflens.collector.state.key import StateKey
from rooflens.config import sidecar_settings
from rooflens.pipeline.memory import Learned, Memory, learned_files

KEY = StateKey("machine", "made-up", "1.0", "0123456789abcdef")
WINDOW = Learned(Correction(), Baseline().learned(1000.0, {Regime("decode", 1, 3): 0.02}, {}))


def test_a_sidecar_that_ends_leaves_what_it_learned(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    rings, state = tmp_path / "rings", tmp_path / "state"
    with made_engine(rings) as engine:
        arguments = (str(rings), "--no-counters", "--hardware", "h100-sxm5-80", "--window", "1")
        with sidecar(*arguments, ROOFLENS_STATE=str(state), ROOFLENS_KEEP_STATE="1") as run:
            assert f"state     {state}" in run.said
            run.line("made-up")
            engine.steps(401, step_s=0.1)
            engine.steps(101, step_s=0.1)
            for _ in range(600):
                if json.loads(run.get("/api/v1/engines"))["engines"][0]["regimes"]:
                    break
                time.sleep(0.1)
            assert json.loads(run.get("/healthz"))["problems"] == []
            run.process.terminate()
            assert run.process.wait(30) == 0
    (usual,) = [u for _, each in learned_files(state).everything() for u in each.value.baseline.regimes.values()]  # type: ignore[union-attr]
    assert usual.step_s == pytest.approx(0.1, rel=0.01)
    assert oct((state / "learned").stat().st_mode & 0o777) == "0o700"


def test_options_of_state(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("ROOFLENS_KEEP_STATE", "ROOFLENS_STATE", "ROOFLENS_STATE_DIR", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/h")

    def named(**given: object) -> tuple[Path | None, str]:
        return state_named(sidecar_settings(given))

    assert named() == (Path("/h/.local/state/rooflens"), "/h/.local/state/rooflens")
    assert named(state="~/s") == (Path("/h/s"), "/h/s")
    assert named(keep_state=False) == (None, "not kept (--no-state)")
    monkeypatch.setenv("ROOFLENS_STATE", "/s")
    assert named()[0] == Path("/s")
    monkeypatch.setenv("ROOFLENS_KEEP_STATE", "0")
    assert named()[0] is None
    for name in ("HOME", "ROOFLENS_STATE", "ROOFLENS_KEEP_STATE"):
        monkeypatch.delenv(name)
    assert named() == (None, "not kept: no HOME to keep state below: set ROOFLENS_STATE to a folder")
    assert main(["sidecar", "--no-state", "--state", "/s"]) == 2
    assert "--no-state and --state contradict each other" in capsys.readouterr().err


def test_doctor_says_where_state_is_and_how_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOFLENS_STATE", str(tmp_path))

    def said() -> list[tuple[Standing, str, str | None]]:
        return [(check.standing, check.found, check.remedy) for check in check_state(Machine(tmp_path))]

    assert said() == [(Standing.NOTE, f"{tmp_path}: nothing learned yet", None)]
    memory, cursors = Memory(tmp_path), Cursors(tmp_path)
    for _ in range(3):
        memory.add(KEY, WINDOW)
    memory.close()
    cursors.set("a ring", 7)
    cursors.flush()
    ((standing, found, _),) = said()
    assert standing is Standing.OK
    assert found.startswith(f"{tmp_path}: 1 configuration (made-up 1.0), 3 windows in ")
    assert found.endswith(" kB; cursors of 1 ring")
    path = learned_files(tmp_path).file(KEY).path
    path.write_bytes(path.read_bytes()[:-9])
    standing, found, remedy = said()[1]
    assert (standing, found) == (Standing.NOTE, f"{path} is not used: no JSON in line 1")
    assert remedy == "what is written next sets it aside and begins anew"
    memory.add(KEY, WINDOW)
    memory.close()
    assert said()[1][1:] == (f"1 damaged file set aside in {path.parent}", "look at them, and remove them")
    path.parent.chmod(0o777)
    assert said() == [
        (
            Standing.NOTE,
            f"state folder {path.parent}: other users can write to it",
            "give --state a folder of your own, or --no-state",
        )
    ]
    path.parent.chmod(0o700)
    for name in ("ROOFLENS_STATE", "ROOFLENS_STATE_DIR", "XDG_STATE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    assert said() == [(Standing.NOTE, "no HOME to keep state below: set ROOFLENS_STATE to a folder", None)]
