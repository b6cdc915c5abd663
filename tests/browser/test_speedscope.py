"""A Chrome trace of a recorded run, opened in the real speedscope in the real Chromium."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from browser import speedscope
from recorded_rings import HARDWARE, unpacked

from rooflens.cli import main

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.mark.skipif(speedscope.npm() is None, reason="needs npm, which fetches speedscope (apt install npm)")
def test_speedscope_shows_the_steps_of_the_engine_and_complains_of_nothing(browser: Browser, tmp_path: Path) -> None:
    trace = tmp_path / "trace.json.gz"
    ring = str(unpacked("vllm-a", tmp_path))
    assert main(["export", "trace", ring, "--hardware", str(HARDWARE), "-o", str(trace)]) == 0
    shown = speedscope.opened(browser, trace)
    assert shown.problems == []
    assert "m/0@host-a (vllm, 0.32.0, two-core-cpu)" in shown.text  # the process
    assert "steps" in shown.text  # the thread that it shows first of
    assert "(1/2)" in shown.text  # two: steps and host
