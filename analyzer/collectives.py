"""How long devices take to exchange a message: curves of measured all-reduces, between and beyond their points."""

from __future__ import annotations

import bisect
import math

from rooflens.model_records import Efficiency, HardwareSpec

Points = tuple[tuple[float, float], ...]  # (message bytes, seconds), ascending
FAR = 1e6  # times the last point, up to where a curve goes on at the bandwidth of that point
SEND_LATENCY_S = 10e-6  # from device to device; aiconfigurator-core 0.12.0 takes the same for every system
SEND_RATIO = 0.88  # of a link that one sender reaches: 396 of 450 GB/s, nvbandwidth on an H200


def ring_share(devices: int) -> float:
    """How often each byte of a message crosses one device's link in a ring or two-shot all-reduce."""
    return 2 * (devices - 1) / devices


def all_reduce_curve(efficiency: Efficiency, devices: int, eager: bool = False) -> Points | None:
    """(message bytes, seconds) of an all-reduce among ``devices``; None where no table is known, or for one device.

    Times grow with the number of devices by two effects that a table shows at once. For a number that is not in it,
    each time is divided by ring_share, what is left is taken from the numbers below and above in proportion to the
    logarithm, and multiplied again; beyond the largest number the ring share alone makes the difference. A table
    measured on a switch that adds in the network has that in it. ``eager`` is outside of a captured graph.
    """
    table = (efficiency.eager_all_reduce_s if eager else None) or efficiency.all_reduce_s
    if devices < 2 or not table:
        return None
    if devices in table:
        return _continued(table[devices])
    counts = sorted(table)
    place = bisect.bisect(counts, devices)
    below, above = counts[max(0, place - 1)], counts[min(place, len(counts) - 1)]
    part = 0.0 if below == above else math.log(devices / below) / math.log(above / below)
    sizes = sorted({size for n in (below, above) for size, _ in table[n]})
    return _continued(
        tuple(
            (
                size,
                ring_share(devices)
                * math.exp(
                    (1 - part) * math.log(seconds_at(table[below], size) / ring_share(below))
                    + part * math.log(seconds_at(table[above], size) / ring_share(above))
                ),
            )
            for size in sizes
        )
    )


def send_curve(hardware: HardwareSpec) -> Points | None:
    """(message bytes, seconds) of one device handing something on to another; None without a link."""
    bandwidth = hardware.link_bandwidth_bytes_per_s
    if bandwidth is None:
        return None
    sizes = [4.0**power for power in range(4, 16)]
    return _continued(tuple((size, SEND_LATENCY_S + size / (SEND_RATIO * bandwidth)) for size in sizes))


def link_curve(hardware: HardwareSpec, devices: int) -> Points | None:
    """A curve for an all-reduce where no table is known: every byte of the ring at what one sender reaches."""
    if devices < 2 or (curve := send_curve(hardware)) is None:
        return None
    share = ring_share(devices)
    return tuple((size, SEND_LATENCY_S + share * (seconds - SEND_LATENCY_S)) for size, seconds in curve)


def seconds_at(points: Points, size_bytes: float) -> float:
    """The time of a message: straight between the points of a log-log plot, 0 for an empty message.

    The smallest point's time below it; beyond the largest one on at that point's bandwidth.
    """
    if size_bytes <= 0:
        return 0.0
    if size_bytes <= points[0][0]:
        return points[0][1]
    last_size, last_s = points[-1]
    if size_bytes >= last_size:
        return last_s * size_bytes / last_size
    place = bisect.bisect_left(points, size_bytes, key=lambda point: point[0])
    (low, low_s), (high, high_s) = points[place - 1], points[place]
    part = math.log(size_bytes / low) / math.log(high / low)
    return math.exp((1 - part) * math.log(low_s) + part * math.log(high_s))


def all_reduce_seconds(
    efficiency: Efficiency, hardware: HardwareSpec, devices: int, size_bytes: float, eager: bool = False
) -> float:
    """Seconds of one all-reduce of ``size_bytes`` among ``devices``; 0 for one device or without a link."""
    curve = all_reduce_curve(efficiency, devices, eager) or link_curve(hardware, devices)
    return 0.0 if curve is None else seconds_at(curve, size_bytes)


def _continued(points: Points) -> Points:
    """The same with a far point at the bandwidth of the last one, so that a plain interpolation goes on."""
    size, seconds = points[-1]
    return (*points, (size * FAR, seconds * FAR))
