"""Experts, formats and adapters, worked to the last byte."""

from __future__ import annotations

from dataclasses import replace

import pytest
from made_points import One, total

from rooflens.analyzer.operators import Lora, works
from rooflens.analyzer.precision import Precision, TensorFormat
from rooflens.analyzer.work import Work
from rooflens.arch_records import (
    MLP,
    Attention,
    CompressedAttention,
    DenseMLP,
    Deployment,
    LatentAttention,
    Layer,
    MixtureOfExperts,
    ModelArch,
    StateMixer,
)

BF16 = Precision("bf16", "bf16", "bf16", "bf16")
MOE = MixtureOfExperts(experts=8, top_k=2, intermediate_size=4, gated=True)
THREE = [One(5), One(5), One(5)]
MANY = [One(5, 4000)]


def rows_of(mlp: MLP, deployment: Deployment | None = None, precision: Precision = BF16) -> tuple[Work, ...]:
    arch = ModelArch("tiny", 8, 10, False, (Layer(2, Attention(4, 4, 2, 2), mlp),))
    return works(arch, precision, deployment or Deployment())


def test_routed_experts() -> None:
    rows = rows_of(MOE)
    # Router 8 x 8. An expert is 3 x 8 x 4 = 96 elements, 2 layers: 192 elements, 384 bytes.
    assert total(rows, "flops", THREE, "router") == 2 * 2 * 64 * 3
    # Each of 3 tokens uses 2: 2 flops x 2 experts x 192 x 3.
    assert total(rows, "flops", THREE, "experts") == 2304
    # All three may choose the same 2: 2 x 384 bytes. Uniform routing reaches 8 (1 - (3/4)^3) = 4.625 of them.
    assert total(rows, "weight_bytes", THREE, "experts") == 768
    assert total(rows, "expert_bytes", THREE, "experts") == 2.625 * 384
    experts = next(row for row in rows if row.operator == "experts")
    assert (experts.elements, experts.resident_bytes) == (8 * 192, 8 * 384)
    # In two kernels a layer each of a token's 2 experts takes 8 and gives 2 x 4, takes 4 and gives 8, of 2 bytes.
    assert experts.calls == 4
    assert experts.activation_bytes == {"query_tokens": 2 * 2 * 28 * 2}


def test_one_token_reads_top_k_and_many_read_all() -> None:
    rows = rows_of(MOE)
    assert total(rows, "expert_bytes", [One(5)], "experts") == 0
    read = total(rows, "weight_bytes", MANY, "experts") + total(rows, "expert_bytes", MANY, "experts")
    assert read == pytest.approx(8 * 384)


def test_every_token_uses_every_expert() -> None:
    assert total(rows_of(replace(MOE, top_k=8)), "expert_bytes", THREE) == 0


def test_shared_expert_gate_and_dense() -> None:
    beside = replace(MOE, shared_intermediate_size=6, shared_gate=True, dense=DenseMLP(5, gated=False))
    rows = {row.operator: row for row in rows_of(beside)}
    assert rows["shared_expert"].elements == 2 * 3 * 8 * 6
    assert rows["shared_expert_gate"].elements == 2 * 8
    assert rows["mlp_in_projection"].elements == rows["mlp_out_projection"].elements == 2 * 8 * 5
    # Read by every pass and multiplied by every token, whatever is routed.
    assert rows["shared_expert"].weight_bytes == {"passes": 2 * 144 * 2}
    assert rows["shared_expert"].flops == {"query_tokens": 2 * 2 * 144}
    # Two kernels a layer: 8 in and 2 x 6 out, 6 in and 8 out, of 2 bytes.
    assert rows["shared_expert"].calls == 4
    assert rows["shared_expert"].activation_bytes == {"query_tokens": 2 * (8 + 12 + 6 + 8) * 2}


def test_a_plain_shared_expert_has_two_matrices() -> None:
    plain = replace(MOE, gated=False, shared_intermediate_size=6)
    shared = next(row for row in rows_of(plain) if row.operator == "shared_expert")
    assert shared.elements == 2 * 2 * 8 * 6


