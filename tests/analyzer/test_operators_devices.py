"""Models spread over devices: what is divided, what is replicated, what is sent, and what is refused."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from made_points import One, total

from rooflens.analyzer.hardware import find_hardware
from rooflens.analyzer.operators import mtp_works, stage_works, strict_link_bytes, strict_link_share, works
from rooflens.analyzer.precision import Precision, TensorFormat
from rooflens.analyzer.work import Work, resident_bytes
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
from rooflens.records import RooflensError

BF16 = Precision("bf16", "bf16", "bf16", "bf16")
FULL = Layer(4, Attention(8, 4, 2, 2), DenseMLP(16, gated=True))
WINDOW = replace(FULL, count=3, mixer=Attention(8, 4, 2, 2, window_tokens=2))
ARCH = ModelArch("tiny", 8, 100, False, (FULL, WINDOW), order=(0, 1, 0, 1, 0, 1, 0), residual_elements=70)
MLA = LatentAttention(8, 6, 5, 3, 2, 4, Indexer(4, 4, 3))
STEP = [One(10), One(4, 3, prefill=True)]


def rows_of(mixer: Attention | LatentAttention | CompressedAttention, **fields: int) -> tuple[Work, ...]:
    return works(ModelArch("tiny", 8, 100, False, (Layer(2, mixer, None),)), BF16, Deployment(**fields))


def test_latents_and_index_keys_are_on_every_tensor_device() -> None:
    for mixer in (MLA, CompressedAttention(8, 6, 2, 5, 4, 3, 4, 2, Indexer(2, 4, 3))):
        one, four = rows_of(mixer), rows_of(mixer, tensor=4)
        for part in ("kv_read_bytes", "kv_write_bytes", "stored_bytes"):
            assert total(four, part, STEP) == total(one, part, STEP) > 0
        # So are the indexer's products; those of attention are divided by heads.
        assert total(four, "flops", STEP, "index_scores") == total(one, "flops", STEP, "index_scores")
        assert 4 * total(four, "flops", STEP, "output_projection") == total(one, "flops", STEP, "output_projection")
    latent = rows_of(MLA), rows_of(MLA, tensor=4)
    assert total(latent[0], "flops", STEP, "attention") == 4 * total(latent[1], "flops", STEP, "attention")
    # The first projections come whole to each device: 8 x 7 and 8 x 6 in 2 layers at 2 bytes.
    assert total(latent[1], "weight_bytes", STEP, "kv_down_projection") == 2 * 56 * 2
    assert total(latent[1], "weight_bytes", STEP, "q_down_projection") == 2 * 48 * 2


def test_context_parallel_divides_the_cache() -> None:
    # Latents: over 2 of the 4 devices half each.
    assert total(rows_of(MLA, tensor=4, context=2), "stored_bytes", STEP) * 2 == total(
        rows_of(MLA), "stored_bytes", STEP
    )
    # And each scores the index keys that it has.
    assert total(rows_of(MLA, tensor=4, context=2), "flops", STEP, "index_scores") * 2 == total(
        rows_of(MLA, tensor=4), "flops", STEP, "index_scores"
    )
    # 2 KV heads on 4 devices: one head each, twice over; with 2 of them sharing the tokens nothing is held twice.
    few = Attention(8, 2, 2, 2)
    replicated, shared = rows_of(few, tensor=4), rows_of(few, tensor=4, context=2)
    assert 2 * total(replicated, "stored_bytes", STEP) == total(rows_of(few), "stored_bytes", STEP)
    assert 4 * total(shared, "stored_bytes", STEP) == total(rows_of(few), "stored_bytes", STEP)
    # 8 KV heads on 4 devices: sharing tokens takes nothing away, for there was no copy.
    many = Attention(8, 8, 2, 2)
    assert total(rows_of(many, tensor=4, context=2), "kv_read_bytes", STEP) == total(
        rows_of(many, tensor=4), "kv_read_bytes", STEP
    )


def test_stages_take_layers_in_their_order() -> None:
    stages = stage_works(ARCH, BF16, Deployment(pipeline=3))
    # 7 layers over 3: 2, 3 and 2, what is left over before the last. The stages hold layers (0 1), (0 1 0), (1 0).
    reads = [total(rows, "kv_read_bytes", [One(10)]) for rows in stages]
    layer = 4 * 4 * 2  # bytes of a token: 4 KV heads x (2 + 2) wide x 2
    assert reads == [layer * (10 + 2), layer * (10 + 2 + 10), layer * (2 + 10)]
    names = [{row.operator for row in rows} for rows in stages]
    assert ["embedding" in each for each in names] == [True, False, False]
    assert ["head" in each for each in names] == [False, False, True]
    # All stages together hold the model.
    assert sum(resident_bytes(rows) for rows in stages) == pytest.approx(resident_bytes(works(ARCH, BF16)))
    assert sum(row.elements for rows in stages for row in rows) == pytest.approx(
        sum(row.elements for row in works(ARCH, BF16))
    )


def test_the_busiest_stage_stands_for_the_pipeline() -> None:
    # The head of 800 elements outweighs a layer of 8 x 32 + 16 x 8 + 3 x 8 x 16 = 768: the last stage reads most.
    assert works(ARCH, BF16, Deployment(pipeline=3)) == stage_works(ARCH, BF16, Deployment(pipeline=3))[2]
    small = replace(ARCH, vocab_size=10)
    assert works(small, BF16, Deployment(pipeline=3)) == stage_works(small, BF16, Deployment(pipeline=3))[1]


def test_a_tied_head_on_another_stage_is_a_copy() -> None:
    tied = replace(ARCH, tied_head=True)
    held = sum(resident_bytes(rows) for rows in stage_works(tied, BF16, Deployment(pipeline=3)))
    assert held == pytest.approx(resident_bytes(works(tied, BF16)) + 100 * 8 * 2)


def test_layers_without_an_order_stand_as_listed() -> None:
    first, last = stage_works(replace(ARCH, order=()), BF16, Deployment(pipeline=2))
    assert total(first, "kv_read_bytes", [One(10)]) == 32 * 4 * 10  # the full ones, 7 // 2 + 1
    assert total(last, "kv_read_bytes", [One(10)]) == 32 * 3 * 2


def links(arch: ModelArch, **fields: int) -> dict[str, tuple[str, float, float]]:
    rows = works(arch, BF16, Deployment(**fields))
    return {r.operator: (r.collective, r.link_bytes["query_tokens"], r.calls) for r in rows if r.link_bytes}


def test_one_all_reduce_for_each_output_projection() -> None:
    # Two devices: 2 (2 - 1) / 2 = 1 x 8 wide x 2 bytes = 16 for each of them.
    def of(layer: Layer) -> tuple[str, float, float]:
        return links(ModelArch("tiny", 8, 100, False, (layer,)), tensor=2)["all_reduce"]

    assert of(FULL) == ("all_reduce", 4 * 2 * 16, 8)
    assert of(replace(FULL, mlp=None)) == ("all_reduce", 4 * 16, 4)
    assert of(replace(FULL, mixer=None)) == ("all_reduce", 4 * 16, 4)
    assert of(replace(FULL, cross=CrossAttention(8, 4, 2))) == ("all_reduce", 4 * 3 * 16, 12)


MOE = Layer(2, Attention(8, 4, 2, 2), MixtureOfExperts(16, 2, 4, gated=True))
SPARSE = ModelArch("tiny", 8, 100, False, (MOE,))


def test_tokens_travel_to_their_experts_and_back() -> None:
    # 4 devices with 4 experts each: a device has none of a token's 2 with the chance C(12, 2) / C(16, 2) = 66 / 120, so
    # 3 others get 3 x 0.45 = 1.35 copies of 8 x 2 bytes, there and back, in 2 layers.
    found = links(SPARSE, data=4, expert=True)
    assert found["expert_exchange"][::2] == ("all_to_all", 4)
    assert found["expert_exchange"][1] == pytest.approx(2 * 2 * 1.35 * 16)
    assert math.comb(12, 2) / math.comb(16, 2) == 0.55
    # Two tensor-parallel devices of a rank divide its tokens, and reduce after attention alone.
    two = links(SPARSE, tensor=2, data=2, expert=True)
    assert two["expert_exchange"][1] == pytest.approx(2 * 2 * 1.35 * 16 / 2)
    assert two["all_reduce"][2] == 2


def test_experts_cut_over_ranks_gather_every_token() -> None:
    # 3 other ranks' worth of 8 x 2 bytes, before and after, in 2 layers.
    assert links(SPARSE, data=4)["token_gather"] == ("all_gather", 2 * 2 * 3 * 16, 4)
    assert "token_gather" not in links(ARCH, data=4)


def test_experts_of_one_rank_are_reduced_like_an_mlp() -> None:
    # Two collectives a layer, 2 layers: nothing leaves the rank, whether its devices hold whole experts or parts.
    for fields in ({"tensor": 2, "expert": True}, {"tensor": 2}, {"tensor": 2, "data": 2}):
        found = links(SPARSE, **fields)
        assert found["all_reduce"] == ("all_reduce", 2 * 2 * 16, 4)
        assert "expert_exchange" not in found
        assert ("token_gather" in found) == ("data" in fields)
    assert links(SPARSE, tensor=2, data=2)["token_gather"][1] == 2 * 2 * 1 * 16 / 2
    # A dense MLP exchanges nothing either: two in each of the 4 full layers.
    dense = replace(ARCH, layers=(FULL,))
    assert links(dense, tensor=2, data=2, expert=True)["all_reduce"][2] == 8
    alone = next(row for row in works(SPARSE, BF16) if row.operator == "all_reduce")
    assert (alone.calls, alone.link_bytes) == (0, {})


def test_a_shared_context_gathers_queries_and_outputs() -> None:
    # 2 layers, one other device, 2 of the 8 heads, 2 wide there and 2 wide back, 2 bytes; latents: 5 + 2 and 5.
    plain = ModelArch("tiny", 8, 100, False, (Layer(2, Attention(8, 4, 2, 2), None),))
    assert links(plain, tensor=4, context=2)["context_gather"] == ("all_gather", 2 * 2 * 4 * 2, 4)
    assert links(plain, tensor=4, context=4)["context_gather"][1] == 2 * 3 * 2 * 4 * 2
    latent = replace(plain, layers=(Layer(2, MLA, None),))
    assert links(latent, tensor=4, context=2)["context_gather"][1] == 2 * 2 * 12 * 2
    compressed = replace(plain, layers=(Layer(2, CompressedAttention(8, 6, 2, 5, 4, 3, 4, 0), None),))
    assert links(compressed, tensor=4, context=2)["context_gather"][1] == 2 * 2 * 12 * 2
    state = replace(plain, layers=(Layer(2, StateMixer("mamba2", 8, 20, 12, 7, 48, 10, 96.0), None),))
    assert "context_gather" not in links(state, tensor=4, context=2)


def test_stages_hand_on_the_hidden_states() -> None:
    # 8 wide x 2 bytes; two devices send half each. The last stage has nobody to send to.
    for tensor, sent in ((1, 16), (2, 8)):
        *others, last = stage_works(ARCH, BF16, Deployment(tensor=tensor, pipeline=2))
        for rows in others:
            (row,) = [row for row in rows if row.operator == "stage_send"]
            assert (row.collective, row.link_bytes, row.calls) == ("p2p", {"query_tokens": sent}, 1)
        assert not [row for row in last if row.operator == "stage_send"]
    assert links(ARCH) == {}


def test_what_of_the_link_no_engine_avoids() -> None:
    plain = replace(find_hardware("a100-sxm4-80"), link_reduces=False)
    switch = replace(plain, link_reduces=True)
    rows = {r.operator: r for r in stage_works(SPARSE, BF16, Deployment(tensor=4, pipeline=2, data=2, expert=True))[0]}
    ring = rows["all_reduce"].link_bytes["query_tokens"]
    assert strict_link_bytes(plain, rows["all_reduce"], 4) == {"query_tokens": ring}
    # A switch that adds moves each byte once, not 2 x 3 / 4 times.
    assert strict_link_bytes(switch, rows["all_reduce"], 4) == {"query_tokens": pytest.approx(ring / 1.5)}
    assert strict_link_share(switch, 1) == strict_link_share(plain, 4) == 1
    assert strict_link_bytes(switch, rows["stage_send"], 4) == rows["stage_send"].link_bytes
    assert strict_link_bytes(switch, rows["expert_exchange"], 4) == {}


@pytest.mark.parametrize(
    ("arch", "fields", "said"),
    [
        (ARCH, {"tensor": 3}, "tensor parallel 3 does not divide 8 attention heads"),
        (ARCH, {"tensor": 0}, "tensor parallel 0 does not divide 8 attention heads"),
        (ARCH, {"pipeline": 8}, "pipeline parallel 8 has more stages than the model's 7 layers"),
        (ARCH, {"pipeline": 0}, "pipeline parallel 0 must be at least 1"),
        (ARCH, {"data": -1}, "data parallel -1 must be at least 1"),
        (ARCH, {"tensor": 4, "context": 3}, "context parallel 3 does not divide tensor parallel 4"),
        (SPARSE, {"tensor": 4, "data": 8, "expert": True}, "32 devices .* does not divide 16 experts"),
        (replace(ARCH, layers=(Layer(7, None, DenseMLP(8, gated=True)),)), {"tensor": 0}, "must be at least 1"),
        (replace(ARCH, layers=(Layer(7, MLA, None),)), {"tensor": 16}, "does not divide 8 mixer heads"),
        (
            replace(ARCH, layers=(Layer(7, CompressedAttention(8, 6, 2, 5, 2, 3, 4, 0), None),)),
            {"tensor": 4},
            "does not divide 2 groups of output heads",
        ),
        (replace(ARCH, encoder=(Layer(2, Attention(6, 6, 2, 2), None),)), {"tensor": 4}, "does not divide 6"),
    ],
)
def test_impossible_deployments(arch: ModelArch, fields: dict[str, int], said: str) -> None:
    with pytest.raises(RooflensError, match=said) as caught:
        works(arch, BF16, Deployment(**fields))
    assert "\n" not in str(caught.value)


def test_experts_need_no_even_number_without_expert_parallelism() -> None:
    works(SPARSE, BF16, Deployment(tensor=4, data=8))


MTP = replace(ARCH, mtp=(replace(FULL, count=1),), mtp_elements=128)


def test_prediction_layers_are_no_part_of_a_plain_step() -> None:
    assert works(MTP, BF16) == works(ARCH, BF16)
    assert mtp_works(ARCH, BF16) == ()
    rows = mtp_works(MTP, BF16)
    # One layer, 16 x 8 that join two inputs of 8 (2 x 128 flops a token), and the model's own head again.
    assert total(rows, "weight_bytes", [One(5)], "mtp_projection") == 256
    assert total(rows, "flops", [One(5)], "mtp_projection") == 256
    assert total(rows, "activation_bytes", [One(5)], "mtp_projection") == (16 + 8) * 2
    assert total(rows, "weight_bytes", [One(5)], "head") == 1600
    head = next(row for row in rows if row.operator == "head")
    assert (head.resident_bytes, head.elements) == (0, 0)
    assert total(rows, "kv_read_bytes", [One(5)]) == 5 * 32


def test_prediction_layers_have_formats_of_their_own() -> None:
    rows = mtp_works(MTP, replace(BF16, weights="fp8", groups={"mtp": (TensorFormat(1.0, "bf16", 2.0),)}))
    assert total(rows, "weight_bytes", [One(5)], "mlp_in_projection") == 8 * 32 * 2


def test_tables_towers_and_encoders_are_held_and_not_read() -> None:
    more = replace(
        ARCH, gathered_elements=5000, gathered_row_elements=50, vision_elements=300, encoder=(replace(FULL, count=2),)
    )
    rows = {row.operator: row for row in works(more, BF16)}
    assert rows["gathered_tables"].gather_bytes == {"query_tokens": 100}
    assert rows["gathered_tables"].resident_bytes == 10000
    assert (rows["vision"].resident_bytes, rows["vision"].weight_bytes) == (600, {})
    # Two layers of qkv 8 x 32, out 16 x 8, MLP 3 x 8 x 16: 768 elements each.
    assert (rows["encoder"].elements, rows["encoder"].resident_bytes) == (2 * 768, 4 * 768)
    assert (rows["encoder"].weight_bytes, rows["encoder"].flops) == ({}, {})
    # What is left over is read in each pass.
    assert rows["residual"].weight_bytes == {"passes": 140}
    other = replace(ARCH, layers=(replace(FULL, other_elements=11), WINDOW))
    norms = next(row for row in works(other, BF16) if row.operator == "norms")
    assert (norms.weight_bytes, norms.elements) == ({"passes": 88}, 44)


def test_activations_between_kernels_are_no_part_of_the_floor() -> None:
    rows = {row.operator: row for row in works(ARCH, BF16)}
    # In 8 wide and out 32 wide, 2 bytes, 3 layers of the last kind.
    assert rows["qkv_projection"].activation_bytes == {"query_tokens": 3 * 40 * 2}
    assert all(row.activation_bytes not in row.memory_parts() for row in rows.values() if row.activation_bytes)
