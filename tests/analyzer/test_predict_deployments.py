"""Planned deployments of every kind: pipelines, data and expert parallelism, chunks, hits, prefixes, adapters."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_archs import deepseek, sparse, stateful, windowed

from rooflens.analyzer.arch import find_model
from rooflens.analyzer.hardware import find_hardware
from rooflens.analyzer.precision import choose_precision
from rooflens.analyzer.predict import Plan, Prediction, devices_needed, predict, predict_each
from rooflens.arch_records import CrossAttention, Deployment, ModelArch
from rooflens.records import RooflensError

LLAMA_70B, LLAMA_8B = find_model("meta-llama-3-70b"), find_model("meta-llama-3-8b")
H100, H200 = find_hardware("h100-sxm5-80"), find_hardware("h200-sxm-141")
KINDS: dict[str, ModelArch] = {
    "dense": LLAMA_8B,
    "experts": sparse(),
    "latent": deepseek(indexer=False),
    "chosen": deepseek(),
    "windows": windowed(),
    "states": stateful(),
}


def found(arch: ModelArch, devices: int = 1, spread: Deployment | None = None, **plan: Any) -> Prediction:
    deployment = spread or Deployment(tensor=devices)
    return predict(arch, H200, choose_precision(arch), Plan(devices, deployment, **plan))


def test_one_sequence_waits_for_every_stage() -> None:
    # Two stages of 40 layers, half the devices at work at a time: 139 GB at 4 x 3.35 TB/s, as without the pipeline.
    plan = Plan(8, Deployment(tensor=4, pipeline=2))
    staged = predict(LLAMA_70B, H100, choose_precision(LLAMA_70B), plan)
    four = predict(LLAMA_70B, H100, choose_precision(LLAMA_70B), Plan(4, Deployment(tensor=4)))
    cache_s = 50 * 2**20 / 3.35e12  # the second device's last cache may hold as much again
    assert staged.floor_s == pytest.approx(four.floor_s - cache_s, rel=1e-4)
    assert staged.micro_batches == 1
    assert staged.mbu == pytest.approx(0.5, rel=1e-3)
    assert staged.weight_bytes == four.weight_bytes
    assert staged.flops == four.flops


def test_many_sequences_keep_every_stage_busy() -> None:
    # 64 sequences in two halves: each stage reads its 40 layers twice a step.
    plan = Plan(8, Deployment(tensor=4, pipeline=2), batch=64)
    staged = predict(LLAMA_70B, H100, choose_precision(LLAMA_70B), plan)
    one = predict(LLAMA_70B, H100, choose_precision(LLAMA_70B), replace(plan, deployment=Deployment(tensor=8)))
    assert staged.micro_batches == 2
    assert staged.weight_read_bytes == pytest.approx(2 * one.weight_read_bytes)
    assert staged.kv_read_bytes == pytest.approx(one.kv_read_bytes)
    assert staged.mbu is not None
    assert staged.mbu > 0.98
    assert staged.floor_s > one.floor_s


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(sorted(KINDS)), st.sampled_from([1, 2, 3, 4, 6]), st.integers(1, 100), st.integers(0, 20_000))
def test_a_pipeline_is_never_better_than_its_devices_together(name: str, stages: int, batch: int, context: int) -> None:
    arch = KINDS[name]
    result = found(arch, stages, Deployment(pipeline=stages), batch=batch, context_tokens=context)
    assert result.floor_s > 0
    assert 0 < (result.mbu or 0) <= 1 + 1e-9
    assert (result.mfu or 0) <= 1.1  # of the datasheet's peak, which the highest clock exceeds
    assert result.expected_s >= result.floor_s
    assert (result.reachable_s or 0) >= result.floor_s
    alone = found(arch, 1, batch=batch, context_tokens=context)
    assert result.floor_s >= alone.floor_s / stages * (1 - 1e-3) - stages * H200.cache_bytes / 4.8e12  # type: ignore[operator]
    assert sum(g.seconds for g in result.groups) == pytest.approx(result.serial_floor_s + result.link_s)
    assert sum(g.flops for g in result.groups) == pytest.approx(result.flops)


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(sorted(KINDS)), st.integers(1, 6000), st.integers(1, 6000), st.integers(1, 8))
def test_chunks_of_a_prefill_add_up_to_the_whole(name: str, prompt: int, chunk: int, batch: int) -> None:
    arch = KINDS[name]
    whole = found(arch, context_tokens=prompt, phase="prefill", batch=batch)
    size = max(chunk, prompt // 20 + 1)  # at most 20 chunks
    chunks = [
        found(
            arch,
            context_tokens=prompt,
            phase="prefill",
            batch=batch,
            cached_tokens=start,
            query_tokens=min(size, prompt - start),
        )
        for start in range(0, prompt, size)
    ]
    assert sum(part.flops for part in chunks) == pytest.approx(whole.flops)
    assert sum(part.kv_write_bytes for part in chunks) == pytest.approx(whole.kv_write_bytes)
    assert sum(part.floor_s for part in chunks) >= whole.floor_s * (1 - 1e-9)


def test_hits_are_not_charged() -> None:
    # Of 8,192 tokens 6,144 are in the cache: 2,048 are computed, each against what is before it.
    whole = found(LLAMA_8B, context_tokens=8192, phase="prefill")
    hit = found(LLAMA_8B, context_tokens=8192, phase="prefill", cached_tokens=6144)
    first = found(LLAMA_8B, context_tokens=6144, phase="prefill")
    head = 2 * 128_256 * 4096
    assert hit.flops == whole.flops - (first.flops - head)
    assert hit.kv_read_bytes == 6144 * hit.kv_bytes_per_token
    assert hit.kv_write_bytes == 2048 * hit.kv_bytes_per_token
    assert hit.kv_bytes == whole.kv_bytes


def test_only_the_end_of_a_prompt_samples() -> None:
    chunk = found(LLAMA_8B, context_tokens=4096, phase="prefill", query_tokens=2048)
    assert not [group for group in chunk.groups if group.group == "head" and group.flops]
    assert chunk.weight_read_bytes == 2 * (8_030_261_248 - 2 * 128_256 * 4096)  # neither embedding nor head


def test_a_shared_prefix_is_read_and_kept_once() -> None:
    apart = found(LLAMA_8B, batch=32, context_tokens=4096)
    shared = found(LLAMA_8B, batch=32, context_tokens=4096, shared_prefix_tokens=4000)
    assert apart.kv_read_bytes == 32 * 4096 * 131_072
    assert shared.kv_read_bytes == (32 * 96 + 4000) * 131_072
    assert shared.kv_bytes == shared.kv_read_bytes
    assert shared.flops == apart.flops
    assert shared.max_batch > 10 * apart.max_batch


def test_the_largest_batch_is_the_last_that_fits() -> None:
    for arch in (LLAMA_8B, windowed(), stateful()):
        for shared in (0, 3000):
            most = found(arch, context_tokens=8192, shared_prefix_tokens=shared).max_batch
            assert found(arch, context_tokens=8192, shared_prefix_tokens=shared, batch=most).fits
            assert not found(arch, context_tokens=8192, shared_prefix_tokens=shared, batch=most + 1).fits


def test_the_longest_context_is_the_last_that_fits() -> None:
    for arch in (LLAMA_8B, windowed(), stateful()):
        longest = found(arch, batch=8).max_context_tokens
        assert found(arch, batch=8, context_tokens=longest).fits
        assert not found(arch, batch=8, context_tokens=longest + 1).fits


def test_blocks_are_kept_whole() -> None:
    assert found(LLAMA_8B, context_tokens=1000, block_tokens=16).sequence_bytes == 1008 * 131_072
    assert found(LLAMA_8B, context_tokens=1000).sequence_bytes == 1000 * 131_072


def test_windows_stop_growing() -> None:
    # 52 layers keep 1,024 tokens and 10 keep all; one layer's token has 2 x 16 x 128 x 2 bytes.
    each = 2 * 16 * 128 * 2
    assert found(windowed(), context_tokens=10_000).kv_bytes == each * (52 * 1024 + 10 * 10_000)
    assert found(windowed(), context_tokens=500).kv_bytes == each * 62 * 500
    assert found(windowed(), context_tokens=10_000).kv_read_bytes == each * (52 * 1024 + 10 * 10_000)


def test_states_do_not_grow_and_are_read_and_written() -> None:
    short, long = (found(stateful(), context_tokens=n, batch=3) for n in (1000, 9000))
    assert long.kv_bytes - short.kv_bytes == 3 * 8000 * 12 * 2 * 2 * 256 * 2
    assert short.state_bytes == long.state_bytes
    # Kept once, read and written each step: 36 layers of 32 x 128 x 128 fp32 and 3 x 8,192 16-bit elements.
    assert short.state_bytes == 3 * 2 * 36 * (32 * 128 * 128 * 4 + 3 * 8192 * 2)
    assert short.kv_bytes == 3 * 1000 * 12 * 2 * 2 * 256 * 2 + short.state_bytes / 2


def test_ranks_share_experts_and_not_attention() -> None:
    # 16 ranks with one device each: attention and dense layers 16 times, experts once over all of them.
    arch, count = deepseek(), 16
    one = found(arch, count, Deployment(tensor=count, expert=True), batch=64)
    ranks = found(arch, count, Deployment(data=count, expert=True), batch=64)
    experts = 58 * 256 * 3 * 7168 * 2048 * 2
    assert ranks.weight_bytes == pytest.approx(count * (2 * (ranks.parameters or 0) - experts) + experts)
    assert one.weight_bytes < 1.1 * 2 * (one.parameters or 0)  # but for what tensor parallelism replicates
    # Each rank reads its own sequences' latents, where 16 tensor-parallel devices each read all of them.
    assert ranks.kv_read_bytes == pytest.approx(one.kv_read_bytes / count)
    assert ranks.max_batch > 2 * one.max_batch
    pairs = [next(g.flops for g in r.groups if g.group == "attention") for r in (one, ranks)]
    assert pairs[0] == pytest.approx(pairs[1])


def test_experts_beyond_the_fewest_are_expected_and_no_bound() -> None:
    # 64 tokens of 8 in 128 experts: 128 (1 - (120/128)^64) = 125.9 of each layer where 8 are the fewest.
    result = found(sparse(), batch=64, context_tokens=10)
    layer = 48 * 3 * 2048 * 768 * 2
    assert result.expert_bytes == pytest.approx((125.94 - 8) * layer, rel=1e-3)
    assert result.expected_s - result.floor_s == pytest.approx(result.expert_bytes / 4.8e12)
    assert result.bound == "memory"


def test_parameters_are_the_published_ones() -> None:
    result = found(sparse())
    assert result.parameters == pytest.approx(30.5e9, rel=0.01)
    assert result.active_parameters == pytest.approx(3.3e9, rel=0.03)
    result = found(deepseek(indexer=False), 8)
    assert result.parameters == pytest.approx(671e9, rel=0.01)
    assert result.active_parameters == pytest.approx(37e9, rel=0.02)


def test_flops_of_a_token() -> None:
    # 2 flops for each weight but those of embedding and norms, and 4 x 32 x 128 for each of 32 layers and 1,001 keys.
    result = found(LLAMA_8B, batch=7, context_tokens=1000)
    multiplied = 8_030_261_248 - 128_256 * 4096 - (2 * 32 + 1) * 4096
    assert result.flops_per_token == pytest.approx(2 * multiplied + 4 * 32 * 32 * 128 * 1001)


def test_adapters_are_read_and_multiplied() -> None:
    plain = found(LLAMA_8B, batch=16)
    one, four = (found(LLAMA_8B, batch=16, lora_rank=16, lora_adapters=n) for n in (1, 4))
    assert four.weight_read_bytes - plain.weight_read_bytes == 4 * (one.weight_read_bytes - plain.weight_read_bytes) > 0
    assert one.flops == four.flops > plain.flops
    # No more distinct ones are read than sequences run, and all are kept.
    few = found(LLAMA_8B, batch=2, lora_rank=16, lora_adapters=100)
    two = found(LLAMA_8B, batch=2, lora_rank=16, lora_adapters=2)
    assert few.weight_read_bytes == two.weight_read_bytes
    assert few.weight_bytes > two.weight_bytes


def test_a_batch_is_padded_to_a_graph_where_engines_pad() -> None:
    sizes = (1, 2, 4, 8, 16, 32, 64, 128, 256)
    padded, exact = (found(LLAMA_8B, batch=129, context_tokens=10, graph_sizes=s) for s in (sizes, ()))
    assert (padded.padded_tokens, exact.padded_tokens) == (256, 129)
    assert padded.floor_s == exact.floor_s  # no bound: nothing must be padded
    assert (padded.reachable_s or 0) >= (exact.reachable_s or 0)


def test_launches_outside_of_a_graph_take_longer() -> None:
    graph, eager = (found(LLAMA_8B, eager=value) for value in (False, True))
    assert (eager.reachable_s or 0) > (graph.reachable_s or 0) + 32 * 10e-6
    assert eager.floor_s == graph.floor_s


def test_cross_attention_reads_the_encoder() -> None:
    arch = replace(LLAMA_8B, layers=(replace(LLAMA_8B.layers[0], cross=CrossAttention(32, 8, 128)),))
    without, with_input = (found(arch, batch=2, encoder_tokens=n) for n in (0, 1500))
    assert with_input.kv_read_bytes - without.kv_read_bytes == 2 * 1500 * 32 * 2 * 8 * 128 * 2
    assert with_input.kv_bytes - without.kv_bytes == 2 * 1500 * 32 * 2 * 8 * 128 * 2


def test_the_smallest_deployment_may_be_a_pipeline() -> None:
    # 141 GB of weights need two devices of 77 GB; the narrowest that do so are two in one stage, or one in each of two.
    precision = choose_precision(LLAMA_70B)
    needed = devices_needed(LLAMA_70B, H100, precision, Plan(batch=1))
    assert needed == (2, Deployment(tensor=2))
    staged = devices_needed(LLAMA_70B, H100, precision, Plan(2, Deployment(pipeline=2)))
    assert staged == (2, Deployment(pipeline=2))
    many = devices_needed(LLAMA_70B, H100, precision, Plan(batch=3000, context_tokens=8192))
    assert many is not None
    devices, spread = many
    assert predict(LLAMA_70B, H100, precision, Plan(devices, spread, 3000, 8192)).fits


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"deployment": Deployment(pipeline=0)}, "--pp"),
        ({"deployment": Deployment(data=0)}, "--dp"),
        ({"deployment": Deployment(tensor=2, context=0)}, "--cp"),
        ({"devices": 8, "deployment": Deployment(tensor=8, context=3)}, "--cp 3 does not divide --tp 8"),
        ({"devices": 6, "deployment": Deployment(tensor=2, pipeline=2)}, "not a multiple of --tp 2 x --pp 2"),
        ({"devices": 100, "deployment": Deployment(pipeline=100)}, "more stages than the model's 32 layers"),
        ({"shared_prefix_tokens": 2000}, "the shared prefix must be from 0 to the 1024"),
        ({"cached_tokens": -1}, "the cached tokens must be from 0"),
        ({"phase": "prefill", "cached_tokens": 1024}, "compute from 1"),
        ({"phase": "prefill", "cached_tokens": 1000, "query_tokens": 100}, "more than the prompt's 1024"),
        ({"query_tokens": 0}, "compute from 1"),
        ({"block_tokens": 0}, "tokens of a KV block"),
        ({"graph_sizes": (0, 1)}, "captured graphs"),
        ({"encoder_tokens": -1}, "encoder's tokens"),
        ({"lora_rank": 0}, "--lora"),
        ({"lora_rank": 8, "lora_adapters": 0}, "LoRA adapters"),
        ({"expert_sharing_ratio": 1.5}, "shares with the one before"),
    ],
)
def test_plans_that_make_no_sense(change: dict[str, Any], message: str) -> None:
    with pytest.raises(RooflensError, match=message):
        predict(LLAMA_8B, H100, choose_precision(LLAMA_8B), replace(Plan(), **change))


def test_times_are_finite_at_the_largest_plan() -> None:
    result = found(deepseek(), 8, batch=10**9, context_tokens=10**9)
    assert math.isfinite(result.floor_s)
    assert not result.fits


def test_many_plans_are_each_of_them() -> None:
    plans = [
        Plan(8, Deployment(tensor=tensor), batch=batch, lora_rank=rank)
        for tensor in (4, 8)
        for batch in (1, 100)
        for rank in (None, 16)
    ]
    precision = choose_precision(LLAMA_8B)
    each = predict_each(LLAMA_8B, H100, precision, plans)
    assert list(each) == [predict(LLAMA_8B, H100, precision, plan) for plan in plans]
    assert len({result.floor_s for result in each}) == len(plans)


def test_operators_one_after_another_take_longer_than_all_at_once() -> None:
    for name in sorted(KINDS):
        for phase, batch in (("decode", 1), ("decode", 500), ("prefill", 1)):
            result = found(KINDS[name], batch=batch, phase=phase)
            assert result.serial_floor_s >= result.floor_s


def test_the_slowest_stage_sets_what_is_reachable_of_a_prompt() -> None:
    # 80 layers in 3 stages are 27, 27 and 26 with the head; three times the slowest is at least all of them.
    precision = choose_precision(LLAMA_70B)
    one, three = (
        predict(LLAMA_70B, H200, precision, Plan(n, Deployment(pipeline=n), phase="prefill")).reachable_s or 0
        for n in (1, 3)
    )
    assert one < 3 * three < 1.1 * one


def test_ranks_without_a_link_have_no_roofline() -> None:
    alone = replace(H100, link_bandwidth_bytes_per_s=None)
    with pytest.raises(RooflensError, match="link"):
        predict(sparse(), alone, choose_precision(sparse()), Plan(2, Deployment(data=2)))


def test_measured_experts_are_expected_and_change_no_floor() -> None:
    arch, plan = sparse(), Plan(batch=16)
    precision = choose_precision(arch, "bf16")
    uniform, one, many = (
        predict(arch, H100, precision, replace(plan, distinct_experts=count)) for count in (None, 1.0, 10**6)
    )
    assert uniform.floor_s == one.floor_s == many.floor_s
    assert one.expected_s == one.floor_s <= uniform.expected_s <= many.expected_s
    assert (one.expert_bytes, one.expert_bytes < uniform.expert_bytes < many.expert_bytes) == (0, True)
    assert many.weight_read_bytes + many.expert_bytes <= many.weight_bytes
