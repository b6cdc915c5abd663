"""Moments of log lines on this host's monotonic clock: by their stamps, which may be coarse, absent or go back."""

from __future__ import annotations

from dataclasses import dataclass

BACK_S = 2.0  # lines of several processes are written a little out of order
STAMP_S = 1.0  # most logs tell whole seconds


@dataclass(frozen=True, slots=True)
class Moment:
    """When a line was written; ``unix_s`` is None where neither the line nor its arrival tells.

    ``sure_s`` is how far it may be off; ``set`` is whether the log's clock was set right before it.
    """

    monotonic_s: float
    unix_s: float | None
    sure_s: float
    set: bool = False


class Clock:
    """Maps the stamps of one log; give it every record in the order of the file."""

    def __init__(self, offset_s: float | None = None) -> None:
        """``offset_s`` is the monotonic less the wall clock for a log that is read after it was written.

        None where lines arrive as they are written: then the smallest delay so far tells it.
        """
        self._live = offset_s is None
        self._offset_s = offset_s
        self._last_unix_s: float | None = None

    def at(self, unix_s: float | None, arrival_s: float | None, now_unix_s: float | None) -> Moment | None:
        """When the line was written; None where its place is not known but after the one before it.

        ``arrival_s`` and ``now_unix_s`` are when it was read, on both clocks, of a log that is followed.
        """
        if unix_s is None:
            return None if arrival_s is None else Moment(arrival_s, now_unix_s, STAMP_S)
        went_back = self._last_unix_s is not None and unix_s < self._last_unix_s - BACK_S
        if self._live and arrival_s is not None:
            late_s = arrival_s - unix_s
            if self._offset_s is None or went_back or late_s < self._offset_s:
                self._offset_s = late_s
        elif went_back and self._offset_s is not None and self._last_unix_s is not None:
            self._offset_s += self._last_unix_s - unix_s
        if self._last_unix_s is None or went_back or unix_s > self._last_unix_s:
            self._last_unix_s = unix_s
        coarse = 0.0 if unix_s % 1.0 else STAMP_S
        return Moment(unix_s + (self._offset_s or 0.0), unix_s, coarse, went_back)
