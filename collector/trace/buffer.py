"""Rows on their way to a file: packed small as they come, made a table once a minute."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rooflens.collector.trace.arrays import lists_array, named_array, numbers_array
from rooflens.collector.trace.schema import step_schema
from rooflens.model_records import StepAnalysis
from rooflens.records import SPANNED_COLUMNS, STEP_COLUMNS, StepTable
from rooflens.trace_records import KEYFRAME_COLUMNS, ROOF_COLUMNS, TraceFacts, TraceRows

COUNTS = tuple(name for name, kind, _ in STEP_COLUMNS if kind == "i")
TIMES = tuple(name for name, kind, _ in STEP_COLUMNS if kind == "f")
BOUNDS = tuple(name for name, kind, _ in ROOF_COLUMNS if kind == "double")
BOUND = "bound"
ROW_BYTES = 9 * (len(COUNTS) + 1) + 8 * (len(TIMES) + len(BOUNDS))  # as it is packed: a value and whether it is known
# Grids on which a value is stored, so that the noise below what was measured takes no room. A time within half of
# GRID_S is one number of whole nanoseconds, which is what clocks tell. A bound has the digits of a single-precision
# number, far more than the model is worth.
GRID_S = 2.0**-30
COARSE_S = 2.0**22  # from here on a double is no finer than the grid
BOUND_BITS = 24
HOUR_S = 3600
LATEST_UNIX_S = 253_402_300_800.0  # year 10000, which has no name of a folder


@dataclass(frozen=True, slots=True)
class Part:
    """Some steps of one engine, packed, all of one hour.

    ``counts`` has the shape (columns, rows): COUNTS, BOUND, then ``spanned``; ``known`` says where they mean something.
    ``times`` are TIMES, then BOUNDS; NaN where not known. ``keyframes`` are (row, contexts, queries).
    """

    facts: TraceFacts
    digest: str
    spanned: tuple[str, ...]
    counts: NDArray[np.int64]
    known: NDArray[np.bool_]
    times: NDArray[np.float64]
    keyframes: tuple[tuple[int, NDArray[np.int32], NDArray[np.int32]], ...]
    arrived_monotonic_s: float
    weight_bytes: int

    def __len__(self) -> int:
        return int(self.counts.shape[1])

    @property
    def sequences(self) -> tuple[int, int]:
        """The first and the last."""
        column = self.counts[0]
        return int(column.min()), int(column.max())


def packed(rows: TraceRows, digest: str, arrived_monotonic_s: float, weight_bytes: int) -> Part:
    """The rows without what they are views of."""
    steps, count = rows.steps, len(rows.steps)
    spanned = tuple(name for name in steps.columns if name.partition("@")[0] in SPANNED_COLUMNS and "@" in name)
    counts = np.zeros((len(COUNTS) + 1 + len(spanned), count), np.int64)
    known = np.zeros(counts.shape, np.bool_)
    times = np.full((len(TIMES) + len(BOUNDS), count), np.nan)
    _fill_counts(steps, (*COUNTS, "", *spanned), counts, known)
    for at, name in enumerate(TIMES):
        if (column := steps.columns.get(name)) is not None:
            mask = steps.known.get(name)
            times[at] = column if mask is None else np.where(mask, column, np.nan)
    if rows.analysis is not None:
        _fill_bounds(rows.analysis, counts[len(COUNTS)], known[len(COUNTS)], times[len(TIMES) :])
    keyframes = tuple(
        (row, np.asarray(rows.keyframes[row][0], np.int32), np.asarray(rows.keyframes[row][1], np.int32))
        for row in sorted(rows.keyframes)
        if 0 <= row < count
    )
    return Part(rows.facts, digest, spanned, counts, known, times, keyframes, arrived_monotonic_s, weight_bytes)


def _fill_counts(steps: StepTable, names: Sequence[str], counts: NDArray[np.int64], known: NDArray[np.bool_]) -> None:
    columns, masks = steps.columns, steps.known
    for at, name in enumerate(names):
        if (column := columns.get(name)) is not None:
            counts[at] = column
            mask = masks.get(name)
            known[at] = True if mask is None else mask


def _fill_bounds(
    analysis: StepAnalysis, bound: NDArray[np.int64], known: NDArray[np.bool_], bounds: NDArray[np.float64]
) -> None:
    known[:] = analysis.modelled
    bound[:] = analysis.bound
    for at, name in enumerate(BOUNDS):
        values = getattr(analysis, name)
        if values is not None and (name != "mfu" or analysis.compute_known):
            bounds[at] = values
    if not known.all():
        bounds[:, ~known] = np.nan
    bounds[~np.isfinite(bounds)] = np.nan


def hours_of(part: Part, now_unix_s: float) -> dict[int, Part]:
    """The part by the hour of its rows, counted from 1970 in UTC; a row without a time is of now."""
    unix_s = part.times[TIMES.index("unix_s")]
    valid = (unix_s >= 0) & (unix_s < LATEST_UNIX_S)
    hours = np.floor_divide(np.where(valid, unix_s, now_unix_s), HOUR_S).astype(np.int64)
    if len(part) and hours.min() == hours.max():
        return {int(hours[0]): part}
    found = {}
    for hour in np.unique(hours).tolist():
        rows = np.flatnonzero(hours == hour)
        at = {row: place for place, row in enumerate(rows.tolist())}
        found[hour] = replace(
            part,
            counts=part.counts[:, rows],
            known=part.known[:, rows],
            times=part.times[:, rows],
            keyframes=tuple((at[row], contexts, queries) for row, contexts, queries in part.keyframes if row in at),
            weight_bytes=part.weight_bytes * len(rows) // len(part),
        )
    return found


def steps_table(parts: Sequence[Part]) -> pa.Table:
    """All of them as one table of schema.step_schema, sorted by facts and sequence."""
    ordered = sorted(parts, key=lambda part: (part.digest, part.counts[0, 0]))
    alike: dict[tuple[str, ...], list[Part]] = {}
    for part in ordered:
        alike.setdefault(part.spanned, []).append(part)
    tables = [_table(group, spanned) for spanned, group in alike.items()]
    if len(tables) == 1:
        return tables[0]
    names = tuple(dict.fromkeys(name for spanned in alike for name in spanned))
    whole = pa.concat_tables(tables, promote_options="default").select(step_schema(names).names).unify_dictionaries()
    facts = np.array(whole.column("facts").to_pylist())
    return whole.take(np.lexsort((whole.column("sequence").to_numpy(), facts)))


def _table(parts: Sequence[Part], spanned: tuple[str, ...]) -> pa.Table:
    lengths = np.array([len(part) for part in parts])
    counts = np.concatenate([part.counts for part in parts], axis=1)
    known = np.concatenate([part.known for part in parts], axis=1)
    times = np.concatenate([part.times for part in parts], axis=1)
    digests = list(dict.fromkeys(part.digest for part in parts))
    rank = {digest: at for at, digest in enumerate(digests)}
    facts = np.repeat(np.array([rank[part.digest] for part in parts], np.int32), lengths)
    begins = np.cumsum(lengths) - lengths
    frames = {
        int(begin) + row: (contexts, queries)
        for begin, part in zip(begins, parts, strict=True)
        for row, contexts, queries in part.keyframes
    }
    if np.any((np.diff(facts) == 0) & (np.diff(counts[0]) <= 0)):
        order = np.lexsort((counts[0], facts))
        counts, known, times, facts = counts[:, order], known[:, order], times[:, order], facts[order]
        moved = np.empty(len(order), np.int64)
        moved[order] = np.arange(len(order))
        frames = {int(moved[row]): frame for row, frame in frames.items()}
    names = {part.digest: part.facts.run for part in parts}
    runs = {run: at for at, run in enumerate(dict.fromkeys(names.values()))}
    run_of = np.array([runs[names[digest]] for digest in digests], np.int32)
    columns = {
        "facts": named_array(facts, digests),
        "run": named_array(run_of[facts], list(runs)),
        **_count_columns(counts, known, spanned),
        **_time_columns(times),
        **_keyframe_columns(frames, len(facts)),
    }
    schema = step_schema(spanned)
    fields = [pa.field(field.name, columns[field.name].type, field.nullable) for field in schema]
    return pa.table([columns[field.name] for field in schema], schema=pa.schema(fields))


def _count_columns(
    counts: NDArray[np.int64], known: NDArray[np.bool_], spanned: tuple[str, ...]
) -> Mapping[str, pa.Array]:
    found = {}
    for at, name in enumerate((*COUNTS, BOUND, *spanned)):
        values = counts[at].astype(np.int8) if name == BOUND else counts[at]
        found[name] = numbers_array(values, known[at])
    return found


def _time_columns(times: NDArray[np.float64]) -> Mapping[str, pa.Array]:
    own, bounds = times[: len(TIMES)], times[len(TIMES) :]
    found = {}
    for name, values in zip(TIMES, own, strict=True):
        fine = np.abs(values) >= COARSE_S if name != "distinct_experts" else True
        stored = np.where(fine, values, np.round(np.where(fine, 0.0, values) / GRID_S) * GRID_S)
        found[name] = numbers_array(stored, ~np.isnan(stored))
    for name, values in zip(BOUNDS, bounds, strict=True):
        fractions, exponents = np.frexp(values)
        stored = np.ldexp(np.round(fractions * 2.0**BOUND_BITS), exponents - BOUND_BITS)
        found[name] = numbers_array(stored, ~np.isnan(stored))
    return found


def _keyframe_columns(
    frames: Mapping[int, tuple[NDArray[np.int32], NDArray[np.int32]]], count: int
) -> Mapping[str, pa.Array]:
    found: dict[str, Any] = {}
    rows = sorted(frames)
    present = np.zeros(count, np.bool_)
    present[rows] = True
    for at, (name, _, _) in enumerate(KEYFRAME_COLUMNS):
        lengths = np.zeros(count, np.int64)
        lengths[rows] = [len(frames[row][at]) for row in rows]
        values = np.concatenate([frames[row][at] for row in rows]) if rows else np.empty(0, np.int32)
        found[name] = lists_array(numbers_array(values), lengths.tolist(), present)
    return found
