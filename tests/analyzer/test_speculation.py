"""Speculation: the arithmetic of theory, what a verify step costs, where it pays and how deep."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_archs import deepseek, sparse, stateful

from rooflens.analyzer.acceptance import expected_tokens, walltime_improvement
from rooflens.analyzer.arch import find_model
from rooflens.analyzer.drafting import eagle_arch
from rooflens.analyzer.hardware import find_hardware
from rooflens.analyzer.precision import choose_precision
from rooflens.analyzer.predict import Plan, predict
from rooflens.analyzer.speculation import DEEPEST, METHODS, Draft, Speculator
from rooflens.arch_records import Attention, Deployment
from rooflens.model_records import HardwareSpec
from rooflens.records import RooflensError

LLAMA_70B, LLAMA_8B = find_model("meta-llama-3-70b"), find_model("meta-llama-3-8b")
H100, H200 = find_hardware("h100-sxm5-80"), find_hardware("h200-sxm-141")
BARE = replace(H100, origin="measured")  # no published kernels: durations are those of the floor
EIGHT = Deployment(tensor=8)


def speculator(
    method: str = "ngram", acceptance: Any = 0.8, context: int = 2048, hardware: HardwareSpec = BARE, **draft: Any
) -> Speculator:
    plan, arch = Plan(8, EIGHT, context_tokens=context), LLAMA_70B
    return Speculator.of(arch, hardware, choose_precision(arch), plan, Draft(method, **draft), acceptance)


def test_expected_tokens() -> None:
    # 1 + 0.8 + 0.64 + 0.512 + 0.4096
    assert expected_tokens(0.8, 4) == pytest.approx(3.3616)
    assert expected_tokens(0.9, 1) == pytest.approx(1.90)  # DeepSeek-V3.2 with one predicted token
    assert expected_tokens(1.0, 4) == 5
    assert expected_tokens(0.0, 4) == 1
    assert expected_tokens(0.5, 0) == 1
    assert expected_tokens((0.7, 0.4, 0.1), 2) == pytest.approx(2.1)
    assert expected_tokens((0.7, 0.4, 0.1), 3) == pytest.approx(2.2)
    assert expected_tokens((), 0) == 1


@given(st.floats(0, 1), st.integers(0, 16))
def test_positions_that_decay_by_one_rate_are_that_rate(rate: float, depth: int) -> None:
    positions = tuple(rate**place for place in range(1, 17))
    assert expected_tokens(positions, depth) == pytest.approx(expected_tokens(rate, depth), rel=1e-6)
    assert 1 <= expected_tokens(rate, depth) <= depth + 1 + 1e-9


def test_walltime_of_leviathan() -> None:
    # Theorem 3.8 with a = 0.8, g = 5, c = 0.05: (1 - 0.8^6) / (0.2 x 1.25) = 0.737856 / 0.25
    assert walltime_improvement(0.8, 5, 0.05) == pytest.approx(0.737856 / 0.25)
    assert walltime_improvement(0.8, 0, 0.05) == 1
    # Corollary 3.9: where a > c some depth pays, and with g = 1 by (1 + a) / (1 + c).
    assert walltime_improvement(0.6, 1, 0.5) == pytest.approx(1.6 / 1.5)


def test_gain_is_that_of_the_theorem_where_a_verify_step_costs_what_a_plain_one_does() -> None:
    # An 8B model drafts for a 70B: at batch 1 both read their weights, 16.1 GB less the embedding and 141.1 GB.
    found = speculator("model", model=LLAMA_8B).gain(4, batch=1)
    cost = found.draft_s / 4 / found.plain_s
    assert cost == pytest.approx((16.06 - 1.05) / (141.1 - 2.1), rel=0.03)
    assert found.verify_ratio == pytest.approx(1.0, abs=1e-4)
    assert found.gain == pytest.approx(walltime_improvement(0.8, 4, cost), rel=1e-4)
    assert found.tokens_per_s == pytest.approx(found.gain * found.plain_tokens_per_s)


def test_it_helps_at_1_and_fades_at_256() -> None:
    gains = [found.gain for found in speculator(context=512).batches(4, (1, 8, 64, 128, 256, 1024))]
    assert gains[0] == pytest.approx(3.36, abs=0.01)
    assert gains == sorted(gains, reverse=True)
    assert gains[4] < 0.55 * gains[0]
    assert gains[5] < 1
    # Where arithmetic binds both steps, five tokens are computed for 3.36 that are kept.
    bound = speculator(context=0).gain(4, batch=20_000)
    assert (bound.bound, bound.plain_bound) == ("compute", "compute")
    assert bound.gain == pytest.approx(3.3616 / 5, rel=1e-3)


def test_a_verify_step_reads_weights_and_cache_once_and_computes_every_row() -> None:
    plan = Plan(8, EIGHT, batch=4, context_tokens=1000)
    precision = choose_precision(LLAMA_70B)
    plain, verify = (predict(LLAMA_70B, H100, precision, replace(plan, query_tokens=n)) for n in (1, 5))
    assert verify.weight_read_bytes == plain.weight_read_bytes
    assert verify.kv_read_bytes == plain.kv_read_bytes
    assert verify.kv_write_bytes == 5 * plain.kv_write_bytes
    # Linear layers and the head five times; pairs are 5 x 1,000 and 1 + 2 + 3 + 4 + 5 of the new ones.
    pair = 4 * 80 * 64 * 128
    linear = plain.flops - 4 * pair * 1001
    assert verify.flops == pytest.approx(5 * linear + 4 * pair * 5015)
    heads = [next(g.flops for g in r.groups if g.group == "head") for r in (plain, verify)]
    assert heads[1] == 5 * heads[0]


def test_break_even_is_where_the_gain_ends() -> None:
    found = speculator("model", model=LLAMA_8B)
    end = found.break_even(4)
    assert end.batch is not None
    assert found.gain(4, batch=end.batch).gain > 1 >= found.gain(4, batch=end.batch + 1).gain
    assert all(found.gain(4, batch=b).gain <= 1 for b in (end.batch * 2, end.batch * 10, 100_000))
    assert "compute" in end.reason


def test_break_even_where_there_is_none() -> None:
    always = speculator(context=100_000).break_even(1)  # the cache, read once for both tokens, binds at any batch
    fits = predict(LLAMA_70B, BARE, choose_precision(LLAMA_70B), Plan(8, EIGHT, context_tokens=100_000)).max_batch
    assert always.batch is None
    assert always.reason.startswith(f"always: at batch {fits}, the largest that fits, the gain is 1.8")
    never = speculator("model", 0.1, model=LLAMA_70B).break_even(4)
    assert never.batch is None
    assert never.reason.startswith("never: at best, ")


def test_break_even_of_a_model_that_does_not_fit_is_looked_for_all_the_same() -> None:
    plan, precision = Plan(context_tokens=100), choose_precision(LLAMA_70B)
    found = Speculator.of(LLAMA_70B, BARE, precision, plan, Draft("ngram"), 0.5).break_even(4)
    assert found.batch is not None
    assert "compute" in found.reason


def test_experts_may_lose_between_batches_that_gain() -> None:
    # At batches of 1 to 8 a verify step of 3 tokens reaches up to 3 times the experts of a plain one, for 1.75 tokens;
    # at 64 nearly all are read anyway.
    plan, arch = Plan(context_tokens=100), sparse()
    found = Speculator.of(arch, BARE, choose_precision(arch), plan, Draft("ngram"), 0.5)
    assert found.gain(2, 1).gain < 1 < found.gain(2, 64).gain
    even = found.break_even(2)
    assert even.batch is None
    assert even.reason.startswith("always, but for batches about 1 to 8: ")


def test_the_best_depth_is_the_best_of_all() -> None:
    found = speculator("eagle3")
    for batch in (1, 64, 256, 2048):
        best = found.best(batch)
        assert best.gain == max(found.gain(depth, batch).gain for depth in range(17))
    assert found.best(1).depth > found.best(256).depth > 0
    assert speculator("eagle3", 0.0).best(1).depth == 0
    # Positions of which nothing is known are not tried, and those that are hardly accepted do not pay.
    assert speculator("eagle3", (0.7, 0.4, 0.001)).best(1).depth == 2
    assert len(speculator("eagle3", (0.7, 0.4, 0.001)).depths()) == 4


def test_experts_make_a_verify_step_dearer() -> None:
    # Two tokens of one sequence reach 8 x (2 - 8 / 128) of 128 experts in each layer, and a plain step 8.
    arch = sparse()
    precision = choose_precision(arch)
    plain, verify = (predict(arch, H100, precision, Plan(context_tokens=0, query_tokens=n)) for n in (1, 2))
    layer = 48 * 3 * 2048 * 768 * 2  # bytes of one expert in every layer
    assert plain.expert_bytes == pytest.approx(0, abs=1)
    assert verify.expert_bytes == pytest.approx((2 - 8 / 128 - 1) * 8 * layer)
    found = Speculator.of(arch, BARE, precision, Plan(context_tokens=0), Draft("ngram"), 0.8)
    assert 1.5 < found.gain(1).verify_ratio < 2 - 8 / 128
    # The more alike neighbours choose, the cheaper it is; at batch 512 nearly all experts are read anyway.
    alike = Speculator.of(arch, BARE, precision, Plan(context_tokens=0, expert_sharing_ratio=0.5), Draft("ngram"), 0.8)
    assert alike.gain(1).verify_ratio < found.gain(1).verify_ratio
    assert found.gain(1, batch=64).verify_ratio < found.gain(1).verify_ratio
    assert verify.weight_read_bytes == plain.weight_read_bytes  # of the strict floor: the fewest experts


def test_multi_token_prediction() -> None:
    arch = deepseek()
    plan = Plan(8, EIGHT, context_tokens=1000)
    precision = choose_precision(arch, "fp8", "bf16")
    found = Speculator.of(arch, H200, precision, plan, Draft("mtp"), 0.9)
    one = found.gain(1)
    assert one.expected_tokens == pytest.approx(1.90)
    assert 1 < one.gain < 1.90
    # Its layer holds about 1/61 of the model and the head is read once more for each drafted token.
    assert 1 / 61 < one.draft_s / one.plain_s < 0.15
    assert found.gain(3).draft_s == pytest.approx(3 * one.draft_s)


def test_a_draft_of_eagle_is_one_layer_and_a_head() -> None:
    found = eagle_arch(LLAMA_8B)
    assert [layer.count for layer in found.layers] == [1]
    assert found.layers[0].mixer == Attention(32, 8, 128, 128)
    # fc: 3 x 4096 x 4096; Q, K and V of a second hidden size: 4096 x (4096 + 1024 + 1024).
    assert found.residual_elements == 3 * 4096**2 + 4096 * 6144
    narrow, whole = speculator("eagle3", vocabulary=32_000).gain(3), speculator("eagle3").gain(3)
    assert narrow.draft_s < whole.draft_s
    assert narrow.gain > whole.gain


@pytest.mark.parametrize("method", sorted(METHODS))
def test_every_method_at_every_depth(method: str) -> None:
    arch = deepseek(indexer=False)
    plan = Plan(8, EIGHT, batch=8)
    found = Speculator.of(arch, H200, choose_precision(arch), plan, Draft(method, model=LLAMA_8B), 0.8)
    drafting = [gain.draft_s for gain in found.depths()]
    assert drafting[0] == 0
    assert drafting == sorted(drafting)
    assert (drafting[-1] == 0) == (method == "ngram")
    # The config has one layer of multi-token prediction; deeper drafts of it are only made when asked for.
    assert len(drafting) == 1 + (1 if method == "mtp" else DEEPEST)
    assert found.best().depth < len(drafting)
    if method == "mtp":
        assert found.gain(4).draft_s == pytest.approx(4 * drafting[1])  # one pass after another


def test_a_model_with_states_drafts_and_verifies() -> None:
    arch = stateful()
    found = Speculator.of(arch, H100, choose_precision(arch), Plan(), Draft("eagle3"), 0.8)
    assert found.gain(2).gain > 1


def test_with_published_kernels_the_gain_is_that_of_what_is_reachable() -> None:
    found, floor = speculator(hardware=H100), speculator()
    assert (found.gain(4).basis, floor.gain(4).basis) == ("reachable", "expected floor")
    for batch in (1, 64, 256):
        result = predict(LLAMA_70B, H100, choose_precision(LLAMA_70B), Plan(8, EIGHT, batch, 2048, query_tokens=5))
        assert found.gain(4, batch).verify_s == result.reachable_s
        assert floor.gain(4, batch).verify_s == result.expected_s
    # Latencies that a step pays once, however many rows it computes, make a sparse model's verify step cheaper.
    arch, plan = sparse(), Plan(context_tokens=0)
    real, ideal = (
        Speculator.of(arch, hardware, choose_precision(arch), plan, Draft("ngram"), 0.8).gain(1)
        for hardware in (H100, BARE)
    )
    assert real.gain > ideal.gain


def test_a_draft_that_cannot_be_divided_runs_on_one_device() -> None:
    small = replace(LLAMA_8B, layers=(replace(LLAMA_8B.layers[0], mixer=Attention(14, 2, 64, 64)),))
    alone = speculator("model", model=small).gain(1).draft_s
    assert alone == speculator("model", model=small, tensor=1).gain(1).draft_s
    assert alone > speculator("model", model=small, tensor=2).gain(1).draft_s


def test_through_a_pipeline_each_micro_batch_drafts() -> None:
    plan = Plan(8, Deployment(tensor=2, pipeline=4), batch=64)
    found = Speculator.of(LLAMA_70B, H100, choose_precision(LLAMA_70B), plan, Draft("eagle3"), 0.8)
    parts = found.target.time(replace(plan, query_tokens=3)).micro_batches
    assert parts > 1
    one = replace(plan, devices=2, deployment=Deployment(tensor=2), batch=-(-64 // parts))
    alone = Speculator.of(LLAMA_70B, H100, choose_precision(LLAMA_70B), one, Draft("eagle3"), 0.8)
    assert found.gain(2).draft_s == pytest.approx(parts * alone.gain(2).draft_s)


@settings(max_examples=30, deadline=None)
@given(
    st.integers(1, 2000),
    st.integers(0, 100_000),
    st.integers(0, 16),
    st.floats(0, 1),
    st.sampled_from(["ngram", "eagle3"]),
)
def test_a_gain_never_exceeds_the_expected_tokens(
    batch: int, context: int, depth: int, acceptance: float, method: str
) -> None:
    found = speculator(method, acceptance).gain(depth, batch, context)
    assert 0 < found.gain <= found.expected_tokens * (1 + 1e-9)
    assert found.verify_s >= found.plain_s * (1 - 1e-9)
    if depth == 0:
        assert found.gain == pytest.approx(1)


@pytest.mark.parametrize(
    ("method", "acceptance", "plan", "message"),
    [
        ("telepathy", 0.8, Plan(), "--spec-method must be one of ngram, model"),
        ("model", 0.8, Plan(), "needs the draft model"),
        ("mtp", 0.8, Plan(), "has no layers of multi-token prediction"),
        ("ngram", 1.1, Plan(), "--acceptance must be a ratio from 0 to 1"),
        ("ngram", -0.1, Plan(), "--acceptance must be a ratio from 0 to 1"),
        ("ngram", float("nan"), Plan(), "--acceptance must be a ratio from 0 to 1"),
        ("ngram", (0.5, 0.6), Plan(), "rises from 0.5 to 0.6"),
        ("ngram", 0.8, Plan(phase="prefill"), "decode only"),
        ("ngram", 0.8, Plan(batch=0), "--batch"),
    ],
)
def test_what_makes_no_sense(method: str, acceptance: Any, plan: Plan, message: str) -> None:
    with pytest.raises(RooflensError, match=message):
        Speculator.of(LLAMA_8B, H100, choose_precision(LLAMA_8B), plan, Draft(method), acceptance).gain(1)


def test_a_depth_of_which_the_acceptance_is_not_known() -> None:
    with pytest.raises(RooflensError, match="acceptance of 2 positions is given, not of 3"):
        speculator(acceptance=(0.5, 0.2)).gain(3)
    with pytest.raises(RooflensError, match="0 or more"):
        expected_tokens(0.5, -1)


def test_experts_measured_in_one_step_say_nothing_of_a_verify_step() -> None:
    arch = find_model("qwen3-30b-a3b")
    with pytest.raises(RooflensError, match="a verify step touches others"):
        Speculator.of(arch, BARE, choose_precision(arch), Plan(distinct_experts=9.0), Draft("ngram"), 0.8)
