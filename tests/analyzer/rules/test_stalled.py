"""engine_stalled: an open step against what it should take, and an engine of which nothing is counted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from made_windows import CONFIG, INFO, case, merged, steps

from rooflens.analyzer.rules import RULES
from rooflens.analyzer.rules.case import Case
from rooflens.analyzer.rules.longest_step import longest_step_s
from rooflens.findings import Code, Finding, Severity, Status
from rooflens.live_records import Load, Progress, State
from rooflens.records import EngineInfo, StepTable


def judge(table: StepTable, state: State = State.LIVE, **progress: Any) -> Finding:
    return RULES[Code.ENGINE_STALLED](replace(case(table), progress=Progress(state, **progress)))


@pytest.mark.parametrize(("age_s", "fires"), [(2.9, False), (3.1, True)])
def test_an_open_step_is_given_three_seconds(age_s: float, fires: bool) -> None:
    found = judge(steps(), open_age_s=age_s, open_tokens=32, open_requests=32)
    assert (found.status is Status.FIRING) is fires
    if fires:
        assert found.severity is Severity.CRITICAL
        assert "py-spy dump --pid" in (found.remedy or "")
        assert found.price is not None
        assert found.price.saved_s == pytest.approx(age_s, rel=0.05)


@pytest.mark.parametrize(("age_s", "fires"), [(7.9, False), (8.1, True)])
def test_a_slow_engine_is_given_four_of_its_longest_steps(age_s: float, fires: bool) -> None:
    found = judge(steps(observed_s=np.where(np.arange(100) == 50, 2.0, 0.5)), open_age_s=age_s, open_tokens=32)
    assert (found.status is Status.FIRING) is fires


def test_a_step_with_more_tokens_than_any_before_is_given_as_much_more() -> None:
    table = steps(observed_s=1.0)
    assert judge(table, open_age_s=9.0, open_tokens=32).status is Status.FIRING
    assert judge(table, open_age_s=9.0, open_tokens=32 * 16).status is Status.CLEARED
    assert judge(table, open_age_s=65.0, open_tokens=32 * 16).status is Status.FIRING


@pytest.mark.parametrize(("still_s", "fires"), [(9.9, False), (10.1, True)])
def test_without_the_hook_ten_seconds_without_a_token(still_s: float, fires: bool) -> None:
    found = judge(merged(steps(), 20), still_s=still_s)
    assert (found.status is Status.FIRING) is fires
    slow = judge(merged(steps(observed_s=3.0), 20), still_s=still_s)
    assert slow.status is Status.CLEARED


def test_who_sleeps_ended_or_moves_is_not_stalled() -> None:
    for found in (
        judge(steps(), open_age_s=100.0, asleep=True),
        judge(steps(), State.ENDED, still_s=100.0),
        judge(steps(), State.DIED, open_age_s=100.0),
        judge(steps()),
        judge(steps(), still_s=0.0),
    ):
        assert found.status is Status.CLEARED
    assert RULES[Code.ENGINE_STALLED](Case(progress=Progress(State.LIVE))).status is Status.CLEARED


def test_what_cannot_be_seen_cannot_be_told() -> None:
    for found in (
        judge(steps(), State.UNREACHABLE, still_s=100.0),
        judge(steps(), State.STANDBY),
        RULES[Code.ENGINE_STALLED](case(steps(19))).status and judge(steps(19), open_age_s=100.0),
        RULES[Code.ENGINE_STALLED](Case(progress=Progress(State.LIVE, open_age_s=100.0))),
        RULES[Code.ENGINE_STALLED](Case()),
    ):
        assert found.status is Status.CANNOT_TELL
        assert found.missing
    assert judge(steps(20), open_age_s=100.0).status is Status.FIRING


def test_the_last_steps_count_where_they_are_given() -> None:
    stalled = replace(case(steps(observed_s=5.0)), progress=Progress(State.LIVE, open_age_s=10.0))
    assert RULES[Code.ENGINE_STALLED](stalled).status is Status.CLEARED
    assert RULES[Code.ENGINE_STALLED](replace(stalled, recent=steps())).status is Status.FIRING


@pytest.mark.parametrize(("still_s", "made", "status"), [
    (29.0, 2308, Status.CANNOT_TELL), (31.0, 2308, Status.FIRING), (31.0, 19, Status.CANNOT_TELL),
    (31.0, None, Status.CANNOT_TELL), (9.0, 2308, Status.CLEARED),
])  # fmt: skip
def test_steps_that_nobody_saw_count_after_thirty_seconds(still_s: float, made: int | None, status: Status) -> None:
    stands = Progress(State.LIVE, still_s=still_s, steps_made=made, mean_step_s=0.05)
    found = RULES[Code.ENGINE_STALLED](Case(progress=stands))
    assert found.status is status
    if status is Status.FIRING:
        seen = judge(merged(steps(), 20), still_s=still_s)
        assert found.confidence is not None
        assert seen.confidence is not None
        assert found.confidence < seen.confidence
        assert "2,308 steps" in found.summary
    slow = replace(stands, mean_step_s=10.0)
    assert RULES[Code.ENGINE_STALLED](Case(progress=slow)).status is not Status.FIRING


def test_a_queue_of_which_nobody_says_what_it_waits_for_cannot_be_told() -> None:
    table = merged(steps(), 20)
    found = judge(table, load=Load(0.0, running=0.0, waiting=3.0))
    assert found.status is Status.CANNOT_TELL
    assert "wait for" in found.missing[0]
    assert judge(table, load=Load(0.0, running=0.0, waiting=0.0)).status is Status.CLEARED
    assert judge(table, still_s=30.0, load=Load(0.0, running=1.0, waiting=3.0)).status is Status.FIRING


@pytest.mark.parametrize(
    ("still_s", "step_s", "severity"),
    [
        (15.0, 0.025, Severity.WARNING),
        (59.0, 0.025, Severity.WARNING),
        (61.0, 0.025, Severity.CRITICAL),
        (85.0, 20.0, Severity.CRITICAL),
    ],
)
def test_by_a_page_a_hang_may_be_a_long_prompt_for_a_minute(still_s: float, step_s: float, severity: Severity) -> None:
    found = judge(merged(steps(observed_s=step_s), 20), still_s=still_s)
    assert (found.status, found.severity) == (Status.FIRING, severity)
    assert (found.price is None) is (severity is Severity.WARNING), "nothing is lost by a long prompt"
    assert ("long prompt" in found.summary) is (severity is Severity.WARNING)
    by_ring = judge(steps(), still_s=still_s)
    assert by_ring.severity is Severity.CRITICAL, "between two steps there is no prompt"


def test_what_is_not_known_of_a_stalled_engine_is_left_out() -> None:
    """A page whose rows tell no time of a step: neither a figure of 0 s nor a price; critical only if it made steps."""
    table = merged(steps(), 20)
    untimed = StepTable({name: column for name, column in table.columns.items() if name != "observed_s"})
    for made, severity in ((None, Severity.WARNING), (2308, Severity.CRITICAL)):
        stands = Progress(State.LIVE, still_s=90.0, steps_made=made)
        found = RULES[Code.ENGINE_STALLED](replace(case(table), progress=stands, recent=untimed))
        assert (found.status, found.severity, found.price) == (Status.FIRING, severity, None)
        assert "longest" not in found.summary
        assert {each.name for each in found.evidence} == {"stands_still"}
    unseen = RULES[Code.ENGINE_STALLED](Case(progress=Progress(State.LIVE, still_s=90.0, steps_made=2308)))
    assert (unseen.status, unseen.price) == (Status.FIRING, None)
    assert {each.name for each in unseen.evidence} == {"stands_still", "steps_made_before"}


@pytest.mark.parametrize(
    ("engine", "words"),
    [("vllm", "VLLM_EXECUTE_MODEL"), ("sglang", "--watchdog-timeout"), ("llama.cpp", "gdb -p PID"), ("tgi", "shard"),
     ("tensorrt-llm", "--native"), ("dynamo", "workers behind"), ("mine", "gdb -p for others")],
)  # fmt: skip
def test_where_to_look_is_told_for_each_engine(engine: str, words: str) -> None:
    info = replace(INFO, engine=engine)
    stalled = replace(case(merged(steps(), 20), info=info), progress=Progress(State.LIVE, still_s=90.0))
    remedy = RULES[Code.ENGINE_STALLED](stalled).remedy or ""
    assert words in remedy
    assert ("VLLM" in remedy) is (engine == "vllm")
    assert ("py-spy" in remedy) is (engine not in ("llama.cpp", "dynamo"))


def test_a_prefill_behind_a_long_cached_prefix_is_given_what_its_floor_takes() -> None:
    """8,192 tokens at the end of a million take an H100 seconds by the model alone, a decode step does not."""
    info = replace(INFO, max_context_tokens=1_000_000)
    table = steps(observed_s=0.3)
    made = case(StepTable({**table.columns, "query_tokens": np.full(100, 8192)}), info=info)
    chunk = {"open_tokens": 8192, "open_requests": 1}

    def status(made: Case, age_s: float, **what: int) -> Status:
        return RULES[Code.ENGINE_STALLED](replace(made, progress=Progress(State.LIVE, open_age_s=age_s, **what))).status

    bound_s = longest_step_s(replace(made, progress=Progress(State.LIVE, **chunk)))
    assert bound_s is not None
    assert bound_s > 10 * 0.3, "more than its tokens alone would be given"
    assert status(made, 4 * bound_s - 0.1, **chunk) is Status.CLEARED
    assert status(made, 4 * bound_s + 0.1, **chunk) is Status.FIRING
    assert status(made, 3.1, open_tokens=32, open_requests=32) is Status.FIRING
    assert status(replace(made, roofline=None), 4 * bound_s - 0.1, **chunk) is Status.FIRING


def test_the_longest_context_is_the_limit_else_the_models_own_else_the_pool() -> None:
    def bound_s(info: EngineInfo, table: StepTable) -> float | None:
        chunk = Progress(State.LIVE, open_age_s=1.0, open_tokens=8192, open_requests=1)
        return longest_step_s(replace(case(table, info=info), progress=chunk))

    config = {k: v for k, v in CONFIG.items() if k != "max_position_embeddings"}
    bare = replace(INFO, model_config=config, kv_blocks=None)
    seen = StepTable({**steps().columns, "max_context_tokens": np.full(100, 50_000)})
    plain = StepTable({n: c for n, c in steps().columns.items() if n != "max_context_tokens"})
    assert bound_s(bare, plain) is None
    assert bound_s(bare, seen) == bound_s(replace(bare, max_context_tokens=50_000), plain)
    own = replace(bare, model_config={**CONFIG, "max_position_embeddings": 50_000})
    assert bound_s(own, plain) == bound_s(bare, seen)
    assert bound_s(replace(bare, kv_blocks=3125), plain) == bound_s(bare, seen), "16 tokens in each"
    assert bound_s(replace(bare, max_context_tokens=10), seen) == bound_s(bare, seen), "it was longer all the same"
