"""The last steps of an engine with their analysis; what one turn adds is analysed alone where that is the same."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from rooflens.collector.windows import last_rows
from rooflens.model_records import StepAnalysis
from rooflens.pipeline.analysed import Place, columns_of, last_analysed, with_columns
from rooflens.records import StepTable

SPARE_ROWS = 64  # behind the last one; once they are used, the rows are copied to another place
Analyse = Callable[[StepTable], StepAnalysis | None]
StandAlone = Callable[[StepTable], bool]
Column = NDArray[Any]
Name = TypeVar("Name", bound=Hashable)


class GrowingColumns(Generic[Name]):
    """The last ``most`` rows of columns of equal length. What was handed out stays as it was when rows are added."""

    def __init__(self, columns: Mapping[Name, Column], most: int) -> None:
        self._most = most
        self._names = list(columns)
        self._types = [column.dtype for column in columns.values()]
        self._move([column[-most:] for column in columns.values()])

    def add(self, columns: Mapping[Name, Column]) -> bool:
        """Put rows behind the last ones; False, and nothing done, where these are other columns or too many rows."""
        values = list(columns.values())
        if list(columns) != self._names or [column.dtype for column in values] != self._types:
            return False
        rows = len(values[0]) if values else 0
        if rows > SPARE_ROWS:
            return False
        if self._end + rows > self._room:
            self._move(self._last(self._most))
        place = slice(self._end, self._end + rows)
        for kept, column in zip(self._kept, values, strict=True):
            kept[place] = column
        self._end += rows
        return True

    def last(self, rows: int) -> dict[Name, Column]:
        """The last rows, at most as many as there are."""
        return dict(zip(self._names, self._last(rows), strict=True))

    def _last(self, rows: int) -> list[Column]:
        place = slice(max(0, self._end - min(rows, self._most)), self._end)
        return [kept[place] for kept in self._kept]

    def _move(self, columns: Sequence[Column]) -> None:
        self._end = len(columns[0]) if columns else 0
        self._room = self._end + SPARE_ROWS
        self._kept: list[Column] = [np.empty(self._room, kind) for kind in self._types]
        for kept, column in zip(self._kept, columns, strict=True):
            kept[: self._end] = column


class RecentSteps:
    """``steps`` are the last ones, at most ``most``; ``analysis`` is theirs row by row, None where there is none."""

    def __init__(self, before: StepTable, most: int) -> None:
        self._most = most
        self.steps = last_rows([before], most)
        self.analysis: StepAnalysis | None = None
        self._columns, self._masks = self._growing()
        self._bounds: GrowingColumns[Place] | None = None  # of the analysis, once a part of it was added alone
        self._stand_alone = False  # of the last ones

    def add(self, steps: StepTable, analyse: Analyse, stand_alone: StandAlone) -> StepAnalysis | None:
        """Put steps behind the last ones; their analysis, as if the last ones were analysed together with them.

        Only the new ones are where ``stand_alone`` says of them, and of those before, that this is the same.
        """
        count, rows, before = len(steps), self._alike(steps), self.analysis
        stood_alone, self._stand_alone = self._stand_alone, stand_alone(steps if rows is None else rows)
        fits = rows is not None and count < self._most
        if rows is None or not (fits and self._columns.add(rows.columns) and self._masks.add(rows.known)):
            both = last_rows([self.steps, steps], max(self._most, count))
            found = analyse(both)
            self.steps, self.analysis = last_rows([both], self._most), last_analysed(found, min(len(both), self._most))
            self._columns, self._masks = self._growing()
            self._bounds = None
            return last_analysed(found, count)
        self.steps = StepTable(self._columns.last(self._most), self._masks.last(self._most))
        if before is not None and stood_alone and self._stand_alone:
            found = analyse(rows)
            bounds = self._bounds or GrowingColumns(columns_of(before), self._most)
            if found is not None and found.notes == before.notes and bounds.add(columns_of(found)):
                self.analysis, self._bounds = with_columns(found, bounds.last(self._most)), bounds
                return found
        self.analysis, self._bounds = analyse(self.steps), None
        return last_analysed(self.analysis, count)

    def analyse_anew(self, analyse: Analyse) -> None:
        """Analyse all of them: the engine's facts are others now."""
        self.analysis, self._bounds, self._stand_alone = analyse(self.steps), None, False

    def _growing(self) -> tuple[GrowingColumns[str], GrowingColumns[str]]:
        return GrowingColumns(self.steps.columns, self._most), GrowingColumns(self.steps.known, self._most)

    def _alike(self, steps: StepTable) -> StepTable | None:
        """The new steps with the columns and masks of those before; None where these lack one that is needed."""
        columns, known = self.steps.columns, self.steps.known
        if not steps.known and not known and list(steps.columns) == list(columns):
            return steps
        missing = columns.keys() - steps.columns.keys()
        if not (steps.columns.keys() <= columns.keys() and steps.known.keys() | missing <= known.keys()):
            return None
        filled = {name: np.zeros(len(steps), columns[name].dtype) for name in missing}
        return StepTable(
            {name: filled[name] if name in filled else steps.columns[name] for name in columns},
            {name: steps.where(name) for name in known},
        )
