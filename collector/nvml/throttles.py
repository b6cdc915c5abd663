"""Why a device runs below its highest clock, and for how long: flags, and times that the driver accumulates."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping

from rooflens.device_records import Throttle

# nvml.h, nvmlClocksEventReason*; that it is idle or the display's clocks are set is no throttling.
REASONS = (
    (0x02, Throttle.APPLICATION_CLOCKS),
    (0x04, Throttle.POWER_CAP),
    (0x08, Throttle.HARDWARE_SLOWDOWN),
    (0x10, Throttle.SYNC_BOOST),
    (0x20, Throttle.THERMAL),
    (0x40, Throttle.HARDWARE_THERMAL),
    (0x80, Throttle.POWER_BRAKE),
)
# Numbers of fields of accumulated nanoseconds. The last three have moved: NVIDIA's own bindings 12.575.51 and 13.580.65
# have them at 251, where 12.570.86 and 13.580.82 have power smoothing; the latter has them at 269, where those two have
# it. Of a driver between two that are known they are not read.
ALWAYS = {74: Throttle.POWER_CAP, 76: Throttle.SYNC_BOOST}
MOVED = (Throttle.THERMAL, Throttle.HARDWARE_THERMAL, Throttle.POWER_BRAKE)
Version = tuple[int, int]
FIRST_OF_MOVED: tuple[tuple[int, Version, Version | None], ...] = (
    (251, (575, 51), (580, 65)),
    (269, (580, 82), None),
)
LEAST_RATIO = 0.01  # of a window; less counted while the flag is set at both its ends is in another unit, or nothing


def throttle_fields(driver_version: str | None) -> dict[int, Throttle]:
    """By number the fields in which a driver accumulates the time of a reason, as far as they are known of it."""
    found = re.match(r"(\d+)\.(\d+)", driver_version or "")
    if found is None:
        return dict(ALWAYS)
    version = int(found[1]), int(found[2])
    moved = {
        first + place: reason
        for first, since, until in FIRST_OF_MOVED
        if since <= version and (until is None or version <= until)
        for place, reason in enumerate(MOVED)
    }
    return ALWAYS | moved


def in_force(bits: int) -> tuple[Throttle, ...]:
    """The reasons of a mask."""
    return tuple(reason for bit, reason in REASONS if bits & bit)


def throttled_s(
    counted_s: Mapping[Throttle, float | None], span_s: float, slack_s: float, all_the_time: Container[Throttle]
) -> dict[Throttle, float]:
    """Seconds by reason in a window, without what cannot be: older drivers count in other units, or not at all.

    Left out is a reason that took longer than there was time, and one of next to no time whose flag was in force
    ``all_the_time``, as far as both ends of the window tell.
    """
    found = {}
    for reason, seconds in counted_s.items():
        if seconds is None or seconds > span_s + slack_s:
            continue
        if reason in all_the_time and seconds < LEAST_RATIO * span_s:
            continue
        found[reason] = min(seconds, span_s)
    return found
