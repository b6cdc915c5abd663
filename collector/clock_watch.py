"""This host's clocks beside each other: a wall clock that was set, a machine that was suspended."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from rooflens.device_records import ClockJump

Clock = Callable[[], float]

JUMP_S = 0.05  # half of what a counter's driver refreshes: a smaller step moves nothing that is measured here
# Kernels slew a clock by at most 500 parts in a million for NTP (the limit of adjtime). Linux slews the monotonic clock
# along with the wall clock, so there they do not part at all; elsewhere the wall clock alone is slewed.
SLEW_RATIO = 5e-4
READS = 5  # of the clocks a look, at most; the tightest counts
TIGHT_S = 50e-6  # a read that took no longer than this is taken at once


@dataclass(frozen=True, slots=True)
class _Reading:
    """The clocks at one moment: ``width_s`` is how long it took to read them all, so how far apart they may be."""

    monotonic_s: float
    boottime_s: float | None
    wall_s: float
    width_s: float


def _system_boottime() -> Clock | None:
    """The clock that goes on while the machine is suspended; None where the system has none."""
    number = getattr(time, "CLOCK_BOOTTIME", None)
    if number is None:
        return None
    try:
        time.clock_gettime(number)
    except OSError:
        return None
    return lambda: time.clock_gettime(number)


BOOTTIME = _system_boottime()


class ClockWatch:
    """Compares the clocks from look to look.

    The wall clock jumped where it went on by at least ``JUMP_S`` more or less than the clock that goes on through a
    suspend, beyond what NTP may slew; the machine was suspended where that clock went on by as much more than the
    monotonic one. Without a clock that goes on through a suspend (``boottime`` None) both look like a wall clock that
    was set, and are said as that. The process may be put aside between two reads, which moves no clock: a look reads
    the monotonic clock before and after the others, takes the tightest of a few reads, and leaves the comparison to
    the next look where none was tight enough.
    """

    def __init__(
        self,
        monotonic: Clock = time.monotonic,
        boottime: Clock | None = BOOTTIME,
        wall: Clock = time.time,
    ) -> None:
        self._monotonic, self._boottime, self._wall = monotonic, boottime, wall
        self._last: _Reading | None = None

    def look(self) -> tuple[ClockJump, ...]:
        """The jumps since the look before, in seconds; none at the first."""
        now, last = self._tightest(), self._last
        if now.width_s > JUMP_S / 2:
            return ()
        self._last = now
        if last is None:
            return ()
        passed_s = now.monotonic_s - last.monotonic_s
        unsure_s = (now.width_s + last.width_s) / 2
        found = []
        awake_s = passed_s
        if now.boottime_s is not None and last.boottime_s is not None:
            passed_s = now.boottime_s - last.boottime_s
            if passed_s - awake_s >= JUMP_S + unsure_s:
                found.append(ClockJump(now.monotonic_s, passed_s - awake_s, True, last.monotonic_s))
        set_s = now.wall_s - last.wall_s - passed_s
        if abs(set_s) >= JUMP_S + unsure_s + SLEW_RATIO * passed_s:
            found.append(ClockJump(now.monotonic_s, set_s, False, last.monotonic_s))
        return tuple(found)

    def _tightest(self) -> _Reading:
        best = self._read()
        for _ in range(READS - 1):
            if best.width_s <= TIGHT_S:
                break
            again = self._read()
            best = min(best, again, key=lambda reading: reading.width_s)
        return best

    def _read(self) -> _Reading:
        before_s = self._monotonic()
        boottime_s = self._boottime() if self._boottime is not None else None
        wall_s = self._wall()
        after_s = self._monotonic()
        return _Reading((before_s + after_s) / 2, boottime_s, wall_s, after_s - before_s)
