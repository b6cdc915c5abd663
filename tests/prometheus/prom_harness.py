"""A real Prometheus on loopback, and real sidecars for it to scrape."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

ROOFLENS = [sys.executable, "-P", "-c", "import sys; from rooflens.cli import main; sys.exit(main())"]
TEXT = "text/plain; version=0.0.4"
OPENMETRICS = "application/openmetrics-text; version=1.0.0"
SCRAPE_S = 1
START_LIMIT_S = 30.0
CONFIG = """
global: {{scrape_interval: {scrape_s}s, scrape_timeout: {scrape_s}s, evaluation_interval: 1h}}
scrape_configs:
  - job_name: rooflens
    static_configs: [{{targets: {targets}}}]
"""


def missing() -> list[str]:
    """The programs of Prometheus that are not here."""
    return [name for name in ("prometheus", "promtool") if shutil.which(name) is None]


def free_port() -> int:
    """A port nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(what: str, holds: Callable[[], Any], limit_s: float = START_LIMIT_S, says: Callable[[], str] = str) -> Any:
    """The first true answer of ``holds``; AssertionError with ``says`` when there is none in time."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        if answer := holds():
            return answer
        time.sleep(0.1)
    raise AssertionError(f"{what}: not within {limit_s:g} s\n{says()}")


def fetch(url: str, accept: str = "*/*", limit_s: float = 5.0) -> tuple[int, str, str]:
    """(status, content type, text) of a page; OSError where nobody answers."""
    request = urllib.request.Request(url, headers={"Accept": accept})
    try:
        with urllib.request.urlopen(request, timeout=limit_s) as answer:
            return answer.status, answer.headers["Content-Type"] or "", answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers["Content-Type"] or "", error.read().decode()


class Child:
    """A process whose output is kept in a file; it is gone after ``stop`` or ``kill``."""

    def __init__(self, command: list[str], log: Path, env: Mapping[str, str] | None = None) -> None:
        self.log = log
        with log.open("ab") as sink:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=sink, stderr=subprocess.STDOUT,
                env={**os.environ, **(env or {})},
            )  # fmt: skip

    def said(self) -> str:
        """What it wrote, the end of it."""
        return self.log.read_text(errors="replace")[-4000:]

    def alive(self) -> bool:
        return self.process.poll() is None

    def kill(self) -> None:
        """End it without a word."""
        self.process.kill()
        self.process.wait(20)

    def stop(self, limit_s: float = 20.0) -> int:
        """End it in order; its exit status."""
        if self.alive():
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"did not end within {limit_s:g} s:\n{self.said()}") from None


class Prometheus(Child):
    """The real thing with a store in ``folder``. It begins to scrape these host:port about 5 s after its start."""

    def __init__(self, folder: Path, addresses: Sequence[str]) -> None:
        folder.mkdir(parents=True)
        self.port = free_port()
        config = folder / "prometheus.yml"
        config.write_text(CONFIG.format(scrape_s=SCRAPE_S, targets=json.dumps(list(addresses))))
        command = [
            "prometheus", f"--config.file={config}", f"--storage.tsdb.path={folder / 'store'}",
            f"--web.listen-address=127.0.0.1:{self.port}", "--log.level=debug",
        ]  # fmt: skip
        super().__init__(command, folder / "prometheus.log", {"GOMAXPROCS": "1"})
        wait_for("Prometheus is ready", self._ready, says=self.said)

    def _ready(self) -> bool:
        assert self.alive(), self.said()
        try:
            return fetch(f"http://127.0.0.1:{self.port}/-/ready")[0] == 200
        except OSError:
            return False

    def api(self, path: str, **parameters: str) -> Any:
        """The ``data`` of an answer of its HTTP API."""
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        status, _, text = fetch(url, limit_s=20)
        answer = json.loads(text)
        assert answer["status"] == "success", f"{path} {parameters}: {status} {answer.get('error')}"
        return answer["data"]

    def query(self, expression: str, at_unix_s: float | None = None) -> list[tuple[dict[str, str], float]]:
        """The (labels, value) pairs of an instant query."""
        at = {} if at_unix_s is None else {"time": repr(at_unix_s)}
        data = self.api("query", query=expression, **at)
        assert data["resultType"] == "vector", data["resultType"]
        return [(row["metric"], float(row["value"][1])) for row in data["result"]]

    def value(self, expression: str, at_unix_s: float | None = None) -> float:
        """The only value of an instant query."""
        rows = self.query(expression, at_unix_s)
        assert len(rows) == 1, f"{expression}: {rows}"
        return rows[0][1]

    def samples(self, selector: str) -> list[tuple[dict[str, str], list[tuple[float, float]]]]:
        """Every (unix_s, value) that is stored, by series."""
        data = self.api("query", query=f"{selector}[1h]")
        assert data["resultType"] == "matrix"
        return [(row["metric"], [(t, float(v)) for t, v in row["values"]]) for row in data["result"]]

    def series(self, selector: str) -> list[dict[str, str]]:
        """The labels of every series that was ever stored."""
        rows: list[dict[str, str]] = self.api("series", **{"match[]": selector, "start": "0", "end": "9999999999"})
        return rows

    def metadata(self, address: str) -> dict[str, tuple[str, str, str]]:
        """Type, help and unit by metric as the target last gave them."""
        rows = self.api("targets/metadata", match_target=f'{{instance="{address}"}}')
        return {row["metric"]: (row["type"], row["help"], row["unit"]) for row in rows}

    def _targets(self) -> dict[str, Any]:
        return {row["labels"]["instance"]: row for row in self.api("targets")["activeTargets"]}

    def last_scraped(self, address: str) -> float:
        """When the target was last scraped well, in unix seconds; 0 if not the last time."""
        row = self._targets()[address]
        return datetime.fromisoformat(row["lastScrape"]).timestamp() if row["health"] == "up" else 0.0

    def wait_up(self, *addresses: str) -> None:
        """Until each of these has been scraped well."""

        def down() -> dict[str, str]:
            rows = self._targets()
            known = {a: rows.get(a, {"health": "", "lastError": "not looked at yet"}) for a in addresses}
            return {address: row["lastError"] for address, row in known.items() if row["health"] != "up"}

        wait_for("Prometheus scrapes all", lambda: not down(), says=lambda: f"{down()}\n{self.said()}")


class Sidecar(Child):
    """`rooflens sidecar` on loopback."""

    def __init__(
        self, folder: Path, *arguments: str, port: int | None = None, env: Mapping[str, str] | None = None
    ) -> None:
        self.port = port or free_port()
        self.address = f"127.0.0.1:{self.port}"
        self.started_unix_s = time.time()
        command = [*ROOFLENS, "sidecar", *arguments, "--listen", self.address]
        super().__init__(command, folder / f"sidecar-{self.port}.log", env)

    def wait_up(self) -> None:
        """Until it has published its first page."""
        wait_for("the sidecar answers", self._answers, says=self.said)

    def _answers(self) -> bool:
        assert self.alive(), self.said()
        try:
            return fetch(f"http://{self.address}/metrics")[0] == 200
        except OSError:
            return False

    def page(self, kind: str) -> str:
        """The text of /metrics in the wanted format, one of TEXT and OPENMETRICS."""
        status, given, text = fetch(f"http://{self.address}/metrics", kind)
        assert (status, given) == (200, f"{kind}; charset=utf-8")
        return text


def fenced(page: Path, language: str) -> list[str]:
    """The fenced blocks of a Markdown page in this language."""
    text = page.read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
