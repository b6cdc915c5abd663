"""Windows of counters against what the double plays: exact means, energy, guards at both ends, what is not told."""

from __future__ import annotations

import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from counted_calls import calls_of
from nvml_fixture import SOURCES, Double

from rooflens.collector.nvml import NvmlProbe, gpm
from rooflens.collector.nvml.probe import NO_DEVICE
from rooflens.device_records import CounterSource, DeviceSample, Throttle
from rooflens.protocols import Probe, Probed

H200, A100 = (f"GPU-00000000-0000-0000-0000-{index:012d}" for index in range(2))
DECODE = (SOURCES / "decode.profile").read_text()
MIB = 1 << 20
STEADY = "at 0 * dram=50 sm=40 tensor=8 pcie_tx=3 pcie_rx=2 power_w=300 sm_clk=1500 mem_clk=3000 gpu_util=90\n"


def at(double: Double, probe: NvmlProbe, seconds: float) -> Probed:
    double.clock.at(seconds)
    return probe.sample()


def window(double: Double, probe: NvmlProbe, seconds: float, uuid: str = H200) -> DeviceSample:
    (found,) = [sample for sample in at(double, probe, seconds).samples if sample.uuid == uuid]
    return found


@pytest.fixture
def decoding(double: Double) -> NvmlProbe:
    """A probe of decode, an idle gap from 10 s and capped prefill from 15 s, begun at 0."""
    double.play(DECODE)
    probe: Probe = NvmlProbe(clock=double.clock)
    assert probe.sample().samples == ()
    assert isinstance(probe, NvmlProbe)
    return probe


def test_means_of_decode_idle_and_capped_prefill(double: Double, decoding: NvmlProbe) -> None:
    windows = [window(double, decoding, end_s) for end_s in (5, 12, 20)]
    near = {"rel": 0, "abs": 1e-11}  # 1e-9 of a per cent
    assert [w.dram_ratio for w in windows] == [
        pytest.approx(mean / 100, **near) for mean in (71, (71 * 5 + 0.5 * 2) / 7, (0.5 * 3 + 22 * 5) / 8)
    ]
    assert [w.tensor_ratio for w in windows] == [
        pytest.approx(mean / 100, **near) for mean in (9, 9 * 5 / 7, 62 * 5 / 8)
    ]
    assert [w.sm_ratio for w in windows] == [
        pytest.approx(mean / 100, **near) for mean in (92, (92 * 5 + 2) / 7, (3 + 99 * 5) / 8)
    ]
    assert [w.sm_occupancy_ratio for w in windows] == [
        pytest.approx(mean / 100, **near) for mean in (31, 31 * 5 / 7, 24 * 5 / 8)
    ]
    assert [w.graphics_ratio for w in windows] == [
        pytest.approx(mean / 100, **near) for mean in (100, (500 + 6) / 7, (9 + 500) / 8)
    ]
    assert [(w.start_monotonic_s, w.end_monotonic_s) for w in windows] == [(0, 5), (5, 12), (12, 20)]
    assert windows[0].slack_s == pytest.approx(0.1)
    assert (windows[0].pcie_tx_bytes_per_s, windows[0].pcie_rx_bytes_per_s) == (120 * MIB, 60 * MIB)
    assert (windows[0].nvlink_tx_bytes_per_s, windows[0].nvlink_rx_bytes_per_s) == (30 * MIB, 40 * MIB)
    assert windows[0].c2c_tx_bytes_per_s is None


def test_energy_is_exact_and_clocks_are_those_of_the_end(double: Double, decoding: NvmlProbe) -> None:
    windows = [window(double, decoding, end_s) for end_s in (5, 12, 20)]
    assert [w.energy_j for w in windows] == [430 * 5, 430 * 5 + 120 * 2, 120 * 3 + 699 * 5]
    assert [w.power_w for w in windows] == [430, 120, 699]
    assert [w.sm_clock_hz for w in windows] == [1.98e9, 1.98e9, 1.5e9]
    assert [w.memory_clock_hz for w in windows] == [3.201e9] * 3
    assert [w.kernel_ratio for w in windows] == [1.0, 0.02, 1.0]
    assert windows[2].temperature_celsius == 51
    assert windows[2].memory_used_bytes == 130_000_000_000


