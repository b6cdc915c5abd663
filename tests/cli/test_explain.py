"""Every code that a finding can have is explained without a network, and as the package's own texts have it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from rooflens.cli import main
from rooflens.cli.explain import text
from rooflens.findings import FINDINGS, Code


@pytest.mark.parametrize("code", Code)
def test_all_texts_of_a_code_fit_and_are_whole(code: Code) -> None:
    entry = FINDINGS[code]
    told = text(entry, 80)
    assert all(len(line) <= 80 for line in told.splitlines() if " " in line.strip())
    whole = " ".join(told.split())
    for part in (entry.title, entry.meaning, entry.decided, entry.remedy, entry.wrong_when, *entry.flags.values()):
        assert " ".join(part.split()) in whole


def test_json_has_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "KV_pressure", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    entry = FINDINGS[Code.KV_PRESSURE]
    assert (found["code"], found["meaning"], found["flags"]) == ("kv_pressure", entry.meaning, dict(entry.flags))
    assert main(["explain", "--json"]) == 0
    assert [one["code"] for one in json.loads(capsys.readouterr().out)] == list(Code)


def test_without_a_code_all_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(Code)
    assert lines[0].endswith(FINDINGS[Code.ENGINE_STALLED].title)


def test_an_unknown_code_is_one_line_with_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "kv_presure"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "kv_pressure" in error


def test_it_needs_the_standard_library_alone() -> None:
    code = (
        "import sys; sys.modules['numpy'] = None; from rooflens.cli import main; sys.exit(main(['explain', 'drift']))"
    )
    run = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr) == (0, "")
