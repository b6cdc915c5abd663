"""Apportioned bytes: what counters counted is spread over steps, none of it lost and none invented."""

from __future__ import annotations

import numpy as np
import pytest
from counted_calls import calls_of
from hypothesis import given
from hypothesis import strategies as st
from made_devices import BANDWIDTH, device_samples, engine, facts, reads

from rooflens.collector.counter_join import apportioned_bytes
from rooflens.device_records import CounterSource, DeviceSample
from rooflens.records import StepTable


def sample(start_s: float, end_s: float, ratio: float | None, uuid: str = "GPU-0") -> DeviceSample:
    return DeviceSample(uuid, CounterSource.NVML, start_s, end_s, dram_ratio=ratio)


def steps(*times: tuple[float, float]) -> StepTable:
    begin, end = np.array(times, dtype=np.float64).reshape(-1, 2).T
    return StepTable({"submit_monotonic_s": begin, "output_monotonic_s": end, "observed_s": end - begin})


def test_a_sample_is_shared_by_the_models_bytes_that_lie_in_it() -> None:
    """Steps of 10 and 30 bytes in the first second; the third has half of its 40 in it and half in the next."""
    table = steps((0.0, 0.2), (0.2, 0.5), (0.5, 1.5))
    samples = {"GPU-0": [sample(0.0, 1.0, 0.6), sample(1.0, 2.0, 0.1)]}
    moved, known = apportioned_bytes(table, np.array([10.0, 30.0, 40.0]), samples, facts("GPU-0"), None)
    assert known.all()
    first, second = 0.6 * BANDWIDTH, 0.1 * BANDWIDTH
    assert moved == pytest.approx([first / 6, first / 2, first / 3 + second])


def test_steps_without_a_model_count_by_their_time() -> None:
    table, nan = steps((0.0, 0.2), (0.2, 0.6), (1.0, 1.5), (1.5, 1.6)), np.nan
    samples = {"GPU-0": [sample(0.0, 1.0, 0.6), sample(1.0, 2.0, 0.1)]}
    moved, known = apportioned_bytes(table, np.array([10.0, nan, nan, nan]), samples, facts("GPU-0"), None)
    assert known.all()
    assert moved == pytest.approx(np.array([0.2, 0.4, 0.1 * 5 / 6, 0.1 / 6]) * BANDWIDTH)
    by_time, _ = apportioned_bytes(table, None, samples, facts("GPU-0"), None)
    assert by_time == pytest.approx(moved)
    nothing, _ = apportioned_bytes(table, np.zeros(4), samples, facts("GPU-0"), None)
    assert nothing == pytest.approx(moved)


def test_what_sums_leave_over_is_no_byte() -> None:
    """After a step of no length, whose rate is so high that taking it off the sum again leaves a little."""
    table = steps((0.0004, 0.0004), (-0.0726, 0.5154), (0.7004, 0.7004))
    moved, _ = apportioned_bytes(
        table, np.array([1e8, 1.46347493e8, np.nan]), {"GPU-0": [sample(0.7, 0.75, 1.0)]}, facts("GPU-0"), None
    )
    assert moved == pytest.approx([0.0, 0.0, 0.05 * BANDWIDTH])


def test_a_step_is_known_where_all_devices_cover_the_whole_of_it() -> None:
    table = steps((0.5, 1.5), (2.0, 2.5), (2.8, 3.5), (4.5, 6.0))
    one = [sample(0.0, 1.0, 0.5), sample(1.0, 2.0, 0.5), sample(2.0, 3.0, 0.5), sample(3.0, 4.0, None)]
    two = [sample(0.0, 3.0, 0.5, "GPU-1"), sample(3.0, 5.0, 0.5, "GPU-1")]
    found = facts("GPU-0", "GPU-1")
    _, known = apportioned_bytes(table, np.ones(4), {"GPU-0": one, "GPU-1": two}, found, None)
    assert known.tolist() == [True, True, False, False]
    moved, alone = apportioned_bytes(table, np.ones(4), {"GPU-1": two}, found, None)
    assert alone.tolist() == [True, True, True, False]
    assert moved[3] == pytest.approx(0.5 * 2 * BANDWIDTH / (0.5 / 0.7 + 0.5 / 1.5) * 0.5 / 1.5)
    for samples in ({}, {"GPU-1": []}, {"GPU-0": one[3:]}, {"GPU-0": one, "GPU-1": []}):
        assert not apportioned_bytes(table, np.ones(4), samples, found, None)[1].any()
    assert not apportioned_bytes(table, np.ones(4), {"GPU-0": one}, {}, None)[1].any()
    assert apportioned_bytes(table, np.ones(4), {"GPU-0": one}, {}, 1e12)[1].tolist() == [True, True, False, False]
    moved, known = apportioned_bytes(steps(), np.empty(0), {"GPU-0": one}, found, None)
    assert (len(moved), len(known)) == (0, 0)


