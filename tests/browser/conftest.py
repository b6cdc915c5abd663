"""One Chromium for all tests of a run, and pages of it that keep what they complained of and asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from browser import chromium

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Chromium, started once."""
    if chromium.path() is None:
        pytest.skip("needs Chromium (apt install chromium fonts-dejavu-core)")
    with chromium.started() as found:
        yield found


@pytest.fixture
def watched(browser: Browser) -> Iterator[Callable[..., chromium.Watched]]:
    """Opens a file: ``watched(path, color_scheme="dark")``; more words are those of playwright's new_context."""
    opened: list[chromium.Watched] = []

    def open_(path: Path, **words: object) -> chromium.Watched:
        opened.append(chromium.watched(browser, path, **words))
        return opened[-1]

    yield open_
    for each in opened:
        each.page.context.close()
