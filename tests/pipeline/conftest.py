"""What the tests of the live pipeline share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pipeline.made_pages import Site

from rooflens.adapters.scrape.page_source import MetricsPage
from rooflens.analyzer.hardware import find_hardware
from rooflens.collector.windows import WindowSettings
from rooflens.pipeline.watch import Watch
from rooflens.pipeline.watch_settings import WatchSettings

SHORT = WindowSettings(window_s=0.5, least_steps=20, most_window_s=30.0, most_steps=5000)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tmp_path.chmod(0o700)
    return tmp_path


@pytest.fixture
def watch(folder: Path) -> Iterator[Callable[..., Watch]]:
    """Makes a Watch over the folder, with short windows and a known device unless told otherwise."""
    made: list[Watch] = []

    def make(**settings: Any) -> Watch:
        usual = {"folders": (folder,), "hardware": find_hardware("h100-sxm5-80"), "windows": SHORT}
        made.append(Watch(WatchSettings(**{**usual, **settings})))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    made = Site()
    monkeypatch.setattr(MetricsPage, "start", lambda page: made.pages.append(page))
    return made
