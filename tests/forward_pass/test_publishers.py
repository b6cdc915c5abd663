"""Messages of several engines, in order, with gaps, restarts and rests."""

from __future__ import annotations

from dataclasses import replace

from rooflens.adapters.forward_pass.layout import ForwardPass, Queued, Scheduled
from rooflens.adapters.forward_pass.publishers import MOST_ENGINES, MOST_ROWS, Publishers
from rooflens.live_records import State
from rooflens.protocols import Batch

PASS = ForwardPass(1, "w", 0, 0, 0.01, Scheduled(0, 0, 0, 2, 200, 0.0, 0.0), Queued(1, 0))
IDLE = replace(PASS, wall_time_s=0.0, scheduled=Scheduled(0, 0, 0, 0, 0))


def read(publishers: Publishers, now_s: float = 100.0) -> list[Batch]:
    return list(publishers.read(State.LIVE, now_s))


def test_each_worker_and_rank_is_an_engine() -> None:
    publishers = Publishers("h:1")
    for worker, rank in (("a", 0), ("a", 1), ("b", 0)):
        publishers.take(0, replace(PASS, worker=worker, dp_rank=rank), 1.0, 1.0)
    infos = [batch.info for batch in read(publishers)]
    assert [(info.instance, info.rank) for info in infos if info] == [
        ("fpm-h:1-a-0", 0),
        ("fpm-h:1-a-1", 1),
        ("fpm-h:1-b-0", 0),
    ]


def test_a_gap_is_lost_steps() -> None:
    publishers = Publishers("h:1")
    for number in (3, 4, 9):
        publishers.take(number, PASS, 1.0 + number, 1.0)
    (batch,) = read(publishers)
    assert (len(batch.steps), batch.lost_steps) == (3, 4)
    assert batch.steps["sequence"].tolist() == [1, 2, 3]
    (batch,) = read(publishers)
    assert (len(batch.steps), batch.lost_steps) == (0, 0)


def test_a_heartbeat_is_no_step_and_no_gap() -> None:
    publishers = Publishers("h:1")
    publishers.take(0, PASS, 1.0, 1.0)
    publishers.take(1, IDLE, 2.0, 2.0)
    publishers.take(2, IDLE, 3.0, 3.0)
    (batch,) = read(publishers, 5.0)
    assert (len(batch.steps), batch.lost_steps) == (1, 0)
    assert batch.progress is not None
    assert batch.progress.idle_s == 3.0


def test_a_time_that_reaches_back_into_a_rest_is_not_the_pass() -> None:
    """Dynamo's vLLM measures from output to output: the first pass after a rest may hold the rest."""
    publishers = Publishers("h:1")
    publishers.take(0, PASS, 1.0, 1.0)
    publishers.take(1, IDLE, 2.0, 2.0)
    publishers.take(2, replace(PASS, wall_time_s=8.9), 10.0, 10.0)
    publishers.take(3, IDLE, 11.0, 11.0)
    publishers.take(4, replace(PASS, wall_time_s=0.5), 20.0, 20.0)
    (batch,) = read(publishers)
    assert batch.steps.where("observed_s").tolist() == [True, False, True]


def test_a_publisher_that_begins_again_is_a_new_run() -> None:
    publishers = Publishers("h:1")
    publishers.take(7, PASS, 1.0, 1.0)
    read(publishers)
    publishers.take(8, PASS, 2.0, 2.0)
    publishers.take(0, PASS, 30.0, 3.0)
    old, new = read(publishers)
    assert old.progress is not None
    assert old.progress.state is State.DIED
    assert (len(old.steps), old.lost_steps) == (1, 0)
    assert (len(new.steps), new.lost_steps, new.steps["sequence"].tolist()) == (1, 0, [1])
    assert old.info == new.info


def test_two_publishers_of_one_name_are_told_and_not_taken_for_restarts() -> None:
    publishers = Publishers("h:1")
    for turn in range(6):
        publishers.take(1000 + turn, PASS, 1.0 + turn / 10, 1.0)
        publishers.take(5 + turn, PASS, 1.05 + turn / 10, 1.0)
    batches = read(publishers)
    assert len(batches) <= 3
    assert any("two publishers at once" in line for line in batches[-1].complaints)


def test_what_is_left_out_is_named_with_how_often() -> None:
    publishers = Publishers("h:1")
    for number in range(3):
        publishers.take(number, replace(PASS, unknown=("places 8 to 8",)), 1.0 + number, 1.0)
    (batch,) = read(publishers)
    assert batch.complaints == ("not known here and left out: places 8 to 8 (3 times)",)


def test_a_worker_id_is_a_name_and_no_path() -> None:
    publishers = Publishers("h:1")
    publishers.take(0, replace(PASS, worker="/srv/models/\x1b[31m" + "x" * 500), 1.0, 1.0)
    (batch,) = read(publishers)
    assert batch.info is not None
    assert "/" not in batch.info.instance
    assert batch.info.instance.isprintable()
    assert len(batch.info.instance) < 80


def test_neither_engines_nor_rows_are_without_bound() -> None:
    publishers = Publishers("h:1")
    for number in range(MOST_ENGINES + 5):
        publishers.take(0, replace(PASS, worker=str(number)), 1.0, 1.0)
    assert len(read(publishers)) == MOST_ENGINES
    assert publishers.problem is not None
    publishers = Publishers("h:1")
    for number in range(MOST_ROWS + 5):
        publishers.take(number, PASS, 1.0 + number, 1.0)
    (batch,) = read(publishers)
    assert (len(batch.steps), batch.lost_steps) == (MOST_ROWS, 5)
