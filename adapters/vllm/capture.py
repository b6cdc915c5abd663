"""One scheduler's steps into its ring: stamped at schedule, committed at update."""

from __future__ import annotations

from time import monotonic_ns
from typing import Any

from rooflens.adapters.vllm.frame import KEYFRAME_NS, StreamTable
from rooflens.adapters.vllm.queue import WaitingQueue
from rooflens.adapters.vllm.rows import Pending, Requests
from rooflens.adapters.vllm.write import graph_of, write_full
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
        self.queue = WaitingQueue(scheduler)
        self.pooling = getattr(scheduler.vllm_config.model_config, "runner_type", "") == "pooling"
        self.connected = getattr(scheduler, "connector", None) is not None
        self.first_come = str(getattr(scheduler.vllm_config.scheduler_config, "policy", "fcfs")).endswith("fcfs")
        self.requests = Requests(scheduler, calm=not (self.pooling or self.connected))
        self.pending = self.requests.pending
        self.off = False
        self.inside = self.telling = False
        self.tainted_steps = 0
        self.failures = 0
        self.streams = StreamTable(getattr(scheduler.vllm_config.parallel_config, "pipeline_parallel_size", 1))
        self._pool = scheduler.kv_cache_manager.block_pool
        # One block is vLLM's null block and never holds anything.
        self._usable_blocks = int(self._pool.num_gpu_blocks) - 1
        # What get_num_free_blocks() returns, a call less; looked for because it is not part of any interface.
        free = getattr(self._pool, "free_block_queue", None)
        self._free_queue = free if hasattr(free, "num_free_blocks") else None
        self._ordinal = 0
        self._cold_key: tuple[Any, ...] = ()
        self._cold = b""
        self._spins = self._spins_in_a_row = self._spun_ns = 0

    def scheduled(self, output: Any, started_ns: int) -> None:
        """After schedule() returned ``output``."""
        now = monotonic_ns()
        step = Pending(output, now, now - started_ns)
        self.pending.append(step)
        cached = output.scheduled_cached_reqs
        rows = len(cached.req_ids)
        total = output.total_num_scheduled_tokens
        follow = self.requests
        resumed = getattr(cached, "resumed_req_ids", None)
        if resumed is None:
            resumed = _flagged(cached)
        if total == rows and total and not (resumed or follow.busy or output.scheduled_encoder_inputs):
            step.plain = True  # every cached request has at least one token, so none has more and nobody is new
        elif total:
            if self.tainted_steps:
                self.tainted_steps -= 1
                step.tainted = True
            if follow.preempted_now:
                step.preempted = follow.take_preempted()
            if output.scheduled_new_reqs or resumed or follow.prefilling or (total > rows and self.connected):
                follow.on_schedule(step, list(resumed))
            else:
                follow.busy = False  # who was prefilling has ended
        else:
            self._drop_forgotten()
            return
        self._ordinal = ordinal = self._ordinal + 1
        self.ring.stamp(ordinal, now, total, rows)

    def lose_track(self) -> None:
        """A failure of ours: what is in flight is not told, and what follows begins with a keyframe.

        Steps scheduled before those in flight have come back may have seen drafts whose rejection nobody recorded.
        """
        self.tainted_steps = len(self.pending) + 1
        self.pending.clear()
        self.streams.forget()
        self.requests.resync = self.requests.busy = True

    def _drop_forgotten(self) -> None:
        if len(self.pending) > MOST_PENDING and not self.pending[0].output.total_num_scheduled_tokens:
            self.pending.popleft()

    def before_update(self, output: Any, result: Any) -> Pending | None:
        """Read what update_from_output() will overwrite; None for a step that was never seen scheduled."""
        step = self.requests.take(output)
        if step is not None and output.scheduled_spec_decode_tokens:
            step.sampled = list(map(len, result.sampled_token_ids))
        return step

    def updated(self, step: Pending, result: Any, outputs: Any, started_ns: int, ended_ns: int) -> None:
        """After update_from_output() returned ``outputs``."""
        output = step.output
        if self._spins:
            self._end_of_spins()
        stream = self.streams.latest
        cached = output.scheduled_cached_reqs
        if not (
            step.plain
            and stream is not None
            and stream.steady
            and self.requests.calm
            and started_ns - stream.keyed_ns < KEYFRAME_NS
            and stream.ids == cached.req_ids
        ):
            if output.total_num_scheduled_tokens:
                write_full(self, step, result, outputs, started_ns, ended_ns)
            else:
                self._spin(ended_ns)
            return
        waiting, deferred = self.queue.counts()
        if waiting and started_ns >= self.queue.next_scan_ns:
            write_full(self, step, result, outputs, started_ns, ended_ns)
            return
        # A decode step like the one before, one token a request: only the first half of the slot is new.
        seen = cached.num_computed_tokens
        key = (len(seen), len(self.scheduler.running), waiting, deferred, getattr(result, "cudagraph_stats", None))
        if key != self._cold_key:
            self._cold_key, self._cold = key, _plain_cold(*key[:4], *graph_of(result))
        executor_ns, wait_ns = self.times(step, started_ns) if step.last_return_ns else (UNKNOWN, UNKNOWN)
        free = self._free_queue
        self.ring.commit(
            step.submit_ns,
            started_ns,
            stream.advance(seen),
            step.schedule_ns,
            ended_ns - started_ns,
            executor_ns,
            wait_ns,
            monotonic_ns() - ended_ns,
            self.kv_blocks_used() if free is None else self._usable_blocks - free.num_free_blocks,
            self._cold,
        )

    def times(self, step: Pending, started_ns: int) -> tuple[int, int]:
        """(time inside the executor's calls, wait for the output), nanoseconds or unknown."""
        if not step.last_return_ns:
            return UNKNOWN, UNKNOWN
        if self.requests.pending:
            return step.executor_ns, max(0, started_ns - step.last_return_ns)
        # With one batch in flight every gap between the calls is a wait for the device.
        return step.executor_ns, max(0, started_ns - step.submit_ns - step.executor_ns)

    def kv_blocks_used(self) -> int:
        """Blocks held by requests, shared ones once; the moment of vLLM's own kv_cache_usage_perc."""
        free = self._free_queue
        free_blocks: int = self._pool.get_num_free_blocks() if free is None else free.num_free_blocks
        return self._usable_blocks - free_blocks

    def dummy(self, started_ns: int, ended_ns: int) -> None:
        """A data-parallel rank without work ran a forward pass to keep its peers company."""
        waiting, deferred = self.queue.counts()
        given = {"kv_blocks_cached": UNKNOWN, "waiting": waiting, "running": len(self.scheduler.running)}
        given |= {"padded_tokens": UNKNOWN, "deferred": deferred, "frame": REPEAT, "kind": int(StepKind.DUMMY)}
        cold = pack_cold(*(given.get(name, 0) for name, _ in COLD_FIELDS))
        cost_ns = monotonic_ns() - ended_ns
        self.ring.commit(
            started_ns, ended_ns, 0, 0, 0, ended_ns - started_ns, UNKNOWN, cost_ns, self.kv_blocks_used(), cold
        )

    def _spin(self, now_ns: int) -> None:
        if not self._spins:
            self._spun_ns = now_ns
        self._spins += 1
        self._spins_in_a_row += 1
        if not self.scheduler.running:
            self.tell_ended()
        if now_ns - self._spun_ns >= SPIN_REPORT_NS:
            self._report_spins()

    def tell_ended(self) -> None:
        """Requests that ended after the last step that computed anything: no later step may come to tell of them."""
        follow = self.requests
        if follow.finished or follow.unprefilled_tokens:
            ended = {"finished_requests": follow.finished, "unprefilled_tokens": follow.unprefilled_tokens}
            follow.told()
            self.ring.event("requests_ended", ended)

    def _end_of_spins(self) -> None:
        if self._spins_in_a_row >= SPINS_TOLD:
            self._report_spins()
        self._spins_in_a_row = 0

    def _report_spins(self) -> None:
        waiting, deferred = self.queue.counts()
        detail = {"spins": self._spins, "first_ns": self._spun_ns, "waiting": waiting, "deferred": deferred}
        self._spins = 0
        self.ring.event("idle_spins", detail)


def _flagged(cached: Any) -> list[str]:
    """Who came back after a preemption, as vLLM said it before 0.11."""
    flags = cached.resumed_from_preemption
    return [name for name, flag in zip(cached.req_ids, flags, strict=True) if flag] if any(flags) else []


def _plain_cold(rows: int, running: int, waiting: int, deferred: int, padded: int, graph: int) -> bytes:
    """The slower-changing half of a plain decode step's slot."""
    given = {
        "query_tokens": rows,
        "generated_tokens": rows,
        "kv_blocks_cached": UNKNOWN,
        "waiting": waiting,
        "requests": rows,
        "running": running,
        "padded_tokens": padded,
        "deferred": deferred,
        "frame": REPEAT,
        "kind": DECODE,
        "base": 1,
        "graph_mode": graph,
    }
    return pack_cold(*(given.get(name, 0) for name, _ in COLD_FIELDS))
