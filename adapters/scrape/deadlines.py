"""Connections that are shut down when their time is over: one thread watches over all of them and mostly sleeps."""

from __future__ import annotations

import heapq
import socket
import threading
import time
from contextlib import suppress

# The thread wakes so often while nothing is due; a connection that has longer than this needs not wake it.
IDLE_S = 10.0


class Deadlines:
    """Shuts a socket down at its deadline unless it is let go before; from any thread."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._due: list[tuple[float, int]] = []
        self._open: dict[int, socket.socket] = {}
        self._number = 0
        self._wakes_s = 0.0
        self._thread: threading.Thread | None = None

    def watch(self, handle: socket.socket, at_s: float) -> int:
        """Shut ``handle`` down at this moment of the monotonic clock; the number by which it is let go."""
        with self._changed:
            self._number += 1
            self._open[self._number] = handle
            heapq.heappush(self._due, (at_s, self._number))
            if self._thread is None or not self._thread.is_alive():  # after a fork it is not
                self._wakes_s = at_s
                self._thread = threading.Thread(target=self._run, name="scrape deadlines", daemon=True)
                self._thread.start()
            elif at_s < self._wakes_s:
                self._changed.notify()
            return self._number

    def let_go(self, number: int) -> None:
        """The socket of this number is its owner's alone again; once this returns it may be closed."""
        with self._changed:
            self._open.pop(number, None)

    def _run(self) -> None:
        with self._changed:
            while True:
                now_s = time.monotonic()
                while self._due and (self._due[0][0] <= now_s or self._due[0][1] not in self._open):
                    handle = self._open.pop(heapq.heappop(self._due)[1], None)
                    if handle is not None:
                        with suppress(OSError):
                            handle.shutdown(socket.SHUT_RDWR)
                self._wakes_s = min(now_s + IDLE_S, self._due[0][0] if self._due else now_s + IDLE_S)
                self._changed.wait(max(self._wakes_s - now_s, 0.0))


DEADLINES = Deadlines()
