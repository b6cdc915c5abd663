"""prefill_interference: stalls of the running decodes behind prompts, and what only looks like one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from made_windows import INFO, case, info_with, merged, steps

from rooflens.analyzer.rules import RULES
from rooflens.findings import Code, Finding, Status
from rooflens.records import StepTable

PLAIN_S = 0.02


def stalls(
    count: int, seconds: float = 0.2, steps_in_all: int = 300, tokens: int = 4000, decode: int = 8, **more: Any
) -> StepTable:
    """Decode steps of 20 ms, ``count`` of them with a prompt of ``tokens`` that take ``seconds``."""
    hit = np.isin(np.arange(steps_in_all), np.linspace(5, steps_in_all - 5, count, dtype=int)) if count else False
    hit = np.broadcast_to(hit, (steps_in_all,))
    observed = np.where(hit, seconds, PLAIN_S)
    return steps(steps_in_all, decode, 500, np.where(hit, tokens, 0), observed_s=observed, **more)


def judge(*tables: StepTable, info: Any = INFO) -> Finding:
    return RULES[Code.PREFILL_INTERFERENCE](case(*tables, info=info))


@pytest.mark.parametrize(("seconds", "fires"), [(0.079, False), (0.081, True)])
def test_a_stall_is_four_decode_steps(seconds: float, fires: bool) -> None:
    assert (judge(stalls(5, seconds)).status is Status.FIRING) is fires


@pytest.mark.parametrize(("seconds", "fires"), [(0.049, False), (0.051, True)])
def test_below_fifty_milliseconds_nobody_notices(seconds: float, fires: bool) -> None:
    table = stalls(5, seconds)
    quick = np.where(table["prefill_tokens"] > 0, seconds, 0.01)
    found = judge(steps(300, 8, 500, table["prefill_tokens"], observed_s=quick))
    assert (found.status is Status.FIRING) is fires


@pytest.mark.parametrize(
    ("count", "in_all", "fires"), [(0, 300, False), (1, 50, False), (2, 300, False), (2, 150, True), (3, 300, True)]
)
def test_one_slow_step_is_no_interference(count: int, in_all: int, fires: bool) -> None:
    # Of two stalls in 150 steps the 8 sequences that wait are 1.3 % of the tokens, in 300 steps 0.7 %.
    assert (judge(stalls(count, steps_in_all=in_all)).status is Status.FIRING) is fires


@pytest.mark.parametrize(("seconds", "fires"), [(0.3, False), (0.4, True)])
def test_two_stalls_that_take_a_tenth_of_the_time_are_seen(seconds: float, fires: bool) -> None:
    assert (judge(stalls(2, seconds)).status is Status.FIRING) is fires


def test_the_finding_names_the_chunk_that_would_do() -> None:
    found = judge(stalls(5, 0.2, tokens=4000))
    facts = {e.name: e.value for e in found.evidence}
    # 180 ms for 4000 tokens are 45 us each: 20 ms more are 444 tokens, 256 as a power of two.
    assert facts["seconds_for_each_prompt_token"] == pytest.approx(45e-6)
    assert facts["chunk_for_twice_a_decode_step"] == 256
    assert found.remedy == "--max-num-batched-tokens 256 (now 8192)"
    assert "--enable-chunked-prefill" in (judge(stalls(5), info=info_with(chunked_prefill=False)).remedy or "")
    assert "256" in (judge(stalls(5), info=info_with(engine="rooflens-embedded")).remedy or "")
    assert "--kv-transfer-config" in (judge(stalls(5, tokens=100)).remedy or "")
    assert found.price is not None
    assert found.price.saved_s == pytest.approx(5 * (0.2 - 2 * PLAIN_S))
    assert found.price.saved_low_s == pytest.approx(5 * (0.2 - 4 * PLAIN_S))


def test_longer_stalls_never_cost_less() -> None:
    prices = [judge(stalls(5, seconds)).price for seconds in (0.1, 0.2, 0.4)]
    saved = [price.saved_s for price in prices if price is not None]
    assert len(saved) == 3
    assert saved == sorted(saved)


def test_prompts_that_are_computed_again_belong_to_the_pool() -> None:
    table = stalls(5)
    again = StepTable({**table.columns, "recomputed_tokens": table["prefill_tokens"] - 1})
    assert judge(again).status is Status.CLEARED


def test_a_prompt_without_anybody_decoding_stalls_nobody() -> None:
    alone = steps(300, np.where(np.arange(300) % 50 == 7, 0, 8), 500, np.where(np.arange(300) % 50 == 7, 4000, 0),
                  observed_s=np.where(np.arange(300) % 50 == 7, 0.2, PLAIN_S))  # fmt: skip
    assert judge(alone).status is Status.CLEARED
    left_out = StepTable({**alone.columns, "running": np.full(300, 9)})  # a prefill step that leaves the decodes out
    assert judge(left_out).status is Status.FIRING


def test_where_steps_without_prompts_are_slow_as_often_it_is_not_the_prompts() -> None:
    table = stalls(40)
    rng = np.random.default_rng(0)
    hiccups = rng.random(300) < 0.15
    observed = np.where(hiccups, 0.2, PLAIN_S)
    assert judge(steps(300, 8, 500, table["prefill_tokens"], observed_s=observed)).status is Status.CLEARED


def test_plain_steps_of_a_similar_batch_are_needed_and_earlier_windows_have_them() -> None:
    prompts = stalls(60, steps_in_all=60)
    assert "plain decode" in judge(prompts).missing[0]
    assert judge(stalls(0), prompts).status is Status.FIRING
    assert judge(stalls(0, decode=64), prompts).status is Status.CANNOT_TELL
    assert "20 steps" in judge(stalls(3, steps_in_all=19)).missing[0]
    for plain, expected in ((9, Status.CANNOT_TELL), (10, Status.FIRING)):
        hit = np.arange(60) >= plain
        table = steps(60, 8, 500, np.where(hit, 4000, 0), observed_s=np.where(hit, 0.2, PLAIN_S))
        assert judge(table).status is expected


def test_from_a_page_by_intervals_with_and_without_prompts() -> None:
    found = judge(merged(stalls(6, 0.5), 10))
    assert found.status is Status.FIRING
    assert {e.name: e.value for e in found.evidence}["stall_median"] == pytest.approx(0.5)
    assert found.confidence is not None
    assert found.confidence <= 0.5
    assert judge(merged(stalls(0), 10)).status is Status.CLEARED
    assert judge(merged(stalls(6, 0.06), 10)).status is Status.CLEARED
    assert judge(merged(stalls(6, 0.5, decode=1), 10)).status is Status.CLEARED  # nobody else decodes
    assert judge(merged(stalls(60), 10)).status is Status.CANNOT_TELL  # prompts in every interval
    assert judge(merged(stalls(1, 0.5), 10)).status is Status.CANNOT_TELL  # one slow interval: a hiccup, or not
    unknown = merged(stalls(6, 0.5), 10)
    unknown = StepTable({n: c for n, c in unknown.columns.items() if n != "prefill_requests"})
    assert judge(unknown).status is Status.CANNOT_TELL
