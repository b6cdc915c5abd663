"""The loop: plan, run, sample, record."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from rooflens import __version__
from rooflens.adapters.embedded.blocks import BlockPool
from rooflens.adapters.embedded.faults import Faults
from rooflens.adapters.embedded.model import Model, Sequence
from rooflens.adapters.embedded.scheduler import Plan, Request, Scheduler
from rooflens.adapters.embedded.shape import Shape
from rooflens.adapters.recorder import Recorder


@dataclass(frozen=True, slots=True)
class Settings:
    """What an operator of the engine chooses; counts and tokens."""

    kv_blocks: int = 512
    block_tokens: int = 16
    max_sequences: int = 8
    max_batched_tokens: int = 128
    seed: int = 0


class Engine:
    """A continuous-batching engine for one model; add requests and call step until it is idle."""

    def __init__(
        self,
        shape: Shape,
        settings: Settings,
        recorder: Recorder,
        faults: Faults | None = None,
        dtype: DTypeLike = np.float32,
    ) -> None:
        self.settings = settings
        self.model = Model(shape, settings.kv_blocks, settings.block_tokens, settings.seed, dtype)
        self.pool = BlockPool(settings.kv_blocks, settings.block_tokens)
        self.scheduler = Scheduler(self.pool, settings.max_sequences, settings.max_batched_tokens)
        self.steps = 0
        self._recorder = recorder
        self._faults = faults or Faults()
        self._finished = 0
        self._last_step_s = 0.0

    @property
    def busy(self) -> bool:
        """Whether any request runs or waits."""
        return bool(self.scheduler.running or self.scheduler.waiting)

    def add(self, request: Request) -> None:
        """Queue a request; RooflensError where it could never run."""
        self.scheduler.add(request)

    def step(self) -> Plan:
        """Run one step; returns what was planned, with no sequence in it if there was nothing to do."""
        started_s = time.perf_counter()
        plan = self.scheduler.plan()
        self._faults.delay_host(self._last_step_s)
        if not plan.requests:
            return plan
        self.steps += 1
        schedule_s = time.perf_counter() - started_s
        with self._recorder.step(
            contexts=[request.cached_tokens for request in plan.requests],
            queries=plan.queries if plan.prefill else None,
            prefill=plan.prefill,
            schedule_s=schedule_s,
            **self._facts(plan),
        ) as step:
            sampled = self._run(plan)
            step.done()
            step.generated_tokens, self._finished = self.scheduler.advance(plan, sampled)
        return plan

    def _run(self, plan: Plan) -> list[int]:
        started_s = time.perf_counter()
        self._faults.maybe_stall(self.steps)
        sequences = [
            Sequence(request.tokens(request.cached_tokens, query), request.cached_tokens, request.table)
            for request, query in zip(plan.requests, plan.queries, strict=True)
        ]
        sampled: list[int] = self.model.forward(sequences).argmax(axis=1).tolist()
        self._last_step_s = time.perf_counter() - started_s
        return sampled

    def _facts(self, plan: Plan) -> dict[str, Any]:
        """What the recorder is told besides lengths; what did not happen is left out."""
        waits_s = self.scheduler.waits_s()
        facts = {
            "running": len(self.scheduler.running),
            "waiting": len(waits_s),
            "deferred": 0,
            "kv_blocks_used": self.pool.used,
            "kv_blocks_cached": 0,
            "preempted": plan.preempted,
        }
        happened = {
            "prompt_tokens": plan.prompt_tokens,
            "new_requests": plan.new_requests,
            "recomputed_tokens": plan.recomputed_tokens,
            "finished_requests": self._finished,
            "oldest_wait_s": max(waits_s, default=0.0),
            "summed_wait_s": sum(waits_s),
        }
        self._finished = 0
        return facts | {name: value for name, value in happened.items() if value}


def recorder_for(
    shape: Shape, settings: Settings, max_context_tokens: int, strict: bool = False, folder: Path | None = None
) -> Recorder:
    """A recorder told what this engine is, with its ring in ``folder`` (default: that of ring_folder)."""
    return Recorder(
        "rooflens-embedded",
        folder=folder,
        strict=strict,
        engine_version=__version__,
        runner="generate",
        model_name="embedded-llama",
        model_config=shape.config(max_context_tokens),
        weight_dtype="float32",
        kv_dtype="float32",
        kv_blocks=settings.kv_blocks,
        block_tokens=settings.block_tokens,
        max_sequences=settings.max_sequences,
        max_batched_tokens=settings.max_batched_tokens,
        max_context_tokens=max_context_tokens,
        chunked_prefill=True,
        prefix_caching=False,
        async_scheduling=False,
        concurrent_batches=1,
        device="cpu",
    )
