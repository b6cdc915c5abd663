"""The facts of a trace's engines, to JSON and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from rooflens.live_records import SourceKind
from rooflens.model_records import HardwareSlice, HardwareSpec
from rooflens.records import EngineInfo, RooflensError
from rooflens.trace_records import TraceFacts

TUPLES = ("nvml_names", "flags", "other_names")


def facts_from_json(data: Mapping[str, Any]) -> TraceFacts:
    """The inverse of TraceFacts.to_json; RooflensError in one line for what is no such thing."""
    try:
        known = {name: data[name] for name in ("run", "host", "model_name", "engine")}
        if not all(isinstance(value, str) for value in known.values()):
            raise TypeError("a name is no text")
        info, hardware = data.get("info"), data.get("hardware")
        return TraceFacts(
            **known,
            source=SourceKind(data["source"]),
            info=None if info is None else EngineInfo.from_json(info),
            hardware=None if hardware is None else hardware_from_json(hardware),
            devices=int(data.get("devices", 1)),
            roof_version=data.get("roof_version"),
            problem=data.get("problem"),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RooflensError(f"the facts of an engine are damaged ({type(error).__name__}: {error})") from None


def hardware_from_json(data: Mapping[str, Any]) -> HardwareSpec:
    """A device as asdict wrote it; what a newer writer added is left out. Raises what its constructor raises."""
    kwargs = {field.name: data[field.name] for field in fields(HardwareSpec) if field.name in data}
    kwargs |= {name: tuple(kwargs[name]) for name in TUPLES if name in kwargs}
    kwargs["read_curve"] = tuple((int(size), float(rate)) for size, rate in kwargs.get("read_curve", ()))
    kwargs["slices"] = tuple(HardwareSlice(**part) for part in kwargs.get("slices", ()))
    return HardwareSpec(**kwargs)
