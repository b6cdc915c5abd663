"""A calibration from its JSON, each value checked; every fault is a ValueError that names the field."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

from rooflens.calibration_records import Calibration, MachineIdentity, Measured
from rooflens.collector.state.words import values

SCHEMA = 1
KINDS = ("cpu", "cuda", "rocm")
LARGEST = 2**63  # of a whole number
# What a device of these years can be: far beyond every one there is, so that only what nobody measured is refused.
BYTES_PER_S, FLOP_PER_S, HZ = (1e5, 1e15), (1e6, 1e19), (1e6, 1e11)
SECONDS = (1e-9, 3600.0)
DATES_UNIX_S = (1577836800.0, 7258118400.0)  # 2020 to 2200
ROUNDED = 1e-9  # the mean of equal values may differ from them by a last digit

Value = TypeVar("Value")
Curve = tuple[tuple[int, Measured], ...]
Bounds = tuple[float, float]
Reader = Callable[[Any, str], Measured]


def parse(words: bytes) -> Calibration:
    """The calibration; fields that this release does not know are passed over."""
    fields = _mapping(values(words), "the file")
    schema = fields.get("schema")
    if schema != SCHEMA or isinstance(schema, bool):
        raise ValueError(f"it has schema {str(schema)[:20]}, this release reads {SCHEMA}")
    return Calibration(
        identity=_identity(fields.get("identity")),
        measured_unix_s=_within(fields.get("measured_unix_s"), "measured_unix_s", DATES_UNIX_S),
        took_s=_number(fields.get("took_s"), "took_s"),
        versions=_by_name(fields.get("versions", {}), "versions", _word),
        clocks_hz=_by_name(fields.get("clocks_hz", {}), "clocks_hz", partial(_within, bounds=HZ)),
        reads=_curve(fields.get("reads", []), "reads", _bandwidth),
        copies=_curve(fields.get("copies", []), "copies", _bandwidth),
        attention=_curve(fields.get("attention", []), "attention", _bandwidth),
        products=_by_name(fields.get("products", {}), "products", partial(_rate, bounds=FLOP_PER_S)),
        launch_s=_optional(fields.get("launch_s"), "launch_s", _time),
        graph_launch_s=_optional(fields.get("graph_launch_s"), "graph_launch_s", _time),
        all_reduce_s=_by_devices(fields.get("all_reduce_s", {}), "all_reduce_s"),
        flags=tuple(_word(one, "flags") for one in _list(fields.get("flags", []), "flags")),
    )


def _identity(data: Any) -> MachineIdentity:
    fields = _mapping(data, "identity")
    kind, name = _word(fields.get("kind"), "identity.kind"), _word(fields.get("name"), "identity.name")
    if kind not in KINDS:
        raise ValueError(f"identity.kind is none of {', '.join(KINDS)}")
    return MachineIdentity(
        kind=kind,
        name=name,
        machine=_optional(fields.get("machine"), "identity.machine", _word),
        device_uuid=_optional(fields.get("device_uuid"), "identity.device_uuid", _word),
        memory_bytes=_optional(fields.get("memory_bytes"), "identity.memory_bytes", _whole),
        units=_optional(fields.get("units"), "identity.units", _whole),
        cache_bytes=_optional(fields.get("cache_bytes"), "identity.cache_bytes", _whole),
    )


def _measured(data: Any, where: str, bounds: Bounds) -> Measured:
    fields = _mapping(data, where)
    return Measured(
        median=_within(fields.get("median"), f"{where}.median", bounds),
        best=_within(fields.get("best"), f"{where}.best", bounds),
        spread_ratio=_number(fields.get("spread_ratio"), f"{where}.spread_ratio"),
        count=_whole(fields.get("count"), f"{where}.count"),
    )


def _rate(data: Any, where: str, bounds: Bounds) -> Measured:
    found = _measured(data, where, bounds)
    if found.best < found.median * (1 - ROUNDED):
        raise ValueError(f"{where}.best is less than its median")
    return found


def _bandwidth(data: Any, where: str) -> Measured:
    return _rate(data, where, BYTES_PER_S)


def _time(data: Any, where: str) -> Measured:
    found = _measured(data, where, SECONDS)
    if found.best > found.median * (1 + ROUNDED):
        raise ValueError(f"{where}.best is more than its median")
    return found


def _curve(data: Any, where: str, read: Reader) -> Curve:
    points = []
    for pair in _list(data, where):
        size, value = pair if isinstance(pair, list) and len(pair) == 2 else (None, None)
        points.append((_whole(size, f"{where}: a size"), read(value, where)))
    if any(after[0] <= before[0] for before, after in itertools.pairwise(points)):
        raise ValueError(f"{where} is not in ascending order of bytes")
    return tuple(points)


def _by_devices(data: Any, where: str) -> dict[int, Curve]:
    found = {}
    for name, curve in _mapping(data, where).items():
        count = int(name) if name.isdecimal() and len(name) < 6 else 0
        if count < 2:
            raise ValueError(f"{where} is for {name[:20]} devices")
        found[count] = _curve(curve, where, _time)
        if not found[count]:
            raise ValueError(f"{where}.{count} is empty")
    return found


def _by_name(data: Any, where: str, read: Callable[[Any, str], Value]) -> dict[str, Value]:
    return {name: read(value, f"{where}.{name[:40]}") for name, value in _mapping(data, where).items()}


def _optional(data: Any, where: str, read: Callable[[Any, str], Value]) -> Value | None:
    return None if data is None else read(data, where)


def _mapping(data: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(data, dict):
        raise ValueError(f"{where} is no object")
    return data


def _list(data: Any, where: str) -> list[Any]:
    if not isinstance(data, list):
        raise ValueError(f"{where} is no list")
    return data


def as_line(words: str) -> str:
    """``words`` as a calibration may hold them: one line that no terminal obeys, and not empty."""
    return "".join(letter if letter.isprintable() else "?" for letter in " ".join(words.split())) or "?"


def _word(data: Any, where: str) -> str:
    if not isinstance(data, str) or not data or not data.isprintable():
        raise ValueError(f"{where} is no line of text")
    return data


def _number(data: Any, where: str) -> float:
    """Finite and not negative; bool is an int to Python and no number here."""
    if isinstance(data, bool) or not isinstance(data, int | float):
        raise ValueError(f"{where} is no number")
    if not 0 <= data <= LARGEST or not math.isfinite(data):
        raise ValueError(f"{where} is out of range")
    return float(data)


def _within(data: Any, where: str, bounds: Bounds) -> float:
    value, (least, most) = _number(data, where), bounds
    if not least <= value <= most:
        raise ValueError(f"{where} is {value:g}, which is not within {least:g} and {most:g}")
    return value


def _whole(data: Any, where: str) -> int:
    if isinstance(data, bool) or not isinstance(data, int) or not 0 < data <= LARGEST:
        raise ValueError(f"{where} is no whole number above 0")
    return data
