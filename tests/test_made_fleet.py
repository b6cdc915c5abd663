"""The made fleet is whole: every engine's steps in order, in files as the writer lays them, drawn from recordings."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

from made_fleet import FAULT_S, FAULTY, PER_HOST, recorded, write_fleet

from rooflens.collector.trace.cells import cells_of
from rooflens.collector.trace.files import find_trace
from rooflens.collector.trace.scan import parts_of
from rooflens.trace_records import TraceFilter

ALL = TraceFilter()
ENGINES, EACH = PER_HOST + 1, 150


def test_a_small_fleet_is_whole(tmp_path: Path) -> None:
    assert write_fleet(tmp_path, ENGINES, ENGINES * EACH) == ENGINES * EACH
    files = find_trace([str(tmp_path)], ALL)
    assert (len(files.labels), files.problems) == (ENGINES, ())
    cells = cells_of(files, ALL)
    assert cells.columns["rows"].sum() == ENGINES * EACH
    assert (cells.columns["compared_steps"] > 0).any()
    seen: dict[str, list[int]] = {}
    times: dict[str, list[float]] = {}
    for part in parts_of(files, ALL, ["unix_s"]):
        seen.setdefault(part.facts.label, []).extend(part.table.column("sequence").to_pylist())
        times.setdefault(part.facts.label, []).extend(part.table.column("unix_s").to_pylist())
    assert all(numbers == list(range(1, EACH + 1)) for numbers in seen.values())
    assert all(bool((np.diff(moments) > 0).all()) for moments in times.values())


def test_its_steps_are_those_that_were_recorded(tmp_path: Path) -> None:
    write_fleet(tmp_path, 1, EACH)
    names = ["requests", "context_tokens", "floor_s"]

    def rows(table: pa.Table) -> set[tuple[float, ...]]:
        return set(zip(*(table.column(name).to_pylist() for name in names), strict=True))

    for part in parts_of(find_trace([str(tmp_path)], ALL), ALL, names):
        assert rows(part.table) <= rows(recorded()[0].table)


def test_a_faulty_engine_waits_in_its_second_half(tmp_path: Path) -> None:
    write_fleet(tmp_path, FAULTY, FAULTY * 400)
    engine = TraceFilter(engines=(str(FAULTY - 1),))
    found = [part.table for part in parts_of(find_trace([str(tmp_path)], engine), engine, ["observed_s"])]
    seconds = np.concatenate([table.column("observed_s").to_numpy() for table in found])
    early, late = np.quantile(seconds[:150], 0.1), np.quantile(seconds[-150:], 0.1)
    assert late - early > FAULT_S / 2
