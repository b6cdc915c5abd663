"""memory_bound_waste and the interval of what is reachable."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_windows import H100, INFO, ROOFLINE, case, info_with, merged, steps

from rooflens.analyzer.reachable_steps import Reachable, reachable
from rooflens.analyzer.roofline import Roofline
from rooflens.analyzer.rules import RULES
from rooflens.findings import Code, Finding, Status
from rooflens.records import StepTable


def reach_of(table: StepTable, roofline: Roofline = ROOFLINE) -> Reachable:
    found = reachable(roofline, table, roofline.analyse(table))
    assert found is not None
    return found


def judge(table: StepTable, roofline: Roofline = ROOFLINE, info: Any = INFO) -> Finding:
    return RULES[Code.MEMORY_BOUND_WASTE](case(table, info=info, roofline=roofline))


def taking(times_slow: float, device_share: float | None = 1.0) -> StepTable:
    """Steps that take ``times_slow`` times the slow end, ``device_share`` of it on the device."""
    table = steps()
    observed = reach_of(table).slow_s * times_slow
    device = {} if device_share is None else {"device_s": observed * device_share}
    return steps(observed_s=observed, **device)


@pytest.mark.parametrize(("times", "fires"), [(0.9, False), (1.04, False), (1.06, True), (3.0, True)])
def test_beyond_the_slow_end_by_more_than_a_twentieth(times: float, fires: bool) -> None:
    found = judge(taking(times))
    assert (found.status is Status.FIRING) is fires
    assert fires or found.status is Status.CLEARED
    if fires:
        assert found.price is not None
        slow_s = reach_of(taking(times)).slow_s.sum()
        assert found.price.saved_low_s == pytest.approx((times - 1) * slow_s)
        assert found.price.saved_high_s > found.price.saved_s > found.price.saved_low_s


def test_without_device_time_only_a_slow_step_cannot_be_told() -> None:
    assert judge(taking(0.9, None)).status is Status.CLEARED
    slow = judge(taking(2.0, None))
    assert slow.status is Status.CANNOT_TELL
    assert "ROOFLENS_DEVICE_TIME=1" in slow.missing[0]
    assert judge(merged(steps(factor=8), 10)).status is Status.CANNOT_TELL


def test_an_excess_that_the_device_does_not_spend_is_not_its_own() -> None:
    assert judge(taking(2.0, 0.5)).status is Status.CLEARED


def test_only_memory_bound_steps_are_judged() -> None:
    assert judge(steps(decode=2000, context=10, factor=9, device_s=1.0)).status is Status.CLEARED


def test_a_measured_roof_does_not_say_what_is_reachable() -> None:
    measured = Roofline.of(INFO, replace(H100, id="this-cpu", origin="measured"))
    assert "this-cpu" in judge(taking(3.0), measured).missing[0]
    assert reachable(measured, steps(), measured.analyse(steps())) is None


def test_a_faster_memory_makes_the_same_steps_a_larger_waste() -> None:
    table = taking(1.5)
    fast = Roofline.of(INFO, replace(H100, memory_bandwidth_bytes_per_s=2 * H100.memory_bandwidth_bytes_per_s))
    here, there = judge(table).price, judge(table, fast).price
    assert here is not None
    assert there is not None
    assert there.saved_s > here.saved_s


def test_the_remedy_follows_the_graphs() -> None:
    assert "drop --enforce-eager" in (judge(taking(2.0), info=info_with(graph_mode="NONE")).remedy or "")
    assert "up to 32" in (judge(taking(2.0), info=info_with(graph_sizes=(1, 2, 4))).remedy or "")
    assert "(now FLASH)" in (judge(taking(2.0), info=info_with(attention_backend="FLASH")).remedy or "")


@settings(max_examples=50, deadline=None)
@given(
    decode=st.integers(0, 600),
    context=st.integers(0, 30_000),
    prefill=st.sampled_from([0, 500, 8000]),
    devices=st.sampled_from([1, 8]),
)
def test_floor_fast_and_slow_are_in_order(decode: int, context: int, prefill: int, devices: int) -> None:
    roofline = Roofline.of(info_with(tensor_parallel=devices), H100)
    table = steps(1, decode, context, prefill + 1)
    found, floor_s = reach_of(table, roofline), roofline.analyse(table).floor_s
    assert floor_s[0] <= found.fast_s[0] <= found.reachable_s[0] <= found.slow_s[0]
    assert found.fast_s[0] < found.slow_s[0]
    faster = Roofline.of(
        info_with(tensor_parallel=devices),
        replace(H100, memory_bandwidth_bytes_per_s=1.5 * H100.memory_bandwidth_bytes_per_s),
    )
    better = reach_of(table, faster)
    assert better.fast_s[0] <= found.fast_s[0]
    assert better.reachable_s[0] <= found.reachable_s[0]
    assert better.slow_s[0] <= found.slow_s[0]
    ten = merged(steps(10, decode, context, prefill + 1), 10)
    np.testing.assert_allclose(reach_of(ten, roofline).slow_s[0], 10 * found.slow_s[0], rtol=1e-9)
