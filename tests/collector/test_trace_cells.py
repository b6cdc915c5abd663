"""The cells of SQL are those that NumPy works out; sums do not depend on files, groups or cores."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from made_cells import bin_of
from made_traces import START_UNIX_S, by_numpy, facts_of, made_table, written
from recorded_rings import HARDWARE, unpacked

from rooflens.analyzer.hardware import find_hardware
from rooflens.analyzer.roofline import analyse_engine
from rooflens.collector.trace import cells as cells_module
from rooflens.collector.trace import partials
from rooflens.collector.trace.cells import cells_of, cells_of_table, chosen_width
from rooflens.collector.trace.files import find_trace
from rooflens.collector.trace.schema import to_arrow
from rooflens.live_records import SourceKind
from rooflens.pipeline.recording import read_ring
from rooflens.records import RooflensError
from rooflens.trace_records import CELL_KEYS, CELL_SUMS, Cells, TraceFacts, TraceFilter, TraceRows

ALL = TraceFilter()
WIDTH_S = 2.0
Rows = dict[tuple[int, ...], dict[str, float]]


def asked(folder: Path, chosen: TraceFilter = ALL, width_s: float | None = WIDTH_S) -> Cells:
    return cells_of(find_trace([str(folder)], chosen), chosen, width_s)


def as_rows(cells: Cells) -> Rows:
    keys = zip(*(cells.columns[name].tolist() for name, _ in CELL_KEYS), strict=True)
    return {key: {name: float(cells.columns[name][at]) for name, _ in CELL_SUMS} for at, key in enumerate(keys)}


def assert_equal(
    found: dict[tuple[int, ...], dict[str, float]], wanted: dict[tuple[int, ...], dict[str, float]]
) -> None:
    assert set(found) == set(wanted)
    for key, sums in wanted.items():
        assert set(sums) == {name for name, _ in CELL_SUMS}
        for name, value in sums.items():
            assert found[key][name] == pytest.approx(value, rel=1e-12, abs=0, nan_ok=True), (key, name)


def test_made_steps_are_summed_as_numpy_sums_them(tmp_path: Path) -> None:
    table = made_table(facts_of())
    written(tmp_path, table, facts_of())
    wanted = by_numpy(table, WIDTH_S)
    assert len(wanted) > 50
    assert_equal(as_rows(asked(tmp_path)), wanted)
    assert_equal(as_rows(cells_of_table(table, facts_of(), ALL, WIDTH_S)), wanted)


@pytest.mark.parametrize("name", ["vllm-a", "embedded"])
def test_recorded_steps_are_summed_as_numpy_sums_them(name: str, tmp_path: Path) -> None:
    ring = read_ring(unpacked(name, tmp_path))
    assert ring.info is not None
    hardware = find_hardware(str(HARDWARE))
    facts = TraceFacts("1" * 16, "host-a", "m", "0", SourceKind.RING, ring.info, hardware)
    table = to_arrow(TraceRows(facts, ring.steps, analyse_engine(ring.steps, ring.info, hardware)))
    written(tmp_path, table, facts)
    cells = asked(tmp_path)
    assert_equal(as_rows(cells), by_numpy(table, WIDTH_S, pool_blocks=ring.info.kv_blocks))
    seconds = ring.steps["observed_s"][ring.steps.where("observed_s")]
    bins, counts = np.unique(bin_of(seconds[seconds > 0]), return_counts=True)
    found = dict(zip(cells.histogram["bin"].tolist(), np.zeros(len(cells.histogram["bin"])), strict=True))
    for at, count in zip(cells.histogram["bin"].tolist(), cells.histogram["steps"].tolist(), strict=True):
        found[at] += count
    assert found == dict(zip(bins.tolist(), counts.tolist(), strict=True))


def test_another_engine_and_another_run_add_up(tmp_path: Path) -> None:
    table = made_table(facts_of())
    written(tmp_path, table, facts_of())
    once = asked(tmp_path)
    again = replace(facts_of(), run="f" * 16)
    renamed = table.set_column(0, "facts", pa.array([again.digest] * len(table)))
    renamed = renamed.set_column(1, "run", pa.array([again.run] * len(table)))
    written(tmp_path, renamed, again, "01-a")
    twice = asked(tmp_path)
    assert twice.engines == once.engines == ("llama/0@host-1",)
    for name, _ in CELL_SUMS:
        if not name.endswith(("unix_s", "_max", "_max_s")):
            assert twice.columns[name] == pytest.approx(2 * once.columns[name], rel=1e-15, nan_ok=True), name
    other = facts_of("1")
    written(tmp_path, made_table(other, seed=3), other, "02-a")
    both = asked(tmp_path)
    assert both.engines == ("llama/0@host-1", "llama/1@host-1")
    assert both.facts == (again, other)
    only = asked(tmp_path, TraceFilter(engines=("1",)))
    assert only.engines == ("llama/1@host-1",)
    mine = both.columns["engine"] == 1
    for name, _ in CELL_SUMS:
        assert np.array_equal(both.columns[name][mine], only.columns[name], equal_nan=True), name


def test_windows_of_half_the_width_have_the_same_totals(tmp_path: Path) -> None:
    written(tmp_path, made_table(facts_of()), facts_of())
    whole, half = asked(tmp_path), asked(tmp_path, width_s=WIDTH_S / 2)
    assert len(half.columns["rows"]) > len(whole.columns["rows"])
    for name in ("rows", "steps", "query_tokens", "compared_steps", "generated_tokens"):
        assert whole.columns[name].sum() == half.columns[name].sum(), name
    for name in ("observed_s", "compared_floor_s", "flops"):
        assert np.nansum(whole.columns[name]) == pytest.approx(np.nansum(half.columns[name]), rel=1e-12), name


def test_the_last_bit_does_not_depend_on_cores_or_on_folding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(6):
        facts = facts_of(str(number % 2))
        table = made_table(facts, 300, number // 2)
        sequence = pc.add(table.column("sequence"), 1000 * number)
        written(tmp_path, table.set_column(2, "sequence", sequence), facts, f"0{number}-a")
    monkeypatch.setattr(partials, "GROUP_ROWS", 400)
    seen = []
    for cores, fold in ((1, 10**9), (2, 10**9), (5, 50)):
        monkeypatch.setattr(cells_module, "at_once", lambda cores=cores: cores)
        monkeypatch.setattr("rooflens.collector.trace.merging.FOLD_ROWS", fold)
        seen.append(asked(tmp_path, width_s=60.0))
    for other in seen[1:]:
        for name, column in seen[0].columns.items():
            assert np.array_equal(column, other.columns[name], equal_nan=True), name
        for name, counts in seen[0].histogram.items():
            assert np.array_equal(counts, other.histogram[name]), name


def test_a_period_and_a_condition_leave_rows_out(tmp_path: Path) -> None:
    table = made_table(facts_of())
    written(tmp_path, table, facts_of())
    middle = START_UNIX_S + 5.0
    for chosen, kept in (
        (TraceFilter(from_unix_s=middle), pc.greater_equal(table.column("unix_s"), middle)),
        (TraceFilter(to_unix_s=middle), pc.less(table.column("unix_s"), middle)),
        (TraceFilter(where="kind = 2 -- prefill beside"), pc.equal(table.column("kind"), 2)),
        (TraceFilter(where="kind = 2 OR kind = 1", to_unix_s=middle), pc.less(table.column("unix_s"), middle)),
    ):
        wanted = by_numpy(table.filter(kept), WIDTH_S)
        assert_equal(as_rows(asked(tmp_path, chosen)), wanted)
        assert_equal(as_rows(cells_of_table(table, facts_of(), chosen, WIDTH_S)), wanted)


def test_nothing_asked_for_is_one_line(tmp_path: Path) -> None:
    written(tmp_path, made_table(facts_of()), facts_of())
    with pytest.raises(RooflensError, match=r"the trace holds 2026-11-30 12:00:00Z to 2026-11-30 12:00:"):
        asked(tmp_path, TraceFilter(from_unix_s=START_UNIX_S + 7200))
    with pytest.raises(RooflensError, match=r"no engine matches 9: there are llama/0@host-1"):
        asked(tmp_path, TraceFilter(engines=("9",)))
    with pytest.raises(RooflensError, match="no steps where requests > 100000"):
        asked(tmp_path, TraceFilter(where="requests > 100000"))
    with pytest.raises(RooflensError, match="nothing here"):
        asked(tmp_path / "other")
    with pytest.raises(RooflensError, match="a width in seconds above 0"):
        asked(tmp_path, width_s=-1.0)


def test_rows_without_a_wall_time_are_left_out_and_said(tmp_path: Path) -> None:
    table = made_table(facts_of(), 100)
    times = pc.if_else(pc.less(table.column("sequence"), 11), pa.scalar(None, pa.float64()), table.column("unix_s"))
    table = table.set_column(table.column_names.index("unix_s"), "unix_s", times)
    written(tmp_path, table, facts_of())
    cells = asked(tmp_path)
    assert cells.columns["rows"].sum() == 90
    assert cells.problems == ("10 rows have no wall time, or one far from the hour of their file: left out",)


def test_a_value_that_is_no_number_does_not_spoil_a_sum(tmp_path: Path) -> None:
    table = made_table(facts_of(), 50)
    odd = pc.if_else(pc.equal(table.column("sequence"), 7), float("nan"), table.column("observed_s"))
    table = table.set_column(table.column_names.index("observed_s"), "observed_s", odd)
    cells = cells_of_table(table, facts_of(), ALL, 3600.0)
    assert np.isfinite(np.nansum(cells.columns["observed_s"]))
    assert not np.isnan(cells.columns["compared_observed_s"][cells.columns["compared_steps"] > 0]).any()


def test_the_width_keeps_windows_and_engines_few() -> None:
    assert chosen_width(30.0, 1) == 0.1
    assert chosen_width(3600.0, 1) == 10.0
    assert chosen_width(86_400.0, 1) == 300.0
    assert chosen_width(86_400.0, 400) == 1800.0
    assert chosen_width(1e9, 10_000) == 86_400.0
