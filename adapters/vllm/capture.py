"""One scheduler's steps into its ring: stamped at schedule, committed at update."""

from __future__ import annotations

import time
from typing import Any

from rooflens.adapters.vllm.frame import Stream, StreamTable
from rooflens.adapters.vllm.queue import WaitingQueue
from rooflens.adapters.vllm.rows import Pending, Requests
from rooflens.adapters.vllm.write import Update, graph_of, write_full
from rooflens.records import StepKind
from rooflens.ring import COLD_FIELDS, REPEAT, UNKNOWN
from rooflens.ring_writer import RingWriter, pack_cold

SPIN_REPORT_NS = 1_000_000_000
SPINS_TOLD = 8  # fewer in a row are a pipeline's empty turns, told once a second
MOST_PENDING = 64  # deeper than any pipeline: up to vLLM 0.10.0 the empty steps of one are never updated
DECODE = int(StepKind.DECODE)


class Capture:
    """Everything the hook remembers of one scheduler; used by the engine's loop thread alone."""

    def __init__(self, scheduler: Any, ring: RingWriter) -> None:
        self.ring = ring
        self.scheduler = scheduler
        self.requests = Requests(scheduler)
        self.queue = WaitingQueue(scheduler)
        self.pooling = getattr(scheduler.vllm_config.model_config, "runner_type", "") == "pooling"
        self.connected = getattr(scheduler, "connector", None) is not None
        self.off = False
        self.inside = self.telling = False
        self.failures = 0
        self.streams = StreamTable(getattr(scheduler.vllm_config.parallel_config, "pipeline_parallel_size", 1))
        self._pool = scheduler.kv_cache_manager.block_pool
        # One block is vLLM's null block and never holds anything.
        self._usable_blocks = int(self._pool.num_gpu_blocks) - 1
        self._ordinal = 0
        self._cold_key: tuple[int, ...] = ()
        self._cold = b""
        self._spins = self._spins_in_a_row = self._spun_ns = 0

    def scheduled(self, output: Any, started_ns: int) -> None:
        """After schedule() returned ``output``."""
        now = time.monotonic_ns()
        follow = self.requests
        step = Pending(output, now, now - started_ns)
        total = output.total_num_scheduled_tokens
        if follow.preempted_now:
            step.preempted, follow.preempted_now = follow.preempted_now, 0
        if not total:
            follow.pending.append(step)
            if len(follow.pending) > MOST_PENDING and not follow.pending[0].output.total_num_scheduled_tokens:
                follow.pending.popleft()
            return
        cached = output.scheduled_cached_reqs
        resumed = getattr(cached, "resumed_req_ids", None)
        if resumed is None:
            flags = cached.resumed_from_preemption
            if any(flags):
                resumed = [name for name, flag in zip(cached.req_ids, flags, strict=True) if flag]
        if (
            output.scheduled_new_reqs
            or resumed
            or follow.prefilling
            or (self.connected and total > len(cached.req_ids))
        ):
            follow.on_schedule(step, list(resumed or ()))
        follow.pending.append(step)
        self._ordinal = ordinal = self._ordinal + 1
        self.ring.stamp(ordinal, now, total, len(output.num_scheduled_tokens))

    def updated(self, update: Update) -> None:
        """After update_from_output() returned."""
        step = update.step
        output = step.output
        total = output.total_num_scheduled_tokens
        if not total:
            self._spin(update.ended_ns)
            return
        if self._spins:
            if self._spins_in_a_row >= SPINS_TOLD:
                self._report_spins()
            self._spins_in_a_row = 0
        follow = self.requests
        cached = output.scheduled_cached_reqs
        ids = cached.req_ids
        stream = self.streams.latest
        if (
            total == len(ids)
            and stream is not None
            and stream.steady
            and step.rows is None
            and step.discarded is None
            and step.stale is None
            and not output.scheduled_spec_decode_tokens
            and not output.scheduled_encoder_inputs
            and not step.preempted
            and not follow.finished
            and not follow.special
            and not self.connected
            and not self.pooling
            and not stream.key_due(update.started_ns)
            and stream.ids == ids
            and not self.queue.due(update.started_ns)
        ):
            self._repeat(update, stream, cached.num_computed_tokens)
        else:
            write_full(self, update)

    def times(self, update: Update) -> tuple[int, int]:
        """(time inside the executor's calls, wait for the output), nanoseconds or unknown."""
        step = update.step
        if not step.last_return_ns:
            return UNKNOWN, UNKNOWN
        if self.requests.pending:
            return step.executor_ns, max(0, update.started_ns - step.last_return_ns)
        # With one batch in flight every gap between the calls is a wait for the device.
        return step.executor_ns, max(0, update.started_ns - step.submit_ns - step.executor_ns)

    def kv_blocks_used(self) -> int:
        """Blocks held by requests, shared ones once; the moment of vLLM's own kv_cache_usage_perc."""
        return self._usable_blocks - int(self._pool.get_num_free_blocks())

    def _repeat(self, update: Update, stream: Stream, seen: list[int]) -> None:
        rows = len(seen)
        context = stream.advance(seen)
        waiting, deferred = self.queue.counts()
        padded, graph = graph_of(update.result)
        key = (rows, len(self.scheduler.running), waiting, deferred, padded, graph)
        if key != self._cold_key:
            self._cold_key = key
            given = {
                "query_tokens": rows,
                "generated_tokens": rows,
                "kv_blocks_cached": UNKNOWN,
                "waiting": waiting,
                "requests": rows,
                "running": key[1],
                "padded_tokens": padded,
                "deferred": deferred,
                "frame": REPEAT,
                "kind": DECODE,
                "base": 1,
                "graph_mode": graph,
            }
            self._cold = pack_cold(*(given.get(name, 0) for name, _ in COLD_FIELDS))
        step = update.step
        executor_ns, wait_ns = self.times(update)
        ended_ns = update.ended_ns
        self.ring.commit(
            step.submit_ns,
            update.started_ns,
            context,
            step.schedule_ns,
            ended_ns - update.started_ns,
            executor_ns,
            wait_ns,
            time.monotonic_ns() - ended_ns,
            self.kv_blocks_used(),
            self._cold,
        )

    def dummy(self, started_ns: int, ended_ns: int) -> None:
        """A data-parallel rank without work ran a forward pass to keep its peers company."""
        waiting, deferred = self.queue.counts()
        given = {"kv_blocks_cached": UNKNOWN, "waiting": waiting, "running": len(self.scheduler.running)}
        given |= {"padded_tokens": UNKNOWN, "deferred": deferred, "frame": REPEAT, "kind": int(StepKind.DUMMY)}
        cold = pack_cold(*(given.get(name, 0) for name, _ in COLD_FIELDS))
        cost_ns = time.monotonic_ns() - ended_ns
        self.ring.commit(
            started_ns, ended_ns, 0, 0, 0, ended_ns - started_ns, UNKNOWN, cost_ns, self.kv_blocks_used(), cold
        )

    def _spin(self, now_ns: int) -> None:
        if not self._spins:
            self._spun_ns = now_ns
        self._spins += 1
        self._spins_in_a_row += 1
        if now_ns - self._spun_ns >= SPIN_REPORT_NS:
            self._report_spins()

    def _report_spins(self) -> None:
        waiting, deferred = self.queue.counts()
        detail = {"spins": self._spins, "first_ns": self._spun_ns, "waiting": waiting, "deferred": deferred}
        self._spins = 0
        self.ring.event("idle_spins", detail)
