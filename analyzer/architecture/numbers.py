"""Whole numbers out of the fields of a config.json, under any of the names that model families write them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rooflens.analyzer.config_fields import shown
from rooflens.records import RooflensError

LARGEST = 1 << 24  # no width, head or state count of a model is as large


def stated(fields: Mapping[str, Any], *names: str, least: int = 1) -> int | None:
    """The first of ``names`` that is present and not null; None where there is none.

    Raises RooflensError for a value that is not a whole number from ``least`` to LARGEST.
    """
    for name in names:
        value = fields.get(name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= LARGEST:
            raise RooflensError(f"config field {name} is {shown(value)}: not a whole number from {least} to {LARGEST}")
        return value
    return None


def needed(fields: Mapping[str, Any], *names: str) -> int:
    """As stated, where a missing field is a RooflensError that lists the names it may have."""
    value = stated(fields, *names)
    if value is None:
        raise RooflensError(f"config field {' or '.join(names)} is missing")
    return value


def flag(fields: Mapping[str, Any], name: str, default: bool = False) -> bool:
    """A field that is true or false, ``default`` where it is missing or null; RooflensError for anything else."""
    value = fields.get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise RooflensError(f"config field {name} is {shown(value)}, neither true nor false")
    return value


def part(fields: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A field that is an object of fields itself; empty where it is missing or null."""
    value = fields.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise RooflensError(f"config field {name} is {shown(value)}, not an object of fields")
    return value


def at(fields: Mapping[str, Any], name: str, index: int) -> Any:
    """Entry ``index`` of a list with one value a layer; None where the list is missing or null."""
    values = fields.get(name)
    if values is None:
        return None
    if not isinstance(values, list):
        raise RooflensError(f"config field {name} is {shown(values)}, not a list with one value a layer")
    if not 0 <= index < len(values):
        raise RooflensError(f"config field {name} has {len(values)} values, none for layer {index}")
    return values[index]
