"""host_overhead by counters: the share of time in which devices worked, and processor time of the engine core."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from made_counters import beside
from made_windows import H100, INFO, case, info_with, merged, steps, window

from rooflens.analyzer.roofline import Roofline
from rooflens.analyzer.rules import RULES
from rooflens.analyzer.rules.counted import with_requests, working
from rooflens.device_records import CounterSource
from rooflens.findings import Code, Finding, Status
from rooflens.records import StepTable

HOST = Code.HOST_OVERHEAD
AHEAD = info_with(async_scheduling=True, concurrent_batches=2)


def judge(code: Code, table: StepTable, info: Any = INFO, **facts: Any) -> Finding:
    return RULES[code](beside(table, info, **facts))


def facts_of(found: Finding) -> dict[str, Any]:
    return {e.name: e.value for e in found.evidence}


def test_idle_time_is_no_time_in_which_the_host_is_waited_for() -> None:
    """Half of the window has no request: 0.48 of all time is 0.96 of that with requests."""
    table = steps(factor=5.0, gap_ratio=1.0, running=0)
    assert with_requests(case(table).figures[0], 1.0) == pytest.approx((0.5, 0.5), abs=0.01)
    found = working(beside(table, AHEAD, graphics_ratio=0.48))
    assert found is not None
    assert (found.low, found.high) == pytest.approx((0.96, 0.96), abs=0.02)
    assert judge(HOST, table, AHEAD, graphics_ratio=0.48).status is Status.CLEARED
    assert judge(HOST, table, AHEAD, graphics_ratio=0.3).status is Status.FIRING


def test_what_samples_do_not_cover_widens_the_bounds() -> None:
    table = steps(factor=5.0, gap_ratio=1.0, running=0)
    found = working(beside(table, AHEAD, graphics_ratio=0.3, covered_ratio=0.8))
    assert found is not None
    assert found.low == pytest.approx(0.3 / (0.5 / 0.8), abs=0.02)
    assert found.high == pytest.approx(0.3 / (0.3 / 0.8), abs=0.05)
    assert judge(HOST, table, AHEAD, graphics_ratio=0.3, covered_ratio=0.8).status is Status.CANNOT_TELL
    always = working(beside(steps(), AHEAD, graphics_ratio=0.6, covered_ratio=0.8))
    assert always is not None
    assert always.low == pytest.approx(0.6)
    assert always.high == pytest.approx(0.6 / 1.0, abs=0.21)


@pytest.mark.parametrize(
    ("graphics", "status"), [(0.95, "cleared"), (0.76, "cleared"), (0.74, "firing"), (0.3, "firing")]
)
@pytest.mark.parametrize("together", [1, 5])
def test_counters_stand_in_for_device_time(graphics: float, status: str, together: int) -> None:
    table = steps(factor=5.0, gap_ratio=0.0)
    found = judge(HOST, merged(table, together) if together > 1 else table, AHEAD, graphics_ratio=graphics)
    assert found.status == status
    if status == "firing":
        assert found.price is not None
        busy_s = float(table["observed_s"].sum())
        assert found.price.saved_s == pytest.approx((0.9 - graphics) * busy_s, rel=1e-6)
        assert found.price.saved_low_s == pytest.approx(max(0.0, 0.75 - graphics) * busy_s, rel=1e-6)
        assert found.price.saved_high_s == pytest.approx((1 - graphics) * busy_s, rel=1e-6)


def test_device_time_of_the_steps_is_better_than_counters() -> None:
    table = steps(factor=5.0)
    timed = StepTable({**table.columns, "device_s": table["observed_s"] * 0.95})
    assert judge(HOST, timed, AHEAD, graphics_ratio=0.2) == RULES[HOST](case(timed, info=AHEAD))
    assert judge(HOST, timed, INFO, graphics_ratio=0.2).status is Status.CLEARED


def test_an_engine_that_waits_inside_its_steps() -> None:
    """Launches take longer than kernels: nothing lies between the steps, and the device idles within them."""
    assert judge(HOST, steps(factor=5.0)).status is Status.CLEARED
    found = judge(HOST, steps(factor=5.0), graphics_ratio=0.4)
    assert found.status is Status.FIRING
    assert "the devices work 40% of the time" in found.summary


def test_devices_that_work_contradict_pauses_of_the_host() -> None:
    plain, doubted = judge(HOST, steps(gap_ratio=1.0)), judge(HOST, steps(gap_ratio=1.0), graphics_ratio=0.97)
    assert (plain.status, doubted.status) == (Status.FIRING, Status.FIRING)
    assert doubted.confidence == pytest.approx((plain.confidence or 0.0) - 0.25)
    assert "but the devices work 97% or more" in doubted.summary


def test_stages_wait_for_one_another_and_missing_devices_tell_nothing() -> None:
    for info, facts in (
        (info_with(async_scheduling=True, concurrent_batches=2, pipeline_parallel=2), {}),
        (AHEAD, {"devices": 1, "devices_expected": 2}),
        (AHEAD, {"covered_ratio": 0.4}),
        (AHEAD, {"graphics_ratio": None}),
    ):
        made = beside(steps(factor=5.0), info, **({"graphics_ratio": 0.3} | facts))
        assert working(made) is None
        assert RULES[HOST](made).status is Status.CANNOT_TELL


@pytest.mark.parametrize(
    ("busiest", "confidence", "said"),
    [(1.0, 0.9, ""), (0.7, 0.85, ""), (0.2, 0.6, "uses 0.20 of a core"), (None, 0.85, "")],
)
def test_processor_time_of_the_engine_core(busiest: float | None, confidence: float, said: str) -> None:
    found = judge(HOST, steps(factor=5.0), AHEAD, graphics_ratio=0.3, engine_core_busiest_cores=busiest)
    assert found.confidence == pytest.approx(confidence)
    assert said in found.summary
    assert ("engine_core_busiest_thread_cores" in facts_of(found)) is (busiest is not None)


def test_a_busy_engine_core_alone_is_no_finding() -> None:
    """CUDA spins while it waits, so that a thread may be busy doing nothing."""
    assert judge(HOST, steps(factor=5.0), AHEAD, engine_core_busiest_cores=1.0).status is Status.CANNOT_TELL
    busy = judge(HOST, steps(factor=5.0), AHEAD, engine_core_busiest_cores=1.0, graphics_ratio=0.95)
    assert busy.status is Status.CLEARED


def test_a_page_of_half_a_minute_is_held_against_all_windows_that_it_may_be_of() -> None:
    """A dcgm-exporter still tells of an idle time after the load came back."""
    busy, rare = steps(factor=5.0, gap_ratio=0.0), steps(factor=5.0, gap_ratio=9.0, running=0)

    def page(*tables: StepTable) -> Finding:
        last = beside(tables[-1], AHEAD, graphics_ratio=0.3, source=CounterSource.DCGM).windows
        return RULES[HOST](case(*(window(table, AHEAD) for table in tables[:-1]), *last, info=AHEAD))

    assert page(busy).status is Status.CANNOT_TELL, "nothing is known of the time that the page tells of"
    assert page(busy, busy, busy).status is Status.CANNOT_TELL
    assert page(busy, busy, busy, busy).status is Status.FIRING
    assert page(rare, busy, busy, busy).status is Status.CANNOT_TELL
    assert page(rare, busy, busy, busy, busy).status is Status.FIRING


SPREAD = [
    {"tensor_parallel": 2, "devices": 2},
    {"tensor_parallel": 2, "expert_parallel": True, "devices": 2},
    {"data_parallel": 2, "devices": 1},
    {"tensor_parallel": 2, "context_parallel": 2, "devices": 2},
]


def spread(changes: dict[str, Any], code: Code, factor: float = 5.0, gap: float = 0.0, **facts: Any) -> Finding:
    """An engine over several devices; steps of so many times the floor of one."""
    devices = changes["devices"]
    ranks = {name: value for name, value in changes.items() if name != "devices"}
    info = info_with(**({"async_scheduling": True, "concurrent_batches": 2} | ranks))
    made = beside(steps(factor=factor, gap_ratio=gap), info, Roofline.of(info, H100), devices=devices,
                  devices_expected=devices, **facts)  # fmt: skip
    return RULES[code](made)


@pytest.mark.parametrize("changes", SPREAD)
def test_a_collective_that_spins_is_no_work(changes: dict[str, Any]) -> None:
    """A rank whose host is late lets the others wait inside an all-reduce, which counts as computing."""
    for code in (HOST, Code.MEMORY_BOUND_WASTE):
        found = spread(changes, code, graphics_ratio=0.99)
        assert found.status is Status.CANNOT_TELL, code
        assert "wait for one another inside a kernel" in found.missing[0]
    paused = {**changes, "async_scheduling": False, "concurrent_batches": 1}
    plain, beside_it = (spread(paused, HOST, gap=1.0, graphics_ratio=each) for each in (None, 0.97))
    assert plain.status is Status.FIRING
    assert (beside_it.summary, beside_it.confidence) == (plain.summary, plain.confidence)


@pytest.mark.parametrize("changes", SPREAD)
def test_devices_that_stand_still_wait_whatever_runs_on_them(changes: dict[str, Any]) -> None:
    found = spread(changes, HOST, graphics_ratio=0.4)
    assert found.status is Status.FIRING
    assert "its least busy device works 40% of the time" in found.summary
    assert found.price is not None
    assert found.price.saved_s == pytest.approx(0.5 * found.price.judged_s, rel=1e-6)
    little = spread(changes, Code.MEMORY_BOUND_WASTE, graphics_ratio=0.05)
    assert little.status is Status.CLEARED
    assert "the excess is not spent on the device" in little.summary


def test_the_device_that_computes_least_is_the_one_that_the_others_wait_for() -> None:
    """Seven devices that spin and one that waits for its host are 95 % busy on average."""
    found = spread({"tensor_parallel": 8, "devices": 8}, HOST, graphics_ratio=0.95, graphics_ratio_low=0.6)
    assert found.status is Status.FIRING
    assert "its least busy device works 60% of the time" in found.summary


def deferring(running: Any, deferred: int, waiting: int = 0, **columns: Any) -> StepTable:
    """After every step a pause as long as it, in which so many requests run, wait for remote KV, and for capacity."""
    return steps(factor=5.0, gap_ratio=1.0, running=running, deferred=deferred, waiting=waiting, **columns)


@pytest.mark.parametrize("info", [INFO, AHEAD])
def test_a_decode_engine_that_waits_for_remote_kv_does_not_wait_for_its_host(info: Any) -> None:
    for waiting in (0, 3):
        found = judge(HOST, deferring(0, 4, waiting), info, graphics_ratio=0.48)
        assert found.status is not Status.FIRING, found.summary
    both = working(beside(deferring(0, 4), AHEAD, graphics_ratio=0.48))
    assert both is not None
    assert (both.low, both.high) == pytest.approx((0.48, 0.96), abs=0.02)
    for running, deferred, waiting in ((2, 4, 0), (0, 0, 3)):
        assert judge(HOST, deferring(running, deferred, waiting), info, graphics_ratio=0.48).status is Status.FIRING
    assert judge(HOST, deferring(0, 4), AHEAD, graphics_ratio=0.3).status is Status.FIRING, "within the steps as well"


def test_of_an_engine_that_waits_for_remote_kv_the_other_pauses_are_judged() -> None:
    """Every other pause is of its host: half of the time then."""
    table = deferring(np.arange(100) % 2 * 2, 4)
    found = judge(HOST, table)
    assert found.status is Status.FIRING
    assert found.price is not None
    gap_s = float(table["observed_s"].mean())
    assert facts_of(found)["between_steps"] == pytest.approx(49 * gap_s, rel=1e-3)
    assert facts_of(found)["blocked_between_steps"] == pytest.approx(50 * gap_s, rel=1e-3)
    assert found.price.judged_s == pytest.approx(149 * gap_s, rel=1e-3)


def test_time_at_the_edges_of_a_window_may_be_without_requests() -> None:
    table = steps(factor=5.0, gap_ratio=0.0)
    whole = window(table, AHEAD)
    span_s = whole.end_monotonic_s - whole.start_monotonic_s
    edged = replace(whole, start_monotonic_s=whole.start_monotonic_s - span_s)
    found = working(beside(edged, AHEAD, graphics_ratio=0.45))
    assert found is not None
    assert (found.low, found.high) == pytest.approx((0.45, 0.9), abs=0.01)
