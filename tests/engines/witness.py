"""The engine's own account of its steps, from its Request objects and outputs alone: what the ring must agree with."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Row:
    """One request in one step, in tokens; ``after`` is None where the request was gone or preempted meanwhile."""

    name: str
    seen: int
    query: int
    drafts: int
    preemptions: int
    before: int = 0
    after: int | None = None


@dataclass
class Step:
    """One scheduled step."""

    output: Any
    rows: list[Row]
    corrections: Counter[str] = field(default_factory=Counter)


class Witness:
    """Stands outside the hook around one scheduler and keeps its books."""

    def __init__(self, scheduler: Any) -> None:
        self.scheduler = scheduler
        self.requests: dict[str, Any] = {}
        self.terms: Counter[str] = Counter()
        self.steps: list[list[Row]] = []
        self.kv_used: list[int] = []
        self.queues: list[tuple[int, int]] = []
        self.decisions: list[Any] = []
        self.external: dict[str, int] = {}
        self._preempted: Counter[str] = Counter()  # before vLLM 0.11 requests do not count it themselves
        self._thrown_out: set[str] = set()
        self._pending: deque[Step] = deque()
        self._high: dict[str, int] = {}
        self._thrown_back: Counter[str] = Counter()
        self._generated: Counter[str] = Counter()
        self._schedule, self._update = scheduler.schedule, scheduler.update_from_output
        scheduler.schedule, scheduler.update_from_output = self.schedule, self.update

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        """schedule(), and what it decided."""
        self.requests |= self.scheduler.requests
        output = self._schedule(*args, **kwargs)
        out = {name for name, request in self.requests.items() if request.status.name == "PREEMPTED"}
        self._preempted.update(out - self._thrown_out)
        self._thrown_out = out
        cached = output.scheduled_cached_reqs
        seen = dict(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
        order = [*cached.req_ids, *(new.req_id for new in output.scheduled_new_reqs)]
        for new in output.scheduled_new_reqs:
            request = self.requests[new.req_id]
            seen[new.req_id] = new.num_computed_tokens
            if new.req_id not in self._high:
                external = self.external.get(new.req_id, 0)
                external = min(external, new.num_computed_tokens)
                self.terms["prompt"] += request.num_prompt_tokens
                self.terms["hits_external"] += external
                self.terms["hits_local"] += new.num_computed_tokens - external
                self._high[new.req_id] = new.num_computed_tokens
        drafts = output.scheduled_spec_decode_tokens
        rows = [
            Row(n, seen[n], output.num_scheduled_tokens[n], len(drafts.get(n, ())), self.preemptions(self.requests[n]))
            for n in order
        ]
        decided = [(row.name, row.query, row.seen) for row in rows]
        self.decisions.append((decided, list(output.num_scheduled_tokens), sorted(output.finished_req_ids)))
        self._pending.append(Step(output, rows))
        return output

    def preemptions(self, request: Any) -> int:
        """How often a request was preempted so far."""
        return int(getattr(request, "num_preemptions", self._preempted[request.request_id]))

    def _gone(self, name: str) -> bool:
        request = self.scheduler.requests.get(name)
        return request is None or request.is_finished()

    def update(self, output: Any, result: Any) -> Any:
        """update_from_output(), and what became of the requests."""
        step = next(step for step in self._pending if step.output is output)
        self._pending.remove(step)
        gone = {row.name for row in step.rows if self._gone(row.name)}
        tokens = result.sampled_token_ids  # empty if the model pools
        sampled = {name: len(tokens[at]) if len(tokens) else 0 for name, at in result.req_id_to_index.items()}
        outputs = self._update(output, result)
        if not step.rows:
            self.terms["zero_steps"] += 1
            return outputs
        emitted: Counter[str] = Counter()
        for batch in outputs.values():
            for one in batch.outputs:
                emitted[one.request_id] += len(one.new_token_ids)
        self._generated += emitted
        self.terms["generated"] += sum(emitted.values())
        self.terms["query"] += output.total_num_scheduled_tokens
        for row in step.rows:
            self._settle(step, row, sampled.get(row.name, 0), emitted[row.name], row.name in gone)
        self.steps.append(step.rows)
        manager = self.scheduler.kv_cache_manager
        self.kv_used.append(manager.block_pool.num_gpu_blocks - 1 - manager.block_pool.get_num_free_blocks())
        stats = self.scheduler.make_stats()
        if stats is not None:
            self.queues.append((stats.num_running_reqs, stats.num_waiting_reqs))
        return outputs

    def _settle(self, step: Step, row: Row, sampled: int, emitted: int, gone: bool) -> None:
        name = row.name
        row.before = row.seen - step.corrections[name]
        if gone:
            self.terms["discarded"] += row.query
            return
        request = self.requests[name]
        stale = self.preemptions(request) != row.preemptions
        rejected = row.drafts + 1 - sampled if row.drafts and sampled else 0
        after = row.before + row.query - rejected
        self.terms["rejected"] += rejected
        self.terms["drafted"] += row.drafts if sampled else 0
        if stale and sampled and not emitted:  # thrown away: computed again in a known place, or for nothing
            self.terms["discarded"] += sampled - (row.before < request.num_tokens)
            after = min(after, request.num_tokens)
        elif row.drafts:
            self.terms["discarded"] += max(0, sampled - emitted)
        high = self._high[name]
        self.terms["recomputed"] += max(0, min(row.before + row.query, high) - row.before)
        self._high[name] = max(high, after)
        if sampled and not emitted and getattr(self.scheduler, "connector", None) is not None:
            self._thrown_back.update({name: len(self._pending)})  # by a failed KV transfer, like its steps in flight
        elif self._thrown_back[name] > 0:
            self._thrown_back[name] -= 1
        elif not stale:
            self._compare(step, row, rejected, after)

    def _compare(self, step: Step, row: Row, rejected: int, after: int) -> None:
        name, request = row.name, self.requests[row.name]
        later = [other for step_ in self._pending for other in step_.rows if other.name == name]
        for step_ in self._pending:
            if any(other.name == name and other.preemptions == row.preemptions for other in step_.rows):
                step_.corrections[name] += rejected
        if not request.is_finished():
            in_flight = sum(other.query for other in later if other.preemptions == row.preemptions)
            row.after = request.num_computed_tokens - in_flight
            assert row.after == after, f"the witness itself is wrong about {name}: {row} {after}"

    def close(self) -> Counter[str]:
        """The terms of the identity, once everything has ended."""
        self.terms["first_tokens"] = sum(1 for count in self._generated.values() if count)
        self.terms["unprefilled"] = sum(
            max(0, self.requests[name].num_prompt_tokens - high) for name, high in self._high.items()
        )
        self.terms["preempted"] = sum(self.preemptions(request) for request in self.requests.values())
        return self.terms


def identity_gap(terms: Counter[str]) -> int:
    """What the exact identity of a run leaves over; 0 if the books are right."""
    made = terms["prompt"] - terms["unprefilled"] - terms["hits_local"] - terms["hits_external"]
    made += terms["generated"] - terms["first_tokens"]
    return terms["query"] - made - terms["recomputed"] - terms["rejected"] - terms["discarded"]
