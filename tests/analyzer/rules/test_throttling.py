"""throttling: clocks that are low and cost time; a flag alone, a low clock that costs nothing, what is not known."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_counters import beside, counters
from made_windows import H100, INFO, ROOFLINE, case, info_with, steps, window

from rooflens.analyzer.efficiency import efficiency_of
from rooflens.analyzer.hardware import find_hardware, known_hardware
from rooflens.analyzer.roofline import Roofline
from rooflens.analyzer.rules import RULES
from rooflens.analyzer.rules.case import Case
from rooflens.analyzer.rules.clocks import Clocks, clocks_of, highest_over_datasheet, steps_at
from rooflens.analyzer.rules.throttling import throttling
from rooflens.device_records import CounterSource, Throttle
from rooflens.findings import Finding, Severity, Status
from rooflens.records import StepTable

PROMPT = 8000
DATASHEET_HZ, HIGHEST_HZ = 1.83e9, 1.98e9  # of an H100 SXM, whose printed peak is at 1830 MHz
CAPPED = {Throttle.POWER_CAP: 1.0}


def prompts(factor: float = 2.5, count: int = 60, **columns: Any) -> StepTable:
    """Steps that compute binds: one prompt each."""
    return steps(count, decode=0, prefill=PROMPT, factor=factor, **columns)


def judge(table: StepTable, **facts: Any) -> Finding:
    return throttling(beside(table, **facts))


def saved_s(found: Finding) -> float:
    assert found.status is Status.FIRING, found.summary
    assert found.price is not None
    assert found.price.saved_low_s <= found.price.saved_s <= found.price.saved_high_s <= found.price.judged_s
    return found.price.saved_s


def test_the_price_by_hand() -> None:
    """Llama 3.1 8B, prompts of 8,000 tokens at 1.098 GHz: 0.6 of the clock that the peak is printed at.

    Every product and the attention are bound by compute at either clock, but for the head of one row. So a step takes
    (1 / 0.6 - 1) times its arithmetic longer: 2 flops a weight and token, 4 a dimension and pair of causal attention.
    """
    reached = efficiency_of(H100)
    assert reached is not None
    layer = 2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336
    assert layer == 218_103_808
    products_s = 2 * 32 * layer * PROMPT / (reached.gemm_ratio["bf16"] * 9.894e14)
    pairs = PROMPT * (PROMPT + 1) // 2
    attention_s = 4 * 32 * 4096 * pairs / (reached.attention_ratio * 9.894e14)
    clock_hz = 0.6 * 9.894e14 / (132 * 4096)
    found = judge(prompts(factor=4.0), sm_clock_hz=clock_hz, sm_clock_ratio=clock_hz / HIGHEST_HZ)
    assert saved_s(found) == pytest.approx(60 * (1 / 0.6 - 1) * (products_s + attention_s), rel=1e-9)
    assert found.price is not None
    assert found.price.judged_s == pytest.approx(sum(prompts(factor=4.0)["observed_s"]) * 1.02, rel=1e-3)
    assert "the SM clock is at 55% of its highest (no reason given)" in found.summary


@pytest.mark.parametrize("id_", ["h100-sxm5-80", "h200-sxm-141", "h100-nvl-94", "a100-sxm4-80", "rtx-4090", "l40s"])
def test_a_clock_of_the_highest_is_told_as_one_of_the_datasheets(id_: str) -> None:
    """At the highest clock of its file a device reaches its ceiling, at the datasheet's its peak."""
    hardware = find_hardware(id_)
    assert hardware.datasheet_clock_hz is not None
    most = highest_over_datasheet(hardware)
    assert most == pytest.approx(hardware.ceiling_flops_per_s["bf16"] / hardware.peak_flops_per_s["bf16"])
    for share in (1.0, 0.5):
        by_ratio = clocks_of(counters(sm_clock_ratio=share), hardware)
        by_hertz = clocks_of(
            counters(sm_clock_ratio=share, sm_clock_hz=share * most * hardware.datasheet_clock_hz), hardware
        )
        assert by_ratio.of_datasheet == pytest.approx(share * most)
        assert by_hertz.of_datasheet == pytest.approx(share * most)


