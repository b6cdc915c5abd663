"""The operators: one case worked out to the last byte, then relations and the traps that other models fell into."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from rooflens.analyzer.operators import kv_bytes_per_token, works
from rooflens.analyzer.precision import Precision
from rooflens.analyzer.work import Work, dot, resident_bytes
from rooflens.arch_records import Attention, DenseMLP, Deployment, Layer, ModelArch
from rooflens.records import RooflensError

BF16 = Precision("bf16", "bf16", "bf16", "bf16")
TINY_LAYER = Layer(3, Attention(4, 2, 2, 2), DenseMLP(16, gated=True))
TINY = ModelArch(
    "tiny",
    hidden_size=8,
    vocab_size=10,
    tied_head=False,
    layers=(Layer(3, Attention(4, 2, 2, 2), DenseMLP(16, gated=True)),),
)
LLAMA_LAYER = Layer(32, Attention(32, 8, 128, 128), DenseMLP(14336, gated=True))
LLAMA_8B = ModelArch("8b", 4096, 128256, False, (LLAMA_LAYER,))


def features(
    query: float, sampled: float, context: float, pairs: float, passes: float = 1, head_passes: float | None = None
) -> dict[str, float]:
    return {
        "passes": passes, "head_passes": min(passes, sampled) if head_passes is None else head_passes,
        "query_tokens": query, "sampled_rows": sampled, "context_tokens": context, "causal_pairs": pairs,
    }  # fmt: skip


def decode(batch: int, context: int) -> dict[str, float]:
    return features(batch, batch, batch * context, batch * (context + 1))


def prefill(tokens: int, cached: int = 0, sampled: int = 1) -> dict[str, float]:
    return features(tokens, sampled, cached, tokens * cached + tokens * (tokens + 1) // 2)


def total(rows: tuple[Work, ...], part: str, at: Mapping[str, float]) -> float:
    return sum(dot(getattr(row, part), at) for row in rows)


def test_worked_to_the_last_byte() -> None:
    # Three layers of hidden 8, 4 heads and 2 KV heads of width 2, gated MLP of 16, vocabulary 10, all bf16.
    # Decode of 2 sequences with 5 tokens each in the cache: 2 query tokens, 2 sampled rows, 10 cached tokens,
    # 2 x 6 = 12 pairs.
    rows = {row.operator: row for row in works(TINY, BF16)}
    at = decode(batch=2, context=5)
    # QKV: 8 x (8 + 2 x 4) = 128 elements a layer, 384 in all: 2 x 384 x 2 tokens flops, 768 bytes.
    assert dot(rows["qkv_projection"].flops, at) == 1536
    assert dot(rows["qkv_projection"].weight_bytes, at) == 768
    # Attention: 4 flops x 3 layers x 4 heads x 2 wide x 12 pairs; K and V of 3 layers x 2 heads x 2 wide x 2 bytes
    # = 48 bytes a token, 10 tokens read and 2 written.
    assert dot(rows["attention"].flops, at) == 1152
    assert dot(rows["attention"].kv_read_bytes, at) == 480
    assert dot(rows["attention"].kv_write_bytes, at) == 96
    # Output: 8 x 8 = 64 a layer, 192: 768 flops, 384 bytes.
    assert dot(rows["output_projection"].flops, at) == 768
    assert dot(rows["output_projection"].weight_bytes, at) == 384
    # MLP: up and gate 8 x 32 = 256 a layer, 768; down 16 x 8 = 128 a layer, 384.
    assert (dot(rows["mlp_in_projection"].flops, at), dot(rows["mlp_out_projection"].flops, at)) == (3072, 1536)
    assert dot(rows["mlp_in_projection"].weight_bytes, at) == 1536
    assert dot(rows["mlp_out_projection"].weight_bytes, at) == 768
    # Embedding: two rows of 8 x 2 bytes gathered of a resident table of 160. Head: 80 elements, 160 bytes.
    assert dot(rows["embedding"].gather_bytes, at) == 32
    assert rows["embedding"].resident_bytes == 160
    assert (dot(rows["head"].flops, at), dot(rows["head"].weight_bytes, at)) == (320, 160)
    assert rows["all_reduce"].link_bytes == {}
    assert resident_bytes(works(TINY, BF16)) == 768 + 384 + 1536 + 768 + 160 + 160
    assert kv_bytes_per_token(works(TINY, BF16)) == 48


def test_twice_the_layers_is_twice_the_work_of_layers() -> None:
    double = replace(TINY, layers=(replace(TINY.layers[0], count=6),))
    split = replace(TINY, layers=TINY.layers * 2)
    at = decode(3, 7)
    for other in (double, split):
        for group in ("linear", "attention"):
            one, two = ([r for r in works(a, BF16) if r.group == group] for a in (TINY, other))
            for part in ("flops", "weight_bytes", "kv_read_bytes", "kv_write_bytes"):
                assert total(tuple(two), part, at) == 2 * total(tuple(one), part, at)


def test_grouped_heads_read_less_kv_and_compute_the_same_attention() -> None:
    full = replace(LLAMA_8B, layers=(replace(LLAMA_LAYER, mixer=Attention(32, 32, 128, 128)),))
    at = decode(8, 1000)
    grouped, multi = works(LLAMA_8B, BF16), works(full, BF16)
    assert total(multi, "kv_read_bytes", at) == 4 * total(grouped, "kv_read_bytes", at)
    attention = [next(r for r in rows if r.operator == "attention") for rows in (grouped, multi)]
    assert dot(attention[0].flops, at) == dot(attention[1].flops, at)


def test_chunks_sum_to_the_whole_prefill() -> None:
    # 1000 tokens at once, or as 600 and then 400 onto 600 cached: every flop and every write is the same, and the
    # second chunk reads the first one's K and V.
    rows = works(LLAMA_8B, BF16)
    whole, first, second = prefill(1000), prefill(600, sampled=0), prefill(400, cached=600)
    for part in ("flops", "kv_write_bytes", "gather_bytes"):
        assert total(rows, part, first) + total(rows, part, second) == total(rows, part, whole)
    assert total(rows, "kv_read_bytes", second) == 600 * kv_bytes_per_token(rows)


@pytest.mark.parametrize("devices", [2, 4, 8])
def test_shards_sum_to_the_whole(devices: int) -> None:
    one, shard, at = works(LLAMA_8B, BF16), works(LLAMA_8B, BF16, Deployment(tensor=devices)), decode(4, 300)
    for part in ("flops", "weight_bytes", "kv_read_bytes", "kv_write_bytes", "gather_bytes"):
        assert devices * total(shard, part, at) == total(one, part, at)
    assert devices * resident_bytes(shard) == resident_bytes(one)


def test_kv_heads_are_replicated_beyond_their_number() -> None:
    eight, sixteen = works(LLAMA_8B, BF16, Deployment(tensor=8)), works(LLAMA_8B, BF16, Deployment(tensor=16))
    assert kv_bytes_per_token(sixteen) == kv_bytes_per_token(eight)  # one KV head on each device in both
    qkv = next(row for row in sixteen if row.operator == "qkv_projection")
    assert qkv.resident_bytes == 2 * 32 * 4096 * (32 // 16 + 2) * 128


def test_all_reduce_bytes() -> None:
    # Two all-reduces a layer of 2 (n - 1) / n x tokens x hidden x 2 bytes: 2 x 32 x 1.75 x 4096 x 2 = 917504 a token.
    row = next(r for r in works(LLAMA_8B, BF16, Deployment(tensor=8)) if r.group == "link")
    assert row.link_bytes == {"query_tokens": 917504}


@pytest.mark.parametrize(("arch", "devices"), [(LLAMA_8B, 3), (LLAMA_8B, 64), (LLAMA_8B, 0)])
def test_heads_that_cannot_be_divided(arch: ModelArch, devices: int) -> None:
    with pytest.raises(RooflensError, match="does not divide 32 attention heads"):
        works(arch, BF16, Deployment(tensor=devices))


def test_kv_heads_that_cannot_be_divided() -> None:
    arch = replace(TINY, layers=(Layer(1, Attention(12, 6, 2, 2), DenseMLP(16, gated=True)),))
    with pytest.raises(RooflensError, match="4 neither divides nor is a multiple of 6 KV heads"):
        works(arch, BF16, Deployment(tensor=4))


def test_tied_head_is_resident_once_and_read_as_a_head() -> None:
    tied = works(replace(LLAMA_8B, tied_head=True), BF16)
    untied = works(LLAMA_8B, BF16)
    assert resident_bytes(untied) - resident_bytes(tied) == 2 * 128256 * 4096
    assert total(tied, "weight_bytes", decode(1, 1)) == total(untied, "weight_bytes", decode(1, 1))
