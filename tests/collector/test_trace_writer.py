"""The writer of a trace: what is put comes back, a file a minute and hour, and nothing is lost or overwritten."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from written_traces import BEGIN_UNIX_S, Clock, facts_of, steps_by_run, trace_files, trace_rows, trace_table

from rooflens.collector.trace.buffer import BOUNDS, TIMES, packed, steps_table
from rooflens.collector.trace.file import read_footer
from rooflens.collector.trace.held import folder_name
from rooflens.collector.trace.schema import keyframes_of, steps_of, to_arrow
from rooflens.collector.trace.writer import TraceWriter
from rooflens.records import COLUMN_KINDS, StepTable
from rooflens.trace_records import METADATA_KEY, TraceRows
from rooflens.trace_tables import TraceLimits


class Writing:
    """A writer without a thread, at a time that is told."""

    def __init__(self, folder: Path, limits: TraceLimits | None = None) -> None:
        self.clock, self.monotonic = Clock(), Clock(1000.0)
        self.cursors: dict[str, int] = {}
        self.writer = TraceWriter(str(folder), limits, self.clock, self.monotonic, threaded=False)
        self.writer.on_written(self._written)

    def _written(self, cursors: Mapping[str, int]) -> None:
        self.cursors |= cursors

    def after(self, seconds: float) -> None:
        self.clock.now_s += seconds
        self.monotonic.now_s += seconds
        self.writer.turn()


def test_what_is_put_comes_back_sorted_by_engine_and_sequence(tmp_path: Path) -> None:
    writing = Writing(tmp_path)
    two, one = facts_of("2"), facts_of("1")
    frame = {3: ([1000] * 8, [1] * 8)}
    made = trace_rows(two, range(11, 21), keyframes=frame)
    for rows in (made, trace_rows(one, range(1, 6)), trace_rows(two, range(21, 31))):
        writing.writer.put(rows)
    writing.after(60)
    (path,) = trace_files(tmp_path)
    assert path.relative_to(tmp_path).parts[:4] == ("steps", "host=host-1", "date=2027-01-15", "hour=08")
    table = trace_table(path)
    keys = list(zip(table.column("facts").to_pylist(), table.column("sequence").to_pylist(), strict=True))
    assert keys == sorted(keys)
    assert len(keys) == 25
    assert read_footer(str(path)).facts == {one.digest: one, two.digest: two}
    own = table.filter(pa.compute.field("run") == two.run).slice(0, 10)
    assert keyframes_of(own) == frame
    same_steps(steps_of(own), made.steps)
    assert made.analysis is not None
    floors = own.column("floor_s").to_numpy()
    assert np.all(floors == floors.astype(np.float32))
    assert np.allclose(floors, made.analysis.floor_s, rtol=2**-24, atol=0)
    assert own.column("bound").to_pylist() == made.analysis.bound.tolist()


def same_steps(found: StepTable, made: StepTable) -> None:
    """Counts as they were, times to the nanosecond, and nothing known that was not."""
    for name, column in made.columns.items():
        mask = made.where(name)
        assert np.array_equal(found.where(name), mask), name
        if COLUMN_KINDS[name] == "i":
            assert np.array_equal(found[name][mask], column[mask]), name
        else:
            assert np.allclose(found[name][mask], column[mask], rtol=0, atol=0.5e-9), name
    assert set(found.columns) - {"resolution_steps"} <= set(made.columns)


def test_a_time_of_whole_nanoseconds_is_the_same_number_of_them() -> None:
    ns = np.random.default_rng(1).integers(0, 10**12, 1000)
    steps = StepTable({"sequence": np.arange(1, 1001), "schedule_s": ns / 1e9})
    table = steps_table([packed(TraceRows(facts_of(), steps), "0", 0.0, 1)])
    assert np.array_equal(np.round(table.column("schedule_s").to_numpy() * 1e9).astype(np.int64), ns)


NAMES = ["unix_s", "observed_s", "waiting", "requests", "context_tokens", "context_tokens@w1024", "distinct_experts"]


@st.composite
def tables(draw: st.DrawFn) -> StepTable:
    count = draw(st.integers(1, 6))
    columns, known = {"sequence": np.array(draw(st.permutations(range(1, count + 1))), np.int64)}, {}
    for name in draw(st.lists(st.sampled_from(NAMES), unique=True)):
        whole = st.integers(0, 2**40)
        values = draw(st.lists(whole, min_size=count, max_size=count))
        columns[name] = np.array(values, np.int64) if COLUMN_KINDS.get(name, "i") == "i" else np.array(values) / 1024
        known[name] = np.array(draw(st.lists(st.booleans(), min_size=count, max_size=count)))
    return StepTable(columns, known)


@given(st.lists(st.tuples(st.sampled_from("ab"), tables()), min_size=1, max_size=4))
@settings(max_examples=60, deadline=None)
def test_packed_rows_are_the_table_that_each_alone_would_be(pieces: list[tuple[str, StepTable]]) -> None:
    facts = {name: facts_of(name) for name in "ab"}
    whole = [TraceRows(facts[name], steps) for name, steps in pieces]
    made = steps_table([packed(rows, rows.facts.digest, 0.0, 1) for rows in whole])
    apart = pa.concat_tables([to_arrow(rows) for rows in whole], promote_options="default")
    keys = list(zip(made.column("facts").to_pylist(), made.column("sequence").to_pylist(), strict=True))
    assert keys == sorted(keys)
    names = [name for name in apart.column_names if name not in ("facts", "run")]
    assert sorted(map(str, made.select(names).to_pylist())) == sorted(map(str, apart.select(names).to_pylist()))
    assert set(made.column_names) == set(apart.column_names)


def test_a_step_without_bounds_has_none(tmp_path: Path) -> None:
    writing = Writing(tmp_path)
    writing.writer.put(trace_rows(facts_of(), range(1, 4), bounds=False))
    writing.after(60)
    table = trace_table(trace_files(tmp_path)[0])
    assert [table.column(name).null_count for name in ("bound", *BOUNDS)] == [3] * (len(BOUNDS) + 1)
    assert {"unix_s", "observed_s"} < set(TIMES)


def test_a_file_holds_a_minute_of_the_wall_clock(tmp_path: Path) -> None:
    writing = Writing(tmp_path)
    writing.after(30)
    writing.writer.put(trace_rows(facts_of(), [1], BEGIN_UNIX_S + 30))
    writing.after(29)
    assert trace_files(tmp_path) == []
    assert writing.writer.state().oldest_unwritten_s == 29
    writing.after(1)
    writing.writer.put(trace_rows(facts_of(), [2], BEGIN_UNIX_S + 60))
    writing.after(60)
    assert [path.name[:2] for path in trace_files(tmp_path)] == ["00", "01"]
    assert writing.writer.state().oldest_unwritten_s is None


def test_a_file_never_crosses_an_hour(tmp_path: Path) -> None:
    writing = Writing(tmp_path)
    frame = {1: ([5], [1]), 3: ([7], [1])}
    writing.writer.put(trace_rows(facts_of(), range(1, 5), BEGIN_UNIX_S + 3600 - 0.03, keyframes=frame))
    writing.after(60)
    before, after = trace_files(tmp_path)
    assert (before.parent.name, after.parent.name) == ("hour=08", "hour=09")
    assert trace_table(before).column("sequence").to_pylist() == [1, 2]
    assert (keyframes_of(trace_table(before)), keyframes_of(trace_table(after))) == ({1: ([5], [1])}, {1: ([7], [1])})


def test_a_clock_that_jumps_loses_and_overwrites_nothing(tmp_path: Path) -> None:
    writing = Writing(tmp_path)
    for turn, jump_s in enumerate((0, -3 * 3600, 5 * 3600, -2 * 3600, 0)):
        writing.clock.now_s += jump_s
        writing.writer.put(trace_rows(facts_of(), range(10 * turn + 1, 10 * turn + 11), writing.clock.now_s))
        writing.after(60)
    assert steps_by_run(tmp_path) == {facts_of().run: list(range(1, 51))}
    assert len(trace_files(tmp_path)) == 5


def test_two_writers_of_the_same_minute_do_not_overwrite_one_another(tmp_path: Path) -> None:
    one, other = Writing(tmp_path), Writing(tmp_path)
    for number, writing in enumerate((one, other)):
        writing.writer.put(trace_rows(facts_of(), range(10 * number + 1, 10 * number + 11)))
        writing.after(60)
    assert steps_by_run(tmp_path) == {facts_of().run: list(range(1, 21))}


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -5.0, 1e300])
def test_a_row_without_a_time_is_of_now(tmp_path: Path, bad: float) -> None:
    writing = Writing(tmp_path)
    rows = trace_rows(facts_of(), [1, 2])
    columns = {**rows.steps.columns, "unix_s": np.array([bad, BEGIN_UNIX_S])}
    writing.writer.put(replace(rows, steps=StepTable(columns)))
    writing.after(60)
    assert steps_by_run(tmp_path) == {facts_of().run: [1, 2]}


def test_names_of_hosts_are_names_of_folders() -> None:
    names = ["a/b", "..", "", "a=b c", "é", "\udc80", "x" * 400, "é" * 300]
    folders = [folder_name(name) for name in names]
    assert folders[:5] == ["a%2Fb", "..", "unknown", "a%3Db%20c", "%C3%A9"]
    assert all("/" not in folder and len(folder) <= 200 for folder in folders)
    assert folder_name("é" * 300) != folder_name("é" * 301)


def test_a_host_with_a_slash_stays_below_the_trace(tmp_path: Path) -> None:
    writing = Writing(tmp_path / "trace")
    writing.writer.put(trace_rows(facts_of(host="../../x"), [1]))
    writing.after(60)
    assert [path.parts[-4] for path in trace_files(tmp_path / "trace")] == ["host=..%2F..%2Fx"]
    assert [path.name for path in tmp_path.iterdir()] == ["trace"]


def test_ten_thousand_engines_are_one_file(tmp_path: Path) -> None:
    writing = Writing(tmp_path)
    rows = trace_rows(facts_of(), [1, 2])
    for number in range(10_000):
        writing.writer.put(TraceRows(replace(rows.facts, engine=str(number), run=f"{number:016x}"), rows.steps))
    writing.after(60)
    (path,) = trace_files(tmp_path)
    said = json.loads(pq.read_metadata(path).metadata[METADATA_KEY])
    assert (len(said["facts"]), len(said["runs"]), len(said["shared"])) == (10_000, 10_000, 2)
    assert writing.writer.state().rows_written == 20_000


def test_what_finds_no_room_is_dropped_and_counted(tmp_path: Path) -> None:
    writing = Writing(tmp_path, TraceLimits(memory_bytes=100_000))
    for number in range(40):
        writing.writer.put(trace_rows(facts_of(), range(10 * number + 1, 10 * number + 11)))
    assert "more comes than can be written" in (writing.writer.state().problem or "")
    writing.after(60)
    state = writing.writer.state()
    assert state.dropped_rows > 100
    assert state.problem is None  # what was there is written by now
    assert state.rows_written + state.dropped_rows == 400
    writing.writer.put(trace_rows(facts_of(), range(401, 411)))
    writing.after(60)
    assert writing.writer.state().rows_written == state.rows_written + 10


def test_more_than_half_of_the_room_is_written_before_the_minute_is_over(tmp_path: Path) -> None:
    writing = Writing(tmp_path, TraceLimits(memory_bytes=100_000))
    for number in range(8):
        writing.writer.put(trace_rows(facts_of(), range(10 * number + 1, 10 * number + 11)))
    writing.after(1)
    assert writing.writer.state().rows_written == 80


def test_rows_that_are_none_cost_no_others(tmp_path: Path) -> None:
    writing = Writing(tmp_path)
    writing.writer.put(TraceRows(facts_of(), StepTable({"sequence": np.array([1]), "requests": np.array([1, 2, 3])})))
    writing.writer.put(trace_rows(facts_of("1"), [1]))
    writing.after(60)
    assert (writing.writer.state().rows_written, writing.writer.state().dropped_rows) == (1, 1)


def test_the_thread_writes_by_itself_and_the_rest_at_the_end(tmp_path: Path) -> None:
    writer = TraceWriter(str(tmp_path), TraceLimits(period_s=0.05))
    seen: dict[str, int] = {}
    writer.on_written(seen.update)
    writer.put(trace_rows(facts_of(), range(1, 11)))
    while writer.state().rows_written < 10:
        pass
    writer.put(trace_rows(facts_of(), range(11, 21)))
    writer.close()
    assert steps_by_run(tmp_path) == {facts_of().run: list(range(1, 21))}
    assert seen == {facts_of().run: 20}
    writer.put(trace_rows(facts_of(), [21]))
    assert writer.state().dropped_rows == 1
