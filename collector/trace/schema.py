"""Steps with their bounds as Arrow tables, and back; the one place that knows both sides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rooflens.model_records import StepAnalysis
from rooflens.records import SPANNED_COLUMNS, STEP_COLUMNS, StepTable, column_kind
from rooflens.trace_records import KEY_COLUMNS, KEYFRAME_COLUMNS, ROOF_COLUMNS, TraceRows

ARROW_TYPES: Mapping[str, pa.DataType] = {
    "string": pa.string(),
    "int8": pa.int8(),
    "double": pa.float64(),
    "list<int32>": pa.list_(pa.int32()),
}
OF_KIND = {"i": pa.int64(), "f": pa.float64()}


def step_schema(spanned: tuple[str, ...] = ()) -> pa.Schema:
    """The columns of a file of steps, in order; ``spanned`` are those over spans that it has beside."""
    fields = [pa.field(name, ARROW_TYPES[kind], nullable=False) for name, kind, _ in KEY_COLUMNS]
    fields += [pa.field(name, OF_KIND[kind]) for name, kind, _ in STEP_COLUMNS]
    fields += [pa.field(name, OF_KIND[column_kind(name)]) for name in spanned]
    fields += [pa.field(name, ARROW_TYPES[kind]) for name, kind, _ in (*ROOF_COLUMNS, *KEYFRAME_COLUMNS)]
    return pa.schema(fields)


def to_arrow(rows: TraceRows) -> pa.Table:
    """The steps as a table of step_schema; what is not known is null."""
    steps, count = rows.steps, len(rows.steps)
    spanned = tuple(name for name in steps.columns if name.partition("@")[0] in SPANNED_COLUMNS and "@" in name)
    schema = step_schema(spanned)
    names = {"facts": rows.facts.digest, "run": rows.facts.run}
    columns: dict[str, pa.Array] = {name: pa.array([text] * count, pa.string()) for name, text in names.items()}
    for name in (*(name for name, _, _ in STEP_COLUMNS), *spanned):
        columns[name] = _column(steps, name, schema.field(name).type)
    columns |= _bounds(rows.analysis, count)
    for at, (name, kind, _) in enumerate(KEYFRAME_COLUMNS):
        values = [rows.keyframes[row][at] if row in rows.keyframes else None for row in range(count)]
        columns[name] = pa.array(values, ARROW_TYPES[kind])
    return pa.table([columns[field.name] for field in schema], schema=schema)


def _column(steps: StepTable, name: str, kind: pa.DataType) -> pa.Array:
    if name not in steps.columns:
        return pa.nulls(len(steps), kind)
    return pa.array(steps[name], kind, mask=~steps.where(name))


def _bounds(analysis: StepAnalysis | None, count: int) -> dict[str, pa.Array]:
    """The roof's columns: null where a step is not modelled, or a value is not known."""
    found = {}
    for name, kind, _ in ROOF_COLUMNS:
        values: NDArray[Any] | None = None if analysis is None else getattr(analysis, name)
        if values is None or analysis is None or (name == "mfu" and not analysis.compute_known):
            found[name] = pa.nulls(count, ARROW_TYPES[kind])
            continue
        missing = ~analysis.modelled if kind == "int8" else ~analysis.modelled | ~np.isfinite(values)
        found[name] = pa.array(values, ARROW_TYPES[kind], mask=missing)
    return found


def steps_of(table: pa.Table) -> StepTable:
    """The steps of a table with columns of step_schema, some or all; a column that is null throughout is absent, but
    for ``kind``, which is then unknown for every step.

    Rows of an older or newer schema give the columns that are known here.
    """
    columns: dict[str, NDArray[Any]] = {}
    known: dict[str, NDArray[np.bool_]] = {}
    for name in table.column_names:
        try:
            kind = column_kind(name)
        except KeyError:
            continue
        chunk = table.column(name)
        if chunk.null_count == len(chunk) and len(chunk) and name != "kind":
            continue
        columns[name], mask = numbers(chunk, np.int64 if kind == "i" else np.float64)
        if mask is not None:
            known[name] = mask
    return StepTable(columns, known)


def numbers(
    chunk: pa.ChunkedArray, kind: type[np.int64 | np.float64 | np.int8]
) -> tuple[NDArray[Any], NDArray[np.bool_] | None]:
    """The values, 0 for null, and which are known, None where all are; both of shape (rows,)."""
    if not chunk.null_count:
        return chunk.to_numpy().astype(kind, copy=False), None
    mask = chunk.is_valid().to_numpy()
    return chunk.fill_null(0).to_numpy().astype(kind, copy=False), mask


def keyframes_of(table: pa.Table) -> dict[int, tuple[list[int], list[int]]]:
    """The keyframes of a table by row."""
    contexts, queries = (table.column(name) for name, _, _ in KEYFRAME_COLUMNS)
    rows = np.flatnonzero(contexts.is_valid().to_numpy() & queries.is_valid().to_numpy()).tolist()
    return {row: (contexts[row].as_py(), queries[row].as_py()) for row in rows}
