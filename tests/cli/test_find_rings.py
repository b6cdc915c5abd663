"""What is said where nothing was recorded: a running engine tells why."""

from __future__ import annotations

import logging
import re
import sys
from pathlib import Path

import pytest

from rooflens.adapters.recorder import Recorder
from rooflens.adapters.vllm import register
from rooflens.cli import analyze, main
from rooflens.cli.find_rings import next_step, not_recorded, rings_at
from rooflens.records import RooflensError
from rooflens.ring_folder import demo_folder

SERVER = "python -m vllm.entrypoints.openai.api_server --model m"
TITLED = "VLLM::EngineCore" + " " * 40  # setproctitle fills what was the environment with zeros


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ROOFLENS_DISABLE", "ROOFLENS_DIR", "VLLM_PLUGINS"):
        monkeypatch.delenv(name, raising=False)


def process(root: Path, pid: int, command: str, environment: str, parent: int = 1) -> None:
    """A recorded process, as /proc shows it."""
    place = root / "proc" / str(pid)
    place.mkdir(parents=True)
    (place / "cmdline").write_bytes(command.replace(" ", "\0").encode())
    (place / "environ").write_bytes(environment.replace(" ", "\0").encode())
    (place / "stat").write_text(f"{pid} (a (b) c) S {parent} {pid} 0 -1")


@pytest.mark.parametrize(
    ("command", "environment", "words"),
    [
        (SERVER, "VLLM_PLUGINS=lora_resolver", "leaves rooflens out"),
        ("python /x/site-packages/vllm/entrypoints/openai/api_server.py", "VLLM_PLUGINS=a", "leaves rooflens out"),
        ("/usr/bin/vllm serve model", "ROOFLENS_DISABLE=1", "was started with ROOFLENS_DISABLE"),
        (SERVER, "ROOFLENS_DIR=/elsewhere", "writes to /elsewhere"),
        (SERVER, "VLLM_PLUGINS=rooflens", "vLLM (process 41) runs but records nothing here: name its metrics page"),
        (TITLED, " " * 90, "vLLM (process 41) runs but records nothing here: name its metrics page"),
        ("vim vllm.txt", "VLLM_PLUGINS=none", "install rooflens into its environment and start"),
        ("python /usr/bin/vllm chat", "VLLM_PLUGINS=none", "install rooflens into its environment and start"),
    ],
)
def test_a_running_engine_tells_why_it_records_nothing(
    tmp_path: Path, command: str, environment: str, words: str
) -> None:
    process(tmp_path, 41, command, environment)
    assert words in next_step(tmp_path)


def test_the_ways_to_begin_are_those_of_every_engine(tmp_path: Path) -> None:
    told = next_step(tmp_path)
    ways = (
        "of a server that is up",
        "top --url http://HOST:PORT/metrics",
        "sidecar --log FILE",
        "vLLM, SGLang install rooflens",
    )
    assert all(way in told for way in ways), told


def test_what_a_title_hides_is_read_from_the_server_above(tmp_path: Path) -> None:
    process(tmp_path, 1, "init", "VLLM_PLUGINS=not_its")
    process(tmp_path, 70, "sh -c serve", "ROOFLENS_DISABLE=1")
    process(tmp_path, 71, TITLED, " " * 90, parent=70)
    assert "(process 71) was started with ROOFLENS_DISABLE" in next_step(tmp_path)
    orphan = tmp_path / "orphan"
    process(orphan, 1, "init", "VLLM_PLUGINS=not_its")
    process(orphan, 71, TITLED, " " * 90)
    assert "runs but records nothing" in next_step(orphan)
    container = tmp_path / "container"
    process(container, 1, SERVER, "VLLM_PLUGINS=other", parent=0)
    process(container, 71, TITLED, " " * 90)
    assert "leaves rooflens out" in next_step(container)


def test_an_engine_that_writes_elsewhere_does_not_hide_one_that_is_disabled(tmp_path: Path) -> None:
    process(tmp_path, 40, SERVER, "ROOFLENS_DIR=/elsewhere")
    process(tmp_path, 50, SERVER, "ROOFLENS_DISABLE=1")
    assert "(process 50) was started with ROOFLENS_DISABLE" in next_step(tmp_path)


