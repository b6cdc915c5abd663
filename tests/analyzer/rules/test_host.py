"""host_overhead: the time between steps of a synchronous engine, device time and waiting of an asynchronous one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from made_windows import H100, ROOFLINE, case, info_with, merged, steps, window

from rooflens.analyzer.rules import RULES
from rooflens.analyzer.rules.case import Case
from rooflens.analyzer.window_figures import window_figures
from rooflens.findings import Code, Finding, Status
from rooflens.records import StepTable

AHEAD = info_with(async_scheduling=True, concurrent_batches=2)


def judge(table: StepTable, info: Any = None) -> Finding:
    return RULES[Code.HOST_OVERHEAD](case(table, info=info or info_with()))


@pytest.mark.parametrize(("gap_ratio", "fires"), [(0.05, False), (0.33, False), (0.35, True), (3.0, True)])
def test_a_quarter_of_the_time_between_steps(gap_ratio: float, fires: bool) -> None:
    found = judge(steps(500, gap_ratio=gap_ratio))
    assert (found.status is Status.FIRING) is fires
    if fires:
        assert found.price is not None
        assert found.price.saved_high_s == pytest.approx(found.price.judged_s * gap_ratio / (1 + gap_ratio), rel=0.02)
        assert "--async-scheduling" in (found.remedy or "")


def test_one_long_pause_is_no_overhead_of_every_step() -> None:
    pause = np.where(np.arange(100) == 50, 500.0, 0.01)
    table = steps(gap_ratio=pause)
    assert case(table).figures[0].between_s > case(table).figures[0].busy_s
    assert judge(table).status is Status.CLEARED


def test_more_host_time_never_costs_less() -> None:
    prices = [found.price for ratio in (0.4, 0.8, 1.6) if (found := judge(steps(gap_ratio=ratio)))]
    saved = [price.saved_s for price in prices if price is not None]
    assert len(saved) == 3
    assert saved == sorted(saved)


@pytest.mark.parametrize(("share", "fires"), [(0.95, False), (0.76, False), (0.74, True)])
def test_device_time_of_an_engine_that_schedules_ahead(share: float, fires: bool) -> None:
    table = steps()
    table = StepTable({**table.columns, "device_s": table["observed_s"] * share})
    found = judge(table, AHEAD)
    assert (found.status is Status.FIRING) is fires
    if fires:
        assert found.price is not None
        assert found.price.saved_s == pytest.approx(0.16 * table["observed_s"].sum(), rel=1e-6)


@pytest.mark.parametrize(
    ("waits", "call", "status"),
    [(0.79, 0.1, Status.CLEARED), (0.81, 0.1, Status.FIRING), (0.81, 0.6, Status.CANNOT_TELL)],
)
def test_whether_the_output_was_always_there(waits: float, call: float, status: Status) -> None:
    table = steps()
    observed = table["observed_s"]
    wait = np.where(np.arange(100) < 100 * waits, 0.01, 0.5) * observed
    found = judge(StepTable({**table.columns, "wait_s": wait, "executor_s": call * observed}), AHEAD)
    assert found.status is status
    if status is Status.FIRING:
        assert found.price is not None
        assert found.price.saved_low_s == 0.0
        assert "above the floor" in found.price.derivation, "what is reachable was not asked for"
    if status is Status.CANNOT_TELL:
        assert "ROOFLENS_DEVICE_TIME=1" in found.missing[0]


@pytest.mark.parametrize("factor", [1.2, 4.0])
def test_what_kernels_reach_is_not_the_hosts_to_lose(factor: float) -> None:
    table = steps(factor=factor)
    observed = table["observed_s"]
    table = StepTable({**table.columns, "wait_s": 0.0 * observed, "executor_s": 0.1 * observed})
    there = window(table, info=AHEAD)
    there = replace(there, analysis=ROOFLINE.analyse_all(table))
    assert there.analysis is not None
    assert there.analysis.reachable_s is not None
    found = RULES[Code.HOST_OVERHEAD](Case((there,), (window_figures(there),), ROOFLINE, H100))
    assert found.price is not None
    above_s = max(0.0, float((observed - there.analysis.reachable_s).sum()))
    assert found.price.saved_high_s == pytest.approx(above_s)
    assert found.price.saved_s == pytest.approx(above_s / 2)
    assert "above what is reachable" in found.price.derivation


def test_what_is_missing_is_named() -> None:
    assert "ROOFLENS_DEVICE_TIME=1" in judge(steps(), AHEAD).missing[0]
    assert "hook" in judge(merged(steps(gap_ratio=2.0), 5)).missing[0]
    assert "schedules ahead" in judge(steps(gap_ratio=2.0), info_with(async_scheduling=None)).missing[0]
    assert "20 steps" in judge(steps(19, gap_ratio=2.0)).missing[0]
    assert RULES[Code.HOST_OVERHEAD](replace(case(window(steps())), windows=(), figures=())).missing


def test_an_engine_without_flags_is_told_in_plain_words() -> None:
    found = judge(steps(gap_ratio=1.0), info_with(engine="rooflens-embedded"))
    assert "--" not in (found.remedy or "--")
    assert "let scheduling overlap the forward pass" in (found.remedy or "")
    assert "rows_under_a_grammar" in {e.name for e in judge(steps(gap_ratio=1.0, structured_rows=3)).evidence}
