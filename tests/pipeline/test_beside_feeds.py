"""A log beside a ring or a page: the same engine is counted once, by the source that tells more of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from made_engine import made_engine
from pipeline.made_pages import AWAY, URL, Site

from rooflens.collector.tables import empty_table
from rooflens.live_records import Progress, SourceHealth, SourceKind, State
from rooflens.pipeline.beside_feeds import may_be_one
from rooflens.pipeline.watch import Watch
from rooflens.protocols import Batch
from rooflens.records import EngineInfo, StepTable

LOG = EngineInfo("log-1", "vllm", model_name="llama", kv_blocks=999, block_tokens=16)


class MadeLog:
    """A log that tells what a test says."""

    kind, here, failures = SourceKind.LOG, True, 0

    def __init__(self, *infos: EngineInfo, here: bool = True) -> None:
        self.infos, self.here = infos, here
        self.steps: StepTable = empty_table()

    def start(self) -> None: ...

    def read(self) -> list[Batch]:
        return [Batch(info, self.steps, progress=Progress(State.LIVE)) for info in self.infos]

    def health(self) -> SourceHealth:
        return SourceHealth("server.log", self.kind, State.LIVE)

    def close(self) -> None: ...


@pytest.mark.parametrize(
    ("other", "one"),
    [
        ({}, True),
        ({"model_name": None}, True),
        ({"model_name": "org/llama"}, True),
        ({"model_name": "other"}, False),
        ({"model_name": "served", "base_model_name": "llama"}, True),
        ({"engine": "sglang"}, False),
        ({"rank": 1}, False),
        ({"kv_blocks": 998}, True),
        ({"kv_blocks": 500}, False),
        ({"kv_blocks": 999 * 16, "block_tokens": 1}, True),
        ({"kv_blocks": 500, "data_parallel": 2}, True),
        ({"engine_version": "0.32.0"}, True),
    ],
)
def test_what_tells_two_engines_apart(other: dict[str, Any], one: bool) -> None:
    assert may_be_one(LOG, replace(LOG, **other)) is one
    assert may_be_one(None, LOG) is False


def test_versions_tell_engines_apart_but_for_their_builds() -> None:
    old, new = replace(LOG, engine_version="0.31.0"), replace(LOG, engine_version="0.32.0")
    assert not may_be_one(old, new)
    assert may_be_one(new, replace(new, engine_version="v0.32.0+cpu"))


def sources(watch: Watch) -> dict[str, SourceHealth]:
    return {source.name: source for source in watch.snapshot.sources}


def kinds(watch: Watch) -> list[SourceKind]:
    return [view.source for view in watch.snapshot.engines if view.state is State.LIVE]


def test_a_log_stands_aside_for_the_page_of_its_engine(watch: Callable[..., Watch], site: Site) -> None:
    log = MadeLog(replace(LOG, kv_blocks=None))
    it = watch(scrape_urls=(URL,), feeds=(log,))
    it.turn()
    assert kinds(it) == [SourceKind.LOG]
    for steps in (0, 100, 200):
        site.tell(steps)
        it.turn()
    assert kinds(it) == [SourceKind.METRICS]
    assert [view.engine for view in it.snapshot.engines] == ["0"], "the page took its label"
    health = sources(it)["server.log"]
    assert (health.state, health.engines) == (State.STANDBY, 0)
    assert health.problem is not None
    assert "its metrics page tells of better" in health.problem


def test_the_log_of_an_engine_elsewhere_is_counted(watch: Callable[..., Watch], site: Site) -> None:
    it = watch(scrape_urls=(AWAY,), feeds=(MadeLog(LOG),))
    for steps in (0, 100):
        site.tell(steps)
        it.turn()
    assert sorted(kinds(it)) == [SourceKind.LOG, SourceKind.METRICS]


def test_of_several_ranks_those_with_a_better_source_stand_aside(watch: Callable[..., Watch], folder: Path) -> None:
    it = watch(feeds=(MadeLog(*(replace(LOG, engine="made-up", instance=f"log-{rank}", rank=rank, kv_blocks=None)
                                for rank in range(3))),))  # fmt: skip
    with made_engine(folder) as engine:
        engine.steps(10)
        it.turn()
        it.turn()
        assert sorted(kinds(it)) == [SourceKind.LOG, SourceKind.LOG, SourceKind.RING]
    health = sources(it)["server.log"]
    assert (health.state, health.engines) == (State.LIVE, 2)
    assert health.problem is not None


def test_the_log_is_counted_again_when_the_ring_is_gone(watch: Callable[..., Watch], folder: Path) -> None:
    it = watch(feeds=(MadeLog(replace(LOG, engine="made-up", kv_blocks=None)),))
    it.turn()
    with made_engine(folder) as engine:
        engine.steps(10)
        it.turn()
        it.turn()
        assert kinds(it) == [SourceKind.RING]
    it.turn()
    it.turn()
    assert kinds(it) == [SourceKind.LOG]
    assert sources(it)["server.log"].problem is None
