"""Which sequences run in the next step: continuous batching, chunked prefill, preemption by recompute."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from rooflens.adapters.embedded.blocks import BlockPool
from rooflens.records import RooflensError


@dataclass(slots=True, eq=False)
class Request:
    """One sequence: its prompt, what it generated, how much of both is in the KV cache."""

    prompt: list[int]
    output_tokens: int
    generated: list[int] = field(default_factory=list)
    table: list[int] = field(default_factory=list)
    cached_tokens: int = 0
    highest_cached_tokens: int = 0
    scheduled_before: bool = False
    queued_monotonic_s: float = 0.0

    @property
    def known_tokens(self) -> int:
        """Tokens of prompt and output so far."""
        return len(self.prompt) + len(self.generated)

    @property
    def finished(self) -> bool:
        """Whether it has generated all it was asked for."""
        return len(self.generated) >= self.output_tokens

    def tokens(self, start: int, count: int) -> list[int]:
        """``count`` known tokens from position ``start``."""
        return (self.prompt + self.generated)[start : start + count]


@dataclass(slots=True)
class Plan:
    """One step: its sequences in a stable order, the tokens that each computes, and what happened on the way."""

    requests: list[Request] = field(default_factory=list)
    queries: list[int] = field(default_factory=list)
    prefill: list[int] = field(default_factory=list)
    preempted: int = 0
    new_requests: int = 0
    prompt_tokens: int = 0
    recomputed_tokens: int = 0

    def add(self, request: Request, query: int) -> None:
        """Put a sequence into the step."""
        if query > 1 or not request.generated or request.cached_tokens + query < request.known_tokens:
            self.prefill.append(len(self.requests))
        self.recomputed_tokens += max(0, min(request.cached_tokens + query, request.highest_cached_tokens)
                                      - request.cached_tokens)  # fmt: skip
        if not request.scheduled_before:
            self.new_requests += 1
            self.prompt_tokens += len(request.prompt)
            request.scheduled_before = True
        self.requests.append(request)
        self.queries.append(query)


class Scheduler:
    """Running sequences first, in the order they came; then the queue, while batch, budget and blocks allow."""

    def __init__(
        self,
        pool: BlockPool,
        max_sequences: int,
        max_batched_tokens: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.pool = pool
        self.max_sequences = max_sequences
        self.max_batched_tokens = max_batched_tokens
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []
        self._clock = clock

    def add(self, request: Request) -> None:
        """Queue a request; RooflensError where it could never run."""
        if not request.prompt or request.output_tokens < 1:
            raise RooflensError("a request needs a prompt and at least one token to generate")
        tokens = len(request.prompt) + request.output_tokens - 1
        if self.pool.needed([], tokens) > self.pool.blocks:
            raise RooflensError(
                f"a request of {tokens} tokens never fits {self.pool.blocks} KV blocks of {self.pool.block_tokens} "
                "tokens: give the engine more blocks"
            )
        request.queued_monotonic_s = self._clock()
        self.waiting.append(request)

    def waits_s(self) -> list[float]:
        """How long each request in the queue has waited since it was queued or preempted."""
        now_s = self._clock()
        return [now_s - request.queued_monotonic_s for request in self.waiting]

    def plan(self) -> Plan:
        """The next step; empty if there is nothing to do."""
        plan, budget = Plan(), self.max_batched_tokens
        position = 0
        while position < len(self.running) and budget > 0:
            request = self.running[position]
            query = min(request.known_tokens - request.cached_tokens, budget)
            if not self._make_room(request, request.cached_tokens + query, plan):
                break  # it was itself the last to come, and is back in the queue
            plan.add(request, query)
            budget -= query
            position += 1
        if not plan.preempted:
            self._admit(plan, budget)
        return plan

    def _make_room(self, request: Request, tokens: int, plan: Plan) -> bool:
        """Blocks for ``tokens`` of a running sequence, at the expense of those that came last."""
        while not self.pool.grow(request.table, tokens):
            victim = self.running.pop()
            self.pool.release(victim.table)
            victim.highest_cached_tokens = max(victim.highest_cached_tokens, victim.cached_tokens)
            victim.cached_tokens = 0
            victim.queued_monotonic_s = self._clock()
            self.waiting.appendleft(victim)
            plan.preempted += 1
            if victim is request:
                return False
        return True

    def _admit(self, plan: Plan, budget: int) -> None:
        while self.waiting and budget > 0 and len(self.running) < self.max_sequences:
            request = self.waiting[0]
            query = min(request.known_tokens, budget)
            if not self.pool.grow(request.table, query):
                break
            self.waiting.popleft()
            self.running.append(request)
            plan.add(request, query)
            budget -= query

    def advance(self, plan: Plan, sampled: list[int]) -> tuple[int, int]:
        """Enter the output of a step, one sampled token a row; returns (tokens generated, requests finished).

        A row whose prompt is not complete yet has sampled nothing of use.
        """
        generated = 0
        for request, query, token in zip(plan.requests, plan.queries, sampled, strict=True):
            request.cached_tokens += query
            if request.cached_tokens == request.known_tokens:
                request.generated.append(token)
                generated += 1
        done = [request for request in plan.requests if request.finished]
        for request in done:
            self.pool.release(request.table)
            self.running.remove(request)
        return generated, len(done)