def test_an_h100_at_1830_of_1980_mhz_computes_what_its_datasheet_says() -> None:
    for hertz in (None, DATASHEET_HZ):
        found = clocks_of(counters(sm_clock_ratio=DATASHEET_HZ / HIGHEST_HZ, sm_clock_hz=hertz), H100)
        assert found.of_datasheet == pytest.approx(1.0, abs=1e-4)
    assert H100.datasheet_clock_hz == pytest.approx(DATASHEET_HZ, rel=1e-4)
    slice_ = find_hardware("NVIDIA H100 80GB HBM3 MIG 3g.40gb")
    assert slice_.datasheet_clock_hz == H100.datasheet_clock_hz


def test_a_highest_clock_that_is_not_known_is_that_of_the_hardwares_file() -> None:
    found = clocks_of(counters(sm_clock_ratio=None, sm_clock_hz=0.99e9), H100)
    assert found.sm == pytest.approx(0.5, abs=1e-3)
    assert found.of_datasheet == pytest.approx(0.99e9 / DATASHEET_HZ, rel=1e-3)
    assert clocks_of(counters(sm_clock_ratio=None, sm_clock_hz=0.99e9), None).sm is None
    unstated = next(each for each in known_hardware().values() if each.datasheet_clock_hz is None)
    assert clocks_of(counters(sm_clock_ratio=None, sm_clock_hz=0.99e9), unstated) == Clocks(None, 1.0, None)


@pytest.mark.parametrize(("ratio", "fires"), [(1.0, False), (0.91, False), (0.89, False), (0.8, True), (0.4, True)])
def test_a_clock_counts_by_what_it_costs(ratio: float, fires: bool) -> None:
    """At 0.89 of the highest an H100 is at 0.963 of the datasheet's clock: less than a twentieth of the time."""
    found = judge(prompts(4.0), sm_clock_ratio=ratio, throttled_ratio=CAPPED)
    assert (found.status is Status.FIRING) is fires, found.summary
    if ratio == 0.89:
        assert "costs these steps" in found.summary
        assert "power cap 100% of the time" in found.summary


def test_half_the_clock_costs_more_than_three_quarters_of_it() -> None:
    prices = [saved_s(judge(prompts(4.0), sm_clock_ratio=ratio)) for ratio in (0.8, 0.7, 0.6, 0.5, 0.35)]
    assert prices == sorted(prices)
    assert prices[3] > 2 * prices[1]


@pytest.mark.parametrize("ratio", [0.9, 0.6, 0.3])
@pytest.mark.parametrize("batch", [1, 32])
def test_memory_bound_steps_do_not_care_for_the_sm_clock(ratio: float, batch: int) -> None:
    found = judge(steps(decode=batch, factor=2.0), sm_clock_ratio=ratio, throttled_ratio=CAPPED, power_ratio=0.99)
    assert found.status is Status.CLEARED
    assert "power cap 100% of the time" in found.summary
    assert {e.name: e.value for e in found.evidence}["time_with_power_cap"] == 1.0


def test_a_flag_alone_is_no_finding() -> None:
    every = dict.fromkeys(Throttle, 1.0)
    found = judge(prompts(), throttled_ratio=every, power_ratio=1.0)
    assert found.status is Status.CLEARED
    assert found.summary.startswith("the clocks are at their highest, though the devices say: ")


