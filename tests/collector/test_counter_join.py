"""The join: counter bytes against model bytes of made devices whose traffic follows from the steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from counted_calls import calls_of
from hypothesis import example, given, settings
from hypothesis import strategies as st
from made_devices import BANDWIDTH, REFRESH_S, Engine, device_samples, engine, facts, reads
from numpy.typing import NDArray

from rooflens.collector.counter_bounds import counted, ratio_high, ratio_low
from rooflens.collector.counter_join import UNMODELLED_RATIO, join_counters
from rooflens.collector.covered import joined as covered_parts
from rooflens.collector.device_tracks import tracks_of
from rooflens.collector.step_traffic import StepTraffic, step_times
from rooflens.collector.window_means import dram_ratios
from rooflens.device_records import (
    ClockJump,
    CounterSource,
    DeviceSample,
    ProcessRole,
    ProcessSample,
    Throttle,
    WindowCounters,
)
from rooflens.records import StepTable

Samples = dict[str, list[DeviceSample]]
START_S = 3.0  # windows begin after the first step that ends then: the engine ran before

DECODE = engine(np.full(2000, 0.016), 0.001, 0.7, ratio=1.3)
# Eight passes of decode and a piece of a prompt, which reads a fifth as fast.
MIXED = engine(np.tile([0.012] * 8 + [0.2], 150), 0.0005, np.tile([0.7] * 8 + [0.15], 150), ratio=1.3)
BURSTS = engine(np.tile([0.015] * 100, 30), np.tile([0.0005] * 99 + [0.5], 30), 0.7, ratio=1.3)
PROMPTS = engine(np.tile([0.015] * 100 + [3.0], 10), 0.001, np.tile([0.7] * 100 + [0.1], 10), ratio=1.3)


def window(made: Engine, length_s: float = 10.0) -> tuple[float, float, NDArray[np.bool_]]:
    """A window as it is cut: from the output of one step to that of another, and which steps it has."""
    start_s = float(made.end_s[np.searchsorted(made.end_s, START_S)])
    last = min(int(np.searchsorted(made.end_s, start_s + length_s)), len(made.end_s) - 1)
    end_s = float(made.end_s[last])
    return start_s, end_s, (made.end_s > start_s) & (made.end_s <= end_s)


def sampled(made: Engine, phase_s: float = 0.37, period_s: float = 1.0, devices: int = 1, **more: Any) -> Samples:
    """Samples of all devices, which are read one after the other."""
    until_s = float(made.end_s[-1])
    return {
        f"GPU-{i}": device_samples(
            made, reads(phase_s + 0.004 * i, period_s, until_s), f"GPU-{i}", devices, **more
        )
        for i in range(devices)
    }  # fmt: skip


def joined(made: Engine, samples: Samples, length_s: float = 10.0, **more: Any) -> WindowCounters:
    start_s, end_s, rows = window(made, length_s)
    given_ = {
        "steps": made.table(rows), "step_bytes": made.model[rows], "facts": facts(*samples), "expected": len(samples),
        "datasheet_bytes_per_s": None,
    }  # fmt: skip
    return join_counters(start_s, end_s, samples=samples, **(given_ | more))


def widths(found: WindowCounters) -> tuple[float, float]:
    """How far the bounds are from the ratio, as parts of it."""
    assert found.ratio is not None
    assert found.ratio_low is not None
    assert found.ratio_high is not None
    return 1 - found.ratio_low / found.ratio, found.ratio_high / found.ratio - 1


def contains(found: WindowCounters, truth: float) -> bool:
    assert found.ratio_low is not None
    assert found.ratio_high is not None
    return found.ratio_low <= truth <= found.ratio_high


PHASES = [round(0.04 * i, 2) for i in range(25)]


@pytest.mark.parametrize("made", [DECODE, MIXED, BURSTS], ids=["decode", "mixed", "bursts"])
def test_ratios_are_within_two_percent_whatever_the_phase(made: Engine) -> None:
    for phase_s in PHASES:
        found = joined(made, sampled(made, phase_s))
        assert found.ratio == pytest.approx(1.3, rel=0.02), phase_s
        assert contains(found, 1.3), phase_s
        assert found.covered_ratio >= 0.79


def test_steady_decode_has_narrow_bounds() -> None:
    """A step of 17 ms at either end of nine seconds, and cells of a hundredth of a second."""
    for phase_s in PHASES:
        assert max(widths(joined(DECODE, sampled(DECODE, phase_s)))) < 0.008


def test_long_prompts_are_off_by_no_more_than_what_moves_while_the_driver_refreshes() -> None:
    """Counters lag by up to REFRESH_S: at either end that much may count at the rate of decode, not of the prompt."""
    for phase_s in PHASES:
        found = joined(PROMPTS, sampled(PROMPTS, phase_s))
        assert found.counter_bytes is not None
        off = REFRESH_S * (0.7 - 0.1) * BANDWIDTH / found.counter_bytes
        assert 0.02 < off < 0.035
        assert found.ratio == pytest.approx(1.3, rel=off)
        assert contains(found, 1.3)


def test_counters_read_at_once_are_exact_but_for_steps_across_the_ends() -> None:
    found = joined(DECODE, sampled(DECODE, refresh_s=0.0))
    assert found.ratio == pytest.approx(1.3, rel=1e-9)
    assert found.counter_bytes == pytest.approx(0.7 * 16 / 17 * BANDWIDTH * 9, rel=2e-3)
    assert found.counter_bytes_low == pytest.approx(found.counter_bytes)
    assert found.counter_bytes_high == pytest.approx(found.counter_bytes)
    assert found.model_bytes_high is not None
    assert found.model_bytes_low is not None
    two_steps = 2 * float(DECODE.model[0])
    assert found.model_bytes_high - found.model_bytes_low == pytest.approx(two_steps)


phases = st.floats(0.0, 1.0)
spells = st.lists(
    st.tuples(
        st.sampled_from([0.001, 0.01, 0.05, 0.4, 3.0]),  # a step's busy time
        st.sampled_from([0.0, 0.0005, 0.02, 0.3, 1.5]),  # the gap before it
        st.floats(0.05, 1.0),  # the share of the bandwidth
        st.integers(1, 300),  # such steps
    ),
    min_size=1,
    max_size=5,
)


def mixture(spells_of: Sequence[tuple[float, float, float, int]], ratio: float, until_s: float) -> Engine:
    """Spells of steps that are alike, over and over, until enough time has passed."""
    once = [np.repeat([spell[:3]], min(spell[3], max(1, round(20 / sum(spell[:2])))), axis=0) for spell in spells_of]
    round_s = float(sum(part[:, :2].sum() for part in once))
    busy, gap, used = np.concatenate(once * (int(until_s / round_s) + 1)).T
    return engine(busy, gap, used, ratio)


@settings(max_examples=150)
@given(
    spells,
    phases,
    st.sampled_from([0.25, 1.0]),
    st.sampled_from([0.0, REFRESH_S]),
    st.floats(0.4, 3.0),
    st.integers(1, 3),
)
@example([(0.05, 1.5, 1.0, 1), (3.0, 0.0, 0.05, 1)], 0.5, 0.25, REFRESH_S, 1.0, 2)
def test_the_truth_is_always_in_the_bounds(
    spells_of: list[tuple[float, float, float, int]],
    phase: float,
    period_s: float,
    refresh_s: float,
    ratio: float,
    devices: int,
) -> None:
    made = mixture(spells_of, ratio, 20.0)
    found = joined(made, sampled(made, phase * period_s, period_s, devices, refresh_s=refresh_s))
    assert found.devices == devices
    if found.ratio is not None:
        assert found.ratio_low is not None
        assert found.ratio_high is not None
        assert found.ratio_low <= found.ratio <= found.ratio_high
        assert contains(found, ratio)
    else:  # perhaps no step lies in the stretch as a whole, but for that steps or gaps must be long
        assert max(max(busy_s, gap_s) for busy_s, gap_s, *_ in spells_of) >= 0.3


@settings(max_examples=60)
@given(spells, phases, st.sampled_from([10.0, 60.0]), st.floats(0.4, 3.0), st.integers(1, 2))
def test_long_samples_bound_the_truth_too(
    spells_of: list[tuple[float, float, float, int]], phase: float, length_s: float, ratio: float, devices: int
) -> None:
    """Of 30 s: longer than one window, and cut by it, or whole in a longer one."""
    made = mixture(spells_of, ratio, 110.0)
    found = joined(made, sampled(made, -30.0 * phase, 30.0, devices), length_s)
    if found.ratio is not None:
        assert found.ratio_low is not None
        assert found.ratio_high is not None
        assert found.ratio_low <= found.ratio <= found.ratio_high
        assert contains(found, ratio)


def test_a_sample_longer_than_the_window_counts_in_proportion_and_says_how_little_that_tells() -> None:
    found = joined(DECODE, sampled(DECODE, 0.0, 30.0))
    assert found.ratio == pytest.approx(1.3, rel=0.01)
    assert found.covered_ratio == pytest.approx(1.0)
    low, high = widths(found)
    assert low > 0.5
    assert high > 0.3
    whole = joined(DECODE, sampled(DECODE, 4.0, 8.0))
    assert whole.covered_ratio == pytest.approx(0.8, rel=0.01)
    assert max(widths(whole)) < 0.01


def test_twice_the_devices_with_twice_the_bytes_have_the_same_ratio() -> None:
    one = joined(MIXED, sampled(MIXED, refresh_s=0.0))
    both = replace(MIXED, model=2 * MIXED.model)
    two = joined(both, sampled(both, devices=2, refresh_s=0.0))
    assert (two.devices, two.devices_expected) == (2, 2)
    assert one.counter_bytes is not None
    assert two.counter_bytes == pytest.approx(2 * one.counter_bytes, rel=5e-3)
    assert two.ratio == pytest.approx(one.ratio, rel=1e-6)
    assert two.dram_ratio == pytest.approx(one.dram_ratio, rel=5e-3)


def test_a_gap_in_one_device_lowers_what_is_covered_and_not_the_ratio() -> None:
    samples = sampled(DECODE, devices=2)
    whole = joined(DECODE, samples)
    holed = samples | {"GPU-1": [s for s in samples["GPU-1"] if not 6.0 < s.start_monotonic_s < 8.0]}
    found = joined(DECODE, holed)
    assert found.covered_ratio == pytest.approx(whole.covered_ratio - 2.0 / 10.0, abs=0.01)
    assert found.ratio == pytest.approx(1.3, rel=0.003)
    assert contains(found, 1.3)
    assert found.counter_bytes is not None
    assert whole.counter_bytes is not None
    assert found.counter_bytes < 0.8 * whole.counter_bytes


def test_the_newest_samples_may_be_missing_still() -> None:
    _, end_s, _ = window(DECODE)
    samples = {u: [s for s in got if s.end_monotonic_s < end_s - 3.0] for u, got in sampled(DECODE).items()}
    found = joined(DECODE, samples)
    assert found.covered_ratio == pytest.approx(0.6, abs=0.01)
    assert found.ratio == pytest.approx(1.3, rel=0.01)


def test_a_device_that_is_not_sampled_leaves_the_bytes_unknown() -> None:
    samples = sampled(DECODE, devices=2)
    for fewer in ({"GPU-0": samples["GPU-0"]}, samples | {"GPU-1": []}):
        found = joined(DECODE, fewer, expected=2)
        assert (found.devices, found.devices_expected) == (1, 2)
        assert found.counter_bytes is found.model_bytes is found.ratio is None
        assert found.dram_ratio == pytest.approx(0.7 * 16 / 17 / 2, rel=0.01)
    more = joined(DECODE, samples, expected=1)
    assert more.ratio is None
    assert more.complaints == ("counters of 2 devices for an engine of 1: their bytes are not compared",)


def test_nothing_sampled_is_nothing_known() -> None:
    found = joined(DECODE, {}, expected=1)
    assert found == WindowCounters(None, 0, 1, 0.0)
    empty = join_counters(5.0, 5.0, DECODE.table(np.zeros(2000, dtype=bool)), None, sampled(DECODE), {}, 1, None)
    assert empty == WindowCounters(None, 0, 1, 0.0)


def test_two_bandwidths_that_differ_widen_the_bounds_to_both() -> None:
    samples = sampled(DECODE)
    own = joined(DECODE, samples)
    same = joined(DECODE, samples, datasheet_bytes_per_s=BANDWIDTH)
    assert same == own
    both = joined(DECODE, samples, datasheet_bytes_per_s=1.1 * BANDWIDTH)
    assert both.ratio == own.ratio
    assert both.ratio_low == pytest.approx(own.ratio_low, rel=1e-6)
    assert both.ratio_high == pytest.approx(1.1 * (own.ratio_high or 0), rel=1e-6)
    assert both.counter_bytes_high == pytest.approx(1.1 * (own.counter_bytes_high or 0), rel=1e-6)
    datasheet = joined(DECODE, samples, facts={}, datasheet_bytes_per_s=1.1 * BANDWIDTH)
    assert datasheet.ratio == pytest.approx(1.1 * (own.ratio or 0))
    neither = joined(DECODE, samples, facts={})
    assert neither.counter_bytes is neither.ratio is None
    assert neither.dram_ratio == own.dram_ratio


def test_a_lower_memory_clock_widens_the_low_end_as_its_cycles_may_be_what_is_counted() -> None:
    """The device's share is one of the bandwidth at its highest clock or of now: nobody says which."""
    known = facts("GPU-0", memory_clock_max_hz=3e9)
    full, near, low = (joined(DECODE, sampled(DECODE, memory_clock_hz=hz), facts=known) for hz in (3e9, 2.98e9, 2.4e9))
    untold = joined(DECODE, sampled(DECODE), facts=known)
    assert (untold.ratio_low, untold.counter_bytes_low) == (full.ratio_low, full.counter_bytes_low)
    assert (near.ratio, near.ratio_low, near.ratio_high) == (full.ratio, full.ratio_low, full.ratio_high)
    assert (low.ratio, low.ratio_high, low.counter_bytes_high) == (full.ratio, full.ratio_high, full.counter_bytes_high)
    assert low.ratio_low == pytest.approx(0.8 * (full.ratio_low or 0), rel=1e-3)
    assert low.counter_bytes_low == pytest.approx(0.8 * (full.counter_bytes_low or 0), rel=1e-6)
    both = joined(DECODE, sampled(DECODE, memory_clock_hz=2.4e9), facts=known, datasheet_bytes_per_s=0.9 * BANDWIDTH)
    assert both.ratio_low == pytest.approx(0.9 * (low.ratio_low or 0), rel=1e-3)
    assert both.ratio_high == low.ratio_high


