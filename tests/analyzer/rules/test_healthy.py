"""A healthy engine raises nothing above info, each fault only its own finding, whatever the engine does otherwise."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_windows import H100, INFO, ROOFLINE, case, info_with, merged, steps, window

from rooflens.analyzer.rules import RULES
from rooflens.analyzer.rules.case import Case
from rooflens.analyzer.window_figures import window_figures
from rooflens.findings import FINDINGS, Code, Finding, Severity, Status
from rooflens.records import RooflensError, StepTable


def answers(made: Case) -> list[Finding]:
    return [judge(made) for judge in RULES.values()]


def raised(made: Case) -> set[Code]:
    return {f.code for f in answers(made) if f.status is Status.FIRING and f.severity is not Severity.INFO}


@settings(max_examples=80, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    batch=st.integers(1, 200),
    context=st.integers(1, 8000),
    slow=st.floats(1.15, 2.0),
    chunk=st.sampled_from([0, 128, 512]),
    waiting_share=st.floats(0.0, 0.4),
    deferred=st.integers(0, 5),
    count=st.integers(20, 300),
    together=st.sampled_from([1, 1, 7]),
    ahead=st.booleans(),
)
def test_a_healthy_window_raises_nothing(
    seed: int, batch: int, context: int, slow: float, chunk: int, waiting_share: float, deferred: int, count: int,
    together: int, ahead: bool,
) -> None:  # fmt: skip
    """Batches that come and go, prompts in small chunks, a noisy clock, hiccups, short queues, a well-used pool."""
    rng = np.random.default_rng(seed)
    factor = slow * np.exp(np.abs(rng.normal(0.0, 0.15, count)))  # never below the floor
    factor[rng.integers(0, count)] *= 6  # one hiccup
    count_at = np.clip(batch + rng.integers(-3, 4, count), 1, 250)
    blocks = int(count_at.max() * (context // 16 + 2) * 1.15) + chunk
    table = steps(
        count, count_at, context, np.where(rng.random(count) < 0.3, chunk, 0), factor, rng.uniform(0.0, 0.05, count),
        waiting=np.where(rng.random(count) < waiting_share * 0.9, 3, 0), deferred=deferred,
        preempted=np.where(np.arange(count) == 3, 1, 0),
    )  # fmt: skip
    info = info_with(kv_blocks=blocks, async_scheduling=ahead, concurrent_batches=2 if ahead else 1)
    made = case(merged(table, together) if together > 1 and count >= 40 else table, info=info)
    assert raised(made) == set()


@settings(max_examples=150, deadline=None)
@given(data=st.data(), code=st.sampled_from(list(RULES)), fault=st.integers(0, 5), together=st.sampled_from([1, 5]))
def test_no_rule_fails_for_what_is_not_known(data: st.DataObject, code: Code, fault: int, together: int) -> None:
    """Columns that are absent or known for some steps only, facts that the engine does not state."""
    table, info = list(FAULTS.values())[fault]
    table = merged(table, together) if together > 1 else table
    absent = data.draw(st.sets(st.sampled_from(sorted(table.columns)), max_size=8))
    masked = data.draw(st.sets(st.sampled_from(sorted(table.columns)), max_size=4))
    known = {n: np.arange(len(table)) % 3 > 0 for n in masked}
    columns = {n: np.where(known[n], c, -(10**6)) if n in known else c for n, c in table.columns.items()}
    part = StepTable({n: c for n, c in columns.items() if n not in absent},
                     {n: m for n, m in known.items() if n not in absent})  # fmt: skip
    facts = ("kv_blocks", "max_sequences", "max_batched_tokens", "async_scheduling", "block_tokens", "model_config")
    stated = replace(info, **dict.fromkeys(data.draw(st.sets(st.sampled_from(facts))), None))
    try:
        analysis = ROOFLINE.analyse(part) if stated.model_config else None
    except RooflensError:
        analysis = None
    made = replace(window(table, stated, None), steps=part, analysis=analysis)
    found = RULES[code](Case((made,), (window_figures(made),), ROOFLINE if analysis else None, H100))
    assert found.code is code
    assert Finding.from_json(json.loads(json.dumps(found.to_json(), allow_nan=False))) == found
    if code is not Code.MEASUREMENT_INVALID or not masked:
        assert "-1000000" not in json.dumps(found.to_json())


RECOMPUTED = np.where(np.arange(200) % 20 == 0, 900, 0)
HUGE = np.where(np.arange(200) % 40 == 0, 8000, 0)
FAULTS: dict[Code, tuple[StepTable, Any]] = {
    Code.KV_PRESSURE: (steps(200, prefill=RECOMPUTED, recomputed_tokens=RECOMPUTED, preempted=RECOMPUTED > 0,
                             kv_blocks_used=19_500, waiting=4), INFO),
    Code.MISSED_BATCHING: (steps(200, decode=2, waiting=6), info_with(max_sequences=2)),
    Code.HOST_OVERHEAD: (steps(200, gap_ratio=1.0), INFO),
    Code.PREFILL_INTERFERENCE: (steps(200, prefill=HUGE), INFO),
    Code.MEMORY_BOUND_WASTE: (steps(200, factor=5.0, device_s=0.03), INFO),
    Code.MEASUREMENT_INVALID: (steps(200, factor=0.8), INFO),
}  # fmt: skip


@pytest.mark.parametrize("code", FAULTS)
def test_each_fault_raises_its_own_finding_and_no_other(code: Code) -> None:
    table, info = FAULTS[code]
    assert raised(case(table, info=info)) == {code}
    assert raised(case(steps(200), table, info=info)) == {code}


@pytest.mark.parametrize("code", FAULTS)
def test_a_finding_is_complete_and_survives_json(code: Code) -> None:
    table, info = FAULTS[code]
    found = RULES[code](case(table, info=info))
    assert found.evidence
    assert found.remedy
    assert found.confidence is not None
    assert found.instance == "made"
    assert (found.price is None) is (code is Code.MEASUREMENT_INVALID)
    assert Finding.from_json(json.loads(json.dumps(found.to_json(), allow_nan=False))) == found


@pytest.mark.parametrize("code", RULES)
@pytest.mark.parametrize("made", [Case(), case(steps(5)), case(steps(60), info=None, roofline=None)])
def test_every_rule_answers_for_its_own_code_whatever_is_missing(code: Code, made: Case) -> None:
    found = RULES[code](made)
    assert found.code is code
    assert found.summary
    known = ("kind", "requests", "observed_s", "submit_monotonic_s", "output_monotonic_s")
    bare = case(StepTable({n: steps(60)[n] for n in known}), roofline=None)
    assert RULES[code](bare).code is code
    for answer in answers(made):
        assert json.dumps(answer.to_json(), allow_nan=False)
        assert "\n" not in answer.summary


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_flags_in_a_remedy_are_those_of_the_findings_own_page(engine: str) -> None:
    for code, (table, info) in FAULTS.items():
        changed = info_with(engine=engine, max_sequences=info.max_sequences)
        remedy = RULES[code](case(table, info=changed)).remedy or ""
        for flag in re.findall(r"--[a-z][a-z-]+", remedy):
            known = FINDINGS[code].flags[engine]
            assert flag in known or flag in ("--hardware",), (code, flag)


@pytest.mark.parametrize("code", RULES)
def test_the_docstring_of_a_rule_is_documentation(code: Code) -> None:
    text = RULES[code].__doc__ or ""
    assert len(text.split()) > 40
    assert RULES[code].__name__ == code