def test_a_memory_clock_costs_memory_bound_steps() -> None:
    """Half the bandwidth: a step takes twice its reads, so as long again as they take, beside latencies."""
    table = steps(factor=4.0)
    halved = judge(table, memory_clock_ratio=0.5)
    reach = steps_at(ROOFLINE, table, ROOFLINE.analyse(table))
    slower = steps_at(
        ROOFLINE.on(replace(H100, memory_bandwidth_bytes_per_s=0.5 * H100.memory_bandwidth_bytes_per_s)),
        table, ROOFLINE.analyse(table),
    )  # fmt: skip
    assert reach is not None
    assert slower is not None
    assert saved_s(halved) == pytest.approx(float((slower.reachable_s - reach.reachable_s).sum()), rel=1e-9)
    assert 1.0 < saved_s(halved) / float(ROOFLINE.analyse(table).memory_s.sum()) < 1.25
    assert "the memory clock is at 50% of its highest (the memory clock alone)" in halved.summary
    assert "-rmc" in (halved.remedy or "")
    assert judge(table, memory_clock_ratio=0.96).status is Status.CLEARED
    assert judge(prompts(4.0), memory_clock_ratio=0.8).status is Status.CLEARED, "compute binds these"


def test_of_two_low_clocks_the_one_that_costs_is_named() -> None:
    both = judge(steps(factor=4.0), memory_clock_ratio=0.5, sm_clock_ratio=0.5)
    assert both.summary.startswith("the memory clock is at 50%")
    other = judge(prompts(4.0), memory_clock_ratio=0.8, sm_clock_ratio=0.5)
    assert other.summary.startswith("the SM clock is at 50%")
    mixed = judge(steps(decode=200, context=500, prefill=400, factor=6.0), memory_clock_ratio=0.4, sm_clock_ratio=0.4)
    assert "the SM clock is at 40% of its highest and the memory clock is at 40%" in mixed.summary


def test_steps_faster_than_the_clock_allows_were_not_made_at_it() -> None:
    """At half the clock the arithmetic alone takes twice the floor."""
    for table, facts in ((prompts(1.9), {"sm_clock_ratio": 0.5}), (steps(factor=1.9), {"memory_clock_ratio": 0.5})):
        found = judge(table, **facts)
        assert found.status is Status.CLEARED
        assert "took less than the device can take with the " in found.summary


def at_clocks(ratio: float, place: str = "reachable_s") -> float:
    """Seconds of the 60 prompts at a part of the datasheet's clock."""
    analysis = ROOFLINE.analyse(prompts())
    reach = steps_at(ROOFLINE, prompts(), analysis, ratio)
    assert reach is not None
    return float(getattr(reach, place).sum())


@pytest.mark.parametrize("megahertz", [1650, 1400, 1200])
def test_an_h100_that_is_as_fast_as_published_is_not_throttled(megahertz: int) -> None:
    """Large products hold an H100 at its 700 W, and nobody recorded at which clock kernels were published."""
    hertz = megahertz * 1e6
    facts: dict[str, Any] = {"sm_clock_hz": hertz, "sm_clock_ratio": hertz / HIGHEST_HZ, "throttled_ratio": CAPPED}
    for factor in (0.97, 1.0, 1.03):
        found = judge(prompts(observed_s=factor * at_clocks(1.0) / 60), **facts)
        assert found.status is Status.CLEARED, found.summary
        if megahertz > 1200:
            assert "as fast as published ones, whose clocks nobody recorded" in found.summary
            assert "power cap 100% of the time" in found.summary
        shares = {e.name: e.value for e in found.evidence}
        assert float(shares["cost_share_by_clocks_alone"] or 0.0) > 0.09


def test_a_device_without_a_memory_clock_clears_by_its_sm_clock() -> None:
    """A GB10 tells no memory clock: nothing in force and a high SM clock is enough, a reason in force is not."""
    silent: dict[str, Any] = {"sm_clock_ratio": 1.0, "memory_clock_ratio": None}
    found = judge(prompts(), **silent, throttled_ratio={Throttle.POWER_CAP: 0.0})
    assert (found.status, "tells no memory clock" in found.summary) == (Status.CLEARED, True)
    assert judge(prompts(), **silent, throttled_ratio=CAPPED).status is Status.CANNOT_TELL
    assert judge(prompts(), **silent, throttled_ratio={}).status is Status.CANNOT_TELL


