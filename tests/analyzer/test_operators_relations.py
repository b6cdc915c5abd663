"""What holds between steps, models and deployments, for every kind of operator."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_points import PARTS, One, points, total

from rooflens.analyzer.operators import works
from rooflens.analyzer.precision import Precision, TensorFormat
from rooflens.analyzer.spans import spans_of
from rooflens.analyzer.work import dot, resident_bytes
from rooflens.arch_records import (
    Attention,
    CompressedAttention,
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
MOE = MixtureOfExperts(8, 2, 4, gated=True, shared_intermediate_size=8, shared_gate=True)
LAYERS = {
    "full": Layer(2, Attention(8, 4, 4, 4), DenseMLP(16, gated=True)),
    "window": Layer(2, Attention(8, 4, 4, 4, window_tokens=5), DenseMLP(16, gated=False)),
    "blocks": Layer(2, Attention(8, 4, 4, 4, indexer=Indexer(4, 4, 6)), MOE),
    "chunk": Layer(2, Attention(8, 4, 4, 4, chunk_tokens=6), MOE),
    "latent": Layer(2, LatentAttention(8, 8, 8, 4, 4, 4), MOE),
    "sparse": Layer(2, LatentAttention(8, 8, 8, 4, 4, 4, Indexer(8, 4, 3)), MOE),
    "compressed": Layer(2, CompressedAttention(8, 4, 2, 8, 8, 4, 4, 2, Indexer(8, 4, 3)), MOE),
    "heavily": Layer(2, CompressedAttention(8, 4, 2, 8, 8, 4, 4, 8), replace(MOE, latent_size=8)),
    "state": Layer(2, StateMixer("mamba2", 8, 32, 16, 8, 64, 16, 96.0), None),
    "mlp": Layer(2, None, replace(MOE, dense=DenseMLP(8, gated=True))),
}
KINDS = st.sampled_from(sorted(LAYERS))


def arch(kind: str) -> ModelArch:
    return ModelArch(kind, 8, 16, False, (LAYERS[kind],))


@given(kind=KINDS, cached=st.integers(0, 30), parts=st.lists(st.integers(1, 12), min_size=1, max_size=5))
@settings(max_examples=150, deadline=None)
def test_chunks_of_a_prompt_sum_to_the_whole(kind: str, cached: int, parts: list[int]) -> None:
    rows = works(arch(kind), BF16)
    whole = [One(cached, sum(parts), prefill=True)]
    chunks = [One(cached + sum(parts[:i]), part, prefill=True, sampled=0) for i, part in enumerate(parts)]
    chunks[-1] = replace(chunks[-1], sampled=1)
    for part in ("flops", "kv_write_bytes", "gather_bytes"):
        assert sum(total(rows, part, [chunk]) for chunk in chunks) == pytest.approx(total(rows, part, whole))
    # Each chunk reads the layers again.
    once = total(rows, "weight_bytes", whole) - 2 * 8 * 16
    assert sum(total(rows, "weight_bytes", [chunk]) for chunk in chunks) == pytest.approx(
        len(parts) * once + 2 * 8 * 16
    )


@given(kind=KINDS, context=st.integers(0, 40), drafts=st.integers(0, 8), batch=st.integers(1, 4))
@settings(max_examples=100, deadline=None)
def test_a_verify_step_reads_what_a_plain_one_reads(kind: str, context: int, drafts: int, batch: int) -> None:
    rows = works(arch(kind), BF16)
    plain, verify = [One(context)] * batch, [One(context, 1 + drafts, sampled=1 + drafts)] * batch
    for part in ("weight_bytes", "kv_read_bytes", "state_bytes"):
        assert total(rows, part, verify) == total(rows, part, plain)
    assert total(rows, "flops", verify) >= (1 + drafts) * total(rows, "flops", plain) * 0.999 or "chunk" in kind


@pytest.mark.parametrize("kind", LAYERS)
def test_twice_the_layers_are_twice_the_work(kind: str) -> None:
    one = arch(kind)
    double = replace(one, layers=(replace(one.layers[0], count=4),))
    apart = replace(one, layers=one.layers * 2)
    step = [One(20), One(9, 4, prefill=True)]
    for part in PARTS:
        single = sum(
            total(works(one, BF16), part, step, r.operator)
            for r in works(one, BF16)
            if r.group in ("head", "embedding")
        )
        ones, doubles, aparts = (total(works(a, BF16), part, step) - single for a in (one, double, apart))
        assert doubles == pytest.approx(2 * ones)
        assert aparts == pytest.approx(2 * ones)


REPLICATED = {
    "q_down_projection", "kv_down_projection", "kv_projection", "compressor", "index_compressor", "index_queries",
    "index_keys", "index_weights", "index_scores", "router", "latent_in_projection", "latent_out_projection",
    "shared_expert_gate",
}  # fmt: skip
SHARED_CACHE = {"attention", "window_attention", "compressed_attention"}  # of latents: on every device


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("devices", [2, 4])
def test_shards_sum_to_the_whole_but_for_what_each_device_has(kind: str, devices: int) -> None:
    step = [One(20), One(9, 4, prefill=True)]
    one = {row.operator: row for row in works(arch(kind), BF16)}
    shard = {row.operator: row for row in works(arch(kind), BF16, Deployment(tensor=devices))}
    latents = kind in ("latent", "sparse", "compressed", "heavily")
    for name, row in one.items():
        for part in ("flops", "weight_bytes", "kv_read_bytes", "kv_write_bytes", "state_bytes", "gather_bytes"):
            divided = kind == "blocks" and (name == "index_queries" or (name, part) == ("index_scores", "flops"))
            times = (
                1
                if (name in REPLICATED and not divided) or (latents and name in SHARED_CACHE and part.startswith("kv"))
                else devices
            )
            at = points([row, shard[name]], step)
            assert times * dot(getattr(shard[name], part), at) == pytest.approx(dot(getattr(row, part), at)), (
                name,
                part,
            )
        times = 1 if name in REPLICATED and (kind, name) != ("blocks", "index_queries") else devices
        assert times * shard[name].resident_bytes == row.resident_bytes
        assert shard[name].elements == row.elements


@pytest.mark.parametrize("kind", LAYERS)
def test_elements_are_those_kept_on_one_device(kind: str) -> None:
    rows = works(arch(kind), BF16)
    assert resident_bytes(rows) == 2 * sum(row.elements for row in rows)


@pytest.mark.parametrize("kind", LAYERS)
def test_shares_of_a_group_split_its_rows_and_no_flop(kind: str) -> None:
    step = [One(20), One(9, 4, prefill=True)]
    half = (TensorFormat(0.5, "bf16", 2.0), TensorFormat(0.5, "fp8", 1.0))
    groups = ("attention", "mlp", "experts", "shared_experts", "router", "state", "indexer", "head")
    plain, mixed = works(arch(kind), BF16), works(arch(kind), replace(BF16, groups=dict.fromkeys(groups, half)))
    for part in ("flops", "kv_read_bytes", "activation_bytes", "state_bytes"):
        assert total(mixed, part, step) == pytest.approx(total(plain, part, step))
    assert sum(row.elements for row in mixed) == sum(row.elements for row in plain)
    assert sum(row.calls for row in mixed) == sum(row.calls for row in plain)
    state = next((row.resident_bytes for row in plain if row.operator == "state"), 0.0)
    table = 2 * 8 * 16
    assert resident_bytes(mixed) - state - table == pytest.approx(0.75 * (resident_bytes(plain) - state - table))


@pytest.mark.parametrize("kind", LAYERS)
def test_every_span_of_the_rows_is_one_of_the_model(kind: str) -> None:
    known = set(spans_of(arch(kind)))
    names = {name for row in works(arch(kind), BF16) for part in PARTS for name in getattr(row, part)}
    used = {name.partition("@")[2] for name in names if name.partition("@")[2] and not name.startswith("expert_spread")}
    assert used == known
