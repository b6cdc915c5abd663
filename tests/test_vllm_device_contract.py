"""Device time against the workers of vLLM's releases, as engines/contract/read_workers.py read them from the wheels."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from rooflens.adapters.vllm import device

FOLDER = Path(__file__).parent / "data" / "vllm_surface"
RELEASES: dict[str, dict[str, Any]] = {
    path.stem: json.loads(path.read_text())["workers"] for path in sorted(FOLDER.glob("*.json"))
}
FIRST_IN_TWO_CALLS = (0, 11, 1)


def number(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def runner_problems(runner: dict[str, Any], in_two_calls: bool) -> list[str]:
    """What a model runner lacks, or does in a way for which there is no branch."""
    methods = set(runner["methods"])
    wanted = {device.FIRST_CALL, device.DUMMY_CALL} | ({device.LAST_CALLS[0]} if in_two_calls else set())
    problems = sorted(wanted - methods)
    if runner["execute_model"][:2] != ["self", "scheduler_output"]:
        problems.append("execute_model: the scheduler's output is not the first parameter")
    if not runner["device"]:
        problems.append("device")
    if not runner["dummy_by_keyword"]:
        problems.append("dummy_run by position")
    return problems


def problems(version: str, facts: dict[str, Any]) -> list[str]:
    """Everything in the way of timing the workers of a release."""
    found = [name for name in (device.BUILDS, device.WARMS_UP) if name not in facts["worker_methods"]]
    keys = ("worker_base", "base_has_init", "worker_calls_base", "runner_built_in_init_device", "plugins_before_worker")
    found += [key for key in keys if not facts[key]]
    in_two_calls = number(version) >= FIRST_IN_TWO_CALLS
    for kind in ("runner", "runner_2"):
        if facts[kind] is not None:
            found += [f"{kind}: {problem}" for problem in runner_problems(facts[kind], in_two_calls)]
    return found


@pytest.mark.parametrize("version", RELEASES)
def test_workers_of_a_release_can_be_timed(version: str) -> None:
    assert problems(version, RELEASES[version]) == []


def test_both_runners_and_both_ways_of_sampling_were_seen() -> None:
    assert len(RELEASES) >= 12
    sampling = {v for v, facts in RELEASES.items() if device.LAST_CALLS[0] in facts["runner"]["methods"]}
    assert {v for v in RELEASES if number(v) >= FIRST_IN_TWO_CALLS} == sampling
    assert len(RELEASES) - len(sampling) >= 3
    second = [facts["runner_2"] for facts in RELEASES.values() if facts["runner_2"]]
    assert any(device.LAST_CALLS[1] in runner["methods"] for runner in second)
    # A dummy run that goes through execute_model is what the wrapper around _dummy_run keeps apart.
    assert any(runner["dummy_through_execute_model"] for runner in second)
    assert not any(facts["runner"]["dummy_through_execute_model"] for facts in RELEASES.values())


def test_a_change_is_named() -> None:
    facts = copy.deepcopy(RELEASES["0.33.0"])
    facts["worker_methods"].remove("init_device")
    facts["plugins_before_worker"] = None
    facts["runner"]["methods"].remove("sample_tokens")
    facts["runner_2"]["execute_model"] = ["self", "batch"]
    facts["runner_2"]["dummy_by_keyword"] = False
    assert len(problems("0.33.0", facts)) == 5
