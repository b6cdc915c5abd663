"""kv_pressure and missed_batching: the pool, or the cap, is what keeps requests waiting; never both."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from made_windows import H100, INFO, MIXTURE, ROOFLINE, case, info_with, merged, steps

from rooflens.analyzer.roofline import Roofline
from rooflens.analyzer.rules import RULES
from rooflens.analyzer.rules.kv_pressure import _with_and_without as with_and_without
from rooflens.analyzer.rules.pool import at_cap, budget_full, full
from rooflens.analyzer.rules.reprice import at_larger_batch, scaled
from rooflens.cli.announce import fired
from rooflens.findings import Code, Finding, Price, Status
from rooflens.records import StepTable

KV, BATCH = Code.KV_PRESSURE, Code.MISSED_BATCHING
FOUR = info_with(max_sequences=4)


def judge(code: Code, table: StepTable, info: Any = INFO, roofline: Roofline | None = ROOFLINE) -> Finding:
    return RULES[code](case(table, info=info, roofline=roofline))


def preempting(count: int, tokens: int = 900, used: int = 19_500, **more: Any) -> StepTable:
    """A window of 100 steps in which ``count`` requests are preempted and computed again."""
    again = np.where(np.arange(100) < count, tokens, 0)
    return steps(prefill=again, recomputed_tokens=again, preempted=again > 0, kv_blocks_used=used, **more)


def price_of(found: Finding) -> Price:
    assert found.status is Status.FIRING
    assert found.price is not None
    assert 0 <= found.price.saved_low_s <= found.price.saved_s <= found.price.saved_high_s <= found.price.judged_s
    return found.price


@pytest.mark.parametrize(("count", "tokens", "fires"), [(2, 10, False), (3, 10, True), (1, 30, False), (1, 40, True)])
def test_three_preemptions_or_a_hundredth_computed_again(count: int, tokens: int, fires: bool) -> None:
    found = judge(KV, preempting(count, tokens))
    assert (found.status is Status.FIRING) is fires
    if fires:
        price_of(found)
        assert "--max-num-seqs" in (found.remedy or "")


def test_preemption_with_room_in_the_pool_is_something_else() -> None:
    assert judge(KV, preempting(10, used=14_900)).status is Status.CLEARED
    assert judge(KV, preempting(10, used=15_100)).status is Status.FIRING


def test_more_preemptions_never_cost_less_and_without_them_nothing_is_lost() -> None:
    prices = [price_of(judge(KV, preempting(count))) for count in (4, 8, 16, 32)]
    for name in ("saved_s", "saved_low_s", "saved_high_s"):
        values = [getattr(price, name) for price in prices]
        assert values == sorted(values), name
    # The recomputed steps are those of a plain decode step but for 900 tokens: that much time is saved.
    table = preempting(16)
    plain_s = steps()["observed_s"].sum()
    assert prices[2].saved_s == pytest.approx(table["observed_s"].sum() - plain_s, rel=0.02)


def test_preemptions_of_a_page_are_priced_by_their_context_and_of_no_model_by_their_tokens() -> None:
    """A page counts neither the recomputed tokens nor prompts that come back."""
    context = 1000
    hook = steps(prefill=np.where(np.arange(100) < 20, context, 0), preempted=np.arange(100) < 20,
                 recomputed_tokens=np.where(np.arange(100) < 20, context, 0), kv_blocks_used=19_500)  # fmt: skip
    known = price_of(judge(KV, hook))
    page = steps(observed_s=hook["observed_s"], preempted=np.arange(100) < 20, kv_blocks_used=19_500)
    guessed = price_of(judge(KV, without(merged(page, 10), "recomputed_tokens")))
    assert guessed.saved_s == pytest.approx(known.saved_s, rel=0.2)
    assert guessed.saved_s < guessed.judged_s
    twice = steps(observed_s=hook["observed_s"], preempted=2 * (np.arange(100) < 20), kv_blocks_used=19_500)
    assert price_of(judge(KV, without(merged(twice, 10), "recomputed_tokens"))).saved_s > guessed.saved_s
    assert price_of(judge(KV, preempting(20), info_with(model_config=None), None)).saved_low_s == 0


def queue(waiting: Any = 5, used: Any = 19_500, **more: Any) -> StepTable:
    return steps(waiting=waiting, kv_blocks_used=used, **more)


def test_a_queue_before_a_full_pool() -> None:
    found = judge(KV, queue())
    price_of(found)
    assert "--gpu-memory-utilization" in (found.remedy or "")
    assert "--max-num-seqs" not in (found.remedy or "")
    assert judge(BATCH, queue()).status is Status.CLEARED
    assert price_of(judge(KV, queue(waiting=50))).saved_s > price_of(judge(KV, queue())).saved_s


@pytest.mark.parametrize(
    "table",
    [
        queue(waiting=0),  # a full pool alone
        queue(waiting=0, deferred=9),  # who waits for something else
        queue(waiting=np.where(np.arange(100) < 49, 5, 0)),  # a burst
        queue(used=10_000),  # room in the pool
        queue(prefill=8160),  # a token budget full of prompts
    ],
)
def test_what_is_no_pressure_on_the_pool(table: StepTable) -> None:
    assert judge(KV, table).status is Status.CLEARED


def test_a_queue_behind_the_cap_is_no_pressure_on_the_pool() -> None:
    table = queue(decode=4, used=10_000)
    assert judge(KV, table, FOUR).status is Status.CLEARED
    assert judge(BATCH, table, FOUR).status is Status.FIRING
    # Cap and pool are both reached: neither a larger cap nor a larger pool alone would help.
    assert judge(BATCH, queue(decode=4), FOUR).status is Status.CLEARED


@pytest.mark.parametrize(("used", "running", "expected"), [(17_999, 1, False), (18_000, 1, True), (9_000, 2, False),
                                                           (13_400, 2, True), (13_300, 2, False)])  # fmt: skip
def test_a_pool_is_full_where_one_more_has_no_room(used: int, running: int, expected: bool) -> None:
    assert bool(full(steps(20, decode=running, kv_blocks_used=used), INFO)[0]) is expected


@pytest.mark.parametrize(("share", "fires"), [(49, False), (50, True)])
def test_a_queue_for_half_of_the_steps(share: int, fires: bool) -> None:
    table = steps(decode=4, waiting=np.where(np.arange(100) < share, 6, 0))
    assert (judge(BATCH, table, FOUR).status is Status.FIRING) is fires


def test_a_missed_batch_is_priced_with_its_effect_on_every_token() -> None:
    found = judge(BATCH, steps(decode=4, waiting=12), FOUR)
    price, facts = price_of(found), {e.name: e.value for e in found.evidence}
    assert facts["batch_possible"] == 16
    # The weights dominate: a quarter of the steps would do, each hardly longer. The steps take 1.4 times their floor,
    # usual kernels about as long; a fifth of that may as well be something that grows with the batch.
    assert price.saved_high_s == pytest.approx(0.75 * price.judged_s, rel=0.1)
    assert price.saved_low_s == pytest.approx(0.8 * price.saved_high_s, rel=0.03)
    assert price.saved_s == pytest.approx((price.saved_low_s + price.saved_high_s) / 2)
    assert found.summary == "4 sequences run and requests wait; 16 at once would do the same work in less time"
    assert fired(found).count("%") == 3  # the price and its range, once
    assert fired(found).count("times as long") == 1
    assert "least where the time beyond what is reachable grows with the batch" in price.derivation
    assert 1.0 < float(facts["step_time_growth_low"]) < 1.2
    assert found.remedy is not None
    assert "--max-num-seqs 16" in found.remedy
    assert "times as long" in found.remedy
    longer = judge(BATCH, steps(decode=4, waiting=40), FOUR)
    assert price_of(longer).saved_s > price.saved_s


@pytest.mark.parametrize(("waiting", "fires"), [(1, False), (2, True)])
def test_a_quarter_more_sequences_at_least(waiting: int, fires: bool) -> None:
    info = info_with(max_sequences=6)
    assert (judge(BATCH, steps(decode=6, waiting=waiting), info).status is Status.FIRING) is fires


def test_without_a_curve_of_kernels_the_floor_is_the_curve() -> None:
    measured = Roofline.of(FOUR, replace(H100, origin="measured"))
    price = price_of(judge(BATCH, steps(decode=4, waiting=12), FOUR, measured))
    assert price.saved_high_s == pytest.approx(0.75 * price.judged_s, rel=0.1)
    assert price.saved_low_s == pytest.approx(0.75 / 1.4 * price.judged_s, rel=0.1)


def test_more_sequences_touch_more_experts() -> None:
    # 128 experts of which a token takes 8: four tokens touch 128 x (1 - (1 - 1/16)^4) = 29 of them, sixteen 82.
    mixture = Roofline.of(info_with(model_config=MIXTURE), H100)
    table = steps(decode=4, roofline=mixture)
    rows = np.ones(100, dtype=bool)
    strict = mixture.analyse(scaled(table, np.full(100, 4.0))).floor_s.sum() / mixture.analyse(table).floor_s.sum()
    for roofline in (mixture, Roofline.of(info_with(model_config=MIXTURE), replace(H100, origin="measured"))):
        larger = at_larger_batch(roofline, table, rows, 16.0)
        assert larger is not None
        assert strict < 1.2 < 2.0 < larger.step_growth_low


def test_far_above_the_floor_the_price_is_a_wide_range_and_no_end_of_it() -> None:
    price = price_of(judge(BATCH, steps(decode=4, waiting=12, factor=15.0), FOUR))
    assert price.saved_low_s < 0.06 * price.judged_s < 0.7 * price.judged_s < price.saved_high_s
    assert 0.3 * price.judged_s < price.saved_s < 0.5 * price.judged_s


def test_the_pool_and_the_ridge_limit_the_batch() -> None:
    info = info_with(max_sequences=4, kv_blocks=4 * 63 * 2)
    found = judge(BATCH, steps(decode=4, waiting=50), info)
    assert {e.name: e.value for e in found.evidence}["batch_possible"] == 8
    info = info_with(max_sequences=100, kv_blocks=10**6)
    found = judge(BATCH, steps(decode=100, context=10, waiting=5000), info)
    assert {e.name: e.value for e in found.evidence}["batch_possible"] == 200


def test_steps_that_are_not_memory_bound_gain_nothing() -> None:
    info = info_with(max_sequences=600, kv_blocks=10**6)
    assert judge(BATCH, steps(decode=600, context=10, waiting=600), info).status is Status.CLEARED


def test_an_engine_that_does_not_state_its_cap_is_level_at_it() -> None:
    unstated = info_with(max_sequences=None)
    assert judge(BATCH, merged(steps(200, decode=4, waiting=8), 10), unstated).status is Status.FIRING
    uneven = np.arange(200) // 10 % 4 + 2
    assert judge(BATCH, merged(steps(200, decode=uneven, waiting=8), 10), unstated).status is Status.CLEARED
    assert not at_cap(steps(20), unstated).any()


def test_a_budget_full_of_prompts_holds_the_batch_itself() -> None:
    table = steps(decode=4, prefill=8188, waiting=8)
    assert budget_full(table, info_with(max_sequences=5)).all()
    assert judge(BATCH, table, info_with(max_sequences=5)).status is Status.CLEARED


def test_more_memory_for_the_cache_never_makes_its_pressure_worse() -> None:
    table = queue()
    assert judge(KV, table, info_with(kv_blocks=21_000)).status is Status.FIRING
    assert judge(KV, table, info_with(kv_blocks=40_000)).status is Status.CLEARED


def test_a_faster_memory_saves_no_more_by_batching() -> None:
    table = steps(decode=4, waiting=12)
    fast = Roofline.of(FOUR, replace(H100, memory_bandwidth_bytes_per_s=8e12))
    here, there = price_of(judge(BATCH, table, FOUR)), price_of(judge(BATCH, table, FOUR, fast))
    assert there.saved_low_s < here.saved_low_s


def test_weights_that_a_cache_may_keep_are_read_all_the_same() -> None:
    table = steps(decode=4, waiting=12)
    plain = price_of(judge(BATCH, table, FOUR, Roofline.of(FOUR, replace(H100, cache_bytes=None))))
    kept = Roofline.of(FOUR, replace(H100, cache_bytes=40 * 10**9))
    assert kept.analyse(table).memory_s.max() == 0.0
    assert price_of(judge(BATCH, table, FOUR, kept)) == plain
    # Where the rate of reading so much was measured, it is that rate: at 100 TB/s the steps would be compute-bound.
    curve = replace(H100, cache_bytes=40 * 10**9, read_curve=((10**9, 1e14), (10**11, 1e14)))
    assert judge(BATCH, table, FOUR, Roofline.of(FOUR, curve)).status is Status.FIRING
    slow = steps(decode=128, context=10, waiting=300)
    info = info_with(max_sequences=128)
    assert judge(BATCH, slow, info, Roofline.of(info, curve)).status is Status.CLEARED
    assert judge(BATCH, slow, info).status is Status.FIRING


def test_a_larger_batch_has_more_of_everything_that_each_sequence_has() -> None:
    table = steps(decode=4, lora_rows=2, **{"context_tokens@w512": 4 * 512, "causal_pairs@w512": 4 * 512})
    doubled = scaled(table, np.full(len(table), 2.0))
    for name in ("requests", "context_tokens", "causal_pairs", "lora_rows", "context_tokens@w512", "causal_pairs@w512"):
        np.testing.assert_array_equal(doubled[name], 2 * table[name], name)
    assert "kv_blocks_used" not in doubled.columns
    np.testing.assert_array_equal(doubled["observed_s"], table["observed_s"])


def test_pairs_of_recomputed_tokens_are_left_out_over_windows_too() -> None:
    pairs = {"causal_pairs@w64": 3200, "prefill_pairs@w64": 1600}
    every, fewer = with_and_without(case(steps(decode=10, prefill=30, recomputed_tokens=20, **pairs)))  # type: ignore[misc]
    for name in ("query_tokens", *pairs):  # half of the 40 tokens were computed again
        np.testing.assert_allclose(fewer[name], every[name] / 2)


def without(table: StepTable, *names: str) -> StepTable:
    return StepTable({n: c for n, c in table.columns.items() if n not in names})


def test_what_is_missing_is_named() -> None:
    assert "20 steps" in judge(KV, steps(19)).missing[0]
    assert "20 steps" in judge(BATCH, steps(19)).missing[0]
    assert "queue" in judge(KV, without(steps(), "waiting")).missing[0]
    assert "queue" in judge(BATCH, without(steps(), "waiting")).missing[0]
    assert "KV pool" in judge(KV, queue(), info_with(kv_blocks=None)).missing[0]
    assert judge(KV, steps(), info_with(kv_blocks=None)).status is Status.CLEARED
    assert "KV pool" in judge(BATCH, queue(decode=4), replace(FOUR, kv_blocks=None)).missing[0]
    capped = queue(decode=4, used=10_000)
    assert "--hardware" in judge(BATCH, capped, FOUR, None).missing[0]
    assert judge(BATCH, steps(), INFO, None).status is Status.CLEARED