def test_a_memory_clock_that_rose_within_a_sample_was_low_in_it() -> None:
    known = facts("GPU-0", memory_clock_max_hz=3e9)
    samples = sampled(DECODE, memory_clock_hz=3e9)["GPU-0"]
    start_s, _, _ = window(DECODE)
    at = next(n for n, s in enumerate(samples) if s.start_monotonic_s > start_s + 3)
    dipped = [replace(s, memory_clock_hz=1.5e9) if n == at else s for n, s in enumerate(samples)]
    full = joined(DECODE, {"GPU-0": samples}, facts=known).counter_bytes_low or 0.0
    lost = full - (joined(DECODE, {"GPU-0": dipped}, facts=known).counter_bytes_low or 0.0)
    halves = [0.5 * (s.dram_ratio or 0) * s.span_s * BANDWIDTH for s in samples[at : at + 2]]
    assert lost == pytest.approx(sum(halves), rel=0.1)


def test_samples_without_a_bandwidth_are_passed_over_and_devices_without_any_keep_their_other_means() -> None:
    samples = sampled(DECODE, power_w=500.0)
    _, end_s, _ = window(DECODE)
    some = [s if s.end_monotonic_s < end_s - 4 else replace(s, dram_ratio=None) for s in samples["GPU-0"]]
    found = joined(DECODE, {"GPU-0": some})
    assert found.ratio == pytest.approx(1.3, rel=0.01)
    assert found.covered_ratio == pytest.approx(0.5, abs=0.01)
    none = joined(DECODE, {"GPU-0": [replace(s, dram_ratio=None) for s in samples["GPU-0"]]})
    assert none.counter_bytes is none.ratio is none.dram_ratio is None
    assert (none.devices, none.power_w) == (1, 500.0)
    assert none.covered_ratio == pytest.approx(0.9, abs=0.01)


