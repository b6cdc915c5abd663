"""A step in which something changed, written whole: as an edit of an earlier frame, or as a keyframe."""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic_ns, time_ns
from typing import TYPE_CHECKING, Any

from rooflens.adapters.frames import Payload, known_removals, removals
from rooflens.adapters.vllm.counts import extras_of, generated_tokens
from rooflens.adapters.vllm.frame import Stream
from rooflens.adapters.vllm.rows import EXTRA, Pending
from rooflens.records import GraphMode, StepKind
from rooflens.ring import CONTEXT_DOUBTED, EDIT, KEY, RECOMPUTE, UNKNOWN
from rooflens.ring_writer import pack_cold

if TYPE_CHECKING:
    from rooflens.adapters.vllm.capture import Capture

FARTHEST_BASE = 15  # a reader keeps this many frames
_GRAPHS = {"NONE": GraphMode.EAGER, "PIECEWISE": GraphMode.PIECEWISE, "FULL": GraphMode.FULL}
_RECOMPUTED = EXTRA["recomputed_tokens"]


def graph_of(result: Any) -> tuple[int, int]:
    """(tokens after padding, GraphMode) where the engine reports them, else unknown."""
    stats = getattr(result, "cudagraph_stats", None)
    if stats is None:
        return UNKNOWN, 0
    mode = _GRAPHS.get(str(getattr(stats, "runtime_mode", "")).rsplit(".", 1)[-1], GraphMode.UNKNOWN)
    return int(stats.num_padded_tokens), int(mode)


def write_full(capture: Capture, step: Pending, result: Any, outputs: Any, started_ns: int, ended_ns: int) -> None:
    """Commit a step with everything that changed since the frame it goes on from."""
    stream, prefill = _stream_of(step)
    if step.sampled is not None:
        _verify(capture, step, result, stream)
        if step.tainted:  # its corrections are told to the steps in flight; itself it may have seen too much
            capture.streams.forget()
            capture.ring.unstamp(step.submit_ns)
            return
    if _query_tokens(stream) != step.output.total_num_scheduled_tokens:
        prefill = _every_row(stream, step)
    rejected = sum(stream.rejected)
    context = stream.next_context
    stream.next_context = context + step.output.total_num_scheduled_tokens - rejected
    stream.number = capture.streams.step_number()

    payload = Payload()
    base = capture.streams.base_for(stream.ids)
    gone = capture.requests.gone(step.output.num_scheduled_tokens)
    # With priorities, or where somebody left and came back, the order itself may have changed: compare it all.
    orderly = capture.first_come and not step.preempted and not any(row.resumed for row in step.rows)
    frame, distance, doubted = _lengths(payload, gone if orderly else None, stream, base, context, started_ns)
    if prefill:
        payload.prefill(prefill, [stream.queries[row] for row in prefill])
    if stream.drafts:
        payload.drafts(stream.drafts, stream.rejected)
    generated, cut = generated_tokens(capture, step, result, outputs, stream)
    extras = extras_of(capture, step, stream, cut, started_ns)
    if extras is not None:
        payload.extras(extras)
    if frame == KEY:
        payload.anchor(time_ns(), monotonic_ns())
    capture.streams.keep(stream, base, len(capture.requests.pending) + 1)
    flags = RECOMPUTE if extras is not None and extras[_RECOMPUTED] else 0
    if doubted and not any(row.resumed for row in step.rows):
        flags |= CONTEXT_DOUBTED
    written = (frame, distance, flags, payload.sections)
    cold = _cold(capture, step, result, stream, len(prefill), generated, rejected, written)
    executor_ns, wait_ns = capture.times(step, started_ns)
    capture.ring.commit(
        step.submit_ns, started_ns, max(0, context), step.schedule_ns, ended_ns - started_ns, executor_ns, wait_ns,
        monotonic_ns() - ended_ns, capture.kv_blocks_used(), cold, payload.tobytes(),
    )  # fmt: skip


def _stream_of(step: Pending) -> tuple[Stream, list[int]]:
    """The rows of a step and which of them prefill; ``next_context`` is the sum of contexts before the step."""
    cached, new = step.output.scheduled_cached_reqs, step.output.scheduled_new_reqs
    if new:
        ids = cached.req_ids + [one.req_id for one in new]
        stream = Stream(ids, cached.num_computed_tokens, [one.num_computed_tokens for one in new])
    else:
        stream = Stream(cached.req_ids, cached.num_computed_tokens, ())
    stream.next_context = sum(stream.seen) + sum(stream.new_contexts)
    if step.corrections:
        stream.corrections = step.corrections
        stream.next_context -= sum(step.corrections.values())
    stream.steady = True
    for row in step.rows:
        if not row.last:
            stream.steady = False
    return stream, _prefill_rows(stream, step) if step.rows else []


