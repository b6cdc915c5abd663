"""One engine that pushes: retries, gaps, its clock, its facts, and how it is."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pushing import FACTS, body, raw, step

from rooflens.adapters.push import receiver as receiving
from rooflens.adapters.push.clock import LATE_BODIES, SPAN_S, SenderClock
from rooflens.adapters.push.receiver import MOST_SENDERS, Answer, Receiver
from rooflens.adapters.push.sender import DIED_S, MOST_LINES, SILENT_S
from rooflens.live_records import State
from rooflens.pipeline import pushed
from rooflens.pipeline.pushed import PushFeed
from rooflens.protocols import Batch


class Pushing:
    """A receiver, its feed, and a clock that both go by."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.receiver = Receiver()
        self.feed = PushFeed(self.receiver)
        self.now_s = 1000.0
        for module in (receiving, pushed):
            monkeypatch.setattr(module.time, "monotonic", lambda: self.now_s)

    def take(self, instance: str = "run-1", here: bool = False, **given: Any) -> Answer:
        content = body(instance, **{"sent_s": self.now_s, **given})
        return self.receiver.take(raw(content), "application/json", self.now_s, here)

    def read(self) -> Batch:
        (batch,) = self.feed.read()
        return batch


@pytest.fixture
def pushing(monkeypatch: pytest.MonkeyPatch) -> Pushing:
    return Pushing(monkeypatch)


def steps(first: int, last: int) -> list[dict[str, Any]]:
    """Ten a second, number 1 at 900 s."""
    return [step(900.0 + number / 10) for number in range(first, last + 1)]


def test_a_body_sent_again_is_not_counted_twice(pushing: Pushing) -> None:
    for _ in range(3):
        answer = pushing.take(first_sequence=1, steps=steps(1, 5), events=[{"name": "sleep", "at_s": 950.0}])
        assert answer.status == 200
    assert (answer.content["steps"], answer.content["already_taken"], answer.content["next_sequence"]) == (0, 6, 7)
    batch = pushing.read()
    assert batch.steps["sequence"].tolist() == [1, 2, 3, 4, 5]
    assert [event.name for event in batch.events] == ["sleep"]
    assert batch.lost_steps == 0


def test_a_retry_may_bring_more_and_only_that_counts(pushing: Pushing) -> None:
    pushing.take(first_sequence=1, steps=steps(1, 5))
    answer = pushing.take(first_sequence=3, steps=steps(3, 9))
    assert (answer.content["already_taken"], answer.content["steps"], answer.content["lost_steps"]) == (3, 4, 0)
    batch = pushing.read()
    assert batch.steps["sequence"].tolist() == list(range(1, 10))
    assert batch.steps.where("observed_s").all()


def test_a_gap_is_lost_steps_and_what_follows_it_has_no_duration(pushing: Pushing) -> None:
    pushing.take(first_sequence=5, steps=steps(5, 6))
    answer = pushing.take(first_sequence=10, steps=steps(10, 11))
    assert answer.content["lost_steps"] == 3
    batch = pushing.read()
    assert batch.lost_steps == 3
    assert batch.steps.where("observed_s").tolist() == [True, True, False, True]
    assert batch.steps.where("causal_pairs").all()


def test_what_a_sender_dropped_is_a_total_that_is_counted_once(pushing: Pushing) -> None:
    found = [pushing.take(lost_steps=lost).content["lost_steps"] for lost in (2, 2, 7, 7, 3)]
    assert found == [2, 0, 5, 0, 0]
    assert pushing.read().lost_steps == 7


def test_a_refused_step_takes_no_other_with_it(pushing: Pushing) -> None:
    given = steps(1, 5)
    given[1] = {**given[1], "contexts": [-1]}
    given[3] = "no step"  # type: ignore[call-overload]
    answer = pushing.take(first_sequence=1, steps=given)
    assert (answer.content["steps"], answer.content["lost_steps"]) == (3, 2)
    assert answer.content["refused"] == [
        "step 2 of the new ones: a length is negative or larger than any",
        "step 4 of the new ones: it is no object",
    ]
    batch = pushing.read()
    assert (len(batch.steps), batch.lost_steps, len(batch.complaints)) == (3, 2, 2)
    assert pushing.feed.failures == 2
    assert "run-1" in (pushing.feed.health().problem or "")


def test_many_refused_steps_are_few_lines(pushing: Pushing) -> None:
    answer = pushing.take(steps=[{"x" * 5000: 1}] * 1000)
    lines = answer.content["refused"]
    assert (len(lines), lines[-1]) == (MOST_LINES + 1, f"and {1000 - MOST_LINES} more")
    assert max(map(len, lines)) < 300