def test_an_idle_device_is_not_throttled_and_a_capped_one_says_for_how_long(
    double: Double, decoding: NvmlProbe
) -> None:
    decode, idle, capped = (window(double, decoding, end_s) for end_s in (5, 12, 20))
    assert (decode.throttles, idle.throttles, capped.throttles) == ((), (), (Throttle.POWER_CAP,))
    assert idle.throttled_s[Throttle.POWER_CAP] == 0
    assert capped.throttled_s[Throttle.POWER_CAP] == pytest.approx(5)
    assert sum(capped.throttled_s.values()) == pytest.approx(5)


MOVED = {Throttle.THERMAL, Throttle.HARDWARE_THERMAL, Throttle.POWER_BRAKE}


@pytest.mark.parametrize(
    ("driver", "told"),
    [
        ("570.86", set()),  # its field 251 is power smoothing, and it has no 269
        ("575.51", MOVED),
        ("575.64.03", MOVED),
        ("580.65.06", MOVED),
        ("580.70", set()),  # between two that are known
        ("580.82", MOVED),
        ("615.71", MOVED),
        ("next", set()),
    ],
)
def test_accumulated_times_are_read_where_this_driver_has_them(
    double: Double, driver: str, told: set[Throttle]
) -> None:
    """Each driver is played with other counters at the numbers at which the others have these."""
    double.play(f"driver {driver}\ndevice 0\n{STEADY}at 0 0 throttle=0x64\nat 1 0 throttle=0x20\n")
    probe = NvmlProbe(clock=double.clock)
    probe.sample()
    spent = window(double, probe, 2).throttled_s
    assert spent.pop(Throttle.POWER_CAP) == pytest.approx(1)
    assert spent.pop(Throttle.SYNC_BOOST) == 0
    assert spent == {
        reason: spent_s for reason, spent_s in zip(sorted(MOVED), (1, 0, 2), strict=True) if reason in told
    }


def test_a_time_in_another_unit_is_not_told_while_its_flag_is_set(double: Double) -> None:
    """A thousandth of the window by the count, all of it by the flag: microseconds, or another counter."""
    double.play(f"device 0 throttle_unit=1e6\n{STEADY}at 0 0 throttle=4\nat 3 0 throttle=0\nat 4.5 0 throttle=4\n")
    probe = NvmlProbe(clock=double.clock)
    probe.sample()
    first, second, _, fourth, fifth = (window(double, probe, t) for t in (1, 2, 3.5, 5, 6))
    for held in (first, second, fifth):
        assert held.throttles == (Throttle.POWER_CAP,)
        assert Throttle.POWER_CAP not in held.throttled_s
        assert held.throttled_s[Throttle.THERMAL] == 0
    assert fourth.throttled_s[Throttle.POWER_CAP] < 0.001  # it may have begun just now


def test_facts_of_both_devices(double: Double, decoding: NvmlProbe) -> None:
    h200, a100 = decoding.sample().devices
    assert h200 == replace(
        h200,
        uuid=H200,
        source=CounterSource.NVML,
        name="NVIDIA H200",
        index=0,
        memory_bytes=150754820096,
        unified_memory=False,
        sm_clock_max_hz=1.98e9,
        memory_clock_max_hz=3.201e9,
        power_limit_w=700,
        power_limit_max_w=700,
        driver_version="580.82",
        counters=True,
        parent_uuid=None,
        pids=(),
    )
    assert h200.memory_bandwidth_bytes_per_s == pytest.approx(6144 / 8 * 2 * 3201e6)
    assert (a100.name, a100.counters) == ("NVIDIA A100-SXM4-80GB", False)


