"""What a prediction sums over a deployment: groups add up to the whole, and every ratio is what it says it is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from made_archs import deepseek, sparse, stateful, windowed

from rooflens.analyzer.arch import find_model
from rooflens.analyzer.hardware import find_hardware
from rooflens.analyzer.precision import choose_precision
from rooflens.analyzer.predict import (
    Plan,
    Prediction,
    predict,
    predict_each,
    ridge_announced_flop_per_byte,
    ridge_flop_per_byte,
)
from rooflens.arch_records import Deployment, ModelArch
from rooflens.model_records import HardwareSpec

LLAMA_8B = find_model("meta-llama-3-8b")
H100 = find_hardware("h100-sxm5-80")
PLANS = {
    "one": Plan(batch=3, context_tokens=500),
    "tensor": Plan(8, Deployment(tensor=8), batch=64, context_tokens=3000),
    "replicas": Plan(8, Deployment(tensor=2), batch=10, context_tokens=700),
    "ranks": Plan(8, Deployment(tensor=2, data=4), batch=10, context_tokens=700),
    "stages": Plan(4, Deployment(tensor=2, pipeline=2), batch=200, context_tokens=700),
    "stages and replicas": Plan(8, Deployment(tensor=2, pipeline=2), batch=2, context_tokens=700),
    "prompts": Plan(2, Deployment(tensor=2), batch=2, context_tokens=5000, phase="prefill", cached_tokens=1000),
    "adapters": Plan(batch=4, lora_rank=16, lora_adapters=3),
}
ARCHS = {"dense": LLAMA_8B, "sparse": sparse(), "latent": deepseek(), "windowed": windowed(), "stateful": stateful()}


def found(arch: ModelArch, plan: Plan, hardware: HardwareSpec = H100) -> Prediction:
    return predict(arch, hardware, choose_precision(arch), plan)


@pytest.mark.parametrize("arch", ARCHS.values(), ids=ARCHS)
@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_groups_add_up(arch: ModelArch, plan: Plan) -> None:
    result = found(arch, plan)
    assert sum(each.flops for each in result.groups) == pytest.approx(result.flops)
    moved = sum(each.bytes for each in result.groups)
    tables = moved - result.weight_read_bytes - result.kv_read_bytes - result.kv_write_bytes - result.state_bytes
    # What is left are rows gathered from the embedding, one for each token, at most once on each device of a tensor.
    rows = plan.batch * plan.computed_tokens * arch.hidden_size * 2
    assert -1 <= tables <= rows * plan.deployment.tensor + 1e-9 * moved
    # Operator after operator, and then what each sends.
    assert sum(each.seconds for each in result.groups) == pytest.approx(result.serial_floor_s + result.link_s)
    assert len({each.group for each in result.groups}) == len(result.groups)


@pytest.mark.parametrize("arch", ARCHS.values(), ids=ARCHS)
@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_ratios_are_of_what_all_devices_could_do(arch: ModelArch, plan: Plan) -> None:
    result = found(arch, plan)
    # All products are 16-bit ones but an indexer's, whose keys are in fp8 at twice the rate.
    at_16_bit = result.flops / (plan.devices * 989.4e12 * result.floor_s)
    if arch.name.startswith("deepseek"):
        assert result.mfu is not None
        assert 0.5 * at_16_bit < result.mfu < at_16_bit * 1.002
    else:
        assert result.mfu == pytest.approx(at_16_bit, rel=2e-3)
    moved = sum(each.bytes for each in result.groups) - result.cached_bytes
    assert result.mbu == pytest.approx(moved / (plan.devices * 3.35e12 * result.floor_s), rel=1e-6)
    assert 0 <= result.cached_bytes <= plan.devices * 50 * 2**20 * result.micro_batches
    tokens = plan.batch * plan.computed_tokens
    assert result.tokens_per_s == pytest.approx(tokens / result.floor_s)
    assert result.flops_per_token == pytest.approx(result.flops / tokens)
    assert result.capacity_bytes == pytest.approx(plan.devices * 0.9 * H100.memory_bytes)
    assert result.kv_capacity_bytes == pytest.approx(max(0.0, result.capacity_bytes - result.weight_bytes))
    assert result.kv_bytes_per_token == pytest.approx(result.sequence_bytes / plan.context_tokens)
    assert result.reachable_s is not None
    assert result.reachable_s >= result.floor_s
    assert result.expected_s >= result.floor_s == max(result.memory_s, result.compute_s or 0.0, result.floor_s)


def test_replicas_do_as_much_again() -> None:
    one = found(LLAMA_8B, Plan(2, Deployment(tensor=2), batch=5, context_tokens=700))
    four = found(LLAMA_8B, Plan(8, Deployment(tensor=2), batch=20, context_tokens=700))
    assert four.floor_s == pytest.approx(one.floor_s)
    for name in (
        "weight_bytes",
        "weight_read_bytes",
        "kv_bytes",
        "kv_read_bytes",
        "kv_write_bytes",
        "flops",
        "max_batch",
    ):
        assert getattr(four, name) == pytest.approx(4 * getattr(one, name)), name
    assert (four.sequence_bytes, four.max_context_tokens) == (one.sequence_bytes, one.max_context_tokens)
    # 2 x 32 layers x 8 heads x 128 x 2 bytes a token.
    assert one.sequence_bytes == 700 * 131_072
    assert one.kv_bytes == 5 * one.sequence_bytes
    assert one.kv_write_bytes == 5 * 131_072
    assert found(LLAMA_8B, Plan(context_tokens=0)).kv_bytes_per_token == 131_072


def test_a_rank_that_is_idle_at_times_does_no_work_then() -> None:
    # Three sequences on four replicas: the busiest has one, all together three.
    result = found(LLAMA_8B, Plan(4, batch=3, context_tokens=700))
    one = found(LLAMA_8B, Plan(1, batch=1, context_tokens=700))
    assert result.floor_s == one.floor_s
    assert result.flops == pytest.approx(3 * one.flops)
    assert result.weight_read_bytes == pytest.approx(3 * one.weight_read_bytes)
    assert result.kv_bytes == pytest.approx(3 * one.kv_bytes)


def test_padding_of_each_rank_and_micro_batch() -> None:
    sizes = {"graph_sizes": (1, 2, 4, 8)}
    assert found(LLAMA_8B, Plan(batch=5, **sizes)).padded_tokens == 8  # type: ignore[arg-type]
    assert found(LLAMA_8B, Plan(3, batch=9, **sizes)).padded_tokens == 12  # type: ignore[arg-type]
    assert found(LLAMA_8B, Plan(batch=9, **sizes)).padded_tokens == 9  # type: ignore[arg-type]
    staged: dict[str, Any] = {"devices": 2, "deployment": Deployment(pipeline=2), "context_tokens": 4000}
    both = found(LLAMA_8B, Plan(batch=300, graph_sizes=(160, 320), **staged))
    assert (both.micro_batches, both.padded_tokens) == (2, 320)


def test_a_bound_that_the_last_cache_may_hide() -> None:
    # 16 GB are read of which a cache of 50 MB can keep 0.3 %: memory it is.
    plain = found(LLAMA_8B, Plan())
    assert (plain.bound, plain.bound_known) == ("memory", True)
    assert plain.cached_bytes == 50 * 2**20
    # With a cache for all of it only arithmetic is certain.
    whole = found(LLAMA_8B, Plan(), replace(H100, cache_bytes=1 << 40))
    assert (whole.bound, whole.bound_known, whole.memory_s) == ("compute", False, 0.0)
    assert whole.mbu == pytest.approx(0.0)
    # A prompt is bound by arithmetic either way.
    prompt = Plan(batch=8, context_tokens=4000, phase="prefill")
    assert found(LLAMA_8B, prompt, replace(H100, cache_bytes=1 << 40)).bound_known
    # Without a rate there is nothing to be said of arithmetic.
    blind = found(LLAMA_8B, Plan(), replace(H100, peak_flops_per_s={}, ceiling_flops_per_s={}))
    assert (blind.bound, blind.bound_known, blind.compute_s, blind.mfu) == ("memory", False, None, None)
    assert blind.floor_s == plain.floor_s
    nothing = found(LLAMA_8B, Plan(), replace(H100, peak_flops_per_s={}, ceiling_flops_per_s={}, cache_bytes=1 << 40))
    assert (nothing.floor_s, nothing.bound, nothing.bound_known) == (0.0, None, False)
    assert (nothing.tokens_per_s, nothing.mfu, nothing.mbu) == (None, None, None)


def test_what_is_reachable_has_an_origin() -> None:
    assert found(LLAMA_8B, Plan()).reachable_origin == "published"
    measured = found(LLAMA_8B, Plan(), replace(H100, origin="measured"))
    assert (measured.reachable_s, measured.reachable_origin) == (None, None)


def test_ridges_are_of_rates_that_are_stated() -> None:
    made = replace(
        H100, memory_bandwidth_bytes_per_s=2e12, peak_flops_per_s={"bf16": 4e14, "fp8": 8e14},
        ceiling_flops_per_s={"bf16": 4e14, "fp8": 8e14}, announced_flops_per_s={"fp8": 16e14},
    )  # fmt: skip
    assert (ridge_flop_per_byte(made, "bf16"), ridge_flop_per_byte(made, "fp8")) == (200.0, 400.0)
    assert (ridge_announced_flop_per_byte(made, "bf16"), ridge_announced_flop_per_byte(made, "fp8")) == (None, 800.0)
    assert ridge_flop_per_byte(replace(made, peak_flops_per_s={}, ceiling_flops_per_s={}), "bf16") is None


def test_plans_of_one_deployment_are_not_mistaken_for_each_other() -> None:
    plans = (
        Plan(batch=8, lora_rank=8), Plan(batch=8, lora_rank=64), Plan(batch=8, lora_rank=64, lora_adapters=4),
        Plan(batch=8, lora_rank=64, eager=True), Plan(batch=8, context_tokens=9),
    )  # fmt: skip
    precision = choose_precision(LLAMA_8B)
    assert predict_each(LLAMA_8B, H100, precision, plans) == tuple(found(LLAMA_8B, plan) for plan in plans)
