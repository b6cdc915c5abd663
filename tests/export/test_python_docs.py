"""The snippets of docs/python.md run, in order, beside the recorded rings."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from recorded_rings import HARDWARE, unpacked

import rooflens
from rooflens.api import Trace

PAGE = Path(__file__).resolve().parents[2] / "docs" / "python.md"


def test_every_snippet_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("vllm-a", "vllm-b"):
        unpacked(name, tmp_path)
    shutil.copy(HARDWARE, tmp_path)
    monkeypatch.chdir(tmp_path)
    snippets = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert len(snippets) >= 6
    names: dict[str, object] = {}
    for snippet in snippets:
        exec(compile(snippet, str(PAGE), "exec"), names)
    said = capsys.readouterr().out
    assert said.startswith("371 steps of ['m/0@host-a']\n")
    assert "no steps in the period" in said


def test_every_public_name_is_described() -> None:
    text = PAGE.read_text()
    public = [name for name in vars(Trace) if not name.startswith("_")]
    assert [name for name in public if f"`Trace.{name}" not in text and f", `Trace.{name}`" not in text] == []
    assert all(f"`rooflens.{name}" in text for name in ("load", "RooflensError"))
    assert rooflens.load.__doc__