def test_experts_in_a_narrow_space_and_their_biases() -> None:
    rows = {row.operator: row for row in rows_of(replace(MOE, latent_size=4, gated=False, expert_bias_elements=5))}
    # 8 -> 4 and 4 -> 8 around experts of 2 x 4 x 4 = 32 elements and 5 biases, which are read and not multiplied.
    assert rows["latent_in_projection"].elements == rows["latent_out_projection"].elements == 2 * 32
    assert rows["experts"].elements == 2 * 8 * 37
    assert rows["experts"].weight_bytes == {"passes": 2 * 2 * 37 * 2}
    assert rows["experts"].flops == {"query_tokens": 2 * 2 * 2 * 32}
    assert rows["experts"].activation_bytes == {"query_tokens": 2 * 2 * 16 * 2}


def test_whole_experts_on_each_device() -> None:
    # 4 devices with 2 of the 8 experts each: the busiest reads ceil(2 / 4) = 1 at least and its 2 at most.
    rows = rows_of(MOE, Deployment(tensor=2, data=2, expert=True))
    assert total(rows, "weight_bytes", MANY, "experts") == 384
    assert total(rows, "weight_bytes", MANY, "experts") + total(rows, "expert_bytes", MANY, "experts") == pytest.approx(
        768
    )
    experts = next(row for row in rows if row.operator == "experts")
    assert experts.resident_bytes == 768
    # The tokens of both ranks reach them, each device a quarter of the products: 2 x 2 experts x 192 / 4 a token.
    assert experts.flops == {"rank_tokens@2": 192}
    assert experts.activation_bytes == {"rank_tokens@2": 2 * 2 * 28 * 2 / 4}


def test_experts_cut_over_all_devices() -> None:
    # A quarter of each expert: 2 x 384 / 4 bytes at least, 8 x 384 / 4 at most.
    rows = rows_of(MOE, Deployment(tensor=2, data=2))
    assert total(rows, "weight_bytes", MANY, "experts") == 192
    assert total(rows, "weight_bytes", MANY, "experts") + total(rows, "expert_bytes", MANY, "experts") == pytest.approx(
        768
    )


@pytest.mark.parametrize("expert", [False, True])
def test_devices_hold_every_expert_once(expert: bool) -> None:
    one, shard = rows_of(MOE), rows_of(MOE, Deployment(tensor=2, data=2, expert=expert))
    held = [next(row.resident_bytes for row in rows if row.operator == "experts") for rows in (one, shard)]
    assert held[0] == 4 * held[1]
    # The router and attention are each rank's own.
    attention = [next(row.resident_bytes for row in rows if row.operator == "qkv_projection") for rows in (one, shard)]
    assert attention[0] == 2 * attention[1]


INT4 = TensorFormat(0.75, "int4", 0.515625)


def test_a_group_in_two_formats_is_a_row_each() -> None:
    mixed = replace(BF16, weights="nvfp4", groups={"mlp": (INT4, TensorFormat(0.25, "fp8", 1.0))})
    rows = [row for row in rows_of(DenseMLP(16, gated=True), precision=mixed) if row.operator == "mlp_in_projection"]
    # 2 layers x 8 x 32 = 512 elements: 384 in int4 of 0.515625 bytes, 128 in fp8 of 1.
    assert [row.weight_bytes["passes"] for row in rows] == [198, 128]
    assert [row.flops["query_tokens"] for row in rows] == [768, 256]
    assert [row.elements for row in rows] == [384, 128]
    # The arithmetic follows the format: weight-only int4 is widened to 16 bit.
    assert "int4" not in rows[0].compute
    assert "bf16" in rows[0].compute
    assert "fp8" in rows[1].compute


def test_experts_alone_are_quantised() -> None:
    # gpt-oss: mxfp4 experts of 0.53125 bytes an element beside attention and router in bf16.
    rows = rows_of(MOE, precision=replace(BF16, groups={"experts": (TensorFormat(1.0, "mxfp4", 0.53125),)}))
    assert total(rows, "weight_bytes", THREE, "experts") == 2 * 192 * 0.53125
    assert total(rows, "weight_bytes", THREE, "router") == 2 * 64 * 2
    assert total(rows, "weight_bytes", THREE, "output_projection") == 2 * 64 * 2


