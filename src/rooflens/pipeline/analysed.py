"""The analysis of some steps out of that of more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

import numpy as np

from rooflens.model_records import StepAnalysis


def last_analysed(analysis: StepAnalysis | None, rows: int) -> StepAnalysis | None:
    """The analysis of the last ``rows`` steps."""
    if analysis is None or len(analysis.modelled) == rows:
        return analysis
    cut = slice(len(analysis.modelled) - rows, None)
    columns: dict[str, Any] = {}
    for entry in fields(analysis):
        value = getattr(analysis, entry.name)
        if isinstance(value, np.ndarray):
            columns[entry.name] = value[cut]
        elif isinstance(value, Mapping):
            columns[entry.name] = {name: column[cut] for name, column in value.items()}
    return replace(analysis, **columns)