def test_no_printed_clock_is_beyond_the_highest() -> None:
    """The printed peak of a GB10 would need 1.05 times its highest clock: it is of other units."""
    gb10 = find_hardware("gb10-dgx-spark")
    assert gb10.datasheet_clock_hz is None
    assert gb10.ceiling_flops_per_s == gb10.peak_flops_per_s


def partly_timed(device_s: float, steps: int) -> StepTable:
    """60 prompts in 0.240 s each, of which the device timed the first ``steps``."""
    table = prompts(observed_s=0.240, device_s=np.where(np.arange(60) < steps, device_s, 0.0))
    return StepTable(table.columns, {**table.known, "device_s": np.arange(60) < steps})


@pytest.mark.parametrize("timed", [1.0, 0.5])
def test_what_waits_for_the_host_is_no_clocks(timed: float) -> None:
    """Prompts in 0.240 s at 1400 of 1980 MHz, of which the device took what usual kernels take at its full clock."""
    usual_s = at_clocks(1.0) / 60
    facts: dict[str, Any] = {"sm_clock_hz": 1.4e9, "sm_clock_ratio": 1.4e9 / HIGHEST_HZ, "throttled_ratio": CAPPED}
    assert judge(prompts(observed_s=0.240), **facts).status is Status.FIRING, "nobody knows of the waiting"
    found = judge(partly_timed(usual_s, round(60 * timed)), **facts)
    assert found.status is Status.CLEARED, found.summary
    assert {e.name: e.value for e in found.evidence}["cost_share"] == pytest.approx(0.0, abs=1e-9)
    few = judge(partly_timed(usual_s, 29), **facts)
    assert few.status is Status.FIRING, "of too few steps"


def test_device_time_is_what_a_clock_lengthens() -> None:
    """The same seconds on the device cost the same, whatever waits for the host beside them."""
    slow_s = at_clocks(0.6, "slow_s") / 60
    busy = judge(prompts(observed_s=slow_s, device_s=slow_s), sm_clock_ratio=0.5)
    waiting = judge(prompts(observed_s=1.5 * slow_s, device_s=slow_s), sm_clock_ratio=0.5)
    assert saved_s(waiting) == pytest.approx(saved_s(busy), rel=1e-9)
    floor_s = ROOFLINE.analyse(prompts()).floor_s
    fast = judge(prompts(4.0, device_s=1.9 * floor_s), sm_clock_ratio=0.5)
    assert "took less than the device can take with the SM clock at 50%" in fast.summary


def test_steps_that_slow_kernels_may_take_are_no_warning() -> None:
    usual_s, slow_s = at_clocks(1.0), at_clocks(1.0, "slow_s")
    found = judge(prompts(observed_s=(0.3 * usual_s + 0.7 * slow_s) / 60), sm_clock_ratio=0.75)
    assert found.severity is Severity.INFO
    assert saved_s(found) == pytest.approx(0.7 * (slow_s - usual_s), rel=1e-9)
    assert found.price is not None
    assert found.price.saved_low_s == 0.0
    assert "or kernels that are slower than most do" in found.summary
    beyond = judge(prompts(observed_s=1.05 * slow_s / 60), sm_clock_ratio=0.75)
    assert beyond.severity is Severity.WARNING
    assert beyond.price is not None
    assert beyond.price.saved_low_s == pytest.approx(0.05 * slow_s, rel=1e-9)
    assert (beyond.confidence or 0.0) > (found.confidence or 0.0)


