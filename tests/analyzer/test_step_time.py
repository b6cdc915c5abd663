"""One step of a deployment from rows written by hand, so that every second can be worked out."""

from __future__ import annotations

from dataclasses import replace

import pytest
from made_archs import sparse, windowed

from rooflens.analyzer.arch import find_model
from rooflens.analyzer.plan import Plan
from rooflens.analyzer.sides import Sides, batch_of, cached_bytes, sides_of
from rooflens.analyzer.step_time import EXPECTED, REACHABLE, Compiled
from rooflens.analyzer.work import Work
from rooflens.arch_records import Deployment
from rooflens.model_records import Efficiency, HardwareSpec

# 1 GB/s, 1 Tflop/s, a link of 100 MB/s.
MADE = HardwareSpec(
    "made", "made", "nobody", 1 << 40, 1e9, {"bf16": 1e12}, {"bf16": 1e12}, link_bandwidth_bytes_per_s=1e8
)
# No latencies: half the bandwidth, a quarter of the peak, 10 us a kernel in a graph and 40 us outside of one.
HALF = Efficiency("made", 0.0, 0.5, 0.0, 0.5, {"other": 0.25}, 0.25, 10e-6, 40e-6)
LLAMA = find_model("meta-llama-3-8b")


def row(weight_bytes: float = 0.0, flops_per_token: float = 0.0, **more: float) -> Work:
    flops = {"query_tokens": flops_per_token} if flops_per_token else {}
    return Work("made", "mlp", ("bf16",), 1.0, flops, {"passes": weight_bytes}, **more)  # type: ignore[arg-type]


def staged(*stages: Work, plan: Plan) -> Compiled:
    return Compiled.staged(LLAMA, MADE, tuple((one,) for one in stages), plan, HALF)