def test_how_far_the_power_limit_could_be_raised_is_told(double: Double) -> None:
    double.play("device 0 power_limit_w=450 power_limit_max_w=600\ndevice 1 power_limit_max_w=0\n")
    found = NvmlProbe(clock=double.clock).sample()
    assert [(facts.power_limit_w, facts.power_limit_max_w) for facts in found.devices] == [(450, 600), (700, None)]
    (line,) = found.problems
    assert "does not support highest power limit" in line


def test_an_older_device_has_clocks_power_energy_and_links_but_no_bandwidth(
    double: Double, decoding: NvmlProbe
) -> None:
    found = at(double, decoding, 5)
    (sample,) = [sample for sample in found.samples if sample.uuid == A100]
    assert (sample.dram_ratio, sample.tensor_ratio, sample.graphics_ratio) == (None, None, None)
    assert (sample.power_w, sample.energy_j, sample.sm_clock_hz) == (430, 2150, 1.41e9)
    assert (sample.nvlink_tx_bytes_per_s, sample.nvlink_rx_bytes_per_s) == (30 * MIB, 40 * MIB)
    assert sample.pcie_tx_bytes_per_s == pytest.approx(120 * MIB, rel=1e-4)
    assert sample.kernel_ratio == 1.0
    (line,) = found.problems
    assert A100 in line
    assert "dcgm-exporter" in line
    assert found.lacks == ((A100, line),), "which is no failure"


def test_calls_that_take_20_ms_are_made_only_where_nothing_else_tells_of_pcie(double: Double) -> None:
    slow = "nvmlDeviceGetPcieThroughput"
    double.play("device 0\n" + STEADY)
    probe = NvmlProbe(clock=double.clock)
    probe.sample()
    assert window(double, probe, 1).pcie_tx_bytes_per_s == 3 * MIB
    assert slow not in double.functions()
    probe.close()
    double.play("device 0 gpm=0\n" + STEADY)
    quick = NvmlProbe(period_s=0.25, clock=double.clock)
    quick.sample()
    assert window(double, quick, 1).pcie_tx_bytes_per_s is None
    assert slow not in double.functions()


def test_a_window_that_is_too_short_goes_on(double: Double, decoding: NvmlProbe) -> None:
    assert at(double, decoding, 0.15).samples == ()
    sample = window(double, decoding, 5)
    assert (sample.start_monotonic_s, sample.end_monotonic_s) == (0, 5)
    assert sample.dram_ratio == pytest.approx(0.71)
    assert sample.energy_j == 2150
    assert at(double, decoding, 5.05).samples == ()


def test_an_overgrown_window_has_what_was_counted_and_no_means(double: Double, decoding: NvmlProbe) -> None:
    """Energy and times lose nothing, over the whole of the window; the means of the next one begin anew."""
    long = window(double, decoding, 15)
    assert (long.start_monotonic_s, long.end_monotonic_s, long.energy_j) == (0, 15, 430 * 10 + 120 * 5)
    assert long.throttled_s[Throttle.POWER_CAP] == 0
    assert (long.nvlink_tx_bytes_per_s, long.nvlink_rx_bytes_per_s) == (30 * MIB, 40 * MIB)
    told = ("dram_ratio", "graphics_ratio", "pcie_tx_bytes_per_s", "sm_clock_hz", "memory_clock_hz", "power_w")
    assert {getattr(long, name) for name in (*told, "throttles", "kernel_ratio")} == {None}
    sample = window(double, decoding, 17)
    assert (sample.start_monotonic_s, sample.dram_ratio, sample.energy_j) == (15, pytest.approx(0.22), 2 * 699)


