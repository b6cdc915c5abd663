"""What a stalled engine costs: every second beyond what a step should take, once, however often it is looked at."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from made_engine import made_engine

from rooflens import catalogue as metrics
from rooflens.collector.tables import empty_table
from rooflens.findings import Status
from rooflens.live_records import Snapshot, SourceKind
from rooflens.pipeline.totals import EngineTotals
from rooflens.pipeline.watch import Watch

CODE = "engine_stalled"


def totals(from_s: float = 1000.0) -> EngineTotals:
    made = EngineTotals(("llama", "0"), 50.0)
    made.begin_run(SourceKind.RING, from_s, empty_table(), 50.0)
    return made


def cost_s(made: EngineTotals | Snapshot) -> float:
    samples = made.samples() if isinstance(made, EngineTotals) else made.samples
    (found,) = [s.value for s in samples if s.metric is metrics.FINDING_COST and s.labels[-1] == CODE]
    assert isinstance(found, float)
    return found


def test_it_grows_with_the_time_and_not_with_the_looks() -> None:
    it = totals()
    seen = []
    for now_s in (1014.0, 1014.5, 1015.0, 1020.0):
        it.stands(CODE, now_s - 1010.0, now_s)
        seen.append(cost_s(it))
    assert seen == pytest.approx([4.0, 4.5, 5.0, 10.0])


def test_a_second_stall_adds_its_own() -> None:
    it = totals()
    it.stands(CODE, 5.0, 1010.0)
    it.stands(CODE, 3.0, 1050.0)
    it.stands(CODE, 4.0, 1051.0)
    assert cost_s(it) == pytest.approx(9.0)


def test_a_page_that_says_the_same_again_adds_nothing() -> None:
    it = totals()
    for now_s in (1020.0, 1021.0, 1022.0):
        it.stands(CODE, 12.0, now_s)
    assert cost_s(it) == pytest.approx(12.0)
    it.stands(CODE, 17.0, 1025.0)
    assert cost_s(it) == pytest.approx(17.0)


def test_what_stood_before_it_was_watched_does_not_count() -> None:
    it = totals(from_s=1000.0)
    it.stands(CODE, 3600.0, 1002.0)
    assert cost_s(it) == pytest.approx(2.0)


def test_a_length_that_was_taken_for_longer_takes_nothing_back() -> None:
    it = totals()
    it.stands(CODE, 12.0, 1020.0)
    it.stands(CODE, 9.0, 1021.0)
    assert cost_s(it) == pytest.approx(13.0)


def test_a_ring_of_a_stalled_engine_costs_what_the_clock_says(
    watch: Callable[..., Watch], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule = importlib.import_module("rooflens.analyzer.rules.engine_stalled")
    monkeypatch.setattr(rule, "LEAST_OPEN_S", 0.05)
    it = watch()
    with made_engine(folder) as engine:
        engine.steps(40)
        assert cost_s(it.turn()) == 0.0
        engine.begin()
        began_s = time.monotonic()
        until_s, seen = began_s + 60.0, [0.0]
        while seen[-1] < 0.3 and time.monotonic() < until_s:
            snapshot = it.turn()
            seen.append(cost_s(snapshot))
        stood_s = time.monotonic() - began_s
        assert all(before <= after for before, after in pairwise(seen))
        assert 0.3 <= seen[-1] <= stood_s + 0.05, "no more than the time there was"
        (view,) = snapshot.engines
        assert [f.code for f in view.findings if f.status is Status.FIRING] == [CODE]
