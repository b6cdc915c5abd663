"""Figures as a person reads them; None is a dash."""

from __future__ import annotations

import datetime

DASH = "–"
UNITS_S = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))
LONG_S = 600.0  # from here on hours and minutes say more than thousands of seconds


def seconds(value: float | None) -> str:
    """A duration with three digits and the unit that fits."""
    if value is None:
        return DASH
    for scale, unit in UNITS_S if abs(value) >= LONG_S else UNITS_S[3:]:
        if abs(value) >= 0.9995 * scale:
            return (
                f"{value / scale:.3g}\u00a0{unit}"
                if abs(value) < 999.5 * scale
                else f"{value / scale:,.0f}\u00a0{unit}"
            )
    return "0\u00a0s" if not value else f"{value * 1e9:.3g}\u00a0ns"


def number(value: float | None) -> str:
    """Three digits, whole where it is large."""
    return DASH if value is None else f"{value:,.0f}" if abs(value) >= 99.5 else f"{value:.3g}"


def whole(value: float | None) -> str:
    """A count."""
    return DASH if value is None else f"{value:,.0f}"


def percent(value: float | None) -> str:
    """A ratio in percent."""
    if value is None:
        return DASH
    return (
        f"{value:.0%}"
        if abs(value) >= 0.0995 or not value
        else f"{value:.1%}"
        if abs(value) >= 0.00995
        else f"{value:.2%}"
    )


def factor(value: float | None) -> str:
    """How many times as much."""
    return DASH if value is None else f"{value:,.{2 if abs(value) < 10 else 1 if abs(value) < 100 else 0}f}\u00a0×"


def change(value: float | None) -> str:
    """A factor as the part that was added or taken away."""
    return DASH if value is None else f"{value - 1:+.1%}"


def money(value: float | None) -> str:
    """An amount in the user's currency."""
    return DASH if value is None else f"{value:,.2f}" if abs(value) >= 0.1 or not value else f"{value:.2g}"


def size(value: float | None) -> str:
    """Bytes in binary units."""
    if value is None:
        return DASH
    for power, unit in ((40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")):
        if abs(value) >= 1 << power:
            return f"{value / (1 << power):,.3g}\u00a0{unit}"
    return f"{value:,.0f}\u00a0B"


def day(unix_s: float | None) -> str:
    """The date in UTC."""
    found = _moment(unix_s)
    return DASH if found is None else f"{found:%Y-%m-%d}"


def clock(unix_s: float | None, width_s: float | None = None) -> str:
    """The time of day in UTC, with a tenth of a second where windows are that narrow."""
    found = _moment(unix_s)
    if found is None:
        return DASH
    tenth = f".{found.microsecond // 100_000}" if width_s is not None and width_s < 1 else ""
    return f"{found:%H:%M:%S}{tenth}"


def moment(unix_s: float | None, width_s: float | None = None) -> str:
    """Date and time in UTC."""
    return DASH if unix_s is None else f"{day(unix_s)} {clock(unix_s, width_s)}"


def _moment(unix_s: float | None) -> datetime.datetime | None:
    if unix_s is None:
        return None
    try:
        return datetime.datetime.fromtimestamp(unix_s + 1e-6, datetime.UTC)
    except (ValueError, OverflowError, OSError):
        return None


def short(text: str, most: int) -> str:
    """``text`` with its middle left out where it is longer than ``most`` characters."""
    if len(text) <= most:
        return text
    return f"{text[: most - most // 2 - 1]}…{text[len(text) - most // 2 :]}"
