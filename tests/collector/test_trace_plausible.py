"""Rows and columns that cannot be: a line, or not known, and the rest is as if they were not there."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from made_traces import START_UNIX_S, facts_of, made_table, place_of, written

from rooflens.collector.trace.cells import cells_of, width_of
from rooflens.collector.trace.file import footer_of, write_file
from rooflens.collector.trace.files import find_trace
from rooflens.collector.trace.plausible import FIRST_UNIX_S, LAST_UNIX_S, bounds_of, fault_of
from rooflens.collector.trace.scan import parts_of
from rooflens.trace_records import Cells, TraceFilter

ALL = TraceFilter()
NAN, INFINITE = float("nan"), float("inf")


def changed(table: pa.Table, name: str, value: Any, every: int = 7) -> pa.Table:
    """With ``value`` in each so manieth row of a column."""
    rows = pa.array(np.arange(len(table)) % every == 0)
    at = table.column_names.index(name)
    field = table.schema.field(name).with_nullable(True)
    return table.set_column(at, field, pc.if_else(rows, pa.scalar(value, field.type), table.column(name)))


def same(a: Cells, b: Cells) -> None:
    for name, column in a.columns.items():
        np.testing.assert_array_equal(column, b.columns[name], name)
    for name, bins in a.histogram.items():
        np.testing.assert_array_equal(bins, b.histogram[name], name)


def found_in(folder: Path, chosen: TraceFilter = ALL) -> Cells:
    return cells_of(find_trace([str(folder)], chosen), chosen, 60.0)


@pytest.mark.parametrize("value", [NAN, -INFINITE, 0.0, 1e15, START_UNIX_S - 1e5])
def test_rows_whose_wall_time_cannot_be_are_left_out_and_counted(tmp_path: Path, value: float) -> None:
    facts, other = facts_of(), facts_of("1")
    table, rest = made_table(facts, 70), made_table(other, 70, 3)
    written(tmp_path, changed(table, "unix_s", value), facts)
    written(tmp_path, rest, other, "01-a")
    without = table.filter(pa.array(np.arange(70) % 7 != 0))
    written(tmp_path / "clean", without, facts)
    written(tmp_path / "clean", rest, other, "01-a")
    files, clean = find_trace([str(tmp_path / "steps")], ALL), find_trace([str(tmp_path / "clean")], ALL)
    cells = cells_of(files, ALL, 60.0)
    assert cells.problems == ("10 rows have no wall time, or one far from the hour of their file: left out",)
    same(cells, cells_of(clean, ALL, 60.0))
    problems: list[str] = []
    assert sum(len(part.steps) for part in parts_of(files, ALL, problems=problems)) == 130
    assert problems == list(cells.problems)
    assert START_UNIX_S <= (files.first_unix_s or 0.0) <= (files.last_unix_s or 0.0) <= START_UNIX_S + 3600.0
    assert width_of(files, ALL) <= 60.0


@pytest.mark.parametrize(
    ("name", "value"),
    [("observed_s", NAN), ("observed_s", -INFINITE), ("floor_s", INFINITE), ("schedule_s", NAN), ("flops", INFINITE)],
)
def test_what_is_no_finite_number_is_not_known(tmp_path: Path, name: str, value: float) -> None:
    facts = facts_of()
    table = made_table(facts, 70)
    written(tmp_path / "bad", changed(table, name, value), facts)
    written(tmp_path / "clean", changed(table, name, None), facts)
    for chosen in (ALL, TraceFilter(where=f"{name} IS NULL OR requests > 100")):
        same(found_in(tmp_path / "bad", chosen), found_in(tmp_path / "clean", chosen))
    (part,) = parts_of(find_trace([str(tmp_path / "bad")], ALL), ALL)
    assert part.table.column(name).null_count >= 10
    assert np.isfinite(part.steps[name][part.steps.where(name)]).all() if name in part.steps.columns else True


@pytest.mark.parametrize(
    ("name", "kind", "said"),
    [
        ("unix_s", pa.string(), "its column unix_s is string, not double"),
        ("observed_s", pa.string(), "its column observed_s is string, not double"),
        ("run", pa.int64(), "its column run is int64, not varchar"),
        ("requests", pa.float64(), "its column requests is double, not bigint"),
        ("kind", pa.bool_(), "its column kind is bool, not bigint"),
    ],
)
def test_a_column_of_another_type_is_a_line_and_the_file_is_left_out(
    tmp_path: Path, name: str, kind: pa.DataType, said: str
) -> None:
    table = made_table(facts_of(), 70)
    bad, at = table.drop_columns([name]), table.column_names.index(name)
    values = pa.array([None if pa.types.is_boolean(kind) else 1] * 70, pa.int64()).cast(kind)
    path = written(tmp_path, bad.add_column(at, name, values), facts_of())
    written(tmp_path, made_table(facts_of("1"), 30), facts_of("1"), "01-a")
    files = find_trace([str(tmp_path)], ALL)
    assert files.problems == (f"{path}: no steps of a trace: {said}",)
    assert cells_of(files, ALL).columns["rows"].sum() == 30
    assert sum(len(part.steps) for part in parts_of(files, ALL)) == 30


def test_a_column_twice_is_a_line(tmp_path: Path) -> None:
    table = made_table(facts_of(), 70)
    path = written(tmp_path, table.append_column("kind", table.column("kind")), facts_of())
    written(tmp_path, made_table(facts_of("1"), 30), facts_of("1"), "01-a")
    files = find_trace([str(tmp_path)], ALL)
    assert files.problems == (f"{path}: no steps of a trace: it has column kind more than once",)


def test_other_widths_and_columns_that_are_not_known_here_are_read() -> None:
    schema = made_table(facts_of(), 5).schema
    places = {name: schema.get_field_index(name) for name in ("requests", "run", "observed_s", "kind")}
    for name, kind in (("requests", pa.int32()), ("run", pa.dictionary(pa.int32(), pa.string())),
                       ("observed_s", pa.int64()), ("kind", pa.null())):  # fmt: skip
        assert fault_of(schema.set(places[name], pa.field(name, kind))) is None
    assert fault_of(schema.append(pa.field("steam_pressure", pa.binary()))) is None


@pytest.mark.parametrize("absent", [True, False])
def test_steps_without_their_kind_are_steps_of_unknown_kind(tmp_path: Path, absent: bool) -> None:
    table = made_table(facts_of(), 70)
    table = table.drop_columns(["kind"]) if absent else changed(table, "kind", None, 1)
    written(tmp_path, table, facts_of())
    (part,) = parts_of(find_trace([str(tmp_path)], ALL), ALL)
    assert len(part.steps["kind"]) == 70
    assert not part.steps.where("kind").any()
    assert set(found_in(tmp_path).columns["kind"].tolist()) == {-1}


def test_a_pipe_is_a_line_and_is_not_opened(tmp_path: Path) -> None:
    path = written(tmp_path, made_table(facts_of(), 30), facts_of()).with_name("pipe.parquet")
    os.mkfifo(path)
    files = find_trace([str(tmp_path)], ALL)
    assert files.rows == 30
    assert files.problems == (f"{path}: no regular file: left out",)


def test_the_hours_of_files_bound_the_times_of_their_rows() -> None:
    one, other = (str(place_of(Path("/t"), hour=hour)) for hour in ("12", "15"))
    assert bounds_of([one]) == (START_UNIX_S - 86_400.0, START_UNIX_S + 3600.0 + 86_400.0)
    assert bounds_of([one, other]) == (START_UNIX_S - 86_400.0, START_UNIX_S + 4 * 3600.0 + 86_400.0)
    assert bounds_of([one, "/t/x.parquet"]) == (FIRST_UNIX_S, LAST_UNIX_S)


def test_times_of_a_footer_that_are_no_numbers_are_not_known(tmp_path: Path) -> None:
    table = made_table(facts_of(), 5)
    path = tmp_path / "a.parquet"
    write_file(path, table.drop_columns(["unix_s"]).append_column("unix_s", pa.array(["x"] * 5)), [facts_of()])
    import pyarrow.parquet as pq

    footer = footer_of(str(path), pq.read_metadata(path))
    assert (footer.first_unix_s, footer.last_unix_s) == (None, None)
