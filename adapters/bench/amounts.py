"""Numbers as benchmarks print them: thousands separators, units behind or before them, bold cells, spreads, N/A."""

from __future__ import annotations

import math
import re

# A unit as it stands in a label or behind a number -> seconds; what is no time has the factor 1.
SECONDS = {
    "s": 1.0, "sec": 1.0, "secs": 1.0, "second": 1.0, "seconds": 1.0, "ms": 1e-3, "msec": 1e-3, "milliseconds": 1e-3,
    "us": 1e-6, "microseconds": 1e-6, "ns": 1e-9, "nanoseconds": 1e-9,
}  # fmt: skip
# What stands in the brackets behind a label and is a unit, not a part of the name.
OTHER_UNITS = frozenset(
    ("req/s", "req/sec", "requests/s", "requests/sec", "tok/s", "tokens/s", "tokens/sec", "token/s", "per sec", "rps",
     "per second", "%", "tokens", "token", "count", "requests", "tps/user", "tps/gpu", "tokens/sec/user",
     "tokens/sec/gpu", "inputs/s", "w", "ratio")
)  # fmt: skip
EMPTY = frozenset(("", "n/a", "na", "-", "none", "null", "not set"))
NUMBER = re.compile(r"[+-]?(?:\d[\d,]{0,30}(?:\.\d{0,20})?|\.\d{1,20})(?:[eE][+-]?\d{1,4})?")
NOT_FINITE = re.compile(r"[+-]?(nan|inf(?:inity)?)\b", re.IGNORECASE)
BRACKETS = re.compile(r"\(([^()]{1,30})\)\s*$")
MOST_CHARS = 200  # of one cell or value
# Nothing that was measured is outside of these; sums and ratios of what is inside are finite.
LEAST, MOST = 1e-30, 1e30


def amount(text: str) -> float | None:
    """The number that ``text`` begins with, NaN and infinities included; None where it begins with none."""
    shown = text.strip()[:MOST_CHARS].strip("*_` ")
    if (named := NOT_FINITE.match(shown)) is not None:
        return math.nan if named[1].lower() == "nan" else math.copysign(math.inf, -1 if shown[0] == "-" else 1)
    found = NUMBER.match(shown)
    return None if found is None else _possible(float(found[0].replace(",", "")))


def finite_amount(text: str) -> float | None:
    """The same where it is finite and above zero, to reckon with; else None."""
    found = amount(text)
    return found if found is not None and math.isfinite(found) and found > 0 else None


def unit_behind(text: str) -> str:
    """The word behind the number that ``text`` begins with, in lower case: "ms" of "49.34 ms"."""
    shown = text.strip()[:MOST_CHARS].strip("*_` ")
    found = NUMBER.match(shown)
    rest = shown[found.end() :].strip().split() if found else []
    return rest[0].lower() if rest else ""


def spread(text: str) -> float | None:
    """What stands behind the plus-minus sign."""
    for sign in ("±", "+/-", "�"):
        if sign in text[:MOST_CHARS]:
            return amount(text[:MOST_CHARS].partition(sign)[2])
    return None


def is_empty(text: str) -> bool:
    """Whether a cell says that there is no value."""
    return text.strip(" *_`").lower() in EMPTY


def named(label: str) -> tuple[str, str]:
    """(name in lower case with single blanks, unit in lower case or "") of a label with its unit in brackets."""
    name, unit = " ".join(label[:MOST_CHARS].strip().strip(":").replace("_", " ").split()), ""
    if (found := BRACKETS.search(name)) is not None and is_unit(found[1]):
        name, unit = name[: found.start()].strip(), found[1].strip().lower()
    return name.lower(), unit


def is_unit(text: str) -> bool:
    """Whether these words are a unit that benchmarks write."""
    return text.strip().lower() in SECONDS or text.strip().lower() in OTHER_UNITS


def number_of(value: object) -> float | None:
    """The number that a field of JSON holds, one in quotes too; None for anything else."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int | float):
        try:
            return _possible(float(value))
        except OverflowError:
            return math.inf
    return amount(value) if isinstance(value, str) and not is_empty(value) else None


def _possible(value: float) -> float:
    """The value, infinite or zero where it is beyond what can be."""
    if abs(value) > MOST:
        return math.copysign(math.inf, value)
    return value if abs(value) >= LEAST or math.isnan(value) else math.copysign(0.0, value)
