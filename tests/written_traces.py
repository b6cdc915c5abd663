"""Rows for traces: steps of one model on one device, with bounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from rooflens.analyzer.arch import known_models
from rooflens.analyzer.hardware import find_hardware
from rooflens.analyzer.roofline import analyse_engine
from rooflens.live_records import SourceKind
from rooflens.records import EngineInfo, StepKind, StepTable
from rooflens.trace_records import TraceFacts, TraceRows

INFO = EngineInfo(
    "a", "vllm", "0.32.0", model_config=dict(known_models()[0]["config"]), weight_dtype="bfloat16", kv_dtype="bfloat16"
)
HARDWARE = find_hardware("h100-sxm5-80")
BEGIN_UNIX_S = 1_800_000_000.0  # a full hour: 2027-01-15 08:00 UTC


class Clock:
    """A wall clock, or a monotonic one, that shows what it is told."""

    def __init__(self, now_s: float = BEGIN_UNIX_S) -> None:
        self.now_s = now_s

    def __call__(self) -> float:
        return self.now_s


def facts_of(engine: str = "0", host: str = "host-1", run: str | None = None) -> TraceFacts:
    return TraceFacts(run or f"{engine:0>16}", host, "llama", engine, SourceKind.RING, INFO, HARDWARE)


def trace_rows(
    facts: TraceFacts,
    sequences: Sequence[int],
    unix_s: float = BEGIN_UNIX_S,
    bounds: bool = True,
    keyframes: Mapping[int, tuple[Sequence[int], Sequence[int]]] | None = None,
) -> TraceRows:
    """Decode steps with these sequences, 20 ms apart from ``unix_s`` on."""
    count = len(sequences)
    times = unix_s + 0.02 * np.arange(count)
    columns = {
        "sequence": np.array(sequences, np.int64),
        "kind": np.full(count, StepKind.DECODE),
        "unix_s": times,
        "output_monotonic_s": times - BEGIN_UNIX_S + 51_062.125,
        "observed_s": np.round(0.011 + 1e-7 * np.arange(count), 9),
        **{name: np.full(count, 8) for name in ("requests", "query_tokens", "sampled_rows", "generated_tokens")},
        **{name: 8000 + np.array(sequences, np.int64) for name in ("context_tokens", "causal_pairs")},
        "context_blocks": np.full(count, 504),
        "prefill_tokens": np.zeros(count, np.int64),
    }
    steps = StepTable(columns, {"observed_s": np.arange(count) != 0})
    analysis = analyse_engine(steps, INFO, HARDWARE) if bounds else None
    return TraceRows(facts, steps, analysis, keyframes or {})


def trace_files(folder: Path, table: str = "steps") -> list[Path]:
    """The files of a trace under their final names, in order."""
    return sorted(folder.glob(f"{table}/host=*/date=*/hour=*/*.parquet"))


def trace_table(path: Path) -> pa.Table:
    """The rows of one file as they stand in it, without what the names of its folders say."""
    return pq.ParquetFile(path).read()


def steps_by_run(folder: Path) -> dict[str, list[int]]:
    """The sequences in a trace by run, sorted, each as often as it is there."""
    found: dict[str, list[int]] = {}
    for path in trace_files(folder):
        table = trace_table(path)
        runs, sequences = table.column("run").to_pylist(), table.column("sequence").to_pylist()
        for run, sequence in zip(runs, sequences, strict=True):
            found.setdefault(run, []).append(sequence)
    return {run: sorted(sequences) for run, sequences in found.items()}
