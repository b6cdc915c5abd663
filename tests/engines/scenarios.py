"""What the schedulers are put through, each a run of its own from a seed."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass
from typing import Any

import vllm
from scheduler_harness import AsyncScheduler, Model, Scheduler, make_request, make_scheduler
from vllm.v1.request import RequestStatus
from witness import Witness


@dataclass(frozen=True)
class Scenario:
    """One way to drive a scheduler; counts in requests, tokens, blocks or steps."""

    name: str
    asynchronous: bool = True
    depth: int = 2
    blocks: int = 20000
    requests: int = 64
    stop: int | None = None
    abort_every: int = 0
    v2: bool = False
    budget: int = 2048
    arrival: float = 1.0
    sequences: int = 256
    longest_output: int = 120
    longest_prompt: int = 600
    spec: int = 0
    seed: int = 3
    shared_prefix: int = 0
    prefix_caching: bool = True
    pipeline: int = 1
    chunk: int = 0
    reset_at: int = 0
    pooling: bool = False
    forgets_empty: bool = False


SYNC = {"asynchronous": False, "depth": 1}
TINY = {"blocks": 160, "arrival": 0.8}
PIPELINE = {"asynchronous": False, "depth": 2, "pipeline": 2}
CHUNKED = {"budget": 96, "sequences": 64, "abort_every": 31, "longest_prompt": 200}
DEEP = {"asynchronous": False, "depth": 4, "pipeline": 4}
LONG_CHUNKS = {"requests": 12, "budget": 96, "chunk": 48, "sequences": 60, "longest_prompt": 900, "longest_output": 20}
ALL = (
    Scenario("sync", **SYNC),
    Scenario("sync one-token prompts", **SYNC, longest_prompt=3, longest_output=6),
    Scenario("async max_tokens only"),
    Scenario("async stop token", stop=9),
    Scenario("sync stop token", **SYNC, stop=9),
    Scenario("async aborts", abort_every=7),
    Scenario("sync aborts in the middle of prompts", **SYNC, abort_every=3, budget=64, sequences=48),
    Scenario("sync chunked prefill", **SYNC, budget=128, chunk=48, sequences=100),
    Scenario("async chunked prefill, aborts", budget=128, chunk=48, abort_every=5, sequences=100),
    Scenario("sync shared prefixes", **SYNC, shared_prefix=200),
    Scenario("async shared prefixes, stop", shared_prefix=200, stop=9),
    Scenario("async tiny KV, runner 1", **TINY),
    Scenario("async tiny KV, runner 2", **TINY, v2=True),
    Scenario("sync tiny KV, no prefix cache", **SYNC, **TINY, prefix_caching=False),
    Scenario("sync tiny KV, chunked, aborts, runner 2", **SYNC, **TINY, **CHUNKED, v2=True),
    Scenario("async tiny KV, chunked, aborts", **TINY, **CHUNKED),
    Scenario("async pipeline depth 2", depth=2, pipeline=2),
    Scenario("async pipeline depth 4, runner 2", depth=4, pipeline=4, v2=True),
    Scenario("sync pipeline depth 2", **PIPELINE),
    Scenario("sync pipeline depth 4, stop, aborts", asynchronous=False, depth=4, pipeline=4, stop=9, abort_every=9),
    Scenario("sync pipeline depth 2, tiny KV", **PIPELINE, **TINY),
    Scenario("sync spec 3", **SYNC, spec=3),
    Scenario("sync spec 3, stop, tiny KV", **SYNC, spec=3, stop=9, **TINY),
    Scenario("async spec 3", spec=3),
    Scenario("async spec 5, stop, aborts", spec=5, stop=9, abort_every=9),
    Scenario("async spec 3, tiny KV", spec=3, **TINY),
    Scenario("async spec 3, tiny KV, runner 2, stop", spec=3, v2=True, stop=9, **TINY),
    Scenario("async steady 256, churn", requests=500, arrival=0.5, longest_output=300),
    Scenario("async heavy churn", requests=600, arrival=0.9, longest_output=60),
    Scenario("sync batch cap with a queue", **SYNC, sequences=8, requests=40),
    Scenario("async depth 3, chunks in flight, aborts", depth=3, **LONG_CHUNKS, abort_every=3),
    Scenario("sync pipeline depth 4, chunks in flight, aborts", **DEEP, **LONG_CHUNKS, abort_every=3),
    Scenario("async drained, the last one aborted", requests=3, abort_every=2, longest_prompt=900, budget=256),
    Scenario("async prefix-cache reset while running", reset_at=30, requests=32),
    Scenario("async prefix-cache reset, spec 3", reset_at=30, requests=32, spec=3),
    Scenario("async prefix-cache reset, pipeline depth 4", reset_at=30, requests=32, depth=4, pipeline=4),
    Scenario("sync prefix-cache reset, pipeline depth 2", **PIPELINE, reset_at=30, requests=32),
    Scenario("sync pipeline depth 4, tiny KV, aborts", asynchronous=False, depth=4, pipeline=4, abort_every=5, **TINY),
    # Up to 0.10.0 a batch queue never updates its empty steps.
    Scenario("sync pipeline depth 2, empty steps forgotten", **PIPELINE, forgets_empty=True),
    Scenario("sync pipeline depth 2, tiny KV, empty steps forgotten", **PIPELINE, **TINY, forgets_empty=True),
)
POOLED = (
    Scenario("pooling, aborts in flight", **PIPELINE, pooling=True, abort_every=3),
    Scenario("pooling, chunks, aborts in flight", **PIPELINE, pooling=True, abort_every=3, chunk=48, budget=256),
)
# Where vLLM's own books are wrong, or it stops itself: (first release, last release, what is wrong there).
VLLMS_FAULTS = {
    "async prefix-cache reset, spec 3": ((0, 12), (0, 24), "counts computed tokens that were never accepted"),
    "async prefix-cache reset, pipeline depth 4": ((0, 12), (0, 24), "an assertion of the scheduler fails"),
    "sync prefix-cache reset, pipeline depth 2": ((0, 12), (0, 24), "a token is delivered twice"),
}


def at_fault(name: str, release: tuple[int, ...]) -> bool:
    """Whether this release of vLLM, as (0, minor), does the scenario wrong itself."""
    first, last, _ = VLLMS_FAULTS.get(name, ((1,), (0,), ""))
    return first <= release <= last


RELEASE = tuple(map(int, vllm.__version__.split(".")[:2]))
SCENARIOS = tuple(scenario for scenario in ALL if not at_fault(scenario.name, RELEASE))


def build(scenario: Scenario, cls: type | None = None) -> Any:
    """The scheduler of a scenario, built by vLLM (and by the hook, where it is installed)."""
    return make_scheduler(
        cls or (AsyncScheduler if scenario.asynchronous else Scheduler),
        blocks=scenario.blocks,
        spec=scenario.spec,
        seqs=scenario.sequences,
        budget=scenario.budget,
        v2=scenario.v2,
        prefix=scenario.prefix_caching,
        pipeline=scenario.pipeline,
        chunk=scenario.chunk,
        pooling=scenario.pooling,
    )


def requests_of(scenario: Scenario, rng: random.Random) -> list[Any]:
    """The requests of a scenario, the same for the same seed."""
    shared = [rng.randrange(10, 30000) for _ in range(scenario.shared_prefix)]
    made = []
    for number in range(scenario.requests):
        own = [rng.randrange(10, 30000) for _ in range(rng.randrange(1, scenario.longest_prompt))]
        most = 0 if scenario.pooling else rng.randrange(2, scenario.longest_output)
        made.append(make_request(number, shared + own, most, scenario.stop))
    return made


def drive(scenario: Scenario, cls: type | None = None) -> Witness:
    """Run a scenario to its end; the witness holds the engine's books."""
    rng = random.Random(scenario.seed)
    scheduler = build(scenario, cls)
    witness = Witness(scheduler)
    model = Model(scheduler, scenario.seed, scenario.stop)
    waiting = deque(requests_of(scenario, rng))
    queue: deque[Any] = deque()
    for step in range(1, 6000):
        if not (waiting or scheduler.has_requests() or queue):
            break
        while waiting and rng.random() < scenario.arrival:
            scheduler.add_request(waiting.popleft())
            if scenario.arrival < 1.0:
                break
        if scenario.abort_every and step % scenario.abort_every == 0:
            names = [request.request_id for request in scheduler.running[-1:]]
            scheduler.finish_requests(names, RequestStatus.FINISHED_ABORTED)
        if scenario.reset_at and step == scenario.reset_at:
            scheduler.reset_prefix_cache(reset_running_requests=True)
        output = scheduler.schedule() if scheduler.has_requests() else None
        if output is not None:
            model.scheduled(output)
            if output.total_num_scheduled_tokens or not scenario.forgets_empty:
                queue.append(output)
            if scenario.spec and not scenario.asynchronous:
                _draft(scheduler, output, scenario.spec, rng)
        if queue and (len(queue) >= scenario.depth or output is None or not output.total_num_scheduled_tokens):
            done = queue.popleft()
            scheduler.update_from_output(done, model.run(done))
    assert not scheduler.has_requests(), "the scenario did not end"
    return witness


def _draft(scheduler: Any, output: Any, most: int, rng: random.Random) -> None:
    """What a drafter proposes for the next step, in the way of the synchronous engine."""
    for name in output.num_scheduled_tokens:
        request = scheduler.requests.get(name)
        if request is not None and not getattr(request, "is_prefill_chunk", False):
            request.spec_token_ids = [7] * rng.randrange(most + 1)
