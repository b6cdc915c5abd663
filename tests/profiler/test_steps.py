from __future__ import annotations

import gzip
import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from made_profiles import LATE, Event, kernel, kineto, launch, nsys, on_host

from rooflens.adapters.profiler import capture, steps
from rooflens.adapters.profiler import kineto as kineto_module
from rooflens.adapters.profiler.kernels import CLASSES
from rooflens.adapters.profiler.kineto import read_kineto
from rooflens.adapters.profiler.nsys import read_nsys
from rooflens.adapters.profiler.steps import Track, tracks_of
from rooflens.adapters.profiler.table import table_of
from rooflens.records import RooflensError

DECODE = "execute_context_0(0)_generation_1(1)"


def only(path: Path) -> Track:
    (track,) = tracks_of(read_kineto(path))
    return track


def spent(track: Track, name: str) -> list[float]:
    return [round(us, 3) for us in track.class_s[:, CLASSES.index(name)] * 1e6]


def test_kernels_belong_to_the_step_that_launched_them(tmp_path: Path) -> None:
    track = only(kineto(tmp_path / "late.json", LATE))
    assert len(track) == 2
    assert track.begin_s * 1e6 == pytest.approx([1000, 1150])
    assert track.end_s * 1e6 == pytest.approx([1120, 1200])
    assert track.busy_s * 1e6 == pytest.approx([100, 50])
    assert list(track.kernels) == [3, 1]
    assert track.longest_gap_s * 1e6 == pytest.approx([20, 0])
    assert list(track.gaps) == [1, 0]
    assert (spent(track, "attention"), spent(track, "matrix products")) == ([30, 0], [50, 50])
    assert spent(track, "other") == [20, 0]


def test_without_launches_time_decides(tmp_path: Path) -> None:
    events = [on_host(DECODE, 0, 90), kernel("gemm", 5, 50, 0), on_host(DECODE, 100, 90), kernel("gemm", 110, 30, 0)]
    track = only(kineto(tmp_path / "p.json", events))
    assert track.busy_s * 1e6 == pytest.approx([50, 30])


def test_what_runs_at_once_counts_once_and_collectives_where_nothing_hides_them(tmp_path: Path) -> None:
    events = [
        on_host(DECODE, 0, 90),
        *(launch(at, at) for at in (1, 2, 3, 4)),
        kernel("gemm_a", 10, 40, 1),
        kernel("gemm_b", 30, 40, 2),
        kernel("ncclDevKernel_AllReduce", 40, 60, 3),
        kernel("Memcpy DtoH", 90, 20, 4, cat="gpu_memcpy"),
    ]
    track = only(kineto(tmp_path / "p.json", events))
    assert spent(track, "matrix products") == [60]
    assert spent(track, "collectives") == [30]
    assert track.begin_s[0] * 1e6 == pytest.approx(10)
    assert track.end_s[0] * 1e6 == pytest.approx(100), "a copy does not move the end of a step"
    assert spent(track, "copies") == [0]
    assert track.summed_s[CLASSES.index("collectives")] * 1e6 == pytest.approx(60)


def test_an_empty_turn_ends_a_step_and_is_none(tmp_path: Path) -> None:
    empty = "execute_context_0(0)_generation_0(0)"
    events = [
        on_host(DECODE, 0, 10),
        on_host("aten::mm", 2, 3, "cpu_op"),
        on_host(empty, 20, 1),
        on_host(DECODE, 50, 10),
    ]
    track = only(kineto(tmp_path / "p.json", events))
    assert (len(track), track.empty) == (2, 1)
    assert track.device == capture.HOST
    assert track.busy_s * 1e6 == pytest.approx([3, 0])


