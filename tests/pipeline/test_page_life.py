"""What a page tells beyond rows: an engine that stood still before the first look, one that rests, and what of it is
published."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from made_engine import made_engine
from pipeline.made_pages import URL, Site, value

from rooflens import catalogue as metrics
from rooflens.collector.windows import WindowSettings
from rooflens.exporters.json_view import engines_json
from rooflens.findings import Status
from rooflens.live_records import EngineView, Load, Progress, Snapshot, State
from rooflens.metric_records import Metric
from rooflens.pipeline import gauges as gauges_module
from rooflens.pipeline.gauges import gauges
from rooflens.pipeline.watch import Watch

NOW = (metrics.RUNNING, metrics.WAITING, metrics.KV_USED)
LATELY = (metrics.BATCH, metrics.CONTEXT, metrics.MBU, metrics.FLOOR_FACTOR)
AT_ONCE = WindowSettings(window_s=0.001, least_steps=20, most_window_s=30.0, most_steps=5000)


def told(snapshot: Snapshot, metric: Metric) -> bool:
    return any(sample.metric is metric for sample in snapshot.samples)


def stalled(snapshot: Snapshot) -> Status | None:
    (view,) = snapshot.engines
    return next((finding.status for finding in view.findings if finding.code == "engine_stalled"), None)


@pytest.fixture
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    rule = importlib.import_module("rooflens.analyzer.rules.engine_stalled")
    monkeypatch.setattr(rule, "LEAST_STILL_S", 0.05)
    monkeypatch.setattr(rule, "LEAST_STILL_UNSEEN_S", 0.1)
    monkeypatch.setattr(rule, "TIMES_EXPECTED", 0.1)


@pytest.mark.usefixtures("patience")
@pytest.mark.parametrize(("made", "expected"), [(2308, Status.FIRING), (5, Status.CANNOT_TELL)])
def test_a_server_that_hung_before_the_first_look_is_stalled_if_it_ever_made_steps(
    watch: Callable[..., Watch], site: Site, made: int, expected: Status
) -> None:
    it = watch(scrape_urls=(URL,))
    seen = []
    for pause_s in (0.0, 0.06, 0.06):
        time.sleep(pause_s)
        site.tell(made)
        snapshot = it.turn()
        seen.append(stalled(snapshot))
    assert seen[0] is None, "nothing can be said at the first look"
    assert seen[-1] is expected
    progress = snapshot.engines[0].progress
    assert progress is not None
    assert (progress.steps_made, progress.mean_step_s) == (made + 1, pytest.approx(0.05))


def test_a_ring_whose_last_step_hung_before_the_first_look_is_stalled(
    watch: Callable[..., Watch], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.import_module("rooflens.analyzer.rules.engine_stalled"), "LEAST_OPEN_S", 0.02)
    with made_engine(folder) as engine:
        engine.steps(100)
        engine.begin()
        time.sleep(0.1)
        assert stalled(watch().turn()) is Status.FIRING


def test_an_idle_page_shows_what_it_says_now(watch: Callable[..., Watch], site: Site) -> None:
    it = watch(scrape_urls=(URL,))
    site.tell(0)
    it.turn()
    site.tell(100)
    snapshot = it.turn()
    assert [value(snapshot, metric, "llama", "0") for metric in NOW] == [10, 0, pytest.approx(0.101)]
    site.tell(150, idle=True)  # the row is of both ends
    for _ in range(2):
        snapshot = it.turn()
        assert [value(snapshot, metric, "llama", "0") for metric in NOW] == [0, 0, 0]
        time.sleep(0.01)
        site.tell(150, idle=True)
    (engine,) = engines_json(it.turn())["engines"]
    assert engine["progress"]["idle_s"] >= 0.01
    assert engine["progress"]["load"]["running"] == 0
    site.tell(160)
    (engine,) = engines_json(it.turn())["engines"]
    assert engine["progress"]["idle_s"] == 0


def test_a_page_that_does_not_answer_holds_nothing_that_is_known(watch: Callable[..., Watch], site: Site) -> None:
    it = watch(scrape_urls=(URL,), windows=AT_ONCE)
    site.tell(0)
    it.turn()
    time.sleep(0.01)  # a window lasts longer than AT_ONCE asks
    site.tell(100)
    snapshot = it.turn()
    wanted = (*NOW, metrics.BATCH, metrics.FINDING_ACTIVE, metrics.BANDWIDTH)
    assert [metric.name for metric in wanted if not told(snapshot, metric)] == []
    site.pages[0].state = State.UNREACHABLE
    snapshot = it.turn()
    gauge_names = {
        s.metric.name for s in snapshot.samples if s.metric.kind == "gauge" and "model_name" in s.metric.labels
    }
    assert gauge_names == {metrics.ENGINE_UP.name}
    assert told(snapshot, metrics.ENGINE_INFO)


def test_the_last_requests_of_a_ring_are_gone_when_it_says_so(watch: Callable[..., Watch], folder: Path) -> None:
    it = watch()
    with made_engine(folder) as engine:
        engine.steps(10)
        assert value(it.turn(), metrics.RUNNING, "llama", "0") == 2
        engine.event("requests_ended")
        snapshot = it.turn()
        assert value(snapshot, metrics.RUNNING, "llama", "0") == 0
        assert not told(snapshot, metrics.KV_USED), "blocks may outlive their request"
        assert snapshot.engines[0].progress is not None
        assert snapshot.engines[0].progress.idle_s is not None
        engine.steps(10)
        snapshot = it.turn()
        assert value(snapshot, metrics.RUNNING, "llama", "0") == 2
        assert value(snapshot, metrics.KV_USED, "llama", "0") == pytest.approx(0.1)


def test_the_ratios_of_a_window_are_told_while_it_tells_of_now(watch: Callable[..., Watch], folder: Path) -> None:
    it = watch(windows=AT_ONCE)
    with made_engine(folder) as engine:
        engine.steps(100)
        (view,) = it.turn().engines
    window = view.windows[-1]
    now_s = window.end_unix_s

    def shown(view: EngineView, age_s: float) -> set[Metric]:
        return {s.metric for s in gauges(view, now_s + age_s)} & set(LATELY)

    assert shown(view, gauges_module.OLD_S - 1) == set(LATELY)
    assert shown(view, gauges_module.OLD_S + 1) == set()
    longer = replace(view, windows=(replace(window, span_s=600.0),))
    assert shown(longer, 1100.0) == set(LATELY), "windows that are longer on request are old later"
    for rests in ({"idle_s": 31.0}, {"still_s": 31.0}, {"open_age_s": 31.0}):
        assert shown(replace(view, progress=Progress(State.LIVE, **rests)), 1.0) == set()
    moving = Progress(State.LIVE, idle_s=0.0, still_s=0.0, open_age_s=29.0, load=Load(0.0, running=3))
    assert shown(replace(view, progress=moving), 1.0) == set(LATELY)


def test_a_rule_that_cannot_tell_is_not_clear(watch: Callable[..., Watch], folder: Path) -> None:
    it = watch(windows=AT_ONCE, hardware=None)
    codes = ("engine_stalled", "missed_batching", "memory_bound_waste")

    def states(snapshot: Snapshot) -> list[tuple[object, ...]]:
        metrics_of = (metrics.FINDING_ACTIVE, metrics.FINDING_UNKNOWN)
        return [
            tuple(
                s.value for metric in metrics_of for s in snapshot.samples if s.metric is metric and s.labels[2] == code
            )
            for code in codes
        ]

    with made_engine(folder) as engine:
        engine.steps(5)
        assert states(it.turn()) == [(0, 0), (0, 1), (0, 1)], "no window yet: only a stall is judged"
        engine.steps(200)
        assert states(it.turn()) == [(0, 0), (0, 0), (0, 1)], "nothing waits; without hardware there is no floor"
        engine.kill()
        snapshot = it.turn()
        assert not told(snapshot, metrics.FINDING_ACTIVE)
        assert not told(snapshot, metrics.FINDING_UNKNOWN)


def test_windows_and_counters_of_a_page_agree_where_the_time_went(watch: Callable[..., Watch], site: Site) -> None:
    it = watch(scrape_urls=(URL,), windows=WindowSettings(0.001, 150, 30.0, 5000), scrape_s=0.0)
    site.tell(0, idle=True)
    it.turn()
    began_s = time.monotonic()
    for steps, idle in ((0, True), (100, True), (100, True), (200, False)):
        time.sleep(0.01)
        site.tell(steps, idle=idle)
        turned_s = time.monotonic()
        snapshot = it.turn()
    (window,) = snapshot.engines[0].windows
    parts = {s.labels[-1]: s.value for s in snapshot.samples if s.metric is metrics.TIME}
    assert parts.get("between_steps", 0.0) == 0
    assert window.between_s is None
    (told,) = engines_json(snapshot)["engines"][0]["windows"]
    assert told["between_s"] is None
    assert window.busy_s + (window.idle_s or 0.0) + window.not_recorded_s >= window.span_s - 1e-6
    assert parts["idle"] >= (window.idle_s or 0.0) >= 0.01, "the rest before the window is no part of it"
    assert parts["not_recorded"] == pytest.approx(window.not_recorded_s, abs=2e-3)
    # As a page tells of the moment it was fetched, the parts end with a read of the last turn.
    assert turned_s - began_s - 0.05 <= sum(parts.values()) <= time.monotonic() - began_s + 0.05


def test_sources_are_what_is_read_and_the_rings_of_engines_in_sight(watch: Callable[..., Watch], folder: Path) -> None:
    def rings(snapshot: Snapshot) -> list[tuple[str, State]]:
        return [(source["name"], source["state"]) for source in engines_json(snapshot)["sources"]]

    it = watch()
    with made_engine(folder) as engine:
        engine.steps(10)
        assert rings(it.turn()) == [(engine.path.name, "live")]
        engine.kill()
        for _ in range(2):
            snapshot = it.turn()
            assert rings(snapshot) == [(engine.path.name, "died")]
        assert value(snapshot, metrics.SOURCES_UP, "ring") == 0
    with made_engine(folder) as other:
        other.steps(10)
        assert rings(it.turn()) == [(other.path.name, "live")], "it took the label"


def test_an_engine_whose_hook_lost_track_is_not_said_to_be_idle(watch: Callable[..., Watch], folder: Path) -> None:
    it = watch()
    with made_engine(folder) as engine:
        engine.steps(10, running=0)
        progress = it.turn().engines[0].progress
        assert progress is not None
        assert progress.idle_s is not None
        engine.event("hook_failed")
        progress = it.turn().engines[0].progress
        assert progress is not None
        assert progress.idle_s is None
