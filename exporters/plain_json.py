"""Records as what JSON knows: dicts, lists, words, finite numbers and null."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum, IntEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rooflens.records import StepTable

MOST_TEXT_CHARACTERS = 500  # what somebody else's program states is shown, not relayed at any length


def plain(value: Any) -> Any:
    """``value`` as JSON has it: a record as a dict by field name, an enum as its word, a number not finite as None."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, Enum):
        return word(value)
    if isinstance(value, str):
        return value if len(value) <= MOST_TEXT_CHARACTERS else f"{value[:MOST_TEXT_CHARACTERS]}..."
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(plain(key)): plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    return plain(value.item())  # a scalar of NumPy


def word(value: Enum) -> str:
    """An enum's word: the value of a named one, the name of a numbered one in lower case."""
    return value.name.lower() if isinstance(value, IntEnum) else str(value.value)


def words(kinds: type[IntEnum], numbers: list[Any]) -> list[Any]:
    """Numbers of an enum as its words; None stays, and a number that the enum does not know becomes None."""
    names = {int(kind): word(kind) for kind in kinds}
    return [names.get(number) for number in numbers]


def column(table: StepTable, name: str, last: int) -> list[Any]:
    """The last ``last`` values of a column of steps, None where a value is not known."""
    values = table[name][-last:].tolist()
    mask = table.known.get(name)
    known = [True] * len(values) if mask is None else mask[-last:].tolist()
    return [plain(value) if is_known else None for value, is_known in zip(values, known, strict=True)]
