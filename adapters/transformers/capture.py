"""One batch processor's steps: what is read at each of its calls, and when a step is committed.

The processor prepares a batch, runs it and takes its output; where it runs ahead of the output two batches are open.
Contexts are read when the scheduler has decided and before they move on, so they are those before the step.
"""

from __future__ import annotations

from collections import deque
from operator import attrgetter, gt
from threading import get_ident
from time import monotonic_ns, perf_counter
from typing import Any

from rooflens.adapters.recorder import Recorder, Step
from rooflens.adapters.transformers import blocks
from rooflens.adapters.transformers.books import Books
from rooflens.records import GraphMode

_generated = attrgetter("generated_tokens")
_position = attrgetter("position_offset")
_query = attrgetter("query_length")


class Open:
    """A step between its schedule and its output; ``rows`` are the scheduler's own, ``states`` their requests."""

    __slots__ = ("executor_ns", "lengths", "rows", "spent_ns", "started_ns", "states", "step", "thrown_out")

    def __init__(self, rows: list[Any], states: list[Any], started_ns: int) -> None:
        self.rows, self.states, self.started_ns = rows, states, started_ns
        self.lengths: tuple[list[int], list[int], list[int]] = ([], [], [])
        self.thrown_out: set[int] = set()
        self.step: Step | None = None
        self.executor_ns = self.spent_ns = 0