def test_pcie_over_an_overgrown_window_comes_from_what_was_counted(double: Double) -> None:
    double.play("device 0 cumulative=1\n" + STEADY)
    probe = NvmlProbe(clock=double.clock)
    probe.sample()
    window(double, probe, 1)
    long = window(double, probe, 31)
    assert (long.pcie_tx_bytes_per_s, long.pcie_rx_bytes_per_s) == (pytest.approx(3 * MIB), pytest.approx(2 * MIB))
    assert (long.sm_ratio, long.tensor_ratio, long.dram_ratio) == (None, None, None)


def test_a_call_that_hung_once_is_made_again_for_a_date(double: Double) -> None:
    """430 W and 30 MiB/s, whatever the driver did in between; the second that hung is in the window."""
    steady = "device 0\nat 0 0 power_w=430 nvl_tx=30 dram=50\n"
    double.play(steady + "slow 0 nvmlDeviceGetFieldValues 3 2 2.5\n")
    probe = NvmlProbe(clock=double.clock)
    probe.sample()
    for end_s in (1, 2, 6):
        found = window(double, probe, end_s)
        assert found.energy_j == pytest.approx(430 * found.span_s, rel=0.001)
        assert found.slack_s == pytest.approx(0.1, abs=0.001)
    assert (found.start_monotonic_s, found.end_monotonic_s) == (5, 6)


@pytest.mark.parametrize(
    "function", ["nvmlDeviceGetFieldValues", "nvmlGpmSampleGet", "nvmlDeviceGetTotalEnergyConsumption"]
)
def test_a_driver_that_is_always_slow_dates_its_answers_within_the_slack(double: Double, function: str) -> None:
    """It is asked again once, not each time; of links there is no rate where the dates are too far off for one."""
    lacks = "fail 0 nvmlDeviceGetFieldValues 3\n" if function.endswith("Consumption") else ""
    double.play(f"device 0 gpm=1\nat 0 0 power_w=430 nvl_tx=30 dram=50\n{lacks}slow 0 {function} 0.4 0 99\n")
    probe = NvmlProbe(clock=double.clock)
    probe.sample()
    for turn in range(1, 6):
        begun_s = 2.0 * turn
        found = window(double, probe, begun_s)
        assert found.slack_s >= 0.1 + (double.clock.now_s - begun_s) / 2 - 1e-9
        assert found.energy_j is not None
        assert abs(found.energy_j / 430 - found.span_s) <= 2 * found.slack_s
        if turn > 1:
            assert double.clock.now_s == pytest.approx(begun_s + 0.4)
        if function.endswith("FieldValues"):
            assert found.nvlink_tx_bytes_per_s == pytest.approx(
                30 * MIB
            )  # GPM's own mean, which needs no date of fields


def test_rates_of_links_need_dates(double: Double) -> None:
    double.play("device 0 gpm=0\nat 0 0 nvl_tx=30\nslow 0 nvmlDeviceGetFieldValues 0.4 0 2.5\n")
    probe = NvmlProbe(clock=double.clock)
    probe.sample()
    assert [window(double, probe, t).nvlink_tx_bytes_per_s for t in (2, 4, 6)] == [None, None, 30 * MIB]


def test_a_value_of_an_unknown_type_is_that_figure_only(double: Double) -> None:
    double.play("device 0 value_type=77\ndevice 1\n" + STEADY + "at 0 * throttle=4\n")
    probe = NvmlProbe(clock=double.clock)
    probe.sample()
    found = at(double, probe, 1)
    for sample in found.samples:
        assert (sample.energy_j, sample.power_w, sample.dram_ratio) == (300, 300, 0.5)  # energy by its own function
        assert sample.throttled_s[Throttle.POWER_CAP] == 1
    (line,) = found.problems
    assert f"{H200} tells a counter by field in a form that is not known" in line


