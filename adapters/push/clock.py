"""The sender's clock on this host's: by the smallest delay seen, never by the time of day.

A body cannot arrive before it was sent, so (received - sent) is the clocks' true offset plus a delay; the smallest of
many is nearest to it. Clocks drift (100 parts in a million are usual), so only the last minutes count.
"""

from __future__ import annotations

from collections import deque

SPAN_S = 300.0  # of one of two spans over which the smallest offset counts: 10 minutes drift by 60 ms at the most
JUMP_S = 1.0  # more is no drift and no jitter
LATE_BODIES = 8  # so many in a row that came later than ever before: not the network, the clock was set back
BACK_S = 1e-3  # senders round their clocks


class SenderClock:
    """Maps one sender's clock. ``offset_s`` is added to its times; None before the first body."""

    def __init__(self) -> None:
        self.offset_s: float | None = None
        self._sent_s = 0.0
        self._began_s = 0.0
        self._now_s = self._before_s = float("inf")
        self._last: deque[float] = deque(maxlen=LATE_BODIES)

    def take(self, sent_s: float, received_s: float) -> bool:
        """A body that came; whether the sender's clock jumped since the one before."""
        offset_s = received_s - sent_s
        jumped = self._jumped(sent_s, offset_s)
        if jumped or self.offset_s is None:
            self._restart(offset_s, received_s)
        elif received_s - self._began_s >= SPAN_S:
            self._before_s, self._now_s, self._began_s = self._now_s, offset_s, received_s
        self._sent_s = sent_s
        self._last.append(offset_s)
        self._now_s = min(self._now_s, offset_s)
        self.offset_s = min(self._now_s, self._before_s)
        return jumped

    def _jumped(self, sent_s: float, offset_s: float) -> bool:
        if self.offset_s is None:
            return False
        back = sent_s < self._sent_s - BACK_S or (
            len(self._last) == LATE_BODIES and min(*self._last, offset_s) > self.offset_s + JUMP_S
        )
        return back or offset_s < self.offset_s - JUMP_S

    def _restart(self, offset_s: float, received_s: float) -> None:
        self._began_s = received_s
        self._now_s, self._before_s = offset_s, float("inf")
        self._last.clear()
