"""Cells for tests: one row a dict, what is left out is not known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from rooflens.live_records import SourceKind
from rooflens.records import EngineInfo
from rooflens.trace_records import CELL_KEYS, CELL_SUMS, HISTOGRAM_BASE, Cells, TraceFacts

DECODE, PREFILL = 1, 0


def bin_of(seconds: NDArray[np.float64]) -> NDArray[np.int64]:
    """The bin of a histogram of each time, all of them above 0, as histogram.sql has it."""
    bins: NDArray[np.int64] = np.floor(np.log(seconds / 1e-6) / np.log(HISTOGRAM_BASE)).astype(np.int64)
    return bins


def made_facts(engine: str, devices: int = 1, kv_blocks: int | None = None, host: str = "h") -> TraceFacts:
    """An engine called m/``engine``@``host``."""
    info = EngineInfo(instance=engine, engine="made", engine_version="1", kv_blocks=kv_blocks, block_tokens=16)
    number = f"{abs(hash(engine)) % 16**16:016x}"
    return TraceFacts(number, host, "m", engine, SourceKind.RING, info, devices=devices)


def made_cells(
    rows: Sequence[Mapping[str, float]],
    engines: Sequence[TraceFacts],
    width_s: float = 10.0,
    histogram: Sequence[tuple[int, int, int, int]] = (),
) -> Cells:
    """Cells of these rows; ``histogram`` are (engine, kind, bin, steps)."""
    rows = [{"devices": engines[int(row["engine"])].devices, **row} for row in rows]
    columns = {name: np.array([int(row.get(name, 0)) for row in rows], np.int64) for name, _ in CELL_KEYS}
    columns |= {name: np.array([row.get(name, np.nan) for row in rows], np.float64) for name, _ in CELL_SUMS}
    bins = np.array(histogram, np.int64).reshape(-1, 4).T
    names = ("engine", "kind", "bin", "steps")
    labels = tuple(facts.label for facts in engines)
    return Cells(width_s, labels, tuple(engines), columns, dict(zip(names, bins, strict=True)))


def whole_cell(engine: int, window: int, kind: int = DECODE, steps: int = 10, **given: float) -> dict[str, float]:
    """A cell of which all is known: each step takes 30 ms where 20 ms are reachable and 10 ms the floor."""
    of_step = {
        "observed_s": 0.03, "compared_observed_s": 0.03, "reached_observed_s": 0.03, "reachable_s": 0.02,
        "compared_floor_s": 0.01, "compared_expected_s": 0.01, "compared_memory_s": 0.01, "compared_compute_s": 0.002,
        "compared_link_floor_s": 0.0, "compared_serial_s": 0.011, "compared_link_s": 0.0, "compared_mfu_s": 0.003,
        "requests": 4, "query_tokens": 4, "prefill_tokens": 0, "generated_tokens": 4, "context_tokens": 400,
    }  # fmt: skip
    found: dict[str, float] = {name: value * steps for name, value in of_step.items()}
    counts = ("rows", "steps", "observed_steps", "compared_steps", "reached_steps", "memory_bound_steps")
    found |= dict.fromkeys((*counts, "requests_steps", "generated_steps"), steps)
    nothing = (
        "compute_bound_steps",
        "link_bound_steps",
        "below_floor_steps",
        "averaged_steps",
        "waiting_s",
        "queued_s",
    )
    found |= dict.fromkeys(nothing, 0)
    found |= dict.fromkeys(("waiting_of_s", "kv_ratio_of_s", "mfu_observed_s"), found["observed_s"])
    found |= {"engine": engine, "window": window, "kind": kind, "batch_log2": 2, "context_log4": 3}
    found |= {"first_unix_s": window * 10.0, "last_unix_s": window * 10.0 + 9.0, "observed_max_s": 0.05}
    found |= {"begun_unix_s": window * 10.0 - 0.03, "context_requests": found["requests"]}
    found |= {"kv_ratio_s": 0.3 * found["observed_s"], "kv_ratio_max": 0.5}
    return found | given
