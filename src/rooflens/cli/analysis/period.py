"""Times, widths and prices as people write them: 2026-11-30T14:32, 14:32, -15m, 10s, 2.50."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone

from rooflens.cli.amounts import Refused
from rooflens.records import RooflensError

DAY_S = 86400.0
UNIT_S = {"ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": DAY_S}
HOW_TIME = "write 2026-11-30T14:32, 14:32 (of its last day), -15m (before its end) or Unix seconds"
HOW_WIDTH = "write 500ms, 10s, 5m, 1h or 1d"
EARLIEST_UNIX_S, LATEST_UNIX_S = 1e8, 1e11  # 1973 to 5138: a number beyond is no time of a recording in seconds
NEGATIVE = re.compile(r"^-\d+(\.\d+)?(ms|s|m|min|h|d)?$")
DATED = re.compile(
    r"(\d{4}-\d{2}-\d{2})(?:[T ](\d{1,2}:\d{2}(?::\d{2}(?:\.\d+)?)?))?\s*(Z|UTC|[+-]\d{2}:?\d{2})?", re.I
)
LONGEST_S = 100 * 365 * 86_400.0  # before the end
CLOCK = re.compile(r"(\d{1,2}:\d{2}(?::\d{2}(?:\.\d+)?)?)\s*(Z|UTC|[+-]\d{2}:?\d{2})?", re.I)


@dataclass(frozen=True, slots=True)
class Moment:
    """A time as it was written: ``unix_s`` where it says all by itself, else as a time of day, or before the end.

    ``clock_s`` are seconds since midnight in the zone ``offset_s`` east of UTC; ``before_s`` are before the end.
    """

    text: str
    unix_s: float | None = None
    clock_s: float | None = None
    offset_s: float = 0.0
    before_s: float | None = None

    @property
    def absolute(self) -> bool:
        """Whether it means the same for every recording."""
        return self.unix_s is not None

    def of(self, last_unix_s: float) -> float:
        """The time meant in a recording that ends at ``last_unix_s``."""
        if self.unix_s is not None:
            return self.unix_s
        if self.before_s is not None:
            return last_unix_s - self.before_s
        midnight = math.floor((last_unix_s + self.offset_s) / DAY_S) * DAY_S - self.offset_s
        return midnight + (self.clock_s or 0.0)


def moment(text: str) -> Moment:
    """A time; Refused for what is none."""
    wanted = text.strip()
    if NEGATIVE.match(wanted):
        before_s = width(wanted[1:])
        if before_s > LONGEST_S:
            raise Refused(f"{text[:40]!r} is no time: at most 100 years before the end")
        return Moment(wanted, before_s=before_s)
    if re.fullmatch(r"\d+(\.\d+)?", wanted):
        return Moment(wanted, unix_s=_unix(wanted))
    if found := DATED.fullmatch(wanted):
        return Moment(wanted, unix_s=_dated(found, wanted))
    if found := CLOCK.fullmatch(wanted):
        return Moment(wanted, clock_s=_clock(found[1], wanted), offset_s=_offset(found[2]).total_seconds())
    raise Refused(f"{text[:40]!r} is no time: {HOW_TIME}")


def _unix(text: str) -> float:
    value = float(text)
    if not EARLIEST_UNIX_S <= value <= LATEST_UNIX_S:
        raise Refused(f"{text[:40]!r} are no Unix seconds: {HOW_TIME}")
    return value


def _dated(found: re.Match[str], text: str) -> float:
    try:
        day = datetime.strptime(found[1], "%Y-%m-%d").replace(tzinfo=timezone(_offset(found[3])))
    except ValueError:
        raise Refused(f"{text[:40]!r} is no date: {HOW_TIME}") from None
    return day.timestamp() + (_clock(found[2], text) if found[2] else 0.0)


def _clock(clock: str, text: str) -> float:
    hours, minutes, *rest = clock.split(":")
    seconds = float(rest[0]) if rest else 0.0
    if int(hours) > 24 or int(minutes) > 59 or seconds >= 61 or (int(hours) == 24 and (int(minutes) or seconds)):
        raise Refused(f"{text[:40]!r} is no time of day: {HOW_TIME}")
    return int(hours) * 3600 + int(minutes) * 60 + seconds


def _offset(zone: str | None) -> timedelta:
    if zone is None or zone.upper() in ("Z", "UTC"):
        return timedelta(0)
    hours, minutes = int(zone[1:3]), int(zone[-2:])
    if hours > 14 or minutes > 59:
        raise Refused(f"{zone!r} is no offset from UTC: write Z, +02:00 or -0500")
    away = timedelta(hours=hours, minutes=minutes)
    return -away if zone[0] == "-" else away


def width(text: str) -> float:
    """Seconds of a length of time such as 10s; a number alone is seconds."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ms|min|[smhd])?", text.strip().casefold())
    if found is None or len(text) > 20:
        raise Refused(f"{text[:40]!r} is no length of time: {HOW_WIDTH}")
    value = float(found[1]) * UNIT_S[found[2] or "s"]
    if not value > 0:
        raise Refused(f"{text[:40]!r} is no length of time: it must be above 0")
    return value


def price(text: str) -> float:
    """Money for one device in one hour, in any currency."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise Refused(f"{text[:40]!r} is no price: write what one device costs an hour, such as 2.50")
    return value


def checked(first: float | None, last: float | None, words: tuple[str, str]) -> None:
    """RooflensError for a period that ends before it begins."""
    if first is not None and last is not None and first >= last:
        raise RooflensError(f"--from {words[0]} is not before --to {words[1]}: the period is empty")


def time_text(unix_s: float, span_s: float = 0.0) -> str:
    """A moment in UTC; of a span below an hour the seconds matter, below some seconds a tenth."""
    moment_ = datetime.fromtimestamp(unix_s, UTC)
    return f"{moment_:%H:%M:%S}.{moment_.microsecond // 100000}" if span_s < 120 else f"{moment_:%H:%M:%S}"
