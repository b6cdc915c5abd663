"""SGLang whose metrics are off: a standing view of its server info, and one line on what would give steps."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scrape_pages import page, serving
from test_scrape_asked import Answer, Server

from rooflens.adapters.scrape.page_source import MetricsPage
from rooflens.adapters.scrape.without_metrics import standing
from rooflens.live_records import State

# As the handlers of the releases put them together, cut to what matters.
INFO: dict[str, Any] = {
    "model_path": "/data/models/Qwen3-8B", "served_model_name": "Qwen/Qwen3-8B", "page_size": 1, "tp_size": 1,
    "max_total_num_tokens": 100_000, "version": "0.5.12",
    "internal_states": [{"last_gen_throughput": 812.5, "memory_usage": {"token_capacity": 100_000}}],
}  # fmt: skip
# 0.5.9 to 0.5.23, srt/entrypoints/v1_loads.py.
LOADS = {
    "timestamp": "2026-01-01T00:00:00+00:00", "version": "0.5.12", "dp_rank_count": 1,
    "loads": [{
        "dp_rank": 0, "num_running_reqs": 7, "num_waiting_reqs": 2, "num_used_tokens": 25_000, "num_total_tokens": 9e4,
        "max_total_num_tokens": 100_000, "token_usage": 0.25, "gen_throughput": 812.5, "cache_hit_rate": 0.0,
    }],
}  # fmt: skip
# 0.5.4 to 0.5.20, what the tokenizer manager hands through.
LOAD = [{"dp_rank": 0, "num_reqs": 9, "num_waiting_reqs": 2, "num_tokens": 31_000}]


def answers(info: str = "/server_info", **more: Any) -> dict[str, Answer]:
    return {info: json.dumps(INFO)} | {f"/{path.replace('__', '/')}": json.dumps(told) for path, told in more.items()}


def seen(given_answers: dict[str, Answer]) -> tuple[MetricsPage, Server, list[Any]]:
    server = Server(given_answers)
    with serving(server) as url:
        source = MetricsPage(url)
        assert source.fetch_once()
        source.read()
        assert source.fetch_once()
    return source, server, source.read()


@pytest.mark.parametrize(
    ("told", "held"),
    [
        (answers(v1__loads=LOADS), (7, 2, 25_000)),
        (answers("/get_server_info", get_load=LOAD), (7, 2, None)),
        (answers("/get_server_info"), (None, None, None)),
    ],
)
def test_what_it_holds_now_without_steps(told: dict[str, Answer], held: tuple[float | None, ...]) -> None:
    source, _, (batch,) = seen(told)
    assert (source.state, source.failures) == (State.LIVE, 0)
    assert "--enable-metrics of SGLang gives steps" in (source.problem or "")
    assert "\n" not in (source.problem or "")
    assert batch.progress is not None
    load = batch.progress.load
    assert (load.running, load.waiting, load.kv_blocks_used) == held
    assert len(batch.steps) == 0
    assert (batch.info.engine, batch.info.model_name, batch.info.kv_blocks) == ("sglang", "Qwen3-8B", 100_000)
    assert batch.info.engine_version == "0.5.12"


def test_only_the_paths_that_answered_are_asked_again() -> None:
    _, server, _ = seen(answers("/get_server_info", get_load=LOAD))
    assert server.paths[-3:] == ["/metrics", "/get_server_info", "/get_load"]


def test_ranks_each() -> None:
    loads = {"loads": [LOADS["loads"][0] | {"dp_rank": rank, "num_running_reqs": rank} for rank in (0, 1)]}  # type: ignore[index]
    found = standing(INFO, loads, 1.0, 2.0)
    assert {key: (reading.get("running"), reading.sharing) for key, reading in found.items()} == {
        ("Qwen3-8B", "0"): (0, 2), ("Qwen3-8B", "1"): (1, 2),
    }  # fmt: skip


@pytest.mark.parametrize(
    "info", [404, 401, "", "garbage", "[]", '{"version":"1"}', '{"internal_states":7}', "[" * 99_999]
)
def test_what_is_no_sglang_stays_a_page_that_is_not_there(info: Answer) -> None:
    server = Server({"/server_info": info, "/get_server_info": info})
    with serving(server) as url:
        source = MetricsPage(url)
        assert not source.fetch_once()
        assert not source.fetch_once()
    assert (source.state, source.failures, source.read()) == (State.UNREACHABLE, 2, [])
    assert "does not exist" in (source.problem or "")
    assert server.paths.count("/metrics") == 2
    assert len(server.paths) <= 4  # asked once, not at every failure


def test_with_metrics_switched_on_steps_come_of_the_page() -> None:
    server = Server(answers(v1__loads=LOADS))
    with serving(server) as url:
        source = MetricsPage(url)
        assert source.fetch_once()
        server.answers["/metrics"] = page(running=1)
        assert source.fetch_once()
    assert source.problem is None


@pytest.mark.parametrize(("status", "words"), [(400, "add ?model=NAME"), (501, "start llama.cpp with --metrics")])
def test_llama_cpp_says_what_it_wants(status: int, words: str) -> None:
    """A router answers 400 to a page without a model, a server without --metrics 501 (tools/server, b8000 on)."""
    with serving(Server({"/metrics": status})) as url:
        source = MetricsPage(url)
        assert not source.fetch_once()
    assert words in (source.problem or "")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
NAMES = ("loads", "dp_rank", "num_reqs", "num_waiting_reqs", "num_running_reqs", "num_used_tokens", *INFO)
ODD = st.dictionaries(st.sampled_from(NAMES), JSON, max_size=5)


@given(ODD, JSON | ODD | st.lists(ODD) | st.fixed_dictionaries({"loads": st.lists(ODD)}))
def test_whatever_stands_there_values_are_counts(info: dict[str, Any], loads: Any) -> None:
    for reading in standing(INFO | info, loads, 1.0, 2.0).values():
        assert all(0 <= value < float("inf") for value in reading.values.values())
