"""The hook against the sources of vLLM's releases, as engines/contract/read_surface.py read them from the wheels.

The canary itself judges: stand-in classes with each release's fields and signatures go through surface.py.
"""

from __future__ import annotations

import copy
import dataclasses
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rooflens.adapters.vllm import queue, surface, write

FOLDER = Path(__file__).parent / "data" / "vllm_surface"
OLDEST, NEWEST_READ = (0, 9, 2), (0, 33, 0)
Facts = dict[str, Any]


def number(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


RELEASES: dict[str, Facts] = {
    path.stem: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"), key=lambda p: number(p.stem))
}


def stand_ins(facts: Facts) -> dict[str, type]:
    """Classes that look to the canary as the release's own do."""
    classes: dict[str, type] = {
        name: dataclasses.make_dataclass(name, facts["fields"].get(name, ())) for name in surface.FIELDS
    }
    members: dict[str, Any] = {}
    for name in facts["methods"]["Scheduler"]:
        wanted = facts["parameters"].get(f"Scheduler.{name}", ["self"])
        exec(f"def {name}({', '.join(wanted)}): ...", members)
    members.pop("__builtins__", None)
    members.pop("__init__", None)
    classes["Scheduler"] = type("Scheduler", (), members)
    return classes


def built(facts: Facts) -> Any:
    """A stand-in for a built scheduler."""
    scheduler = stand_ins(facts)["Scheduler"]()
    for name in facts["attributes"]["Scheduler"]:
        setattr(scheduler, name, 1 if name == "num_sampled_tokens_per_step" else None)
    if "block_pool" in facts["attributes"]["KVCacheManager"]:
        names = (*facts["attributes"]["BlockPool"], *facts["methods"]["BlockPool"])
        scheduler.kv_cache_manager = SimpleNamespace(block_pool=SimpleNamespace(**dict.fromkeys(names)))
    return scheduler


def canary(facts: Facts) -> list[str]:
    """What the canary says of a release; it reads what it needs, so a missing class is a finding too."""
    if "Scheduler" not in facts["methods"]:
        return ["Scheduler"]
    classes = stand_ins(facts)
    return surface.class_problems(classes, classes["Scheduler"]) + surface.instance_problems(built(facts))


def has(facts: Facts, owner: str, name: str) -> bool:
    """Whether a class of the release has this field, attribute, property or method."""
    return any(name in facts[kind].get(owner, ()) for kind in ("fields", "attributes", "methods"))


def unread(facts: Facts) -> list[str]:
    """What the hook reads without asking first and the canary, which sees no instance of it, cannot check."""
    wanted = [("Request", name) for name in surface.REQUEST_ATTRIBUTES]
    wanted += [("Executor", "execute_model"), ("BlockPool", "num_gpu_blocks"), ("BlockPool", "get_num_free_blocks")]
    wanted += [("EngineCoreOutputs", "outputs"), ("EngineCoreOutput", "new_token_ids")]
    wanted += [("EngineCore", name) for name in surface.CORE_METHODS]
    return [f"{owner}.{name}" for owner, name in wanted if not has(facts, owner, name)]


def unbranched(facts: Facts) -> list[str]:
    """What the release does in a way for which the hook has no branch."""
    said = facts["behaviour"]
    problems = []
    if not has(facts, "Scheduler", "_preempt_request") and not said["inline_free_before_status"]:
        problems.append("preemption: neither _preempt_request nor blocks freed while the request counts as running")
    if not said["plugins_before_executor"] or not said["plugins_before_scheduler"]:
        problems.append("EngineCore.__init__ builds before it loads plugins")
    if not (said["update_walks_running"] or said["update_walks_scheduled"]):
        problems.append("update_from_output walks neither the running nor the scheduled requests")
    marked = has(facts, "Scheduler", "deferred_waiting")
    if marked != has(facts, "Scheduler", "kv_holding_waiting"):
        problems.append("queues: deferred_waiting and kv_holding_waiting come together")
    known = {"waiting", "skipped_waiting", "kv_holding_waiting", "deferred_waiting"}
    queues = {name for name in facts["attributes"]["Scheduler"] if name.endswith("waiting")}
    problems += [f"queues: Scheduler.{name}" for name in sorted(queues - known)]
    blocked = {name for name in facts["fields"]["RequestStatus"] if name.startswith("WAITING_")}
    problems += [f"RequestStatus.{name}" for name in sorted(blocked - set(queue.BLOCKED))]
    if has(facts, "Request", "prefill_stats") and not has(facts, "PrefillStats", "num_local_cached_tokens"):
        problems.append("PrefillStats.num_local_cached_tokens")
    if has(facts, "ModelRunnerOutput", "cudagraph_stats"):
        wanted = ("num_padded_tokens", "runtime_mode")
        problems += [f"CUDAGraphStat.{name}" for name in wanted if not has(facts, "CUDAGraphStat", name)]
    return problems


def problems(facts: Facts) -> list[str]:
    return canary(facts) + unread(facts) + unbranched(facts)


def test_releases_read_cover_the_range_that_is_promised() -> None:
    assert len(RELEASES) >= 12
    versions = [number(version) for version in RELEASES]
    assert (versions[0], versions[-1]) == (OLDEST, NEWEST_READ)
    for version, facts in RELEASES.items():
        assert facts["version"] == version
        assert facts["wheel"].split("-")[1] == version
        assert len(facts["sha256"]) == 64


@pytest.mark.parametrize("version", RELEASES)
def test_release_has_everything_the_hook_needs(version: str) -> None:
    assert problems(RELEASES[version]) == []


@pytest.mark.parametrize("version", RELEASES)
def test_what_waits_has_a_name_where_blocked_requests_are_not_kept_apart(version: str) -> None:
    facts = RELEASES[version]
    if not has(facts, "Scheduler", "skipped_waiting") and not has(facts, "Scheduler", "deferred_waiting"):
        assert set(facts["fields"]["RequestStatus"]) & set(queue.BLOCKED)


@pytest.mark.parametrize(("kind", "owner", "name"), [
    ("fields", "SchedulerOutput", "num_scheduled_tokens"),
    ("fields", "CachedRequestData", "num_computed_tokens"),
    ("fields", "ModelRunnerOutput", "sampled_token_ids"),
    ("fields", "EngineCoreOutput", "new_token_ids"),
    ("attributes", "Scheduler", "running"),
    ("attributes", "KVCacheManager", "block_pool"),
    ("methods", "Scheduler", "update_from_output"),
    ("methods", "BlockPool", "get_num_free_blocks"),
    ("methods", "Request", "num_tokens"),
    ("methods", "EngineCore", "execute_dummy_batch"),
])  # fmt: skip
@pytest.mark.parametrize("version", [next(iter(RELEASES)), list(RELEASES)[-1]])
def test_a_renamed_member_is_named(version: str, kind: str, owner: str, name: str) -> None:
    facts = copy.deepcopy(RELEASES[version])
    members = facts[kind][owner]
    members[members.index(name)] = f"{name}_renamed"
    assert any(name in problem for problem in problems(facts))


def test_swapped_parameters_are_named() -> None:
    facts = copy.deepcopy(RELEASES["0.33.0"])
    facts["parameters"]["Scheduler.update_from_output"] = ["self", "model_runner_output", "scheduler_output"]
    assert any("update_from_output" in problem for problem in problems(facts))


def test_changed_behaviour_is_named() -> None:
    old, new = copy.deepcopy(RELEASES["0.9.2"]), copy.deepcopy(RELEASES["0.33.0"])
    old["behaviour"]["inline_free_before_status"] = False
    new["fields"]["RequestStatus"].append("WAITING_FOR_GODOT")
    new["attributes"]["Scheduler"].append("parked_waiting")
    new["behaviour"]["plugins_before_scheduler"] = None
    assert any("preemption" in problem for problem in problems(old))
    found = problems(new)
    for word in ("WAITING_FOR_GODOT", "parked_waiting", "plugins"):
        assert any(word in problem for problem in found)


def test_one_of_the_ways_of_saying_who_resumed_must_be_there() -> None:
    facts = copy.deepcopy(RELEASES["0.33.0"])
    facts["fields"]["CachedRequestData"].remove("resumed_req_ids")
    assert any("resumed_req_ids" in problem for problem in problems(facts))


def test_a_diffusion_model_is_refused() -> None:
    scheduler = built(RELEASES["0.33.0"])
    scheduler.num_sampled_tokens_per_step = 1
    assert surface.instance_problems(scheduler) == []
    scheduler.num_sampled_tokens_per_step = 0
    assert any("diffusion" in problem for problem in surface.instance_problems(scheduler))


def test_graph_modes_of_a_release_are_read() -> None:
    stats = SimpleNamespace(num_padded_tokens=8, runtime_mode="CUDAGraphMode.FULL")
    assert write.graph_of(SimpleNamespace(cudagraph_stats=stats))[0] == 8