def test_what_no_device_can_have_is_left_out_and_said_until_it_can(double: Double) -> None:
    huge = "power_w=4294967 sm_clk=4294967295 mem_clk=4294967295 mem_used=18446744073709549568 temp=2147483648"
    double.play(
        f"device 0\n{STEADY}at 1 0 {huge} pcie_tx=1e300 nvl_tx=1e300\nat 2 0 temp=60 nvl_tx=3 mem_used=7\n"
        + STEADY.replace("at 0", "at 2")
    )
    probe = NvmlProbe(clock=double.clock)
    probe.sample()
    window(double, probe, 0.9)
    found = at(double, probe, 1.9)
    (sample,) = found.samples
    left_out = ("sm_clock_hz", "memory_clock_hz", "power_w", "energy_j", "memory_used_bytes", "temperature_celsius")
    assert {getattr(sample, name) for name in (*left_out, "pcie_tx_bytes_per_s", "nvlink_tx_bytes_per_s")} == {None}
    assert (sample.dram_ratio, sample.pcie_rx_bytes_per_s) == (0.5, 2 * MIB)
    (line,) = found.problems
    assert "reports more than all there is of" in line
    assert "the SM clock of now" in line
    double.clock.at(3)
    probe.sample()
    assert at(double, probe, 4).problems == ()


def test_facts_that_no_device_can_have_are_left_out_and_said(double: Double) -> None:
    double.play("device 0 mem_clk_max=4294967295 power_limit_w=4294967 mem_total=18446744073709551615\n" + STEADY)
    found = NvmlProbe(clock=double.clock).sample()
    (facts,) = found.devices
    assert (facts.memory_clock_max_hz, facts.memory_bandwidth_bytes_per_s, facts.power_limit_w) == (None, None, None)
    assert (facts.memory_bytes, facts.sm_clock_max_hz) == (None, 1.98e9)
    (line,) = found.problems
    assert (
        "more than all there is of the limit of its power, the memory clock's highest, the memory's bandwidth" in line
    )


def test_an_energy_of_all_ones_is_none(double: Double) -> None:
    double.play("device 0\nat 0 0 power_w=300\nat 1 0 power_w=18446744073709551\nat 2 0 power_w=-1\n")
    probe = NvmlProbe(clock=double.clock)
    probe.sample()
    assert [window(double, probe, t).energy_j for t in (1, 2)] == [300, None]


def test_a_quarter_of_a_second_is_the_fastest(double: Double) -> None:
    assert NvmlProbe(period_s=0.01, clock=double.clock).period_s == 0.25
    assert NvmlProbe(period_s=5, clock=double.clock).period_s == 5


def test_only_watched_devices_are_sampled_and_all_are_told_of(double: Double, decoding: NvmlProbe) -> None:
    decoding.watch(frozenset({A100.upper()}))
    found = at(double, decoding, 5)
    assert [sample.uuid for sample in found.samples] == [A100]
    assert [facts.uuid for facts in found.devices] == [H200, A100]
    decoding.watch(frozenset({H200}))
    again = at(double, decoding, 6)
    assert again.samples == ()  # it begins now, and does not reach back to before it was asked for
    assert again.problems == ()  # nobody asks for the older device any longer
    assert window(double, decoding, 7).start_monotonic_s == 6
    decoding.watch(frozenset())
    assert at(double, decoding, 8).samples == ()
    decoding.watch(None)
    at(double, decoding, 9)
    assert len(at(double, decoding, 10).samples) == 2


def test_a_watched_device_that_is_not_here_is_said(double: Double, decoding: NvmlProbe) -> None:
    decoding.watch(frozenset({H200, "GPU-elsewhere"}))
    lines = at(double, decoding, 5).problems
    assert [line for line in lines if "GPU-elsewhere is not here" in line] == list(lines)
    assert len(lines) == 1


def test_processes_are_read_again(double: Double) -> None:
    double.play("device 0\nproc 0 4711\nproc 0 17\n")
    assert [facts.pids for facts in NvmlProbe(clock=double.clock).sample().devices] == [(17, 4711)]


