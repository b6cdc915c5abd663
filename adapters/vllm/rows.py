"""Which requests are prefilling, were preempted or ended while in flight: what the scheduler's output does not say."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rooflens.ring import EXTRA_FIELDS, UNKNOWN

# Where each of EXTRA_FIELDS stands in a step's list of them; the ages are unknown until the queue was scanned.
EXTRA = {name: place for place, name in enumerate(EXTRA_FIELDS)}
NO_EXTRAS = [UNKNOWN if name.endswith("_wait_us") else 0 for name in EXTRA_FIELDS]


class Prefill:
    """A request on its way through its prompt, or again through what a preemption threw away; in tokens.

    ``target`` is how much was known of it when it was scheduled, ``high`` how much had been computed before.
    """

    __slots__ = ("computed", "high", "target")

    def __init__(self, computed: int, target: int, high: int) -> None:
        self.computed = computed
        self.target = target
        self.high = high


class Row:
    """One prefilling row of one step; ``last`` says that the prompt is complete after it."""

    __slots__ = ("context", "last", "query", "recomputed", "request", "resumed")

    def __init__(self, request: str, context: int, query: int, state: Prefill) -> None:
        after = context + query
        self.request = request
        self.context = context
        self.query = query
        self.last = after >= state.target
        self.resumed = state.high > 0
        self.recomputed = max(0, min(after, state.high) - context) if state.high else 0


class Pending:
    """A step between schedule and update.

    What most steps do not have stands on the class, so that a plain step costs three assignments. ``plain`` is taken
    away by whatever makes the step more than one token for each request of the step before. ``sampled`` are the
    tokens sampled a row, in the result's order, before stop handling; None without drafts.
    """

    executor_ns = 0
    last_return_ns = 0
    preempted = 0
    plain = False
    tainted = False
    rows: Sequence[Row] = ()
    extras: list[int] | None = None
    corrections: dict[str, int] | None = None
    discarded: Sequence[str] = ()
    stale: frozenset[str] = frozenset()
    sampled: list[int] | None = None

    def __init__(self, output: Any, submit_ns: int, schedule_ns: int) -> None:
        self.output = output
        self.submit_ns = submit_ns
        self.schedule_ns = schedule_ns


def external_hits(scheduler: Any, request: Any, hits: int) -> int | None:
    """How many of the prompt tokens found at first schedule a KV connector brought; None if vLLM does not say."""
    if not hits or getattr(scheduler, "connector", None) is None:
        return 0
    stats = getattr(request, "prefill_stats", None)
    if stats is not None:
        return max(0, hits - int(stats.num_local_cached_tokens))
    external = getattr(request, "num_external_computed_tokens", None)
    return None if external is None else min(hits, int(external))


class Requests:
    """Follows the few requests whose history matters; everything else stays in the scheduler."""

    def __init__(self, scheduler: Any, calm: bool) -> None:
        """``calm`` says that steps of this scheduler may be plain; it is taken away while something is to be told."""
        self._scheduler = scheduler
        self._may_be_calm = self.calm = calm
        self.prefilling: dict[str, Prefill] = {}
        # For each preempted request: computed when it was preempted (less what is rejected later), and ever before.
        self.preempted: dict[str, tuple[int, int]] = {}
        self.sessions: dict[str, int] = {}
        self.special: dict[str, list[int]] = {}
        self.pending: deque[Pending] = deque()
        self.left: list[str] = []
        self.busy = False  # somebody prefills or was just preempted: the next step is not plain
        self.resync = False  # steps were missed: how far each prompt has come must be looked up again
        self.preempted_now = 0
        self.unprefilled_tokens = 0
        self.finished = 0

    def _in_flight(self, request: str) -> Iterator[Pending]:
        return (step for step in self.pending if request in step.output.num_scheduled_tokens)

    def take(self, output: Any) -> Pending | None:
        """The step that ``output`` belongs to, no longer pending; None if it was never seen."""
        pending = self.pending
        while pending and pending[0].output is not output and not pending[0].output.total_num_scheduled_tokens:
            pending.popleft()  # up to vLLM 0.10.0 a batch queue forgets an empty step
        if pending and pending[0].output is output:
            return pending.popleft()
        for step in pending:
            if step.output is output:
                pending.remove(step)
                return step
        return None

    def on_preempt(self, request: Any) -> None:
        """Before the scheduler preempts: what was computed will be computed again."""
        name = request.request_id
        state = self.prefilling.pop(name, None)
        self.preempted[name] = (request.num_computed_tokens, state.high if state else 0)
        self.preempted_now += 1
        self.busy = True
        self.left.append(name)
        for step in self._in_flight(name):
            step.stale |= {name}
            step.plain = False

    def on_end(self, request: Any) -> None:
        """Before the scheduler frees a request that ended."""
        name = request.request_id
        lost = self._discard(name, ended=True)
        self.finished += 1
        self.calm = False
        self.left.append(name)
        if self.special:
            self.special.pop(name, None)
        if self.sessions:
            self.sessions.pop(name, None)
        if not (lost or self.prefilling or self.preempted):
            return
        state = self.prefilling.pop(name, None)
        high = self.preempted.pop(name, None)
        if lost or state is not None or high is not None:
            computed = (state.computed if state else request.num_computed_tokens) - lost
            rows = (row for step in self._in_flight(name) for row in step.rows or () if row.request == name)
            again = (row.context + row.recomputed for row in rows if row.recomputed)
            done = max(computed, state.high if state else 0, *(high or (0,)), *again)
            self.unprefilled_tokens += max(0, request.num_prompt_tokens - done)

    def on_park(self, request: Any) -> None:
        """After a streaming-input request gave its answer and waits for more input."""
        self._discard(request.request_id, ended=False)
        self.sessions[request.request_id] = int(request.num_computed_tokens)

    def _discard(self, name: str, ended: bool) -> int:
        lost = 0
        for step in self._in_flight(name):
            if name in step.stale and not ended:
                continue
            step.discarded = [*step.discarded, name]
            step.plain = False
            lost += step.output.num_scheduled_tokens[name]
        return lost

    def on_schedule(self, step: Pending, resumed: list[str]) -> None:
        """Classify the rows of a step that are prefilling; ``resumed`` came back through the cached requests."""
        output = step.output
        requests = self._scheduler.requests
        if output.scheduled_new_reqs:
            step.extras = self._first_scheduled(output.scheduled_new_reqs)
        cached = output.scheduled_cached_reqs
        for name in resumed:
            computed = cached.num_computed_tokens[cached.req_ids.index(name)]
            self._admit(name, computed, requests[name].num_tokens)
        if getattr(self._scheduler, "connector", None) is not None:
            self._rolled_back(output)
        if self.resync:
            self._resynchronise(dict(zip(cached.req_ids, cached.num_computed_tokens, strict=True)))
        scheduled = output.num_scheduled_tokens
        rows: list[Row] = []
        for name, state in self.prefilling.items():
            query = scheduled.get(name)
            if query is not None:
                rows.append(Row(name, state.computed, query, state))
                state.computed += query
        for row in rows:
            if row.last:
                del self.prefilling[row.request]
        step.rows = rows
        self.busy = bool(self.prefilling)

    def gone(self, scheduled: Mapping[str, int]) -> list[str]:
        """Who ended or was preempted and is not in this step any more; who still is, in flight, is left for later."""
        if not self.left:
            return []
        gone = [name for name in self.left if name not in scheduled]
        self.left = [name for name in self.left if name in scheduled] if len(gone) < len(self.left) else []
        return gone

    def told(self) -> None:
        """Everything counted so far was written."""
        self.finished = self.unprefilled_tokens = 0
        self.calm = self._may_be_calm and not self.special

    def take_preempted(self) -> int:
        """How many requests were preempted since the last call."""
        count, self.preempted_now = self.preempted_now, 0
        self.busy = bool(self.prefilling)
        return count

    def _admit(self, name: str, computed: int, known: int) -> None:
        self.prefilling[name] = Prefill(computed, known, min(known, max(self.preempted.pop(name, (0,)))))

    def _resynchronise(self, computed: Mapping[str, int]) -> None:
        for name, state in list(self.prefilling.items()):
            if name in computed:
                state.computed = computed[name]
                if state.computed >= state.target:
                    del self.prefilling[name]
        self.resync = not self.prefilling.keys() <= computed.keys()

    def _rolled_back(self, output: Any) -> None:
        """A KV transfer that failed takes back tokens that counted as computed: they are computed again."""
        cached = output.scheduled_cached_reqs
        drafts = output.scheduled_spec_decode_tokens
        for name, seen in zip(cached.req_ids, cached.num_computed_tokens, strict=True):
            state = self.prefilling.get(name)
            if state is not None:
                if seen < state.computed:
                    state.high = max(state.high, state.computed)
                    state.computed = seen
            elif output.num_scheduled_tokens[name] > 1 + len(drafts.get(name, ())):
                known = self._scheduler.requests[name].num_tokens
                self.prefilling[name] = Prefill(seen, known, known)  # its last output was thrown away too

    def _first_scheduled(self, new_requests: list[Any]) -> list[int]:
        prompt = count = local = external = 0
        external_known = True
        for new in new_requests:
            name, hits = new.req_id, new.num_computed_tokens
            request = self._scheduler.requests[name]
            if name in self.sessions:  # more input for a request whose answer is in the cache already
                del self.sessions[name]
                count += 1
                prompt += request.num_tokens - hits
            elif name not in self.preempted:
                count += 1
                prompt += request.num_prompt_tokens
                if hits:
                    brought = external_hits(self._scheduler, request, hits)
                    external_known &= brought is not None
                    external += brought or 0
                    local += hits - (brought or 0)
                self._note_special(name, request, new)
            self._admit(name, hits, request.num_tokens)
        extras = NO_EXTRAS.copy()
        extras[EXTRA["prompt_tokens"]] = prompt
        extras[EXTRA["new_requests"]] = count
        extras[EXTRA["prefix_hit_local_tokens"]] = local if external_known else UNKNOWN
        extras[EXTRA["prefix_hit_external_tokens"]] = external if external_known else UNKNOWN
        return extras

    def _note_special(self, name: str, request: Any, new: Any) -> None:
        marks = []
        if getattr(request, "use_structured_output", False):
            marks.append(EXTRA["structured_rows"])
        if new.lora_request is not None:
            marks.append(EXTRA["lora_rows"])
        if getattr(new.sampling_params, "prompt_logprobs", None) is not None:
            marks.append(EXTRA["prompt_logprob_rows"])
        if marks:
            self.special[name] = marks
            self.calm = False
