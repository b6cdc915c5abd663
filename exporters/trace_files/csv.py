"""Steps as CSV (RFC 4180, UTF-8): a row a step, all its columns, nothing where a value is not known.

A text that a spreadsheet would take for a formula is led by an apostrophe.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from rooflens.exporters.trace_files.parts import Output, Part, StepRows
from rooflens.exporters.trace_files.slices import BOUND_NAMES, GRAPH_NAMES, KIND_NAMES
from rooflens.records import STEP_COLUMNS
from rooflens.trace_records import ROOF_COLUMNS

LIMIT_BYTES = None  # read line by line by whatever takes it
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
LABELS = ("time", "model_name", "engine", "host", "run")
COLUMNS = (*(name for name, _, _ in STEP_COLUMNS), *(name for name, _, _ in ROOF_COLUMNS))
WORDS = {"kind": KIND_NAMES, "bound": BOUND_NAMES, "graph_mode": GRAPH_NAMES | {0: "unknown"}}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class CsvWriter:
    """See parts.Writer; events and counters have no row. The header is LABELS and COLUMNS."""

    def __init__(self, output: Output, begin_unix_s: int, about: Mapping[str, Any]) -> None:
        """Write the header; the times are absolute, and a table says nothing of itself."""
        self._output = output
        self._write([[*LABELS, *COLUMNS]])

    def take(self, part: Part) -> None:
        """Write one part; TooLarge where the file is full."""
        if not isinstance(part, StepRows) or not len(part):
            return
        columns = part.columns
        first_unix_s = next((each for each in columns["unix_s"] if each is not None), None)
        self._output.check(first_unix_s)
        count, facts = len(part), part.facts
        labels = [safe(text) for text in (facts.model_name, facts.engine, facts.host, facts.run)]
        told: list[list[Any]] = [[iso(each) for each in columns["unix_s"]], *([text] * count for text in labels)]
        nothing = [None] * count
        for name in COLUMNS:
            values = columns.get(name, nothing)
            told.append([words.get(v, v) for v in values] if (words := WORDS.get(name)) else [*map(_finite, values)])
        self._write([*zip(*told, strict=True)])
        self._output.steps += count

    def end(self) -> None:
        """Nothing follows."""

    def _write(self, rows: list[Any]) -> None:
        text = io.StringIO(newline="")
        csv.writer(text, lineterminator="\r\n").writerows(rows)
        self._output.write(text.getvalue().encode())


def safe(text: str) -> str:
    """A text that no spreadsheet computes and that stays in its line."""
    plain = "".join(char if char.isprintable() else "?" for char in text)
    return f"'{plain}" if text.startswith(FORMULA) else plain


def iso(unix_s: float | None) -> str | None:
    """UTC with microseconds; None for a time that no calendar has."""
    if unix_s is None or not math.isfinite(unix_s):
        return None
    try:
        return f"{(EPOCH + timedelta(seconds=unix_s)).replace(tzinfo=None).isoformat(timespec='microseconds')}Z"
    except OverflowError:
        return None


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
