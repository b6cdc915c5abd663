"""Bounds that do not fit what was observed: nothing is decided or priced by them, and the likely cause is named."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from made_windows import INFO, ROOFLINE, case, info_with, merged, steps, window

from rooflens.analyzer.hardware import find_hardware
from rooflens.analyzer.roofline import Roofline
from rooflens.analyzer.rules import RULES
from rooflens.analyzer.rules.bounds import no_roofline
from rooflens.analyzer.rules.case import Case
from rooflens.findings import Code, Finding, Status
from rooflens.records import StepTable

SLOWER = Roofline.of(INFO, find_hardware("l40s"))  # four times less bandwidth than what the steps ran on
FOUR = info_with(max_sequences=4)
AHEAD = info_with(async_scheduling=True, concurrent_batches=2)


def judge(code: Code, table: StepTable, info: Any = INFO, roofline: Roofline | None = SLOWER) -> Finding:
    return RULES[code](case(window(table, info, roofline), info=info, roofline=roofline))


@pytest.mark.parametrize("code", [Code.MISSED_BATCHING, Code.MEMORY_BOUND_WASTE])
def test_what_is_decided_by_the_roofline_cannot_be_told_under_a_wrong_one(code: Code) -> None:
    table = steps(decode=4, waiting=12)
    assert judge(code, table, FOUR, ROOFLINE).status is not Status.CANNOT_TELL
    found = judge(code, table, FOUR)
    assert found.status is Status.CANNOT_TELL
    assert found.price is None
    (missing,) = found.missing
    assert missing.startswith("bounds that fit (the steps took 0.")
    assert "likely another --hardware" in missing
    assert judge(Code.MEASUREMENT_INVALID, table, FOUR).status is Status.FIRING


def test_preemptions_are_seen_and_priced_by_their_tokens() -> None:
    again = np.where(np.arange(100) < 8, 900, 0)
    table = steps(prefill=again, recomputed_tokens=again, preempted=again > 0, kv_blocks_used=19_500)
    found, without = judge(Code.KV_PRESSURE, table), judge(Code.KV_PRESSURE, table, roofline=None)
    assert found.status is Status.FIRING
    assert found.price == without.price
    assert found.price != judge(Code.KV_PRESSURE, table, roofline=ROOFLINE).price


def test_a_queue_for_the_pool_is_seen_and_has_no_price() -> None:
    table = steps(waiting=10, kv_blocks_used=19_500)
    found = judge(Code.KV_PRESSURE, table)
    assert (found.status, found.price) == (Status.FIRING, None)
    assert judge(Code.KV_PRESSURE, table, roofline=ROOFLINE).price is not None


def test_a_host_that_is_never_waited_for_is_seen_and_has_no_price() -> None:
    table = steps()
    nothing = np.zeros(len(table))
    table = StepTable({**table.columns, "wait_s": nothing, "executor_s": nothing})
    found = judge(Code.HOST_OVERHEAD, table, AHEAD)
    assert (found.status, found.price) == (Status.FIRING, None)
    assert judge(Code.HOST_OVERHEAD, table, AHEAD, ROOFLINE).price is not None


def missing_of(it: Case) -> str:
    (missing,) = no_roofline(it)
    return missing


def test_the_likely_cause_is_what_the_source_does_not_state() -> None:
    measured = replace(SLOWER.hardware, origin="measured")
    by_page = case(window(merged(steps(), 10), INFO, SLOWER), roofline=SLOWER)
    assert "another --model, weights of fewer bits" in missing_of(by_page)
    busy = replace(case(window(steps(), INFO, SLOWER), roofline=SLOWER), hardware=measured)
    assert "measured while it was busy" in missing_of(busy)


def test_a_few_steps_below_are_told_as_such_and_noise_is_none() -> None:
    few = steps(factor=np.where(np.arange(100) < 3, 0.5, 2.0))
    assert "are below their floor 3 times" in missing_of(case(few))
    assert no_roofline(case(few, info=AHEAD)) == ()
    assert no_roofline(case(steps(factor=0.98))) == ()
