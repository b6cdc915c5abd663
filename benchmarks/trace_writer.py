"""What the writer of a trace costs: an hour of 1,000 steps a second, with a clock that runs ahead.

Ten engines decode with batches of 32 at 100 steps a second; four times a second what each made is handed over, with its
bounds and a keyframe a second, as the sidecar does. The times between steps have the jitter of a recorded run. Only the
writer is timed: taking, packing, Parquet, the disk. ``--json FILE`` writes the figures down.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from rooflens.analyzer.arch import known_models
from rooflens.analyzer.hardware import find_hardware
from rooflens.analyzer.roofline import analyse_engine
from rooflens.collector.trace.writer import TraceWriter
from rooflens.live_records import SourceKind
from rooflens.model_records import StepAnalysis
from rooflens.pipeline import read_ring
from rooflens.records import EngineInfo, StepKind, StepTable
from rooflens.trace_records import TraceFacts, TraceRows
from rooflens.trace_tables import TraceLimits

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from recorded_rings import unpacked

ENGINES, STEPS_PER_S, TURNS_PER_S, HOUR_S = 10, 100, 4, 3600
ROWS = STEPS_PER_S // TURNS_PER_S
BATCH = 32
BEGIN_UNIX_S = 1_800_000_000.0  # a full hour
GOALS = {"core_percent": 3.0, "bytes_per_step": 40.0}
DURATIONS = ("schedule_s", "update_s", "executor_s", "wait_s", "hook_s")
OF_BATCH = ("requests", "query_tokens", "sampled_rows", "generated_tokens", "running")


class Clock:
    """Seconds that go on when they are told to."""

    def __init__(self) -> None:
        self.now_s = BEGIN_UNIX_S

    def __call__(self) -> float:
        return self.now_s


def decode(recorded: StepTable, count: int, chance: np.random.Generator) -> dict[str, NDArray[Any]]:
    """Columns of steady decode: durations drawn from a recorded run, contexts that grow, requests that end."""
    steps = np.flatnonzero(recorded["kind"] == StepKind.DECODE)
    drawn = chance.choice(steps, count)
    columns = {name: np.full(count, recorded[name][steps[-1]]) for name in recorded.columns}
    for name in DURATIONS:
        jitter = 1 + 0.02 * chance.standard_normal(count)
        columns[name] = np.round(recorded[name][drawn] * jitter * 1e8) / 1e9
    contexts = chance.integers(100, 4000, BATCH)
    held = np.empty((count, BATCH), np.int64)
    for row in range(count):
        held[row] = contexts
        contexts = contexts + 1
        if row % 400 == 399:
            contexts[chance.integers(BATCH)] = chance.integers(100, 3000)
    columns |= {name: np.full(count, BATCH) for name in OF_BATCH}
    columns["context_tokens"] = held.sum(axis=1)
    columns["causal_pairs"] = columns["context_tokens"] + BATCH
    columns["context_blocks"] = (-(-held // 16)).sum(axis=1)
    columns["kv_blocks_used"] = columns["context_blocks"] + 2
    columns["max_context_tokens"] = held.max(axis=1)
    ends = np.arange(1, count + 1) / STEPS_PER_S
    columns["unix_s"] = BEGIN_UNIX_S + ends + np.round(chance.normal(0, 1e-4, count), 9)
    columns["output_monotonic_s"] = columns["unix_s"] - BEGIN_UNIX_S + 51_062.25
    columns["observed_s"] = np.round(0.008 + 2e-8 * columns["context_tokens"] + chance.normal(0, 1e-4, count), 9)
    columns["submit_monotonic_s"] = columns["output_monotonic_s"] - columns["observed_s"]
    columns["sequence"] = np.arange(1, count + 1)
    return columns


class Engine:
    """One engine of which a minute was made beforehand; every minute of the hour is that one, at its own time."""

    def __init__(self, number: int, recorded: StepTable, info: EngineInfo) -> None:
        hardware = find_hardware("h100-sxm5-80")
        self.columns = decode(recorded, 60 * STEPS_PER_S, np.random.default_rng(number))
        self.facts = TraceFacts(f"{number:016x}", "host-a", "model", str(number), SourceKind.RING, info, hardware)
        self.analysis = analyse_engine(StepTable(self.columns), info, hardware)

    def rows(self, turn: int) -> TraceRows:
        """What it made in a turn, counted from the begin of the hour."""
        minute, at = divmod(turn, 60 * TURNS_PER_S)
        rows = slice(at * ROWS, (at + 1) * ROWS)
        columns = {name: column[rows] for name, column in self.columns.items()}
        for name in ("unix_s", "output_monotonic_s", "submit_monotonic_s"):
            columns[name] = columns[name] + 60.0 * minute
        columns["sequence"] = columns["sequence"] + 60 * STEPS_PER_S * minute
        keyframes = {0: ([1000] * BATCH, [1] * BATCH)} if turn % TURNS_PER_S == 0 else {}
        return TraceRows(self.facts, StepTable(columns), sliced(self.analysis, rows), keyframes)


def sliced(analysis: StepAnalysis, rows: slice) -> StepAnalysis:
    """The bounds of some steps."""
    from dataclasses import fields, replace

    parts = {f.name: getattr(analysis, f.name) for f in fields(analysis)}
    return replace(analysis, **{name: v[rows] for name, v in parts.items() if isinstance(v, np.ndarray)})


def write_hour(folder: Path, seconds: int) -> dict[str, Any]:
    """Write ``seconds`` of an hour; what it took."""
    recorded = read_ring(unpacked("vllm-a", folder))
    assert recorded.info is not None
    info = EngineInfo("a", "vllm", "0.32.0", model_config=dict(known_models()[0]["config"]), weight_dtype="bfloat16")
    engines = [Engine(number, recorded.steps, info) for number in range(ENGINES)]
    clock = Clock()
    writer = TraceWriter(str(folder / "trace"), TraceLimits(), clock, clock, threaded=False)
    put_s = turn_s = 0.0
    for turn in range(seconds * TURNS_PER_S):
        items = [engine.rows(turn) for engine in engines]
        clock.now_s = BEGIN_UNIX_S + (turn + 1) / TURNS_PER_S
        began_s = time.process_time()
        for item in items:
            writer.put(item)
        put_s += time.process_time() - began_s
        if turn % TURNS_PER_S == TURNS_PER_S - 1:
            began_s = time.process_time()
            writer.turn()
            turn_s += time.process_time() - began_s
    began_s = time.process_time()
    writer.close()
    turn_s += time.process_time() - began_s
    state = writer.state()
    return {
        "steps": seconds * STEPS_PER_S * ENGINES,
        "rows_written": state.rows_written,
        "dropped_rows": state.dropped_rows,
        "files": state.files_written,
        "bytes_per_step": state.bytes_written / state.rows_written,
        "put_s": put_s,
        "write_s": turn_s,
        "core_percent": 100 * (put_s + turn_s) / seconds,
        "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3,
        "lost_steps": lost(folder / "trace", seconds * STEPS_PER_S),
    }


def lost(folder: Path, steps: int) -> int:
    """Steps of all engines that the trace lacks, or has twice."""
    seen = np.zeros((ENGINES, steps + 1), np.int64)
    for path in folder.glob("steps/*/*/*/*.parquet"):
        table = pq.ParquetFile(path).read(["run", "sequence"])
        engines = np.array([int(run, 16) for run in table.column("run").to_pylist()])
        np.add.at(seen, (engines, table.column("sequence").to_numpy()), 1)
    return int(np.count_nonzero(seen[:, 1:] != 1))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=HOUR_S, metavar="N", help="how much of the hour (%(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        figures = write_hour(Path(folder), arguments.seconds)
    figures = {name: round(value, 3) if isinstance(value, float) else value for name, value in figures.items()}
    print("\n".join(f"{name:16} {value:,}" for name, value in figures.items()))
    missed = [name for name, goal in GOALS.items() if figures[name] > goal]
    missed += ["lost steps"] if figures["lost_steps"] or figures["dropped_rows"] else []
    if arguments.json is not None:
        machine = {"cpus": os.cpu_count(), "machine": platform.machine(), "python": platform.python_version()}
        result = {"goals": GOALS, "missed": missed, **figures, **machine, "pyarrow": pa.__version__}
        arguments.json.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print("missed: " + ", ".join(missed) if missed else "all goals met")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
