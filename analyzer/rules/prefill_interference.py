"""Prompts stall the running decodes."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from rooflens.analyzer.rules.answers import active_s, cannot_tell, cleared, firing, setting, too_few
from rooflens.analyzer.rules.answers import price as priced
from rooflens.analyzer.rules.case import Case
from rooflens.analyzer.rules.pool import batch_of
from rooflens.analyzer.sums import Column, Mask, filled, steps_of
from rooflens.findings import Code, Evidence, Finding
from rooflens.records import StepKind, StepTable

CODE = Code.PREFILL_INTERFERENCE
STALL_RATIO = 4.0  # times a plain decode step: readers notice text that stops for several tokens' time
STALL_S = 0.05  # shorter ones are below what a reader, or a client's own buffering, notices
WAITING_TOKENS_RATIO = 0.01  # of the tokens generated: then the 99th percentile of the inter-token latency is a stall
LEAST_STALLS = 2  # one slow step is a hiccup of anything
STALLED_TIME_RATIO = 0.1  # of the engine's time: stalls that long are seen, however few tokens fall into them
MANY_STALLS = 3  # in a window, whatever their share of the tokens
FRESH_RATIO = 0.5  # of a step's prefill that must be new: what is computed again after preemption is kv_pressure's
CHANCE_RATIO = 3.0  # times as often in steps with prompts as without: else something else is slow now and then
GOAL_RATIO = 2.0  # times a plain decode step, which the advised chunk aims at
SLOW_INTERVALS_RATIO = 0.5  # of the prompt tokens that must lie in slow intervals of a page: a hiccup is in one of them
LEAST_CHUNK_TOKENS = 16  # smaller chunks cost more in passes over the weights than they save in waiting
NO_KIND = -1.0  # of a step whose kind is not known
LEAST_PLAIN = 10  # decode steps: a median of fewer may be one of the slow ones
NO_DECODE = f"at least {LEAST_PLAIN} plain decode steps of a similar batch to compare with"


@dataclass(frozen=True, slots=True)
class _Stalls:
    """Steps that made decodes wait: seconds, prompt tokens and waiting sequences each; ``decode_s`` is a plain step."""

    seconds: Column
    prompt_tokens: Column
    waiting: Column
    decode_s: float


def prefill_interference(case: Case) -> Finding:
    """Steps that carry prompts take so much longer than plain decode that every running stream sees a gap.

    Judged on steps with new prompt tokens while other sequences decode, against the median plain decode step of a
    similar batch. Fires when such steps take 4 times as long and at least 50 ms, unless steps without prompts are slow
    nearly as often; at least two are needed, and that 1 % of the window's tokens stood behind them, or that there are
    three, or that they took a tenth of the time. Prompts that are computed again after a preemption belong to
    kv_pressure. From a metrics page it can only be told where some intervals hold prompts and others none. The price
    is the time beyond two decode steps for which streams stood still: the work itself remains, in smaller pieces. The
    remedy is the chunk that would keep a step within twice a decode step, by the measured time for each prompt token.
    """
    if (few := too_few(case, CODE)) or case.window is None:
        return few or cannot_tell(case, CODE, NO_DECODE)
    table = case.window.steps
    if not {"kind", "requests", "prefill_tokens", "observed_s"} <= table.columns.keys():
        return cannot_tell(case, CODE, "prompt tokens and times of the steps")
    if bool((steps_of(table) > 1).any()):
        return _of_intervals(case, table)
    rows = _interfering(table)
    long = rows & (filled(table, "observed_s") >= STALL_S)
    if not long.any():
        return cleared(case, CODE, f"no step with prompts kept decodes waiting for {STALL_S * 1e3:.0f} ms")
    plain_s = _plain_decode_s(case, _decoding(table)[long])
    if plain_s is None:
        return cannot_tell(case, CODE, NO_DECODE)
    observed = filled(table, "observed_s")
    stalls = long & (observed >= STALL_RATIO * plain_s)
    decode = (filled(table, "kind", NO_KIND) == StepKind.DECODE) & table.where("observed_s")
    slow = observed[decode] >= max(STALL_S, STALL_RATIO * plain_s)
    by_chance = float(slow.mean()) if len(slow) else 0.0
    if float(stalls.sum() / rows.sum()) < CHANCE_RATIO * by_chance:
        return cleared(case, CODE, "steps without prompts are slow as often")
    found = _Stalls(
        observed[stalls],
        filled(table, "prefill_tokens")[stalls],
        _decoding(table)[stalls],
        plain_s,
    )
    return _judge(case, found, confidence=0.9)


def _decoding(table: StepTable) -> Column:
    """Sequences that were past their prompt while the step ran, in it or left out of it."""
    prefilling = filled(table, "prefill_requests")
    inside = filled(table, "requests") - prefilling
    left_out = np.where(table.where("running"), filled(table, "running") - filled(table, "requests"), 0)
    decoding: Column = np.maximum(inside + np.maximum(left_out, 0), 0).astype(np.float64)
    return decoding


def _interfering(table: StepTable) -> Mask:
    """Steps with prompt tokens, most of them new, while others decode."""
    prefill = filled(table, "prefill_tokens")
    again = filled(table, "recomputed_tokens")
    fresh = (prefill > 0) & (prefill - again >= FRESH_RATIO * prefill)
    mixed = (filled(table, "kind", NO_KIND) == StepKind.MIXED) | (filled(table, "kind", NO_KIND) == StepKind.PREFILL)
    rows: Mask = fresh & mixed & table.where("observed_s") & (_decoding(table) >= 1)
    return rows


def _plain_decode_s(case: Case, decoding: Column) -> float | None:
    """Median plain decode step at half to twice the sequences that waited, of earlier windows if need be."""
    low, high = float(np.median(decoding)) / 2, float(np.median(decoding)) * 2
    seconds: list[float] = []
    for window in reversed(case.windows):
        table = window.steps
        if "kind" in table.columns and not bool((steps_of(table) > 1).any()):
            similar = (filled(table, "kind", NO_KIND) == StepKind.DECODE) & table.where("observed_s")
            similar &= (filled(table, "requests") >= low) & (filled(table, "requests") <= high)
            seconds += filled(table, "observed_s")[similar].tolist()
        if len(seconds) >= LEAST_PLAIN:
            return float(np.median(seconds))
    return None


def _judge(case: Case, stalls: _Stalls, confidence: float) -> Finding:
    figures, count = case.figures[-1], len(stalls.seconds)
    waiting = float(stalls.waiting.sum())
    share = waiting / figures.generated_tokens if figures.generated_tokens else 0.0
    judged_s, total_s = active_s(figures), float(stalls.seconds.sum())
    few = count < MANY_STALLS and share < WAITING_TOKENS_RATIO and total_s < STALLED_TIME_RATIO * judged_s
    if count < LEAST_STALLS or few:
        return cleared(case, CODE, f"{count} steps with prompts kept decodes waiting: too few to matter")
    typical_s, goal_s = float(np.median(stalls.seconds)), GOAL_RATIO * stalls.decode_s
    slope_s = _slope_s(stalls)
    chunk = _chunk(stalls.decode_s, slope_s)
    evidence = (
        Evidence("stalls", count),
        Evidence("stall_median", typical_s, "s"),
        Evidence("stall_max", float(stalls.seconds.max()), "s"),
        Evidence("decode_step_median", stalls.decode_s, "s"),
        Evidence("share_of_tokens_behind_a_stall", share, "1"),
        Evidence("prompt_tokens_in_a_stall", float(np.median(stalls.prompt_tokens))),
        Evidence("seconds_for_each_prompt_token", slope_s, "s"),
        *((Evidence("chunk_for_twice_a_decode_step", chunk),) if chunk else ()),
    )
    price = priced(
        total_s - count * goal_s,
        total_s - count * STALL_RATIO * stalls.decode_s,
        total_s - count * stalls.decode_s,
        judged_s,
        "time for which streams stood still beyond two decode steps (four to one); the work remains, in smaller pieces",
    )
    text = (
        f"{count} steps with prompts took {typical_s * 1e3:.0f} ms where a decode step takes "
        f"{stalls.decode_s * 1e3:.3g} ms: inter-token latency up to {float(stalls.seconds.max()) * 1e3:.0f} ms"
    )
    return firing(case, CODE, text, evidence, _remedy(case, chunk), confidence, price)


def _slope_s(stalls: _Stalls) -> float:
    """Seconds that each prompt token adds to a step, by the median stall."""
    return float(np.median((stalls.seconds - stalls.decode_s) / np.maximum(stalls.prompt_tokens, 1.0)))


def _chunk(decode_s: float, slope_s: float) -> int | None:
    """Prompt tokens that keep a step within twice a decode step, a power of two; None where that is too few."""
    tokens = (GOAL_RATIO - 1) * decode_s / max(slope_s, 1e-12)
    return 2 ** int(math.log2(tokens)) if tokens >= LEAST_CHUNK_TOKENS else None


def _remedy(case: Case, chunk: int | None) -> str:
    if chunk is None:
        plain = "serve prefill from other devices{}: no chunk of a useful size keeps a step within two decode steps"
        return setting(case.info, "", plain, f"--kv-transfer-config: {plain.format('')}", "--disaggregation-mode")
    info = case.info
    if info is not None and info.engine == "vllm" and info.chunked_prefill is False:
        return f"--enable-chunked-prefill --max-num-batched-tokens {chunk}"
    budget = f" (now {info.max_batched_tokens})" if info is not None and info.max_batched_tokens else ""
    plain = "at most {} tokens a step"
    return setting(info, f"{chunk}", plain, "--max-num-batched-tokens", "--chunked-prefill-size") + budget


def _of_intervals(case: Case, table: StepTable) -> Finding:
    """From a metrics page: intervals with prompts against intervals without, stalls by how many prompts came."""
    steps, prefill = steps_of(table), filled(table, "prefill_tokens")
    timed = table.where("observed_s") & table.where("prefill_tokens")
    mixed, plain = timed & (prefill > 0), timed & (prefill == 0)
    if not mixed.any():
        return cleared(case, CODE, "no prompt was computed")
    if float(steps[plain].sum()) < LEAST_PLAIN or not table.where("prefill_requests")[mixed].all():
        return cannot_tell(case, CODE, "the time of single steps (the hook), or intervals without any prompt")
    plain_s = float(filled(table, "observed_s")[plain].sum() / steps[plain].sum())
    budget = (case.info.max_batched_tokens if case.info else None) or float("inf")
    chunks = np.maximum(np.maximum(filled(table, "prefill_requests"), prefill / budget), 1.0)[mixed]
    chunks = np.minimum(chunks, steps[mixed])
    extra = np.maximum(filled(table, "observed_s")[mixed] - steps[mixed] * plain_s, 0.0)
    others = np.maximum(batch_of(table)[mixed] - 1.0, 0.0)
    long = (extra / chunks + plain_s >= max(STALL_S, STALL_RATIO * plain_s)) & (others >= 1.0)
    each = np.repeat((extra / chunks + plain_s)[long], np.round(chunks[long]).astype(np.int64))
    tokens = np.repeat((prefill[mixed] / chunks)[long], np.round(chunks[long]).astype(np.int64))
    waiting = np.repeat(others[long], np.round(chunks[long]).astype(np.int64))
    slow_share = float(prefill[mixed][long].sum() / prefill[mixed].sum())
    if not long.any():
        return cleared(case, CODE, "intervals with prompts are hardly slower")
    if long.sum() < LEAST_STALLS or slow_share < SLOW_INTERVALS_RATIO:
        return cannot_tell(case, CODE, "the time of single steps (the hook): too few intervals with prompts are slow")
    return _judge(case, _Stalls(each, tokens.astype(np.float64), waiting, plain_s), confidence=0.5)
