"""A page of this host beside a ring of the same model: the ring's own engine, another server's, or not to be told."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from made_engine import made_engine
from pipeline.made_pages import AWAY, URL, Site, engines, page_states, value

from rooflens import catalogue as metrics
from rooflens.live_records import SourceKind, State
from rooflens.pipeline.beside import FORCE, Kin, kin
from rooflens.pipeline.watch import Watch
from rooflens.records import EngineInfo

RING = EngineInfo("ring", "vllm", model_name="m", kv_blocks=999, start_unix_s=1000.0)
PAGE = EngineInfo("page", "vllm", model_name="m", kv_blocks=999, start_unix_s=900.0)


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ({}, Kin.SAME),
        ({"model_name": "org/m", "kv_blocks": 1000}, Kin.SAME),
        ({"model_name": "n"}, Kin.OTHER),
        ({"kv_blocks": 1001}, Kin.OTHER),
        ({"kv_blocks": None}, Kin.UNSURE),
        ({"kv_blocks": 1001, "data_parallel": 2}, Kin.UNSURE),
        ({"start_unix_s": 1059.0}, Kin.SAME),
        ({"start_unix_s": 1061.0}, Kin.OTHER),
        ({"start_unix_s": 1061.0, "kv_blocks": None}, Kin.OTHER),
        ({"start_unix_s": -2601.0}, Kin.UNSURE),
        ({"start_unix_s": None}, Kin.UNSURE),
        ({"start_unix_s": None, "kv_blocks": 500}, Kin.OTHER),
    ],
)
def test_what_tells_two_servers_apart(page: dict[str, Any], expected: Kin) -> None:
    assert kin(replace(PAGE, **page), RING) is expected
    assert kin(None, RING) is Kin.OTHER, "of no known model"


@pytest.mark.parametrize("first", ["ring", "page"])
def test_another_server_of_the_same_model_is_watched_as_well(
    watch: Callable[..., Watch], site: Site, folder: Path, first: str
) -> None:
    it = watch(scrape_urls=(URL,))
    if first == "page":
        site.tell(0)
        it.turn()
    with made_engine(folder, kv_blocks=500) as engine:
        engine.steps(10)
        it.turn()
        for steps in (0, 100):
            site.tell(steps)
            snapshot = it.turn()
        assert sorted(kind for _, _, kind, _ in engines(snapshot)) == [SourceKind.METRICS, SourceKind.RING]
        assert page_states(snapshot) == [State.LIVE]
        made = [value(snapshot, metrics.STEPS, "llama", label, "decode") for label in ("0", "0.1")]
        assert sorted(made) == [10, 100]


def test_one_that_cannot_be_told_stands_aside_and_says_how_to_force_it(
    watch: Callable[..., Watch], site: Site, folder: Path
) -> None:
    site.began_s = time.time() - 86_400.0
    it = watch(scrape_urls=(URL,))
    with made_engine(folder, kv_blocks=999) as engine:
        engine.steps(10)
        for steps in (0, 100):
            site.tell(steps)
            snapshot = it.turn()
        assert [kind for _, _, kind, _ in engines(snapshot)] == [SourceKind.RING]
        assert page_states(snapshot)[0] is State.STANDBY
        problem = snapshot.sources[1].problem
        assert problem is not None
        assert problem.startswith(f"{URL} may tell of the engine that a ring tells of, or of another server of llama")
        assert problem.endswith(FORCE)
        again = watch(scrape_urls=(AWAY,))
        site.tell(0, page=1)  # the same server by the host's own address, as the line says
        assert len(engines(again.turn())) == 2


def test_of_two_servers_that_fit_one_ring_one_is_another(watch: Callable[..., Watch], site: Site, folder: Path) -> None:
    it = watch(scrape_urls=(URL, "http://127.0.0.1:8001/metrics"))
    with made_engine(folder, kv_blocks=999) as engine:
        engine.steps(10)
        site.tell(0)
        site.began_s -= 10.0
        site.tell(0, page=1)
        snapshot = it.turn()
        assert page_states(snapshot) == [State.STANDBY, State.STANDBY]
        assert all("or of another server" in (source.problem or "") for source in snapshot.sources[1:])
