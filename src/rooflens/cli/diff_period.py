"""The period of a recording that a side of a comparison is: NAME@FROM..TO, either end left out where it is open."""

from __future__ import annotations

import datetime
import re
from dataclasses import dataclass

from rooflens.records import RooflensError

HOW = "write 2026-11-30T14:32, 14:32 (of the recording's last day), -15m (before its end) or unix seconds"
BACK = re.compile(r"-(\d+(?:\.\d+)?)\s*([smhd]?)")
CLOCK = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}(?:\.\d+)?))?")
UNITS = {"s": 1.0, "": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
LEAST_UNIX_S = 1e8  # of 1973: a smaller number is no moment


@dataclass(frozen=True, slots=True)
class Period:
    """As it was written; None for an open end."""

    begin: str | None = None
    end: str | None = None

    @property
    def is_open(self) -> bool:
        """Whether it leaves nothing out."""
        return self.begin is None and self.end is None

    def between(self, last_unix_s: float) -> tuple[float, float]:
        """(from, to) in unix seconds for a recording that ends at ``last_unix_s``; RooflensError for what is none."""
        begin = float("-inf") if self.begin is None else moment(self.begin, last_unix_s)
        end = float("inf") if self.end is None else moment(self.end, last_unix_s)
        if begin >= end:
            raise RooflensError(f"the period {self.begin}..{self.end} is empty: write the earlier moment first")
        return begin, end


def placed(text: str) -> tuple[str, Period]:
    """A place and the period behind its last @, if there is one with two dots."""
    place, at, rest = text.rpartition("@")
    if not at or ".." not in rest or "/" in rest:
        return text, Period()
    begin, end = rest.split("..", 1)
    return place, Period(begin.strip() or None, end.strip() or None)


def moment(text: str, last_unix_s: float) -> float:
    """Unix seconds of a moment as people write it, UTC unless it says another offset."""
    words = text.strip()
    if back := BACK.fullmatch(words):
        return last_unix_s - float(back[1]) * UNITS[back[2]]
    if clock := CLOCK.fullmatch(words):
        day = datetime.datetime.fromtimestamp(last_unix_s, datetime.UTC).date()
        hour, minute, second = int(clock[1]), int(clock[2]), float(clock[3] or 0)
        if hour < 24 and minute < 60 and second < 60:
            start = datetime.datetime(day.year, day.month, day.day, tzinfo=datetime.UTC).timestamp()
            return start + 3600 * hour + 60 * minute + second
    try:
        if words.replace(".", "", 1).isdigit() and float(words) >= LEAST_UNIX_S:
            return float(words)
        found = datetime.datetime.fromisoformat(words)
    except (ValueError, OverflowError):
        raise RooflensError(f"{words[:40]!r} is no moment: {HOW}") from None
    return (found if found.tzinfo else found.replace(tzinfo=datetime.UTC)).timestamp()
