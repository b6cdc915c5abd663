"""One server that two addresses lead to: its engines are counted once, and the second address says so."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from pipeline.made_pages import AWAY, URL, Site, engines, page_states, value

from rooflens import catalogue as metrics
from rooflens.live_records import SourceKind, State
from rooflens.pipeline import watch as watch_module
from rooflens.pipeline.watch import Watch

SAME = "http://localhost:8000/metrics"
LIVE = [("llama", "0", SourceKind.METRICS, State.LIVE)]
DECODE = ("llama", "0", "decode")


def test_two_addresses_of_one_server_are_one_engine(watch: Callable[..., Watch], site: Site) -> None:
    it = watch(scrape_urls=(URL, SAME))
    for steps in (0, 100):
        for page in (0, 1):
            site.tell(steps, page)
        snapshot = it.turn()
    assert engines(snapshot) == LIVE
    assert value(snapshot, metrics.STEPS, *DECODE) == 100
    assert page_states(snapshot) == [State.LIVE, State.STANDBY]
    assert value(snapshot, metrics.SOURCES_UP, "metrics") == 1
    assert [source.problem for source in snapshot.sources] == [
        None, f"{SAME} tells of the same engine as {URL}: counted there, once; leave one of them out",
    ]  # fmt: skip


def test_another_process_is_another_engine(watch: Callable[..., Watch], site: Site) -> None:
    it = watch(scrape_urls=(URL, AWAY))
    site.tell(0)
    site.restart()
    site.tell(0, page=1)
    snapshot = it.turn()
    assert [label for _, label, _, _ in engines(snapshot)] == ["0", "0.1"]
    assert [source.problem for source in snapshot.sources] == [None, None]


def test_a_restart_that_the_second_sees_first_is_one_restart(watch: Callable[..., Watch], site: Site) -> None:
    it = watch(scrape_urls=(URL, SAME))
    for steps in (0, 100):
        for page in (0, 1):
            site.tell(steps, page)
        it.turn()
    site.tell(110, page=1)  # rows of the second's that wait when it learns of the end
    site.restart()
    site.tell(0, page=1)
    assert engines(it.turn()) == LIVE
    site.tell(30, page=1)
    it.turn()
    for page in (0, 1):
        site.tell(50, page)
    snapshot = it.turn()
    assert engines(snapshot) == LIVE
    assert value(snapshot, metrics.STEPS, *DECODE) == 150
    assert value(snapshot, metrics.RESTARTS, "llama", "0") == 1


def test_the_second_takes_over_when_the_first_falls_silent(watch: Callable[..., Watch], site: Site) -> None:
    it = watch(scrape_urls=(URL, SAME))
    for steps in (0, 100):
        for page in (0, 1):
            site.tell(steps, page)
        it.turn()
    site.pages[0].state, site.pages[0].problem = State.UNREACHABLE, "it is gone"
    site.tell(150, page=1)
    snapshot = it.turn()
    assert engines(snapshot) == LIVE
    assert value(snapshot, metrics.STEPS, *DECODE) == 150
    assert value(snapshot, metrics.RESTARTS, "llama", "0") == 0
    assert page_states(snapshot) == [State.UNREACHABLE, State.LIVE]
    site.tell(150)
    site.tell(160, page=1)
    assert page_states(it.turn()) == [State.STANDBY, State.LIVE], "it keeps what it has taken"


def test_an_engine_that_one_page_no_longer_names_lives_on_at_the_other(watch: Callable[..., Watch], site: Site) -> None:
    it = watch(scrape_urls=(URL, SAME))
    for page in (0, 1):
        site.tell(0, page)
    it.turn()
    site.tell(0, page=1, model="other")
    assert value(it.turn(), metrics.ENGINE_UP, "llama", "0") == 0
    site.tell(20)
    assert value(it.turn(), metrics.ENGINE_UP, "llama", "0") == 1


def test_a_wall_clock_that_is_set_back_ends_no_engine(
    watch: Callable[..., Watch], site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    it = watch(scrape_urls=(URL,))
    site.tell(0)
    it.turn()
    site.tell(0, model="other")
    assert value(it.turn(), metrics.ENGINE_UP, "llama", "0") == 0
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() - 3600.0)
    for steps in (100, 200):
        site.tell(steps)
        snapshot = it.turn()
    assert engines(snapshot)[0] == ("llama", "0", SourceKind.METRICS, State.LIVE)
    assert value(snapshot, metrics.STEPS, *DECODE) == 100


def test_the_dead_go_out_of_sight_by_no_wall_clock(
    watch: Callable[..., Watch], site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    it = watch(scrape_urls=(URL,))
    site.tell(0)
    it.turn()
    site.tell(0, model="other")
    it.turn()
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + 3600.0)
    assert ("llama", "0", SourceKind.METRICS, State.ENDED) in engines(it.turn())


def test_labels_that_change_at_every_read_do_not_pile_up(
    watch: Callable[..., Watch], site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch_module, "MOST_GONE", 4)
    it = watch(scrape_urls=(URL,))
    for number in range(5):
        site.tell(0, model=f"m{number}")
        snapshot = it.turn()
    assert (len(snapshot.engines), snapshot.problems) == (5, ())
    site.tell(0, model="m5")
    snapshot = it.turn()
    assert [view.model_name for view in snapshot.engines] == ["m1", "m2", "m3", "m4", "m5"]
    assert snapshot.problems == (watch_module.LEFT_OUT,)
