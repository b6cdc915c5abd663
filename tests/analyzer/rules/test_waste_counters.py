"""memory_bound_waste by counters: the excess is on devices that work, with more bytes or with the same ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from made_counters import beside
from made_windows import H100, INFO, MIXTURE, ROOFLINE, case, info_with, merged, steps, window

from rooflens.analyzer.reachable_steps import reachable
from rooflens.analyzer.roofline import Roofline
from rooflens.analyzer.rules import RULES
from rooflens.analyzer.rules.clocks import Clocks, at_low_clocks, steps_at
from rooflens.findings import Code, Finding, Status
from rooflens.records import StepTable

WASTE = Code.MEMORY_BOUND_WASTE
AHEAD = info_with(async_scheduling=True, concurrent_batches=2)


def judge(code: Code, table: StepTable, info: Any = INFO, **facts: Any) -> Finding:
    return RULES[code](beside(table, info, **facts))


def facts_of(found: Finding) -> dict[str, Any]:
    return {e.name: e.value for e in found.evidence}


def test_the_excess_is_on_devices_that_work_all_the_time() -> None:
    table = steps(factor=5.0, gap_ratio=0.0)
    found = judge(WASTE, table, AHEAD, graphics_ratio=0.95)
    assert found.status is Status.FIRING
    reach = reachable(ROOFLINE, table, ROOFLINE.analyse(table))
    assert reach is not None
    assert found.price is not None
    observed_s = float(table["observed_s"].sum())
    assert found.price.saved_low_s == pytest.approx(0.95 * observed_s - reach.slow_s.sum(), rel=1e-6)
    assert found.price.saved_s == pytest.approx(0.975 * observed_s - reach.reachable_s.sum(), rel=1e-6)
    assert found.price.saved_high_s == pytest.approx(observed_s - reach.fast_s.sum(), rel=1e-6)
    timed = StepTable({**table.columns, "device_s": table["observed_s"]})
    assert (judge(WASTE, timed, AHEAD).confidence or 0.0) > (found.confidence or 0.0)
    page = RULES[WASTE](beside(window(merged(table, 5), AHEAD), AHEAD, graphics_ratio=0.95))
    assert page.status is Status.FIRING


@pytest.mark.parametrize(
    ("graphics", "status"), [(0.2, "cleared"), (0.6, "firing"), (0.8, "cannot_tell"), (0.92, "firing")]
)
def test_waste_is_told_where_the_share_is_clear(graphics: float, status: str) -> None:
    """Five times the floor: at 0.2 the devices take what they may, at 0.6 they and the host both waste."""
    assert judge(WASTE, steps(factor=5.0, gap_ratio=0.0), AHEAD, graphics_ratio=graphics).status == status


def slow(**facts: Any) -> Finding:
    return judge(WASTE, steps(factor=5.0, gap_ratio=0.0), AHEAD, graphics_ratio=0.95, **facts)


def test_more_bytes_than_needed_and_the_same_bytes_slowly() -> None:
    more = slow(ratio=1.6, ratio_low=1.4, ratio_high=1.8, dram_ratio=0.5)
    assert "1.6 times the bytes that they need are moved" in more.summary
    assert (more.remedy or "").startswith("find what moves more than the model needs")
    assert "a shared prefix read once for each sequence" in (more.remedy or "")
    same = slow(ratio=1.0, ratio_low=0.9, ratio_high=1.1, dram_ratio=0.2)
    assert "no more bytes are moved than they need, at 20% of the bandwidth: kernels do not reach it" in same.summary
    assert "attention" in (same.remedy or "")
    unsure = slow(ratio=1.4, ratio_low=1.1, ratio_high=1.7, dram_ratio=0.3)
    assert "bytes" not in unsure.summary.removesuffix("for their bytes")
    assert facts_of(unsure)["counter_over_model_bytes"] == pytest.approx(1.4)
    assert more.price == same.price == unsure.price == slow().price


@pytest.mark.parametrize("clock", [0.5, 0.94, 0.96, None])
def test_a_share_at_a_lowered_memory_clock_says_nothing_of_bytes(clock: float | None) -> None:
    """At half the clock a bus that is busy all the time moves half of what its share of the highest would say."""
    twice = slow(ratio=2.0, ratio_low=1.9, ratio_high=2.1, dram_ratio=0.9, memory_clock_ratio=clock)
    same = slow(ratio=1.0, ratio_low=0.9, ratio_high=1.1, dram_ratio=0.2, memory_clock_ratio=clock)
    lowered = clock is not None and clock < 0.95
    assert ("times the bytes that they need are moved" not in twice.summary) is lowered
    assert ("no more bytes are moved" not in same.summary) is lowered
    assert (twice.remedy == slow().remedy) is lowered
    assert facts_of(twice)["counter_over_model_bytes"] == 2.0


def test_what_a_low_clock_takes_is_throttlings_and_no_waste() -> None:
    """Steps as fast as usual kernels at half of the memory clock: all of the excess is the clock's."""
    table, halved = steps(gap_ratio=0.0), {"memory_clock_ratio": 0.5, "graphics_ratio": 1.0}
    analysis = ROOFLINE.analyse(table)
    full, present = (steps_at(ROOFLINE, table, analysis, 1.0, memory) for memory in (1.0, 0.5))
    assert full is not None
    assert present is not None
    throttled = steps(gap_ratio=0.0, observed_s=present.reachable_s)
    for table in (throttled, StepTable({**throttled.columns, "device_s": throttled["observed_s"]})):
        assert judge(WASTE, table, AHEAD, graphics_ratio=1.0).status is Status.FIRING
        found = judge(WASTE, table, AHEAD, **halved)
        assert found.status is Status.CLEARED
        assert "no longer than these bytes may take at these clocks" in found.summary
        assert judge(Code.THROTTLING, table, AHEAD, **halved).status is Status.FIRING


