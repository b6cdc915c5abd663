"""A calibration from its JSON, each value checked; every fault is a ValueError that names the field."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, TypeVar

from rooflens.calibration_records import Calibration, MachineIdentity, Measured

SCHEMA = 1
KINDS = ("cpu", "cuda", "rocm")
LARGEST = 2**63  # of a whole number

Value = TypeVar("Value")
Curve = tuple[tuple[int, Measured], ...]


def parse(words: bytes) -> Calibration:
    """The calibration; fields that this release does not know are passed over."""
    try:
        data = json.loads(words, parse_constant=_no_number)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    fields = _mapping(data, "the file")
    schema = fields.get("schema")
    if schema != SCHEMA or isinstance(schema, bool):
        raise ValueError(f"it has schema {str(schema)[:20]}, this release reads {SCHEMA}")
    return Calibration(
        identity=_identity(fields.get("identity")),
        measured_unix_s=_number(fields.get("measured_unix_s"), "measured_unix_s"),
        took_s=_number(fields.get("took_s"), "took_s"),
        versions=_by_name(fields.get("versions", {}), "versions", _word),
        clocks_hz=_by_name(fields.get("clocks_hz", {}), "clocks_hz", _positive),
        reads=_curve(fields.get("reads", []), "reads"),
        copies=_curve(fields.get("copies", []), "copies"),
        attention=_curve(fields.get("attention", []), "attention"),
        products=_by_name(fields.get("products", {}), "products", _measured),
        launch_s=_optional(fields.get("launch_s"), "launch_s", _measured),
        graph_launch_s=_optional(fields.get("graph_launch_s"), "graph_launch_s", _measured),
        all_reduce_s=_by_devices(fields.get("all_reduce_s", {}), "all_reduce_s"),
        flags=tuple(_word(one, "flags") for one in _list(fields.get("flags", []), "flags")),
    )


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"it holds {name} where a number belongs")


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


def _measured(data: Any, where: str) -> Measured:
    fields = _mapping(data, where)
    return Measured(
        median=_positive(fields.get("median"), f"{where}.median"),
        best=_positive(fields.get("best"), f"{where}.best"),
        spread_ratio=_number(fields.get("spread_ratio"), f"{where}.spread_ratio"),
        count=_whole(fields.get("count"), f"{where}.count"),
    )


def _curve(data: Any, where: str) -> Curve:
    points = []
    for pair in _list(data, where):
        size, value = pair if isinstance(pair, list) and len(pair) == 2 else (None, None)
        points.append((_whole(size, f"{where}: a size"), _measured(value, where)))
    if any(after[0] <= before[0] for before, after in itertools.pairwise(points)):
        raise ValueError(f"{where} is not in ascending order of bytes")
    return tuple(points)


def _by_devices(data: Any, where: str) -> dict[int, Curve]:
    found = {}
    for name, curve in _mapping(data, where).items():
        count = int(name) if name.isdecimal() and len(name) < 6 else 0
        if count < 2:
            raise ValueError(f"{where} is for {name[:20]} devices")
        found[count] = _curve(curve, where)
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


def _positive(data: Any, where: str) -> float:
    value = _number(data, where)
    if value == 0:
        raise ValueError(f"{where} is 0")
    return value


def _whole(data: Any, where: str) -> int:
    if isinstance(data, bool) or not isinstance(data, int) or not 0 < data <= LARGEST:
        raise ValueError(f"{where} is no whole number above 0")
    return data