def test_steps_without_a_model_leave_the_model_bytes_unknown_unless_they_are_few() -> None:
    _, _, rows = window(DECODE)
    samples, modelled = sampled(DECODE), DECODE.model[rows].copy()
    modelled[300:302] = np.nan  # 2 of about 530
    few = joined(DECODE, samples, step_bytes=modelled)
    assert few.ratio == pytest.approx(1.3, rel=UNMODELLED_RATIO)
    assert contains(few, 1.3)
    modelled[300:330] = np.nan
    many = joined(DECODE, samples, step_bytes=modelled)
    assert many.model_bytes is many.ratio is None
    assert many.counter_bytes == few.counter_bytes
    none = joined(DECODE, samples, step_bytes=None)
    assert none == many
    modelled = DECODE.model[rows].copy()
    modelled[:10] = np.nan  # before the first whole sample
    assert joined(DECODE, samples, step_bytes=modelled).ratio == pytest.approx(1.3, rel=1e-6)


def test_lost_steps_leave_the_model_bytes_unknown_unless_they_are_few() -> None:
    _, _, rows = window(DECODE)

    def without(lost: slice) -> WindowCounters:
        kept = rows.copy()
        kept[np.flatnonzero(rows)[lost]] = False
        table = DECODE.table(kept)
        after_gap = np.concatenate(([False], np.diff(table["sequence"]) > 1))
        table = StepTable(table.columns, {"observed_s": ~after_gap})
        return joined(DECODE, sampled(DECODE), steps=table, step_bytes=DECODE.model[kept])

    few = without(slice(300, 302))
    assert few.ratio == pytest.approx(1.3, rel=UNMODELLED_RATIO)
    assert contains(few, 1.3)
    assert without(slice(300, 330)).ratio is None


