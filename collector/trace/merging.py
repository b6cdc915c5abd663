"""Partials into cells: added in the order of the groups, folded together before they take much memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rooflens.collector.trace.duck import connected
from rooflens.collector.trace.partials import CELLS_SCHEMA, HISTOGRAM_SCHEMA, Partial, text
from rooflens.collector.trace.plausible import LEFT_OUT
from rooflens.trace_records import CELL_KEYS, CELL_SUMS, Cells, TraceFacts

FOLD_ROWS = 400_000  # of partials that wait: some 200 MB
BINS = "SELECT engine, kind, bin, CAST(sum(steps) AS BIGINT) AS steps FROM bins GROUP BY 1, 2, 3"


class Merger:
    """Takes partials in order; memory is that of the cells and of some partials more."""

    def __init__(self) -> None:
        """Empty."""
        self._waiting: list[pa.Table] = []
        self._bins: list[pa.Table] = []
        self._rows = 0
        self.problems: list[str] = []

    def add(self, partial: Partial) -> None:
        """The next one in the order of the groups."""
        self._waiting.append(partial.cells)
        self._bins.append(partial.histogram)
        self._rows += partial.cells.num_rows + partial.histogram.num_rows
        self.problems += partial.problems
        if self._rows > FOLD_ROWS:
            self._fold()
            # What is left are cells; wait for as many again, or each partial would fold all of them.
            self._rows = 0

    def _fold(self) -> None:
        connection = connected()
        try:
            if self._waiting:
                connection.register("parts", pa.concat_tables(self._waiting))
                merged = connection.sql(text("merge")).to_arrow_table()
                self._waiting = [merged.select(CELLS_SCHEMA.names).cast(CELLS_SCHEMA)]
            if self._bins:
                connection.register("bins", pa.concat_tables(self._bins))
                self._bins = [connection.sql(BINS).to_arrow_table().cast(HISTOGRAM_SCHEMA)]
        finally:
            connection.close()

    def cells(self, width_s: float, facts: Sequence[TraceFacts], files: int, problems: Sequence[str] = ()) -> Cells:
        """All of it, sorted by its keys; ``facts`` are those of each engine, in the order of their numbers."""
        self._fold()
        table = self._waiting[0] if self._waiting else CELLS_SCHEMA.empty_table()
        bins = self._bins[0] if self._bins else HISTOGRAM_SCHEMA.empty_table()
        untimed = table.column("window").null_count
        lines = [*problems, *self.problems]
        if untimed:
            table, left_out = _timed(table)
            lines.append(LEFT_OUT.format(left_out))
        table = table.sort_by([(name, "ascending") for name, _ in CELL_KEYS])
        bins = bins.sort_by([(name, "ascending") for name in ("engine", "kind", "bin")])
        columns: dict[str, NDArray[Any]] = {name: table.column(name).to_numpy() for name, _ in CELL_KEYS}
        for name, _ in CELL_SUMS:
            columns[name] = table.column(name).to_numpy(zero_copy_only=False).astype(np.float64, copy=False)
        return Cells(
            width_s=width_s,
            engines=tuple(each.label for each in facts),
            facts=tuple(facts),
            columns=columns,
            histogram={name: bins.column(name).to_numpy() for name in HISTOGRAM_SCHEMA.names},
            files=files,
            problems=tuple(lines),
        )


def _timed(table: pa.Table) -> tuple[pa.Table, int]:
    """The cells with a window, and the rows of those without."""
    known = table.column("window").is_valid()
    rows = table.filter(table.column("window").is_null()).column("rows")
    return table.filter(known), round(sum(rows.to_pylist()))
