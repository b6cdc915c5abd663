"""The time stamps of logs: every form that engines, supervisors and container runtimes put before a line.

Read from vLLM (``06-06 14:20:44``), SGLang (``[2025-02-27 04:46:39 TP0]``), TensorRT-LLM (``[04/28/2025-09:56:44]``,
``04-07-2025 20:33:17.747028``), Triton (``I1218 03:35:37.688135``), syslog (``Feb 24 20:27:29``), nginx-like
(``2024/02/24 - 20:27:29``), docker and Kubernetes (``2026-04-27T23:03:15.250907Z``) and epochs. llama.cpp's own prefix
(``0.02.128.455``) counts from its start: it has no date and is no stamp.
"""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, timedelta, timezone
from functools import lru_cache

HEAD = 160  # characters of a line in which its stamps are looked for
# A clock may run ahead of this host's, and a zone by 14 hours: a stamp without a year so far ahead is of this year.
AHEAD_S = 86_400.0
YEARS_BACK = 8  # the most years between two 29ths of February
EARLIEST_EPOCH_S, LATEST_EPOCH_S = 1e9, 1e10  # 2001 to 2286
BEHIND = " timestamp="  # of llama.cpp's server in 2024, behind its words
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")

_CLOCK = r"(?P<h>\d\d):(?P<i>\d\d):(?P<s>\d\d)(?:[.,](?P<f>\d{1,9}))?"
_YEAR_FIRST = re.compile(
    r"(?<![\d-])(?P<y>\d{4})[-/](?P<m>\d\d)[-/](?P<d>\d\d)(?:[T ]|-| - )"
    + _CLOCK
    + r"(?:\s?(?P<z>Z|[+-]\d\d:?\d\d)\b)?"
)
_YEAR_LAST = re.compile(r"(?<![\d-])(?P<m>\d\d)[-/](?P<d>\d\d)[-/](?P<y>\d{4})[ -]" + _CLOCK)
_NO_YEAR = re.compile(r"(?<![\d/-])(?P<m>\d\d)-(?P<d>\d\d) " + _CLOCK)
_GLOG = re.compile(r"(?<![A-Za-z0-9])[IWEF](?P<m>\d\d)(?P<d>\d\d) " + _CLOCK)
_SYSLOG = re.compile(r"(?<![A-Za-z])(?P<b>[A-Z][a-z]{2}) {1,2}(?P<d>\d{1,2}) " + _CLOCK)
_EPOCH = re.compile(r"\s?\[?(?P<e>\d{10}|\d{13}|\d{16}|\d{19})(?P<f>\.\d{1,9})?(?![\d.])")


def stamp(line: str, now_unix_s: float) -> float | None:
    """The time of a line, in seconds since 1970, None if it has none; ``now_unix_s`` says which year is meant.

    Of several stamps one with a zone is taken, else one with a year, else the first: a supervisor's tells more than
    the engine's own. Without a zone it is this host's local time.
    """
    head = line[:HEAD]
    found = _YEAR_FIRST.search(head)
    if found is not None:
        zoned = found if found["z"] else _zoned(head, found.end())
        return _of(zoned or found, int((zoned or found)["y"]))
    found = _YEAR_LAST.search(head)
    if found is not None:
        return _of(found, int(found["y"]))
    found = _NO_YEAR.search(head) or _GLOG.search(head)
    if found is not None:
        return _latest(int(found["m"]), found, now_unix_s)
    found = _SYSLOG.search(head)
    if found is not None and found["b"].lower() in MONTHS:
        return _latest(MONTHS.index(found["b"].lower()) + 1, found, now_unix_s)
    at = line.find(BEHIND)
    return _epoch(_EPOCH.match(line, at + len(BEHIND)) if at >= 0 else _EPOCH.match(head))


def _zoned(head: str, start: int) -> re.Match[str] | None:
    """A later stamp that says its zone."""
    found = _YEAR_FIRST.search(head, start)
    return found if found is not None and found["z"] else None


def _of(found: re.Match[str], year: int) -> float | None:
    zone = found["z"] if "z" in found.re.groupindex else None
    whole = _seconds(year, int(found["m"]), int(found["d"]), found["h"], found["i"], found["s"], zone)
    return None if whole is None else whole + _fraction(found["f"])


def _latest(month: int, found: re.Match[str], now_unix_s: float) -> float | None:
    """The latest year in which the stamp is not in the future."""
    newest = time.localtime(now_unix_s + AHEAD_S).tm_year
    for year in range(newest, newest - YEARS_BACK - 1, -1):
        whole = _seconds(year, month, int(found["d"]), found["h"], found["i"], found["s"], None)
        if whole is not None and whole <= now_unix_s + AHEAD_S:
            return whole + _fraction(found["f"])
    return None


@lru_cache(maxsize=256)
def _seconds(year: int, month: int, day: int, hour: str, minute: str, second: str, zone: str | None) -> float | None:
    try:
        moment = datetime(year, month, day, int(hour), int(minute), min(int(second), 59))
        if zone is not None:
            return moment.replace(tzinfo=_offset(zone)).timestamp()
        return moment.timestamp()
    except (ValueError, OverflowError, OSError):
        return None


def _offset(zone: str) -> timezone:
    if zone == "Z":
        return UTC
    minutes = int(zone[1:3]) * 60 + int(zone[-2:])
    return timezone(timedelta(minutes=-minutes if zone[0] == "-" else minutes))


def _fraction(digits: str | None) -> float:
    return int(digits) / 10 ** len(digits) if digits else 0.0


def _epoch(found: re.Match[str] | None) -> float | None:
    """Seconds, or milli-, micro- or nanoseconds, since 1970."""
    if found is None:
        return None
    value = int(found["e"]) / 10 ** (len(found["e"]) - 10)
    if len(found["e"]) == 10 and found["f"]:
        value += float(found["f"])
    return value if EARLIEST_EPOCH_S <= value < LATEST_EPOCH_S else None
