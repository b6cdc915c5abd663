"""Metrics pages beside rings: read where nothing better is, aside where a ring tells of the same engine."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from made_engine import made_engine
from pipeline.made_pages import AWAY, URL, Site, engines, page_states, value

from rooflens import catalogue as metrics
from rooflens.cli.watched import watched
from rooflens.live_records import SourceKind, State
from rooflens.pipeline.pages import Pages, is_loopback, with_model
from rooflens.pipeline.watch import Watch
from rooflens.records import EngineInfo


def test_a_page_is_an_engine_and_its_restart_goes_on(watch: Callable[..., Watch], site: Site) -> None:
    it = watch(scrape_urls=(URL,))
    assert engines(it.turn()) == []
    site.tell(0)
    assert engines(it.turn()) == [("llama", "0", SourceKind.METRICS, State.LIVE)]
    site.tell(100)
    snapshot = it.turn()
    assert value(snapshot, metrics.STEPS, "llama", "0", "decode") == 100
    assert value(snapshot, metrics.TOKENS, "llama", "0", "generated") == 1000
    assert value(snapshot, metrics.SOURCES_UP, "metrics") == 1
    site.restart()
    site.tell(0)
    it.turn()
    site.tell(20)
    snapshot = it.turn()
    assert engines(snapshot) == [("llama", "0", SourceKind.METRICS, State.LIVE)]
    assert value(snapshot, metrics.STEPS, "llama", "0", "decode") == 120
    assert value(snapshot, metrics.RESTARTS, "llama", "0") == 1


def test_a_page_that_does_not_answer_is_unreachable(watch: Callable[..., Watch], site: Site) -> None:
    it = watch(scrape_urls=(URL,))
    site.tell(0)
    it.turn()
    site.pages[0].state, site.pages[0].problem = State.UNREACHABLE, "it is gone"
    snapshot = it.turn()
    assert engines(snapshot) == [("llama", "0", SourceKind.METRICS, State.UNREACHABLE)]
    assert value(snapshot, metrics.ENGINE_UP, "llama", "0") == 0
    assert [source.problem for source in snapshot.sources] == ["it is gone"]


def test_an_idle_engine_is_idle_by_the_clock(watch: Callable[..., Watch], site: Site) -> None:
    it = watch(scrape_urls=(URL,), scrape_s=0.0)
    site.tell(100, idle=True)
    it.turn()
    for _ in range(2):
        time.sleep(0.01)
        site.tell(100, idle=True)
        snapshot = it.turn()
    assert value(snapshot, metrics.TIME, "llama", "0", "idle") >= 0.02
    assert value(snapshot, metrics.TIME, "llama", "0", "not_recorded") == 0


def test_a_page_stands_aside_while_a_ring_tells_of_its_model(
    watch: Callable[..., Watch], site: Site, folder: Path
) -> None:
    it = watch(scrape_urls=(URL,))
    site.tell(0, model="meta/llama")
    it.turn()
    site.tell(100, model="meta/llama")
    assert value(it.turn(), metrics.STEPS, "llama", "0", "decode") == 100
    with made_engine(folder, kv_blocks=999) as engine:
        engine.steps(10)
        site.tell(110, model="meta/llama")
        snapshot = it.turn()
        assert engines(snapshot) == [("llama", "0", SourceKind.RING, State.LIVE)]
        assert page_states(snapshot) == [State.STANDBY]
        assert [source.problem for source in snapshot.sources] == [None, None], "it is surely the same"
        assert value(snapshot, metrics.STEPS, "llama", "0", "decode") == 110
        assert value(snapshot, metrics.RESTARTS, "llama", "0") == 0, "the same engine, seen better"
        engine.kill()
        it.turn()
        site.tell(150, model="meta/llama")
        snapshot = it.turn()
        assert engines(snapshot) == [("llama", "0", SourceKind.METRICS, State.LIVE)]
        assert value(snapshot, metrics.STEPS, "llama", "0", "decode") == 150
        assert page_states(snapshot) == [State.LIVE]


@pytest.mark.parametrize(("url", "model"), [(AWAY, "llama"), (URL, "other")])
def test_another_machine_or_another_model_is_another_engine(
    watch: Callable[..., Watch], site: Site, folder: Path, url: str, model: str
) -> None:
    it = watch(scrape_urls=(url,))
    with made_engine(folder) as engine:
        engine.steps(10)
        site.tell(0, model=model)
        snapshot = it.turn()
        assert len(snapshot.engines) == 2
        assert page_states(snapshot) == [State.LIVE]


def turn_until_opened(it: Watch, site: Site) -> None:
    until_s = time.monotonic() + 30.0
    while not site.pages and time.monotonic() < until_s:
        it.turn()
    assert site.pages


def test_local_pages_are_found_where_nothing_else_is(watch: Callable[..., Watch], site: Site) -> None:
    calls: list[int] = []

    def discover() -> list[str]:
        calls.append(threading.get_ident())
        return ["http://127.0.0.1:8000"]

    it = watch(discover=discover)
    turn_until_opened(it, site)
    site.tell(0)
    assert len(it.turn().engines) == 1
    assert len(calls) == 1, "not again before its time"
    assert calls[0] != threading.get_ident(), "a turn does not wait for it"


def test_nothing_is_looked_for_beside_a_ring_or_a_page_that_was_named(
    watch: Callable[..., Watch], site: Site, folder: Path
) -> None:
    looked: list[bool] = []
    with made_engine(folder):
        for settings in ({}, {"scrape_urls": (URL,), "use_rings": False}):
            watch(discover=lambda: looked.append(True) or [], **settings).turn()
    assert looked == []


def test_a_search_that_fails_is_a_line(site: Site) -> None:
    def discover() -> list[str]:
        raise OSError("no sockets left")

    pages = Pages((), 5.0, discover)
    pages.look(True)
    assert pages._looking is not None
    pages._looking.join(30.0)
    assert pages.problems == ("looking for engines on the usual ports failed: no sockets left",)


@pytest.mark.parametrize(
    ("url", "local"),
    [
        ("http://localhost:8000", True),
        ("127.0.0.1:8000/metrics", True),
        ("http://user:secret@127.0.0.9/", True),
        ("http://[::1]:80", True),
        ("http://10.0.0.1:8000", False),
        ("http://127.0.0.1.example.org", False),
        ("http://gpu7:8000", False),
        ("http://[::1/metrics", False),
    ],
)
def test_which_pages_are_of_this_host(url: str, local: bool) -> None:
    assert is_loopback(url) is local


def test_the_config_of_a_known_model_is_taken_by_its_exact_name() -> None:
    def named(name: str | None, config: dict[str, Any] | None = None) -> EngineInfo:
        return EngineInfo("x", "vllm", model_name=name, model_config=config)

    def config_of(info: EngineInfo | None) -> Any:
        return info.model_config if info else None

    assert config_of(with_model(named("meta-llama-3-70b"), None))["num_hidden_layers"] == 80
    assert config_of(with_model(named("meta-llama-3-70b-mine"), None)) is None
    assert config_of(with_model(named(None), {"a": 1})) == {"a": 1}
    assert config_of(with_model(named("m", {"own": 1}), {"a": 1})) == {"own": 1}
    assert with_model(None, {"a": 1}) is None


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("http://user:secret@127.0.0.1:8000/metrics?token=secret", "http://127.0.0.1:8000"),
        ("127.0.0.1:8000", "http://127.0.0.1:8000"),
        ("https://gateway/a/metrics?token=secret", "https://gateway/a/metrics"),
    ],
)
def test_a_source_is_called_by_its_address_without_secrets(
    watch: Callable[..., Watch], site: Site, url: str, name: str
) -> None:
    it = watch(scrape_urls=(url,))
    assert [source.name for source in it.turn().sources] == [name]
    assert [line for line in watched(it.settings, found=False) if "secret" in line] == []


def test_a_bare_name_that_fits_one_model_is_that_one(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [
        {"id": f"id-{n}", "hf_id": hf_id, "config": {"n": n}} for n, hf_id in enumerate(("a/One", "a/Two", "b/two"))
    ]
    monkeypatch.setattr("rooflens.pipeline.pages.known_models", lambda: tuple(rows))

    def config_of(name: str) -> Any:
        info = with_model(EngineInfo("x", "vllm", model_name=name), None)
        return info.model_config if info else None

    assert config_of("one") == config_of("a/one") == config_of("id-0") == {"n": 0}
    assert config_of("two") is None, "two of them are called so"
    assert config_of("b/two") == {"n": 2}
    assert config_of("c/one") is None, "another organisation's is another model"


def test_a_page_that_was_found_and_fell_silent_is_forgotten(
    watch: Callable[..., Watch], site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    it = watch(discover=lambda: ["http://127.0.0.1:8000"])
    turn_until_opened(it, site)
    site.tell(0)
    it.turn()
    site.pages[0].state, site.pages[0].failures = State.UNREACHABLE, 3
    assert page_states(it.turn()) == [State.UNREACHABLE]
    monkeypatch.setattr("rooflens.pipeline.pages.FORGOTTEN_S", -1.0)
    snapshot = it.turn()
    assert page_states(snapshot) == []
    assert engines(snapshot) == [("llama", "0", SourceKind.METRICS, State.UNREACHABLE)]
    assert value(snapshot, metrics.SOURCE_FAILURES, "metrics") == 3, "a counter does not fall with its page"


def test_the_same_facts_get_the_same_facts_with_their_config() -> None:
    given = {"num_hidden_layers": 2}
    first, second = EngineInfo("i", "vllm"), EngineInfo("i", "vllm")
    made = with_model(first, given)
    assert made is not None
    assert made.model_config == given
    assert with_model(first, given) is made
    assert with_model(second, given) == made
    other = with_model(first, {"num_hidden_layers": 3})
    assert other is not None
    assert other.model_config == {"num_hidden_layers": 3}
