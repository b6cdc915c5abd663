"""A search over shipped models, devices and deployments for a bound that moves the wrong way."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache

import pytest

from rooflens.analyzer.arch import find_model
from rooflens.analyzer.hardware import find_hardware
from rooflens.analyzer.plan import Plan
from rooflens.analyzer.precision import choose_precision
from rooflens.analyzer.predict import Prediction, predict
from rooflens.analyzer.sides import batch_of, micro_batch
from rooflens.arch_records import Attention, DenseMLP, Deployment, Layer, ModelArch
from rooflens.model_records import HardwareSpec
from rooflens.records import RooflensError

# Of every kind of layer one or two; of memory, arithmetic, cache and link the fast and the slow.
MODELS = (
    "meta-llama-3-8b", "mistral-small-24b-instruct-2501", "deepseek-v3", "deepseek-v4-pro", "glm-4.5", "gpt-oss-120b",
    "qwen3.5-122b-a10b", "gemma-4-26b-a4b",
)  # fmt: skip
DEVICES = ("b200-sxm", "h200-sxm-141", "a100-sxm4-80", "rtx-5090", "rtx-pro-6000", "t4", "a10", "tpu-v5p")
SEEDS = range(6)
PLANS = 8
SECONDS = ("floor_s", "expected_s", "reachable_s")
SLACK = 1e-9


@cache
def arch_of(name: str) -> ModelArch:
    return find_model(name)


def made(chance: random.Random) -> tuple[ModelArch, HardwareSpec, str, Plan]:
    """A model in its weights' format on a device, and a plan for it that may make no sense for the model."""
    tensor, pipeline, data = chance.choice([1, 1, 2, 8]), chance.choice([1, 2, 2, 4]), chance.choice([1, 1, 4])
    spread = Deployment(tensor=tensor, pipeline=pipeline, data=data, expert=chance.random() < 0.5)
    context = int(2 ** chance.uniform(0, 17))
    plan = Plan(
        tensor * pipeline * data * chance.choice([1, 2]), spread, int(2 ** chance.uniform(0, 11)), context,
        block_tokens=chance.choice([None, 16]), graph_sizes=chance.choice([(), (1, 2, 4, 8, 16, 64, 256)]),
    )  # fmt: skip
    if chance.random() < 0.3:
        cached = chance.randrange(context)
        plan = replace(plan, phase="prefill", cached_tokens=cached, query_tokens=chance.randint(1, context - cached))
    elif chance.random() < 0.4:
        plan = replace(plan, query_tokens=chance.choice([2, 4, 8]))
    if chance.random() < 0.3:
        plan = replace(plan, shared_prefix_tokens=chance.randint(0, plan.read_tokens))
    if chance.random() < 0.2:
        plan = replace(plan, lora_rank=16, lora_adapters=chance.choice([1, 4, 100]))
    weights = chance.choice(["bf16", "fp8", "int4"])
    return arch_of(chance.choice(MODELS)), find_hardware(chance.choice(DEVICES)), weights, plan


def longer(plan: Plan, chance: random.Random) -> Plan:
    """The same with more of everything that a step may have more of: sequences, context or rows."""
    more = chance.choice([1, 7, 1000])
    which = chance.choice(["batch", "context", "rows"])
    if which == "batch":
        return replace(plan, batch=plan.batch + more)
    if which == "context":
        cached = plan.cached_tokens + more if plan.prefill else 0
        return replace(plan, context_tokens=plan.context_tokens + more, cached_tokens=cached)
    context = plan.context_tokens + more * plan.prefill
    return replace(plan, context_tokens=context, query_tokens=plan.computed_tokens + more)


