"""A step in which something changed, written whole: as an edit of an earlier frame, or as a keyframe."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rooflens.adapters.frames import Payload, removals
from rooflens.adapters.vllm.frame import Stream
from rooflens.adapters.vllm.rows import Pending, Row
from rooflens.records import GraphMode, StepKind
from rooflens.ring import COLD_FIELDS, CONTEXT_DOUBTED, EDIT, EXTRA_FIELDS, KEY, RECOMPUTE, UNKNOWN
from rooflens.ring_writer import pack_cold

if TYPE_CHECKING:
    from rooflens.adapters.vllm.capture import Capture

EXTRA_DEFAULTS = {"oldest_wait_us": UNKNOWN, "summed_wait_us": UNKNOWN}
FARTHEST_BASE = 15  # a reader keeps this many frames


_GRAPHS = {"NONE": GraphMode.EAGER, "PIECEWISE": GraphMode.PIECEWISE, "FULL": GraphMode.FULL}


def graph_of(result: Any) -> tuple[int, int]:
    """(tokens after padding, GraphMode) where the engine reports them, else unknown."""
    stats = getattr(result, "cudagraph_stats", None)
    if stats is None:
        return UNKNOWN, 0
    mode = _GRAPHS.get(str(getattr(stats, "runtime_mode", "")).rsplit(".", 1)[-1], GraphMode.UNKNOWN)
    return int(stats.num_padded_tokens), int(mode)


@dataclass(slots=True)
class Update:
    """One call of update_from_output: the step, its result, and what the call was about to overwrite.

    ``sampled`` are the tokens sampled a row, in the result's order, before stop handling; None without drafts.
    """

    step: Pending
    result: Any
    started_ns: int
    sampled: list[int] | None
    ended_ns: int = 0
    outputs: Any = None


def before_update(capture: Capture, output: Any, result: Any, started_ns: int) -> Update | None:
    """Read what update_from_output() will overwrite; None for a step that was never seen scheduled."""
    step = capture.requests.take(output)
    if step is None:
        return None
    sampled = list(map(len, result.sampled_token_ids)) if output.scheduled_spec_decode_tokens else None
    return Update(step, result, started_ns, sampled)


def write_full(capture: Capture, update: Update) -> None:
    """Commit a step with everything that changed since the frame it goes on from."""
    step = update.step
    output = step.output
    cached = output.scheduled_cached_reqs
    new_ids = [new.req_id for new in output.scheduled_new_reqs]
    ids = cached.req_ids + new_ids if new_ids else cached.req_ids
    stream = Stream(ids, cached.num_computed_tokens, [new.num_computed_tokens for new in output.scheduled_new_reqs])
    stream.corrections = step.corrections or {}
    prefill = _prefill_rows(stream, step)
    _verify(capture, update, stream)
    context = sum(stream.seen) + sum(stream.new_contexts) - sum(stream.corrections.values())
    rejected = sum(stream.rejected)
    stream.next_context = context + output.total_num_scheduled_tokens - rejected
    stream.number = capture.streams.step_number()
    stream.steady = all(row.last for row in step.rows or ())

    payload = Payload()
    base = capture.streams.base_for(ids)
    frame, distance, doubted = _lengths(payload, stream, base, context, update.started_ns)
    doubted = doubted and not any(row.resumed for row in step.rows or ())
    payload.prefill([row for row, _ in prefill], [stream.queries[row] for row, _ in prefill])
    payload.drafts(stream.drafts, stream.rejected)
    generated, cut = _generated(capture, update, stream)
    extras = _extras(capture, update, cut, stream.unjudged)
    if extras:
        payload.extras([extras.get(name, EXTRA_DEFAULTS.get(name, 0)) for name in EXTRA_FIELDS])
    if frame == KEY:
        payload.anchor(time.time_ns(), time.monotonic_ns())
    capture.streams.keep(stream, base, len(capture.requests.pending) + 1)
    recomputed = any(row.recomputed for row in step.rows or ())
    flags = (RECOMPUTE if recomputed else 0) | (CONTEXT_DOUBTED if doubted else 0)
    cold = _cold(capture, update, stream, prefill, generated, (frame, distance, flags, payload.sections))
    executor_ns, wait_ns = capture.times(update)
    capture.ring.commit(
        step.submit_ns,
        update.started_ns,
        max(0, context),
        step.schedule_ns,
        update.ended_ns - update.started_ns,
        executor_ns,
        wait_ns,
        time.monotonic_ns() - update.ended_ns,
        capture.kv_blocks_used(),
        cold,
        payload.tobytes(),
    )


def _prefill_rows(stream: Stream, step: Pending) -> list[tuple[int, Row]]:
    """The prefilling rows with their positions; also enters every query that is not 1 + drafts in the stream."""
    drafts = step.output.scheduled_spec_decode_tokens
    found: list[tuple[int, Row]] = []
    size = len(stream.ids)
    backwards = stream.ids[::-1] if step.rows else []  # who came last is who prefills
    for row in step.rows or ():
        drafted = len(drafts.get(row.request, ())) if drafts else 0
        if row.resumed and row.query - drafted <= 1:
            continue
        position = size - 1 - backwards.index(row.request)
        stream.queries[position] = row.query
        found.append((position, row))
    found.sort(key=lambda pair: pair[0])
    return found


def _verify(capture: Capture, update: Update, stream: Stream) -> None:
    """Drafts and rejections by row; rejections also correct what later steps in flight have seen."""
    step = update.step
    drafts = step.output.scheduled_spec_decode_tokens
    if not drafts:
        return
    sampled = update.sampled or []
    place = update.result.req_id_to_index
    ended = set(step.discarded or ())
    stream.drafts = [len(drafts.get(name, ())) for name in stream.ids]
    stream.rejected = [0] * len(stream.drafts)
    for row, drafted in enumerate(stream.drafts):
        name = stream.ids[row]
        if not drafted:
            continue
        tokens = 0 if name in ended else sampled[place[name]]
        if not tokens:
            stream.unjudged += drafted
            continue
        if tokens > drafted:
            continue
        rejected = drafted + 1 - tokens
        stream.rejected[row] = rejected
        if step.stale and name in step.stale:
            high = capture.requests.preempted.get(name)
            if high is not None:
                capture.requests.preempted[name] = high - rejected
            continue
        for later in capture.requests.pending:
            if name in later.output.num_scheduled_tokens:
                if later.corrections is None:
                    later.corrections = {}
                later.corrections[name] = later.corrections.get(name, 0) + rejected


def _lengths(payload: Payload, stream: Stream, base: Stream | None, context: int, now_ns: int) -> tuple[int, int, bool]:
    """Write the contexts; returns (frame, distance to the base, whether the base's contexts proved wrong)."""
    doubted = False
    distance = stream.number - base.number if base else 0
    if base is not None and distance <= FARTHEST_BASE and not base.key_due(now_ns):
        found = removals(base.ids, stream.ids)
        if found is not None:
            removed, survivors = found
            appended = [stream.context_before(row) for row in range(survivors, len(stream.ids))]
            expected = base.next_context - sum(base.context_after(row) for row in removed) + sum(appended)
            if expected == context:
                payload.removed(removed)
                payload.appended(appended)
                stream.keyed_ns = base.keyed_ns
                return EDIT, distance, False
            # Removed rows are resumed ones or moved between batches; anything else is a fault of ours.
            doubted = distance == 1
    if stream.corrections:
        payload.lengths([stream.context_before(row) for row in range(len(stream.ids))])
    else:
        payload.lengths(stream.seen + stream.new_contexts if stream.new_contexts else stream.seen)
    stream.keyed_ns = now_ns
    return KEY, 0, doubted


def _untaken(capture: Capture, update: Update, stream: Stream) -> tuple[int, int]:
    """(tokens sampled for preempted requests that vLLM threw away, those whose place was not known yet).

    Whether it does so differs between releases and modes (still running, reset of the prefix cache, KV hand-off), so
    its own answer is asked. Requests that ended are among the discarded ones. What stands in a known place counts as
    recomputed once the request resumes.
    """
    result, requests = update.result, capture.scheduler.requests
    if not update.step.stale or not result.sampled_token_ids:
        return 0, 0
    taken = {row.request_id for batch in update.outputs.values() for row in batch.outputs if row.new_token_ids}
    lost = unknown = 0
    for name in update.step.stale:
        request = requests.get(name)
        tokens = len(result.sampled_token_ids[result.req_id_to_index[name]])
        if tokens and name not in taken and request is not None and not request.is_finished():
            lost += tokens
            unknown += tokens - (stream.context_before(stream.ids.index(name)) < request.num_tokens)
    return lost, unknown


def _generated(capture: Capture, update: Update, stream: Stream) -> tuple[int, int]:
    """(tokens that reached the requests, accepted tokens that did not)."""
    step = update.step
    result = update.result
    lost, unknown = _untaken(capture, update, stream)
    ended = step.discarded or () if result.sampled_token_ids else ()  # a pooling model samples nothing
    if update.sampled is None and not capture.connected:
        tokens = sum(map(len, result.sampled_token_ids)) - lost
        for name in ended:
            tokens -= len(result.sampled_token_ids[result.req_id_to_index[name]])
        return tokens, unknown
    generated = sum(len(row.new_token_ids) for batch in update.outputs.values() for row in batch.outputs)
    if update.sampled is None:
        return generated, unknown
    offered = sum(update.sampled) - lost
    for name in ended:
        offered -= update.sampled[result.req_id_to_index[name]]
    return generated, max(0, offered - generated) + unknown


def _extras(capture: Capture, update: Update, cut: int, unjudged: int) -> dict[str, int]:
    """EXTRA_FIELDS that are not zero; reads and resets what was counted since the last step."""
    step = update.step
    follow = capture.requests
    extras = dict(step.extras or {})
    scheduled = step.output.num_scheduled_tokens
    discarded = cut + sum(scheduled[name] for name in step.discarded or ())
    ended = step.discarded or ()
    counts = {
        "recomputed_tokens": sum(row.recomputed for row in step.rows or () if row.request not in ended),
        "discarded_tokens": discarded,
        "finished_requests": follow.finished,
        "unprefilled_tokens": follow.unprefilled_tokens,
        "unjudged_draft_tokens": unjudged,
        "encoder_inputs": sum(map(len, step.output.scheduled_encoder_inputs.values())),
        "invalid_draft_tokens": sum((getattr(step.output, "num_invalid_spec_tokens", None) or {}).values()),
    }
    follow.finished = follow.unprefilled_tokens = 0
    for name, marks in follow.special.items():
        if name in scheduled:
            for mark in marks:
                counts[mark] = counts.get(mark, 0) + 1
    extras |= {name: value for name, value in counts.items() if value}
    ages = capture.queue.scan(update.started_ns)
    if ages is not None:
        extras["oldest_wait_us"], extras["summed_wait_us"] = ages
    return extras


def _cold(
    capture: Capture,
    update: Update,
    stream: Stream,
    prefill: list[tuple[int, Row]],
    generated: int,
    frame: tuple[int, int, int, int],
) -> bytes:
    output = update.step.output
    waiting, deferred = capture.queue.counts()
    padded, graph = graph_of(update.result)
    rows = len(stream.ids)
    given = {
        "query_tokens": output.total_num_scheduled_tokens,
        "generated_tokens": generated,
        "drafted_tokens": sum(stream.drafts),
        "rejected_tokens": sum(stream.rejected),
        "kv_blocks_cached": UNKNOWN,
        "waiting": waiting,
        "requests": rows,
        "running": len(capture.scheduler.running),
        "prefill_tokens": sum(stream.queries[row] for row, _ in prefill),
        "padded_tokens": padded,
        "preempted": update.step.preempted,
        "prefill_requests": len(prefill),
        "deferred": deferred,
        "frame": frame[0],
        "kind": int(_kind(capture, rows, len(prefill), bool(stream.drafts))),
        "base": frame[1],
        "graph_mode": graph,
        "flags": frame[2],
        "sections": frame[3],
    }
    return pack_cold(*(given.get(name, 0) for name, _ in COLD_FIELDS))


def _kind(capture: Capture, rows: int, prefilling: int, drafted: bool) -> StepKind:
    if capture.pooling:
        return StepKind.POOL
    if prefilling:
        return StepKind.PREFILL if prefilling == rows else StepKind.MIXED
    return StepKind.VERIFY if drafted else StepKind.DECODE
