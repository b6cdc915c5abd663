"""vLLM's own estimator beside the roofline on one SchedulerOutput: how far each is from a count by hand, and why."""

from __future__ import annotations

import importlib
import math
from dataclasses import asdict, replace
from types import SimpleNamespace
from typing import Any

import pytest
from both_estimators import (
    DECODE,
    DECODE_16,
    DENSE,
    FP8,
    FP8_KV,
    HYBRID,
    MAMBA,
    MIXED,
    MLA,
    MLA_TP8,
    MOE,
    PAIRS,
    VERIFY,
    Both,
    Case,
    Step,
    beside,
    engine_config,
)
from hand_counts import BY_HAND, SUMS, Count

from rooflens.adapters.vllm.info import _state_dtype as state_dtype

pytestmark = [pytest.mark.engine, pytest.mark.usefixtures("hook")]

# vLLM's figure over ours (with the experts of uniform routing): flops, weights read, cache read. The tests below say
# where each of them comes from.
RATIOS = {
    DENSE: {DECODE: (1.000, 1.000, 1.000), MIXED: (1.008, 1.000, 1.004), VERIFY: (0.954, 1.000, 1.001)},
    FP8_KV: {DECODE: (1.000, 1.000, 1.000), MIXED: (1.008, 1.000, 1.020), VERIFY: (0.954, 1.000, 2.002)},
    FP8: {DECODE: (1.000, 0.565, 1.000), MIXED: (1.008, 0.565, 1.004), VERIFY: (0.954, 0.565, 1.001)},
    MOE: {
        DECODE: (0.997, 1.138, 1.000), MIXED: (1.023, 1.000, 1.004), VERIFY: (0.947, 1.000, 1.001),
        DECODE_16: (0.997, 1.518, 1.000),
    },
    MLA: {DECODE: (0.655, 1.544, 1.000), MIXED: (0.977, 0.999, 2.087), VERIFY: (0.645, 1.016, 71.18)},
    MLA_TP8: {DECODE: (0.677, 1.531, 1.000), MIXED: (0.966, 0.997, 1.126), VERIFY: (0.668, 1.014, 8.898)},
    HYBRID: {DECODE: (1.078, 1.296, 4.001), MIXED: (0.935, 0.990, 4.016), VERIFY: (1.021, 1.073, 4.004)},
    MAMBA: {DECODE: (2.538, 4.094, 8.669), MIXED: (2.524, 3.266, 8.702), VERIFY: (2.461, 3.272, 8.675)},
}  # fmt: skip
_seen: dict[str, Both] = {}


def both(case: Case, step: Step) -> Both:
    """The two estimators, asked once a session."""
    key = f"{case.name}, {step.name}"
    if key not in _seen:
        _seen[key] = beside(case, step)
    return _seen[key]


def by_hand(case: Case, step: Step) -> Count:
    return BY_HAND[case.name](SUMS[step.name])


@pytest.mark.parametrize(("case", "step"), PAIRS, ids=lambda one: one.name)
def test_ours_is_the_count_by_hand(case: Case, step: Step) -> None:
    """To the byte and the flop. Ours leaves out two things: the biases of the experts' scores, 2 bytes each, under one
    in a million, and the state that a piece of a prompt reads, since the first piece has none."""
    ours, hand = asdict(both(case, step).ours), asdict(by_hand(case, step))
    del ours["expert_bytes"]
    left_out = hand.pop("state_bytes") - ours.pop("state_bytes")
    assert left_out in (0, by_hand(case, DECODE).state_bytes / 64 if step is MIXED else 0)
    biases = {MLA: 58 * 256 * 2, MLA_TP8: 58 * 256 * 2 / 8, MAMBA: 23 * 128 * 2}
    hand["weight_bytes"] -= biases.get(case, 0)
    assert ours == pytest.approx(hand, abs=0.5, rel=1e-12)


@pytest.mark.parametrize(("case", "step"), PAIRS, ids=lambda one: one.name)
def test_how_far_theirs_is(case: Case, step: Step) -> None:
    seen = both(case, step)
    ours, theirs = seen.ours, seen.theirs
    found = (
        theirs.flops / ours.flops,
        theirs.weight_bytes / (ours.weight_bytes + ours.spread_bytes),
        theirs.kv_read_bytes / ours.kv_read_bytes,
    )
    assert found == pytest.approx(RATIOS[case][step], rel=0.005)


def test_a_chunk_has_its_causal_pairs() -> None:
    """512 tokens onto 1536: 512 x 1536 + 512 x 513 / 2 = 917,760 pairs; theirs are 512 x 2048 = 1,048,576. Beside them
    32 x 4097 = 131,104 of decode: 1,179,680 / 1,048,864 = 1.1247."""
    seen = both(DENSE, MIXED)
    assert seen.theirs.attention_flops == 4 * 32 * 32 * 128 * 1_179_680
    assert seen.ours.attention_flops == 4 * 32 * 32 * 128 * 1_048_864


def test_every_row_of_a_verify_step_has_logits() -> None:
    """32 sequences with 3 drafts: 128 rows go through the head; theirs are 32, as of 32 prompts."""
    seen = both(DENSE, VERIFY)
    assert seen.ours.head_flops == 2 * 128 * 128_256 * 4096
    assert seen.theirs.flops_of["unembed.unembed"] == 2 * 32 * 128_256 * 4096


