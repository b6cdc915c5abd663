"""What fits beside the weights, in bytes that are counted by hand, and the smallest deployment of a batch."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rooflens.analyzer.arch import find_model
from rooflens.analyzer.capacity import device_bytes, devices_needed, held_sequences, kept_bytes, kept_form, room
from rooflens.analyzer.hardware import find_hardware
from rooflens.analyzer.plan import LARGEST, Plan
from rooflens.analyzer.precision import choose_precision
from rooflens.analyzer.work import Work
from rooflens.arch_records import Attention, DenseMLP, Deployment, Layer, ModelArch

H100 = find_hardware("h100-sxm5-80")
LLAMA_8B = find_model("meta-llama-3-8b")
# 8 layers of 3 x 1024 x 65,536 weights of 2 bytes, 403 MB each, and of two heads.
DEEP = ModelArch("deep", 1024, 100, tied_head=True, layers=(Layer(8, Attention(2, 2, 64, 64), DenseMLP(65_536, True)),))


def stage(weight_bytes: float, token_bytes: float = 10.0, sequence_bytes: float = 0.0) -> tuple[Work, ...]:
    kept = Work("kept", "attention", stored_bytes={"context_tokens": token_bytes, "requests": sequence_bytes})
    return (Work("weights", "mlp", resident_bytes=weight_bytes), kept)


def test_memory_of_one_device() -> None:
    assert device_bytes(H100, Plan(4, Deployment(tensor=4))) == pytest.approx(0.9 * H100.memory_bytes)
    assert device_bytes(H100, Plan(4, Deployment(tensor=4), memory_bytes=4e9, utilization_ratio=0.5)) == 0.5e9


def test_rows_keep_together() -> None:
    rows = (*stage(0.0, 10.0, 7.0), *stage(0.0, 5.0))
    assert kept_form(rows) == {"context_tokens": 15.0, "requests": 7.0}
    plan = Plan(context_tokens=100)
    assert kept_bytes(kept_form(rows), plan, 3) == 3 * (1500 + 7)
    assert kept_bytes(kept_form(rows), plan, 3, tokens=20) == 3 * (300 + 7)
    # In whole blocks of 16, 100 tokens are 112, and 96 stay 96.
    blocks = replace(plan, block_tokens=16)
    assert kept_bytes(kept_form(rows), blocks, 1) == 15 * 112 + 7
    assert kept_bytes(kept_form(rows), blocks, 1, tokens=96) == 15 * 96 + 7
    # 40 of them shared: once for all three.
    assert kept_bytes(kept_form(rows), replace(plan, shared_prefix_tokens=40), 3) == 15 * (3 * 60 + 40) + 3 * 7
    # An empty sequence takes a token all the same.
    assert kept_bytes(kept_form(rows), Plan(context_tokens=0), 2) == 2 * (15 + 7)


def test_sequences_beside_the_weights() -> None:
    # 10 bytes a token: 1,000 a sequence beside 5,000 of weights.
    plan = Plan(context_tokens=100)
    held = {space: held_sequences((stage(5000.0),), plan, space) for space in (5999.0, 6000.0, 7999.0, 8000.0, 9000.0)}
    assert held == {5999.0: 0, 6000.0: 1, 7999.0: 2, 8000.0: 3, 9000.0: 4}
    # The fuller of two stages decides.
    assert held_sequences((stage(5000.0), stage(6000.0)), plan, 9000.0) == 3
    assert held_sequences((stage(6000.0), stage(5000.0)), plan, 9000.0) == 3
    # What takes no room goes in without end, as long as the weights do.
    assert held_sequences((stage(5000.0, 0.0),), plan, 5000.0) == LARGEST
    assert held_sequences((stage(5000.0, 0.0),), plan, 4999.0) == 0
    # With 60 tokens shared the first takes 1,000 and every other one 400.
    shared = replace(plan, shared_prefix_tokens=60)
    assert [held_sequences((stage(5000.0),), shared, space) for space in (5999.0, 6399.0, 6400.0, 6800.0)] == [
        0,
        1,
        2,
        3,
    ]


def test_room_of_a_plan() -> None:
    # Two ranks of two sequences: each has 5,000 bytes left, 250 tokens for each of its two.
    plan = Plan(2, Deployment(data=2), batch=4, context_tokens=100)
    found = room((stage(5000.0),), plan, 10_000.0)
    assert (found.held_sequences, found.max_batch, found.fits, found.max_context_tokens) == (5, 10, True, 250)
    # The third sequence of a rank counts where one has two and the other three: 166 tokens.
    assert room((stage(5000.0),), replace(plan, batch=5), 10_000.0).max_context_tokens == 166
    # Exactly as many as fit, and one more.
    assert room((stage(5000.0),), replace(plan, batch=10), 10_000.0).fits
    assert not room((stage(5000.0),), replace(plan, batch=11), 10_000.0).fits
    # The longest context is the stage's with the least room; 0 where not one token fits, and no end without a cache.
    assert room((stage(5000.0), stage(9000.0)), plan, 10_000.0).max_context_tokens == 50
    assert room((stage(5000.0),), plan, 5019.0).max_context_tokens == 0
    assert room((stage(5000.0),), plan, 5020.0).max_context_tokens == 1
    assert room((stage(5000.0, 0.0),), plan, 5020.0).max_context_tokens == LARGEST
    for tokens in (2, 3, 4, 7, 8, 9, 1000):
        assert room((stage(5000.0),), plan, 5000.0 + 20 * tokens).max_context_tokens == tokens
        assert room((stage(5000.0),), plan, 5019.0 + 20 * tokens).max_context_tokens == tokens


def needed(arch: ModelArch, usable_bytes: float, **plan: object) -> tuple[int, Deployment] | None:
    device = replace(H100, memory_bytes=int(usable_bytes))
    return devices_needed(arch, device, choose_precision(arch), Plan(utilization_ratio=1.0, **plan))  # type: ignore[arg-type]


def test_devices_that_share_the_weights_hold_more() -> None:
    # 16.1 GB of weights and 1.07 GB a sequence: 18 GB hold one of them, two devices with half of each 18.
    assert needed(LLAMA_8B, 18e9, batch=1, context_tokens=8192) == (1, Deployment())
    assert needed(LLAMA_8B, 18e9, batch=2, context_tokens=8192) == (2, Deployment())
    assert needed(LLAMA_8B, 18e9, batch=3, context_tokens=8192) == (2, Deployment(tensor=2))
    assert needed(LLAMA_8B, 18e9, batch=18, context_tokens=8192) == (2, Deployment(tensor=2))
    # Where one device holds two, two sequences need no second device.
    assert needed(LLAMA_8B, 18.5e9, batch=2, context_tokens=8192) == (1, Deployment())


def test_stages_where_the_heads_cannot_be_divided_further() -> None:
    # Two heads are divided over two devices at most: 3.2 GB over 2 x 2 of 0.81 GB, or 2 x 4 of 0.41.
    small = {"batch": 1, "context_tokens": 16}
    assert needed(DEEP, 3.3e9, **small) == (1, Deployment())
    assert needed(DEEP, 1.65e9, **small) == (2, Deployment(tensor=2))
    assert needed(DEEP, 0.9e9, **small) == (4, Deployment(tensor=2, pipeline=2))
    assert needed(DEEP, 0.45e9, **small) == (8, Deployment(tensor=2, pipeline=4))
    # One layer on each of two devices is the end.
    assert needed(DEEP, 0.21e9, **small) == (16, Deployment(tensor=2, pipeline=8))
    assert needed(DEEP, 0.19e9, **small) is None


def test_without_a_link_there_is_one_device_to_a_copy() -> None:
    alone = replace(H100, memory_bytes=int(1.65e9), link_bandwidth_bytes_per_s=None)
    plan = Plan(utilization_ratio=1.0, context_tokens=16)
    assert devices_needed(DEEP, alone, choose_precision(DEEP), plan) is None
    room_for_all = replace(alone, memory_bytes=int(3.3e9))
    assert devices_needed(DEEP, room_for_all, choose_precision(DEEP), plan) == (1, Deployment())


def test_ranks_share_the_batch() -> None:
    # 18 GB hold one sequence of 8,192: four ranks of one device hold four, and a fifth takes four more.
    spread = Deployment(data=4)
    assert needed(LLAMA_8B, 17.3e9, devices=4, deployment=spread, batch=4, context_tokens=8192) == (4, spread)
    assert needed(LLAMA_8B, 17.3e9, devices=4, deployment=spread, batch=5, context_tokens=8192) == (8, spread)
