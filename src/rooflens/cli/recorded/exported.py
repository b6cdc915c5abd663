"""Steps out to a file of one of the formats of exporters/trace_files, whole or not at all."""

from __future__ import annotations

import gzip
import math
import os
import secrets
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from errno import EPIPE
from importlib import import_module
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rooflens import __version__
from rooflens.cli.recorded.inputs import refuse_input
from rooflens.cli.recorded.steps_in import StepsIn
from rooflens.exporters.trace_files.parts import VIEWED, CounterRows, Happened, Output, StepRows, TooLarge, Writer
from rooflens.records import RooflensError
from rooflens.trace_records import KEYFRAME_COLUMNS

WRITERS = {
    "chrome": ("rooflens.exporters.trace_files.chrome", "ChromeWriter"),
    "perfetto": ("rooflens.exporters.trace_files.perfetto", "PerfettoWriter"),
    "otlp": ("rooflens.exporters.trace_files.otlp", "OtlpWriter"),
    "csv": ("rooflens.exporters.trace_files.csv", "CsvWriter"),
}
TABLES = ("csv",)  # which takes all columns of a step
AT_A_TIME = 8192  # rows as Python objects
PACKED = ".gz"
LEVEL = 6
BUFFER_BYTES = 1 << 20
BEFORE_S = 1.0  # the first step: its schedule lies before it
KEYFRAMES = {name for name, _, _ in KEYFRAME_COLUMNS}


@dataclass(frozen=True, slots=True)
class Exported:
    """What a file holds; ``full_unix_s`` is the time of the first step that found no room, None where all did."""

    engines: int
    steps: int
    events: int
    samples: int
    left_out: int
    file_bytes: int
    full_unix_s: float | None = None


def export(
    steps: StepsIn,
    chosen: str,
    place: str,
    limit_bytes: float | None,
    sources: Sequence[str],
    tell: Callable[[str, float], None],
) -> Exported:
    """Write ``steps`` to ``place``, - for standard output; ``limit_bytes`` 0 is none, None what the format's viewers
    open. RooflensError in one line for a place that cannot be written or that is one of ``sources``."""
    module, name = WRITERS[chosen]
    made: Any = import_module(module)
    bound = made.LIMIT_BYTES if limit_bytes is None else limit_bytes or None
    times = [time for time in (steps.first_unix_s, steps.begin_unix_s) if time is not None]
    begin = math.floor(min(times) - BEFORE_S) if times else 0
    full: float | None = None
    with _opened(place, sources) as stream:
        output = Output(stream, bound)
        writer: Writer = getattr(made, name)(output, begin, {"writer": "rooflens", "version": __version__})
        labels: set[str] = set()
        try:
            _feed(steps, writer, None if chosen in TABLES else VIEWED, labels, tell)
        except TooLarge as error:
            full = error.unix_s if error.unix_s is not None else math.inf
        writer.end()
    size = output.written_bytes if place == "-" or not os.path.isfile(place) else os.path.getsize(place)
    return Exported(len(labels), output.steps, output.events, output.samples, output.left_out, size, full)


def _feed(
    steps: StepsIn,
    writer: Writer,
    columns: Sequence[str] | None,
    labels: set[str],
    tell: Callable[[str, float], None],
) -> None:
    """Events first, since a viewer shows nothing in the order of the file and they are few."""
    for facts, unix_s, what in steps.events():
        writer.take(Happened(facts, unix_s, what))
    done = 0
    for facts, table in steps.tables(columns):
        labels.add(facts.label)
        for begin in range(0, len(table), AT_A_TIME):
            part = table.slice(begin, AT_A_TIME)
            writer.take(StepRows(facts, lists_of(part)))
            done += len(part)
            tell(f"{done:,} steps", min(1.0, done / max(1, steps.rows)))
    for table in steps.counters():
        for begin in range(0, len(table), AT_A_TIME):
            writer.take(CounterRows(lists_of(table.slice(begin, AT_A_TIME))))


def lists_of(table: pa.Table) -> dict[str, list[Any]]:
    """The columns as lists, None for what is not known or no number; keyframes are left out."""
    return {name: _list(table.column(name)) for name in table.column_names if name not in KEYFRAMES}


def _list(column: pa.ChunkedArray) -> list[Any]:
    if column.null_count == len(column):
        return [None] * len(column)
    if pa.types.is_floating(column.type):
        values = column.to_numpy()
        if np.isfinite(values).all():
            return list(values.tolist())
        return [value if known else None for value, known in zip(values.tolist(), np.isfinite(values), strict=True)]
    if pa.types.is_integer(column.type) and not column.null_count:
        return list(column.to_numpy().tolist())
    if pa.types.is_dictionary(column.type):
        column = pc.cast(column, pa.string())
    return list(column.to_pylist())


@contextmanager
def _opened(place: str, sources: Sequence[str]) -> Iterator[IO[bytes]]:
    """The file, packed where its name says so: written aside and renamed once it is whole."""
    if place == "-":
        with _packed(sys.stdout.buffer, place) as stream:
            yield stream
        sys.stdout.buffer.flush()
        return
    refuse_input(place, sources)
    if os.path.isdir(place):
        raise RooflensError(f"{place} is a folder: name a file in it")
    regular = not os.path.exists(place) or stat.S_ISREG(os.stat(place).st_mode)
    aside = f"{place}.{secrets.token_hex(4)}.part" if regular else place
    try:
        with open(aside, "wb", buffering=BUFFER_BYTES) as file, _packed(file, place) as stream:
            yield stream
        if regular:
            os.replace(aside, place)
    except BaseException as error:
        if regular:
            with suppress(OSError):
                os.unlink(aside)
        if isinstance(error, OSError) and error.errno not in (None, EPIPE) and error.filename in (None, aside):
            raise RooflensError(f"{place}: cannot be written: {os.strerror(error.errno).lower()}") from None
        raise


@contextmanager
def _packed(file: IO[bytes], place: str) -> Iterator[IO[bytes]]:
    if not place.lower().endswith(PACKED):
        yield file
        return
    with gzip.GzipFile(filename="", fileobj=file, mode="wb", compresslevel=LEVEL, mtime=0) as packed:
        yield packed  # type: ignore[misc]