def burdened(plan: Plan) -> Iterator[Plan]:
    """The same with less to share, adapters, blocks or padding."""
    yield replace(plan, shared_prefix_tokens=plan.shared_prefix_tokens // 2)
    yield plan if plan.lora_rank else replace(plan, lora_rank=8, lora_adapters=2)
    yield plan if plan.block_tokens else replace(plan, block_tokens=16)
    yield plan if plan.graph_sizes else replace(plan, graph_sizes=(8, 16, 128))


def times(rates: dict[str, float], factor: float) -> dict[str, float]:
    return {name: factor * rate for name, rate in rates.items()}


def better(hardware: HardwareSpec) -> Iterator[HardwareSpec]:
    """More bandwidth, faster arithmetic, a larger last cache."""
    yield replace(hardware, memory_bandwidth_bytes_per_s=1.5 * hardware.memory_bandwidth_bytes_per_s)
    yield replace(
        hardware,
        ceiling_flops_per_s=times(dict(hardware.ceiling_flops_per_s), 1.5),
        peak_flops_per_s=times(dict(hardware.peak_flops_per_s), 1.5),
    )


def not_less(more: Prediction, less: Prediction, names: tuple[str, ...] = SECONDS) -> None:
    for name in names:
        large, small = getattr(more, name), getattr(less, name)
        assert large is None or large >= small * (1 - SLACK), (name, small, large)


def spread_further(plan: Plan) -> Iterator[Plan]:
    """The same batch over twice the devices of each layer, or twice the stages."""
    spread, twice = plan.deployment, 2 * plan.devices
    yield replace(plan, devices=twice, deployment=replace(spread, tensor=2 * spread.tensor))
    yield replace(plan, devices=twice, deployment=replace(spread, pipeline=2 * spread.pipeline))


def check(try_: Callable[[HardwareSpec, Plan], Prediction], hardware: HardwareSpec, plan: Plan, more: Plan) -> None:
    """Every relation around one point; RooflensError where the model cannot be spread so."""
    found = try_(hardware, plan)
    assert 0 < found.floor_s <= found.expected_s
    assert found.reachable_s is None or found.expected_s <= found.reachable_s
    not_less(try_(hardware, more), found)
    for heavier in burdened(plan):
        not_less(try_(hardware, heavier), found)
    for faster in better(hardware):
        not_less(found, try_(faster, plan))
    smaller = replace(hardware, cache_bytes=(hardware.cache_bytes or 0) // 2)
    not_less(try_(smaller, plan), found)
    not_less(found, try_(hardware, replace(plan, devices=2 * plan.devices)))
    for wider in spread_further(plan):
        try:
            over = try_(hardware, wider)
        except RooflensError:
            continue
        # What more devices send each other may take longer than what each is spared; nothing else may.
        assert over.floor_s <= found.floor_s * (1 + SLACK) or over.bound == "link"


@pytest.mark.parametrize("seed", SEEDS)
def test_no_bound_moves_the_wrong_way(seed: int) -> None:
    chance, checked = random.Random(seed), 0
    while checked < PLANS:
        arch, hardware, weights, plan = made(chance)
        more = longer(plan, chance)
        precision = choose_precision(arch, weights)
        try:
            check(lambda on, at, a=arch, p=precision: predict(a, on, p, at), hardware, plan, more)  # type: ignore[misc]
        except RooflensError:
            continue
        except AssertionError as wrong:
            raise AssertionError(f"{arch.name} {hardware.id} {weights} {plan}: {wrong}") from wrong
        checked += 1


# What the search found once, by one number of micro-batches for floor, expected and reachable.
FOUND = (
    ("deepseek-v3", "b200-sxm", "bf16", Plan(2, Deployment(pipeline=2), 32, 1)),
    ("deepseek-v3", "h200-sxm-141", "fp8", Plan(16, Deployment(tensor=8, pipeline=2, expert=True), 64, 4096)),
    ("gpt-oss-120b", "a10", "int4", Plan(4, Deployment(pipeline=4, expert=True), 1429, 62)),
    ("gemma-4-26b-a4b", "a100-sxm4-80", "q4_k", Plan(16, Deployment(pipeline=4, data=4), 96, 225)),
    ("deepseek-v3", "rtx-5090", "fp8", Plan(2, Deployment(pipeline=2), 2, 124, "prefill")),
)


@pytest.mark.parametrize(("model", "device", "weights", "plan"), FOUND)
def test_what_was_found(model: str, device: str, weights: str, plan: Plan) -> None:
    arch, hardware = arch_of(model), find_hardware(device)
    precision = choose_precision(arch, weights)
    for more in (replace(plan, batch=plan.batch + 1), replace(plan, context_tokens=plan.context_tokens + 10)):
        check(lambda on, at: predict(arch, on, precision, at), hardware, plan, more)


@pytest.mark.parametrize(("adapters", "micro_batches"), [(1, 4), (3, 4), (8, 4), (32, 2)])
def test_micro_batches_share_the_adapters(adapters: int, micro_batches: int) -> None:
    batch = batch_of(arch_of("meta-llama-3-8b"), Plan(batch=32, lora_rank=8, lora_adapters=adapters), 32)
    part = micro_batch(batch, micro_batches)
    # 8 adapters in four parts sorted by adapter: two in each; a part reads one at least.
    assert part.lora_adapters == max(1, adapters / micro_batches)
    assert micro_batch(replace(batch, lora_adapters=0), micro_batches).lora_adapters == 0


@pytest.mark.parametrize("context", [1, 2, 100_000])
def test_a_window_of_one_reads_its_own_token_alone(context: int) -> None:
    # 10 layers of 8 heads x 2 x 64 bf16 elements: the token that was just written, however much was before.
    window = Attention(8, 8, 64, 64, window_tokens=1)
    arch = ModelArch("alone", 512, 1000, False, (Layer(10, window, DenseMLP(512, gated=True)),))
    found = predict(arch, find_hardware("h200-sxm-141"), choose_precision(arch), Plan(context_tokens=context))
    assert found.kv_read_bytes == found.kv_write_bytes == found.sequence_bytes == 10 * 8 * 2 * 64 * 2