def test_a_folder_that_was_looked_in_is_not_named_again(tmp_path: Path) -> None:
    process(tmp_path, 40, SERVER, f"ROOFLENS_DIR={tmp_path}")
    assert "writes to" in next_step(tmp_path)
    tmp_path.chmod(0o700)
    with pytest.raises(RooflensError, match="runs but records nothing here"):
        rings_at([str(tmp_path)], tmp_path)


def test_of_an_engine_that_records_nothing_all_variables_and_the_log_line_are_named(tmp_path: Path) -> None:
    process(tmp_path, 41, SERVER, "VLLM_PLUGINS=rooflens")
    told = next_step(tmp_path)
    for word in ("VLLM_PLUGINS", "ROOFLENS_DISABLE", "ROOFLENS_DIR", "rooflens records every step of this engine in"):
        assert word in told


def test_the_ways_to_an_engine_are_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOFLENS_DIR", str(tmp_path / "rings"))  # where no demo has been
    told = next_step(tmp_path)
    ways = ("rooflens demo", "rooflens top --url", "install rooflens")
    assert [told.index(way) for way in ways] == sorted(told.index(way) for way in ways)
    assert len(told) < 240  # one line that is read, not skipped
    process(tmp_path, 41, SERVER, f"VLLM_PLUGINS=rooflens ROOFLENS_DIR={tmp_path}/rings")
    told = next_step(tmp_path)
    assert told.index("rooflens top --url") < told.index("install rooflens")


def test_rings_of_demos_are_mentioned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOFLENS_DIR", str(tmp_path / "rings"))
    assert "demos have" not in next_step(tmp_path)
    with Recorder("demo", folder=demo_folder(), strict=True):
        assert next_step(tmp_path).startswith(f"a demo runs: rooflens top {tmp_path}/rings/demo; else ")
    assert next_step(tmp_path).startswith(f"demos have left rings: rooflens analyze {tmp_path}/rings/demo; else ")


def test_the_log_line_is_the_one_that_the_hook_writes() -> None:
    from rooflens.adapters.vllm import patch
    from rooflens.cli.find_rings import LOG_LINE

    assert re.escape(LOG_LINE.removesuffix("...")) in re.escape(Path(patch.__file__).read_text())


def test_disabled_here_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOFLENS_DISABLE", "1")
    assert "ROOFLENS_DISABLE is set here" in next_step(tmp_path)


def test_dead_rings_do_not_hide_an_engine_that_records_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "rings"
    with Recorder("old", folder=folder, strict=True) as old, old.step(contexts=[1]):
        pass
    assert old.path is not None
    assert not_recorded([old.path], tmp_path) is None
    process(tmp_path, 41, SERVER, "VLLM_PLUGINS=other")
    monkeypatch.setattr(analyze, "not_recorded", lambda rings: not_recorded(rings, tmp_path))
    assert main(["analyze", str(folder)]) == 0
    assert "none of these rings is live: vLLM (process 41) was started with VLLM_PLUGINS" in capsys.readouterr().err
    assert main(["analyze", str(old.path)]) == 0
    assert capsys.readouterr().err == ""
    with Recorder("new", folder=folder, strict=True) as new, new.step(contexts=[1]):
        assert main(["analyze", str(folder)]) == 0
    assert capsys.readouterr().err == ""


def test_a_disabled_hook_says_so_in_one_line(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setenv("ROOFLENS_DISABLE", "1")
    before = set(sys.modules)
    with caplog.at_level(logging.INFO, "vllm.rooflens"):
        register()
    assert [(r.name, r.levelno, r.getMessage()) for r in caplog.records] == [
        ("vllm.rooflens", logging.INFO, "rooflens does not record this engine: ROOFLENS_DISABLE is set")
    ]
    assert not [name for name in set(sys.modules) - before if name.startswith("vllm")]
