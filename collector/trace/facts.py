"""The facts of a trace's engines, to JSON and back."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from rooflens.device_records import CounterSource, DeviceFacts
from rooflens.live_records import SourceKind
from rooflens.model_records import HardwareSlice, HardwareSpec
from rooflens.records import EngineInfo, RooflensError
from rooflens.trace_records import FACTS_DIGITS, TraceFacts

SHARED = "shared"  # the key of a value that many facts have in common, where the value itself would stand
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


def shared_json(facts: Sequence[TraceFacts]) -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
    """The facts by digest, and what many of them have in common by its own digest: hardware and model.

    A thousand engines of one model on one kind of device then write both down once.
    """
    entries: dict[str, dict[str, Any]] = {}
    shared: dict[str, Any] = {}
    for each in facts:
        entry = each.to_json()
        digest = each.digest
        if isinstance(entry.get("hardware"), dict):
            entry["hardware"] = {SHARED: _put(shared, entry["hardware"])}
        if isinstance(info := entry.get("info"), dict) and isinstance(info.get("model_config"), dict):
            entry["info"] = info | {"model_config": {SHARED: _put(shared, info["model_config"])}}
        entries[digest] = entry
    return entries, shared


def _put(shared: dict[str, Any], value: Any) -> str:
    words = json.dumps(value, sort_keys=True, default=str)
    key = hashlib.sha256(words.encode()).hexdigest()[:FACTS_DIGITS]
    shared[key] = value
    return key


def with_shared(data: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The inverse of shared_json: the facts of a footer's JSON by digest; raises what damaged JSON raises."""
    shared = data.get(SHARED, {})

    def whole(value: Any) -> Any:
        return shared[value[SHARED]] if isinstance(value, dict) and set(value) == {SHARED} else value

    found = {}
    for digest, entry in data.get("facts", {}).items():
        made = {name: whole(value) for name, value in entry.items()}
        if isinstance(info := made.get("info"), dict) and "model_config" in info:
            made["info"] = info | {"model_config": whole(info["model_config"])}
        found[str(digest)] = made
    return found


def device_from_json(data: Mapping[str, Any]) -> DeviceFacts:
    """A device as asdict wrote it; what a newer writer added is left out. Raises what damaged JSON raises."""
    kwargs = {field.name: data[field.name] for field in fields(DeviceFacts) if field.name in data}
    return DeviceFacts(**kwargs | {"source": CounterSource(data["source"]), "pids": tuple(data.get("pids", ()))})
