"""Step tables put one after the other, with what is not known kept apart from what is."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rooflens.records import COLUMN_KINDS, StepTable, column_kind


@cache
def empty_table() -> StepTable:
    """No steps, every column known; the same each time."""
    return StepTable(
        {name: np.empty(0, np.int64 if kind == "i" else np.float64) for name, kind in COLUMN_KINDS.items()}
    )


def concatenated(tables: Sequence[StepTable]) -> StepTable:
    """All rows in order; a column that one of the tables lacks is not known for its rows."""
    parts = [table for table in tables if len(table)]
    if len(parts) <= 1:
        return parts[0] if parts else tables[0] if tables else empty_table()
    columns: dict[str, NDArray[Any]] = {}
    known: dict[str, NDArray[np.bool_]] = {}
    for name in dict.fromkeys(name for table in parts for name in table.columns):
        everywhere = all(name in table.columns for table in parts)
        columns[name] = np.concatenate(
            [t.columns[name] if name in t.columns else np.zeros(len(t), _type_of(name)) for t in parts]
        )
        if not everywhere or any(name in table.known for table in parts):
            known[name] = np.concatenate([table.where(name) for table in parts])
    return StepTable(columns, known)


def _type_of(name: str) -> type[np.generic]:
    return np.int64 if column_kind(name) == "i" else np.float64
