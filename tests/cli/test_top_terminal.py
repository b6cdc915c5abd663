"""`rooflens top` in a pseudo-terminal: it draws, follows the size, ends by key or signal, gives the screen back."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from cli.frames import engine, snapshot_of

from rooflens.cli.terminal import ENTER, HOME, LEAVE
from rooflens.exporters.http_app import LiveServer

IN_A_TERMINAL = """
import fcntl, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
from rooflens.cli import main
sys.exit(main())
"""
PATIENCE_S = 60.0  # a bound for a machine under load, not a timing
COLOUR = re.compile(r"\x1b\[[0-9;]+m")


@dataclass
class Terminal:
    """A terminal of a given size with `rooflens top` in it; ``seen`` is all that was written to it."""

    process: subprocess.Popen[bytes]
    end: int
    side: int
    modes: list[Any]
    seen: str = field(default="")

    def until(self, pattern: str, after: int = 0) -> None:
        """Read until ``pattern`` has been written behind the first ``after`` characters."""
        while not re.search(pattern, self.seen[after:], re.DOTALL):
            ready, _, _ = select.select([self.end], [], [], PATIENCE_S)
            assert ready, f"{pattern!r} does not come: {self.seen[-2000:]!r}"
            self.seen += os.read(self.end, 1 << 16).decode()

    def resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self.side, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def press(self, keys: bytes) -> None:
        os.write(self.end, keys)

    def ended(self) -> int:
        """The exit code, once the screen was given back."""
        self.until(re.escape(LEAVE))
        code = self.process.wait(PATIENCE_S)
        assert termios.tcgetattr(self.side) == self.modes, "the terminal is not as it was"
        assert self.seen.startswith(ENTER)
        return code

    def frames(self) -> list[list[str]]:
        """Every picture as its lines without colours."""
        parts = [COLOUR.sub("", part).replace("\x1b[2K", "").split("\x1b[J")[0] for part in self.seen.split(HOME)[1:]]
        return [re.split(r"\r+\n", part) for part in parts]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    server = LiveServer("127.0.0.1", 0)
    server.start()
    server.export(snapshot_of([engine("a\x1b[2Jb")]))
    yield server.url
    server.close()


@pytest.fixture
def terminal(url: str, request: pytest.FixtureRequest) -> Iterator[Terminal]:
    end, side = pty.openpty()
    fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    modes = termios.tcgetattr(side)
    environment = {**os.environ, **getattr(request, "param", {})}
    if not getattr(request, "param", None):
        environment.pop("NO_COLOR", None)
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", IN_A_TERMINAL, "top", "--url", url, "--period", "0.2"],
        stdin=side, stdout=side, stderr=side, env=environment, start_new_session=True,
    )  # fmt: skip
    yield Terminal(process, end, side, modes)
    process.kill()
    process.wait()
    os.close(end)
    os.close(side)


def test_it_draws_again_and_again_until_q(terminal: Terminal) -> None:
    terminal.until(r"remedy: .*remedy: ")
    assert not termios.tcgetattr(terminal.side)[3] & termios.ICANON, "keys are taken one by one"
    terminal.press(b"xq")
    assert terminal.ended() == 0
    first = terminal.frames()[0]
    assert first[1] == "a?[2Jb  engine 0  live  by ring  vllm 0.33.0  h100-sxm5-80"
    assert len(first) == 14
    assert "\x1b[33m  WARNING kv_pressure" in terminal.seen


def test_it_follows_the_size(terminal: Terminal) -> None:
    terminal.until("remedy: ")
    at = len(terminal.seen)
    terminal.resize(40, 6)
    terminal.until(r"more lines.*more lines", at)
    terminal.press(b"q")
    assert terminal.ended() == 0
    last = terminal.frames()[-1]
    assert len(last) == 6
    assert max(map(len, last)) <= 39


@pytest.mark.parametrize("terminal", [{"NO_COLOR": "1"}], indirect=True)
def test_no_color_is_none(terminal: Terminal) -> None:
    terminal.until("remedy: ")
    terminal.press(b"q")
    assert terminal.ended() == 0
    assert not COLOUR.search(terminal.seen)


def test_ctrl_c_gives_the_screen_back(terminal: Terminal) -> None:
    terminal.until("remedy: ")
    terminal.press(b"\x03")
    assert terminal.ended() == 130


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_gives_the_screen_back(terminal: Terminal, number: signal.Signals) -> None:
    terminal.until("remedy: ")
    terminal.process.send_signal(number)
    assert terminal.ended() == 128 + number
