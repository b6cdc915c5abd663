"""The trace that the settings of a sidecar name, and what is said of it at the start and at the end."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rooflens.records import RooflensError

if TYPE_CHECKING:
    from rooflens.pipeline.tracing import TraceTo

NOT_RESUMED = "from now on: what is already in a ring is left out, for nothing is kept of how far it came"


def trace_named(settings: Any) -> TraceTo | None:
    """Where to keep what is seen, None for nowhere; RooflensError in one line for a place that cannot be used."""
    if settings.trace is None:
        return None
    from rooflens.collector.trace.writer import TraceWriter
    from rooflens.pipeline.tracing import TraceTo
    from rooflens.trace_tables import TraceLimits

    most_bytes, longest_s = settings.trace_limits
    limits = TraceLimits(
        max_bytes=None if most_bytes is None else int(most_bytes),
        max_age_s=longest_s,
        period_s=settings.trace_period_s,
    )
    return TraceTo(TraceWriter(settings.trace, limits), settings.trace)


def trace_said(writer: Any, settings: Any, state: Path | None) -> str:
    """In one line where it goes and how long it stays."""
    size, age = settings.trace_max_bytes, settings.trace_max_age
    bounds = [text for text in (size, age) if text.strip().lower() != "none"]
    kept = f"the last {' or '.join(bounds)}" if bounds and "://" not in settings.trace else "all of it"
    resumed = "" if state is not None else f"; {NOT_RESUMED}"
    return f"{writer.shown}, {kept}{resumed}"


def check_written(trace: TraceTo | None) -> None:
    """RooflensError for a trace that could not be written to its end, or that did not take all in time."""
    if trace is not None and (problem := trace.writer.state().problem) is not None:
        dropped = trace.writer.state().dropped_rows
        lost = f" ({dropped:,} rows were not written)" if dropped else ""
        raise RooflensError(f"{problem}{lost}")
    if trace is not None and trace.unfinished:
        raise RooflensError(trace.unfinished[0])
