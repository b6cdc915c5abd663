"""Rows of forward passes with their times, as one step table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rooflens.records import COLUMN_KINDS, StepTable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Timed:
    """One pass: its columns, and when its message came (or was written), in seconds."""

    sequence: int
    monotonic_s: float
    unix_s: float
    columns: Mapping[str, float]


def table_of(rows: Sequence[Timed], after_s: float = 0.0) -> StepTable:
    """The passes in their order; ``after_s`` is the output of the last one before them.

    Messages are sent by threads of their own and come in bunches: an output is put no later than its message came and
    no later than the next pass, which takes its time after it, allows; never before the one before it.
    """
    import numpy as np

    outputs = _outputs(rows, after_s)
    complete = [
        {
            "sequence": row.sequence,
            "unix_s": row.unix_s - (row.monotonic_s - output_s),
            "output_monotonic_s": output_s,
            "submit_monotonic_s": output_s - row.columns.get("observed_s", 0.0),
            **row.columns,
        }
        for row, output_s in zip(rows, outputs, strict=True)
    ]
    columns: dict[str, NDArray[Any]] = {}
    known: dict[str, NDArray[np.bool_]] = {}
    for name in COLUMN_KINDS:
        if not any(name in row for row in complete):
            continue
        dtype = np.int64 if COLUMN_KINDS[name] == "i" else np.float64
        columns[name] = np.array([row.get(name, 0) for row in complete], dtype=dtype)
        mask = np.array([name in row for row in complete], dtype=bool)
        if not mask.all():
            known[name] = mask
    return StepTable(columns, known)


def _outputs(rows: Sequence[Timed], after_s: float) -> list[float]:
    outputs = [row.monotonic_s for row in rows]
    for at in range(len(rows) - 2, -1, -1):
        outputs[at] = min(outputs[at], outputs[at + 1] - rows[at + 1].columns.get("observed_s", 0.0))
    for at in range(len(rows)):
        outputs[at] = max(outputs[at], outputs[at - 1] if at else min(after_s, rows[0].monotonic_s))
    return outputs