@pytest.mark.parametrize(("factor", "memory", "both"), [(2.0, 0.5, False), (3.0, 0.5, True), (3.0, 0.8, True),
                                                        (6.0, 0.5, True), (6.0, 0.8, False)])  # fmt: skip
def test_no_second_is_priced_as_waste_and_as_a_low_clock(factor: float, memory: float, both: bool) -> None:
    table = steps(factor=factor * 1.4, gap_ratio=0.0)
    reach = reachable(ROOFLINE, table, ROOFLINE.analyse(table))
    assert reach is not None
    found = [
        judge(code, table, AHEAD, memory_clock_ratio=memory, graphics_ratio=1.0) for code in (WASTE, Code.THROTTLING)
    ]
    saved_s = sum(each.price.saved_s for each in found if each.price is not None)
    beyond_s = float(table["observed_s"].sum() - reach.reachable_s.sum())
    assert saved_s <= beyond_s * (1 + 1e-9)
    assert all(each.status is Status.FIRING for each in found) is both
    if both:
        assert saved_s == pytest.approx(beyond_s, rel=1e-9)
        assert all("clock" in each.summary for each in found)


def test_a_calibration_at_the_same_low_clock_is_not_lengthened_once_more() -> None:
    table = steps(factor=3.0)
    analysis = ROOFLINE.analyse(table)
    present = steps_at(ROOFLINE, table, analysis, 1.0, 0.5)
    assert present is not None
    clocks = Clocks(1.0, 0.5, None)
    again = at_low_clocks(present, clocks, ROOFLINE, table, analysis)
    np.testing.assert_allclose(again.slow_s, present.slow_s)
    full = reachable(ROOFLINE, table, analysis)
    assert full is not None
    np.testing.assert_allclose(at_low_clocks(full, clocks, ROOFLINE, table, analysis).fast_s, present.fast_s)
    assert at_low_clocks(full, Clocks(0.95, 0.96, None), ROOFLINE, table, analysis) is full


def test_a_contradicted_counter_says_nothing_of_bytes() -> None:
    found = slow(ratio=1.6, ratio_low=1.4, ratio_high=1.8, sm_ratio=1.5)
    assert found.status is Status.CANNOT_TELL, "nor of the time in which the devices worked"


def test_experts_that_routing_is_expected_to_read_are_no_waste() -> None:
    """The floor counts the fewest experts that a pass can read; uniform routing reads several times as many."""
    info = info_with(model_config=MIXTURE, async_scheduling=True, concurrent_batches=2)
    roofline = Roofline.of(info, H100)
    table = steps(decode=16, roofline=roofline, factor=20.0, gap_ratio=0.0)
    analysis = roofline.analyse(table)
    expected = float(analysis.expected_s.sum() / analysis.floor_s.sum())
    assert expected > 2
    bytes_ = {"ratio": expected, "ratio_low": expected * 0.95, "ratio_high": expected * 1.05, "dram_ratio": 0.3}
    found = RULES[WASTE](beside(table, info, roofline, graphics_ratio=0.95, **bytes_))
    assert found.status is Status.FIRING
    assert "no more bytes are moved than they need" in found.summary
    twice = {name: (2 if "ratio" in name else 1) * value for name, value in bytes_.items()} | {"dram_ratio": 0.6}
    found = RULES[WASTE](beside(table, info, roofline, graphics_ratio=0.95, **twice))
    assert "2.0 times the bytes that they need are moved" in found.summary


def test_prompts_move_activations_that_the_model_does_not_count() -> None:
    table = steps(decode=32, prefill=np.where(np.arange(100) % 10 == 0, 3000, 0), factor=5.0, gap_ratio=0.0)
    bound_s = case(table).figures[0].bound_s
    assert 0.5 < bound_s["memory"] / sum(bound_s.values()) < 0.9
    found = judge(WASTE, table, AHEAD, graphics_ratio=0.95, ratio=1.6, ratio_low=1.4, ratio_high=1.8)
    assert found.status is Status.FIRING
    assert "times the bytes that they need are moved" not in found.summary
