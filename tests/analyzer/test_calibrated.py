"""A calibration put to use: the roof of a CPU, what kernels reach, and where both enter the roofline."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from made_calibrations import (
    CPU_IDENTITY,
    H100_IDENTITY,
    MIB,
    cpu_calibration,
    h100_calibration,
    measured,
    reads_by,
)
from made_windows import H100, INFO, info_with, steps

from rooflens.analyzer.calibrated import efficiency_from, fits, hardware_of, why_unsteady
from rooflens.analyzer.ceilings import ceilings_of
from rooflens.analyzer.efficiency import efficiency_of
from rooflens.analyzer.hardware import find_hardware
from rooflens.analyzer.reachable_steps import reachable
from rooflens.analyzer.read_fit import read_fit
from rooflens.analyzer.roofline import Roofline, analyse_engine
from rooflens.calibration_records import Calibration, Measured
from rooflens.model_records import Efficiency, HardwareSpec
from rooflens.records import RooflensError


def calibrated(calibration: Calibration, hardware: HardwareSpec) -> Efficiency:
    found = efficiency_from(calibration, hardware)
    assert found is not None
    return found


@pytest.mark.parametrize(("latency_s", "ratio"), [(5e-6, 0.8), (1e-7, 0.3), (2e-4, 0.95), (14e-6, 0.05)])
def test_a_fit_finds_the_law_that_made_the_reads(latency_s: float, ratio: float) -> None:
    size = np.geomspace(1e5, 1e10, 20)
    found = read_fit(size.tolist(), (latency_s + size / (ratio * 3e12)).tolist(), 3e12)
    assert found.latency_s == pytest.approx(latency_s, rel=1e-4)
    assert found.ratio == pytest.approx(ratio, rel=1e-4)
    assert found.miss_ratio < 1e-6


def test_one_odd_read_of_twenty_moves_a_fit_by_little() -> None:
    size = np.geomspace(1e6, 1e10, 20)
    seconds = 5e-6 + size / (0.8 * 3e12)
    seconds[10] *= 10
    found = read_fit(size.tolist(), seconds.tolist(), 3e12)
    assert found.ratio == pytest.approx(0.8, rel=0.02)
    assert found.latency_s == pytest.approx(5e-6, rel=0.1)


def test_one_size_has_no_latency_that_could_be_told_from_its_bytes() -> None:
    found = read_fit([1e9, 1e9, 1e9], [0.1, 0.1, 0.3], 2e10)
    assert (found.latency_s, found.ratio) == (0.0, pytest.approx(0.5))


@pytest.mark.parametrize(("sizes", "seconds"), [([], []), ([1e6, 0.0], [1.0, 1.0]), ([1e6], [float("nan")])])
def test_a_fit_refuses_what_was_not_measured(sizes: list[float], seconds: list[float]) -> None:
    with pytest.raises(RooflensError, match="positive bytes and seconds"):
        read_fit(sizes, seconds, 1e12)


EDGE = 100 / (128 / 25e9 - 28 * (128 / 25e9 - 32 / 70e9) / 96)


# A pass of 200 MiB reads no faster than 128 MiB do; beyond the largest size it is that of the largest. Plain reads were
# faster than the matrix: the roof is the faster. One of 100 MiB saves on 128 MiB at most what memory takes for 28 MiB,
# by the steeper slope of 32 to 128 MiB.
@pytest.mark.parametrize(
    ("read_bytes", "bytes_per_s"),
    [(200 * MIB, 25e9), (128 * MIB, 25e9), (100 * MIB, EDGE), (MIB, 90e9), (512 * MIB, 23e9), (9000 * MIB, 23e9)],
)
def test_the_roof_of_a_cpu_is_the_best_rate_for_the_bytes_of_a_pass(read_bytes: int, bytes_per_s: float) -> None:
    found = hardware_of(cpu_calibration(), read_bytes)
    assert (found.id, found.origin) == ("this-cpu", "measured")
    assert found.memory_bandwidth_bytes_per_s == pytest.approx(bytes_per_s)
    assert found.cache_bytes is None
    assert found.ceiling_flops_per_s == found.peak_flops_per_s == {"fp32": 500e9}
    assert "2026-09-21" in found.source


def test_without_the_bytes_of_a_pass_the_roof_is_that_of_memory_and_caches_are_excepted() -> None:
    found = hardware_of(cpu_calibration())
    assert found.memory_bandwidth_bytes_per_s == 25e9
    assert found.cache_bytes == 32 * MIB
    unknown = hardware_of(cpu_calibration(identity=replace(CPU_IDENTITY, cache_bytes=None)))
    assert unknown.memory_bandwidth_bytes_per_s == 23e9  # of the largest read


def test_what_disturbed_a_calibration_disturbs_its_roof() -> None:
    assert hardware_of(cpu_calibration(flags=("others used the machine (load 9)",)), MIB).disturbed
    assert not hardware_of(cpu_calibration(), MIB).disturbed


def test_no_roof_of_another_device_or_of_nothing() -> None:
    with pytest.raises(RooflensError, match="NVIDIA H100 80GB HBM3, not of a CPU"):
        hardware_of(h100_calibration())
    with pytest.raises(RooflensError, match="run 'rooflens calibrate' again"):
        hardware_of(cpu_calibration(reads=(), copies=()))


def test_torch_says_what_its_kernels_reach_and_is_no_roof_of_a_cpu() -> None:
    through_torch = cpu_calibration(versions={"torch": "2.13.0"})
    with pytest.raises(RooflensError, match="through torch, which NumPy beats"):
        hardware_of(through_torch)
    roof = hardware_of(cpu_calibration(), 128 * MIB)
    assert calibrated(through_torch, roof).weight_ratio == pytest.approx(20 / 25)
    assert hardware_of(cpu_calibration(versions={"torch": "2.13.0", "numpy": "2.0.0"}))  # NumPy's, with torch beside


def test_a_read_that_multiplies_faster_than_the_best_product_is_the_ceiling() -> None:
    slow = cpu_calibration(products={"fp32": measured(10e9, 20e9), "fp64": measured(5e9, 10e9)})
    roof = hardware_of(slow)
    assert roof.ceiling_flops_per_s == {"fp32": 45e9, "fp64": 10e9}  # 90 GB/s at 2 flop for 4 bytes
    assert roof.peak_flops_per_s == roof.ceiling_flops_per_s
    assert hardware_of(cpu_calibration()).ceiling_flops_per_s == {"fp32": 500e9}


def test_a_calibration_is_of_the_device_that_its_driver_names() -> None:
    gpu, cpu = H100_IDENTITY, CPU_IDENTITY
    assert fits(gpu, H100)
    assert fits(gpu, replace(H100, id="mine"))  # a user's own file that names the product
    assert not fits(gpu, find_hardware("h200-sxm-141"))
    assert not fits(gpu, hardware_of(cpu_calibration()))
    assert fits(cpu, hardware_of(cpu_calibration()))
    assert not fits(cpu, H100)
    cut = replace(gpu, name="NVIDIA H100 80GB HBM3 MIG 3g.40gb")
    assert fits(cut, find_hardware("h100-sxm5-80-mig-3g.40gb"))
    assert not fits(cut, H100)
    assert not fits(replace(gpu, name="nothing known"), H100)


def test_a_device_reaches_what_was_measured_on_it() -> None:
    found, published = calibrated(h100_calibration(), H100), efficiency_of(H100)
    assert published is not None
    assert (found.origin, found.hardware) == ("calibrated", "h100-sxm5-80")
    assert (found.weight_latency_s, found.weight_ratio) == (pytest.approx(5e-6, rel=1e-3), pytest.approx(0.8, rel=1e-3))
    assert (found.kv_latency_s, found.kv_ratio) == (pytest.approx(15e-6, rel=1e-3), pytest.approx(0.6, rel=1e-3))
    assert found.gemm_ratio["bf16"] == pytest.approx(0.7)
    assert (found.launch_s, found.eager_launch_s) == (1.5e-6, 8e-6)
    assert found.best["gemm"] == pytest.approx(0.75)
    # What was not measured is as published, formats as far from bf16 as they were.
    assert found.attention_ratio == published.attention_ratio
    share = published.gemm_ratio["fp8"] / published.gemm_ratio["bf16"]
    assert found.gemm_ratio["fp8"] == pytest.approx(share * 0.7)
    fp8, plain = published.weight_reads["fp8"], published.weight_reads["bf16"]
    assert found.weight_reads["fp8"] == (
        pytest.approx(5e-6 * fp8[0] / plain[0], rel=1e-3),
        pytest.approx(0.8 * fp8[1] / plain[1], rel=1e-3),
    )
    assert "bf16" not in found.weight_reads
    assert "fp8" in found.source
    assert "prefill attention, as published of h100-sxm5-80" in found.source


def test_an_all_reduce_in_a_graph_keeps_the_published_latency_and_takes_the_measured_bandwidth() -> None:
    found, published = calibrated(h100_calibration(), H100), efficiency_of(H100)
    assert published is not None
    assert found.eager_all_reduce_s[2] == ((8192.0, 20e-6), (8 * MIB, 60e-6))
    inside = found.all_reduce_s[2]
    assert inside[0][1] == pytest.approx(published.all_reduce_s[2][0][1])
    assert inside[1][1] - inside[0][1] == pytest.approx(40e-6)
    assert found.all_reduce_s[8] == published.all_reduce_s[8]
    # Faster than published: as it was measured.
    fast = calibrated(h100_calibration(all_reduce_s={2: ((8192, measured(2e-6)),)}), H100)
    assert fast.all_reduce_s[2] == ((8192.0, 2e-6),)


def test_what_a_calibration_lacks_is_said_and_as_published() -> None:
    bare = h100_calibration(attention=(), products={}, launch_s=None, graph_launch_s=None, all_reduce_s={})
    found, published = calibrated(bare, H100), efficiency_of(H100)
    assert published is not None
    assert (found.kv_latency_s, found.kv_ratio, found.launch_s) == (
        published.kv_latency_s, published.kv_ratio, published.launch_s,
    )  # fmt: skip
    assert found.gemm_ratio == published.gemm_ratio
    for what in ("decode attention", "products", "launches", "launches in a graph", "all-reduces"):
        assert what in found.source


def test_a_read_faster_than_the_datasheet_counts_as_the_datasheet() -> None:
    fast = calibrated(h100_calibration(reads=reads_by(1e-6, 2 * 3.35e12, (64 * MIB, 1024 * MIB))), H100)
    assert fast.weight_ratio == fast.best["weight"] == 1.0


@pytest.mark.parametrize("calibration", [None, cpu_calibration(), h100_calibration(reads=())])
def test_without_a_calibration_of_such_a_device_it_is_as_published(calibration: Calibration | None) -> None:
    assert efficiency_from(calibration, H100) == efficiency_of(H100)


def test_a_cpu_reaches_a_share_of_its_best_and_a_call_costs_what_it_was_measured_to() -> None:
    calibration = cpu_calibration()
    found = calibrated(calibration, hardware_of(calibration, 256 * MIB))
    # Of 25 GB/s at best the matrices of 128 and 512 MiB usually reach 20 and 19; 256 MiB lie in the middle.
    assert (found.weight_latency_s, found.weight_ratio) == (0.0, pytest.approx((20 * 19) ** 0.5 / 25))
    assert found.best["weight"] == pytest.approx((24 * 23) ** 0.5 / 25)
    assert (found.kv_latency_s, found.kv_ratio) == (pytest.approx(20e-6, rel=1e-3), pytest.approx(0.4, rel=1e-3))
    assert found.gemm_ratio == {"fp32": pytest.approx(0.8), "other": pytest.approx(0.8)}
    assert found.launch_s == found.eager_launch_s == pytest.approx(20e-6)  # ten calls an operator
    assert "left neutral" in found.source
    for read_bytes, ratio in ((16 * MIB, 80 / 90), (MIB, 80 / 90), (9000 * MIB, 19 / 23)):
        there = calibrated(calibration, hardware_of(calibration, read_bytes))
        assert there.weight_ratio == pytest.approx(ratio)
    memory = calibrated(calibration, hardware_of(calibration))
    assert memory.weight_ratio == pytest.approx(20 / 25)  # at four caches


def test_what_disturbed_a_calibration_is_told_with_what_it_makes_reachable() -> None:
    found = calibrated(h100_calibration(flags=("others used the machine: 2 processes",)), H100)
    assert found.source.endswith("; others used the machine meanwhile")
    assert "others" not in calibrated(h100_calibration(), H100).source


def unsteady(rate: float, spread_ratio: float) -> Measured:
    return measured(rate, 1.2 * rate, spread_ratio)


OTHERS = ("others used the machine: cc1",)
UNSTEADY_CPU: list[tuple[dict[str, Any], str]] = [
    ({"reads": ((128 * MIB, measured(20e9)), (512 * MIB, unsteady(19e9, 1.01)))}, "weights by 101%"),
    ({"products": {"fp32": unsteady(400e9, 3.0)}}, "products in fp32 by 300%"),
    ({"launch_s": unsteady(2e-6, 1.2)}, "launches by 120%"),
    ({"attention": ((MIB, unsteady(10e9, 1.5)), (8 * MIB, unsteady(10e9, 2.0)))}, "decode attention by 200%"),
    ({"products": {"fp32": measured(40e9, 200e9, 0.3)}}, "products in fp32 by 400%"),
    ({"launch_s": measured(10e-6, 2e-6, 0.3)}, "launches by 400%"),
    ({"launch_s": unsteady(2e-6, 0.6), "flags": OTHERS}, "launches by 60%"),
]


@pytest.mark.parametrize(("changes", "words"), UNSTEADY_CPU)
def test_what_is_usual_is_not_known_where_runs_lie_too_far_apart(changes: dict[str, Any], words: str) -> None:
    calibration = cpu_calibration(**changes)
    roof = hardware_of(calibration, 256 * MIB)
    assert efficiency_from(calibration, roof) is None
    why = why_unsteady(calibration, roof)
    assert why is not None
    assert words in why
    assert why.endswith(": calibrate again in quiet")
    assert ("beside others" in why) == ("flags" in changes)
    assert roof.flags[-1] == why
    # The best that was reached stays a floor.
    assert Roofline.of(info_with(device="cpu"), roof, calibration).reached is None
    assert roof.memory_bandwidth_bytes_per_s > 0
    assert {one.used_for for one in ceilings_of(roof, calibration) if one.origin == "calibrated"} == {()}


def test_only_the_reads_beside_a_pass_must_be_steady() -> None:
    reads = ((MIB, unsteady(90e9, 5.0)), (2 * MIB, unsteady(90e9, 5.0)), (4 * MIB, unsteady(90e9, 5.0)))
    reads = (*reads, (128 * MIB, measured(20e9)), (512 * MIB, measured(19e9)))
    calibration = cpu_calibration(reads=reads, products={"fp32": measured(4e11), "fp64": unsteady(2e11, 3.0)})
    roof = hardware_of(calibration, 256 * MIB)
    assert calibrated(calibration, roof).weight_ratio == pytest.approx(1e9 * (20 * 19) ** 0.5 / 25e9)
    assert why_unsteady(calibration, roof) is None
    assert why_unsteady(calibration, hardware_of(calibration, 3 * MIB)) is not None


def test_a_steady_calibration_beside_others_still_holds() -> None:
    calibration = cpu_calibration(flags=OTHERS, launch_s=unsteady(2e-6, 0.49))
    assert efficiency_from(calibration, hardware_of(calibration, 256 * MIB)) is not None


def test_a_roof_tells_of_its_measurement_and_not_of_what_else_was_left_out() -> None:
    flags = (
        "plain reads of 1 MiB are not known: that takes too long for the time given",
        "the threads of NumPy were limited",
    )
    assert hardware_of(cpu_calibration(flags=flags), MIB).flags == flags[1:]


def test_of_a_device_what_is_unsteady_is_as_published_and_the_rest_as_calibrated() -> None:
    wide = tuple((size, unsteady(each.median, 1.5)) for size, each in h100_calibration().reads)
    products = {"bf16": unsteady(1e14, 2.0), "fp16": measured(0.6 * 989.4e12)}
    one = h100_calibration(reads=wide, products=products, launch_s=unsteady(8e-6, 4.0))
    found, published = calibrated(one, H100), efficiency_of(H100)
    assert published is not None
    assert found.origin == "calibrated"
    assert (found.weight_latency_s, found.weight_ratio) == (published.weight_latency_s, published.weight_ratio)
    assert found.eager_launch_s == published.eager_launch_s
    assert found.kv_ratio == pytest.approx(0.6, rel=1e-3)
    assert found.gemm_ratio["fp16"] == pytest.approx(0.6)
    told = "weights by 150%, products in bf16 by 200%, launches by 400%"
    assert f"; runs too far apart, as published of h100-sxm5-80 too: {told}" in found.source
    shown = {(each.origin, each.number_format): each.used_for for each in ceilings_of(H100, one)}
    assert shown["calibrated", None] == shown["calibrated", "bf16"] == ()
    assert "reachable" in shown["datasheet", None]
    assert shown["calibrated", "fp16"] == ("reachable",)


def test_one_unsteady_size_of_a_device_leaves_the_others() -> None:
    reads = h100_calibration().reads
    odd = ((reads[0][0], unsteady(1e9, 9.0)), *reads[1:])
    found = calibrated(h100_calibration(reads=odd), H100)
    assert found.weight_ratio == pytest.approx(0.8, rel=1e-3)
    assert "runs too far apart" not in found.source


def test_a_measured_roof_without_a_calibration_reaches_nothing_known() -> None:
    hardware = hardware_of(cpu_calibration(), 200 * MIB)
    assert efficiency_from(None, hardware) is None
    assert Roofline.of(INFO, hardware).reached is None


def test_reachable_is_known_on_a_cpu_that_was_calibrated() -> None:
    calibration = cpu_calibration()
    hardware = hardware_of(calibration, 200 * MIB)
    table, info = steps(20), info_with(device="cpu", graph_mode="NONE", weight_dtype="float32")
    without, beside = analyse_engine(table, info, hardware), analyse_engine(table, info, hardware, calibration)
    assert without.reachable_s is None
    assert beside.reachable_s is not None
    assert beside.efficiency is not None
    assert beside.efficiency.origin == "calibrated"
    known = beside.modelled
    assert (beside.floor_s[known] <= beside.reachable_s[known]).all()
    # What was measured on average moves neither the floor nor MBU.
    np.testing.assert_array_equal(without.floor_s, beside.floor_s)
    np.testing.assert_array_equal(without.mbu, beside.mbu)
    roofline = Roofline.of(info, hardware, calibration)
    reach = reachable(roofline, table, beside)
    assert reach is not None
    ends = reach.fast_s[known], reach.reachable_s[known], reach.slow_s[known]
    assert (beside.floor_s[known] <= ends[0]).all()
    assert (ends[0] < ends[1]).all()
    assert (ends[1] < ends[2]).all()


def test_a_slower_read_makes_reachable_longer_and_the_floor_stays() -> None:
    table = steps(20)
    slow = h100_calibration(reads=reads_by(5e-6, 0.4 * 3.35e12, (16 * MIB, 64 * MIB, 256 * MIB)))
    usual, slower = (analyse_engine(table, INFO, H100, each) for each in (h100_calibration(), slow))
    assert usual.reachable_s is not None
    assert slower.reachable_s is not None
    known = usual.modelled
    np.testing.assert_array_equal(usual.floor_s, slower.floor_s)
    assert (slower.reachable_s[known] > 1.3 * usual.reachable_s[known]).all()


def test_the_same_model_on_other_hardware_leaves_the_calibration_behind() -> None:
    roofline = Roofline.of(INFO, H100, h100_calibration())
    assert roofline.on(replace(H100, memory_bandwidth_bytes_per_s=3e12)).efficiency == roofline.efficiency
    other = find_hardware("h200-sxm-141")
    assert roofline.on(other).efficiency == efficiency_of(other)