def _query_tokens(stream: Stream) -> int:
    """The tokens of the step by what is known of its rows."""
    tokens = len(stream.ids) + sum(stream.drafts)
    for row, query in stream.queries.items():
        tokens += query - 1 - (stream.drafts[row] if stream.drafts else 0)
    return tokens


def _every_row(stream: Stream, step: Pending) -> list[int]:
    """What the rows were thought to compute does not add up (a step was missed): look at each of them."""
    scheduled = step.output.num_scheduled_tokens
    drafts = stream.drafts or [0] * len(stream.ids)
    tokens = [scheduled[name] for name in stream.ids]
    stream.queries = {row: query for row, query in enumerate(tokens) if query != 1 + drafts[row]}
    return list(stream.queries)


def _prefill_rows(stream: Stream, step: Pending) -> list[int]:
    """The positions of the prefilling rows; also enters every query that is not 1 + drafts in the stream."""
    drafts = step.output.scheduled_spec_decode_tokens
    queries: dict[int, int] = {}
    ids = stream.ids
    position = len(ids)
    for row in reversed(step.rows):
        if row.resumed and row.query - (len(drafts.get(row.request, ())) if drafts else 0) <= 1:
            continue
        # Who came last prefills, and they stand in the order in which they came; if not, look for the row.
        position -= 1
        if position < 0 or ids[position] != row.request:
            position = ids.index(row.request)
        queries[position] = row.query
    stream.queries = queries
    return sorted(queries)


def _verify(capture: Capture, step: Pending, result: Any, stream: Stream) -> None:
    """Drafts and rejections by row; rejections also correct what later steps in flight have seen."""
    drafts = step.output.scheduled_spec_decode_tokens
    sampled = step.sampled or []
    place = result.req_id_to_index
    ended = set(step.discarded)
    stream.drafts = [len(drafts.get(name, ())) for name in stream.ids]
    stream.rejected = by_row = [0] * len(stream.drafts)
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
        by_row[row] = rejected
        if name in step.stale:
            if name in capture.requests.preempted:
                computed, before = capture.requests.preempted[name]
                capture.requests.preempted[name] = (computed - rejected, before)
            continue
        for later in capture.requests.pending:
            if name in later.output.num_scheduled_tokens:
                if later.corrections is None:
                    later.corrections = {}
                later.corrections[name] = later.corrections.get(name, 0) + rejected


def _lengths(
    payload: Payload, gone: list[str] | None, stream: Stream, base: Stream | None, context: int, now_ns: int
) -> tuple[int, int, bool]:
    """Write the contexts; returns (frame, distance to the base, whether the base's contexts proved wrong).

    ``gone`` are those known to have left, None if that is not all that may have happened.
    """
    doubted = False
    distance = stream.number - base.number if base else 0
    if base is not None and distance <= FARTHEST_BASE and not base.key_due(now_ns):
        found = None if gone is None else known_removals(base.ids, stream.ids, gone)
        found = found or removals(base.ids, stream.ids)
        if found is not None:
            removed, survivors = found
            expected = base.next_context
            if removed:
                expected -= sum(map(base.context_after, removed))
            appended: Sequence[int] = stream.new_contexts
            if len(stream.ids) - survivors != len(appended):
                appended = [stream.context_before(row) for row in range(survivors, len(stream.ids))]
            if expected + sum(appended) == context:
                payload.removed(removed)
                payload.appended(appended)
                stream.keyed_ns = base.keyed_ns
                return EDIT, distance, False
            # Removed rows are resumed ones or moved between batches; anything else is a fault of ours.
            doubted = distance == 1
    if stream.corrections:
        payload.lengths([stream.context_before(row) for row in range(len(stream.ids))])
    else:
        payload.lengths([*stream.seen, *stream.new_contexts] if stream.new_contexts else stream.seen)
    stream.keyed_ns = now_ns
    return KEY, 0, doubted


def _cold(
    capture: Capture,
    step: Pending,
    result: Any,
    stream: Stream,
    prefilling: int,
    generated: int,
    rejected: int,
    frame: tuple[int, int, int, int],
) -> bytes:
    """COLD_FIELDS in their order; ``frame`` is (frame, base, flags, sections)."""
    waiting, deferred = capture.queue.counts()
    padded, graph = graph_of(result)
    rows = len(stream.ids)
    kind = _kind(capture, rows, prefilling, bool(stream.drafts))
    return pack_cold(
        step.output.total_num_scheduled_tokens, generated, sum(stream.drafts), rejected, UNKNOWN, waiting, rows,
        len(capture.scheduler.running), sum(stream.queries.values()), padded, step.preempted, prefilling, deferred,
        frame[0], kind, frame[1], graph, frame[2], frame[3],
    )  # fmt: skip


def _kind(capture: Capture, rows: int, prefilling: int, drafted: bool) -> StepKind:
    if capture.pooling:
        return StepKind.POOL
    if prefilling:
        return StepKind.PREFILL if prefilling == rows else StepKind.MIXED
    return StepKind.VERIFY if drafted else StepKind.DECODE
