"""The facts that an engine states of itself, checked before any of them is written."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import asdict, fields
from operator import index
from typing import Any

from rooflens.adapters.facts import plain, word
from rooflens.info_fields import fits
from rooflens.records import EngineInfo, KVGroup
from rooflens.ring_folder import host_name

LONGEST_FACT = 253  # characters: the longest name of a pod
MOST_RANK = 1 << 20
_ANNOTATIONS = {f.name: str(f.type) for f in fields(EngineInfo)}
FACTS_OF_ENGINE = frozenset(_ANNOTATIONS) - {"instance", "engine", "rank", "schema"}


def checked(engine: Any, rank: Any, facts: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """What may be written as fields of EngineInfo (without the instance), and what is wrong with the rest, in words."""
    kept: dict[str, Any] = {"engine": "unknown", "rank": 0}
    unknown = sorted(set(facts) - FACTS_OF_ENGINE)
    problems = []
    if unknown:
        problems.append(f"an engine has no fact {', '.join(map(repr, unknown))}; see the fields of records.EngineInfo")
    for name, value in {"engine": engine, "rank": rank, **facts}.items():
        if value is None or name in unknown:
            continue
        clean = _clean(name, value)
        if clean is None:
            # The value is not repeated: it may be what must not be told.
            problems.append(f"{name} is not of the type and size that records.EngineInfo states, or holds a path")
        else:
            kept[name] = clean
    kept.setdefault("start_unix_s", time.time())
    kept.setdefault("host", host_name())
    return kept, problems


def _clean(name: str, value: Any) -> Any:
    try:
        if name == "model_name":
            value = os.path.basename(os.fspath(value).rstrip("/"))
        clean = plain(dict(value)) if name == "model_config" else _plain_fact(value)
        fit = fits(name, _ANNOTATIONS[name], clean) and not (name == "rank" and clean > MOST_RANK)
    except Exception:  # an odd object may raise anything; it is no fact
        return None
    return clean if fit else None


def _plain_fact(value: Any) -> Any:
    """Words without paths, numbers of NumPy as Python's, groups as dicts; TypeError where a part is neither."""
    if isinstance(value, str):
        return word(value, LONGEST_FACT)
    if isinstance(value, bool | float):
        return value
    if isinstance(value, KVGroup):
        return _plain_fact(asdict(value))
    if isinstance(value, Mapping):
        return {str(key): None if part is None else _plain_fact(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain_fact(part) for part in value]
    return index(value)
