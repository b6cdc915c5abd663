"""JSON that a person, a disk or another release may have changed."""

from __future__ import annotations

import json
from typing import Any, NoReturn


def values(words: bytes) -> Any:
    """What the JSON holds; ValueError for what is none, or holds a number that is none."""
    try:
        return json.loads(words, parse_constant=_no_number)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"it holds {name} where a number belongs")