def test_waste_of_memory_bound_steps_shows_no_clock() -> None:
    """Prompts as fast as published ones between decode steps that take four times what they may."""
    table = steps(100, decode=np.where(np.arange(100) % 2, 0, 32), prefill=np.where(np.arange(100) % 2, PROMPT, 0))
    reach = steps_at(ROOFLINE, table, ROOFLINE.analyse(table))
    assert reach is not None
    wasted = reach.reachable_s * np.where(np.arange(100) % 2, 1.0, 4.0)
    slow = steps(100, decode=np.where(np.arange(100) % 2, 0, 32), prefill=np.where(np.arange(100) % 2, PROMPT, 0),
                 observed_s=wasted)  # fmt: skip
    assert judge(slow, sm_clock_ratio=0.6).status is Status.CLEARED


@pytest.mark.parametrize(
    ("reason", "power", "cause", "remedy"),
    [
        (Throttle.POWER_CAP, 0.98, "a power cap", "nvidia-smi -pl"),
        (Throttle.POWER_CAP, None, "a power cap", "nvidia-smi -pl"),
        (Throttle.POWER_CAP, 0.6, "draws 60% of its own", "changes nothing"),
        (Throttle.POWER_CAP, 0.74, "draws 74% of its own", "changes nothing"),
        (Throttle.POWER_CAP, 0.76, "a power cap", "nvidia-smi -pl"),
        (Throttle.THERMAL, 0.6, "heat", "airflow"),
        (Throttle.HARDWARE_THERMAL, 0.6, "heat, by the hardware", "airflow"),
        (Throttle.HARDWARE_SLOWDOWN, 0.6, "a slow-down by the hardware", "power supply"),
        (Throttle.POWER_BRAKE, 0.6, "a power brake", "power supply"),
        (Throttle.SYNC_BOOST, 0.6, "a boost group", "slowest device"),
        (Throttle.APPLICATION_CLOCKS, 0.6, "clocks that somebody set", "-rgc"),
    ],
)
def test_the_reason_names_cause_and_remedy(reason: Throttle, power: float | None, cause: str, remedy: str) -> None:
    found = judge(prompts(4.0), sm_clock_ratio=0.5, throttled_ratio={reason: 0.8}, capped_power_ratio=power)
    assert cause in found.summary
    assert remedy in (found.remedy or "")
    unsaid = judge(prompts(4.0), sm_clock_ratio=0.5)
    assert (found.confidence or 0.0) > (unsaid.confidence or 0.0)
    assert found.price == unsaid.price


@pytest.mark.parametrize(
    ("room", "severity", "remedy"),
    [
        (None, Severity.WARNING, "raise the power limit (nvidia-smi -pl) if the card takes more"),
        (1.0, Severity.INFO, "nothing to raise: cool it better, or spread the load"),
        (1.4, Severity.WARNING, "raise the power limit (nvidia-smi -pl): the card takes up to 1.40 times"),
    ],
)
def test_a_power_limit_is_raised_where_the_card_takes_more(room: float | None, severity: Severity, remedy: str) -> None:
    found = judge(prompts(4.0), sm_clock_ratio=0.5, throttled_ratio=CAPPED, power_ratio=0.99,
                  power_limit_room_ratio=room)  # fmt: skip
    assert found.status is Status.FIRING
    assert found.severity is severity
    assert (found.remedy or "").startswith(remedy)
    assert ("at its highest limit" in found.summary) is (room == 1.0)
    hot = judge(prompts(4.0), sm_clock_ratio=0.5, throttled_ratio={Throttle.THERMAL: 1.0}, power_limit_room_ratio=1.0)
    assert hot.severity is Severity.WARNING, "a power limit is nothing to heat"


def test_idle_time_in_the_mean_of_the_power_makes_no_platform() -> None:
    """A card at its limit for six tenths of the time, idle in the rest, draws 0.65 of its limit on average."""
    flags = {Throttle.POWER_CAP: 0.6}
    for capped in (0.99, None):
        found = judge(prompts(4.0), sm_clock_ratio=0.5, throttled_ratio=flags, power_ratio=0.65,
                      capped_power_ratio=capped)  # fmt: skip
        assert "(a power cap)" in found.summary
        assert "nvidia-smi -pl" in (found.remedy or "")
    assert {e.name: e.value for e in found.evidence}["power_of_limit"] == 0.65