def pipeline(stages: int, **more: int | str) -> Plan:
    return Plan(stages, Deployment(pipeline=stages), **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("slow", [0, 1, 2])
def test_the_slowest_stage_counts_wherever_it_stands(slow: int) -> None:
    # Stages of 10 MB but one of 60: with three micro-batches in flight each stage reads its weights three times a step.
    rows = [row(60e6 if place == slow else 10e6) for place in range(3)]
    plan = pipeline(3, batch=300)
    # One micro-batch goes through all stages: 80 MB at 1 GB/s. In two the slow stage works 2 x 60 ms, so one it is.
    cycle = staged(*rows, plan=plan).least(plan).cycle
    assert (cycle.micro_batches, cycle.sides.floor_s) == (1, pytest.approx(80e-3))
    # At half the bandwidth and three kernels of 10 us in turn.
    assert staged(*rows, plan=plan).least(plan).reachable == (pytest.approx(160e-3 + 30e-6), 1)
    # Of a prompt only the slow stage is the bound.
    prompt = pipeline(3, phase="prefill")
    cycle = staged(*rows, plan=prompt).least(prompt).cycle
    assert (cycle.micro_batches, cycle.sides.floor_s) == (1, pytest.approx(60e-3))
    assert staged(*rows, plan=prompt).least(prompt).reachable == (pytest.approx(120e-3 + 10e-6), 1)


def test_micro_batches_keep_stages_busy_with_arithmetic() -> None:
    # 1 Gflop a token and stage, hardly any weights: 300 tokens take each of three stages 0.3 s, in thirds 3 x 0.1.
    rows = [row(1.0 + place, 1e9) for place in range(3)]
    plan = pipeline(3, batch=300)
    found = staged(*rows, plan=plan)
    assert found.least(plan).cycle.sides.floor_s == pytest.approx(0.3)
    assert found.least(plan).cycle.micro_batches == 3
    # At a quarter of the peak, one kernel of 10 us in each of three micro-batches.
    assert found.least(plan).reachable == (pytest.approx(1.2 + 30e-6), 3)
    # Two sequences make two micro-batches at most, one sequence one: it waits for every stage.
    for batch, floor_s in ((2, 3e-3), (1, 3e-3)):
        few = replace(plan, batch=batch)
        assert found.least(few).cycle.sides.floor_s == pytest.approx(floor_s)
        assert found.least(few).cycle.micro_batches == batch


def test_each_figure_takes_the_number_of_micro_batches_that_is_best_for_it() -> None:
    # Two stages of 1 MB and 1.5 Gflop a token, whose passes are expected to read 40 and 20 MB of experts beside it.
    rows = (
        row(1e6, 1.5e9, expert_bytes={"passes": 40e6}),  # type: ignore[arg-type]
        row(1e6, 1.5e9, expert_bytes={"passes": 20e6}),  # type: ignore[arg-type]
    )
    plan = pipeline(2, batch=20)
    found = staged(*rows, plan=plan).least(plan)
    # Arithmetic of 20 tokens in two stages: 60 ms one after the other, 30 ms where halves keep both busy.
    assert (found.cycle.sides.floor_s, found.cycle.micro_batches) == (pytest.approx(30e-3), 2)
    # Experts: 41 + 21 ms in one pass through both, 2 x 41 ms where the first stage reads its own twice.
    assert found.expected == (pytest.approx(62e-3), 1)
    # At a half and a quarter: max(82, 120) + max(42, 120) ms in one pass, 2 x max(82, 60) in two.
    assert found.reachable == (pytest.approx(164e-3 + 20e-6), 2)
    time = staged(*rows, plan=plan).time(plan)
    assert (time.seconds, time.micro_batches, time.basis) == (found.reachable[0], 2, REACHABLE)
    plain = replace(staged(*rows, plan=plan), efficiency=None, stage_terms=(), whole_terms=None)
    assert plain.least(plan).reachable is None
    assert (plain.time(plan).seconds, plain.time(plan).micro_batches) == (pytest.approx(62e-3), 1)


def test_nothing_is_reachable_before_it_is_expected() -> None:
    fast = replace(HALF, gemm_ratio={"other": 1.0}, weight_ratio=1.0, launch_s=0.0)
    plan = Plan(2, Deployment(tensor=2), batch=10)
    rows = (row(1e6), Work("all_reduce", "link", link_bytes={"query_tokens": 1e5}, collective="all_reduce"))
    found = Compiled.staged(LLAMA, MADE, (rows,), plan, fast).least(plan)
    # The collective says of no call how it is launched, so the tables leave it out: 1 ms of reading, 10 ms of link.
    assert found.cycle.sides.floor_s == pytest.approx(10e-3)
    assert found.reachable == found.expected == (pytest.approx(10e-3), 1)


def test_a_single_stage_is_no_pipeline() -> None:
    plan = Plan(batch=4)
    found = staged(row(5e6, 1e9), plan=plan)
    cycle = found.least(plan).cycle
    # 5 ms of reading, 4 ms of arithmetic.
    assert (cycle.sides.floor_s, cycle.sides.serial_s) == (pytest.approx(5e-3), pytest.approx(5e-3))
    assert (cycle.micro_batches, cycle.passes, cycle.bound) == (1, 1, "memory")
    # 10 ms of reading at half, 16 ms of arithmetic at a quarter.
    time = found.time(plan)
    assert (time.seconds, time.basis) == (pytest.approx(16e-3 + 10e-6), REACHABLE)
    assert (time.floor_s, time.bound, time.micro_batches) == (pytest.approx(5e-3), "memory", 1)


def test_an_eager_engine_launches_at_its_own_cost() -> None:
    plan = Plan(batch=4, eager=True)
    assert staged(row(5e6), plan=plan).time(plan).seconds == pytest.approx(10e-3 + 40e-6)


def test_without_kernels_the_time_is_the_expected_one() -> None:
    plan = Plan()
    rows = ((row(5e6, expert_bytes={"passes": 3e6}),),)  # type: ignore[arg-type]
    found = Compiled.staged(LLAMA, replace(MADE, origin="measured"), rows, plan)
    assert found.least(plan).reachable is None
    assert found.efficiency is None
    time = found.time(plan)
    assert (time.seconds, time.basis) == (pytest.approx(8e-3), EXPECTED)
    assert time.floor_s == pytest.approx(5e-3)


def test_the_passes_of_a_cycle_are_its_micro_batches_where_one_stage_is_the_bound() -> None:
    # Arithmetic binds: each stage works three times. With weights alone, every stage works once in turn.
    plan = pipeline(3, batch=300)
    busy = staged(*(row(1.0 + place, 1e9 + place) for place in range(3)), plan=plan).least(plan).cycle
    assert busy.passes == 3
    assert len(busy.rows) == 1
    waiting = staged(*(row(10e6 + place) for place in range(3)), plan=plan).least(plan).cycle
    assert waiting.passes == 1
    assert len(waiting.rows) == 3


def test_sides_of_two_rows_by_hand() -> None:
    rows = (
        row(4e6, 1e9, kv_read_bytes={"context_tokens": 1000.0}, expert_bytes={"passes": 1e6}),  # type: ignore[arg-type]
        row(1e6, 7e9),
        Work("all_reduce", "link", (), 1.0, link_bytes={"query_tokens": 2e6}, collective="all_reduce"),
    )
    features = {"passes": 1.0, "query_tokens": 1.0, "context_tokens": 2000.0}
    # 4 MB and 2 MB of cache, then 1 MB; 1 and 7 ms of arithmetic: 6 ms for the first, 7 for the second.
    found = sides_of(rows, features, replace(MADE, cache_bytes=500_000), tensor=2)
    assert found.uncached_s == pytest.approx(7e-3)
    assert found.memory_s == pytest.approx(6.5e-3)
    assert found.expected_s == pytest.approx(7.5e-3)
    assert found.compute_s == pytest.approx(8e-3)
    assert found.serial_s == pytest.approx(13e-3)
    # Each of two devices sends 2 MB over 100 MB/s, all of which a link that cannot add needs.
    assert found.link_s == found.link_floor_s == pytest.approx(20e-3)
    assert found.floor_s == found.expected_floor_s == pytest.approx(20e-3)
    alone = sides_of(rows[:2], features, MADE, tensor=1)
    assert (alone.floor_s, alone.expected_floor_s) == (pytest.approx(8e-3), pytest.approx(8e-3))
    assert (alone.memory_s, alone.link_s) == (alone.uncached_s, 0.0)
    unknown = sides_of(rows[:2], features, replace(MADE, ceiling_flops_per_s={}, peak_flops_per_s={}), tensor=1)
    assert (unknown.compute_s, unknown.serial_s) == (0.0, pytest.approx(7e-3))


def test_what_the_last_cache_may_keep_ends_at_what_is_read() -> None:
    rows, features = (row(4e6),), {"passes": 1.0}
    assert cached_bytes(rows, features, MADE, 1) == 0.0
    assert cached_bytes(rows, features, replace(MADE, cache_bytes=1_000_000), 1) == 1e6
    # Each of three stages has one; together they hold no more than there is.
    assert cached_bytes(rows, features, replace(MADE, cache_bytes=1_000_000), 3) == 3e6
    assert cached_bytes(rows, features, replace(MADE, cache_bytes=9_000_000), 3) == 4e6
    # Two steps' worth of passes may keep it twice.
    assert cached_bytes(rows, {"passes": 2.0}, replace(MADE, cache_bytes=1_000_000), 1) == 2e6


def test_several_passes_are_several_times_every_side() -> None:
    one = Sides(*(float(side) for side in range(1, 8)))
    assert one.times(3) == Sides(*(3.0 * side for side in range(1, 8)))


def test_a_rank_uses_no_more_adapters_than_it_has_sequences() -> None:
    plan = Plan(batch=4, lora_rank=16, lora_adapters=3)
    assert [batch_of(LLAMA, plan, sequences).lora_adapters for sequences in (0.5, 1, 1.5, 2, 3, 8)] == [
        1,
        1,
        2,
        2,
        3,
        3,
    ]
    assert batch_of(LLAMA, replace(plan, lora_rank=None), 4).lora_adapters == 0
    # Of a shared prefix no more than the cache holds: a prompt that computes all of it shares none.
    assert batch_of(LLAMA, Plan(context_tokens=100, shared_prefix_tokens=80), 1).shared_tokens == 80
    prompt = Plan(context_tokens=100, shared_prefix_tokens=80, cached_tokens=50, phase="prefill")
    assert batch_of(LLAMA, prompt, 1).shared_tokens == 50
    assert batch_of(sparse(), plan, 1).chosen == batch_of(windowed(), plan, 1).chosen == frozenset()
