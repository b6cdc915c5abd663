"""Planned deployments: published arithmetic to its digits, and plans that make no sense."""

from __future__ import annotations

from typing import Any

import pytest

from rooflens.analyzer.arch import find_model
from rooflens.analyzer.hardware import find_hardware
from rooflens.analyzer.precision import choose_precision
from rooflens.analyzer.predict import Plan, Prediction, predict, ridge_announced_flop_per_byte, ridge_flop_per_byte
from rooflens.arch_records import Deployment
from rooflens.records import RooflensError

LLAMA_70B = find_model("meta-llama-3-70b")
H100 = find_hardware("h100-sxm5-80")
NORMS = (2 * 80 + 1) * 8192  # weights that are read and not multiplied


def llama_70b(**changes: Any) -> Prediction:
    return predict(LLAMA_70B, H100, choose_precision(LLAMA_70B), Plan(8, Deployment(tensor=8), **changes))


def test_ridge_of_h100() -> None:
    assert ridge_flop_per_byte(H100, "bf16") == pytest.approx(989e12 / 3.35e12, rel=1e-3)  # 295 FLOP/B
    assert ridge_announced_flop_per_byte(H100, "bf16") is None


def test_ridge_of_rubin_dense_and_announced() -> None:
    rubin = find_hardware("rubin-vr200")
    assert ridge_flop_per_byte(rubin, "nvfp4") == pytest.approx(35e15 / 22e12)  # 1,591 FLOP/B
    assert ridge_announced_flop_per_byte(rubin, "nvfp4") == pytest.approx(50e15 / 22e12)  # 2,273 FLOP/B


def test_70b_batch_1() -> None:
    # 70.55e9 weights of 2 bytes are 141 GB resident; less the gathered embedding 139.0 GB are read at 26.8 TB/s.
    result = llama_70b(batch=1, context_tokens=100)
    assert result.weight_bytes == 2 * 70_553_706_496
    assert result.weight_read_bytes == 2 * (70_553_706_496 - 128256 * 8192)
    assert result.floor_s == pytest.approx(5.2e-3, rel=0.01)
    assert result.tokens_per_s == pytest.approx(190, rel=0.03)
    assert result.mfu == pytest.approx(0.003, abs=0.0005)
    assert result.bound == "memory"
    assert result.mbu == 1.0


def test_70b_batch_64_at_8192_tokens() -> None:
    result = llama_70b(batch=64, context_tokens=8192)
    assert result.kv_bytes_per_token == 2 * 80 * 8 * 128 * 2  # 0.33 MB
    assert result.kv_bytes / 64 == pytest.approx(2.7e9, rel=0.01)
    assert result.kv_bytes == pytest.approx(172e9, rel=0.002)
    assert result.floor_s == pytest.approx(11.6e-3, rel=0.005)
    assert result.tokens_per_s == pytest.approx(5500, rel=0.01)
    assert result.tokens_per_s / llama_70b(batch=1, context_tokens=100).tokens_per_s == pytest.approx(29, abs=0.5)


def test_70b_largest_batch_at_32768_tokens() -> None:
    # (640e9 - 141.1e9) / (32768 x 327680) = 46.46
    result = llama_70b(context_tokens=32768, memory_bytes=640e9, utilization_ratio=1.0)
    assert (result.max_batch, result.capacity_bytes) == (46, 640e9)


def test_worked_to_the_last_byte() -> None:
    # 64 sequences of 8192 tokens on 8 devices: each device reads an eighth of 139,006,066,688 bytes of weights, of
    # 64 x 8192 x 327,680 bytes of KV and of 64 rows of 16 KiB, and writes an eighth of 64 x 327,680; its 50 MiB of
    # L2 may hold what it read a step before.
    result = llama_70b(batch=64, context_tokens=8192)
    moved = (139_006_066_688 + 171_798_691_840 + 64 * 16384 + 20_971_520) / 8 - 52_428_800
    assert result.floor_s == pytest.approx(moved / 3.35e12, rel=1e-12)