def test_operators_within_operators_count_once_by_the_outer_class(tmp_path: Path) -> None:
    events = [
        on_host(DECODE, 0, 100),
        on_host("vllm::unified_attention", 10, 30, "cpu_op"),
        on_host("aten::mm", 15, 10, "cpu_op"),
        on_host("aten::empty", 50, 20, "cpu_op"),
        on_host("aten::copy_", 55, 5, "cpu_op"),
    ]
    track = only(kineto(tmp_path / "p.json", events))
    assert [spent(track, name) for name in ("attention", "matrix products", "copies", "other")] == [
        [30],
        [0],
        [5],
        [15],
    ]
    assert track.longest_gap_s[0] * 1e6 == pytest.approx(10)


def test_the_ranges_that_tell_most_are_taken_and_none_within_another(tmp_path: Path) -> None:
    events = [
        on_host("ProfilerStep#1", 0, 95), on_host(DECODE, 5, 50), on_host("gpu_model_runner: forward", 6, 20),
        on_host("ProfilerStep#2", 95, 95), on_host(DECODE, 100, 50), on_host(DECODE, 110, 5),
    ]  # fmt: skip
    track = only(kineto(tmp_path / "p.json", events))
    assert track.begin_s * 1e6 == pytest.approx([5, 100])
    assert not track.worked


def test_ranges_that_overlap_are_steps_of_their_own(tmp_path: Path) -> None:
    events = [on_host(DECODE, 0, 90), on_host(DECODE, 80, 90), kernel("gemm", 5, 50, 0), kernel("gemm", 100, 30, 0)]
    track = only(kineto(tmp_path / "p.json", events))
    assert track.busy_s * 1e6 == pytest.approx([50, 30])


def test_a_pass_in_several_graphs_is_one_step(tmp_path: Path) -> None:
    """SGLang's ranges of one pass that is cut up lie in one range of its scheduler."""
    events = [on_host("scheduler.run_batch", at, 90) for at in (0, 100)]
    events += [on_host("step[DECODE bs=2]", at, 20) for at in (5, 30, 60, 105)]
    track = only(kineto(tmp_path / "p.json", events))
    assert track.begin_s * 1e6 == pytest.approx([5, 105])
    assert track.end_s * 1e6 == pytest.approx([80, 125])


def test_merged_ranks_stay_apart(tmp_path: Path) -> None:
    """SGLang's merged files: numbers of launches repeat from rank to rank."""

    def of(rank: int) -> list[Event]:
        return [{**event, "pid": f"[TP{rank:02d}] {event['pid']}"} for event in LATE[: 10 - rank]]

    found = tracks_of(read_kineto(kineto(tmp_path / "m.json", [*of(0), *of(1)])))
    assert [(one.process, len(one)) for one in found] == [("TP00", 2), ("TP01", 1)]
    assert found[1].without_work == 1


def test_several_devices_of_a_process(tmp_path: Path) -> None:
    events = [on_host(DECODE, 0, 90), kernel("gemm", 5, 50, 0), kernel("gemm", 5, 70, 0, device=1)]
    found = tracks_of(read_kineto(kineto(tmp_path / "p.json", events)))
    assert [(one.device, round(one.busy_s[0] * 1e6)) for one in found] == [(0, 50), (1, 70)]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(
    work=st.lists(
        st.tuples(
            st.sampled_from(["gemm", "flash_attn", "nccl", "norm", "memcpy"]), st.integers(0, 400), st.integers(0, 60)
        ),
        min_size=1,
        max_size=30,
    ),
    begins=st.lists(st.integers(0, 400), min_size=1, max_size=6, unique=True),
)
def test_the_time_of_a_step_adds_up(work: Sequence[tuple[str, int, int]], begins: list[int], tmp_path: Path) -> None:
    """By microseconds that are marked one by one."""
    events = [on_host(DECODE, at, 3) for at in begins] + [kernel(name, at, size, 0) for name, at, size in work]
    for track in tracks_of(read_kineto(kineto(tmp_path / "any.json", events))):
        assert np.all(track.end_s >= track.begin_s)
        assert np.all(track.begin_s[1:] >= track.end_s[:-1] - 1e-12)
        assert track.class_s.sum(axis=1) == pytest.approx(track.busy_s)
        for begin, end, busy in zip(track.begin_s, track.end_s, track.busy_s, strict=True):
            low, high = round(begin * 1e6) + begins[0], round(end * 1e6) + begins[0]
            marked = {us for _, at, size in work if low <= at for us in range(at, min(at + size, high)) if us >= low}
            assert busy * 1e6 == pytest.approx(len(marked), abs=1e-6)


