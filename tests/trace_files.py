"""The files of a trace for tests: all their rows, and whether they are the steps of a ring."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from rooflens.collector.trace.file import read_footer
from rooflens.collector.trace.schema import steps_of
from rooflens.records import StepTable
from rooflens.trace_records import TraceFacts

STORED_S = 2e-9  # a time is stored on a grid of about a nanosecond
ANCHOR_S = 0.05  # by which a wall time may be off that comes from another anchor


def rows(trace: Path, table: str = "steps") -> pa.Table:
    """All files of one table, without regard to which rows are there twice."""
    found = [pq.read_table(path, partitioning=None) for path in sorted(trace.glob(f"{table}/*/*/*/*.parquet"))]
    return pa.concat_tables(found, promote_options="permissive") if found else pa.table({})


def kept(trace: Path) -> list[TraceFacts]:
    """The engines of which there are steps."""
    files = trace.glob("steps/*/*/*/*.parquet")
    return [facts for path in files for facts in read_footer(str(path)).facts.values()]


def once(table: pa.Table) -> StepTable:
    """The steps of one run by sequence, each once, as every reader of a trace takes them."""
    steps = steps_of(table)
    _, first = np.unique(steps["sequence"], return_index=True)
    return steps.take(first)


def are_those_of(found: StepTable, ring: StepTable) -> None:
    """AssertionError unless both hold the same steps, and the same is known of each."""
    np.testing.assert_array_equal(found["sequence"], ring["sequence"])
    for name in ring.columns:
        mask = ring.where(name)
        np.testing.assert_array_equal(found.where(name), mask, err_msg=name)
        if mask.any():
            slack_s = ANCHOR_S if name == "unix_s" else STORED_S if ring[name].dtype.kind == "f" else 0
            np.testing.assert_allclose(found[name][mask], ring[name][mask], rtol=0, atol=slack_s, err_msg=name)
