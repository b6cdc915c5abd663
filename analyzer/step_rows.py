"""Some consecutive rows of a step table, their columns as floats."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from rooflens.records import StepKind, StepTable

MODELLED_KINDS = (StepKind.PREFILL, StepKind.DECODE, StepKind.MIXED, StepKind.VERIFY)
Column = NDArray[np.float64]
Known = NDArray[np.bool_] | np.bool_ | bool  # a mask of shape (rows,), or the same for all


class Rows:
    """Rows ``start`` to ``end`` (excluded) of ``table``; every column has the shape (rows,)."""

    def __init__(self, table: StepTable, start: int, end: int) -> None:
        self.table, self.start, self.end = table, start, end
        self._columns: dict[str, Column] = {}

    def __len__(self) -> int:
        return self.end - self.start

    def __getitem__(self, name: str) -> Column:
        """The column, known or not; KeyError where the table has none of that name. Not to be written to."""
        if name not in self._columns:
            self._columns[name] = self.table[name][self.start : self.end].astype(np.float64)
        return self._columns[name]

    def known(self, name: str) -> Known:
        """Where the column is known; True or False where that is everywhere or nowhere."""
        if name not in self.table.columns:
            return False
        mask = self.table.known.get(name)
        if mask is None:
            return True
        part: NDArray[np.bool_] = mask[self.start : self.end]
        return True if part.all() else part

    def filled(self, name: str, value: float) -> Column:
        """The column with ``value`` wherever it is not known."""
        if name not in self.table.columns:
            return np.full(len(self), value)
        known = self.known(name)
        return self[name] if known is True else np.where(known, self[name], value)

    @property
    def steps(self) -> Column | float:
        """How many engine steps each row stands for."""
        return self.filled("resolution_steps", 1.0) if "resolution_steps" in self.table.columns else 1.0

    @cached_property
    def passes(self) -> Column:
        """Forward passes of a row: a window row stands for several, a step without a token for none."""
        return np.where(self["query_tokens"] > 0, self.steps, 0.0)


def of_modelled_kind(table: StepTable, place: slice) -> NDArray[np.bool_]:
    """Which of some rows are of a kind that is modelled."""
    if "kind" not in table.columns:
        return np.ones(place.stop - place.start, dtype=bool)
    kinds = table["kind"][place]
    mask: NDArray[np.bool_] = (kinds >= MODELLED_KINDS[0]) & (kinds <= MODELLED_KINDS[-1])
    if (told := table.known.get("kind")) is not None:
        mask &= told[place]
    return mask
