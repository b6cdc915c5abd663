"""What engines write in a line: "label: value unit", "key = value" and "3 context requests", split and read.

Linear in the length of the line: one pass over it, no pattern that can backtrack.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

MOST_ITEMS = 256  # of one line; the lines that are read have at most some forty
LONGEST_LABEL = 64
LARGEST = 1e18  # of what is a number of anything

NUMBER = re.compile(r"[-+]?(?:\d{1,3}(?:,\d{3}){1,6}(?!\d)|\d{1,20})(?:\.\d{0,20})?(?:[eE][-+]?\d{1,3})?")
UNIT = re.compile(r"\s?([A-Za-z%/]{1,16})")
_OPENING, _CLOSING = "([{", ")]}"
_SIGN = re.compile(r": | = |=")
_DIGITS = tuple("0123456789+-")
_EDGES = " \t\r\n\"'"
# A comma; where a sentence ends; vLLM 0.7 forgot one comma, "Waiting: 0 reqs GPU KV cache usage: 0.0%".
_MARKS = re.compile(r", |\. (?=[#a-z])|(?<=reqs) (?=[A-Z])|[()\[\]{}]")

# How many places a number moves for its unit: the decimal is moved, as "90.6 %" is 0.906 and 90.6 / 100 is not.
PLACES: dict[str, int] = {"%": 2, "ms": 3, "us": 6, "ns": 9}
# What a number is multiplied with for its unit. Engines divide by powers of 1024 and write GB or GiB alike.
UNITS: dict[str, float] = {
    "KB": 1024.0,
    "KiB": 1024.0,
    "MB": 1024.0**2,
    "MiB": 1024.0**2,
    "GB": 1024.0**3,
    "GiB": 1024.0**3,
    "TB": 1024.0**4,
    "TiB": 1024.0**4,
    "TF/s/GPU": 1e12,
    "TF/s/device": 1e12,
    "GB/s/GPU": 1e9,
    "GB/s/device": 1e9,
    "M": 1e6,
    "B": 1e9,
}


class Item(NamedTuple):
    """One pair: ``label`` as the line spells it, ``text`` the value with its unit, ``under`` the label it hangs on."""

    label: str
    text: str
    under: str = ""


def number(text: str) -> tuple[float, str] | None:
    """The number that a text begins with, in units of the first power, and the unit; None where there is none.

    Neither NaN nor infinity is a number here: they say that nothing was measured.
    """
    text = text.lstrip(_EDGES + "(*")
    found = NUMBER.match(text)
    if found is None:
        return None
    digits = found[0].replace(",", "")
    value = float(digits)
    if not -LARGEST < value < LARGEST:
        return None
    unit = UNIT.match(text, found.end())
    word = unit[1] if unit else ""
    places = PLACES.get(word)
    if places is None:
        return value * UNITS.get(word, 1.0), word
    return float(f"{digits}e-{places}") if "e" not in digits.lower() else value / 10.0**places, word


def parts(text: str) -> list[str]:
    """A text split at the commas that stand in no bracket, and where a sentence ends."""
    found: list[str] = []
    depth = start = 0
    for mark in _MARKS.finditer(text):
        sign = mark[0]
        if sign in _OPENING:
            depth += 1
        elif sign in _CLOSING:
            depth = max(0, depth - 1)
        elif depth == 0:
            found.append(text[start : mark.start()])
            start = mark.end()
            if len(found) >= MOST_ITEMS:
                return found
    found.append(text[start:])
    return found


def items(text: str) -> Iterator[Item]:
    """The pairs of a text; a value that is itself pairs ("full=3, swa=2") hangs under its label."""
    under = ""
    for part in parts(text):
        label, value = _halves(part)
        if not label:
            yield Item("", value, under)
            continue
        if value.startswith("{") and value.rstrip(" .").endswith("}"):
            yield from items(value.strip(" .{}"))
            continue
        inner, deeper = ("", "") if value[:1] in _DIGITS else _halves(value)
        if inner:
            under = label
            yield Item(inner, deeper, under)
            continue
        yield Item(label, value, under)


def _halves(part: str) -> tuple[str, str]:
    """Label and value of one pair; "" for a value alone."""
    part = part.strip(" \t\r\n;")
    begin = part[: LONGEST_LABEL * 2]
    sign = _SIGN.search(begin, 1)
    if sign is not None:
        return part[: sign.start()].strip(_EDGES), part[sign.end() :].strip()
    if part[:1].isdigit() or part[:1] in "-+":
        found = NUMBER.match(part)
        rest = part[found.end() :] if found else ""
        if found and rest[:1] == " " and rest.strip():
            return rest.strip(" .()"), found[0]
    return "", part
