"""How long the rows of a question are: windows that are shorter than these would tell of rows, not of an engine."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from rooflens.collector.trace.duck import memory_bytes
from rooflens.collector.trace.files import TraceFile, TraceFiles
from rooflens.collector.trace.partials import Question, groups_of, on_chosen, text
from rooflens.records import RooflensError
from rooflens.trace_records import TraceFilter

FILES, ROWS = 8, 500_000  # that are looked at, spread over the period
BASE = 1.1
LONG_SHARE = 0.1  # of the time in steps: lengths that hold less of it are odd ones
Length = tuple[int | None, float, float]  # bin, seconds, longest of them; of no bin: rows of several steps


def longest_usual_s(files: TraceFiles, chosen: TraceFilter) -> float:
    """The length that a tenth of the time in steps reaches, or the usual distance of rows that are several steps.

    0 where nothing is known. Of many files some are looked at.
    """
    import duckdb

    within = [file for file in files.files if _within(file, chosen)]
    few = replace(files, files=tuple(_spread(within)))
    question = Question(1.0, chosen.from_unix_s, chosen.to_unix_s)
    found: list[Length] = []
    for group in groups_of(few):
        try:
            found += on_chosen(group, question, memory_bytes(), lengths)
        except (duckdb.Error, OSError, RooflensError):
            continue  # what cannot be read is told by whoever sums it
    return longest_of(found)


def _within(file: TraceFile, chosen: TraceFilter) -> bool:
    first, last = file.footer.first_unix_s, file.footer.last_unix_s
    late = chosen.from_unix_s is not None and last is not None and last < chosen.from_unix_s
    return not late and not (chosen.to_unix_s is not None and first is not None and first >= chosen.to_unix_s)


def _spread(files: list[TraceFile]) -> Iterable[TraceFile]:
    """Some files over the period; of large ones fewer."""
    rows = max((file.footer.rows for file in files), default=1)
    count = min(len(files), max(1, min(FILES, ROWS // max(1, rows))))
    return (files[(2 * at + 1) * len(files) // (2 * count)] for at in range(count))


def lengths(connection: Any) -> list[Length]:
    """What lengths.sql tells of the view ``chosen``."""
    found: list[Length] = connection.sql(text("lengths"), params={"base": BASE}).fetchall()
    return found


def longest_of(found: Iterable[Length]) -> float:
    """See longest_usual_s."""
    seconds: dict[int, float] = {}
    longest: dict[int, float] = {}
    apart = [0.0]
    for at, spent, length in found:
        if at is None:
            apart.append(length or 0.0)
        else:
            seconds[at] = seconds.get(at, 0.0) + spent
            longest[at] = max(longest.get(at, 0.0), length)
    left = LONG_SHARE * sum(seconds.values())
    for at in sorted(seconds, reverse=True):
        left -= seconds[at]
        if left <= 0:
            return max(longest[at], *apart)
    return max(apart)
