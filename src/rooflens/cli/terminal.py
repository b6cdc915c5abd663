"""A terminal that is drawn over and over, and given back as it was."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import sys
import termios
import time
import tty
from collections.abc import Iterator, Sequence
from types import FrameType

from rooflens.cli.top_lines import Line

ENTER, LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"  # the alternate screen, without a cursor
HOME, CLEAR_LINE, CLEAR_BELOW, RESET = "\x1b[H", "\x1b[2K", "\x1b[J", "\x1b[0m"
STYLES = {"critical": "\x1b[1;31m", "warning": "\x1b[33m", "info": "\x1b[36m", "head": "\x1b[1m"}
FALLBACK_SIZE = (80, 24)


class Terminated(Exception):
    """Somebody asked the process to end (SIGTERM or SIGHUP); ``number`` is the signal's."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class Screen:
    """Standard output while it is drawn over; keys come from standard input where that is a terminal too."""

    def __init__(self, coloured: bool, wake: socket.socket) -> None:
        self.coloured = coloured
        self._wake = wake
        self._keys = sys.stdin is not None and sys.stdin.isatty()
        self._modes = termios.tcgetattr(sys.stdin.fileno()) if self._keys else None

    @property
    def size(self) -> tuple[int, int]:
        """Columns and lines that can be written to now."""
        columns, lines = os.get_terminal_size(sys.stdout.fileno())
        return (columns, lines) if columns > 0 and lines > 0 else FALLBACK_SIZE

    def draw(self, lines: Sequence[Line]) -> None:
        """Put ``lines`` in the place of what is there; they must fit."""
        body = "\r\n".join(CLEAR_LINE + self._painted(line) for line in lines)
        sys.stdout.write(HOME + body + CLEAR_BELOW)
        sys.stdout.flush()

    def take(self) -> None:
        """Take the terminal over."""
        if self._modes is not None:
            tty.setcbreak(sys.stdin.fileno())  # of a process in the background, this waits until it is in front again
        sys.stdout.write(ENTER)
        sys.stdout.flush()

    def give_back(self) -> None:
        """Leave the terminal as it was."""
        if self._modes is not None:
            with contextlib.suppress(termios.error):
                termios.tcsetattr(sys.stdin.fileno(), termios.TCSADRAIN, self._modes)
        with contextlib.suppress(OSError):
            sys.stdout.write(LEAVE)
            sys.stdout.flush()

    def _suspend(self) -> None:
        """Stop as everything does at Ctrl-Z, with the terminal given back until the process goes on."""
        self.give_back()
        ours = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        signal.raise_signal(signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, ours)
        self.take()

    def _painted(self, line: Line) -> str:
        style = STYLES.get(line.style) if self.coloured else None
        return f"{style}{line.text}{RESET}" if style else line.text

    def wait(self, seconds: float) -> str:
        """The key that was pressed within ``seconds``, ``resized`` (or back again), or empty when the time is over."""
        end_s = time.monotonic() + seconds
        while True:
            watched: list[int] = [self._wake.fileno(), *([sys.stdin.fileno()] if self._keys else [])]
            ready, _, _ = select.select(watched, [], [], max(0.0, end_s - time.monotonic()))
            if not ready:
                return ""
            if self._wake.fileno() in ready:
                if signal.SIGTSTP in self._wake.recv(4096):  # the numbers of the signals that came
                    self._suspend()
                return "resized"
            key = os.read(sys.stdin.fileno(), 1).decode("ascii", "replace")
            if key:
                return key
            self._keys = False  # nobody is there any more; draw on until somebody says to end


@contextlib.contextmanager
def screen(coloured: bool) -> Iterator[Screen]:
    """The terminal taken over; given back as it was, however the block ends.

    SIGTERM and SIGHUP raise Terminated meanwhile, a change of size ends a wait, and SIGTSTP stops the process in one.
    """
    reader, writer = socket.socketpair()
    reader.setblocking(False)
    writer.setblocking(False)
    handlers = dict.fromkeys((signal.SIGWINCH, signal.SIGTSTP), _nothing)
    handlers |= dict.fromkeys((signal.SIGTERM, signal.SIGHUP), _terminate)
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    wake_before = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    shown = Screen(coloured, reader)
    try:
        shown.take()
        yield shown
    finally:
        shown.give_back()
        signal.set_wakeup_fd(wake_before)
        for number, handler in before.items():
            signal.signal(number, handler)
        reader.close()
        writer.close()


def _nothing(number: int, frame: FrameType | None) -> None:
    """The wake-up descriptor says it."""
    del number, frame


def _terminate(number: int, frame: FrameType | None) -> None:
    del frame
    raise Terminated(number)
