"""Whether an engine moves, as its ring tells while no step is open."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from made_engine import MadeEngine, made_engine

from rooflens.live_records import Progress
from rooflens.pipeline import movement
from rooflens.pipeline.ring_reader import RingReader


@pytest.fixture
def engine(folder: Path) -> Iterator[MadeEngine]:
    with made_engine(folder) as engine:
        yield engine


@pytest.fixture
def counts_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(movement, "COUNT_WHAT_IS_LEFT", ("made-up",))


def progress(engine: MadeEngine) -> Progress:
    """What a reader that comes now says."""
    reader = RingReader(engine.path, "run", from_start=False)
    try:
        found = reader.read().progress
        assert found is not None
        return found
    finally:
        reader.close()


@pytest.mark.usefixtures("counts_what_is_left")
def test_requests_that_are_left_between_two_steps_wait(engine: MadeEngine) -> None:
    engine.steps(30, running=2, waiting=0)
    first, second = progress(engine), progress(engine)
    assert first.open_age_s is second.open_age_s is None
    assert first.still_s is not None
    assert second.still_s is not None
    assert 0 <= first.still_s < second.still_s
    engine.steps(1, running=0, waiting=3)
    assert (progress(engine).still_s or 0) > 0, "in the queue"


@pytest.mark.usefixtures("counts_what_is_left")
def test_an_engine_with_nothing_to_do_does_not_stand_still(engine: MadeEngine) -> None:
    engine.steps(30, running=0, waiting=0)
    assert progress(engine).still_s == 0.0
    engine.steps(1, running=0, waiting=0, deferred=2)
    assert progress(engine).still_s == 0.0, "what is deferred waits for something else"
    engine.steps(1, running=2)
    engine.event("requests_ended")
    assert progress(engine).still_s == 0.0, "they hung up"
    engine.steps(1, running=2)
    engine.event("hook_failed")
    assert progress(engine).still_s == 0.0, "what became of them is not known"
    engine.steps(1, running=2)
    assert (progress(engine).still_s or 0) > 0


@pytest.mark.usefixtures("counts_what_is_left")
def test_an_event_is_a_sign_of_life(engine: MadeEngine) -> None:
    engine.steps(1, running=2)
    reader = RingReader(engine.path, "run", from_start=False)
    try:
        before = reader.read().progress
        engine.event("idle_spins")
        after = reader.read().progress
        assert before is not None
        assert after is not None
        assert reader._movement.moved_s > float(reader.before["output_monotonic_s"][-1])
    finally:
        reader.close()


def test_what_others_count_before_a_step_is_not_taken_for_what_is_left(engine: MadeEngine) -> None:
    engine.steps(30, running=2, waiting=5)
    assert progress(engine).still_s is None


@pytest.mark.usefixtures("counts_what_is_left")
def test_an_open_step_tells_more(engine: MadeEngine) -> None:
    engine.steps(30, running=2)
    engine.begin()
    found = progress(engine)
    assert found.open_age_s is not None
    assert found.still_s is None
