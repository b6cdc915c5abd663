"""The facts of a trace's engines, to JSON and back."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from rooflens.device_records import CounterSource, DeviceFacts
from rooflens.live_records import SourceKind
from rooflens.model_records import HardwareSlice, HardwareSpec
from rooflens.records import EngineInfo, RooflensError
from rooflens.trace_records import FACTS_DIGITS, TraceFacts

SHARED = "shared"  # the key of a value that many facts have in common, where the value itself would stand
KNOWN_FACTS = 50_000  # that are kept
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


@dataclass(frozen=True, slots=True)
class Entry:
    """Facts as a footer has them: ``data`` names by digest what is in ``shared``, hardware and model.

    A thousand engines of one model on one kind of device write both down once.
    """

    digest: str
    data: Mapping[str, Any]
    shared: Mapping[str, Any]


class FactsBook:
    """The JSON of facts, worked out once for each object: of a thousand engines it takes a second."""

    def __init__(self) -> None:
        self._entries: dict[int, tuple[TraceFacts, Entry]] = {}
        self._parts: dict[int, tuple[Any, tuple[Any, str]]] = {}

    def entry(self, facts: TraceFacts) -> Entry:
        """The facts' own."""
        known = self._entries.get(id(facts))
        if known is None:
            if len(self._entries) >= KNOWN_FACTS:
                self._entries.clear()
                self._parts.clear()
            known = self._entries[id(facts)] = (facts, self._made(facts))
        return known[1]

    def _made(self, facts: TraceFacts) -> Entry:
        data: dict[str, Any] = {field.name: getattr(facts, field.name) for field in fields(facts)}
        shared: dict[str, Any] = {}
        data["source"] = str(facts.source)
        whole = data
        if facts.info is not None:
            info = self._part(facts.info, EngineInfo.to_json)[0]
            whole = whole | {"info": info}
            if isinstance(config := info.get("model_config"), dict):
                info = info | {"model_config": {SHARED: self._put(shared, config, dict)}}
            data = data | {"info": info}
        if facts.hardware is not None:
            whole = whole | {"hardware": self._part(facts.hardware, asdict)[0]}
            data = data | {"hardware": {SHARED: self._put(shared, facts.hardware, asdict)}}
        words = json.dumps({name: v for name, v in whole.items() if v is not None}, sort_keys=True, default=str)
        own = {name: value for name, value in data.items() if value is not None}
        return Entry(_digest(words), own, shared)

    def _put(self, shared: dict[str, Any], value: Any, to_json: Callable[[Any], Any]) -> str:
        made, key = self._part(value, to_json)
        shared[key] = made
        return key

    def _part(self, value: Any, to_json: Callable[[Any], Any]) -> tuple[Any, str]:
        """The JSON of a part of facts and its digest."""
        known = self._parts.get(id(value))
        if known is None:
            made = to_json(value)
            known = self._parts[id(value)] = (value, (made, _digest(json.dumps(made, sort_keys=True, default=str))))
        return known[1]


def _digest(words: str) -> str:
    return hashlib.sha256(words.encode()).hexdigest()[:FACTS_DIGITS]


def with_shared(data: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The inverse of Entry: the facts of a footer's JSON by digest; raises what damaged JSON raises."""
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
