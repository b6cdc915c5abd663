"""A short form of benchmarks/prove_trace_kill.py: five processes that write a trace, killed at moments of chance."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def proof() -> ModuleType:
    spec = importlib.util.spec_from_file_location("prove_trace_kill", BENCHMARKS / "prove_trace_kill.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_what_is_killed_leaves_whole_files_and_the_rest_in_the_ring(proof: ModuleType) -> None:
    runs = proof.prove(kills=5, at_once=5, seed=1)
    assert [run["wrong"] for run in runs] == [[]] * 5
    assert sum(run["in_trace"] for run in runs) > 0
    assert all(run["in_trace"] + run["only_in_ring"] == run["steps"] for run in runs)


def test_a_lost_file_is_noticed(proof: ModuleType, tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    proof.killed(tmp_path, 0.5)
    files = sorted((tmp_path / "trace").glob("steps/*/*/*/*.parquet"))
    files[0].unlink()
    assert "the trace has gaps, or steps twice" in proof.judged(tmp_path)["wrong"]
    files[1].write_bytes(files[1].read_bytes()[:-100])
    assert f"{files[1].name}: RooflensError" in proof.judged(tmp_path)["wrong"]


WRITES = """
import sys
from written_traces import Clock, facts_of, trace_rows
from rooflens.collector.trace.writer import TraceWriter
writer = TraceWriter(sys.argv[1], threaded=False)
writer.put(trace_rows(facts_of(), range(1, 11), keyframes={1: ([5], [1])}))
writer.close()
print(writer.state().rows_written, "pandas" in sys.modules)
"""


def test_writing_loads_no_pandas(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WRITES, str(tmp_path)]
    env = {"PYTHONPATH": str(Path(__file__).parents[1]), "PATH": "/usr/bin"}
    run = subprocess.run(command, capture_output=True, text=True, env=env, check=False, timeout=120)
    assert run.stdout.split() == ["10", "False"], run.stderr