def test_of_several_reasons_the_longest_counts_and_a_short_one_never() -> None:
    two = {Throttle.POWER_CAP: 0.3, Throttle.THERMAL: 0.6, Throttle.SYNC_BOOST: 0.05}
    found = judge(prompts(4.0), sm_clock_ratio=0.5, throttled_ratio=two)
    assert "(heat)" in found.summary
    names = [e.name for e in found.evidence if e.name.startswith("time_with_")]
    assert names == ["time_with_thermal", "time_with_power_cap"]
    short = judge(prompts(4.0), sm_clock_ratio=0.5, throttled_ratio={Throttle.THERMAL: 0.05})
    assert "no reason given" in short.summary


@pytest.mark.parametrize(
    ("part", "share", "cause"),
    [
        (Throttle.HARDWARE_THERMAL, 0.6, "heat, by the hardware"),
        (Throttle.POWER_BRAKE, 0.2, "a power brake"),
        (Throttle.HARDWARE_THERMAL, 0.05, "a slow-down by the hardware"),
        (Throttle.THERMAL, 0.6, "a slow-down by the hardware"),
    ],
)
def test_a_slow_down_by_the_hardware_is_told_by_its_part(part: Throttle, share: float, cause: str) -> None:
    """NVML sets HwSlowdown (0x8) together with HwThermalSlowdown (0x40) or HwPowerBrakeSlowdown (0x80)."""
    flags = {Throttle.HARDWARE_SLOWDOWN: 1.0, part: share}
    found = judge(prompts(4.0), sm_clock_ratio=0.5, throttled_ratio=flags)
    assert f"({cause}" in found.summary
    assert ("replace the part" in (found.remedy or "")) is (cause == "a slow-down by the hardware")
    assert ("time_with_hardware_slowdown" in {e.name for e in found.evidence}) is ("slow-down" in cause)


def test_an_amd_device_is_told_its_own_tool() -> None:
    found = judge(prompts(4.0), sm_clock_ratio=0.5, source=CounterSource.AMDSMI, throttled_ratio=CAPPED)
    assert "amd-smi" in (found.remedy or "")
    assert "nvidia" not in (found.remedy or "")


def test_where_the_devices_wait_for_the_host_a_faster_clock_may_gain_nothing() -> None:
    waiting = judge(prompts(8.0), sm_clock_ratio=0.5, graphics_ratio=0.6)
    busy = judge(prompts(8.0), sm_clock_ratio=0.5, graphics_ratio=0.98)
    assert saved_s(waiting) == saved_s(busy)
    assert waiting.price is not None
    assert busy.price is not None
    assert (waiting.price.saved_low_s, busy.price.saved_low_s > 0) == (0.0, True)


def test_what_is_not_known_is_named() -> None:
    table = prompts(4.0)
    assert "docs/counters.md" in throttling(case(table)).missing[0]
    assert "docs/counters.md" in judge(table, covered_ratio=0.4, sm_clock_ratio=0.5).missing[0]
    neither = judge(table, sm_clock_ratio=None, memory_clock_ratio=None).missing[0]
    assert neither.startswith("the SM clock and the memory clock beside the highest")
    assert judge(table, sm_clock_ratio=None).missing[0].startswith("the SM clock beside")
    assert judge(table, memory_clock_ratio=None).missing[0].startswith("the memory clock beside")
    assert judge(steps(), memory_clock_ratio=None, sm_clock_ratio=0.5).missing[0].startswith("the memory clock beside")
    assert judge(table, memory_clock_ratio=None, sm_clock_ratio=0.5).status is Status.FIRING
    assert judge(table, sm_clock_ratio=1.3).missing[0].startswith("the SM clock beside"), (
        "no clock is above its highest"
    )
    assert "20 steps" in judge(prompts(4.0, 19), sm_clock_ratio=0.5).missing[0]
    bare = replace(window(table, INFO, None), counters=counters(sm_clock_ratio=0.5))
    assert "--hardware" in throttling(case(bare, roofline=None)).missing[0]
    high = replace(window(table, INFO, None), counters=counters())
    assert throttling(case(high, roofline=None)).status is Status.CLEARED, "a clock at its highest needs no model"


