"""Lines on standard output from a thread of their own: who does not read them holds nobody up."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections import deque
from collections.abc import Callable

from rooflens.cli.output import one_line

MOST_LINES = 256  # that wait to be written; what comes on top is dropped and counted
LAST_WORDS_S = 1.0  # for what waits still when it is closed


def write_out(text: str) -> None:
    """To standard output past its buffer: what nobody takes would be waited for again when Python ends."""
    try:
        descriptor = sys.stdout.fileno()
    except (OSError, ValueError):  # it is no file
        print(text, end="", flush=True)
        return
    raw = text.encode(sys.stdout.encoding or "utf-8", "replace")
    while raw:
        raw = raw[os.write(descriptor, raw) :]


class Voice:
    """Says lines in order; whoever closed standard output does not end the process."""

    def __init__(self, write: Callable[[str], None] = write_out) -> None:
        self._write = write
        self._lines: deque[str] = deque()
        self._dropped = 0
        self._closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="voice", daemon=True)
        self._thread.start()

    def say(self, line: str) -> None:
        """One line, as soon as it is taken; never waits."""
        with self._changed:
            if len(self._lines) < MOST_LINES:
                self._lines.append(one_line(line))
            else:
                self._dropped += 1
            self._changed.notify()

    def close(self) -> None:
        """Say what is left if somebody takes it at once, and be silent."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join(LAST_WORDS_S)

    def _run(self) -> None:
        while lines := self._taken():
            for line in lines:
                with contextlib.suppress(OSError, ValueError):
                    self._write(f"{line}\n")

    def _taken(self) -> list[str]:
        """What waits, once there is something; nothing once all is said."""
        with self._changed:
            self._changed.wait_for(lambda: self._lines or self._closed)
            lines = list(self._lines)
            if self._dropped:  # since the queue was full, so after all that is in it
                lines.append(f"{self._dropped:,} lines dropped: nobody read them")
            self._lines.clear()
            self._dropped = 0
            return lines
