"""measurement_invalid and insufficient_input: what contradicts itself, and what is not known."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from made_windows import INFO, ROOFLINE, case, info_with, merged, steps, window

from rooflens.analyzer.rules import RULES
from rooflens.findings import Code, Finding, Severity, Status
from rooflens.records import RingEvent, StepTable

INVALID, INSUFFICIENT = Code.MEASUREMENT_INVALID, Code.INSUFFICIENT_INPUT
AHEAD = info_with(async_scheduling=True, concurrent_batches=2)


def judge(table: StepTable, info: Any = INFO, **more: Any) -> Finding:
    return RULES[INVALID](case(window(table, info, **more), info=info))


def distrusted(found: Finding) -> str:
    assert found.status is Status.FIRING
    return str({e.name: e.value for e in found.evidence}["not_to_be_trusted"])


@pytest.mark.parametrize(("factor", "fires"), [(0.9, True), (0.96, True), (0.98, False), (1.0, False)])
@pytest.mark.parametrize("together", [1, 10])
def test_a_window_faster_than_its_floor(factor: float, fires: bool, together: int) -> None:
    table = steps(factor=factor)
    found = judge(merged(table, together) if together > 1 else table, AHEAD)
    assert (found.status is Status.FIRING) is fires
    if fires:
        assert "MBU" in distrusted(found)
        assert "--hardware" in (found.remedy or "")
        assert found.price is None


@pytest.mark.parametrize(("below", "fires"), [(2, False), (3, True)])
def test_single_steps_below_count_where_they_cannot_shorten_each_other(below: int, fires: bool) -> None:
    table = steps(factor=np.where(np.arange(100) < below, 0.5, 2.0))
    assert (judge(table).status is Status.FIRING) is fires
    assert judge(table, AHEAD).status is Status.CLEARED


@pytest.mark.parametrize(("lost", "fires"), [(1, False), (2, True)])
def test_a_hundredth_of_the_steps_lost(lost: int, fires: bool) -> None:
    found = judge(steps(), lost_steps=lost - 1, torn_steps=1)
    assert (found.status is Status.FIRING) is fires
    if fires:
        assert distrusted(found) == "sums and rates"


def test_counts_that_cannot_be() -> None:
    for change in (
        {"generated_tokens": 99},
        {"prefill_tokens": 99},
        {"running": -1},
        {"kv_blocks_used": 21_100},
        {"drafted_tokens": -1},
        {"accepted_tokens": -1},
    ):
        table = steps()
        found = judge(StepTable({**table.columns, **{n: np.full(100, v) for n, v in change.items()}}))
        assert found.status is Status.FIRING, change
    assert judge(steps(kv_blocks_used=20_900)).status is Status.CLEARED


def test_more_busy_time_than_time() -> None:
    table = merged(steps(), 10)
    assert judge(StepTable({**table.columns, "observed_s": table["observed_s"] * 1.2})).status is Status.FIRING
    assert judge(StepTable({**table.columns, "observed_s": table["observed_s"] * 1.1})).status is Status.CLEARED


def test_what_the_source_complains_of_is_said_in_its_words() -> None:
    found = judge(steps(), complaints=("vllm:generation_tokens went down",))
    assert found.summary == "vllm:generation_tokens went down"
    both = judge(steps(), complaints=("a", "b"))
    assert both.summary == "a (and 1 more)"
    assert [e.value for e in both.evidence if e.name == "complaint"] == ["a", "b"]


def test_without_a_step_only_a_complaint_is_left_to_judge() -> None:
    empty = steps(30).take(np.zeros(30, dtype=bool))
    for complaints, status in (((), Status.CANNOT_TELL), (("vllm:x is negative",), Status.FIRING)):
        made = replace(window(steps(30)), steps=empty, analysis=None, complaints=complaints)
        assert RULES[INVALID](case(made)).status is status


@pytest.mark.parametrize(("jump_s", "fires"), [(0.9, False), (-1.1, True)])
def test_a_jump_of_the_wall_clock_is_only_worth_knowing(jump_s: float, fires: bool) -> None:
    found = judge(steps(), events=(RingEvent(1, 0.0, "clock_jump", {"jump_s": jump_s}),))
    assert (found.status is Status.FIRING) is fires
    if fires:
        assert found.severity is Severity.INFO
        assert "durations hold" in distrusted(found)
    worse = judge(steps(factor=0.5), events=(RingEvent(1, 0.0, "clock_jump", {"jump_s": 5.0}),))
    assert worse.severity is Severity.WARNING


def missing(**changes: Any) -> dict[str, str]:
    made = case(window(steps()))
    found = RULES[INSUFFICIENT](replace(made, **changes))
    if found.status is Status.CLEARED:
        return {}
    assert (found.status, found.severity) == (Status.FIRING, Severity.INFO)
    return {e.name: str(e.value) for e in found.evidence}


def test_all_that_is_missing_is_one_finding_with_the_option_that_gives_each() -> None:
    assert missing() == {}
    bare = window(steps(), None, None)
    found = missing(windows=(bare,), hardware=None, roofline=None)
    assert list(found) == ["hardware", "model_configuration", "kv_pool"]
    assert (found["hardware"], found["model_configuration"]) == ("--hardware ID", "--model NAME or config.json")
    assert list(missing(windows=(window(merged(steps(), 10)),))) == ["single_steps"]
    refused = window(steps(), INFO, None, problem="engine runs with pipeline_parallel 2, which is not modelled yet")
    assert "pipeline_parallel" in missing(windows=(refused,), roofline=None)["roofline"]
    assert RULES[INSUFFICIENT](replace(case(steps()), windows=(), figures=())).status is Status.CANNOT_TELL
    assert ROOFLINE.hardware.id == "h100-sxm5-80"


@pytest.mark.parametrize(
    ("engine", "single", "pool"),
    [
        ("vllm", "VLLM_PLUGINS", "the hook, or a metrics page"),
        ("sglang", "SGLANG_PLUGINS", "--enable-metrics"),
        ("transformers", "docs/transformers.md", "the hook"),
        ("tensorrt-llm", "JSON of each iteration at its /metrics", "JSON at /metrics"),
        ("llama.cpp", "has no hook", "--log"),
        ("tgi", "has no hook", "does not tell it"),
        ("dynamo", "--feed", "--scrape"),
        ("mine", "docs/push.md", "push"),
    ],
)
def test_what_gives_single_steps_is_told_for_each_engine(engine: str, single: str, pool: str) -> None:
    info = info_with(engine=engine, kv_blocks=None)
    by_page = case(window(merged(steps(), 5), info), info=info)
    found = RULES[INSUFFICIENT](by_page)
    told = {each.name: str(each.value) for each in found.evidence}
    assert single in told["single_steps"]
    assert pool in told["kv_pool"]
    assert ("VLLM" in f"{told}") is (engine == "vllm")
    lacks = " ".join(RULES[Code.HOST_OVERHEAD](by_page).missing)
    assert single in lacks
