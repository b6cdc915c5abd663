"""When pages are read: all of one period together, as many threads that wake one by one cost twice as much."""

from __future__ import annotations

import math
import random

# Many sidecars must not ask at one moment, nor in step with the engine's own period.
JITTER_RATIO = 0.1
_OWN = random.random()  # of this process


def next_beat_s(period_s: float, after_s: float) -> float:
    """The first moment of this period's beat later than ``after_s``, on the monotonic clock.

    Two beats are a period apart, up to JITTER_RATIO of it more or less; all threads of a process have the same.
    """
    number = math.floor(after_s / period_s) - 2
    while (at_s := _beat_s(period_s, number)) <= after_s:
        number += 1
    return at_s


def _beat_s(period_s: float, number: int) -> float:
    late = random.Random(f"{_OWN} {period_s} {number}").uniform(0.0, JITTER_RATIO)
    return (number + _OWN + late) * period_s
