"""Every kind of mixer, worked to the last byte on layers small enough to count by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from made_points import One, total

from rooflens.analyzer.operators import kv_bytes_per_token, works
from rooflens.analyzer.precision import Precision
from rooflens.analyzer.work import Work
from rooflens.arch_records import (
    Attention,
    CompressedAttention,
    CrossAttention,
    Deployment,
    Indexer,
    LatentAttention,
    Layer,
    Mixer,
    ModelArch,
    StateMixer,
)

BF16 = Precision("bf16", "bf16", "bf16", "bf16")
PLAIN = Attention(4, 2, 2, 2)


def arch(mixer: Mixer | None, count: int = 2, cross: CrossAttention | None = None) -> ModelArch:
    return ModelArch("tiny", 8, 10, False, (Layer(count, mixer, None, cross=cross),))


def rows_of(mixer: Mixer, count: int = 2, deployment: Deployment | None = None) -> tuple[Work, ...]:
    return works(arch(mixer, count), BF16, deployment or Deployment())


def elements(rows: tuple[Work, ...]) -> dict[str, float]:
    """Weights of a row in one of two layers; those of embedding and head left out."""
    found = {row.operator: row.elements / 2 for row in rows if row.elements}
    return {name: each for name, each in found.items() if name not in ("embedding", "head")}


def test_a_window_stops_reading_and_keeping() -> None:
    # Two layers of 4 heads and 2 KV heads, 2 wide, window 3. Sequences with 5 and 1 tokens in the cache see
    # min(6, 3) + min(2, 3) = 5 pairs: 2 layers x 2 flops x 4 heads x (2 + 2) wide x 5 = 320.
    rows, step = rows_of(replace(PLAIN, window_tokens=3)), [One(5), One(1)]
    assert total(rows, "flops", step, "attention") == 320
    # A token is 2 layers x 2 heads x (2 + 2) wide x 2 bytes = 32; min(5, 3) + min(1, 3) = 4 are read and kept.
    assert total(rows, "kv_read_bytes", step) == 128
    assert total(rows, "stored_bytes", step) == 128
    assert total(rows, "kv_write_bytes", step) == 64
    # A prompt of 7 at once: queries see 1, 2, then 3 each: 1 + 2 + 5 x 3 = 18 pairs.
    assert total(rows, "flops", [One(0, 7, prefill=True)], "attention") == 2 * 2 * 4 * 4 * 18


def test_a_chunk_begins_anew() -> None:
    # Chunks of 4. With 5 tokens cached the next query stands second in its chunk and reads 1; with 8 it stands first
    # and reads none: 3 pairs, 2 x 2 x 4 x 4 x 3 = 192 flops, 1 x 32 bytes.
    rows, step = rows_of(replace(PLAIN, chunk_tokens=4)), [One(5), One(8)]
    assert total(rows, "flops", step, "attention") == 192
    assert total(rows, "kv_read_bytes", step) == 32


def test_values_of_another_width() -> None:
    # 4 heads x 3 for queries, 2 x (3 + 5) for keys and values: 28 columns of 8; out 4 x 5 = 20 rows of 8.
    rows = rows_of(Attention(4, 2, 3, 5))
    assert elements(rows) == {"qkv_projection": 224, "output_projection": 160}
    # 2 layers x 2 flops x 4 heads x (3 + 5) a pair, 6 pairs; 2 x 2 heads x 8 x 2 bytes a token.
    assert total(rows, "flops", [One(5)], "attention") == 2 * 2 * 4 * 8 * 6
    assert kv_bytes_per_token(rows) == 64


def test_gate_shared_matrix_and_shared_keys() -> None:
    wide = Attention(4, 2, 3, 5)
    # Gate: 4 x 3 more columns. Values by the key's matrix: 2 x 5 fewer, and the cache as before.
    assert elements(rows_of(replace(wide, output_gate=True)))["qkv_projection"] == 8 * 40
    same = rows_of(replace(wide, keys_are_values=True))
    assert elements(same)["qkv_projection"] == 8 * 18
    assert kv_bytes_per_token(same) == 64
    # Another layer's keys: the queries alone, nothing written or kept, and everything read.
    shared = rows_of(replace(wide, kv_shared=True))
    assert elements(shared)["qkv_projection"] == 8 * 12
    assert total(shared, "kv_write_bytes", [One(5)]) == total(shared, "stored_bytes", [One(5)]) == 0
    assert total(shared, "kv_read_bytes", [One(5)]) == 5 * 64


def test_blocks_of_keys_chosen_for_each_kv_head() -> None:
    # 2 index heads, one for each KV head, 4 wide: queries 8 x 8, one key 8 x 4, and nothing that weighs the heads.
    chosen = replace(PLAIN, indexer=Indexer(2, 4, top_k=6))
    rows, step = rows_of(chosen), [One(10), One(2)]
    found = elements(rows)
    assert (found["index_queries"], found["index_keys"], "index_weights" in found) == (64, 32, False)
    # min(11, 6) + min(3, 6) = 9 of 14 pairs; min(10, 6) + 2 = 8 of 12 tokens at 32 bytes. 11 tokens are over 6 and 3
    # are not: 11 pairs of the index and 10 keys of 2 x 4 x 2.
    assert total(rows, "flops", step, "attention") == 2 * 2 * 4 * 4 * 9
    assert total(rows, "flops", step, "index_scores") == 2 * 2 * 2 * 4 * 11
    assert total(rows, "kv_read_bytes", step) == 8 * 32 + 10 * 16
    # Everything is kept.
    assert total(rows, "stored_bytes", step) == 12 * (32 + 16)
    # Over 2 devices heads and their index queries are divided, the key is not; over 4 there is one of each again.
    for devices, heads in ((2, 1), (4, 1)):
        shard = rows_of(chosen, deployment=Deployment(tensor=devices))
        assert total(shard, "flops", step, "index_scores") == 2 * 2 * heads * 4 * 11
        assert total(shard, "weight_bytes", step, "index_queries") == 2 * 8 * heads * 4 * 2
        assert total(shard, "kv_read_bytes", step, "index_scores") == 10 * 16
    shared = rows_of(replace(PLAIN, indexer=Indexer(2, 4, 6, shared=True)))
    assert total(shared, "kv_read_bytes", step) == 8 * 32


def test_a_scale_for_each_token_and_head() -> None:
    # 2 heads x (2 + 2) elements of 1 byte and 2 heads x 2 scales of 4: 24 bytes, in 2 layers.
    rows = works(arch(PLAIN), replace(BF16, kv="fp8-head"))
    assert kv_bytes_per_token(rows) == 48
    crossed = works(arch(None, cross=CrossAttention(4, 2, 2)), replace(BF16, kv="fp8-head"))
    assert total(crossed, "kv_read_bytes", [One(3, encoder=10)]) == 480


MLA = LatentAttention(heads=4, q_rank=6, kv_rank=5, nope_dim=3, rope_dim=2, value_dim=4)
MIXED = [One(10), One(4, 3, prefill=True)]  # 11 pairs of decode; 5 + 6 + 7 = 18 of a prompt's second part


def test_latents() -> None:
    rows = rows_of(MLA)
    assert elements(rows) == {
        "q_down_projection": 8 * 6, "q_projection": 6 * 4 * 5, "kv_down_projection": 8 * 7,
        "kv_up_projection": 5 * 4 * 7, "output_projection": 16 * 8,
    }  # fmt: skip
    # Decode is absorbed: 2 x 4 heads x (5 + 2 + 5) = 96 a pair. A prompt is not: 2 x 4 x (3 + 2 + 4) = 72.
    assert total(rows, "flops", MIXED, "attention") == 2 * (96 * 11 + 72 * 18)
    # A latent is (5 + 2) x 2 bytes in each of 2 layers, 28: 14 of them read, 4 written. The heads do not count.
    assert total(rows, "kv_read_bytes", MIXED) == 392
    assert total(rows, "kv_write_bytes", MIXED) == 112
    # kv_up is multiplied once a new token either way: 2 x 140 x 2 layers x 4 tokens.
    assert total(rows, "flops", MIXED, "kv_up_projection") == 2240


def test_latents_without_a_narrow_query() -> None:
    found = elements(rows_of(replace(MLA, q_rank=None)))
    assert "q_down_projection" not in found
    assert found["q_projection"] == 8 * 4 * 5


INDEXED = replace(MLA, indexer=Indexer(heads=2, head_dim=4, top_k=3))


def test_an_indexer_reads_every_key_and_the_attention_top_k() -> None:
    rows = rows_of(INDEXED)
    found = elements(rows)
    assert (found["index_queries"], found["index_keys"], found["index_weights"]) == (6 * 8, 8 * 4, 8 * 2)
    # All 29 pairs: 2 layers x 2 flops x 2 heads x 4 = 32 each.
    assert total(rows, "flops", MIXED, "index_scores") == 29 * 32
    # Attention over min(11, 3) = 3 pairs of decode and 3 x 3 = 9 of the prompt.
    assert total(rows, "flops", MIXED, "attention") == 2 * (96 * 3 + 72 * 9)
    # min(10, 3) + min(4, 3) = 6 latents of 28 bytes, and all 14 keys of 2 x 4 x 2 = 16 bytes.
    assert total(rows, "kv_read_bytes", MIXED) == 6 * 28 + 14 * 16
    # All of both are kept.
    assert total(rows, "stored_bytes", MIXED) == 14 * (28 + 16)


def test_a_shared_indexer_costs_nothing_and_still_chooses() -> None:
    assert INDEXED.indexer is not None
    rows = rows_of(replace(INDEXED, indexer=replace(INDEXED.indexer, shared=True)))
    assert not [row for row in rows if row.operator.startswith("index")]
    assert total(rows, "kv_read_bytes", MIXED) == 6 * 28


def test_indexer_keys_of_a_format_of_their_own() -> None:
    # Keys 8 wide in fp8 are 8 bytes and a scale of 4, in 2 layers, where bf16 takes 2 x 16.
    wide = replace(MLA, indexer=Indexer(2, 8, 3))
    rows = works(arch(wide), replace(BF16, indexer_keys="fp8"))
    assert total(rows, "kv_read_bytes", MIXED) == 6 * 28 + 14 * 24
    assert total(rows_of(wide), "kv_read_bytes", MIXED) == 6 * 28 + 14 * 32
    for each in (rows_of(wide), rows_of(V4)):  # the products may run in those always
        compute = next(row for row in each if row.operator == "index_scores").compute
        assert compute == ("mxfp4", "nvfp4", "fp8", "bf16")


V4 = CompressedAttention(
    heads=4, head_dim=6, rope_dim=2, q_rank=5, output_groups=2, output_rank=3, window_tokens=4, ratio=2,
    indexer=Indexer(heads=2, head_dim=4, top_k=3),
)  # fmt: skip


def test_compressed_entries() -> None:
    rows = rows_of(V4)
    assert elements(rows) == {
        "q_down_projection": 8 * 5, "q_projection": 5 * 24, "kv_projection": 8 * 6,
        # Entries overlap, so values and weights are made twice: 8 x 2 x (2 x 6), and 8 x 2 x (2 x 4) for the indexer.
        "compressor": 192, "index_compressor": 128, "index_queries": 5 * 8, "index_weights": 8 * 2,
        # Two groups of 2 heads x 6 into 3 each, then 6 into 8.
        "output_down_projection": 2 * 12 * 3, "output_projection": 48,
    }  # fmt: skip
    # 20 tokens cached, so position 21: 4 pairs in the window, min(21, 2 x 3) / 2 = 3 entries of 10.5.
    step = [One(20)]
    assert total(rows, "flops", step, "window_attention") == 2 * 4 * 4 * 6 * 4
    assert total(rows, "flops", step, "compressed_attention") == 2 * 4 * 4 * 6 * 3
    assert total(rows, "flops", step, "index_scores") == 2 * 2 * 2 * 4 * 10.5
    # An entry is 6 x 2 bytes, an index key 4 x 2: 4 of the window, 3 chosen, 10 keys; in 2 layers.
    assert total(rows, "kv_read_bytes", step) == 2 * (4 * 12 + 3 * 12 + 10 * 8)
    assert total(rows, "stored_bytes", step) == 2 * (4 * 12 + 10 * 12 + 10 * 8)
    assert total(rows, "kv_write_bytes", step) == 2 * (12 + 6 + 4)


def test_an_entry_keeps_its_position_part_at_16_bit_in_the_packed_format() -> None:
    """DeepSeek V4: 448 + 8 scales in fp8 and 64 x 2 bytes of position: 584 an entry."""
    pro = CompressedAttention(128, 512, 64, 1536, 16, 1024, 128, 0)
    rows = works(arch(pro), replace(BF16, kv="fp8_ds_mla"))
    assert total(rows, "kv_write_bytes", [One(5)]) == 2 * 584


def test_compressed_without_a_choice_and_not_at_all() -> None:
    every = rows_of(replace(V4, indexer=None))
    assert elements(every)["compressor"] == 8 * 2 * 6
    assert total(every, "kv_read_bytes", [One(20)]) == 2 * (4 * 12 + 10 * 12)
    window = rows_of(replace(V4, indexer=None, ratio=0))
    assert "compressor" not in elements(window)
    assert total(window, "kv_read_bytes", [One(20)]) == total(window, "stored_bytes", [One(20)]) == 2 * 4 * 12


MAMBA = StateMixer("mamba2", 4, 20, 12, 7, state_elements=48, conv_state_elements=10, token_flops=96.0)


def test_a_state_is_read_and_written_once_a_pass() -> None:
    rows, step = rows_of(MAMBA, 3), [One(1000), One(7, 4, prefill=True)]
    # Three layers: 48 elements of 4 bytes and 10 of 2, 212 bytes a sequence, read and written for 2 sequences.
    assert total(rows, "state_bytes", step) == 2 * 2 * 3 * 212
    assert total(rows, "stored_bytes", step) == 2 * 3 * 212
    assert total(rows, "kv_read_bytes", step) == 0
    # 5 tokens of 96 flops; 7 more weights of 2 bytes; 8 x 20 in and 12 x 8 out.
    assert total(rows, "flops", step, "state") == 3 * 96 * 5
    assert total(rows, "weight_bytes", step, "state") == 3 * 7 * 2
    assert total(rows, "flops", step, "state_in_projection") == 3 * 2 * 160 * 5
    assert total(rows, "weight_bytes", step, "state_out_projection") == 3 * 96 * 2


def test_the_first_pass_of_a_prompt_has_no_state_to_read() -> None:
    # 212 bytes a layer and sequence, two layers: one begins its prompt and writes; one goes on with it and one decodes.
    step = [One(0, 7, prefill=True), One(7, 7, prefill=True), One(9)]
    assert total(rows_of(MAMBA, 2), "state_bytes", step) == 2 * 212 * (1 + 2 + 2)


def test_a_state_is_divided_by_its_heads() -> None:
    step = [One(1000), One(7, 4, prefill=True)]
    half = rows_of(MAMBA, 3, Deployment(tensor=2))
    for part in ("state_bytes", "stored_bytes", "flops", "weight_bytes"):
        assert 2 * total(half, part, step) == total(rows_of(MAMBA, 3), part, step)


def test_a_state_may_be_worked_on_in_either_format() -> None:
    row = next(row for row in rows_of(MAMBA) if row.operator == "state")
    assert set(row.compute) == {"fp32", "tf32", "bf16"}


def test_cross_attention_is_divided_by_its_heads() -> None:
    crossed = arch(PLAIN, cross=CrossAttention(4, 2, 2))
    for devices in (1, 2):
        rows = {row.operator: row for row in works(crossed, BF16, Deployment(tensor=devices))}
        heads, kv_heads = 4 // devices, 2 // devices
        # 2 layers: Q is 8 x heads x 2, the output as much, K and V 2 x 8 x KV heads x 2, each of 2 bytes.
        for name in ("cross_query_projection", "cross_output_projection"):
            assert rows[name].weight_bytes == {"passes": 2 * 8 * heads * 2 * 2}
            assert rows[name].flops == {"query_tokens": 2 * 2 * 8 * heads * 2}
            assert rows[name].elements == 2 * 8 * 4 * 2
        kept = rows["cross_kv_projection"]
        assert (kept.resident_bytes, kept.elements) == (2 * 2 * 8 * kv_heads * 2 * 2, 2 * 2 * 8 * 2 * 2)
        attends = rows["cross_attention"]
        assert attends.flops == {"encoder_tokens": 2 * 4 * heads * 2}
        assert attends.kv_read_bytes == attends.stored_bytes == {"encoder_tokens": 2 * 2 * kv_heads * 2 * 2}
        # A query comes in and a result goes out, heads x 2 elements of 2 bytes each, in 2 layers.
        assert attends.activation_bytes == {"query_tokens": 2 * 2 * heads * 2 * 2}
        assert attends.calls == 2


def test_cross_attention_reads_the_encoder() -> None:
    rows = works(arch(PLAIN, cross=CrossAttention(4, 2, 2)), BF16)
    step = [One(3, encoder=7), One(3, encoder=9)]
    # 2 layers x 2 (K and V) x 2 heads x 2 wide x 2 bytes = 32 a token of the encoder, 16 of them.
    assert total(rows, "kv_read_bytes", step, "cross_attention") == 512
    assert total(rows, "stored_bytes", step, "cross_attention") == 512
    assert total(rows, "kv_write_bytes", step, "cross_attention") == 0
    assert total(rows, "flops", step, "cross_attention") == 2 * 4 * 4 * 2 * 16
    # Keys and values of the encoder are made once: their matrix is kept and not read in every pass.
    made = next(row for row in rows if row.operator == "cross_kv_projection")
    assert (made.elements, made.resident_bytes, made.weight_bytes, made.flops) == (2 * 64, 2 * 128, {}, {})


def test_what_mixers_write_and_read_between_kernels() -> None:
    """Queries in and outputs out, 2 bytes an element, in each of 2 layers; no part of the floor."""
    own = {
        "attention": (rows_of(Attention(4, 2, 3, 5)), 4 * (3 + 5)),
        "index_scores": (rows_of(INDEXED), 2 * 4),
        "window_attention": (rows_of(V4), 4 * (6 + 6)),
        "compressed_attention": (rows_of(V4), 4 * (6 + 6)),
        "state": (rows_of(MAMBA), 20 + 12),
        "cross_attention": (works(arch(PLAIN, cross=CrossAttention(4, 2, 2)), BF16), 4 * (2 + 2)),
    }
    for operator, (rows, width) in own.items():
        row = next(row for row in rows if row.operator == operator)
        assert row.activation_bytes == {"query_tokens": 2 * width * 2}, operator
        assert row.calls == 2, operator
    latent = next(row for row in rows_of(MLA) if row.operator == "attention")
    assert latent.activation_bytes == {"query_tokens": 2 * 4 * (3 + 2 + 4) * 2}
    head = next(row for row in rows_of(MLA) if row.operator == "head")
    assert (head.calls, head.activation_bytes) == (1, {"sampled_rows": (8 + 10) * 2})


DEPTH = 1 << 20  # tokens, of the million that the model cards speak of


def test_a_million_tokens_of_deepseek() -> None:
    """Both kinds at bf16: 83.9 and 9.62 GiB, as the vLLM blog gives them (2026-04-24)."""
    v32 = LatentAttention(128, 1536, 512, 128, 64, 128, Indexer(64, 128, 2048))
    kept = total(
        works(ModelArch("v3.2", 7168, 129280, False, (Layer(61, v32, None),)), BF16), "stored_bytes", [One(DEPTH)]
    )
    assert kept == 61 * (576 + 128) * 2 * DEPTH  # 83.875 GiB
    sparse = CompressedAttention(128, 512, 64, 1536, 16, 1024, 128, 4, Indexer(64, 128, 1024))
    every = replace(sparse, ratio=128, indexer=None)
    v4 = ModelArch("v4", 7168, 129280, False, (Layer(31, every, None), Layer(30, sparse, None)))
    rows = works(v4, BF16)
    # 31 layers keep an entry for 128 tokens, 30 one for 4 and an index key beside it: 9.617 GiB. The windows of 128
    # entries in all 61 layers are 7.6 MiB more.
    entries = 31 * DEPTH // 128 * 1024 + 30 * DEPTH // 4 * (1024 + 256)
    assert total(rows, "stored_bytes", [One(DEPTH)]) == entries + 61 * 128 * 1024
    assert total(rows, "stored_bytes", [One(DEPTH)]) / 2**30 == pytest.approx(9.62, abs=0.005)
    # At 131072 tokens a step reads windows, 1024 entries of either kind, and every index key.
    read = 61 * 128 * 1024 + 31 * 1024 * 1024 + 30 * (1024 * 1024 + 32768 * 256)
    assert total(rows, "kv_read_bytes", [One(131072)]) == read == 323_616_768


def test_both_down_projections_of_a_latent_are_one_launch() -> None:
    """Two layers: queries and latents go down in one kernel, so the second row adds bytes and no launch."""
    calls = {row.operator: row.calls for row in rows_of(MLA) if row.operator.endswith("down_projection")}
    assert calls == {"q_down_projection": 2, "kv_down_projection": 0}
    at_once = {row.operator: row.calls for row in rows_of(replace(MLA, q_rank=None))}
    assert at_once["kv_down_projection"] == at_once["q_projection"] == 2
