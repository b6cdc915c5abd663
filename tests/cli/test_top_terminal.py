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
# A shell with job control: it says when its job stops and whether the terminal is as it was, waits for a line, and
# lets the job go on in front.
IN_A_SHELL = """
import fcntl, os, signal, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
modes = termios.tcgetattr(0)
if not (job := os.fork()):
    os.setpgid(0, 0)
    os.tcsetpgrp(0, os.getpid())
    signal.signal(signal.SIGTTOU, signal.SIG_DFL)
    from rooflens.cli import main
    os._exit(main())
while os.WIFSTOPPED(status := os.waitpid(job, os.WUNTRACED)[1]):
    os.tcsetpgrp(0, os.getpgrp())
    print("stopped", termios.tcgetattr(0) == modes, flush=True)
    sys.stdin.readline()
    os.tcsetpgrp(0, job)
    os.killpg(job, signal.SIGCONT)
sys.exit(os.waitstatus_to_exitcode(status))
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
    given = dict(getattr(request, "param", {}))
    program = given.pop("program", IN_A_TERMINAL)
    environment = {**os.environ, **given}
    if not given:
        environment.pop("NO_COLOR", None)
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", program, "top", "--url", url, "--period", "0.2"],
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
    assert len(first) == 15
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


@pytest.mark.parametrize("terminal", [{"program": IN_A_SHELL}], indirect=True)
def test_ctrl_z_gives_the_screen_back_until_it_goes_on(terminal: Terminal) -> None:
    terminal.until("remedy: ")
    for _ in range(2):
        at = len(terminal.seen)
        terminal.press(b"\x1a")
        terminal.until(re.escape(LEAVE) + ".*stopped True", at)
        at = len(terminal.seen)
        terminal.press(b"fg\n")
        terminal.until(re.escape(ENTER) + ".*remedy: ", at)
        assert not termios.tcgetattr(terminal.side)[3] & termios.ICANON, "keys are taken one by one again"
    at = len(terminal.seen)
    terminal.press(b"q")
    terminal.until(re.escape(LEAVE), at)
    assert terminal.ended() == 0