def test_events_stand_between_steps_by_their_time(pushing: Pushing) -> None:
    events = [{"name": "requests_ended", "at_s": 900.25, "counts": {"finished_requests": 2}}]
    pushing.take(first_sequence=1, steps=steps(1, 4), events=events)
    batch = pushing.read()
    assert batch.steps["sequence"].tolist() == [1, 2, 4, 5]
    assert [(event.sequence, dict(event.detail)) for event in batch.events] == [(3, {"finished_requests": 2})]
    assert batch.steps.where("observed_s").all()


@pytest.mark.parametrize(
    "event",
    [
        {"name": "two words", "at_s": 1.0}, {"name": "x" * 65, "at_s": 1.0}, {"at_s": 1.0}, {"name": "sleep"}, 7,
        {"name": "sleep", "at_s": 1001.0}, {"name": "sleep", "at_s": 1.0, "counts": {"who": "me"}},
        {"name": "sleep", "at_s": 1.0, "counts": {"event": 1}}, {"name": "sleep", "at_s": 1.0, "counts": [1]},
    ],
)  # fmt: skip
def test_an_event_that_cannot_be_is_a_line(pushing: Pushing, event: Any) -> None:
    answer = pushing.take(events=[event])
    assert (answer.content["events"], len(answer.content["refused"])) == (0, 1)
    assert pushing.read().events == ()


def test_the_run_ends_and_a_late_retry_is_no_new_one(pushing: Pushing) -> None:
    given: dict[str, Any] = {"first_sequence": 1, "steps": steps(1, 2), "ended": True}
    pushing.take(**given)
    batch = pushing.read()
    assert (len(batch.steps), batch.progress and batch.progress.state) == (2, State.ENDED)
    assert pushing.take(**given).content["already_taken"] == 2
    assert pushing.feed.read() == []
    answer = pushing.take(first_sequence=3, steps=steps(3, 3))
    assert (answer.status, "choose another instance" in answer.content["error"]) == (422, True)


def test_who_falls_silent_is_unreachable_and_then_has_died(pushing: Pushing) -> None:
    pushing.take(first_sequence=1, steps=steps(1, 2))
    states = []
    for age_s in (0.0, SILENT_S - 1, SILENT_S + 1, DIED_S - 1, DIED_S + 1):
        pushing.now_s = 1000.0 + age_s
        progress = pushing.read().progress
        states.append(progress and progress.state)
    assert states == [State.LIVE, State.LIVE, State.UNREACHABLE, State.UNREACHABLE, State.DIED]
    assert pushing.feed.read() == []
    answer = pushing.take(first_sequence=1, steps=steps(1, 4))  # it comes back: what was counted stays counted
    assert (answer.content["already_taken"], answer.content["steps"]) == (2, 2)
    assert pushing.read().steps.where("causal_pairs").all()


def test_a_step_that_is_open_is_seen_and_closes_with_its_record(pushing: Pushing) -> None:
    pushing.take(first_sequence=1, steps=steps(1, 1), in_flight={"submit_s": 990.0, "tokens": 64, "requests": 2})
    progress = pushing.read().progress
    assert progress is not None
    assert (progress.open_age_s, progress.open_tokens, progress.open_requests) == (10.0, 64, 2)
    pushing.now_s = 1001.0
    pushing.take(first_sequence=2, steps=[step(990.0, 10.5)], in_flight={"submit_s": 990.0})
    progress = pushing.read().progress
    assert progress is not None
    assert progress.open_age_s is None


def test_an_engine_without_requests_is_idle_as_far_as_it_was_told(pushing: Pushing) -> None:
    queue = {"running": 0, "waiting": 0, "deferred": 0}
    pushing.take(first_sequence=1, steps=[step(900.0, 10.0, **queue)])
    pushing.now_s = 1007.0
    batch = pushing.read()
    assert batch.progress is not None
    assert batch.progress.idle_s == 90.0
    assert batch.known_until_monotonic_s == 1000.0


def test_facts_are_checked_and_may_come_later_or_change(pushing: Pushing) -> None:
    answer = pushing.take(facts=None)
    assert answer.content["facts_wanted"] is True
    info = pushing.read().info
    assert info is not None
    assert (info.instance, info.engine, info.host) == ("run-1", "unknown", None)
    wrong = {
        **FACTS,
        "block_tokens": 32,
        "kv_blocks": "many",
        "color": 1,
        "model_name": "/data/models/llama",
        "rank": 3,
    }
    answer = pushing.take(facts=wrong, first_sequence=1, steps=[step(900.0, contexts=[33])])
    assert answer.content["facts_wanted"] is False
    assert sorted(line.split(" ")[1] for line in answer.content["refused"]) == ["an", "kv_blocks"]
    batch = pushing.read()
    assert batch.info is not None
    assert (batch.info.block_tokens, batch.info.kv_blocks, batch.info.rank) == (32, None, 3)
    assert batch.info.model_name == "llama"
    assert batch.steps["context_blocks"].tolist() == [2]
    pushing.take(facts={**wrong, "kv_blocks": 100}, first_sequence=2)
    batch = pushing.read()
    assert [event.name for event in batch.events] == ["info_changed"]
    assert batch.info is not None
    assert batch.info.kv_blocks == 100


