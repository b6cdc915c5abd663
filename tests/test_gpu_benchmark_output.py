"""The GPU benchmark says before it measures that its result cannot be written."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

RUN = Path(__file__).resolve().parents[1] / "benchmarks/gpu/run.py"


@pytest.mark.parametrize(
    ("name", "expected"), [("folder", "Is a directory"), ("file/x.json", "File exists"), ("x" * 300, "name too long")]
)
def test_a_place_that_cannot_be_written_is_one_line_at_once(tmp_path: Path, name: str, expected: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("")
    words = [sys.executable, str(RUN), "--device", "cpu", "--json", name]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"run.py: error: --json {name}: ")
    assert expected in last
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"]
