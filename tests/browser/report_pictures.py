"""Draws the pictures of docs/report.md: the report of the recorded rings, and of a made fleet of a hundred engines.

PYTHONPATH=tests python tests/browser/report_pictures.py docs/img
"""

from __future__ import annotations

import contextlib
import io
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).resolve().parents[2]
FLEET = ["--engines", "100", "--steps", "1000000"]

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


def reports(folder: Path) -> tuple[Path, Path]:
    """(the report of the recorded trace, that of the fleet)."""
    from recorded_trace import made_trace

    from rooflens.cli import main

    small, fleet = folder / "report.html", folder / "fleet.html"
    subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / "made_fleet.py"), str(folder / "fleet"), *FLEET], check=True
    )
    with contextlib.redirect_stdout(io.StringIO()):
        words = ["--price", "2.50", "--set", "weights=fp8", "--html"]
        assert main(["analyze", str(made_trace(folder / "recorded")), *words, str(small)]) == 0
        assert main(["analyze", str(folder / "fleet"), *words, str(fleet)]) == 0
    return small, fleet


def clipped(page: Page, first: str, last: str, picture: Path) -> None:
    """From the top of one element to the bottom of another."""
    page.evaluate("window.scrollTo(0, 0)")
    top, bottom = (page.locator(each).first.bounding_box() for each in (first, last))
    assert top is not None
    assert bottom is not None
    clip: Any = {"x": 0, "y": top["y"] - 10, "width": 1240, "height": bottom["y"] + bottom["height"] - top["y"] + 20}
    page.screenshot(path=str(picture), full_page=True, clip=clip)


def opened(browser: Browser, file: Path, scheme: Any) -> Page:
    """A page of the width of the pictures."""
    page = browser.new_context(viewport={"width": 1240, "height": 900}, color_scheme=scheme).new_page()
    page.goto(file.as_uri())
    return page


def main(arguments: list[str]) -> None:
    """Draw all of them."""
    sys.path.insert(0, str(ROOT / "tests"))
    from browser import chromium

    target = Path(arguments[0])
    with tempfile.TemporaryDirectory() as folder, chromium.started() as browser:
        small, fleet = reports(Path(folder))
        page = opened(browser, small, "light")
        clipped(page, "h1", "#line-0 .panels", target / "report-light.png")
        clipped(page, "#time-0", "#worst-0", target / "report-tables.png")
        clipped(page, "#roofline-0", "#roofline-0", target / "report-roofline.png")
        page = opened(browser, fleet, "dark")
        page.locator("#changes-0 tbody a").first.click()
        box = page.locator(".chart .u-over").first.bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + box["width"] * 0.45, box["y"] + 40)
        page.wait_for_timeout(300)  # its canvas is drawn a frame later
        clipped(page, "#line-0", "#line-0", target / "report-fleet-dark.png")


if __name__ == "__main__":
    main(sys.argv[1:])