class Capture:
    """Reads one batch processor. It belongs to the thread of its generation loop."""

    def __init__(self, processor: Any, recorder: Recorder, key: str) -> None:
        self.processor, self.recorder, self.key = processor, recorder, key
        self.thread = get_ident()
        self.held: list[tuple[Any, str]] = []  # whose methods the hook stands before
        self.books = Books(processor.scheduler)
        self.failures = 0
        self.off = False
        self._most_open = 2 if getattr(processor, "use_async_batching", False) else 1
        self._open: deque[Open] = deque()
        self._chosen: Open | None = None
        self._preparing = False
        self._started_ns = 0
        self._output_ns = self._wait_ns = 0

    def begin(self) -> None:
        """The processor begins to prepare a batch."""
        self._preparing, self._chosen, self._started_ns = True, None, 0

    def deciding(self) -> None:
        """The scheduler is asked; requests may have been waited for before."""
        self._started_ns = self._started_ns or monotonic_ns()

    def decided(self, answer: Any) -> None:
        """The scheduler's answer: a list of rows, alone or first of a tuple; None where there was no room."""
        began_ns = monotonic_ns()
        rows = answer[0] if isinstance(answer, tuple) else answer
        if not rows:
            return
        chosen = Open(rows, [getattr(row, "state", row) for row in rows], self._started_ns)
        states, prefill = chosen.states, []
        contexts = list(map(_position, states))
        queries = _queries(rows, states)
        # Of requests that all have tokens, none new and none computed again: nothing to account for.
        if self.books.computes_again or not all(map(_generated, states)):
            account = self.books.scheduled
            for place, (state, before, query) in enumerate(zip(states, contexts, queries, strict=True)):
                if account(state, before, query) or before < len(state.initial_tokens):
                    prefill.append(place)
        chosen.lengths = (contexts, queries, prefill)
        self._chosen = chosen
        chosen.spent_ns = monotonic_ns() - began_ns

    def left(self, name: str) -> None:
        """The scheduler lets a request go: thrown out while a batch is prepared, ended at any other time."""
        if not self._preparing:
            self.books.ended(name)
            return
        after, rows = 0, []
        state = self.books.known.get(name)
        for opened in self._open:
            for place, other in enumerate(opened.states):
                if other is state:
                    rows.append((opened, place))
                    after = opened.lengths[0][place] + opened.lengths[1][place]
        if self.books.thrown_out(name, after) is not None:
            for opened, place in rows:
                opened.thrown_out.add(place)

    def cancelling(self) -> None:
        """The scheduler is about to let go of the requests that were called off."""
        scheduler = self.processor.scheduler
        for name in tuple(scheduler._requests_to_cancel):
            self.books.cancelled(name)

    def prepared(self, ready: bool) -> None:
        """A batch is ready to run, or there is none."""
        self._preparing = False
        chosen, self._chosen = self._chosen or Open([], [], 0), None
        if not ready:
            return
        while len(self._open) >= self._most_open:  # a step whose output never came
            self._drop(self._open.popleft())
        self._open.append(chosen)  # even where it could not be read: outputs come in the order of batches
        if chosen.rows:
            self._submit(chosen)

    def _submit(self, chosen: Open) -> None:
        submit_ns = monotonic_ns()
        contexts, queries, prefill = chosen.lengths
        if chosen.states[0].position_offset != contexts[0] + queries[0]:
            raise RuntimeError("a request's position did not move on by what it computes: lengths would be wrong")
        facts = self._facts() | self.books.take()
        facts["schedule_s"] = max(0, submit_ns - chosen.started_ns - chosen.spent_ns) / 1e9
        plain = queries.count(1) == len(queries)
        step = self.recorder.step(contexts, None if plain else queries, prefill=prefill, **facts)
        self.recorder.begin(step)
        step.spent_ns = chosen.spent_ns + monotonic_ns() - submit_ns
        chosen.step = step

    def _facts(self) -> dict[str, Any]:
        scheduler = self.processor.scheduler
        used, kept = blocks.held(self.processor.cache)
        waiting = scheduler.waiting_requests
        facts: dict[str, Any] = {
            "running": len(scheduler.active_requests),
            "waiting": len(waiting),
            "deferred": 0,  # nothing waits for anything but room
            "kv_blocks_used": used,
            "kv_blocks_cached": kept,
        }
        if waiting:  # the first to come is the oldest, apart from those that were thrown out
            facts["oldest_wait_s"] = max(0.0, perf_counter() - next(iter(waiting.values())).created_time)
        facts |= _launch(self.processor)
        return facts

    def ran(self, began_ns: int) -> None:
        """The forward pass was handed to the device, and on the host's own processor it is done."""
        if self._open:
            self._open[-1].executor_ns += monotonic_ns() - began_ns

    def updating(self) -> list[int]:
        """The output of the oldest open step is asked for; tokens that each of its requests has so far."""
        self._output_ns = self._wait_ns = 0
        return list(map(len, map(_generated, self._open[0].states))) if self._open else []

    def came(self, began_ns: int) -> None:
        """The output is on the host."""
        self._output_ns = monotonic_ns()
        self._wait_ns = self._output_ns - began_ns

    def updated(self, had: list[int] | None) -> None:
        """The requests have their tokens: the oldest open step is done; ``had`` is what updating said."""
        if not self._open:
            return
        opened = self._open.popleft()
        try:
            if had is None:
                raise RuntimeError("it is not known what the requests had before")
            self._commit(opened, had)
        except Exception:
            self._drop(opened)
            raise

    def _commit(self, opened: Open, had: list[int]) -> None:
        step = opened.step
        if step is None:
            return
        began_ns = monotonic_ns()
        # A row makes one token at most; a request that ends may be given what it had before it was reset as well.
        grew = list(map(gt, map(len, map(_generated, opened.states)), had))
        generated = sum(grew)
        if generated < len(grew):
            self._discard(opened, grew)
        step.output_ns = self._output_ns
        step.generated_tokens = generated
        step.note(executor_s=opened.executor_ns / 1e9, wait_s=self._wait_ns / 1e9)
        for name, count in self.books.take().items():
            step.facts[name] = step.facts.get(name, 0) + count
        step.spent_ns += monotonic_ns() - began_ns
        opened.step = None
        self.recorder.end(step, failed=False)

    def _discard(self, opened: Open, grew: list[bool]) -> None:
        """Tokens computed for requests that had ended meanwhile: of an engine that runs ahead of the output."""
        for place, (row, state) in enumerate(zip(opened.rows, opened.states, strict=True)):
            gone = state.request_id not in self.books.known and place not in opened.thrown_out
            if gone and not grew[place] and state.generated_tokens and getattr(row, "has_new_token", True):
                self.books.terms["discarded_tokens"] += opened.lengths[1][place]

    def _drop(self, opened: Open) -> None:
        step, opened.step = opened.step, None
        if step is not None:
            self.recorder.end(step, failed=True)

    def switch_off(self) -> None:
        """Read nothing any more; the recording says that it ended."""
        self.off = True
        self.end()
        self.recorder.close()

    def end(self) -> None:
        """The loop is over: what is open will not come back."""
        while self._open:
            self._drop(self._open.popleft())


def _queries(rows: list[Any], states: list[Any]) -> list[int]:
    """Tokens that each row computes; before 5.6 rows do not say it."""
    if hasattr(rows[0], "query_length"):
        return list(map(_query, rows))
    return [len(state.tokens_to_process) for state in states]


def _launch(processor: Any) -> dict[str, Any]:
    """How the forward pass is launched, as far as this release says (5.9 and newer)."""
    runner = getattr(processor, "model_runner", None)
    if runner is None:
        return {}
    io = processor.inputs_and_outputs
    pairs = getattr(io, "io_pairs", None)
    host = io if pairs is None else pairs[io.current_pair].host_io
    graphs = runner.use_cuda_graph_decode if host.use_block_table else runner.use_cuda_graph_varlen
    facts: dict[str, Any] = {"graph_mode": int(GraphMode.FULL if graphs else GraphMode.EAGER)}
    if runner.pad_inputs:
        facts["padded_tokens"] = host.num_q_tokens
    return facts
