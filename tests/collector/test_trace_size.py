"""Seconds of benchmarks/trace_writer.py: nothing is lost, and steady decode takes less than 40 bytes a step."""

from __future__ import annotations

import importlib.util
from pathlib import Path

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def test_seconds_of_a_thousand_steps_a_second(tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("bench_trace_writer", BENCHMARKS / "trace_writer.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    figures = module.write_hour(tmp_path, 20)
    assert (figures["rows_written"], figures["lost_steps"], figures["dropped_rows"]) == (20_000, 0, 0)
    assert figures["bytes_per_step"] < module.GOALS["bytes_per_step"]
