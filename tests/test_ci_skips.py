"""A skip in CI is a failure, tried on a small suite of its own that runs under the real conftest."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SUITE = """
import pytest

def test_runs():
    pass

@pytest.mark.skip(reason="not today")
def test_marked():
    pass

def test_inside():
    pytest.skip("no tool")

@pytest.mark.gpu
def test_needs_gpu():
    pytest.skip("no GPU")

@pytest.mark.xfail(reason="known")
def test_expected():
    raise AssertionError
"""
MODULE = "import pytest\n\nmissing = pytest.importorskip('no_such_module_anywhere')\n"


def outcomes(folder: Path, ci: str | None) -> tuple[int, dict[str, int], str]:
    """Exit status, counts by outcome and the output of the small suite."""
    shutil.copy(Path(__file__).with_name("conftest.py"), folder)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers = gpu: needs a GPU\n")
    env = {key: value for key, value in os.environ.items() if key != "CI" and not key.startswith("PYTEST_")}
    if ci is not None:
        env["CI"] = ci
    command = [sys.executable, "-P", "-m", "pytest", "-p", "no:cacheprovider", "--rootdir", str(folder), str(folder)]
    run = subprocess.run(command, capture_output=True, text=True, env=env, cwd=folder, check=False)
    counts = {word: int(n) for n, word in re.findall(r"(\d+) ([a-z]+)", run.stdout.splitlines()[-1])}
    return run.returncode, counts, run.stdout


def test_a_skip_fails_in_ci_unless_it_needs_a_gpu(tmp_path: Path) -> None:
    (tmp_path / "test_small.py").write_text(SUITE)
    status, counts, text = outcomes(tmp_path, "true")
    assert status == 1
    assert counts["passed"] == 1
    assert counts["skipped"] == 1
    assert counts["xfailed"] == 1
    assert counts.get("failed", 0) + counts.get("errors", counts.get("error", 0)) == 2
    assert "only gpu tests may be: Skipped: not today" in text
    assert "only gpu tests may be: Skipped: no tool" in text


def test_a_skipped_module_fails_in_ci(tmp_path: Path) -> None:
    (tmp_path / "test_module.py").write_text(MODULE)
    status, _, text = outcomes(tmp_path, "true")
    assert status not in (0, 5)
    assert "whole module skipped in CI" in text


@pytest.mark.parametrize("ci", [None, "", "false"])
def test_elsewhere_a_skip_is_a_skip(tmp_path: Path, ci: str | None) -> None:
    (tmp_path / "test_small.py").write_text(SUITE)
    status, counts, _ = outcomes(tmp_path, ci)
    assert status == 0
    assert counts["skipped"] == 3


def test_what_needs_an_engine_is_where_it_is_looked_for() -> None:
    """The engine's own environment lacks what other tests import, so only these places are collected there."""
    tests = Path(__file__).parent
    places = re.search(r"^ENGINE_TESTS := (.*)$", (tests.parent / "Makefile").read_text(), re.MULTILINE)
    assert places is not None
    wanted = [tests.parent / place for place in places[1].split()]
    mark = re.compile(r"^(?:pytestmark = |@)pytest\.mark\.engine\b", re.MULTILINE)
    marked = [file for file in tests.rglob("test_*.py") if mark.search(file.read_text(encoding="utf-8"))]
    assert marked
    assert [file for file in marked if not any(file.is_relative_to(place) for place in wanted)] == []
