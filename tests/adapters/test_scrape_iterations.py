"""TensorRT-LLM's steps as JSON at /metrics: a row each, told once, ordered by number, lost and begun anew."""

from __future__ import annotations

import copy
import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scrape_pages import Site, page, serving

from rooflens.adapters.scrape.fetch import Page
from rooflens.adapters.scrape.iterations import iterations_on
from rooflens.adapters.scrape.page_source import MetricsPage
from rooflens.live_records import State
from rooflens.protocols import Batch
from rooflens.records import StepKind

# The first record of a run as published (TensorRT-LLM#3376, 0.18): no latency yet, and 5,495 blocks "used" by one
# request whose 16,000 tokens take 250.
FIRST: dict[str, Any] = {
    "cpuMemUsage": 3492, "gpuMemUsage": 25330607135,
    "inflightBatchingStats": {
        "avgNumDecodedTokensPerIter": 0.0, "microBatchId": 0, "numContextRequests": 1, "numCtxTokens": 16000,
        "numGenRequests": 0, "numPausedRequests": 0, "numScheduledRequests": 1,
    },
    "iter": 0, "iterLatencyMS": 0.0,
    "kvCacheStats": {
        "allocNewBlocks": 250, "allocTotalBlocks": 250, "cacheHitRate": 0.0, "freeNumBlocks": 1745,
        "maxNumBlocks": 7240, "missedBlocks": 0, "reusedBlocks": 0, "tokensPerBlock": 64, "usedNumBlocks": 5495,
    },
    "maxBatchSizeRuntime": 16, "maxNumActiveRequests": 16, "maxNumTokensRuntime": 17800, "numActiveRequests": 1,
    "numCompletedRequests": 0, "numNewActiveRequests": 1, "numQueuedRequests": 7, "staticBatchingStats": None,
    "timestamp": "04-07-2025 20:33:17.747028",
}  # fmt: skip


def step(number: int, second: float = 20.0, context: int = 0, generation: int = 8, **more: Any) -> dict[str, Any]:
    made = copy.deepcopy(FIRST) | {"iter": number, "iterLatencyMS": 20.0, "numActiveRequests": 8} | more
    made["timestamp"] = f"04-07-2025 20:33:{second:09.6f}"
    made["inflightBatchingStats"] |= {
        "numContextRequests": context, "numCtxTokens": 100 * context, "numGenRequests": generation,
    }  # fmt: skip
    return made


class Fed:
    """A page that is given answers, a second apart."""

    def __init__(self) -> None:
        self.source, self.now_s = MetricsPage("http://engine:8000"), 1000.0

    def answer(self, *steps: dict[str, Any]) -> list[Batch]:
        self.now_s += 1.0
        self.source.take(Page(json.dumps(steps)), 1.7e9 + self.now_s, self.now_s)
        return self.source.read()


def column(batches: list[Batch], name: str) -> list[float]:
    return [value for batch in batches for value in batch.steps.columns.get(name, ())]


def test_the_published_record_is_a_prefill_step_of_unknown_time() -> None:
    fed = Fed()
    found = fed.answer(FIRST) + fed.answer(step(1, 18.7))
    (table,) = [batch.steps for batch in found if len(batch.steps)]
    assert table["kind"][0] == StepKind.PREFILL
    assert (table["query_tokens"][0], table["requests"][0], table["prefill_requests"][0]) == (16000, 1, 1)
    assert (table["running"][0], table["waiting"][0]) == (1, 7)
    assert "kv_blocks_used" not in table.columns  # nor are they held by requests
    assert "observed_s" not in table.columns or not table.where("observed_s")[0]
    assert "context_tokens" not in table.columns  # blocks kept for reuse are no contexts
    info = found[-1].info
    assert info is not None
    assert (info.engine, info.kv_blocks, info.block_tokens) == ("tensorrt-llm", 7240, 64)


def test_a_row_each_step_in_the_order_of_their_numbers() -> None:
    fed = Fed()
    steps = [step(3, 20.06, 0, 8), step(1, 20.02, 2, 0), step(2, 20.04, 1, 8)]
    found = fed.answer(*steps) + fed.answer(step(4, 20.08))
    assert column(found, "kind") == [StepKind.PREFILL, StepKind.MIXED, StepKind.DECODE]
    assert column(found, "resolution_steps") == [1, 1, 1]
    assert column(found, "observed_s") == [0.02] * 3
    apart_s = column(found, "output_monotonic_s")
    assert [round(late - early, 3) for early, late in pairwise(apart_s)] == [0.02, 0.02]
    assert sum(batch.lost_steps for batch in found) == 0