def test_a_verify_step_reads_the_cache_as_it_is() -> None:
    """With fp8: 32 x 4096 tokens of 65,536 bytes. Theirs: 32 x 4100 of 131,072, for several tokens are a prompt, and a
    prompt's keys are read at the activations' width. All they read is 32.69 GB, of the plain step 23.72."""
    verify, plain = both(FP8_KV, VERIFY), both(FP8_KV, DECODE)
    assert verify.ours.kv_read_bytes == plain.ours.kv_read_bytes == 32 * 4096 * 65_536
    assert verify.theirs.kv_read_bytes == 32 * 4100 * 131_072
    assert verify.theirs.read_bytes / 1e9 == pytest.approx(32.69, abs=0.01)
    assert plain.theirs.read_bytes / 1e9 == pytest.approx(23.72, abs=0.01)


def test_weights_are_as_wide_as_the_scheme_says() -> None:
    """compressed-tensors names no width: half a byte for all of it makes 3.49 GB of 6.98, and the head's 1.05 besides:
    the 4.54 GB of a model of 8.03."""
    seen = both(FP8, DECODE)
    assert seen.theirs.weight_bytes == 6_979_321_856 // 2 + 2 * 128_256 * 4096
    assert seen.ours.weight_bytes / 1e9 == pytest.approx(8.03, abs=0.005)


@pytest.mark.parametrize(("step", "ratio"), [(DECODE_16, 1.553), (DECODE, 1.145), (VERIFY, 1.000)])
def test_experts_that_are_read(step: Step, ratio: float) -> None:
    """min(8 T, 128) = 128 of theirs over 128 (1 - (15 / 16)^T): 82.42 at 16, 111.8 at 32, 127.97 at 128 tokens."""
    seen = both(MOE, step)
    assert seen.theirs.expert_bytes == 48 * 128 * 3 * 2048 * 768 * 2
    assert seen.theirs.expert_bytes / seen.ours.expert_bytes == pytest.approx(ratio, abs=0.001)


def test_decode_works_on_latents() -> None:
    """A head and pair: theirs 192 + 128 = 320 products, as if keys and values were there; 576 + 512 = 1088 on the
    latent that is: 0.294."""
    for step, pairs in ((DECODE, 131_104), (VERIFY, 524_608)):
        assert both(MLA, step).ours.attention_flops == 2 * 61 * 128 * 1088 * pairs
    assert both(MLA, DECODE).theirs.attention_flops == 2 * 61 * 128 * 320 * 131_104


def test_a_verify_step_reads_latents_too() -> None:
    """1,152 bytes a token and layer; theirs: 128 heads x 320 x 2 = 81,920, 71 times that, 656 GB in all."""
    seen = both(MLA, VERIFY)
    assert seen.ours.kv_read_bytes == 61 * 1152 * 32 * 4096
    assert seen.theirs.kv_read_bytes == 61 * 81_920 * 32 * 4100


def test_both_have_the_latent_on_every_device() -> None:
    for step in (DECODE, MIXED):
        assert both(MLA_TP8, step).ours.kv_read_bytes == both(MLA, step).ours.kv_read_bytes
    assert both(MLA_TP8, DECODE).theirs.kv_read_bytes == both(MLA, DECODE).theirs.kv_read_bytes


@pytest.mark.parametrize(("case", "layers", "with_cache"), [(HYBRID, 48, 12), (MAMBA, 52, 6)])
def test_layers_with_a_state_have_no_cache(case: Case, layers: int, with_cache: int) -> None:
    """Theirs are all attention: 4.00 and 8.67 times the flops of attention; and there is no state."""
    seen = both(case, DECODE)
    assert seen.theirs.attention_flops / seen.ours.attention_flops == pytest.approx(layers / with_cache)
    assert not any("state" in name or "mamba" in name for name in seen.theirs.read_of)
    assert seen.ours.state_bytes > 2.5e9


def test_experts_of_layers_that_have_them() -> None:
    """Nemotron's 23 of 52 layers, with two matrices; theirs are 52 with three: 52 x 3 / (23 x 2) = 3.39 times the
    flops."""
    routed = both(MAMBA, DECODE).theirs.flops_of["ffn.routed_ffn"]
    assert routed == 2 * 2688 * 3 * 1856 * 6 * 32 * 52
    assert routed / (2 * 2688 * 2 * 1856 * 6 * 32 * 23) == pytest.approx(3.39, abs=0.002)


@pytest.mark.parametrize(
    ("case", "module", "name", "elements"),
    [
        (HYBRID, "qwen3_next", "Qwen3NextForCausalLM", (3 * 8192, 32 * 128 * 128)),
        (MAMBA, "nemotron_h", "NemotronHForCausalLM", (3 * 6144, 64 * 64 * 128)),
    ],
    ids=lambda one: getattr(one, "name", None),
)
def test_the_state_is_what_vllm_allocates(case: Case, module: str, name: str, elements: tuple[int, int]) -> None:
    """The shapes of hand_counts. A CPU that multiplies bf16 has Qwen3-Next's state in fp32, other devices in bf16: the
    hook says which."""
    from vllm.v1.kv_cache_interface import MambaSpec

    model: Any = getattr(importlib.import_module(f"vllm.model_executor.models.{module}"), name)
    for options in (case.options, {}):
        config = engine_config(replace(case, options=options), DECODE)
        shapes = model.get_mamba_state_shape_from_config(config)
        assert tuple(math.prod(shape) for shape in shapes) == elements
        dtypes = model.get_mamba_state_dtype_from_config(config)
        spec = MambaSpec(block_size=16, shapes=shapes, dtypes=dtypes)
        groups = [SimpleNamespace(kv_cache_spec=spec, layer_names=["a"])]
        made = SimpleNamespace(kv_cache_config=SimpleNamespace(kv_cache_groups=groups), vllm_config=config)
        assert state_dtype(made) == str(dtypes[1]).removeprefix("torch.")
