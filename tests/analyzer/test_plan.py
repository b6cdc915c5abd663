"""Plans: what their fields imply, and the last value of each that makes sense beside the first that does not."""

from __future__ import annotations

from typing import Any

import pytest

from rooflens.analyzer.plan import Plan, check_plan
from rooflens.arch_records import Deployment
from rooflens.records import RooflensError


def test_devices_of_a_plan() -> None:
    plan = Plan(48, Deployment(tensor=2, pipeline=3, data=4))
    assert (plan.replica_devices, plan.replicas, plan.ranks) == (24, 2, 8)
    assert (Plan().replica_devices, Plan().replicas, Plan().ranks, Plan().batch) == (1, 1, 1, 1)


def test_tokens_of_a_plan() -> None:
    # (computed, read from the cache, kept, rows of the head) of one sequence.
    def tokens(**change: Any) -> tuple[int, int, int, int]:
        plan = Plan(context_tokens=100, **change)
        return plan.computed_tokens, plan.read_tokens, plan.kept_tokens, plan.sampled_rows

    assert tokens() == (1, 100, 100, 1)
    assert tokens(query_tokens=5) == (5, 100, 100, 5)
    assert tokens(phase="prefill") == (100, 0, 100, 1)
    assert tokens(phase="prefill", cached_tokens=30) == (70, 30, 100, 1)
    assert tokens(phase="prefill", cached_tokens=30, query_tokens=60) == (60, 30, 100, 0)
    assert tokens(phase="prefill", cached_tokens=30, query_tokens=70) == (70, 30, 100, 1)
    assert (Plan().prefill, Plan(phase="prefill").prefill) == (False, True)


GOOD: list[dict[str, Any]] = [
    {"batch": 10**9}, {"context_tokens": 10**9}, {"context_tokens": 0}, {"context_tokens": 1, "phase": "prefill"},
    {"cached_tokens": 1024}, {"shared_prefix_tokens": 1024}, {"encoder_tokens": 10**9}, {"encoder_tokens": 0},
    {"query_tokens": 10**9}, {"query_tokens": 1}, {"phase": "prefill", "cached_tokens": 1000, "query_tokens": 24},
    {"block_tokens": 10**9}, {"block_tokens": 1}, {"graph_sizes": (1,)}, {"utilization_ratio": 1.0},
    {"utilization_ratio": 1e-9}, {"memory_bytes": 1e-9}, {"lora_rank": 1}, {"lora_rank": 65_536},
    {"lora_adapters": 1}, {"lora_adapters": 10**9}, {"expert_sharing_ratio": 0.0}, {"expert_sharing_ratio": 1.0},
    {"distinct_experts": 0.0}, {"distinct_experts": 1e9},
    {"devices": 10**6}, {"devices": 10**6, "deployment": Deployment(tensor=10**6)},
    {"devices": 10**6, "deployment": Deployment(pipeline=10**6)},
    {"devices": 10**6, "deployment": Deployment(data=10**6)}, {"devices": 6, "deployment": Deployment(6, context=3)},
]  # fmt: skip


@pytest.mark.parametrize("change", GOOD, ids=str)
def test_the_last_that_makes_sense(change: dict[str, Any]) -> None:
    check_plan(Plan(**change))


BAD: list[tuple[dict[str, Any], str]] = [
    ({"batch": 10**9 + 1}, "--batch"), ({"batch": 0}, "--batch"), ({"context_tokens": 10**9 + 1}, "--context"),
    ({"context_tokens": -1}, "--context must be from 0"), ({"context_tokens": 0, "phase": "prefill"}, "from 1"),
    ({"cached_tokens": 1025}, "cached tokens"), ({"shared_prefix_tokens": -1}, "shared prefix"),
    ({"shared_prefix_tokens": 1025}, "shared prefix"), ({"encoder_tokens": 10**9 + 1}, "encoder"),
    ({"encoder_tokens": -1}, "encoder"), ({"query_tokens": 10**9 + 1}, "must compute"),
    ({"query_tokens": 0}, "must compute"), ({"block_tokens": 10**9 + 1}, "KV block"), ({"block_tokens": 0}, "KV block"),
    ({"phase": "prefill", "cached_tokens": 1000, "query_tokens": 25}, "more than the prompt's 1024"),
    ({"graph_sizes": (4, 0)}, "captured graphs"), ({"utilization_ratio": 1.0001}, "--utilization"),
    ({"utilization_ratio": 0.0}, "--utilization"), ({"memory_bytes": 0.0}, "--memory"),
    ({"lora_rank": 0}, "--lora must be a rank from 1 to 65536"), ({"lora_rank": 65_537}, "--lora"),
    ({"lora_adapters": 0}, "LoRA adapters"), ({"lora_adapters": 10**9 + 1}, "LoRA adapters"),
    ({"distinct_experts": -0.1}, "distinct-experts"), ({"distinct_experts": 1e9 + 1}, "distinct-experts"),
    ({"distinct_experts": float("nan")}, "distinct-experts"),
    ({"expert_sharing_ratio": -0.001}, "shares"), ({"expert_sharing_ratio": 1.001}, "shares"),
    ({"devices": 10**6 + 1}, "--devices"), ({"devices": 0}, "--devices"),
    ({"deployment": Deployment(tensor=10**6 + 1)}, "--tp"), ({"deployment": Deployment(pipeline=0)}, "--pp"),
    ({"deployment": Deployment(data=0)}, "--dp"), ({"deployment": Deployment(context=0)}, "--cp"),
    ({"devices": 6, "deployment": Deployment(6, context=4)}, "--cp 4 does not divide --tp 6"),
    ({"devices": 6, "deployment": Deployment(4)}, "--devices 6 is not a multiple of --tp 4$"),
    ({"devices": 7, "deployment": Deployment(data=2)}, "--devices 7 is not a multiple of --tp 1 x --dp 2$"),
    ({"devices": 7, "deployment": Deployment(2, 3, 4)}, "a multiple of --tp 2 x --pp 3 x --dp 4$"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "message"), BAD, ids=str)
def test_the_first_that_does_not(change: dict[str, Any], message: str) -> None:
    with pytest.raises(RooflensError, match=message):
        check_plan(Plan(**change))