def test_facts_that_stay_are_the_same_facts(pushing: Pushing) -> None:
    pushing.take()
    first = pushing.read().info
    pushing.now_s += 5.0
    pushing.take()
    assert pushing.read().info is first


def test_an_engine_of_this_machine_is_told_from_one_of_another(pushing: Pushing) -> None:
    pushing.take("near", here=True)
    pushing.take("far")
    near, far = pushing.feed.read()
    assert (near.here, far.here) == (True, False)
    assert near.info is not None
    assert far.info is not None
    assert (near.info.host is None, far.info.host is None) == (False, True)


def test_engines_are_bounded_and_those_that_are_over_make_room(pushing: Pushing) -> None:
    for number in range(MOST_SENDERS):
        assert pushing.take(f"run-{number}").status == 200
    answer = pushing.take("one-more")
    assert (answer.status, answer.retry_after_s) == (503, 2)
    assert pushing.take("run-5", ended=True).status == 200
    assert pushing.take("one-more").status == 200
    assert pushing.take("another").status == 503
    pushing.now_s += DIED_S + 1
    assert pushing.take("another").status == 200
    assert len(pushing.receiver._senders) == MOST_SENDERS


def test_times_are_those_of_this_host_by_the_smallest_delay(pushing: Pushing) -> None:
    """The sender's clock is 700 s behind; bodies take 0.4, 0.1 and 0.3 s to come."""
    outputs: list[float] = []
    for number, delay_s in enumerate((0.4, 0.1, 0.3)):
        pushing.now_s = 1000.0 + number + delay_s
        sent_s = 300.0 + number
        pushing.take(sent_s=sent_s, first_sequence=number + 1, steps=[step(sent_s - 0.5, 0.5)])
        outputs += pushing.read().steps["output_monotonic_s"].tolist()
    assert outputs == pytest.approx([1000.4, 1001.1, 1002.1])


def test_a_clock_that_is_set_back_or_ahead_is_seen_and_durations_stay_sane(pushing: Pushing) -> None:
    pushing.take(sent_s=500.0, first_sequence=1, steps=[step(499.0, 0.5), step(499.6, 0.2)])
    pushing.now_s += 1
    pushing.take(sent_s=100.0, first_sequence=3, steps=[step(99.0, 0.5), step(99.6, 0.2)])
    pushing.now_s += 1
    pushing.take(sent_s=900.0, first_sequence=5, steps=[step(899.0, 0.5), step(899.6, 0.2)])
    batch = pushing.read()
    assert len(batch.steps) == 6
    assert batch.steps.where("observed_s").tolist() == [True, True, False, True, False, True]
    assert batch.steps["observed_s"][[0, 1, 3, 5]].tolist() == pytest.approx([0.5, 0.2, 0.2, 0.2])
    outputs = batch.steps["output_monotonic_s"]
    assert (outputs[1:] >= outputs[:-1]).all()
    assert outputs[-1] <= pushing.now_s
    assert any("clock jumped" in line for line in batch.complaints)


def test_a_clock_that_is_set_back_by_less_than_the_pause_is_found_after_some_bodies() -> None:
    clock = SenderClock()
    for number in range(20):
        assert not clock.take(100.0 + 10 * number, 1000.0 + 10 * number)
    jumps = [clock.take(295.0 + 10 * number, 1200.0 + 10 * number) for number in range(2 * LATE_BODIES)]
    assert jumps.count(True) == 1
    assert clock.offset_s == 905.0


@settings(max_examples=50)
@given(st.integers(-200, 200), st.lists(st.floats(0, 0.5), min_size=1, max_size=400), st.floats(-1e6, 1e6))
def test_drift_is_followed_and_no_step_lies_in_the_future(parts: int, delays: list[float], apart_s: float) -> None:
    """Clocks that drift by so many parts in a million, a body every five seconds."""
    clock = SenderClock()
    for number, delay_s in enumerate(delays):
        true_s = 2e6 + 5.0 * number
        sent_s = (true_s + apart_s) * (1 + parts / 1e6)
        assert not clock.take(sent_s, true_s + delay_s)
        assert clock.offset_s is not None
        assert sent_s + clock.offset_s <= true_s + delay_s + 1e-6
    least = min(delays[-int(SPAN_S / 5) :])
    assert clock.offset_s is not None
    assert abs(sent_s + clock.offset_s - true_s - least) <= 0.5 + abs(parts) / 1e6 * 2 * SPAN_S + 1e-6