class TestNsys:
    RANGES = ((0, 90_000, 7, DECODE), (100_000, 190_000, 7, DECODE), (0, 300_000, 7, "a layer"))
    KERNELS = (
        (150_000, 170_000, 7, 0, 1, "flash_fwd_kernel"),
        (171_000, 191_000, 7, 0, 2, "nvjet_tst"),
        (200_000, 240_000, 7, 0, 3, "nvjet_tst"),
    )
    LAUNCHES = ((10_000, 7, 1), (20_000, 7, 2), (110_000, 7, 3))

    @pytest.mark.parametrize("inline", [True, False])
    def test_names_inline_or_by_number(self, inline: bool, tmp_path: Path) -> None:
        path = nsys(tmp_path / "p.sqlite", self.RANGES, self.KERNELS, self.LAUNCHES, inline)
        found = read_nsys(path)
        (track,) = tracks_of(found)
        assert found.unix_s == 1_796_000_000.0
        assert found.device_names == {0: "NVIDIA H100 80GB HBM3"}
        assert track.begin_s * 1e6 == pytest.approx([150, 200])
        assert track.busy_s * 1e6 == pytest.approx([40, 40])
        assert (spent(track, "attention"), spent(track, "matrix products")) == ([20, 0], [20, 40])

    def test_processes_stay_apart(self, tmp_path: Path) -> None:
        others = tuple((start, end, 8, 1, number, name) for start, end, _, _, number, name in self.KERNELS[:1])
        ranges = (*self.RANGES, (0, 90_000, 8, DECODE))
        path = nsys(tmp_path / "p.sqlite", ranges, (*self.KERNELS, *others), (*self.LAUNCHES, (5_000, 8, 1)))
        found = tracks_of(read_nsys(path))
        assert [(one.process, one.device, len(one)) for one in found] == [("process 7", 0, 2), ("process 8", 1, 1)]

    def test_copies_and_what_is_missing(self, tmp_path: Path) -> None:
        path = nsys(tmp_path / "p.sqlite", self.RANGES, self.KERNELS, copies=[(192_000, 196_000, 7, 0, 9)])
        with closing(sqlite3.connect(path)) as database, database:
            for table in ("CUPTI_ACTIVITY_KIND_RUNTIME", "TARGET_INFO_GPU", "TARGET_INFO_SESSION_START_TIME"):
                database.execute(f"DROP TABLE {table}")
        before = path.read_bytes()
        found = read_nsys(path)
        (track,) = tracks_of(found)
        assert found.unix_s is None
        assert spent(track, "copies") == [4]
        assert path.read_bytes() == before
        assert [one.name for one in tmp_path.iterdir()] == ["p.sqlite"], "nothing is written beside it"

    def test_other_and_damaged_databases(self, tmp_path: Path) -> None:
        other = tmp_path / "other.sqlite"
        with closing(sqlite3.connect(other)) as database, database:
            database.execute("CREATE TABLE t (x)")
        with pytest.raises(RooflensError, match="not one that 'nsys export"):
            read_nsys(other)
        path = nsys(tmp_path / "p.sqlite", self.RANGES, self.KERNELS * 200, self.LAUNCHES)
        path.write_bytes(path.read_bytes()[:5000])
        with pytest.raises(RooflensError, match="cannot be read"):
            read_nsys(path)


