"""The body of a push: bytes into plain values, and the fields that it must have; docs/push.md is the format."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

VERSION = 1
INSTANCE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
MOST_STEPS = 4096  # of one body
MOST_EVENTS = 256
MOST_SEQUENCE = 1 << 53  # what every language's numbers hold
MOST_SECONDS = 4e9  # of a clock: a hundred and twenty years
FIELDS = frozenset(
    ("version", "instance", "engine", "sent_s", "facts", "steps", "events", "in_flight", "lost_steps",
     "first_sequence", "ended")
)  # fmt: skip
MISSING = "msgpack is not read here: install rooflens[feeds] where the sidecar runs, or send application/json"


class RefusedError(Exception):
    """A body that is not taken: an HTTP status, and in one line why and what to do."""

    def __init__(self, status: int, line: str) -> None:
        super().__init__(line)
        self.status = status


@dataclass(frozen=True, slots=True)
class Body:
    """A body whose outer fields are as they must be; what is in its lists is still anybody's word.

    Times in seconds of the sender's clock; ``first_sequence`` is None where the sender does not number; ``odd`` are
    names of fields that this version does not know.
    """

    instance: str
    engine: str | None
    sent_s: float
    facts: Mapping[str, Any] | None
    steps: list[Any]
    events: list[Any]
    in_flight: Mapping[str, Any] | None
    lost_steps: int
    first_sequence: int | None
    ended: bool
    odd: tuple[str, ...] = ()


def decoded(raw: bytes, media_type: str) -> Any:
    """The values of a body; RefusedError where it is none. ``media_type`` is without parameters, in lower case."""
    if media_type == "application/json":
        return _json(raw)
    if media_type in ("application/msgpack", "application/x-msgpack", "application/vnd.msgpack"):
        return _msgpack(raw)
    raise RefusedError(415, "the body is neither application/json nor application/msgpack: name one as Content-Type")


def _json(raw: bytes) -> Any:
    try:
        return json.loads(raw, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError among them
        why = "it is nested too deep" if isinstance(error, RecursionError) else _short(error)
        raise RefusedError(422, f"the body is no JSON ({why}): send one object, see docs/push.md") from None


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number of JSON")


def _msgpack(raw: bytes) -> Any:
    try:
        import msgspec
    except ImportError:
        raise RefusedError(415, MISSING) from None
    try:
        return msgspec.msgpack.decode(raw)
    except (msgspec.MsgspecError, ValueError, TypeError, RecursionError, OverflowError, MemoryError) as error:
        raise RefusedError(422, f"the body is no msgpack ({_short(error)}): send one map, see docs/push.md") from None


def body_of(found: Any) -> Body:
    """The checked outer fields; RefusedError (422) names the first that is wrong."""
    if not isinstance(found, dict):
        raise RefusedError(422, 'the body is no object: send {"version":1,...}, see docs/push.md')
    if found.get("version") != VERSION or isinstance(found["version"], bool):
        raise RefusedError(422, f"the body's version is not {VERSION}, the only one read here: upgrade the older side")
    instance = found.get("instance")
    if not isinstance(instance, str) or not INSTANCE.fullmatch(instance):
        raise RefusedError(422, "instance is no word of 1 to 64 letters, digits, dots, dashes: choose one for each run")
    engine, facts, in_flight = found.get("engine"), found.get("facts"), found.get("in_flight")
    if engine is not None and not isinstance(engine, str):
        raise RefusedError(422, "engine is no text: give the engine's name")
    for name, value in (("facts", facts), ("in_flight", in_flight)):
        if value is not None and not isinstance(value, dict):
            raise RefusedError(422, f"{name} is no object: see docs/push.md")
    ended = found.get("ended", False)
    if not isinstance(ended, bool | None):
        raise RefusedError(422, "ended is neither true nor false")
    return Body(
        instance=instance,
        engine=engine,
        sent_s=seconds(found.get("sent_s"), "sent_s"),
        facts=facts,
        steps=_list(found, "steps", MOST_STEPS),
        events=_list(found, "events", MOST_EVENTS),
        in_flight=in_flight,
        lost_steps=_count(found, "lost_steps", 0) or 0,
        first_sequence=_count(found, "first_sequence", 1),
        ended=bool(ended),
        odd=tuple(sorted(repr(name)[:40] for name in found if name not in FIELDS)[:4]),
    )


def seconds(value: Any, name: str) -> float:
    """A moment of the sender's clock; RefusedError (422) for anything else."""
    fits = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= MOST_SECONDS
    if not fits or not math.isfinite(value):
        raise RefusedError(422, f"{name} is no time: give seconds of a monotonic clock, from 0 to {MOST_SECONDS:.0f}")
    return float(value)


def _list(found: Mapping[str, Any], name: str, most: int) -> list[Any]:
    value = found.get(name)
    if value is None:
        return []
    if not isinstance(value, list):
        raise RefusedError(422, f"{name} is no list")
    if len(value) > most:
        raise RefusedError(422, f"{name} has {len(value)} entries, more than {most}: send them in several bodies")
    return value


def _count(found: Mapping[str, Any], name: str, least: int) -> int | None:
    value = found.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= MOST_SEQUENCE:
        raise RefusedError(422, f"{name} is no whole number from {least} on")
    return value


def _short(error: Exception) -> str:
    return plain_line(str(error), 120)


def plain_line(text: str, most: int) -> str:
    """``text`` in one line that a terminal does not obey, cut to ``most`` characters."""
    line = "".join(char if char.isprintable() else " " for char in text)
    return line if len(line) <= most else line[: most - 3] + "..."
