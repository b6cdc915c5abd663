"""The hook against the sources of transformers' releases, as engines/contract/read_transformers.py read the wheels.

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

from rooflens.adapters.transformers import surface

FOLDER = Path(__file__).parent / "data" / "transformers_surface"
Facts = dict[str, Any]


def number(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


PATHS = sorted(FOLDER.glob("*.json"), key=lambda path: number(path.stem))
RELEASES: dict[str, Facts] = {path.stem: json.loads(path.read_text()) for path in PATHS}
KNOWN = [version for version in RELEASES if number(version) >= (5, 0, 0)]
TOO_OLD = [version for version in RELEASES if version not in KNOWN]


def stand_ins(facts: Facts) -> dict[str, Any]:
    """Classes that look to the canary as the release's own do."""
    found: dict[str, Any] = {surface.SCHEDULED: None}
    for owner in surface.METHODS:
        members: dict[str, Any] = {}
        for name, parameters in facts["classes"][owner]["methods"].items():
            exec(f"def {name}({', '.join(parameters)}): ...", members)
        members.pop("__builtins__", None)
        members.pop("__init__", None)
        found[owner] = type(owner, (), members)
    found["RequestState"] = dataclasses.make_dataclass("RequestState", facts["classes"]["RequestState"]["fields"])
    if surface.SCHEDULED in facts["classes"]:
        slots = facts["classes"][surface.SCHEDULED]["slots"]
        found[surface.SCHEDULED] = type(surface.SCHEDULED, (), {"__slots__": tuple(slots)})
    return found


def built(facts: Facts) -> Any:
    """A stand-in for a built batch processor."""

    def instance(owner: str) -> Any:
        told = facts["classes"].get(owner, {"attributes": (), "methods": ()})
        members = {name: None for name in (*told["attributes"], *told["methods"]) if not name.startswith("__")}
        return type(owner, (), {})() if not members else SimpleNamespace(**members)

    processor = instance("ContinuousBatchProcessor")
    processor.scheduler, processor.cache = instance("Scheduler"), instance("PagedAttentionCache")
    processor.cache.num_blocks = 8
    if "inputs_and_outputs" in vars(processor):
        processor.inputs_and_outputs = instance("ContinuousBatchingIOs")
    return processor


def unread(facts: Facts) -> list[str]:
    """What the hook reads of instances that the canary does not see."""
    wanted = []
    classes = facts["classes"]
    if "model_runner" in classes["ContinuousBatchProcessor"]["attributes"]:
        wanted += [("ModelRunner", name) for name in ("use_cuda_graph_varlen", "use_cuda_graph_decode", "pad_inputs")]
        wanted += [("ContinuousBatchingIOs", name) for name in ("use_block_table", "num_q_tokens")]
    if "get_num_free_blocks" not in classes["PagedAttentionCache"]["methods"]:
        wanted += [("PagedAttentionCache", name) for name in ("num_sectors", "bytes_per_sector", "cache_allocators")]
        wanted += [("CachePool", "free_sectors"), ("CachePool", "count_free_blocks"), ("BlockLedger", "cached_blocks")]
        wanted += [("CacheAllocator", name) for name in ("index", "bytes_per_block", "tokens_per_page", "ledger")]
    elif "BlockManager" in classes:
        wanted += [("BlockManager", "_init_block_ids")]
    if "ContinuousBatchingAsyncIOs" in classes:
        wanted += [
            ("ContinuousBatchingAsyncIOs", name) for name in ("io_pairs", "current_pair", "prepare_batch_update")
        ]
        wanted += [("HostDeviceIOPair", "host_io"), ("ContinuousBatchProcessor", "use_async_batching")]
    parts = ("attributes", "methods", "fields", "slots")
    return [f"{owner}.{name}" for owner, name in wanted if not any(name in classes[owner][part] for part in parts)]


def canary(facts: Facts) -> list[str]:
    return surface.class_problems(stand_ins(facts)) + surface.instance_problems(built(facts))


def test_releases_read_cover_the_range_that_is_promised() -> None:
    assert (KNOWN[0], KNOWN[-1]) == ("5.0.0", "5.24.0")
    assert len(KNOWN) >= 9
    for version, facts in RELEASES.items():
        assert facts["version"] == version
        assert facts["wheel"].split("-")[1] == version
        assert len(facts["sha256"]) == 64


@pytest.mark.parametrize("version", KNOWN)
def test_release_has_everything_the_hook_needs(version: str) -> None:
    facts = RELEASES[version]
    assert canary(facts) == []
    assert unread(facts) == []
    for owner, place in surface.PLACES.items():
        assert facts["classes"][owner]["place"] == place


@pytest.mark.parametrize("version", KNOWN)
def test_batches_are_made_in_the_order_that_the_hook_goes_by(version: str) -> None:
    calls = RELEASES[version]["calls"]
    prepared, updated = calls["prepare_next_batch"], calls["update_batch"]
    assert prepared.index("scheduler.clear_cancelled_requests") < prepared.index("scheduler.schedule_batch")
    outputs = {"inputs_and_outputs.prepare_batch_update", "_get_new_tokens"}
    assert updated[0] in outputs
    assert "scheduler.finish_request" in updated
    assert not {"scheduler.schedule_batch", "scheduler.clear_cancelled_requests"} & set(updated)


@pytest.mark.parametrize("version", TOO_OLD)
def test_older_releases_are_refused_by_name(version: str) -> None:
    problems = canary(RELEASES[version])
    assert any("RequestState.initial_tokens" in problem for problem in problems)


@pytest.mark.parametrize(("owner", "part", "name"), [
    ("ContinuousBatchProcessor", "methods", "prepare_next_batch"),
    ("ContinuousBatchProcessor", "methods", "_generation_step"),
    ("ContinuousBatchingManager", "methods", "_run_generation_loop"),
    ("Scheduler", "methods", "finish_request"),
    ("RequestState", "fields", "position_offset"),
    ("FutureRequestState", "slots", "has_new_token"),
])  # fmt: skip
def test_a_renamed_member_is_named(owner: str, part: str, name: str) -> None:
    facts = copy.deepcopy(RELEASES["5.24.0"])
    members = facts["classes"][owner][part]
    if isinstance(members, dict):
        members[f"{name}_renamed"] = members.pop(name)
    else:
        members[members.index(name)] = f"{name}_renamed"
    assert any(name in problem for problem in canary(facts))


def test_swapped_parameters_and_lost_counts_are_named() -> None:
    facts = copy.deepcopy(RELEASES["5.24.0"])
    facts["classes"]["Scheduler"]["methods"]["schedule_batch"] = ["self", "cache_budget", "token_budget"]
    facts["classes"]["PagedAttentionCache"]["attributes"].remove("pool")
    facts["classes"]["ContinuousBatchingIOs"]["methods"].pop("prepare_batch_update")
    problems = " ".join(canary(facts))
    for word in ("schedule_batch", "free blocks", "output"):
        assert word in problems