def test_what_is_not_a_number_is_not_known(double: Double) -> None:
    double.play("device 0\n" + STEADY + "at 2 0 dram=nan\nat 3 0 dram=50 tensor=-1\n")
    probe = NvmlProbe(clock=double.clock)
    probe.sample()
    first, second, third, fourth = (window(double, probe, t) for t in (1, 2.5, 3.5, 5))
    assert [w.dram_ratio for w in (first, second, third, fourth)] == [0.5, None, None, 0.5]
    assert [w.sm_ratio for w in (first, second, third, fourth)] == [pytest.approx(0.4)] * 4
    assert fourth.tensor_ratio is None
    assert not any(isinstance(v, float) and math.isnan(v) for v in (second.dram_ratio, third.dram_ratio))


def test_more_than_all_there_is_is_left_out_and_said(double: Double) -> None:
    double.play("device 0\n" + STEADY + "at 1 0 sm=129\nat 2 0 sm=101\n")
    probe = NvmlProbe(clock=double.clock)
    probe.sample()
    assert window(double, probe, 1).sm_ratio == pytest.approx(0.4)
    found = at(double, probe, 2)
    assert (found.samples[0].sm_ratio, found.samples[0].dram_ratio) == (None, 0.5)
    assert [line for line in found.problems if "more than all there is of SM activity" in line] == list(found.problems)
    assert len(found.problems) == 1
    after = at(double, probe, 3)
    assert (after.samples[0].sm_ratio, after.problems) == (1.0, ())  # a rounding of the driver's


def test_links_to_the_host_processor_where_there_are_any(double: Double) -> None:
    double.play("device 0 c2c=1\nat 0 0 c2c_tx=1000 c2c_rx=500\n")
    probe = NvmlProbe(clock=double.clock)
    probe.sample()
    sample = window(double, probe, 1)
    assert (sample.c2c_tx_bytes_per_s, sample.c2c_rx_bytes_per_s) == (1000 * MIB, 500 * MIB)


def test_counts_since_the_start_stand_in_for_means_that_are_not_told(double: Double) -> None:
    """A mean that is no number in the window is taken from what the driver counted before and after it."""
    steady = "at 0 0 sm=40 tensor=8 pcie_tx=3 pcie_rx=2 dram=50\n"
    double.play("device 0 cumulative=1\n" + steady)
    probe = NvmlProbe(clock=double.clock)
    probe.sample()
    window(double, probe, 1)
    before, gpm_means = gpm.GpmRequest.answers, (gpm.SM, gpm.TENSOR, gpm.PCIE_TX, gpm.PCIE_RX)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            gpm.GpmRequest,
            "answers",
            lambda self: {number: value for number, value in before(self).items() if number not in gpm_means},
        )
        sample = window(double, probe, 2)
    assert (sample.sm_ratio, sample.tensor_ratio) == (pytest.approx(0.4), pytest.approx(0.08))
    assert (sample.pcie_tx_bytes_per_s, sample.pcie_rx_bytes_per_s) == (
        pytest.approx(3 * MIB),
        pytest.approx(2 * MIB),
    )
    assert sample.dram_ratio == 0.5


@pytest.mark.parametrize(("last", "mean", "links"), [(101, 0.5, 7 * MIB), (61, 0.5, None), (9, None, None)])
def test_a_library_that_refuses_what_it_does_not_know_is_asked_for_less(
    double: Double, last: int, mean: float | None, links: float | None
) -> None:
    double.play(f"device 0 c2c=1 gpm_last={last}\n" + STEADY + "at 0 0 c2c_tx=7\n")
    probe = NvmlProbe(clock=double.clock)
    probe.sample()
    for second in (1, 2):
        found = at(double, probe, second)
        assert [(s.dram_ratio, s.c2c_tx_bytes_per_s, s.power_w) for s in found.samples] == [(mean, links, 300)]
        assert [line for line in found.problems if "invalid argument for bandwidth" in line] == list(found.problems)
        assert len(found.problems) == (mean is None)