TINY = ModelArch("tiny", 8, 10, False, (Layer(3, Attention(4, 2, 2, 2), DenseMLP(16, gated=True)),))


def test_adapters() -> None:
    rows = works(TINY, BF16, lora=Lora(rank=2, adapters=5))
    # Rows + columns of what is adapted: q 8 + 8, k and v 8 + 4, o 8 + 8; gate and up 8 + 16, down 16 + 8: 128.
    # Rank 2, 3 layers: 768 elements, 1536 bytes an adapter; every row with one does 2 flops an element.
    lora = next(row for row in rows if row.operator == "lora")
    assert lora.weight_bytes == {"lora_adapters": 1536}
    assert lora.flops == {"lora_rows": 1536}
    assert lora.resident_bytes == 5 * 1536
    assert lora.elements == 0
    attention = next(row for row in works(TINY, BF16, lora=Lora(2, mlp=False)) if row.operator == "lora")
    assert attention.flops == {"lora_rows": 2 * 2 * 3 * 56}
    assert not [row for row in works(TINY, BF16) if row.operator == "lora"]


@pytest.mark.parametrize(
    ("mixer", "lengths"),
    [
        (Attention(4, 2, 3, 5, output_gate=True), (8 + 24) + (8 + 6) + (8 + 10) + (20 + 8)),
        (Attention(4, 2, 3, 5, keys_are_values=True), (8 + 12) + (8 + 6) + (20 + 8)),
        (Attention(4, 2, 3, 5, kv_shared=True), (8 + 12) + (20 + 8)),
        (LatentAttention(4, 6, 5, 3, 2, 4), (8 + 6) + (6 + 20) + (8 + 7) + (5 + 28) + (16 + 8)),
        (LatentAttention(4, None, 5, 3, 2, 4), (8 + 20) + (8 + 7) + (5 + 28) + (16 + 8)),
        (CompressedAttention(4, 6, 2, 5, 2, 3, 4, 0), (8 + 5) + (5 + 24) + (8 + 6) + (6 + 8)),
        (StateMixer("mamba2", 4, 20, 12, 7, 48, 10, 96.0), (8 + 20) + (12 + 8)),
        (None, 0),
    ],
)
@pytest.mark.parametrize(
    ("mlp", "more"),
    [(None, 0), (DenseMLP(6, gated=False), 28), (MOE, 0), (replace(MOE, shared_intermediate_size=6), 42)],
)
def test_what_an_adapter_adapts(mixer: Attention | None, lengths: int, mlp: MLP | None, more: int) -> None:
    arch = ModelArch("tiny", 8, 10, False, (Layer(1, mixer, mlp),))
    flops = [row.flops["lora_rows"] for row in works(arch, BF16, lora=Lora(1)) if row.operator == "lora"]
    assert sum(flops) == 2 * (lengths + more)


def test_zero_experts_may_leave_a_token_without_any() -> None:
    # LongCat: 8 experts and 4 that do nothing, of which each token chooses 2. The router has 12 columns of 8.
    rows = rows_of(replace(MOE, zero_experts=4))
    assert total(rows, "flops", THREE, "router") == 2 * 2 * 96 * 3
    # Strict: all of them may choose two that do nothing. A layer of two is 384 bytes an expert.
    assert total(rows, "flops", THREE, "experts") == total(rows, "weight_bytes", THREE, "experts") == 0
    # Uniform: 12 (1 - (1 - 2/12)^3) = 5.0556 of the 12, of which 8 / 12 have weights: 3.3704 x 384.
    assert total(rows, "expert_bytes", THREE, "experts") == pytest.approx(12 * (1 - (5 / 6) ** 3) * 8 / 12 * 384)
    # Fewer of them than a token chooses: with one, one expert with weights is used at least.
    one = rows_of(replace(MOE, zero_experts=1))
    assert total(one, "weight_bytes", THREE, "experts") == 384
    assert total(one, "flops", THREE, "experts") == 2 * 192 * 3
    both = total(one, "weight_bytes", THREE, "experts") + total(one, "expert_bytes", THREE, "experts")
    assert both == pytest.approx(9 * (1 - (7 / 9) ** 3) * 8 / 9 * 384)