def test_rows_of_a_page_spread_their_bytes_over_their_interval() -> None:
    _, _, rows = window(DECODE)
    first = np.flatnonzero(rows)[0]
    places = np.arange(first, first + rows.sum() // 59 * 59, 59)  # a row a second
    begins, ends = DECODE.end_s[places - 1], DECODE.end_s[places + 58]
    table = StepTable(
        {
            "submit_monotonic_s": begins,
            "output_monotonic_s": ends,
            "observed_s": np.full(len(places), 59 * 0.016),
            "resolution_steps": np.full(len(places), 59),
        }
    )
    moved = np.add.reduceat(DECODE.model[first : first + 59 * len(places)], np.arange(0, 59 * len(places), 59))
    for phase_s in PHASES:
        found = joined(DECODE, sampled(DECODE, phase_s), steps=table, step_bytes=moved)
        assert found.ratio == pytest.approx(1.3, rel=0.005)
        assert contains(found, 1.3)
        assert 0.05 < max(widths(found)) < 0.45  # a row is a second of eight, all in or all out at either end


def test_a_step_under_way_when_the_window_closes_is_not_joined() -> None:
    """A prompt of 4 s came after ten seconds of decode, and the window was closed in its midst."""
    made = engine(np.array([0.016] * 700 + [4.0]), 0.001, np.array([0.7] * 700 + [0.4]), 1.3)
    start_s, end_s = float(made.end_s[100]), float(made.end_s[699]) + 3.0
    rows = (made.end_s > start_s) & (made.end_s <= end_s)
    found = join_counters(start_s, end_s, made.table(rows), made.model[rows], sampled(made), facts("GPU-0"), 1, None)
    assert found.ratio == pytest.approx(1.3, rel=0.01)
    assert contains(found, 1.3)
    assert found.covered_ratio == pytest.approx(9 / 13.2, abs=0.01)


def test_steps_that_are_submitted_ahead_and_seen_late_are_in_the_bounds() -> None:
    """With two steps in flight: the device begins a step before the output of the one before it is seen."""
    for made in (DECODE, MIXED):
        seen = replace(made, end_s=made.end_s + 0.003)
        start_s, end_s, rows = window(seen)
        output, submit = seen.end_s[rows], seen.begin_s[rows] - 0.015
        previous = np.concatenate(([start_s], output[:-1]))
        observed = output - np.maximum(previous, submit)
        table = StepTable({"submit_monotonic_s": submit, "output_monotonic_s": output, "observed_s": observed})
        for phase_s in PHASES:
            samples = sampled(made, phase_s)
            found = join_counters(start_s, end_s, table, made.model[rows], samples, facts("GPU-0"), 1, None)
            assert found.ratio == pytest.approx(1.3, rel=0.02)
            assert contains(found, 1.3)


def test_a_wall_clock_that_jumps_by_400_ms_changes_nothing_and_is_said() -> None:
    samples = sampled(MIXED)
    before = joined(MIXED, samples)
    after = joined(MIXED, samples, jumps=[ClockJump(8.0, -0.4, False, 7.0)])
    assert after.complaints == ("the wall clock was set by -0.4 s; counters are joined by the monotonic clock",)
    assert replace(after, complaints=()) == before
    assert joined(MIXED, samples, jumps=[ClockJump(2.0, -0.4, False, 1.0), ClockJump(99.0, 0.4, False, 98.0)]) == before


def test_a_sampler_that_comes_400_ms_late_still_joins_what_it_saw() -> None:
    times = [t + (0.4 if t > 7.0 else 0.0) for t in reads(0.37, 1.0, 20.0)]
    for made in (DECODE, MIXED, BURSTS):
        found = joined(made, {"GPU-0": device_samples(made, times)})
        assert found.ratio == pytest.approx(1.3, rel=0.02)
        assert contains(found, 1.3)
        assert not found.complaints


@pytest.mark.parametrize("jump", [ClockJump(7.9, 0.4, True), ClockJump(7.9, 0.4, True, 7.8)])
def test_samples_that_span_a_suspend_are_left_out_and_said(jump: ClockJump) -> None:
    """The device's counters went on, or stood still, for 400 ms that no clock of ours saw."""
    samples = sampled(DECODE)
    spoiled = [
        replace(s, dram_ratio=0.9) if s.start_monotonic_s <= 7.85 < s.end_monotonic_s else s for s in samples["GPU-0"]
    ]
    found = joined(DECODE, {"GPU-0": spoiled}, jumps=[jump])
    assert found.ratio == pytest.approx(1.3, rel=0.003)
    assert found.covered_ratio == pytest.approx(joined(DECODE, samples).covered_ratio - 0.1, abs=0.005)
    assert found.complaints == (
        "1 sample of GPU-0 left out: the machine was suspended meanwhile",
        "the machine was suspended for 0.4 s: counters that span it are left out",
    )


def test_a_suspend_that_was_found_late_leaves_out_all_that_may_span_it() -> None:
    found = joined(DECODE, sampled(DECODE), jumps=[ClockJump(8.6, 30.0, True, 6.9)])
    assert found.complaints[0] == "3 samples of GPU-0 left out: the machine was suspended meanwhile"
    assert found.ratio == pytest.approx(1.3, rel=0.003)


def _copies(sample: DeviceSample) -> dict[str, tuple[DeviceSample, str]]:
    end_s, start_s = sample.end_monotonic_s, sample.start_monotonic_s
    return {
        "over": (replace(sample, dram_ratio=1.06), "dram_ratio is not between 0 and 1"),
        "below": (replace(sample, tensor_ratio=-0.1), "tensor_ratio is not between 0 and 1"),
        "nan": (replace(sample, dram_ratio=float("nan")), "dram_ratio is not between 0 and 1"),
        "empty": (replace(sample, end_monotonic_s=start_s), "their window has no length"),
        "backwards": (replace(sample, end_monotonic_s=start_s - 1), "their window has no length"),
        "endless": (replace(sample, start_monotonic_s=float("nan")), "their window has no length"),
        "overlap": (replace(sample, end_monotonic_s=end_s + 0.5), "they overlap the ones before them"),
    }


@pytest.mark.parametrize("case", _copies(DeviceSample("", CounterSource.NVML, 0.0, 1.0)))
def test_impossible_samples_are_left_out_and_said(case: str) -> None:
    good = sampled(DECODE)["GPU-0"]
    at = 6
    bad, why = _copies(good[at])[case]
    found = joined(DECODE, {"GPU-0": [*good[:at], bad, *good[at + 1 :]]})
    assert found.complaints == (f"1 sample of GPU-0 left out: {why}",)
    assert found.ratio == pytest.approx(1.3, rel=0.003)
    assert found.covered_ratio == pytest.approx(0.85 if case == "overlap" else 0.8, abs=0.01)


def test_a_sample_given_twice_counts_once_and_the_order_does_not_matter() -> None:
    good = sampled(DECODE)["GPU-0"]
    before = joined(DECODE, {"GPU-0": good})
    assert joined(DECODE, {"GPU-0": good[::-1]}) == before
    twice = joined(DECODE, {"GPU-0": [*good, good[6]]})
    assert replace(twice, complaints=()) == before
    assert twice.complaints == ("1 sample of GPU-0 left out: they overlap the ones before them",)


def test_of_several_sources_of_a_device_the_first_is_taken() -> None:
    good = sampled(DECODE)["GPU-0"]
    other = [replace(s, source=CounterSource.DCGM, dram_ratio=0.9) for s in good]
    found = joined(DECODE, {"GPU-0": [*other, *good]})
    assert found == joined(DECODE, {"GPU-0": good})
    assert found.source is CounterSource.NVML
    two = {"GPU-0": good, "GPU-1": [replace(s, uuid="GPU-1", source=CounterSource.DCGM) for s in good]}
    assert joined(DECODE, two).source is CounterSource.DCGM


def alike(spans: Sequence[tuple[float, float]], values: Sequence[dict[str, Any]], uuid: str = "GPU-0") -> Samples:
    return {uuid: [DeviceSample(uuid, CounterSource.NVML, *span, **v) for span, v in zip(spans, values, strict=True)]}


SECONDS = [(1.0, 2.0), (2.0, 3.0), (3.0, 5.0)]
LIMITS = {"power_limit_w": 700.0, "power_limit_max_w": 770.0, "sm_clock_max_hz": 2e9, "memory_clock_max_hz": 3e9}


def means(samples: Samples, made: Engine | None = None, **more: Any) -> WindowCounters:
    """Of a window of 10 s; without steps but for those of ``made``."""
    made = made or engine(np.empty(0), 0.0, 0.0)
    rows = np.ones(len(made.end_s), dtype=bool)
    found = facts(*samples, **LIMITS)
    return join_counters(0.0, 10.0, made.table(rows), made.model, samples, found, len(samples), None, **more)


def test_means_are_over_time_and_devices() -> None:
    values = [
        {"dram_ratio": 0.2, "power_w": 300.0, "energy_j": 310.0},
        {"dram_ratio": 0.4, "power_w": 500.0, "energy_j": 490.0},
        {"dram_ratio": 0.9, "power_w": 600.0, "energy_j": 1200.0},
    ]
    found = means(alike(SECONDS, values))
    assert found.dram_ratio == pytest.approx((0.2 + 0.4 + 2 * 0.9) / 4)
    assert found.power_w == pytest.approx(500.0)
    assert found.power_ratio == pytest.approx(500 / 700)
    assert found.energy_j == pytest.approx(2000.0)
    assert found.covered_ratio == pytest.approx(0.4)
    assert found.counter_bytes == pytest.approx(2.4 * BANDWIDTH)
    assert found.tensor_ratio is found.sm_clock_ratio is None
    both = alike(SECONDS, values) | alike(SECONDS, [v | {"dram_ratio": 0.6, "energy_j": None} for v in values], "GPU-1")
    two = means(both)
    assert two.dram_ratio == pytest.approx((0.6 + 0.6) / 2)
    assert two.energy_j is None


def test_a_mean_needs_half_of_the_time() -> None:
    told = means(alike(SECONDS, [{}, {}, {"tensor_ratio": 0.3}]))
    assert told.tensor_ratio == pytest.approx(0.3)
    assert means(alike(SECONDS, [{"tensor_ratio": 0.3}, {}, {}])).tensor_ratio is None


def test_the_clock_of_an_idle_device_is_not_that_of_a_throttled_one() -> None:
    clocks = [
        {"sm_clock_hz": 1.8e9, "memory_clock_hz": 3e9, "graphics_ratio": 1.0},
        {"sm_clock_hz": 0.2e9, "memory_clock_hz": 1e9, "graphics_ratio": 0.0},
        {"sm_clock_hz": 1.6e9, "memory_clock_hz": 3e9, "graphics_ratio": 0.5},
    ]
    found = means(alike(SECONDS, clocks))
    assert found.sm_clock_hz == pytest.approx(1.7e9)
    assert found.sm_clock_ratio == pytest.approx(0.85)
    assert found.memory_clock_ratio == pytest.approx(1.0)
    idle = means(alike(SECONDS, [clocks[1]] * 3))
    assert idle.sm_clock_hz is idle.sm_clock_ratio is idle.memory_clock_ratio is None
    plain = means(alike(SECONDS, [{"sm_clock_hz": hz} for hz in (2e9, 1e9, 1e9)]))
    assert plain.sm_clock_ratio == pytest.approx((1 + 0.5 + 2 * 0.5) / 4)


@pytest.mark.parametrize(
    ("end_s", "ratio"),
    [
        (3.5, (1.8 + 1.5 * 1.6 + 1.5 * 1.4) / 4 / 2),  # 10 ms after a step: its clock still
        (3.6, (1.8 + 1.4 * 1.4) / 2.4 / 2),  # between two steps, so the second reading tells nothing
        (3.8, (1.8 + 1.8 * 1.6 + 1.2 * 1.4) / 4 / 2),  # within the next step
    ],
)
def test_a_clock_that_was_read_in_an_idle_moment_does_not_count(end_s: float, ratio: float) -> None:
    """Steps until 3.49 s and from 3.7 s on; the readings are at 2 s, ``end_s`` and 5 s."""
    made = engine([1.99, 0.5, 6.0], [1.0, 0.0, 0.21], 0.5)
    clocks = [{"sm_clock_hz": hz, "graphics_ratio": 0.9} for hz in (1.8e9, 1.6e9, 1.4e9)]
    found = means(alike([(1.0, 2.0), (2.0, end_s), (end_s, 5.0)], clocks), made)
    assert found.sm_clock_ratio == pytest.approx(ratio)


@pytest.mark.parametrize(
    ("source", "slack_s", "pause_s", "counts"),
    [
        (CounterSource.DCGM, 1.0, 0.5, False),  # it may have been read in the pause
        (CounterSource.DCGM, 1.0, 0.0, True),
        (CounterSource.DCGM, 1.0, 0.01, True),  # a clock is held for longer
        (CounterSource.DCGM, 0.2, 0.5, True),  # the pause is too far away
        (CounterSource.DCGM, 30.0, 0.0, True),  # busy as far as steps are known
        (CounterSource.NVML, 1.0, 0.5, True),  # read when the sample ended; its counters lag
    ],
)
def test_a_clock_of_a_page_counts_where_steps_ran_whenever_it_may_have_been_read(
    source: CounterSource, slack_s: float, pause_s: float, counts: bool
) -> None:
    """Steps until 4.5 s and after the pause; the reading is at 5.2 s."""
    made = engine([4.5, 5.5 - pause_s], [0.0, pause_s], 0.5)
    sample = DeviceSample("GPU-0", source, 1.0, 5.2, slack_s, sm_clock_hz=1.6e9, graphics_ratio=0.9)
    assert means({"GPU-0": [sample]}, made).sm_clock_hz == (pytest.approx(1.6e9) if counts else None)


def test_no_clock_is_told_where_all_were_read_in_idle_moments() -> None:
    made = engine([0.5] * 9, 0.5, 0.5)  # busy in the second half of each second
    spans = [(i + 0.2, i + 1.2) for i in range(8)]
    found = means(alike(spans, [{"sm_clock_hz": 1e9, "graphics_ratio": 0.5}] * 8), made)
    assert found.graphics_ratio == pytest.approx(0.5)
    assert found.sm_clock_hz is found.sm_clock_ratio is None


def test_throttled_time_is_accumulated_where_it_can_be_else_told_by_flags() -> None:
    power, heat, brake = Throttle.POWER_CAP, Throttle.THERMAL, Throttle.POWER_BRAKE
    accumulated = means(alike(SECONDS, [{"throttled_s": {power: s}} for s in (0.5, 0.0, 1.5)]))
    assert accumulated.throttled_ratio == {power: pytest.approx(0.5)}
    flags = means(alike(SECONDS, [{"throttles": t} for t in ((heat,), (), (heat, brake))]))
    assert flags.throttled_ratio[heat] == pytest.approx(0.75)
    assert flags.throttled_ratio[brake] == pytest.approx(0.5)
    assert flags.throttled_ratio[power] == 0.0
    assert set(flags.throttled_ratio) == set(Throttle)
    both = means(alike(SECONDS, [{"throttles": (power, heat), "throttled_s": {power: 0.1}}] * 3))
    assert both.throttled_ratio[power] == pytest.approx((0.1 + 0.1 + 2 * 0.05) / 4)
    assert both.throttled_ratio[heat] == 1.0
    assert means(alike(SECONDS, [{}] * 3)).throttled_ratio == {}
    over = means(alike(SECONDS, [{"throttled_s": {power: 9.0}}] * 3))
    assert over.throttled_ratio == {power: 1.0}


def test_an_accumulated_time_that_its_own_flag_denies_is_not_taken() -> None:
    """A thousandth, by a count in another unit; a flag of one sample beside a hundredth of the time denies nothing."""
    power = Throttle.POWER_CAP
    denied = means(alike(SECONDS, [{"throttles": (power,), "throttled_s": {power: 0.001 * s}} for s in (1, 1, 2)]))
    assert denied.throttled_ratio[power] == 1.0
    nothing = means(alike(SECONDS, [{"throttles": t, "throttled_s": {power: 0.0}} for t in ((power,), (), ())]))
    assert nothing.throttled_ratio[power] == 0.25
    begun = means(
        alike(
            SECONDS, [{"throttles": t, "throttled_s": {power: s}} for t, s in (((power,), 0.04), ((), 0.0), ((), 0.0))]
        )
    )
    assert begun.throttled_ratio[power] == pytest.approx(0.01)


def test_throttled_shares_and_the_power_under_a_cap_are_of_working_time() -> None:
    """Capped while it works, in a window of which half is idle: at its limit all the same."""
    power = Throttle.POWER_CAP
    work = {"throttles": (power,), "throttled_s": {power: 0.8}, "graphics_ratio": 1.0, "power_w": 693.0}
    idle = {"throttles": (), "throttled_s": {power: 0.0}, "graphics_ratio": 0.0, "power_w": 120.0}
    found = means(alike(SECONDS, [work, work, idle]))
    assert found.throttled_ratio[power] == pytest.approx(0.8)
    assert found.throttled_ratio[Throttle.THERMAL] == 0.0
    assert found.power_ratio == pytest.approx((693 + 120) / 2 / 700)
    assert found.capped_power_ratio == pytest.approx(0.99)
    assert found.power_limit_room_ratio == pytest.approx(1.1)
    flags = means(alike(SECONDS, [{**each, "throttled_s": {}} for each in (work, idle, work)]))
    assert flags.throttled_ratio[power] == 1.0
    times = means(alike(SECONDS, [{**each, "throttles": None} for each in (work, idle, idle)]))
    assert times.capped_power_ratio == pytest.approx(0.99)
    free = means(alike(SECONDS, [{**work, "throttles": (), "throttled_s": {}}] * 3))
    assert free.capped_power_ratio is None


def device(uuid: str, **more: Any) -> Samples:
    return alike(SECONDS, [{"sm_clock_hz": 2e9, "memory_clock_hz": 3e9, "graphics_ratio": 1.0, **more}] * 3, uuid)


def test_an_engine_is_as_fast_as_its_slowest_device_which_is_named() -> None:
    slow = device(
        "GPU-2", sm_clock_hz=1.2e9, power_w=350.0, throttles=(Throttle.THERMAL,), graphics_ratio=0.9, dram_ratio=0.2
    )
    rest = device("GPU-0", power_w=690.0, throttles=(Throttle.POWER_CAP,), dram_ratio=0.6)
    found = means(rest | device("GPU-1", power_w=690.0, throttles=(), dram_ratio=0.6, memory_clock_hz=2.7e9) | slow)
    assert (found.slowest_uuid, found.sm_clock_hz, found.sm_clock_ratio) == ("GPU-2", 1.2e9, pytest.approx(0.6))
    assert (found.power_w, found.power_ratio, found.capped_power_ratio) == (350.0, 0.5, None)
    assert {reason for reason, share in found.throttled_ratio.items() if share} == {Throttle.THERMAL}
    assert (found.graphics_ratio, found.graphics_ratio_low) == (pytest.approx(2.9 / 3), pytest.approx(0.9))
    assert found.memory_clock_ratio == pytest.approx(0.9)
    assert found.dram_ratio == pytest.approx(1.4 / 3)


def test_of_devices_at_about_one_clock_the_slower_memory_then_the_one_throttled_most_counts() -> None:
    cap = {"throttles": (Throttle.POWER_CAP,), "throttled_s": {Throttle.POWER_CAP: 0.5}}
    held = device("GPU-1", sm_clock_hz=1.715e9, **cap)
    assert means(device("GPU-0", sm_clock_hz=1.7e9, throttles=()) | held).slowest_uuid == "GPU-1"
    cold = device("GPU-2", sm_clock_hz=1.71e9, memory_clock_hz=2e9)
    assert means(device("GPU-0", sm_clock_hz=1.7e9) | held | cold).slowest_uuid == "GPU-2"


def test_without_highest_clocks_the_device_with_the_lowest_clock_is_the_slowest() -> None:
    """As of a page of DCGM without MAX_SM_CLOCK."""
    samples = device("GPU-0") | device("GPU-1", sm_clock_hz=1.2e9) | device("GPU-2", sm_clock_hz=1.9e9)

    def found(samples: Samples) -> WindowCounters:
        made = engine(np.empty(0), 0.0, 0.0)
        rows = np.ones(0, dtype=bool)
        return join_counters(0.0, 10.0, made.table(rows), made.model, samples, facts(*samples), len(samples), None)

    slow = found(samples)
    assert (slow.slowest_uuid, slow.sm_clock_hz, slow.sm_clock_ratio) == ("GPU-1", pytest.approx(1.2e9), None)
    hot = device("GPU-3", sm_clock_hz=1.21e9, throttles=(Throttle.THERMAL,))
    assert found(samples | hot).slowest_uuid == "GPU-3"
    far = device("GPU-3", sm_clock_hz=1.22e9, throttles=(Throttle.THERMAL,))
    assert found(samples | far).slowest_uuid == "GPU-1"


def test_which_device_is_slowest_is_not_known_where_none_tells() -> None:
    two = {uuid: alike(SECONDS, [{"dram_ratio": 0.5}] * 3, uuid)[uuid] for uuid in ("GPU-0", "GPU-1")}
    assert means(two).slowest_uuid is None
    assert means({"GPU-0": two["GPU-0"]}).slowest_uuid == "GPU-0"
    untold = device("GPU-0") | alike(SECONDS, [{"dram_ratio": 0.5}] * 3, "GPU-1")
    assert (means(untold).graphics_ratio_low, means(untold).slowest_uuid) == (None, "GPU-0")


def test_the_engine_core_is_told_without_a_device_and_the_others_are_not() -> None:
    core, api = ProcessRole.ENGINE_CORE, ProcessRole.API_SERVER
    processes = [
        ProcessSample(7, core, -1.0, 1.0, 0.5, 1, 0.4),
        ProcessSample(7, core, 1.0, 4.0, 1.5, 1, 1.0),
        ProcessSample(7, api, 1.0, 4.0, 9.0, 1, 1.0),
        ProcessSample(7, core, 20.0, 21.0, 9.0, 1, 1.0),
    ]
    found = means({}, processes=processes)
    assert found.engine_core_cores == pytest.approx((0.5 + 3 * 1.5) / 4)
    assert found.engine_core_busiest_cores == pytest.approx((0.4 + 3 * 1.0) / 4)
    threads = means({}, processes=[replace(p, busiest_cores=None) for p in processes])
    assert (threads.engine_core_cores, threads.engine_core_busiest_cores) == (found.engine_core_cores, None)


def test_a_join_takes_few_calls_however_many_steps_there_are() -> None:
    """Eight devices of ten samples each: some 30 calls a sample, none a step."""
    many, few = engine(np.full(12_000, 0.00199), 0.00001, 0.6), engine(np.full(1200, 0.0199), 0.0001, 0.6)
    counts = []
    for made in (many, few):
        samples = sampled(made, devices=8)
        start_s, end_s, rows = window(made)
        table, moved, known = made.table(rows), made.model[rows], facts(*samples)
        counts.append(calls_of(lambda: join_counters(start_s, end_s, table, moved, samples, known, 8, None)))  # noqa: B023
    assert counts[0] == pytest.approx(counts[1], rel=0.02)
    assert max(counts) < 4500


@pytest.mark.parametrize("made", [DECODE, MIXED, BURSTS, PROMPTS], ids=["decode", "mixed", "bursts", "prompts"])
def test_no_place_of_the_ends_within_their_slack_leaves_the_bounds(made: Engine) -> None:
    """Counter over model bytes, steps across the ends in or out, for ends shifted at random."""
    start_s, _, rows = window(made)
    table = made.table(rows)
    tracks, _ = tracks_of(start_s, start_s + 10.0, sampled(made))
    parts, _ = covered_parts(tracks, start_s, float(table["output_monotonic_s"][-1]))
    found = counted(parts, [dram_ratios(part) for part in parts], [BANDWIDTH])
    none = np.empty(0)
    traffic = StepTraffic(step_times(table), made.model[rows], (none, none), start_s, BANDWIDTH)
    low, high = ratio_low(found, traffic, 1), ratio_high(found, traffic, 1)
    assert low is not None
    assert high is not None
    (left,), (right,) = np.flatnonzero(~found.right), np.flatnonzero(found.right)
    shifts = np.random.default_rng(1).uniform(-REFRESH_S, REFRESH_S, (5000, 2))
    starts, ends = (found.at_s[[left, right]] + shifts).T
    moved = shifts @ (found.rate[[left, right]] * [-1, 1])
    least = traffic.ended_bytes(ends, most=False) - traffic.begun_bytes(starts, most=False)
    most = traffic.begun_bytes(ends, most=True) - traffic.ended_bytes(starts, most=True)
    quotients = (found.fixed_low + moved) / most, (found.fixed_high + moved) / least
    assert low <= quotients[0].min() <= low * 1.01
    assert high >= quotients[1].max() >= high * 0.99
