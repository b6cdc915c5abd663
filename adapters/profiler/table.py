"""The steps of a track as a step table: their times, and of their requests what the names of their ranges tell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rooflens.adapters.profiler.steps import Track
from rooflens.records import COLUMN_KINDS, StepTable

if TYPE_CHECKING:
    from numpy.typing import NDArray


def table_of(track: Track, unix_s: float | None) -> StepTable:
    """One row a step; ``observed_s`` is from its first kernel to its last, ``unix_s`` the wall time of second 0.

    Contexts stand there only where the range tells them (vLLM's detailed annotation). Sampled rows are those of the
    sequences that decode: how many prompts ended in a step is not told, so they are the fewest.
    """
    steps = len(track)
    columns: dict[str, NDArray[Any]] = {
        "sequence": np.arange(1, steps + 1),
        "submit_monotonic_s": track.begin_s,
        "output_monotonic_s": track.end_s,
        "observed_s": track.end_s - track.begin_s,
        "resolution_steps": np.ones(steps, dtype=np.int64),
    }
    if unix_s is not None:
        columns["unix_s"] = unix_s + track.end_s
    known: dict[str, NDArray[np.bool_]] = {}
    told = [_told(track, row) for row in range(steps)]
    for name in dict.fromkeys(name for row in told for name in row):
        columns[name] = np.array([row.get(name, 0) for row in told], dtype=np.int64)
        mask = np.array([name in row for row in told], dtype=bool)
        if not mask.all():
            known[name] = mask
    assert columns.keys() <= COLUMN_KINDS.keys()
    return StepTable(columns, known)


def _told(track: Track, row: int) -> dict[str, int]:
    boundary = track.ranges[row].boundary
    found = dict(boundary.columns or {})
    if boundary.kind is not None:
        found["kind"] = int(boundary.kind)
    if {"requests", "prefill_requests"} <= found.keys():
        found["sampled_rows"] = found["requests"] - found["prefill_requests"]
    return found
