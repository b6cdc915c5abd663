"""measurement_invalid: what contradicts itself in the counters of devices, and what is not to be trusted then."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from made_counters import HEALTHY, beside
from made_windows import H100, INFO, ROOFLINE, case, info_with, steps

from rooflens.analyzer.roofline import Roofline
from rooflens.analyzer.rules import RULES
from rooflens.analyzer.rules.counted import profiled
from rooflens.analyzer.rules.counter_faults import PROFILED, cached_share
from rooflens.device_records import CounterSource
from rooflens.findings import Code, Finding, Severity, Status
from rooflens.model_records import DISTURBED
from rooflens.records import StepTable

INVALID = Code.MEASUREMENT_INVALID


def judge(code: Code, table: StepTable, info: Any = INFO, **facts: Any) -> Finding:
    return RULES[code](beside(table, info, **facts))


def facts_of(found: Finding) -> dict[str, Any]:
    return {e.name: e.value for e in found.evidence}


def distrusted(found: Finding) -> str:
    assert found.status is Status.FIRING, found.summary
    return str(facts_of(found)["not_to_be_trusted"])


@pytest.mark.parametrize("name", [*PROFILED, "kernel_ratio", "sm_clock_ratio", "memory_clock_ratio"])
@pytest.mark.parametrize(("value", "fires"), [(1.04, False), (1.06, True), (-0.01, True)])
def test_a_share_beyond_the_whole(name: str, value: float, fires: bool) -> None:
    found = judge(INVALID, steps(), **(HEALTHY | {name: value}))
    assert (found.status is Status.FIRING) is fires, found.summary
    if fires:
        assert name in found.summary
        assert distrusted(found) == "device counters"
        assert (profiled(beside(steps(), **(HEALTHY | {name: value}))) is None) is (name in PROFILED)


def test_ratios_of_nothing_while_steps_ran() -> None:
    zeros = dict.fromkeys(PROFILED, 0.0)
    found = judge(INVALID, steps(), **zeros)
    assert "every measured ratio of the devices is 0 while steps ran" in found.summary
    assert "idle" not in found.summary
    assert judge(INVALID, steps(), **dict.fromkeys(PROFILED, None)).status is Status.CLEARED
    assert judge(INVALID, steps(), **(zeros | {"sm_ratio": 0.01, "dram_ratio": 0.01})).status is Status.CLEARED
    alone = judge(INVALID, steps(), **(HEALTHY | {"dram_ratio": 0.0}))
    assert "dram_ratio is 0 while steps ran" in alone.summary
    assert distrusted(alone) == "device counters"


@pytest.mark.parametrize(("kernel", "power", "fires"), [(1.0, 0.6, True), (0.4, 0.6, False), (1.0, 0.3, False)])
def test_without_steps_kernels_and_power_contradict_a_ratio_of_nothing(
    kernel: float, power: float, fires: bool
) -> None:
    rare = steps(gap_ratio=1000.0, running=0)
    found = judge(INVALID, rare, graphics_ratio=0.0, dram_ratio=0.0, kernel_ratio=kernel, power_ratio=power)
    assert (found.status is Status.FIRING) is fires


def test_samples_that_cover_little_may_miss_the_steps() -> None:
    half_idle = steps(gap_ratio=1.5, running=0)
    assert judge(INVALID, half_idle, dram_ratio=0.0, covered_ratio=0.5).status is Status.CLEARED
    assert judge(INVALID, half_idle, dram_ratio=0.0, covered_ratio=0.9).status is Status.FIRING


@pytest.mark.parametrize(("ratio", "fires"), [(0.0, True), (0.5, True), (0.7, True), (0.85, False), (3.0, False)])
def test_fewer_bytes_than_the_steps_must_move(ratio: float, fires: bool) -> None:
    kept = 1 - cached_share(beside(steps()))
    assert kept == pytest.approx(
        1 - 52428800 * 100 / sum(c.sum() for c in ROOFLINE.analyse(steps()).group_bytes.values())
    )
    found = judge(INVALID, steps(), counter_bytes_high=ratio * kept * 1e12, model_bytes_low=1e12, dram_ratio=0.5)
    assert (found.status is Status.FIRING) is fires
    if fires:
        assert f"counted {ratio:.2f} times the bytes that the steps must move" in found.summary
        assert found.severity is Severity.WARNING
        assert found.price is None


def test_what_the_last_cache_holds_need_not_be_moved() -> None:
    """A model whose weights fit the cache may be read without a byte of DRAM."""
    small = {**INFO.model_config, "num_hidden_layers": 1, "hidden_size": 512, "intermediate_size": 1024,
             "num_attention_heads": 8, "num_key_value_heads": 8, "vocab_size": 4096}  # type: ignore[dict-item]  # fmt: skip
    info = info_with(model_config=small)
    roofline = Roofline.of(info, H100)
    table = steps(decode=1, context=10, roofline=roofline, observed_s=1e-4)
    made = beside(table, info, roofline, counter_bytes_high=1.0, model_bytes_low=1e9, dram_ratio=0.1)
    assert cached_share(made) == 1.0
    assert RULES[INVALID](made).status is Status.CLEARED


def test_one_device_of_two_counts_half_of_the_bytes() -> None:
    few = {"counter_bytes_high": 0.3e12, "model_bytes_low": 1e12}
    assert judge(INVALID, steps(), devices=1, devices_expected=2, **few).status is Status.CLEARED
    assert judge(INVALID, steps(), devices=2, devices_expected=2, **few).status is Status.FIRING


@pytest.mark.parametrize(
    ("complaint", "mild"),
    [
        ("the wall clock was set by +0.40 s", True),
        ("the machine was suspended for 3.0 s: samples across it are left out", True),
        ("two sources give GPU-1", False),
    ],
)
def test_what_the_join_complains_of(complaint: str, mild: bool) -> None:
    found = judge(INVALID, steps(), complaints=(complaint,))
    assert found.summary == complaint
    assert (found.severity is Severity.INFO) is mild
    assert ("durations hold" in distrusted(found)) is mild


def test_distrusted_counters_silence_no_rule_that_judges_by_the_floor() -> None:
    stuck = dict.fromkeys(PROFILED, 0.0)
    waiting = steps(decode=4, waiting=12)
    queue = info_with(max_sequences=4)
    assert judge(INVALID, waiting, queue, **stuck).status is Status.FIRING
    for code in set(RULES) - {INVALID, Code.THROTTLING}:
        assert judge(code, waiting, queue, **stuck) == RULES[code](case(waiting, info=queue)), code
    assert judge(Code.MISSED_BATCHING, waiting, queue, **stuck).status is Status.FIRING


def test_the_remedy_names_the_source() -> None:
    stuck: dict[str, Any] = dict.fromkeys(PROFILED, 0.0)
    assert "Xid" in (judge(INVALID, steps(), **stuck).remedy or "")
    ran = {"kernel_ratio": 1.0, "power_ratio": 0.6, "source": CounterSource.DCGM}
    assert "DCGM host engine" in (judge(INVALID, steps(), **stuck, **ran).remedy or "")
    assert "--hardware" in (judge(INVALID, steps(factor=0.5), **stuck).remedy or ""), "the floor comes first"


def test_a_floor_that_is_beaten_and_was_measured_beside_others_is_what_is_wrong() -> None:
    beaten = case(steps(factor=0.5))
    assert beaten.hardware is not None
    beside_others = replace(beaten, hardware=replace(beaten.hardware, flags=(f"{DISTURBED}: 1.0 of 2 cores",)))
    found = RULES[INVALID](beside_others)
    assert found.status is Status.FIRING
    assert "run 'rooflens calibrate'" in (found.remedy or "")


def test_a_page_that_still_tells_of_idle_time_does_not_stand_still() -> None:
    busy, rare = steps(), steps(gap_ratio=1000.0, running=0)

    def page(*tables: StepTable) -> Status:
        last = beside(tables[-1], source=CounterSource.DCGM, **dict.fromkeys(PROFILED, 0.0)).windows
        return RULES[INVALID](case(*tables[:-1], *last)).status

    assert page(rare, busy, busy, busy) is Status.CLEARED
    assert page(busy, busy, busy) is Status.CLEARED
    assert page(busy, busy, busy, busy) is Status.FIRING
