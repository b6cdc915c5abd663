"""Sidecars beside a real server, and the loads that they watch."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from server_harness import Server, free_port

# A roof well above what this machine reaches, for what is judged or compared under one that is the same everywhere.
ROOF = """
id = "test-roof"
name = "a roof for tests"
vendor = "none"
memory_bytes = 16_000_000_000
memory_bandwidth_bytes_per_s = 60e9
[peak_flops_per_s]
bf16 = 2e12
fp32 = 1e12
[source]
title = "made up"
"""
START_LIMIT_S = 60
POLL_S = 0.25


@dataclass
class Sidecar:
    """A running `rooflens sidecar`: its port, process and log file."""

    port: int
    process: subprocess.Popen[bytes]
    log: Path

    def text(self, path: str) -> str:
        """What it answers at ``path``, which must be well."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            text = answer.read().decode()
        finally:
            connection.close()
        assert answer.status == 200, text
        return text

    def json(self, path: str) -> Any:
        """The JSON at ``path`` below /api/v1."""
        return json.loads(self.text(f"/api/v1/{path}"))

    def engine(self) -> dict[str, Any] | None:
        """The one engine it watches; None before it has seen any."""
        engines = self.json("engines")["engines"]
        assert len(engines) <= 1, [(one["model_name"], one["engine"]) for one in engines]
        return engines[0] if engines else None

    def findings(self, status: str | None = None) -> dict[str, dict[str, Any]]:
        """Its findings by code, only those of one status if given."""
        found = self.json("findings")["findings"]
        return {one["code"]: one for one in found if status in (None, one["status"])}

    def until(self, what: Callable[[Sidecar], Any], limit_s: float) -> Any:
        """Wait until ``what`` is true of it; what it was at last, true or not."""
        deadline = time.monotonic() + limit_s
        while True:
            found = what(self)
            if found or time.monotonic() >= deadline:
                return found
            time.sleep(POLL_S)


def firing(code: str) -> Callable[[Sidecar], dict[str, Any] | None]:
    """Whether the finding fires, for `until`."""
    return lambda sidecar: sidecar.findings("firing").get(code)


def quiet(code: str) -> Callable[[Sidecar], bool]:
    """Whether the finding does not fire, for `until`."""
    return lambda sidecar: code not in sidecar.findings("firing")


@contextmanager
def sidecar(
    folder: Path, name: str, *flags: str, rings: Path | None = None, python: str = sys.executable
) -> Iterator[Sidecar]:
    """A sidecar that reads these rings, or none, up; it is gone afterwards, in order."""
    port, log = free_port(), folder / f"{name}.log"
    command = [python, "-m", "rooflens", "sidecar", "--listen", f"127.0.0.1:{port}", *flags]
    command += [] if rings else ["--no-rings"]
    env = {**os.environ, "ROOFLENS_DIR": str(rings or folder / "no-rings")}
    with log.open("wb") as sink:
        process = subprocess.Popen(command, stdout=sink, stderr=subprocess.STDOUT, env=env, start_new_session=True)
    found = Sidecar(port, process, log)
    try:
        _wait_until_up(found)
        yield found
        assert process.poll() is None, "the sidecar ended by itself:\n" + log.read_text()[-4000:]
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(20)
    assert process.returncode == 0, f"the sidecar ended with {process.returncode}:\n" + log.read_text()[-4000:]


def _wait_until_up(found: Sidecar) -> None:
    deadline = time.monotonic() + START_LIMIT_S
    while time.monotonic() < deadline and found.process.poll() is None:
        with contextlib.suppress(OSError, AssertionError):
            found.text("/healthz")
            return
        time.sleep(0.1)
    raise AssertionError("the sidecar did not come up:\n" + found.log.read_text()[-4000:])


@dataclass(frozen=True)
class Stream:
    """One client: ``rounds`` completions one after another; lengths in tokens.

    The first ``shared_tokens`` of a prompt are those of every other prompt, the rest is unlike any other.
    """

    prompt_tokens: int
    output_tokens: int
    rounds: int = 1
    pause_s: float = 0.0
    shared_tokens: int = 0


class Load:
    """Streams that run beside the caller; what the server said of each completion is in ``usages``."""

    _ever = 0

    def __init__(self, server: Server, streams: Sequence[Stream]) -> None:
        self.usages: list[dict[str, Any]] = []
        self.faults: list[str] = []
        self._port = server.port
        self._stop = threading.Event()
        self._open: set[http.client.HTTPConnection] = set()
        self._threads = [threading.Thread(target=self._run, args=(stream,), daemon=True) for stream in streams]
        for thread in self._threads:
            thread.start()

    def _run(self, stream: Stream) -> None:
        for number in range(stream.rounds):
            if self._stop.is_set() or (number and self._stop.wait(stream.pause_s)):
                return
            try:
                self.usages.append(self._complete(_prompt(stream), stream.output_tokens))
            except Exception as error:
                if not self._stop.is_set():
                    self.faults.append(repr(error))
                return

    def _complete(self, prompt: list[int], most: int) -> dict[str, Any]:
        body = {"model": "m", "prompt": prompt, "max_tokens": most, "ignore_eos": True, "temperature": 0.0}
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=300)
        self._open.add(connection)
        try:
            headers = {"Content-Type": "application/json"}
            connection.request("POST", "/v1/completions", json.dumps(body | {"return_token_ids": True}), headers)
            answer = connection.getresponse()
            text = answer.read().decode()
        finally:
            self._open.discard(connection)
            connection.close()
        assert answer.status == 200, text
        usage: dict[str, Any] = json.loads(text)["usage"]
        return usage

    @property
    def over(self) -> bool:
        """Whether every stream has ended."""
        return not any(thread.is_alive() for thread in self._threads)

    def wait(self, limit_s: float) -> None:
        """Until every stream has ended, each well."""
        deadline = time.monotonic() + limit_s
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        assert self.over, f"the load did not end in {limit_s} s"
        assert not self.faults, self.faults

    def hang_up(self) -> None:
        """No further rounds, and leave those that run: the server drops their requests."""
        self._stop.set()
        for connection in list(self._open):
            with contextlib.suppress(OSError, AttributeError):
                connection.sock.shutdown(socket.SHUT_RDWR)
        self.wait(60)


def _prompt(stream: Stream) -> list[int]:
    Load._ever += 1
    head = [100 + Load._ever % 15000, 100 + Load._ever // 15000]
    own = head + [7 + (i * 31 + Load._ever) % 90 for i in range(stream.prompt_tokens)]
    return ([5] * stream.shared_tokens + own)[: stream.prompt_tokens]


@contextmanager
def paused(pids: Sequence[int]) -> Iterator[None]:
    """These processes stand still meanwhile."""
    try:
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        yield
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