def test_prefill_is_compute_bound_and_halves_with_the_causal_mask() -> None:
    result = llama_70b(phase="prefill", context_tokens=8192)
    assert result.bound == "compute"
    linear = 2 * 8192 * (70_553_706_496 - 2 * 128256 * 8192 - NORMS)
    attention = 4 * 80 * 64 * 128 * 8192 * 8193 // 2
    assert result.flops == linear + attention + 2 * 128256 * 8192  # one row of the head
    assert result.floor_s == pytest.approx(result.flops / 8 / (132 * 4096 * 1.98e9))
    assert result.tokens_per_s == pytest.approx(8192 / result.floor_s)
    assert result.kv_read_bytes == 0


def test_more_devices_than_tensor_parallel_are_replicas() -> None:
    precision = choose_precision(LLAMA_70B)
    one = predict(LLAMA_70B, H100, precision, Plan(8, Deployment(tensor=8), batch=32))
    two = predict(LLAMA_70B, H100, precision, Plan(16, Deployment(tensor=8), batch=64))
    assert two.floor_s == one.floor_s
    assert two.mfu == pytest.approx(one.mfu)
    for name in (
        "weight_bytes",
        "weight_read_bytes",
        "kv_bytes",
        "flops",
        "capacity_bytes",
        "max_batch",
        "tokens_per_s",
    ):
        assert getattr(two, name) == pytest.approx(2 * getattr(one, name)), name
    # 65 sequences: the busiest replica has 33 and sets the time, the sums are of 65.
    odd = predict(LLAMA_70B, H100, precision, Plan(16, Deployment(tensor=8), batch=65))
    assert odd.floor_s == predict(LLAMA_70B, H100, precision, Plan(8, Deployment(tensor=8), batch=33)).floor_s
    assert odd.flops == pytest.approx(two.flops * 65 / 64)


def test_quantisation_halves_bytes_and_changes_the_rate() -> None:
    fp8 = predict(LLAMA_70B, H100, choose_precision(LLAMA_70B, "fp8", "fp8"), Plan(8, Deployment(tensor=8)))
    assert fp8.kv_bytes_per_token == 163840
    embeddings = 2 * 128256 * 8192
    assert fp8.weight_bytes == 70_553_706_496 - embeddings - NORMS + 2 * (embeddings + NORMS)


def test_weights_that_do_not_fit() -> None:
    result = predict(LLAMA_70B, H100, choose_precision(LLAMA_70B), Plan(1, Deployment(tensor=1)))
    assert (result.max_batch, result.kv_capacity_bytes) == (0, 0.0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"batch": 0}, "--batch"),
        ({"batch": 10**12}, "--batch"),
        ({"context_tokens": -1}, "--context"),
        ({"context_tokens": 0, "phase": "prefill"}, "--context must be from 1"),
        ({"phase": "train"}, "--phase"),
        ({"utilization_ratio": 0.0}, "--utilization"),
        ({"utilization_ratio": 90.0}, "--utilization"),
        ({"utilization_ratio": float("nan")}, "--utilization"),
        ({"memory_bytes": 0.0}, "--memory"),
        ({"memory_bytes": float("inf")}, "--memory"),
        ({"memory_bytes": float("nan")}, "--memory"),
    ],
)
def test_plans_that_make_no_sense(change: dict[str, Any], message: str) -> None:
    with pytest.raises(RooflensError, match=message):
        llama_70b(**change)


@pytest.mark.parametrize(
    ("devices", "tensor_parallel", "message"),
    [
        (0, 1, "--devices"),
        (8, 0, "--tp"),
        (8, 3, "not a multiple"),
        (10**9, 1, "--devices"),
        (3, 3, "does not divide 64"),
    ],
)
def test_devices_that_make_no_sense(devices: int, tensor_parallel: int, message: str) -> None:
    with pytest.raises(RooflensError, match=message):
        predict(LLAMA_70B, H100, choose_precision(LLAMA_70B), Plan(devices, Deployment(tensor=tensor_parallel)))
