"""Counters in the rules: GPU-Util is none, and a healthy window with counters raises nothing."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from made_counters import HEALTHY, beside, counters
from made_windows import INFO, ROOFLINE, case, info_with, merged, steps, window

from rooflens.analyzer.reachable_steps import reachable
from rooflens.analyzer.rules import RULES
from rooflens.analyzer.rules.case import Case
from rooflens.analyzer.rules.counter_faults import PROFILED
from rooflens.device_records import Throttle
from rooflens.findings import Code, Finding, Severity, Status
from rooflens.records import StepTable

HOST, WASTE = Code.HOST_OVERHEAD, Code.MEMORY_BOUND_WASTE
AHEAD = info_with(async_scheduling=True, concurrent_batches=2)
RULES_FOLDER = Path(__file__).parents[3] / "analyzer" / "rules"


def judge(code: Code, table: StepTable, info: Any = INFO, **facts: Any) -> Finding:
    return RULES[code](beside(table, info, **facts))


def facts_of(found: Finding) -> dict[str, Any]:
    return {e.name: e.value for e in found.evidence}


def raised(made: Case) -> set[Code]:
    answers = [rule(made) for rule in RULES.values()]
    return {f.code for f in answers if f.status is Status.FIRING and f.severity is not Severity.INFO}


def test_gpu_util_is_looked_at_in_one_place_only() -> None:
    users = [f.name for f in RULES_FOLDER.glob("*.py") if "kernel_ratio" in f.read_text(encoding="utf-8")]
    assert users == ["counter_faults.py"]
    assert not any(re.search(r"gpu.?util", f.read_text(encoding="utf-8"), re.I) for f in RULES_FOLDER.glob("*.py")
                   if f.name not in ("counter_faults.py", "measurement_invalid.py"))  # fmt: skip


@pytest.mark.parametrize("table", [steps(), steps(factor=5.0), steps(gap_ratio=1.0), merged(steps(factor=9.0), 5)])
@pytest.mark.parametrize("facts", [HEALTHY, {"graphics_ratio": 0.4}, {"graphics_ratio": 0.95, "sm_clock_ratio": 0.5}])
def test_gpu_util_changes_no_finding(table: StepTable, facts: dict[str, Any]) -> None:
    for code, rule in RULES.items():
        answers = {
            repr(rule(beside(table, AHEAD, **(facts | {"kernel_ratio": ratio})))) for ratio in (None, 0.0, 0.5, 1.0)
        }
        assert len(answers) == 1, code


def test_a_hung_collective_at_full_gpu_util_is_no_working_device() -> None:
    """MET-17: GPU-Util says that a kernel ran, also at one request, and in a deadlock."""
    found = judge(WASTE, steps(factor=5.0), AHEAD, kernel_ratio=1.0)
    assert found.status is Status.CANNOT_TELL
    assert judge(HOST, steps(factor=5.0), AHEAD, kernel_ratio=1.0).status is Status.CANNOT_TELL


@settings(max_examples=60, deadline=None)
@example(
    seed=1,
    batch=1,
    context=1,
    prompt=512,
    share=1.0,
    sm=1.0,
    memory=1.0,
    bytes_ratio=1.0,
    covered=1.0,
    capped=0.0,
    together=5,
    ahead=False,
)  # a page whose rows hold prompts and decode steps
@given(
    seed=st.integers(0, 2**32 - 1),
    batch=st.integers(1, 200),
    context=st.integers(1, 6000),
    prompt=st.sampled_from([0, 128, 512]),
    share=st.floats(0.92, 1.0),
    sm=st.floats(0.91, 1.0),
    memory=st.floats(0.96, 1.0),
    bytes_ratio=st.floats(0.9, 1.3),
    covered=st.floats(0.9, 1.0),
    capped=st.floats(0.0, 1.0),
    together=st.sampled_from([1, 1, 5]),
    ahead=st.booleans(),
)
def test_a_healthy_window_with_counters_raises_nothing(
    seed: int, batch: int, context: int, prompt: int, share: float, sm: float, memory: float, bytes_ratio: float,
    covered: float, capped: float, together: int, ahead: bool,
) -> None:  # fmt: skip
    """Steps at what usual kernels reach, give or take; a power cap, a clock a little lower, counters a little off."""
    rng = np.random.default_rng(seed)
    prompts = np.where(rng.random(100) < 0.3, prompt, 0)
    reach = reachable(ROOFLINE, plain := steps(100, batch, context, prompts), ROOFLINE.analyse(plain))
    assert reach is not None
    observed = np.maximum(reach.reachable_s * rng.uniform(0.97, 1.03, 100), 1.01 * ROOFLINE.analyse(plain).floor_s)
    table = steps(100, batch, context, prompts, gap_ratio=rng.uniform(0.0, 0.04, 100), observed_s=observed)
    info = info_with(kv_blocks=2_000_000, async_scheduling=ahead, concurrent_batches=2 if ahead else 1)
    table = merged(table, together) if together > 1 else table
    facts = HEALTHY | {
        "graphics_ratio": share * 0.99, "sm_clock_ratio": sm, "memory_clock_ratio": memory, "covered_ratio": covered,
        "ratio": bytes_ratio, "ratio_low": bytes_ratio * 0.95, "ratio_high": bytes_ratio * 1.05,
        "throttled_ratio": {Throttle.POWER_CAP: capped},
    }  # fmt: skip
    assert raised(beside(table, info, **facts)) == set()


@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_no_rule_fails_for_counters_that_are_not_known(data: st.DataObject) -> None:
    names = sorted(set(HEALTHY) | {"sm_clock_ratio", "memory_clock_ratio"})
    unknown = data.draw(st.sets(st.sampled_from(names)))
    odd = {name: data.draw(st.sampled_from([-1.0, 0.0, 1e-9, 1.0, 7.0])) for name in data.draw(st.sets(
        st.sampled_from(names), max_size=4))}  # fmt: skip
    facts = HEALTHY | odd | dict.fromkeys(unknown, None)
    table = data.draw(st.sampled_from([steps(factor=5.0), steps(30), merged(steps(gap_ratio=3.0), 5)]))
    covered = data.draw(st.sampled_from([0.0, 0.5, 1.0]))
    made = beside(table, AHEAD, **(facts | {"covered_ratio": covered, "source": None, "devices": 0}))
    for code, rule in RULES.items():
        assert rule(made).code is code
    bare = replace(window(table, None, None), counters=counters(**facts))
    for rule in RULES.values():
        assert rule(case(bare, info=None, roofline=None)).summary


PROMPTS = steps(60, decode=0, prefill=8000, factor=2.6)
FAULTS: dict[Code, tuple[StepTable, dict[str, Any]]] = {
    Code.THROTTLING: (PROMPTS, {"sm_clock_ratio": 0.6, "throttled_ratio": {Throttle.THERMAL: 0.9}}),
    Code.HOST_OVERHEAD: (steps(gap_ratio=0.0), {"graphics_ratio": 0.5}),
    Code.MEMORY_BOUND_WASTE: (steps(factor=5.0, gap_ratio=0.0), {"graphics_ratio": 0.99}),
    Code.MEASUREMENT_INVALID: (steps(), dict.fromkeys(PROFILED, 0.0)),
}


@pytest.mark.parametrize("code", FAULTS)
def test_each_fault_that_counters_show_raises_its_own_finding_and_no_other(code: Code) -> None:
    table, facts = FAULTS[code]
    made = beside(table, AHEAD, **(HEALTHY | facts))
    assert raised(made) == {code}
    found = RULES[code](made)
    assert found.evidence
    assert found.remedy
    assert found.confidence is not None
    assert "\n" not in found.summary
    assert (found.price is None) is (code is Code.MEASUREMENT_INVALID)
    assert Finding.from_json(json.loads(json.dumps(found.to_json(), allow_nan=False))) == found


@pytest.mark.parametrize("code", [Code.HOST_OVERHEAD, Code.MEMORY_BOUND_WASTE])
def test_of_a_device_that_others_compute_on_counters_tell_nothing(code: Code) -> None:
    """Half of the work may be a neighbour's: neither does it clear the host, nor is it the engine's waste."""
    table, facts = FAULTS[code]
    for graphics in (0.5, 0.99):
        shared = HEALTHY | facts | {"shared": True, "graphics_ratio": graphics, "ratio": 3.0, "ratio_low": 2.9}
        found = RULES[code](beside(table, AHEAD, **shared))
        assert found.status is Status.CANNOT_TELL
        assert "another engine or process computes on the devices" in found.missing[0]
        assert "docs/counters.md" not in found.missing[0], "there are counters: they do not help"
        assert RULES[Code.MEASUREMENT_INVALID](beside(table, AHEAD, **shared)).status is Status.CLEARED
    timed = StepTable({**table.columns, "device_s": table["observed_s"]})
    waste = judge(Code.MEMORY_BOUND_WASTE, timed, AHEAD, **(HEALTHY | {"shared": True, "ratio": 3.0, "ratio_low": 2.9}))
    assert "bytes that they need" not in waste.summary


def test_clocks_are_judged_on_a_device_that_others_compute_on() -> None:
    table, facts = FAULTS[Code.THROTTLING]
    shared, alone = (judge(Code.THROTTLING, table, **(facts | {"shared": each})) for each in (True, False))
    assert shared.summary == alone.summary + "; another engine or process computes on the devices as well"
    assert shared.price == alone.price
    assert (shared.confidence or 0.0) < (alone.confidence or 0.0)


@pytest.mark.parametrize("code", [Code.HOST_OVERHEAD, Code.MEMORY_BOUND_WASTE])
def test_not_to_know_who_else_computes_makes_a_finding_by_counters_less_sure(code: Code) -> None:
    table, facts = FAULTS[code]
    unknown, alone = (judge(code, table, AHEAD, **(HEALTHY | facts | {"shared": each})) for each in (None, False))
    assert unknown.status is alone.status is Status.FIRING
    assert unknown.confidence == pytest.approx((alone.confidence or 0.0) - 0.1)
    assert unknown.price == alone.price


@pytest.mark.parametrize("prompt", [512, 2000, 8000])
@pytest.mark.parametrize("share", [0.1, 0.2, 0.3])
@pytest.mark.parametrize("batch", [1, 32, 100])
def test_rows_of_a_page_that_mix_prompts_and_decode_are_no_fault(prompt: int, share: float, batch: int) -> None:
    """Steps as published, each bound by its own side: five of them together take longer than five equal ones."""
    prompts = np.where(np.random.default_rng(1).random(200) < share, prompt, 0)
    plain = steps(200, batch, 500, prompts)
    reach = reachable(ROOFLINE, plain, ROOFLINE.analyse(plain))
    assert reach is not None
    page = merged(steps(200, batch, 500, prompts, observed_s=reach.reachable_s), 5)
    facts = HEALTHY | {"graphics_ratio": 1.0, "sm_clock_ratio": 0.8, "throttled_ratio": {Throttle.POWER_CAP: 1.0}}
    assert raised(beside(page, AHEAD, **facts)) <= {Code.PREFILL_INTERFERENCE}
