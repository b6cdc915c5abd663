"""What no pass over a model's weights on a CPU can beat, from the best passes that were measured of other sizes.

A pass is a read of the same bytes again and again, of which the caches keep a part. Its shortest time t(n) starts at 0
and is convex in its bytes: each further byte comes from a cache first and from memory in the end, so the slope rises
from the one's rate to the other's and the rate n / t(n) only falls. Between two measured sizes A < n < B therefore

    t(n) >= max(n / rate(A), t(B) - (B - n) s)

with s no less than any slope up to B. By convexity the slope from B to the next size is such an s; the steepest that
was measured from A on is taken, since times carry noise. Far beyond the caches the second bound is the time itself.

A cache may break the convexity around its edge: one that drops what it needs next keeps nothing of a cycle longer than
itself, one that drops at random keeps less of a longer cycle than of a shorter one. Then slopes fall again once the
edge is passed. So the second bound counts only where no slope from A on is steeper than the last and the last two
agree, which tells that memory's rate was reached; else, and below the largest size, the first stands alone.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterable, Sequence

NOISE_RATIO = 1.1  # slopes that lie further apart are no noise but the edge of a cache

Point = tuple[int, float]


def pass_rate(points: Iterable[Point], read_bytes: float) -> float:
    """The rate, in bytes/s, that no pass over ``read_bytes`` beats; ``points`` are (bytes, best bytes/s), one or more.

    Below the smallest measured size it is that of the smallest, beyond the largest that of the largest.
    """
    known = falling(points)
    place = bisect.bisect_right(known, read_bytes, key=lambda point: point[0])
    below = known[max(0, place - 1)]
    if place in (0, len(known)) or below[0] == read_bytes:
        return below[1]
    least_s = read_bytes / below[1]
    slope = _steepest(known[place - 1 :])
    if slope is not None:
        size, rate = known[place]
        least_s = max(least_s, size / rate - (size - read_bytes) * slope)
    return read_bytes / least_s


def falling(points: Iterable[Point]) -> list[Point]:
    """The best rate by size, in ascending order: of all ways to read so many bytes, and of any size above.

    What was read faster in a larger pass can be read as fast in a smaller one, which was only disturbed more.
    """
    found: list[Point] = []
    best = 0.0
    for size, rate in sorted(points, reverse=True):
        best = max(best, rate)
        if found and found[-1][0] == size:
            found.pop()
        found.append((size, best))
    return found[::-1]


def _steepest(known: Sequence[Point]) -> float | None:
    """Seconds a byte that no pass up to the second of these sizes exceeds; None where that is not told."""
    times = [(size, size / rate) for size, rate in known]
    slopes = [(b_s - a_s) / (b - a) for (a, a_s), (b, b_s) in itertools.pairwise(times)]
    if len(slopes) < 2 or max(slopes) > NOISE_RATIO * min(slopes[-2:]):
        return None
    return max(slopes)
