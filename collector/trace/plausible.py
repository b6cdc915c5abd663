"""What the rows of a file of steps can be: the types of their columns, their wall times, and numbers that are some."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from rooflens.collector.trace.condition import COLUMN_TYPES, quoted
from rooflens.collector.trace.file import Footer
from rooflens.collector.trace.listing import HOUR_S, Listed

NEEDED = ("facts", "run", "sequence", "unix_s")
FIRST_UNIX_S, LAST_UNIX_S = 946_684_800.0, 4_102_444_800.0  # the years 2000 to 2100
SLACK_S = 86_400.0  # by which a wall time may lie out of the hour that the folders of its file name
LEFT_OUT = "{} rows have no wall time, or one far from the hour of their file: left out"
Bounds = tuple[float, float]


def fault_of(schema: pa.Schema) -> str | None:
    """Why the columns of a file are not those of steps, in a few words; None where they are.

    Integers may have any width, and stand where floats are expected. Columns that are not known here may be anything.
    """
    names = schema.names
    missing = sorted(set(NEEDED) - set(names))
    if missing:
        return f"no steps of a trace: it has no column {', '.join(missing)}"
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        return f"no steps of a trace: it has column {twice[0]} more than once"
    for field in schema:
        wanted = COLUMN_TYPES.get(field.name)
        if wanted is not None and not _fits(field.type, wanted):
            return f"no steps of a trace: its column {field.name} is {field.type}, not {wanted.lower()}"
    return None


def _fits(kind: pa.DataType, wanted: str) -> bool:
    if pa.types.is_null(kind):
        return True
    if wanted == "VARCHAR":
        inner = kind.value_type if pa.types.is_dictionary(kind) else kind
        return bool(pa.types.is_string(inner) or pa.types.is_large_string(inner) or pa.types.is_string_view(inner))
    if wanted == "INTEGER[]":
        return bool((pa.types.is_list(kind) or pa.types.is_large_list(kind)) and pa.types.is_integer(kind.value_type))
    return bool(pa.types.is_integer(kind) or (wanted == "DOUBLE" and pa.types.is_floating(kind)))


def bounds_of(urls: Iterable[str]) -> Bounds:
    """(from, to), both included: where the wall times of rows in these files can lie, in Unix seconds."""
    hours = [Listed(url).hour_unix_s() for url in urls]
    if not hours or None in hours:
        return FIRST_UNIX_S, LAST_UNIX_S
    known = [hour for hour in hours if hour is not None]
    return max(FIRST_UNIX_S, min(known) - SLACK_S), min(LAST_UNIX_S, max(known) + HOUR_S + SLACK_S)


def with_times(footer: Footer) -> Footer:
    """The footer, with the ends of its hour, or None, for times that cannot be."""
    first, last = bounds_of([footer.path])
    hour = Listed(footer.path).hour_unix_s()

    def sound(told: float | None, instead: float | None) -> float | None:
        return told if told is None or first <= told <= last else instead

    begin, end = sound(footer.first_unix_s, hour), sound(footer.last_unix_s, None if hour is None else hour + HOUR_S)
    if (begin, end) == (footer.first_unix_s, footer.last_unix_s):
        return footer
    return replace(footer, first_unix_s=begin, last_unix_s=end)


def tidy(table: pa.Table, urls: Sequence[str]) -> tuple[pa.Table, int]:
    """The rows without those whose wall time cannot be, null for what is no finite number; and the rows left out."""
    before = table.num_rows
    times, (first, last) = table.column("unix_s"), bounds_of(urls)
    sound = pc.fill_null(pc.and_(pc.greater_equal(times, first), pc.less_equal(times, last)), True)
    if not pc.all(sound, min_count=0).as_py():
        table = table.filter(sound)
    for at, field in enumerate(table.schema):
        if pa.types.is_floating(field.type):
            column = table.column(at)
            finite = pc.is_finite(column)
            if not pc.all(finite, min_count=0).as_py():
                kept = pc.if_else(finite, column, pa.scalar(None, field.type))
                table = table.set_column(at, pa.field(field.name, field.type), kept)
    return table, before - table.num_rows


def columns_sql(names: Sequence[str], urls: Sequence[str], finite: bool) -> str:
    """What to SELECT of files with the columns ``names``: NULL for wall times that cannot be, and for columns that they
    lack, and for times of steps that are no finite number; with ``finite`` for any such, which costs some time."""
    first, last = bounds_of(urls)
    replaced = [f"CASE WHEN unix_s BETWEEN {first!r}::DOUBLE AND {last!r}::DOUBLE THEN unix_s END AS unix_s"]
    floats = [name for name in names if COLUMN_TYPES.get(name) == "DOUBLE" and name != "unix_s"]
    for name in map(quoted, floats if finite else {"observed_s"} & set(floats)):
        replaced.append(f"CASE WHEN isfinite({name}::DOUBLE) THEN {name} END AS {name}")
    missing = [f"NULL::{kind} AS {quoted(name)}" for name, kind in COLUMN_TYPES.items() if name not in names]
    return ", ".join([f"* REPLACE ({', '.join(replaced)})", *missing])


def is_finite(table: pa.Table) -> bool:
    """Whether every float is a number or null."""
    floats = (table.column(at) for at, field in enumerate(table.schema) if pa.types.is_floating(field.type))
    return all(pc.all(pc.is_finite(column), min_count=0).as_py() for column in floats)
