"""The limits of a trace: the oldest hours go first, and nothing goes that traces did not write."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from counted_calls import calls_of
from written_traces import BEGIN_UNIX_S, Clock, facts_of, trace_files, trace_rows

from rooflens.collector.trace.limits import Sweeper
from rooflens.collector.trace.writer import TraceWriter
from rooflens.trace_tables import TraceLimits

HOURS = 6


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """A trace of six hours, a file each."""
    clock, monotonic = Clock(), Clock(1000.0)
    writer = TraceWriter(str(tmp_path / "trace"), None, clock, monotonic, threaded=False)
    for hour in range(HOURS):
        writer.put(trace_rows(facts_of(), [hour + 1], BEGIN_UNIX_S + 3600 * hour))
        monotonic.now_s += 61
        writer.turn()
    return tmp_path / "trace"


def hours(trace: Path) -> list[int]:
    return [int(path.parent.name.removeprefix("hour=")) for path in trace_files(trace)]


def sweeper(trace: Path, max_bytes: int | None = None, max_age_s: float | None = None) -> Sweeper:
    return Sweeper(trace, TraceLimits(max_bytes=max_bytes, max_age_s=max_age_s))


NOW_S = BEGIN_UNIX_S + 3600 * (HOURS - 1) + 60


def test_the_oldest_go_until_the_rest_is_within_the_size(trace: Path) -> None:
    sizes = [path.stat().st_size for path in trace_files(trace)]
    done = sweeper(trace, max_bytes=sum(sizes[-2:])).sweep(NOW_S)
    assert hours(trace) == [12, 13]
    assert (done.files, done.bytes, done.left_bytes) == (4, sum(sizes[:4]), sum(sizes[-2:]))
    assert sorted(path.name for path in trace.glob("steps/*/*/*")) == ["hour=11", "hour=12", "hour=13"]


def test_what_is_older_than_the_age_goes(trace: Path) -> None:
    sweeper(trace, max_age_s=2 * 3600).sweep(NOW_S)
    assert hours(trace) == [11, 12, 13]  # of 11 the last minutes are not too old
    sweeper(trace, max_age_s=2 * 3600).sweep(NOW_S + 86_400)
    assert [*trace.iterdir()] == [trace / "steps"]
    assert [*(trace / "steps").iterdir()] == []


def test_without_limits_everything_stays(trace: Path) -> None:
    assert sweeper(trace).sweep(NOW_S + 1e9).files == 0
    assert len(hours(trace)) == HOURS


def test_files_of_others_stay_and_count_for_nothing(trace: Path) -> None:
    first = trace_files(trace)[0]
    other = first.with_name("00-0123456789ab-000001.parquet")  # a name as ours, another's content
    other.write_bytes(b"x" * 100_000)
    (first.parent / "notes.txt").write_text("mine")
    (trace / "steps" / "host=x" / "date=2026-13-01" / "hour=00").mkdir(parents=True)
    sizes = [path.stat().st_size for path in trace_files(trace) if path != other]
    one = sweeper(trace, max_bytes=sum(sizes))
    one.sweep(NOW_S)
    assert one.sweep(NOW_S).left_bytes <= sum(sizes)
    assert other.exists()
    assert (first.parent / "notes.txt").exists()
    sweeper(trace, max_bytes=0).sweep(NOW_S)
    assert trace_files(trace) == [other]


def test_a_link_is_not_followed(trace: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    (trace / "steps").rename(outside)
    (trace / "steps").symlink_to(outside)
    sweeper(trace, max_bytes=0).sweep(NOW_S)
    assert len([*outside.rglob("*.parquet")]) == HOURS
    (trace / "steps").unlink()
    outside.rename(trace / "steps")
    hour = trace_files(trace)[0].parent
    hour.rename(tmp_path / "hour")
    hour.symlink_to(tmp_path / "hour")
    sweeper(trace, max_bytes=0).sweep(NOW_S)
    assert len([*(tmp_path / "hour").iterdir()]) == 1
    assert [path.parent for path in trace_files(trace)] == [hour]


def test_what_a_dead_writer_left_aside_goes_and_what_is_being_written_stays(trace: Path) -> None:
    first = trace_files(trace)[0]
    old, new = (first.with_name(f".{first.name}.{pid}.writing") for pid in (1, 2))
    foreign = first.with_name(".mine.writing")
    for path, age_s in ((old, 1000), (new, 10), (foreign, 1000)):
        path.touch()
        os.utime(path, (NOW_S - age_s, NOW_S - age_s))
    one = sweeper(trace)
    one.sweep(NOW_S)
    assert [path.exists() for path in (old, new, foreign)] == [False, True, True]
    one.sweep(NOW_S + 1000)
    assert not new.exists()


def test_hours_in_which_nothing_changed_are_not_listed_again(trace: Path) -> None:
    one = sweeper(trace, max_bytes=1 << 30)
    first = calls_of(lambda: one.sweep(NOW_S))
    for number in range(200):
        path = trace_files(trace)[0]
        path.with_name(f"01-0123456789ab-{number:06}.parquet").write_bytes(path.read_bytes())
    with_many = calls_of(lambda: one.sweep(NOW_S))
    again = calls_of(lambda: one.sweep(NOW_S))
    assert with_many > first + 400
    assert again < first + 250


def test_the_writer_holds_its_trace_to_the_limits(tmp_path: Path) -> None:
    clock, monotonic = Clock(), Clock(1000.0)
    writer = TraceWriter(str(tmp_path), TraceLimits(max_bytes=30_000), clock, monotonic, threaded=False)
    for minute in range(12):
        writer.put(trace_rows(facts_of(), range(100 * minute, 100 * minute + 100), clock.now_s))
        clock.now_s, monotonic.now_s = clock.now_s + 3600, monotonic.now_s + 61
        writer.turn()
    assert sum(path.stat().st_size for path in trace_files(tmp_path)) <= 30_000
    assert writer.state().rows_written == 1200
    assert trace_files(tmp_path)[-1].parent.name == "hour=19"
