"""What is reachable: one operator after the other with worked arithmetic, relations, and many steps as one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from counted_calls import calls_of
from hypothesis import given, settings
from hypothesis import strategies as st
from made_windows import CONFIG, H100, INFO, info_with, steps

from rooflens.analyzer.arch import arch_from_config, find_model, known_models
from rooflens.analyzer.collectives import all_reduce_seconds
from rooflens.analyzer.efficiency import efficiency_of
from rooflens.analyzer.hardware import find_hardware, known_hardware
from rooflens.analyzer.operators import works
from rooflens.analyzer.point import UniformBatch, point_features
from rooflens.analyzer.precision import choose_precision
from rooflens.analyzer.reachable import (
    Terms,
    at_best,
    at_worst,
    kv_read,
    reachable_point,
    seconds_of,
    terms_of,
    weight_read,
)
from rooflens.analyzer.reachable_steps import CompiledTerms, ReachableSteps, reachable
from rooflens.analyzer.roofline import Roofline
from rooflens.analyzer.sides import sides_of
from rooflens.analyzer.work import Work
from rooflens.arch_records import Deployment
from rooflens.model_records import Efficiency, HardwareSpec
from rooflens.records import RooflensError

BANDWIDTH, PEAK = 3.35e12, 989.4e12
ONE = Deployment()
PLAIN = Efficiency(
    hardware="h100-sxm5-80",
    weight_latency_s=4e-6,
    weight_ratio=0.8,
    kv_latency_s=10e-6,
    kv_ratio=0.5,
    gemm_ratio={"bf16": 0.75, "other": 0.75},
    attention_ratio=0.6,
    launch_s=2e-6,
    eager_launch_s=20e-6,
    all_reduce_s={8: ((1024.0, 5e-6), (1048576.0, 15e-6))},
    kv_reads={"fp8": (12e-6, 0.4), "bf16_window": (9e-6, 0.3)},
    weight_reads={"fp8": (6e-6, 0.7)},
    best={"weight": 0.9, "kv": 0.6, "gemm": 0.9, "attention": 0.7},
)


def efficiency(name: str) -> Efficiency:
    found = efficiency_of(find_hardware(name))
    assert found is not None
    return found


def one_row(row: Work, features: dict[str, float], deployment: Deployment = ONE, **more: float | bool) -> float:
    reached = reachable_point((row,), {"passes": 1.0, **features}, H100, PLAIN, deployment, **more)  # type: ignore[arg-type]
    return 1e6 * reached


MATRIX = Work(
    "mlp", "linear", ("bf16",), calls=2.0, flops={"query_tokens": 2 * 134e6}, weight_bytes={"passes": 268e6},
    activation_bytes={"query_tokens": 1e4},
)  # fmt: skip
CACHE = Work(
    "attention", "attention", ("bf16",), calls=1.0, flops={"causal_pairs": 1e4},
    kv_read_bytes={"context_tokens": 4096.0}, kv_write_bytes={"query_tokens": 4096.0},
)  # fmt: skip


def test_a_matrix_is_read_with_latency_and_a_fraction_of_the_bandwidth() -> None:
    # Two calls: 2 x 4 us, 268 MB + 10 kB at 0.8 x 3.35 TB/s = 100.0 us, 2 launches of 2 us.
    expected = 8 + (268e6 + 1e4) / (0.8 * BANDWIDTH) * 1e6 + 4
    assert one_row(MATRIX, {"query_tokens": 1}) == pytest.approx(expected)
    assert expected == pytest.approx(112, abs=0.1)


def test_many_rows_are_arithmetic_at_the_fraction_that_products_reach() -> None:
    # 1024 tokens x 268 MFLOP = 274 GFLOP at 0.75 x 989.4 TFLOP/s = 370 us, above the reads; 4 us of launches.
    assert one_row(MATRIX, {"query_tokens": 1024}) == pytest.approx(1024 * 268e6 / (0.75 * PEAK) * 1e6 + 4)
    # At 1.5 GHz of 1.83 GHz the peak is 0.82 of the printed one.
    slower = one_row(MATRIX, {"query_tokens": 1024}, clock_ratio=1500 / 1830)
    assert slower == pytest.approx(1024 * 268e6 / (0.75 * PEAK * 1500 / 1830) * 1e6 + 4)
    # No clock makes it exceed what the part can do: 132 x 4096 x 1.98 GHz = 1070.5 TFLOP/s.
    assert one_row(MATRIX, {"query_tokens": 8192}, clock_ratio=9.0) == pytest.approx(
        8192 * 268e6 / 1070.5e6 + 4, rel=1e-3
    )


def test_padding_costs_arithmetic_and_not_cache_reads() -> None:
    padded = {"query_tokens": 600.0, "padded_tokens": 1024.0}
    assert one_row(MATRIX, padded) == pytest.approx(one_row(MATRIX, {"query_tokens": 1024}))
    context = {"context_tokens": 1e5, "causal_pairs": 1e5}
    assert one_row(CACHE, {**padded, **context}) == one_row(CACHE, {"query_tokens": 600.0, **context})


def test_the_cache_is_read_with_its_own_latency_and_fraction() -> None:
    # 10 us, (100 000 + 25) tokens x 4096 B at 0.5 x 3.35 TB/s = 244.6 us, a launch.
    found = one_row(CACHE, {"query_tokens": 25, "context_tokens": 1e5, "causal_pairs": 1e5})
    assert found == pytest.approx(10 + 100025 * 4096 / (0.5 * BANDWIDTH) * 1e6 + 2)


def test_prefill_attention_reaches_its_own_fraction_of_the_16_bit_peak() -> None:
    narrow = replace(CACHE, compute=("fp8", "bf16"))
    for row in (CACHE, narrow):
        found = one_row(row, {"query_tokens": 8192, "context_tokens": 0, "causal_pairs": 8192 * 8193 / 2})
        assert found == pytest.approx(8192 * 8193 / 2 * 1e4 / (0.6 * PEAK) * 1e6 + 2)


def test_formats_and_windows_have_their_own_reads() -> None:
    assert weight_read(MATRIX, PLAIN) == (4e-6, 0.8)
    assert weight_read(replace(MATRIX, compute=("fp8", "bf16")), PLAIN) == (6e-6, 0.7)
    assert weight_read(replace(MATRIX, compute=("nvfp4", "fp8", "bf16")), PLAIN) == (6e-6, 0.7)  # widened to fp8
    windowed = replace(CACHE, kv_read_bytes={"context_tokens@w1024": 4096.0})
    assert kv_read(CACHE, PLAIN) == (10e-6, 0.5)
    assert kv_read(windowed, PLAIN) == (9e-6, 0.3)
    assert kv_read(replace(CACHE, compute=("fp8", "bf16")), PLAIN) == (12e-6, 0.4)
    assert kv_read(replace(windowed, compute=("fp16",)), PLAIN) == (10e-6, 0.5)


def test_expected_experts_are_read_too() -> None:
    experts = replace(MATRIX, expert_bytes={"expert_spread@128:8:1": 1e6})
    spread = {"query_tokens": 1.0, "expert_spread@128:8:1": 40.0}
    assert one_row(experts, spread) == pytest.approx(one_row(MATRIX, spread) + 40e6 / (0.8 * BANDWIDTH) * 1e6)


def test_an_eager_engine_launches_every_kernel_itself() -> None:
    graph, eager = one_row(MATRIX, {"query_tokens": 1}), one_row(MATRIX, {"query_tokens": 1}, eager=True)
    assert eager - graph == pytest.approx(2 * (20 - 2))


def test_the_ends_of_the_interval_lie_as_far_apart_as_the_best_from_the_usual() -> None:
    best, worst = at_best(PLAIN), at_worst(PLAIN)
    assert (best.weight_ratio, best.kv_ratio, best.attention_ratio) == pytest.approx((0.9, 0.6, 0.7))
    assert best.gemm_ratio == pytest.approx({"bf16": 0.9, "other": 0.9})
    # 0.8 x 0.8 / 0.9, 0.5 x 0.5 / 0.6, 0.6 x 0.6 / 0.7, 0.75 x 0.75 / 0.9.
    assert (worst.weight_ratio, worst.kv_ratio, worst.attention_ratio) == pytest.approx(
        (0.7111, 0.4167, 0.5143), abs=1e-4
    )
    assert worst.gemm_ratio["bf16"] == pytest.approx(0.625)
    # Half the latencies at the fast end, the usual ones at the slow one; other formats in proportion to the plain one.
    assert (best.weight_latency_s, best.kv_latency_s) == (2e-6, 5e-6)
    assert (worst.weight_latency_s, worst.kv_latency_s) == (4e-6, 10e-6)
    assert best.weight_reads["fp8"] == pytest.approx((3e-6, 0.7 * 0.9 / 0.8))
    assert best.kv_reads["bf16_window"] == pytest.approx((4.5e-6, 0.3 * 0.6 / 0.5))
    assert worst.kv_reads["fp8"] == pytest.approx((12e-6, 0.4 * 0.5 / 0.6))
    everything = at_best(
        replace(PLAIN, best={"weight": 1.0, "kv": 1.0, "gemm": 1.0, "attention": 1.0}, weight_ratio=0.5)
    )
    assert everything.weight_reads["fp8"][1] == 1.0  # 0.7 x 2 is more than there is
    assert (
        at_best(replace(PLAIN, best={})).weight_ratio
        == PLAIN.weight_ratio
        == at_worst(replace(PLAIN, best={})).weight_ratio
    )


def reduce_row(calls: float, sent: float) -> Work:
    return Work("all_reduce", "link", calls=calls, link_bytes={"query_tokens": sent}, collective="all_reduce")


def test_collectives_follow_their_curve() -> None:
    # 64 tokens x 16 KiB = 1 MiB: 160 calls of 15 us; a ring sends 1.75 times the message.
    row = reduce_row(160, 160 * 1.75 * 16384)
    eight = Deployment(tensor=8)
    assert one_row(row, {"query_tokens": 64}, eight) == pytest.approx(160 * 15)
    # Two passes of half the tokens: 320 calls of 512 KiB, nine tenths of the way from 1 KiB to 1 MiB in a log-log
    # plot: 5^0.1 x 15^0.9 = 13.44 us.
    half = one_row(row, {"query_tokens": 64, "passes": 2.0}, eight)
    assert half == pytest.approx(320 * 5**0.1 * 15**0.9)
    # Two kinds of layers with the same message are one curve.
    rows = (reduce_row(100, 100 * 1.75 * 16384), reduce_row(60, 60 * 1.75 * 16384))
    terms = terms_of(rows, H100, PLAIN, eight)
    assert [each.calls for each in terms.collectives] == [160]
    assert 1e6 * seconds_of(terms, {"passes": 1.0, "padded_tokens": 64.0, "query_tokens": 64.0}) == pytest.approx(2400)


def test_no_curve_is_believed_below_the_links_floor() -> None:
    fast = replace(PLAIN, all_reduce_s={8: ((1024.0, 1e-9), (1048576.0, 1e-9))})
    row = reduce_row(1, 1.75 * 1e6)
    found = reachable_point((row,), {"passes": 1.0, "query_tokens": 1e3}, H100, fast, Deployment(tensor=8))
    assert found >= 1e9 / 450e9  # the switch adds: each byte of the message crosses a link once


def test_llama_8b_on_an_h100() -> None:
    # 32 layers x (4 products x 3.7 us + 14 us of attention + 5 launches x 2.5 us) = 1.32 ms, 15.0 GB of weights at
    # 0.877 x 3.35 TB/s = 5.11 ms, 1000 tokens of KV: 6.5 ms a token, where the bytes alone take 4.5 ms.
    arch = arch_from_config(CONFIG, "llama")
    rows = works(arch, choose_precision(arch), ONE)
    reached = efficiency("h100-sxm5-80")
    names = terms_of(rows, H100, reached, ONE).names
    features = point_features(UniformBatch(1, 1000), {*names, "query_tokens"})
    assert reachable_point(rows, features, H100, reached, ONE) == pytest.approx(6.5e-3, rel=0.02)


def test_a_llama_70b_over_eight_h100_pays_for_its_all_reduces() -> None:
    config = {
        **CONFIG,
        "hidden_size": 8192,
        "num_hidden_layers": 80,
        "num_attention_heads": 64,
        "intermediate_size": 28672,
    }
    arch = arch_from_config(config, "llama-70b")
    eight, reached = Deployment(tensor=8), efficiency("h100-sxm5-80")
    rows = works(arch, choose_precision(arch, "fp8"), eight)
    linked = tuple(row for row in rows if row.link_bytes)
    features = point_features(UniformBatch(64, 1000), {*terms_of(rows, H100, reached, eight).names, "query_tokens"})
    link_s = reachable_point(linked, features, H100, reached, eight)
    assert link_s == pytest.approx(160 * all_reduce_seconds(reached, H100, 8, 64 * 8192 * 2))
    assert link_s == pytest.approx(2.4e-3, rel=0.02)


MODELS = [str(row.get("name") or row["id"]) for row in known_models()]


def plan(
    name: str, hardware: HardwareSpec, weights: str | None, tensor: int
) -> tuple[tuple[Work, ...], Deployment] | None:
    arch = find_model(name)
    deployment = Deployment(tensor=tensor if hardware.link_bandwidth_bytes_per_s else 1)
    try:
        return works(arch, choose_precision(arch, weights), deployment), deployment
    except RooflensError:
        return None


@settings(max_examples=150, deadline=None)
@given(
    name=st.sampled_from(MODELS),
    device=st.sampled_from(sorted(known_hardware())),
    weights=st.sampled_from([None, "bf16", "fp8", "int4", "nvfp4"]),
    tensor=st.sampled_from([1, 2, 4, 8, 16]),
    sequences=st.integers(1, 2000),
    context=st.integers(0, 200_000),
    query=st.sampled_from([1, 1, 4, 700]),
    clock=st.floats(0.3, 3),
    eager=st.booleans(),
)
def test_never_below_the_floor_and_never_slower_on_a_faster_memory(
    name: str, device: str, weights: str | None, tensor: int, sequences: int, context: int, query: int, clock: float,
    eager: bool,
) -> None:  # fmt: skip
    hardware = find_hardware(device)
    made = plan(name, hardware, weights, tensor)
    if made is None:
        return
    rows, deployment = made
    reached = efficiency(device)
    terms = terms_of(rows, hardware, reached, deployment, clock, eager)
    batch = UniformBatch(sequences, context, query, prefill=query > 4)
    features = point_features(batch, {*terms.names, "query_tokens", *(n for r in rows for n in names(r))})
    found = reachable_point(rows, features, hardware, reached, deployment, clock, eager)
    assert found >= sides_of(rows, features, hardware, deployment.tensor).floor_s
    assert found == pytest.approx(seconds_of(terms, features))
    twice = replace(hardware, memory_bandwidth_bytes_per_s=2 * hardware.memory_bandwidth_bytes_per_s)
    assert reachable_point(rows, features, twice, reached, deployment, clock, eager) <= found
    ends = [
        reachable_point(rows, features, hardware, end(reached), deployment, clock, eager) for end in (at_best, at_worst)
    ]
    assert ends[0] <= found * (1 + 1e-12)
    assert found <= ends[1] * (1 + 1e-12)
    matrix = np.array([[features[n]] * 3 for n in terms.names])
    np.testing.assert_allclose(CompiledTerms(terms, terms.names).seconds(matrix), [found] * 3, rtol=1e-9)


def names(row: Work) -> set[str]:
    parts = (row.flops, row.expert_bytes, row.activation_bytes, row.link_bytes, *row.memory_parts())
    return {name for part in parts for name in part}


def test_many_steps_agree_with_one_point() -> None:
    roofline = Roofline.of(info_with(tensor_parallel=8), H100)
    table = steps(5, [1, 8, 32, 200, 7], 1000, [0, 0, 0, 0, 500])
    found = reachable(roofline, table, roofline.analyse(table))
    assert found is not None
    reached = efficiency("h100-sxm5-80")
    for place, batch in enumerate((1, 8, 32, 200)):
        terms: Terms = terms_of(roofline.rows, H100, reached, roofline.deployment)
        features = point_features(UniformBatch(batch, 1000), {*terms.names, "query_tokens"})
        point = reachable_point(roofline.rows, features, H100, reached, roofline.deployment)
        assert found.reachable_s[place] == pytest.approx(point, rel=1e-9)
    assert (found.fast_s < found.reachable_s).all()
    assert (found.reachable_s < found.slow_s).all()


def test_two_thirds_of_the_bandwidth_at_every_context_is_beyond_what_kernels_spread_over() -> None:
    # ashalliants/ninfer-3090 pull request 36: Qwen3.5-27B in int4 with int8 KV on an RTX 3090, one sequence, 36.15,
    # 35.11 and 33.86 tokens/s at 4k, 16k and 32k: 66 % of the bandwidth. Well tuned kernels reach 75 to 85 %.
    arch = find_model("qwen3.5-27b")
    roofline = Roofline(arch, find_hardware("rtx-3090"), choose_precision(arch, "int4-g32", "int8"))
    table = steps(3, 1, [4000, 16000, 32000], 0, roofline=roofline)
    analysis = roofline.analyse(table)
    found = reachable(roofline, table, analysis)
    assert found is not None
    observed_s = 1 / np.array([36.15, 35.11, 33.86])
    assert found.reachable_s / analysis.floor_s == pytest.approx(1.33, abs=0.02)  # 75 % of the bandwidth
    assert observed_s / found.reachable_s == pytest.approx(1.17, abs=0.03)
    assert (observed_s > 1.05 * found.slow_s).all()


def test_many_steps_are_products_of_matrices() -> None:
    roofline = Roofline.of(INFO, H100)
    compiled = ReachableSteps(roofline, efficiency("h100-sxm5-80"))
    features = np.random.default_rng(1).uniform(1, 1e4, (len(compiled.names), 8192))
    assert calls_of(lambda: compiled.seconds(features)) < 1000  # a Python loop makes some for each step
