"""Lines for a terminal, and words in them that came from somebody else."""

from __future__ import annotations

import textwrap
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rooflens.cli.output import one_line

Json = Mapping[str, Any]

INDENT = "  "


@dataclass(frozen=True, slots=True)
class Line:
    """One line without control characters; ``style`` is a severity, ``head``, or empty."""

    text: str
    style: str = ""


def cut(text: str, width: int) -> str:
    """As much of ``text`` as fits into ``width`` columns of a terminal, where some letters take two."""
    used = 0
    for at, letter in enumerate(text):
        used += 0 if unicodedata.combining(letter) else 2 if unicodedata.east_asian_width(letter) in "WF" else 1
        if used > width:
            return text[:at]
    return text


def word(value: object) -> str:
    """``value`` as words on one line, whatever an engine may call itself; a dash for None."""
    return "-" if value is None else one_line(str(value))


def wrapped(prefix: str, value: object, width: int, style: str = "") -> list[Line]:
    """``value`` as words under one another after ``prefix``."""
    room = max(20, width - len(prefix))
    pieces = textwrap.wrap(word(value), room) or [""]
    return [Line((prefix if not at else " " * len(prefix)) + piece, style) for at, piece in enumerate(pieces)]
