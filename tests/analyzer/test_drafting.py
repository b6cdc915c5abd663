"""Drafts by hand: the models that are made, their passes and devices, and where a made-up step breaks even."""

from __future__ import annotations

from dataclasses import replace

import pytest
from made_archs import deepseek, sparse, stateful

from rooflens.analyzer.arch import find_model
from rooflens.analyzer.drafting import Draft, Drafter, drafter, eagle_arch, mtp_rows, parallel_arch
from rooflens.analyzer.hardware import find_hardware
from rooflens.analyzer.operators import mtp_works
from rooflens.analyzer.plan import LARGEST, Plan
from rooflens.analyzer.precision import choose_precision
from rooflens.analyzer.speculation import LARGEST_BATCH, Speculator
from rooflens.analyzer.step_time import EXPECTED, Compiled
from rooflens.analyzer.work import Work, resident_bytes
from rooflens.arch_records import Attention, DenseMLP, Deployment, LatentAttention, Layer, MixtureOfExperts
from rooflens.model_records import HardwareSpec
from rooflens.records import RooflensError

LLAMA_8B = find_model("meta-llama-3-8b")
H100 = replace(find_hardware("h100-sxm5-80"), origin="measured")  # durations are those of the floor
# 1 GB/s, 1 Tflop/s: nothing of it was published, so that a step takes what its floor does.
MADE = HardwareSpec(
    "made", "made", "nobody", 10_000_000, 1e9, {"bf16": 1e12}, {"bf16": 1e12},
    link_bandwidth_bytes_per_s=1e8, origin="measured",
)  # fmt: skip


def compiled(plan: Plan, weight_bytes: float, flops_per_token: float, kept_bytes: float = 0.0) -> Compiled:
    flops = {"query_tokens": flops_per_token}
    row = Work("made", "mlp", ("bf16",), 1.0, flops, {"passes": weight_bytes}, stored_bytes={"requests": kept_bytes})
    return Compiled.staged(LLAMA_8B, MADE, ((row,),), plan)


def speculator(plan: Plan, acceptance: float, flops_per_token: float = 1e9, kept_bytes: float = 0.0) -> Speculator:
    """10 ms of reading a step, 1 ms of arithmetic a token, drafts that cost nothing."""
    return Speculator(compiled(plan, 10e6, flops_per_token, kept_bytes), Drafter("ngram", None), plan, acceptance, 4)


def test_gain_of_a_made_up_step() -> None:
    # Plain max(10, B) ms for B tokens, verify max(10, 2 B) ms for 1.5 B.
    found = speculator(Plan(), 0.5)
    for batch, gain in ((1, 1.5), (5, 1.5), (6, 15 / 12), (8, 15 / 16), (10, 0.75), (1000, 0.75)):
        assert found.gain(1, batch).gain == pytest.approx(gain)
    at = found.gain(1, 6)
    assert (at.plain_s, at.verify_s, at.draft_s) == (pytest.approx(10e-3), pytest.approx(12e-3), 0.0)
    assert (at.plain_tokens_per_s, at.tokens_per_s) == (pytest.approx(600), pytest.approx(750))
    assert (at.verify_ratio, at.expected_tokens) == (pytest.approx(1.2), 1.5)
    assert (at.bound, at.plain_bound, at.basis) == ("compute", "memory", EXPECTED)
    assert (at.depth, at.batch, at.context_tokens) == (1, 6, 1024)
    assert (found.gain(1).batch, found.gain(1, 6, 0).context_tokens) == (1, 0)
    assert [one.depth for one in found.depths(6)] == [0, 1, 2, 3, 4]
    # Depths 1 to 4 at batch 1: 1.5, 1.75, 1.875, 1.9375 for the same 10 ms. At 3 the fifth token takes 15 ms.
    assert (found.best(1).depth, found.best(3).depth) == (4, 2)
    assert found.best(1000).depth == 0
    assert [one.batch for one in found.batches(1, (3, 1, 2))] == [3, 1, 2]


