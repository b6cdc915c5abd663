"""What leaves the command line: JSON that any reader takes, and text that no terminal obeys."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any


def json_text(data: Any) -> str:
    """``data`` as one line of JSON; an infinity or NaN, which JSON does not have, is null."""
    return json.dumps(_finite(data), allow_nan=False)


def _finite(data: Any) -> Any:
    if isinstance(data, float):
        return data if math.isfinite(data) else None
    if isinstance(data, Mapping):
        return {key: _finite(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_finite(value) for value in data]
    return data


def one_line(text: str) -> str:
    """``text`` with a question mark for every control character, ends of lines too: a file's name may hold any."""
    return printable(text).replace("\n", "?")


def printable(text: str) -> str:
    """``text`` with a question mark for every control character but the end of a line: a ring may hold any word."""
    return "".join(char if char.isprintable() or char == "\n" else "?" for char in text)
