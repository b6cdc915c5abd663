"""Amounts as people write them: counts with k and M, ranges and lists of them, memory sizes, link rates, ratios.

k is 1024 and M is 1024 x 1024, since contexts and prompts of models are powers of two: 128k is 131,072 tokens.
A range a..b doubles from a and ends with b; a..b:step counts up by the step; 1..b:step is 1, step, 2 x step, ...
"""

from __future__ import annotations

import argparse
import math
import re

BINARY = {"": 1, "k": 1 << 10, "m": 1 << 20}
AGES = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
LARGEST_COUNT = 10**12  # beyond it a count is a typing error, and no range of it may be built
MOST_VALUES = 1000  # of one option; a longer sweep is a typing error
LEAST_PLAIN_BYTES = 1e6  # a memory of less without a unit is one whose unit was forgotten
HOW_COUNT = "write a number such as 128, 8k (8,192) or 1M (1,048,576)"
HOW_COUNTS = "write 128, 8k (8,192), a list 1,2,4, a range 1..512 (it doubles) or 1..512:64 (by steps)"


class Refused(argparse.ArgumentTypeError):
    """An amount that cannot be read; the message is one line without the option's name."""


def count(text: str) -> int:
    """One whole number, 0 or more."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([km]?)", text.strip().casefold())
    if found is None or len(text) > 24:
        raise Refused(f"{text[:40]!r} is no count: {HOW_COUNT}")
    value = float(found[1]) * BINARY[found[2]]
    if value != int(value):
        raise Refused(f"{text[:40]!r} is no whole number: {HOW_COUNT}")
    if value > LARGEST_COUNT:
        raise Refused(f"{text[:40]!r} is too large: at most {LARGEST_COUNT:,}")
    return int(value)


def counts(text: str) -> tuple[int, ...]:
    """The values of a list of counts and ranges, each once, in the order given; a range doubles."""
    return _values(text, by_one=False)


def depths(text: str) -> tuple[int, ...]:
    """The same where a range without a step counts up by one: 0..8 is nine values."""
    return _values(text, by_one=True)


def _values(text: str, by_one: bool) -> tuple[int, ...]:
    found: dict[int, None] = {}
    for part in text.split(","):
        found |= dict.fromkeys(_range(part, by_one) if ".." in part else (_one_of_many(part),))
        if len(found) > MOST_VALUES:
            raise Refused(f"{text[:40]!r} has more than {MOST_VALUES:,} values: use a larger step")
    return tuple(found)


def _one_of_many(text: str) -> int:
    try:
        return count(text)
    except Refused as error:
        message = str(error)
        raise Refused(message.replace(HOW_COUNT, HOW_COUNTS)) from None


def _range(text: str, by_one: bool) -> tuple[int, ...]:
    ends, colon, step_text = text.partition(":")
    first, last = (_one_of_many(end) for end in ends.split("..", 1))
    step = _one_of_many(step_text) if colon else int(by_one)
    if last < first:
        raise Refused(f"{text[:40]!r} runs backwards: write the smaller end first")
    if colon and step < 1:
        raise Refused(f"{text[:40]!r} has no step: it must be at least 1")
    if step and (last - first) // step > MOST_VALUES:
        raise Refused(f"{text[:40]!r} has more than {MOST_VALUES:,} values: use a larger step")
    if step:
        start = 0 if first == 1 and step > 1 else first
        return (first, *range(start + step, last + 1, step), last)
    values, value = [first], max(1, 2 * first)
    while value < last:
        values.append(value)
        value *= 2
    return (*values, last)


def memory_size(text: str) -> float:
    """Bytes in ``text``: a number, with a decimal (80GB) or binary (80GiB) unit or none (640e9)."""
    found = re.fullmatch(r"\s*([^a-z]*(?:e[+-]?\d+)?|nan|inf)\s*(?:([kmgtp]?)(i?)b?)?\s*", text.lower())
    try:
        value = float(found[1].replace(",", "") if found else "")
    except ValueError:
        raise Refused(f"{text[:40]!r} is no memory size: write 80GB, 80GiB or 80e9") from None
    if 0 < value < LEAST_PLAIN_BYTES and not text.strip()[-1:].isalpha():
        raise Refused(f"{text[:40]!r} has no unit and would be bytes: write {value:g}GB, {value:g}GiB or {value:g}e9")
    step = 1024 if found and found[3] else 1000
    return value * float(step ** (" kmgtp".index(found[2]) if found and found[2] else 0))


def age(text: str) -> float:
    """Seconds in ``text``: 14d, 36h, 90m, 45s, 2w, or a plain number of seconds."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([smhdw]?)\s*", text.lower())
    if found is None or len(text) > 24:
        raise Refused(f"{text[:40]!r} is no age: write 14d, 36h, 90m or a number of seconds")
    return float(found[1]) * AGES[found[2] or "s"]


def link_rate(text: str) -> float:
    """Bytes per second in ``text``: 50GB/s, 400Gbit/s or 400Gb/s (a small b is a bit), or a plain number of bytes."""
    found = re.fullmatch(r"\s*([\d.]+(?:e[+-]?\d+)?)\s*(?:([kKmMgGtT]?)(B|bit|b)(?:/s|ps)?)?\s*", text)
    try:
        value = float(found[1] if found else "")
    except ValueError:
        value = math.nan
    if found is None or not 0 < value < math.inf:
        raise Refused(f"{text[:40]!r} is no rate of a link: write 50GB/s, 400Gbit/s or 5e10")
    return value * float(1000 ** " kmgt".index((found[2] or " ").lower())) / (1 if found[3] in ("B", None) else 8)


def ratio(text: str) -> float:
    """A part of one: 0.8 or 80%."""
    body = text.strip()
    try:
        value = float(body.removesuffix("%")) / (100 if body.endswith("%") else 1)
    except ValueError:
        value = math.nan
    if math.isnan(value):
        raise Refused(f"{text[:40]!r} is no ratio: write 0.8 or 80%")
    return value


def ratios(text: str) -> tuple[float, ...]:
    """A list of parts of one: 0.9,0.7,0.5."""
    return tuple(ratio(part) for part in text.split(","))