def test_break_even_of_a_made_up_step() -> None:
    # 15 / (2 B) is above 1 up to 7 sequences on each rank.
    for plan in (Plan(), Plan(3, Deployment(data=3))):
        even = speculator(plan, 0.5).break_even(1)
        assert even.batch == 7 * plan.ranks
        assert even.reason == f"at batch {even.batch + 1} it gains nothing: a verify step is bound by compute"
    # Two drafted tokens, 1.75 for 3: 17.5 / (3 B) is above 1 up to 5.
    assert speculator(Plan(), 0.5).break_even(2).batch == 5


def test_break_even_where_every_batch_gains_or_none() -> None:
    free = speculator(Plan(), 0.5, flops_per_token=1.0).break_even(1)
    assert free.batch is None
    assert free.reason == f"always: at batch {LARGEST_BATCH:,}, the largest looked at, the gain is 1.5"
    # 2,000,000 bytes each of 9,000,000: four fit, and all of them gain.
    few = speculator(Plan(), 0.5, kept_bytes=2e6).break_even(1)
    assert few.reason == "always: at batch 4, the largest that fits, the gain is 1.5"
    six = speculator(Plan(), 0.5, kept_bytes=1.5e6).break_even(1)
    assert six.reason == "always: at batch 6, the largest that fits, the gain is 1.25"
    # Where not one fits, all are looked at.
    assert speculator(Plan(), 0.5, kept_bytes=1e9).break_even(1).batch == 7
    # Nothing accepted: one token in as many seconds is no gain.
    never = speculator(Plan(), 0.0).break_even(1)
    assert (never.batch, never.reason) == (None, "never: at best, at batch 1, the gain is 1")


def test_a_step_that_may_take_no_time_has_no_gain() -> None:
    plan = Plan()
    found = Speculator(compiled(plan, 0.0, 0.0), Drafter("ngram", None), plan, 0.5, 4)
    with pytest.raises(RooflensError, match="last-level cache"):
        found.gain(1)


def test_depths_end_where_the_acceptance_does() -> None:
    precision = choose_precision(LLAMA_8B)
    for acceptance, deepest in ((0.8, 16), ((0.9,) * 3, 3), ((0.9,) * 20, 16)):
        found = Speculator.of(LLAMA_8B, H100, precision, Plan(), Draft("ngram"), acceptance)
        assert len(found.depths()) == deepest + 1


def test_passes_of_a_draft() -> None:
    # 2 ms a pass and 1 ms a token: 8 sequences 8 ms a pass, in three micro-batches of 3, 3 and 2 three times 3 ms.
    plan = Plan(batch=8)
    one = compiled(plan, 2e6, 1e9)
    assert Drafter("model", one).seconds(plan, 1, 1) == pytest.approx(8e-3)
    assert Drafter("model", one).seconds(plan, 4, 1) == pytest.approx(32e-3)
    assert Drafter("model", one).seconds(plan, 4, 3) == pytest.approx(4 * 9e-3)
    assert Drafter("model", one).seconds(plan, 4, 100) == pytest.approx(4 * 100 * 2e-3)
    assert Drafter("model", one).seconds(replace(plan, query_tokens=5), 1, 1) == pytest.approx(8e-3)
    assert Drafter("model", one).seconds(plan, 0, 1) == 0.0
    assert Drafter("ngram", None).seconds(plan, 4, 1) == 0.0
    # All at once, each depth by a model of its own.
    several = {depth: compiled(plan, 2e6, depth * 1e9) for depth in (1, 2)}
    assert Drafter("parallel", several).seconds(plan, 1, 1) == pytest.approx(8e-3)
    assert Drafter("parallel", several).seconds(plan, 2, 1) == pytest.approx(16e-3)


def test_a_draft_serves_every_rank() -> None:
    # Eight sequences on two ranks: four each. On two replicas of one rank the same.
    for plan in (Plan(2, Deployment(data=2), batch=8), Plan(2, batch=8)):
        assert Drafter("model", compiled(plan, 2e6, 1e9)).seconds(plan, 1, 1) == pytest.approx(4e-3)


