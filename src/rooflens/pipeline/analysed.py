"""The columns of an analysis, and the analysis of other steps made of such columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rooflens.model_records import StepAnalysis

Place = tuple[str, str]  # a field of StepAnalysis, and the name of the column in it where it holds several
NAMES = tuple(entry.name for entry in fields(StepAnalysis))


def columns_of(analysis: StepAnalysis) -> dict[Place, NDArray[Any]]:
    """Every column of an analysis, one row a step."""
    found: dict[Place, NDArray[Any]] = {}
    for name in NAMES:
        value = getattr(analysis, name)
        if isinstance(value, np.ndarray):
            found[name, ""] = value
        elif isinstance(value, Mapping):
            for column, values in value.items():
                found[name, column] = values
    return found


def with_columns(analysis: StepAnalysis, columns: Mapping[Place, NDArray[Any]]) -> StepAnalysis:
    """The analysis with these columns in the place of its own."""
    changes: dict[str, Any] = {}
    for (name, column), values in columns.items():
        if column:
            changes.setdefault(name, {})[column] = values
        else:
            changes[name] = values
    return replace(analysis, **changes)


def last_analysed(analysis: StepAnalysis | None, rows: int) -> StepAnalysis | None:
    """The analysis of the last ``rows`` steps."""
    if analysis is None or len(analysis.modelled) == rows:
        return analysis
    cut = slice(len(analysis.modelled) - rows, None)
    return with_columns(analysis, {place: column[cut] for place, column in columns_of(analysis).items()})