def test_two_devices_with_the_same_counters_give_twice_the_bytes() -> None:
    made = engine(np.tile([0.01, 0.2], 40), 0.05, np.tile([0.8, 0.2], 40), 1.5)
    table, times = made.table(np.ones(80, dtype=bool)), reads(0.03, 1.0, float(made.end_s[-1]))
    both = {uuid: device_samples(made, times, uuid) for uuid in ("GPU-0", "GPU-1")}
    one, known = apportioned_bytes(table, made.model, {"GPU-0": both["GPU-0"]}, facts("GPU-0"), None)
    two, both_known = apportioned_bytes(table, made.model, both, facts(*both), None)
    assert two == pytest.approx(2 * one)
    assert known.tolist() == both_known.tolist()
    assert known.sum() >= 70


moved_bytes = st.one_of(st.just(np.nan), st.just(0.0), st.floats(1e8, 1e12))


@st.composite
def rows(draw: st.DrawFn) -> tuple[StepTable, np.ndarray]:
    """Steps in order of their outputs, some of which begin before the one before them ended, some without a model."""
    shape = st.tuples(st.integers(0, 800), st.integers(0, 1200), moved_bytes)
    drawn = draw(st.lists(shape, min_size=1, max_size=25))
    gaps, spans, moved = np.array(drawn).T
    spans /= 1000
    end = np.cumsum(gaps / 1000) + 0.0004  # never where a sample ends, which is at whole milliseconds
    return steps(*zip(end - spans, end, strict=True)), moved


@given(
    rows(),
    st.lists(st.tuples(st.integers(50, 3000), st.sampled_from([0, 0, 700]), st.floats(0.0, 1.0)), max_size=12),
    st.integers(-1000, 5000),
    st.integers(1, 3),
)
def test_the_steps_and_the_idle_time_get_what_was_counted(
    made: tuple[StepTable, np.ndarray], windows: list[tuple[int, int, float]], first_ms: int, devices: int
) -> None:
    table, moved = made
    samples: dict[str, list[DeviceSample]] = {f"GPU-{i}": [] for i in range(devices)}
    counted = idle = 0.0
    begin = np.minimum(table["output_monotonic_s"] - table["observed_s"], table["output_monotonic_s"] - 1e-6)
    for uuid, own in samples.items():
        at_ms = first_ms
        for span_ms, gap_ms, ratio in windows:
            at_ms += gap_ms + span_ms
            at, span_s = at_ms / 1000, span_ms / 1000
            own.append(sample((at_ms - span_ms) / 1000, at, ratio, uuid))
            some = bool(((begin < at) & (table["output_monotonic_s"] > own[-1].start_monotonic_s)).any())
            counted += ratio * span_s * BANDWIDTH
            idle += 0.0 if some else ratio * span_s * BANDWIDTH
    found, known = apportioned_bytes(table, moved, samples, facts(*samples), None)
    assert (found >= 0).all()
    assert found.sum() + idle == pytest.approx(counted, rel=1e-6, abs=BANDWIDTH * 1e-6)
    first, last = (samples["GPU-0"][i] if windows else sample(0, 0, 0) for i in (0, -1))
    outside = (begin < first.start_monotonic_s - 1e-3) | (table["output_monotonic_s"] > last.end_monotonic_s + 1e-3)
    assert not (known & outside).any()


def test_the_calls_do_not_grow_with_the_steps() -> None:
    counts = []
    for count, busy_s in ((6000, 0.002), (600, 0.02)):
        made = engine(np.full(count, busy_s), 0.0, 0.6)
        samples = {f"GPU-{i}": device_samples(made, reads(0.3, 1.0, 11.5), f"GPU-{i}") for i in range(8)}
        table, known = made.table(np.ones(count, dtype=bool)), facts(*samples)
        counts.append(calls_of(lambda: apportioned_bytes(table, made.model, samples, known, None)))  # noqa: B023
    assert counts[0] == pytest.approx(counts[1], rel=0.02)
    assert counts[0] < 4000
