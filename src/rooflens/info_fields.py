"""Whether a value is what a field of EngineInfo says: what a ring states was written by anybody's program."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

MOST = 1 << 48  # of any count: beyond it arithmetic in 64 bits is not safe
MOST_DEVICES = 1 << 20
MOST_DEPTH = 32  # of objects in objects; a model's config has some six
LAST_UNIX_S = 253_402_300_799.0  # the end of the year 9999, which a calendar still knows


def fits(name: str, annotation: str, value: Any) -> bool:
    """Whether ``value`` has the annotated type, in JSON's terms, and a size that can be."""
    if value is None:
        return annotation.endswith("| None")
    if not _TESTS[annotation.removesuffix(" | None")](value):
        return False
    if name == "start_unix_s":
        return bool(0 <= value <= LAST_UNIX_S)
    if name.endswith("_parallel") and not isinstance(value, bool):
        return bool(1 <= value <= MOST_DEVICES)
    return name != "block_tokens" or value >= 1


def unread_text(names: tuple[str, ...]) -> str | None:
    """What to say of facts whose values cannot be, None where there are none."""
    if not names:
        return None
    return f"the engine's facts give values that cannot be, taken as not stated: {', '.join(names)}"


def _shallow(value: Any) -> bool:
    """Whether ``value`` is an object whose parts lie in each other no deeper than MOST_DEPTH: all can be copied."""
    level: list[Any] = [value] if isinstance(value, Mapping) else []
    for _ in range(MOST_DEPTH):
        parts = [inner for part in level for inner in (part.values() if isinstance(part, Mapping) else part)]
        level = [part for part in parts if isinstance(part, Mapping | list | tuple)]
    return isinstance(value, Mapping) and not level


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= MOST


def _all(test: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list | tuple) and all(map(test, value))


def _group(value: Any) -> bool:
    if not isinstance(value, Mapping) or not _text(value.get("kind")):
        return False
    window = value.get("window_tokens")
    return _count(value.get("layers")) and _count(value.get("block_tokens")) and (window is None or _count(window))


_TESTS: Mapping[str, Callable[[Any], bool]] = {
    "str": _text,
    "int": _count,
    "float": _number,
    "bool": lambda value: isinstance(value, bool),
    "Mapping[str, Any]": _shallow,
    "tuple[int, ...]": _all(_count),
    "tuple[str, ...]": _all(_text),
    "tuple[KVGroup, ...]": _all(_group),
}
