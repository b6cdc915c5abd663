"""Samples made wrong: what a broken line, a cut response, a hostile peer or another version may send."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

NUMBERS = (
    b"nan", b"-nan", b"NaN", b"inf", b"-inf", b"1e999", b"-1", b"0", b"-0.0", b"1e-320", b"9" * 400, b"0x10", b"1_000",
    b"18446744073709551616", b"-9223372036854775809", b"2e308", b"1,234,567.8", b"N/A", b"null", b"None", b"true",
)  # fmt: skip
PIECES = (
    b"", b"\x00", b"\xff\xfe", b"\xef\xbb\xbf", b"\r", b"\n\n", b"\x1b[31m", b"{", b"}", b"[", b"]", b'"', b"\\", b",",
    b":", b"=", b"#", b"%", b" " * 500, b"(" * 300, b"[" * 3000, b"{" * 3000, b"a" * 5000, "é".encode() * 99,
    b"\xe2\x82", b"'", b"<", b"$(", b"\xc1", b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\xc7\xff",
    b"\x91" * 800,
)  # fmt: skip
DIGITS = frozenset(b"0123456789.-+eE")
LONGEST = 1 << 18  # bytes: longer inputs say nothing that these do not


def mangled(sample: bytes, others: Sequence[bytes], rng: random.Random) -> bytes:
    """``sample`` with one to six edits; ``others`` are what a piece may be taken from."""
    data = sample
    for _ in range(rng.randint(1, 6)):
        data = rng.choice(EDITS)(data, others, rng)[:LONGEST]
    return data


def _flip(data: bytes, _others: Sequence[bytes], rng: random.Random) -> bytes:
    if not data:
        return data
    at = rng.randrange(len(data))
    return data[:at] + bytes([rng.randrange(256)]) + data[at + 1 :]


def _drop(data: bytes, _others: Sequence[bytes], rng: random.Random) -> bytes:
    first, last = _cut(data, rng)
    return data[:first] + data[last:]


def _keep(data: bytes, _others: Sequence[bytes], rng: random.Random) -> bytes:
    return data[: rng.randint(0, len(data))]


def _repeat(data: bytes, _others: Sequence[bytes], rng: random.Random) -> bytes:
    first, last = _cut(data, rng)
    return data[:last] + data[first:last] * rng.choice((1, 2, 50)) + data[last:]


def _insert(data: bytes, _others: Sequence[bytes], rng: random.Random) -> bytes:
    at = rng.randint(0, len(data))
    return data[:at] + rng.choice(PIECES) + data[at:]


def _splice(data: bytes, others: Sequence[bytes], rng: random.Random) -> bytes:
    other = rng.choice(others)
    first, last = _cut(other, rng)
    at = rng.randint(0, len(data))
    return data[:at] + other[first:last] + data[at:]


def _number(data: bytes, _others: Sequence[bytes], rng: random.Random) -> bytes:
    """Another number, or what is none, where one stands."""
    places = [at for at, byte in enumerate(data) if byte in DIGITS]
    if not places:
        return data
    first = last = rng.choice(places)
    while first > 0 and data[first - 1] in DIGITS:
        first -= 1
    while last < len(data) and data[last] in DIGITS:
        last += 1
    return data[:first] + rng.choice(NUMBERS) + data[last:]


def _lines(data: bytes, _others: Sequence[bytes], rng: random.Random) -> bytes:
    """Lines in another order, some twice."""
    lines = data.split(b"\n")
    rng.shuffle(lines)
    return b"\n".join(lines + rng.sample(lines, min(len(lines), 3)))


def _cut(data: bytes, rng: random.Random) -> tuple[int, int]:
    first = rng.randint(0, len(data))
    return first, min(len(data), first + rng.choice((1, 2, 8, 64, 1024)))


Edit = Callable[[bytes, Sequence[bytes], random.Random], bytes]
EDITS: tuple[Edit, ...] = (_flip, _drop, _keep, _repeat, _insert, _splice, _number, _number, _lines)
