"""The examples of docs/analyze.md are run: each line shown is printed, in that order; ... stands for what is not."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from recorded_trace import made_trace

from rooflens.cli import main

PAGE = Path(__file__).resolve().parents[2] / "docs" / "analyze.md"
CUT = "..."
EXAMPLES = re.findall(r"^```console\n\$ rooflens (.*?)\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_trace(tmp_path_factory.mktemp("docs")).parent


def test_there_are_examples() -> None:
    assert len(EXAMPLES) == PAGE.read_text(encoding="utf-8").count("```console") > 3


@pytest.mark.parametrize(("command", "shown"), EXAMPLES)
def test_an_example_prints_what_it_shows(
    command: str, shown: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    assert main(shlex.split(command)) == 0
    printed = [line for line in capsys.readouterr().out.splitlines() if line]
    at, cut = 0, False
    for line in shown.splitlines():
        if line == CUT:
            cut = True
            continue
        assert line in printed[at:], line
        there = printed.index(line, at)
        assert there == at or cut, f"{printed[at]!r} is left out before {line!r} without {CUT}"
        at, cut = there + 1, False
    assert at == len(printed) or cut, f"{printed[at]!r} is left out without {CUT}"