def test_steps_end_before_their_answer_whatever_the_servers_clock_says() -> None:
    fed = Fed()
    found = fed.answer(step(1, 20.0), step(2, 20.5)) + fed.answer(step(3, 21.0))
    ends = column(found, "output_monotonic_s")
    assert [round(end, 3) for end in ends] == [1000.5, 1001.0]
    assert [round(end - 1.7e9, 3) for end in column(found, "unix_s")] == [1000.5, 1001.0]


def test_what_another_reader_took_is_lost() -> None:
    fed = Fed()
    fed.answer(step(1, 20.0))
    found = fed.answer(step(11, 21.0), step(13, 21.1))
    assert [batch.lost_steps for batch in found] == [10]
    assert "10 steps are missing between two answers" in found[0].complaints[0]


def test_a_server_that_keeps_its_steps_tells_them_once() -> None:
    fed = Fed()
    steps = [step(1, 20.0), step(2, 20.1)]
    found = fed.answer(*steps) + fed.answer(*steps) + fed.answer(*steps, step(3, 20.2))
    assert column(found, "sequence") == [1, 2]
    assert sum(batch.lost_steps for batch in found) == 0


def test_a_lower_number_is_a_restart() -> None:
    fed = Fed()
    fed.answer(step(7, 20.0), step(8, 20.1))
    found = fed.answer(step(0, 40.0), step(1, 40.1))
    assert [batch.progress and batch.progress.state for batch in found] == [State.ENDED, State.LIVE]
    runs = [batch.info.instance for batch in found if batch.info]
    assert len({*runs}) == 2
    assert sum(batch.lost_steps for batch in found) == 0


def test_ranks_are_engines_of_their_own() -> None:
    fed = Fed()
    steps = [step(n, 20.0 + n / 10, attentionDpRank=rank) for n in (1, 2) for rank in (0, 1)]
    found = fed.answer(*steps)
    assert [(batch.info.rank, len(batch.steps)) for batch in found if batch.info] == [(0, 1), (1, 1)]
    assert all(batch.lost_steps == 0 for batch in found)


def test_nothing_yet_is_no_failure_and_says_what_to_do() -> None:
    fed = Fed()
    assert fed.answer() == []
    assert fed.source.state is State.LIVE
    assert "enable_iter_perf_stats: true" in (fed.source.problem or "")
    fed.answer(step(1))
    assert fed.source.problem is None
    assert len(fed.answer()) == 1


def test_another_engine_at_the_address_ends_it() -> None:
    fed = Fed()
    fed.answer(step(1))
    fed.source.take(Page(page(running=1)), 1e9, 2000.0)
    ends = [batch.info.engine for batch in fed.source.read() if batch.info]
    assert ends == ["tensorrt-llm", "vllm"]
    fed.now_s = 3000.0
    assert [batch.info.engine for batch in fed.answer(step(1)) if batch.info] == ["vllm", "tensorrt-llm"]


def test_over_a_real_connection_with_the_servers_facts() -> None:
    site = Site(json.dumps([step(1)]))
    with serving(site) as url:
        source = MetricsPage(url)
        assert source.fetch_once()
    assert [head.split(b" ")[1] for head in site.heads] == [b"/metrics", b"/v1/models", b"/version"]
    assert len(source.read()) == 1


@pytest.mark.parametrize("text", ["[", "{}", "[1]", '[{"a":1}]', "[" * 100_000, '{"data":[]}', "NaN", "", "x"])
def test_other_json_is_none_of_it(text: str) -> None:
    assert iterations_on(text) is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
NAMES = ("iter", "iterLatencyMS", "timestamp", "inflightBatchingStats", "kvCacheStats", "attentionDpRank", *FIRST)
ODD = st.dictionaries(st.sampled_from(NAMES), JSON, max_size=5)


@given(st.lists(st.lists(ODD, max_size=4), max_size=4))
def test_whatever_stands_there_is_taken_or_left(answers: list[list[dict[str, Any]]]) -> None:
    fed = Fed()
    for answer in answers:
        fed.answer(*(FIRST | odd for odd in answer))


def test_no_more_steps_are_kept_than_a_server_keeps() -> None:
    assert len(iterations_on(json.dumps([step(n) for n in range(5000)])) or ()) == 4096
