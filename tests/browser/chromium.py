"""The Chromium of this machine under playwright, and what a page in it complained of and asked for."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

NAMES = ("chromium", "chromium-browser", "google-chrome")
LIMIT_MS = 10_000
SIZE = {"width": 1240, "height": 900}
# A page's own record of what its policy forbade.
VIOLATIONS = """window.violations = [];
document.addEventListener("securitypolicyviolation", (event) => window.violations.push(event.violatedDirective));"""


class Watched(NamedTuple):
    """A page, what it wrote on its console or threw, and the addresses that it asked for."""

    page: Page
    problems: list[str]
    requests: list[str]

    def complaints(self) -> list[str]:
        """All that went wrong so far."""
        return [*self.problems, *self.requests, *self.page.evaluate("window.violations")]


def path() -> str | None:
    """Chromium, where it is installed."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


@contextmanager
def started() -> Iterator[Browser]:
    """A headless Chromium."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path(), args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


def watched(browser: Browser, file: Path, **words: Any) -> Watched:
    """Open ``file`` by its address on disk."""
    page = browser.new_context(**{"viewport": SIZE, **words}).new_page()
    page.set_default_timeout(LIMIT_MS)
    address, problems, requests = file.resolve().as_uri(), list[str](), list[str]()
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda line: problems.append(line.text) if line.type in ("error", "warning") else None)
    page.on("request", lambda request: requests.append(request.url) if request.url.split("#")[0] != address else None)
    if words.get("java_script_enabled", True):
        page.add_init_script(VIOLATIONS)
    page.goto(address)
    return Watched(page, problems, requests)
