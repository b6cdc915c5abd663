"""JSON objects in a text: a file of one, an array, one a line, with lines of a log between, cut off at the end."""

from __future__ import annotations

import json
from typing import Any

MOST_OBJECTS = 10_000
MOST_FAULTS = 200  # a damaged file is not tried at every bracket
OPENINGS = ("{", "[")


def objects_of(text: str) -> tuple[list[dict[str, Any]], list[str]]:
    """The objects at the top, or within arrays at the top, and one line for what cannot be read."""
    found: list[dict[str, Any]] = []
    broken: list[str] = []
    decoder = json.JSONDecoder()
    position, length = 0, len(text)
    faults = 0
    while position < length and len(found) < MOST_OBJECTS and faults < MOST_FAULTS:
        start = _next(text, position)
        if start is None:
            break
        try:
            value, position = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            faults += 1
            if text[start] == "[":  # its objects one by one: an array that was never closed
                position = start + 1
                continue
            line = text.count("\n", 0, start) + 1
            broken.append(f"the result that begins in line {line:,} is cut off or no JSON: left out")
            position = _line_end(text, start)
            continue
        found.extend(one for one in (value if isinstance(value, list) else [value]) if isinstance(one, dict))
    return found[:MOST_OBJECTS], broken[:3]


def _next(text: str, position: int) -> int | None:
    """Where the next object or array begins that stands first in its line, or behind a comma or bracket."""
    while position < len(text):
        stripped = position
        while stripped < len(text) and text[stripped] in " \t\r\n,]":
            stripped += 1
        if stripped >= len(text):
            return None
        if text[stripped] in OPENINGS:
            return stripped
        position = _line_end(text, stripped)
    return None


def _line_end(text: str, position: int) -> int:
    end = text.find("\n", position)
    return len(text) if end < 0 else end + 1


def key_anywhere(data: Any, *names: str, depth: int = 6) -> Any:
    """The first value under one of ``names`` in nested objects, nearest to the top first; None without one."""
    level = [data]
    for _ in range(depth):
        nested: list[Any] = []
        for one in level:
            if isinstance(one, dict):
                for name in names:
                    if one.get(name) is not None:
                        return one[name]
                nested.extend(value for value in one.values() if isinstance(value, dict | list))
            elif isinstance(one, list):
                nested.extend(value for value in one[:50] if isinstance(value, dict | list))
        level = nested[:2000]
    return None


def table_at(data: Any, *path: str) -> dict[str, Any]:
    """The object at ``path``; an empty one where there is none."""
    for name in path:
        data = data.get(name) if isinstance(data, dict) else None
    return data if isinstance(data, dict) else {}