def test_heads_that_draft_at_once() -> None:
    found = parallel_arch(LLAMA_8B, 3)
    assert found.layers == (Layer(1, None, None),)
    assert (found.residual_elements, found.vocab_size) == (3 * 4096**2, 3 * 128_256)
    assert (found.hidden_size, found.tied_head, found.activation_format) == (4096, False, LLAMA_8B.activation_format)


def test_the_layer_of_a_draft_follows_the_model() -> None:
    # Latent attention without its indexer; the widest dense layer of DeepSeek-V3.
    latent = eagle_arch(deepseek())
    assert latent.layers == (Layer(1, LatentAttention(128, 1536, 512, 128, 64, 128), DenseMLP(18_432, gated=True)),)
    assert latent.residual_elements == 3 * 7168**2
    # Eight experts of 768 a token, and those that are shared.
    assert eagle_arch(sparse()).layers[0].mlp == DenseMLP(8 * 768, gated=True)
    shared = MixtureOfExperts(64, 6, 1000, gated=True, shared_intermediate_size=500)
    wide = replace(sparse(), layers=(replace(sparse().layers[0], mlp=shared),))
    assert eagle_arch(wide).layers[0].mlp == DenseMLP(6500, gated=True)
    widths = tuple(Layer(1, sparse().layers[0].mixer, DenseMLP(size, gated=False)) for size in (1000, 3000, 2000))
    assert eagle_arch(replace(sparse(), layers=widths)).layers[0].mlp == DenseMLP(3000, gated=True)
    bare = replace(sparse(), layers=(Layer(1, Attention(8, 2, 64, 32, window_tokens=100), None),))
    found = eagle_arch(bare, 1000)
    assert found.layers == (Layer(1, Attention(8, 2, 64, 32), DenseMLP(4 * 2048, gated=True)),)
    # Q and K of a second hidden size, 10 heads of 64, and V, 2 of 32.
    assert found.residual_elements == 3 * 2048**2 + 2048 * (10 * 64 + 2 * 32)
    assert (found.vocab_size, found.tied_head) == (1000, False)
    with pytest.raises(RooflensError, match="no attention"):
        eagle_arch(replace(stateful(), layers=stateful().layers[:1]))


def test_of_several_layers_of_prediction_the_first_drafts() -> None:
    arch, alone = deepseek(), Deployment()
    precision = choose_precision(arch)
    several = replace(arch, mtp=(replace(arch.mtp[0], count=2), arch.mtp[0]), mtp_elements=3 * arch.mtp_elements)
    assert mtp_rows(several, precision, alone) == mtp_rows(arch, precision, alone) == mtp_works(arch, precision, alone)


def test_devices_and_formats_of_a_draft() -> None:
    precision = choose_precision(LLAMA_8B, "fp8", "fp8")
    plan = Plan(8, Deployment(tensor=4, pipeline=2, context=2), lora_rank=8)
    target = Compiled.of(LLAMA_8B, H100, precision, plan)

    def made(**draft: object) -> Compiled:
        found = drafter(Draft("model", LLAMA_8B, **draft), target, precision, plan, 4).compiled  # type: ignore[arg-type]
        assert isinstance(found, Compiled)
        return found

    assert made().deployment == Deployment(tensor=4, context=2)
    assert made(tensor=2).deployment == Deployment(tensor=2)
    # 8.03e9 weights of 16 bits over four devices, whatever the model's are in, and a cache in the model's format.
    assert resident_bytes(made().whole) == pytest.approx(2 * 8.03e9 / 4, rel=0.001)
    assert not any("lora" in row.operator for row in made().whole)
    per_token = sum(row.kv_write_bytes.get("query_tokens", 0.0) for row in made(tensor=1).whole)
    assert per_token == 32 * 2 * 8 * 128
    assert resident_bytes(made(tensor=1, precision=precision).whole) == pytest.approx(9.1e9, rel=0.01)
    parallel = drafter(Draft("parallel"), target, precision, plan, 3).compiled
    assert isinstance(parallel, dict)
    assert list(parallel) == [1, 2, 3]
    assert LARGEST_BATCH < LARGEST