def test_unified_memory_has_no_figure_and_that_is_no_fault(double: Double) -> None:
    double.play('device 0 unified=1 name="NVIDIA GB10"\n' + STEADY)
    probe = NvmlProbe(clock=double.clock)
    (facts,) = probe.sample().devices
    assert (facts.unified_memory, facts.memory_bytes) == (True, None)
    found = at(double, probe, 1)
    assert (found.samples[0].memory_used_bytes, found.samples[0].dram_ratio) == (None, 0.5)
    assert found.problems == ()


def test_a_bandwidth_that_cannot_be_computed_is_not_known(double: Double) -> None:
    double.play("device 0 bus_width=0\n" + STEADY)
    found = NvmlProbe(clock=double.clock).sample()
    assert found.devices[0].memory_bandwidth_bytes_per_s is None
    (line,) = found.problems
    assert "does not support memory bus width" in line


def test_a_count_that_began_anew_gives_no_energy(double: Double) -> None:
    double.play("device 0\nat 0 0 power_w=300\nat 1 0 power_w=-300\nat 2 0 power_w=300\n")
    probe = NvmlProbe(clock=double.clock)
    probe.sample()
    assert [window(double, probe, t).energy_j for t in (1, 2, 3)] == [300, None, 300]


def test_an_older_driver_tells_what_it_can(old_double: Double) -> None:
    old_double.play("driver 470.57\ndevice 0 accumulated=0 power_field=0\nproc 0 12\n" + STEADY + "at 0 0 throttle=4\n")
    probe = NvmlProbe(clock=old_double.clock)
    (facts,) = probe.sample().devices
    assert (facts.counters, facts.memory_bytes, facts.pids) == (False, 150754820096, (12,))
    assert facts.memory_bandwidth_bytes_per_s is None
    found = at(old_double, probe, 1)
    (sample,) = found.samples
    assert (sample.dram_ratio, sample.energy_j, sample.power_w) == (None, 300, 300)
    assert (sample.throttles, sample.throttled_s) == ((Throttle.POWER_CAP,), {})
    assert (sample.temperature_celsius, sample.memory_used_bytes) == (0, 0)
    (line,) = found.problems  # one line for all that is missing for one reason
    assert "driver is too old for" in line
    assert "GPM" in line
    assert "memory bus width" in line


def test_a_machine_without_a_device(double: Double) -> None:
    double.play("driver 580.82\n")
    probe = NvmlProbe(clock=double.clock)
    assert probe.sample() == Probed(problems=(NO_DEVICE,))
    double.play("device 0\n")
    double.clock.at(5)
    assert [facts.uuid for facts in [*probe.sample().devices, *at(double, probe, 6).devices]] == [H200]


def test_all_that_was_allocated_is_given_back(double: Double, decoding: NvmlProbe) -> None:
    for second in range(1, 20):
        at(double, decoding, second)
        assert double.live_samples() == 2  # of the one device that has GPM, and they are swapped, not made anew
    decoding.close()
    assert double.live_samples() == 0
    decoding.close()
    assert at(double, decoding, 21).devices != ()  # a probe that was closed can be used again
    decoding.close()


def test_what_a_sample_costs_does_not_grow(double: Double) -> None:
    double.play("device 0\n" + STEADY)
    probe = NvmlProbe(clock=double.clock)
    probe.sample()
    counts = []
    for second in range(1, 9):
        double.clock.at(second)
        counts.append(calls_of(probe.sample))
    assert len(set(counts[1:])) == 1
    assert counts[1] < 600


def test_nothing_is_imported_before_the_first_sample(tmp_path: Path) -> None:
    code = "import sys, rooflens.collector.nvml as n; n.NvmlProbe(); sys.exit('pynvml' in sys.modules)"
    assert subprocess.run([sys.executable, "-P", "-c", code], cwd=tmp_path, check=False).returncode == 0
