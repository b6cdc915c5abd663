"""What a step brought and threw away: tokens that reached the requests, and what is told of few steps only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rooflens.adapters.vllm.frame import Stream
from rooflens.adapters.vllm.rows import EXTRA, NO_EXTRAS, Pending

if TYPE_CHECKING:
    from rooflens.adapters.vllm.capture import Capture

_RECOMPUTED, _DISCARDED = EXTRA["recomputed_tokens"], EXTRA["discarded_tokens"]
_FINISHED, _UNPREFILLED = EXTRA["finished_requests"], EXTRA["unprefilled_tokens"]
_ENCODER, _INVALID, _UNJUDGED = (
    EXTRA["encoder_inputs"],
    EXTRA["invalid_draft_tokens"],
    EXTRA["unjudged_draft_tokens"],
)
_OLDEST, _SUMMED = EXTRA["oldest_wait_us"], EXTRA["summed_wait_us"]


def _untaken(capture: Capture, step: Pending, result: Any, outputs: Any, stream: Stream) -> tuple[int, int]:
    """(tokens sampled for preempted requests that vLLM threw away, those whose place was not known yet).

    Whether it does so differs between releases and modes (still running, reset of the prefix cache, KV hand-off), so
    its own answer is asked. Requests that ended are among the discarded ones. What stands in a known place counts as
    recomputed once the request resumes.
    """
    requests = capture.scheduler.requests
    if not step.stale or not result.sampled_token_ids:
        return 0, 0
    taken = {row.request_id for batch in outputs.values() for row in batch.outputs if row.new_token_ids}
    lost = unknown = 0
    for name in step.stale:
        request = requests.get(name)
        tokens = len(result.sampled_token_ids[result.req_id_to_index[name]])
        if tokens and name not in taken and request is not None and not request.is_finished():
            lost += tokens
            unknown += tokens - (stream.context_before(stream.ids.index(name)) < request.num_tokens)
    return lost, unknown


def generated_tokens(capture: Capture, step: Pending, result: Any, outputs: Any, stream: Stream) -> tuple[int, int]:
    """(tokens that reached the requests, accepted tokens that did not)."""
    if step.sampled is None and not capture.connected and not step.stale:
        if capture.pooling or not result.sampled_token_ids:
            return 0, 0
        # Every row samples one token but those whose prompt goes on, and those whose request had ended.
        if stream.steady:
            return len(stream.ids) - len(step.discarded), 0
        silent = {row.request for row in step.rows if not row.last}
        return len(stream.ids) - len(silent.union(step.discarded)), 0
    lost, unknown = _untaken(capture, step, result, outputs, stream)
    generated = sum(len(row.new_token_ids) for batch in outputs.values() for row in batch.outputs)
    if step.sampled is None:
        return generated, unknown
    offered = sum(step.sampled) - lost
    for name in step.discarded:
        offered -= step.sampled[result.req_id_to_index[name]]
    return generated, max(0, offered - generated) + unknown


def extras_of(capture: Capture, step: Pending, stream: Stream, cut: int, now_ns: int) -> list[int] | None:
    """EXTRA_FIELDS of the step, None if there are none; reads and resets what was counted since the last step."""
    follow, output = capture.requests, step.output
    extras = step.extras or NO_EXTRAS.copy()
    some = step.extras is not None
    for row in step.rows:
        if row.recomputed and row.request not in step.discarded:
            extras[_RECOMPUTED] += row.recomputed
            some = True
    if follow.finished or step.discarded or cut or follow.unprefilled_tokens:
        scheduled = output.num_scheduled_tokens
        extras[_DISCARDED] = cut + sum(scheduled[name] for name in step.discarded)
        extras[_FINISHED], extras[_UNPREFILLED] = follow.finished, follow.unprefilled_tokens
        some = True
    if output.scheduled_encoder_inputs:
        extras[_ENCODER] = sum(map(len, output.scheduled_encoder_inputs.values()))
        some = True
    if step.sampled is not None:
        extras[_INVALID] = sum((getattr(output, "num_invalid_spec_tokens", None) or {}).values())
        extras[_UNJUDGED] = stream.unjudged
        some |= bool(extras[_INVALID] or stream.unjudged)
    for name, marks in follow.special.items():
        if name in output.num_scheduled_tokens:
            some = True
            for mark in marks:
                extras[mark] += 1
    if now_ns >= capture.queue.next_scan_ns:
        ages = capture.queue.scan(now_ns)
        if ages is not None:
            extras[_OLDEST], extras[_SUMMED] = ages
            some = True
    if not follow.calm:
        follow.told()
    return extras if some else None