class TestKineto:
    def test_a_file_that_is_cut_off_is_read_up_to_there(self, tmp_path: Path) -> None:
        path = kineto(tmp_path / "p.json", LATE * 50)
        raw = path.read_bytes()
        path.write_bytes(raw[: len(raw) // 2])
        found = read_kineto(path)
        assert found.cut_off
        assert 200 < found.events < 300
        packed = tmp_path / "p.json.gz"
        packed.write_bytes(gzip.compress(raw)[:-20])
        assert read_kineto(packed).cut_off

    def test_wall_time(self, tmp_path: Path) -> None:
        events = [on_host(DECODE, 5_000_000, 3)]
        found = read_kineto(kineto(tmp_path / "p.json", events, baseTimeNanoseconds=1_790_000_000_000_000_000))
        assert found.unix_s == 1_790_000_005.0
        merged = tmp_path / "merged.json"  # SGLang writes what stood before the events behind them
        merged.write_text(json.dumps({"traceEvents": events, "baseTimeNanoseconds": 10**18}))
        assert read_kineto(merged).unix_s == 1e9 + 5
        old = read_kineto(kineto(tmp_path / "old.json", [on_host(DECODE, 1.7e15, 3)]))
        assert old.unix_s == 1.7e9
        assert read_kineto(kineto(tmp_path / "none.json", events)).unix_s is None

    @pytest.mark.parametrize(
        "event",
        [
            {"ts": None}, {"ts": "x"}, {"ts": -1}, {"ts": True}, {"dur": -5}, {"dur": 1e300}, {"cat": 7}, {"name": []},
            {"args": []}, {"args": {"correlation": "x", "device": 1e99}}, {"pid": {}}, {"ph": "i"},
        ],
    )  # fmt: skip
    def test_odd_events_are_passed_over(self, event: dict[str, object], tmp_path: Path) -> None:
        odd = kernel("gemm", 10, 10, 1) | event
        path = kineto(tmp_path / "p.json", [on_host(DECODE, 0, 90), odd, 7, None, [], kernel("gemm", 20, 10, 1)])
        (track,) = [one for one in tracks_of(read_kineto(path)) if one.device == 0]
        assert 10 <= round(track.busy_s[0] * 1e6) <= 20

    def test_what_never_ends_is_refused(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(kineto_module, "MOST_EVENT_BYTES", 1 << 20)
        path = tmp_path / "bomb.json.gz"
        path.write_bytes(gzip.compress(b'{"traceEvents": [{"name": "' + b"x" * (8 << 20)))
        with pytest.raises(RooflensError, match="1 MiB without an event"):
            read_kineto(path)

    def test_too_much_is_refused_and_too_many_operators_only_where_no_device_worked(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for module in (capture, steps):
            monkeypatch.setattr(module, "MOST_INTERVALS", 3)
        operators = [on_host("aten::mm", at, 1, "cpu_op") for at in range(5)]
        with pytest.raises(RooflensError, match="more than 3 kernels"):
            read_kineto(kineto(tmp_path / "k.json", LATE[:4] + tuple(kernel("gemm", at, 1, 0) for at in range(5))))
        events = [on_host(DECODE, 0, 90), *operators, kernel("gemm", 5, 5, 0)]
        found = read_kineto(kineto(tmp_path / "o.json", events))
        assert found.operators_dropped
        assert tracks_of(found)[0].device == 0
        with pytest.raises(RooflensError, match="more than 3 kernels or operators"):
            tracks_of(read_kineto(kineto(tmp_path / "h.json", events[:-1])))


def test_rows_of_a_step_table(tmp_path: Path) -> None:
    names = ("execute_context_1(30)_generation_2(2)", "execute_new_1_cached_1")
    track = only(kineto(tmp_path / "p.json", [on_host(name, at * 100, 50) for at, name in enumerate(names)]))
    table = table_of(track, 1000.0)
    assert table["observed_s"] * 1e6 == pytest.approx([50, 50])
    assert table["unix_s"] == pytest.approx([1000.00005, 1000.00015])
    assert list(table["requests"]) == [3, 2]
    assert list(table.where("query_tokens")) == [True, False]
    assert not table.has("kind")
    assert table["sampled_rows"][0] == 2
