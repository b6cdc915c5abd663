"""Parameters and caches from the rows, against published figures and by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rooflens.analyzer.counting import kv_bytes, parameters, sequence_bytes
from rooflens.analyzer.operators import works
from rooflens.analyzer.precision import Precision
from rooflens.arch_records import (
    Attention,
    CompressedAttention,
    CrossAttention,
    DenseMLP,
    Deployment,
    Indexer,
    LatentAttention,
    Layer,
    MixtureOfExperts,
    ModelArch,
    StateMixer,
)

BF16 = Precision("bf16", "bf16", "bf16", "bf16")
LLAMA_8B = ModelArch("8b", 4096, 128256, False, (Layer(32, Attention(32, 8, 128, 128), DenseMLP(14336, gated=True)),))


def test_a_dense_model() -> None:
    # 6,979,321,856 in the layers and two tables of 128256 x 4096.
    count = parameters(LLAMA_8B)
    assert (count.total, count.active) == (8_029_995_008, 8_029_995_008)
    assert parameters(replace(LLAMA_8B, tied_head=True)).total == 8_029_995_008 - 128256 * 4096
    # 65 norms of 4096 are the rest of the published 8,030,261,248.
    normed = replace(LLAMA_8B, layers=(replace(LLAMA_8B.layers[0], other_elements=8192),), residual_elements=4096)
    assert parameters(normed).total == 8_030_261_248


def test_mixtures() -> None:
    """DeepSeek V3: 671.0e9 of which 37.6e9 work for a token (the report says 671B and 37B)."""
    mla = LatentAttention(128, 1536, 512, 128, 64, 128)
    moe = MixtureOfExperts(256, 8, 2048, gated=True, shared_intermediate_size=2048, groups=8, top_groups=4)
    v3 = ModelArch("v3", 7168, 129280, False, (Layer(3, mla, DenseMLP(18432, gated=True)), Layer(58, mla, moe)))
    count = parameters(v3)
    assert count.total == 671_025_397_760
    # 248 of 256 experts rest in 58 layers.
    assert count.total - count.active == 58 * 248 * 3 * 7168 * 2048
    assert parameters(replace(v3, layers=(Layer(1, None, replace(moe, expert_bias_elements=7)),))).active == (
        2 * 129280 * 7168 + 7168 * 256 + 9 * 3 * 7168 * 2048 + 8 * 7
    )


def test_deepseek_v4_pro() -> None:
    """1.6e12 and 49e9 by its model card."""
    moe = MixtureOfExperts(384, 6, 3072, gated=True, shared_intermediate_size=3072)
    every = CompressedAttention(128, 512, 64, 1536, 16, 1024, 128, 128)
    sparse = replace(every, ratio=4, indexer=Indexer(64, 128, 1024))
    count = parameters(ModelArch("v4", 7168, 129280, False, (Layer(31, every, moe), Layer(30, sparse, moe))))
    assert count.total / 1.6e12 == pytest.approx(1, abs=0.02)
    assert count.active / 49e9 == pytest.approx(1, abs=0.02)


def test_what_is_counted_beside_the_language_model() -> None:
    more = replace(LLAMA_8B, vision_elements=1000, mtp=LLAMA_8B.layers[:1], mtp_elements=50, gathered_elements=700)
    count = parameters(more)
    assert (count.vision, count.mtp) == (1000, 6_979_321_856 + 50)
    assert count.total == 8_029_995_008 + 700
    assert count.active == 8_029_995_008
    assert parameters(replace(LLAMA_8B, vision_elements=None)).vision is None


def test_encoders_count() -> None:
    layer = Layer(2, Attention(4, 4, 2, 2), DenseMLP(16, gated=True), other_elements=3)
    arch = ModelArch("t5", 8, 10, True, (replace(layer, cross=CrossAttention(4, 4, 2)),), encoder=(layer,))
    # A layer is 8 x 24 + 64 + 3 x 128 + 3 = 643, crossing 4 x 64 = 256 more.
    assert parameters(arch).total == 2 * (643 + 256) + 2 * 643 + 80


def test_a_sequence_of_every_kind_of_cache() -> None:
    layers = (
        Layer(1, Attention(4, 2, 2, 2), None),  # 2 x (2 + 2) x 2 = 16 bytes a token
        Layer(2, Attention(4, 2, 2, 2, window_tokens=10), None),  # 32 a token of at most 10
        Layer(1, Attention(4, 2, 2, 2, chunk_tokens=8), None),  # 16 a token of its chunk
        Layer(3, StateMixer("mamba2", 4, 20, 12, 7, 48, 10, 96.0), None),  # 3 x 212 at any length
        Layer(1, Attention(4, 2, 2, 2), None, cross=CrossAttention(4, 2, 2)),  # 16, and 16 a token of the encoder
    )
    arch = ModelArch("all", 8, 10, False, layers)
    # 100 tokens: 1600 + 320 + 4 x 16 (100 mod 8) + 636 + 1600 + 5 x 16.
    assert kv_bytes(arch, BF16, 100, encoder_tokens=5) == 1600 + 320 + 64 + 636 + 1600 + 80
    assert kv_bytes(arch, BF16, 0) == 636
    half = works(arch, BF16, Deployment(tensor=2))
    assert sequence_bytes(half, 100, 5) == kv_bytes(arch, BF16, 100, 5) / 2
