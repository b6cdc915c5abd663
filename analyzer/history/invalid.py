"""Engines that a recording shows faster than the hardware allows: nothing is told of them, nor of others by them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from rooflens.analyzer.figures import MOST_BELOW_RATIO
from rooflens.analyzer.history.sums import Table, by_group, unique_rows
from rooflens.analyzer.regimes import WINDOW_STEPS
from rooflens.trace_records import TraceFacts

WORDS = (
    "measurement_invalid: {} of {} steps were faster than the floor allows: the roof, the model or the times are "
    "wrong, so its waste, MBU and MFU are not told"
)
# What follows from a comparison with bounds: not known of an engine that is left out.
DERIVED = ("wasted_s", "wasted_of_s", "wasted_device_s", "reached_observed_s", "reachable_s", "mfu_observed_s")
COUNTS = ("compared_steps", "reached_steps", "memory_bound_steps", "compute_bound_steps", "link_bound_steps")


def invalid_engines(table: Table, facts: Sequence[TraceFacts]) -> NDArray[np.bool_]:
    """Of each engine whether it is, shape (engines,).

    Its compared steps together took less than their floors, or too many of them lie in windows of enough steps that
    did. Of a synchronous engine, whose next step begins after the last output, single steps suffice.
    """
    count = len(facts)
    whole = {name: by_group(table[name], table["engine"], count) for name in (*SUMS, "below_floor_steps")}
    (engine, _), place = unique_rows(table["engine"], table["window"])
    of_window = {name: by_group(table[name], place, len(engine)) for name in SUMS}
    enough = of_window["compared_steps"] >= WINDOW_STEPS
    below = enough & (of_window["compared_observed_s"] < of_window["compared_floor_s"])
    in_below = by_group(np.where(below, of_window["compared_steps"], 0.0), engine, count)
    synchronous = np.array([_synchronous(each) for each in facts], np.bool_)
    allowed = MOST_BELOW_RATIO * whole["compared_steps"]
    found: NDArray[np.bool_] = whole["compared_observed_s"] < whole["compared_floor_s"]
    return found | (in_below > allowed) | (synchronous & (whole["below_floor_steps"] > allowed))


SUMS = ("compared_steps", "compared_observed_s", "compared_floor_s")


def _synchronous(facts: TraceFacts) -> bool:
    info = facts.info
    return info is not None and info.async_scheduling is False and info.concurrent_batches == 1


def without(table: Table, invalid: NDArray[np.bool_]) -> Table:
    """The table in which nothing is compared of the engines that are ``invalid``; what was below the floor stays."""
    if not invalid.any():
        return table
    rows = invalid[table["engine"]]
    columns = dict(table.columns)
    for name, column in table.columns.items():
        if name in COUNTS:
            columns[name] = np.where(rows, 0.0, column)
        elif name in DERIVED or name.startswith("compared_"):
            columns[name] = np.where(rows, np.nan, column)
    basis = tuple(None if bad else each for bad, each in zip(invalid, table.basis, strict=True))
    return replace(table, columns=columns, basis=basis)


def invalid_lines(table: Table, invalid: NDArray[np.bool_]) -> Iterator[str | None]:
    """Of each engine why it is left out, None where it is not."""
    count = len(invalid)
    below, compared = (
        by_group(table[name], table["engine"], count) for name in ("below_floor_steps", "compared_steps")
    )
    for at, bad in enumerate(invalid.tolist()):
        yield WORDS.format(f"{below[at]:,.0f}", f"{compared[at]:,.0f}") if bad else None
