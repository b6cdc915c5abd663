"""Sums over the steps of a table that a recording's summary and a live window share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rooflens.records import RingEvent, StepTable

Mask = NDArray[np.bool_]
Column = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class TimeSpent:
    """Where the time from the first submit to the last output went, in seconds.

    ``timed`` masks the steps whose own time is known. ``gap_s`` (steps,) is the time before each step while requests
    were there; ``idle_s`` is the time without any, None where the engine does not tell its queue.
    """

    timed: Mask
    gap_s: Column
    observed_s: float
    unrecorded_s: float
    idle_s: float | None

    @property
    def between_s(self) -> float:
        """Between steps while requests were there."""
        return float(self.gap_s.sum())

    @property
    def active_s(self) -> float:
        """All of it but what was idle."""
        return self.observed_s + self.between_s + self.unrecorded_s


def time_spent(table: StepTable) -> TimeSpent:
    """Split the time of steps recorded one by one; the columns of submit, output and observed time are needed."""
    submit, output = table["submit_monotonic_s"], table["output_monotonic_s"]
    timed = table.where("observed_s")
    previous = np.concatenate((submit[:1], output[:-1]))
    gaps = np.where(timed, np.maximum(submit - previous, 0.0), 0.0)
    known, empty = np.ones(len(table), dtype=bool), np.ones(len(table), dtype=bool)
    for name in ("running", "waiting", "deferred"):
        known &= table.where(name)
        if name in table.columns:
            empty &= table[name] == 0
    # A gap belongs to the step before it: there was nothing to do if that one left no request behind.
    after_empty = np.concatenate((np.zeros(min(1, len(table)), dtype=bool), (known & empty)[:-1]))
    return TimeSpent(
        timed=timed,
        gap_s=np.where(after_empty, 0.0, gaps),
        observed_s=float(np.where(timed, np.maximum(table["observed_s"], 0.0), 0.0).sum()),
        unrecorded_s=float(np.where(timed, 0.0, np.maximum(output - previous, 0.0)).sum()),
        idle_s=float(gaps[after_empty].sum()) if known.any() else None,
    )


def split_intervals(table: StepTable, begun: Column, output: Column) -> tuple[Column, Column, Column]:
    """Seconds of each row of a metrics page, from one reading to the next: (busy, idle, not known); they add up to it.

    What lies beyond the time of the steps is idle only where nothing ran at either end. Else it may be idle time,
    pauses between steps, or steps that put out no token, and the page does not say which.
    """
    elapsed = np.maximum(output - begun, 0.0)
    timed = table.where("observed_s")
    busy = np.minimum(np.where(timed, np.maximum(filled(table, "observed_s"), 0.0), 0.0), elapsed)
    empty = timed & table.where("running")
    for name in ("running", "waiting", "deferred"):
        empty &= filled(table, name) == 0
    rest = elapsed - busy
    return busy, np.where(empty, rest, 0.0), np.where(empty, 0.0, rest)


def filled(table: StepTable, name: str, default: float = 0.0) -> Column:
    """The column as floats, ``default`` where it is not known or not there."""
    column, known = table.columns.get(name), table.known.get(name)
    if column is None:
        return np.full(len(table), default)
    return column.astype(np.float64) if known is None else np.where(known, column, default).astype(np.float64)


def known_sum(table: StepTable, name: str) -> float | None:
    """The sum over the steps for which the column is known; None where there is none."""
    rows = table.where(name)
    return float(table[name][rows].sum()) if rows.any() else None


def total(table: StepTable, name: str) -> int | None:
    """The sum over steps; None where the column is not known for all of them."""
    return int(table[name].sum()) if table.has(name) else None


def steps_of(table: StepTable) -> Column:
    """How many engine steps each row stands for: 1 from a hook, more in a row read from a metrics page."""
    if not table.has("resolution_steps"):
        return np.ones(len(table))
    return np.maximum(table["resolution_steps"].astype(np.float64), 1.0)


def clock_jumps_s(events: Sequence[RingEvent]) -> tuple[float, ...]:
    """How far the wall clock was set, each time, in seconds."""
    jumps = (event.detail.get("jump_s") for event in events if event.name == "clock_jump")
    return tuple(float(jump_s) for jump_s in jumps if isinstance(jump_s, int | float))
