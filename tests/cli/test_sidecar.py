"""The real `rooflens sidecar`: watches, serves, says what happens, ends in order; wrong settings are one line."""

from __future__ import annotations

import json
import os
import queue
import re
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cli.pages import served
from cli.test_find_servers import HEALTH
from made_engine import made_engine

from rooflens.adapters.recorder import Recorder
from rooflens.cli import main
from rooflens.cli.announce import Announcer, fired
from rooflens.config import host_and_port, sidecar_settings
from rooflens.findings import Code, Finding, Price, Severity, Status
from rooflens.records import RooflensError
from rooflens.ring_folder import demo_folder

PATIENCE_S = 60.0
ROOFLENS = [sys.executable, "-P", "-c", "import sys; from rooflens.cli import main; sys.exit(main())"]


class Running:
    """A sidecar's process, its lines as they come, and its address."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.said: list[str] = []
        self._lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()
        self.address = self.line(r"metrics +(http://\S+)/metrics")

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said.append(line.strip())
            self._lines.put(line)
        self._lines.put("")

    def line(self, pattern: str) -> str:
        """Waits for a line with this pattern; its first group, or all of it."""
        seen = []
        while line := self._lines.get(timeout=PATIENCE_S):
            seen.append(line)
            if found := re.search(pattern, line):
                return found[1] if found.groups() else line.strip()
        raise AssertionError(f"no {pattern!r} in {seen}")

    def get(self, path: str) -> str:
        with urllib.request.urlopen(self.address + path, timeout=PATIENCE_S) as answer:
            text: str = answer.read().decode()
            return text

    def sample(self, series: str) -> float | None:
        """The value of a series, None where it is not there."""
        found = re.search(rf"^{re.escape(series)} (\S+)$", self.get("/metrics"), re.MULTILINE)
        return float(found[1]) if found else None


@contextmanager
def sidecar(*arguments: str, **environment: str) -> Iterator[Running]:
    command = [*ROOFLENS, "sidecar", "--listen", "127.0.0.1:0", *arguments]
    env = {**os.environ, **environment}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env, start_new_session=True
    ) as process:
        try:
            yield Running(process)
        finally:
            process.kill()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tmp_path.chmod(0o700)
    return tmp_path


STEPS = 'rooflens_steps_total{model_name="llama",engine="0",kind="decode"}'


def wait_for(run: Running, series: str, wanted: float) -> None:
    """Until a turn of the loop has seen it; a turn is a second."""
    pause = threading.Event()
    for _ in range(600):
        if run.sample(series) == wanted:
            return
        pause.wait(0.1)
    raise AssertionError(f"{series} is {run.sample(series)}, not {wanted}")


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGINT])
def test_it_watches_serves_and_ends_in_order(folder: Path, ending: signal.Signals) -> None:
    with made_engine(folder) as engine:
        engine.steps(300)
        with sidecar(str(folder), ROOFLENS_HARDWARE="h100-sxm5-80") as run:
            assert run.line("live").endswith("llama/0  live: made-up, read from its ring")
            engine.steps(25)
            wait_for(run, STEPS, 25)
            (shown,) = json.loads(run.get("/api/v1/engines"))["engines"]
            assert (shown["facts"]["engine"], shown["hardware"]) == ("made-up", "h100-sxm5-80")
            assert "ok" in run.get("/healthz")
            engine.end()
            assert run.line("ended").endswith("llama/0  ended: made-up, read from its ring")
            assert run.sample('rooflens_engine_up{model_name="llama",engine="0"}') == 0
            run.process.send_signal(ending)
            assert run.process.wait(PATIENCE_S) == 0
            assert run.process.stderr is not None
            assert run.process.stderr.read() == ""


def test_after_its_own_restart_nothing_is_counted_twice(folder: Path) -> None:
    with made_engine(folder) as engine:
        engine.steps(10)
        with sidecar(str(folder)) as first, sidecar(str(folder)) as beside:
            for run in (first, beside):
                run.line("live")
            engine.steps(5)
            for run in (first, beside):
                wait_for(run, STEPS, 5)
        with sidecar(str(folder)) as second:
            assert "no floor: the hardware is not known" in second.line("live")
            assert second.sample(STEPS) == 0
            engine.steps(3)
            wait_for(second, STEPS, 3)


def test_a_port_in_use_is_one_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["sidecar", str(folder), "--listen", f"127.0.0.1:{port}", "--hardware", "nosuch"]) == 2
        assert "unknown hardware 'nosuch'" in capsys.readouterr().err  # what was asked for before what is there
        assert main(["sidecar", str(folder), "--listen", f"127.0.0.1:{port}", "--hardware", "this-cpu"]) == 2
    error = capsys.readouterr().err  # at once: nothing is measured before
    assert error.count("\n") == 1
    assert f"port {port} of 127.0.0.1 is in use" in error


def test_where_a_rooflens_serves_already_it_says_so(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROOFLENS_DIR", str(folder))
    with served({"/healthz": HEALTH}) as port, Recorder("demo", folder=demo_folder(), strict=True):
        assert main(["sidecar", str(folder), "--listen", f"127.0.0.1:{port}"]) == 2
    error, url = capsys.readouterr().err, f"http://127.0.0.1:{port}"
    assert error.count("\n") == 1
    assert f"a rooflens serves at {url} already (a demo runs, its rings are in {folder / 'demo'})" in error
    assert f"'rooflens top --url {url}', or give --listen another port" in error


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--listen", "9980"], "--listen 9980: not HOST:PORT, such as 127.0.0.1:9980 or [::1]:9980"),
        (["--window", "0"], "--window 0.0: it should be greater than or equal to 1"),
        (["--scrape-period", "nan"], "--scrape-period nan: it should be"),
        (["--hardware", "h1000"], "unknown hardware 'h1000'"),
        (["--model", "lama"], "unknown model 'lama'"),
        (["--scrape", "ftp://there"], "only http and https pages are read, not ftp"),
        (["--scrape", "http://[::1/metrics"], "this is not an address of a page: write it as http://HOST:PORT/metrics"),
        (["--no-rings", "folder"], "--no-rings and a FOLDER contradict each other: leave one of them out"),
        (["--counter-period", "0.1"], "--counter-period 0.1: it should be greater than or equal to 0.25"),
        (["--dcgm-period", "inf"], "--dcgm-period inf: it should be"),
        (["--dcgm", "http://a b"], "--dcgm: a value has a space in it: give --dcgm once for each"),
        (["--scrape", "http://a http://b"], "--scrape: a value has a space in it: give --scrape once for each"),
        (["--allow-host", "a b"], "--allow-host: a value has a space in it"),
        (["--dcgm", "ftp://there"], "only http and https pages are read, not ftp"),
        (
            ["--no-counters", "--dcgm", "a:9400"],
            "--no-counters and --dcgm contradict each other: leave one of them out",
        ),
    ],
)
def test_a_wrong_setting_is_one_line(arguments: list[str], line: str, capsys: pytest.CaptureFixture[str]) -> None:
    given = arguments if "--listen" in arguments else [*arguments, "--listen", "127.0.0.1:0"]
    assert main(["sidecar", *given]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("rooflens: ")
    assert line in captured.err
    assert captured.err.count("\n") == 1


def test_signals_are_as_before_afterwards() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    main(["sidecar", "--listen", "nowhere"])
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before


def test_flags_beat_variables_and_variables_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOFLENS_SCRAPE", "http://a:1 http://b:2")
    monkeypatch.setenv("ROOFLENS_WINDOW_S", "30")
    monkeypatch.setenv("ROOFLENS_RINGS", "0")
    monkeypatch.setenv("ROOFLENS_HARDWARE", "")
    settings = sidecar_settings({"window_s": 20.0, "scrape": None, "listen": None})
    assert (settings.window_s, settings.rings, settings.hardware) == (20.0, False, None)
    assert settings.scrape_urls == ("http://a:1", "http://b:2")
    assert settings.listen == "127.0.0.1:9980"
    assert (settings.counters, settings.counter_period_s, settings.dcgm_urls, settings.dcgm_period_s) == (
        True,
        1,
        (),
        30,
    )
    monkeypatch.setenv("ROOFLENS_COUNTERS", "0")
    monkeypatch.setenv("ROOFLENS_DCGM", "http://a:9400 http://b:9400 http://a:9400")
    settings = sidecar_settings({"counter_period_s": 0.25})
    assert (settings.counters, settings.counter_period_s) == (False, 0.25)
    assert settings.dcgm_urls == ("http://a:9400", "http://b:9400")
    monkeypatch.setenv("ROOFLENS_WINDOW_S", "soon")
    with pytest.raises(RooflensError, match=r"^ROOFLENS_WINDOW_S soon: it should be a valid number"):
        sidecar_settings({})


@pytest.mark.parametrize(
    ("text", "parts"), [("[::1]:80", ("::1", 80)), ("0.0.0.0:0", ("0.0.0.0", 0)), (" a:1", ("a", 1))]
)
def test_addresses(text: str, parts: tuple[str, int]) -> None:
    assert host_and_port(text) == parts


@pytest.mark.parametrize("text", ["", ":80", "::1:80", "a:", "a:x", "a:65536", "a:-1", "[::1", "[a]:1", "a:١"])
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(ValueError, match="HOST:PORT"):
        host_and_port(text)


def test_a_finding_is_told_with_price_and_remedy_once_and_when_it_clears() -> None:
    from dataclasses import replace

    from made_snapshot import made_snapshot

    snapshot = made_snapshot()
    view = next(view for view in snapshot.engines if view.state == "live")
    finding = Finding(
        Code.KV_PRESSURE, Severity.WARNING, Status.FIRING, "the pool is full",
        price=Price(2.0, 10.0, 1.0, 3.0, "made up"), remedy="--kv-cache-memory 8G",
    )  # fmt: skip
    quiet = replace(snapshot, engines=(replace(view, findings=()),), problems=(), sources=())
    firing = replace(quiet, engines=(replace(view, findings=(finding,)),), problems=("a ring is damaged",))
    said: list[str] = []
    announcer, told = Announcer(said.append), []
    for each in (quiet, firing, firing, quiet):
        announcer.export(each)
        told.append([line[10:] for line in said])
        said.clear()
    name = f"{view.model_name}/{view.engine}"
    assert len(told[0]) == 1
    assert told[1] == [
        f"{name}  warning  kv_pressure: the pool is full; costs 20% of the engine's time (10% to 30%); "
        "--kv-cache-memory 8G",
        "problem  a ring is damaged",
    ]
    assert told[2] == []
    assert told[3] == [f"{name}  cleared  kv_pressure"]
    assert fired(replace(finding, price=None, remedy=None)) == "warning  kv_pressure: the pool is full"