def test_a_measured_roof_says_nothing_of_other_clocks() -> None:
    measured = Roofline.of(INFO, replace(H100, id="this-cpu", origin="measured"))
    assert (
        "what kernels reach on this-cpu"
        in throttling(beside(prompts(4.0), INFO, measured, sm_clock_ratio=0.5)).missing[0]
    )


def test_a_device_that_is_missing_makes_it_less_sure() -> None:
    whole = judge(prompts(4.0), sm_clock_ratio=0.5, devices=2, devices_expected=2)
    part = judge(prompts(4.0), sm_clock_ratio=0.5, devices=1, devices_expected=2)
    assert (part.confidence or 0.0) < (whole.confidence or 0.0)
    assert part.price == whole.price


def test_the_slowest_device_is_named() -> None:
    facts: dict[str, Any] = {"sm_clock_ratio": 0.5, "slowest_uuid": "GPU-5", "throttled_ratio": {Throttle.THERMAL: 1.0}}
    found = judge(prompts(4.0), devices=8, devices_expected=8, **facts)
    assert found.summary.endswith(": of 8 devices GPU-5 is the slowest, and the others run at its speed")
    assert {e.name: e.value for e in found.evidence}["slowest_device"] == "GPU-5"
    alone = judge(prompts(4.0), **facts)
    assert "slowest" not in alone.summary
    memory = judge(steps(factor=4.0), devices=8, devices_expected=8, memory_clock_ratio=0.5, slowest_uuid="GPU-5")
    assert memory.summary.endswith(": the lowest of 8 devices, and the others run at its speed")
    assert alone.price == found.price


def test_eager_engines_are_priced_with_their_launches() -> None:
    info = info_with(graph_mode="NONE")
    roofline = Roofline.of(info, H100)
    table = prompts(4.0)
    found = throttling(beside(table, info, roofline, sm_clock_ratio=0.5))
    assert saved_s(found) == pytest.approx(saved_s(judge(table, sm_clock_ratio=0.5)), rel=1e-9), (
        "launches have no clock"
    )


@settings(max_examples=40, deadline=None)
@given(
    batch=st.integers(0, 300),
    context=st.integers(1, 8000),
    prompt=st.sampled_from([0, 256, 2000, 8000]),
    factor=st.floats(1.0, 6.0),
    sm=st.floats(0.05, 1.0),
    memory=st.floats(0.05, 1.0),
    seed=st.integers(0, 1000),
)
def test_a_price_is_within_what_was_judged_and_grows_as_the_clock_falls(
    batch: int, context: int, prompt: int, factor: float, sm: float, memory: float, seed: int
) -> None:
    noise = np.exp(np.abs(np.random.default_rng(seed).normal(0.0, 0.1, 40)))
    table = steps(40, max(batch, int(prompt == 0)), context, prompt, factor * noise)
    found = judge(table, sm_clock_ratio=sm, memory_clock_ratio=memory)
    if found.status is Status.FIRING:
        assert 0 < saved_s(found) < found.price.judged_s  # type: ignore[union-attr]
        lower = judge(table, sm_clock_ratio=sm * 0.9, memory_clock_ratio=memory * 0.9)
        assert lower.status is Status.CLEARED or saved_s(lower) >= saved_s(found) * (1 - 1e-9)


def test_it_is_one_of_the_rules() -> None:
    assert RULES[throttling(Case()).code] is throttling
