"""The KV cache is too small for this load."""

from __future__ import annotations

import numpy as np

from rooflens.analyzer.rules.answers import NO_POOL, NO_QUEUE, active_s, cannot_tell, cleared, firing, setting, too_few
from rooflens.analyzer.rules.answers import price as priced
from rooflens.analyzer.rules.bounds import bounds
from rooflens.analyzer.rules.case import Case
from rooflens.analyzer.rules.pool import (
    FULL_RATIO,
    admitted,
    below_stated_cap,
    budget_full,
    full,
    pool_known,
    queued,
    share,
)
from rooflens.analyzer.rules.reprice import at_larger_batch, changed, step_bytes, without_cache
from rooflens.analyzer.sums import filled, known_sum, steps_of
from rooflens.findings import Code, Evidence, Finding, Price
from rooflens.records import StepTable
from rooflens.spans import split

CODE = Code.KV_PRESSURE
LEAST_PREEMPTIONS = 3  # in a window; one or two are the price of a full cache
RECOMPUTED_RATIO = 0.01  # of the tokens computed; below it preemption costs less than a smaller batch would
FULL_AFTER_RATIO = 0.75  # at a preemption blocks are counted after the victim gave its own back
QUEUED_SHARE = 0.5  # of the steps: a queue that is there half of the time is not a burst
NO_PREEMPTIONS = "preemptions, or tokens computed again: a full pool alone says nothing"


def kv_pressure(case: Case) -> Finding:
    """Requests are preempted and computed again, or wait, because no KV blocks are free.

    Fires on at least 3 preemptions in the window, or 1 % of the tokens computed again, with a pool that was full; or
    when in half of the steps requests wait for capacity while the pool is full and the batch is below its stated cap.
    The pool is full at 90 %, or where one more sequence of the usual size has no room. A full pool alone is a
    well-used cache; requests that are deferred wait for something else. The price is the steps put through the
    roofline again without the recomputed tokens, or with the batch that would run if there were room.
    """
    if (few := too_few(case, CODE)) or case.window is None:
        return few or cannot_tell(case, CODE, NO_POOL)
    table, figures = case.window.steps, case.figures[-1]
    preempted, recomputed = known_sum(table, "preempted"), known_sum(table, "recomputed_tokens")
    if not pool_known(table, case.info):
        if preempted == 0 and figures.waiting_share is not None and figures.waiting_share < QUEUED_SHARE:
            return cleared(case, CODE, "nothing was preempted and hardly anything waits")
        return cannot_tell(case, CODE, NO_POOL)
    evidence = _evidence(case, preempted, recomputed)
    computed = known_sum(table, "query_tokens") or 0.0
    often = (preempted or 0) >= LEAST_PREEMPTIONS or (recomputed or 0) >= max(1.0, RECOMPUTED_RATIO * computed)
    if often and (figures.kv_used_max or 0.0) >= FULL_AFTER_RATIO:
        count = f"{preempted:.0f} preemptions" if preempted else f"{recomputed:,.0f} tokens computed again"
        text = f"{count} in the window: the KV pool is full ({figures.kv_used_max:.0%})"
        return firing(
            case, CODE, text, evidence, _remedy(case, preempting=True), confidence=0.95, price=_price_of_recompute(case)
        )
    if not table.where("waiting").any():
        return cannot_tell(case, CODE, NO_QUEUE, *((NO_PREEMPTIONS,) if preempted is None else ()))
    held = queued(table) & full(table, case.info) & below_stated_cap(table, case.info) & ~budget_full(table, case.info)
    if share(held, table) >= QUEUED_SHARE:
        text = (
            f"{figures.waiting_mean or 0:.3g} requests wait for KV blocks while {figures.running_mean or 0:.3g} run: "
            f"the pool is full ({figures.kv_used_max:.0%})"
        )
        price = _price_of_queue(case)
        return firing(case, CODE, text, evidence, _remedy(case, preempting=False), confidence=0.85, price=price)
    if preempted is None and recomputed is None and (figures.kv_used_max or 0.0) >= FULL_RATIO:
        return cannot_tell(case, CODE, NO_PREEMPTIONS)
    return cleared(case, CODE, f"{figures.kv_used_max:.0%} of the pool used at most, and nothing lost by it", *evidence)


def _evidence(case: Case, preempted: float | None, recomputed: float | None) -> tuple[Evidence, ...]:
    figures, info = case.figures[-1], case.info
    facts: tuple[tuple[str, float | None, str], ...] = (
        ("preempted_requests", preempted, ""),
        ("recomputed_tokens", recomputed, ""),
        ("kv_used_mean", figures.kv_used_mean, "1"),
        ("kv_used_max", figures.kv_used_max, "1"),
        ("requests_running_mean", figures.running_mean, ""),
        ("requests_waiting_mean", figures.waiting_mean, ""),
        ("batch_cap", info.max_sequences if info else None, ""),
        ("kv_blocks", info.kv_blocks if info else None, ""),
    )
    return tuple(Evidence(name, value, unit) for name, value, unit in facts if value is not None)


def _price_of_recompute(case: Case) -> Price | None:
    """The steps without the tokens that were computed again; low is their share of the floor, high of the tokens."""
    table, judged_s = case.windows[-1].steps, active_s(case.figures[-1])
    pair = _with_and_without(case)
    if pair is None or not {"observed_s", "query_tokens"} <= table.columns.keys():
        return None
    every, without = pair
    whole = filled(every, "query_tokens")
    part = np.where(whole > 0, 1.0 - filled(without, "query_tokens") / np.maximum(whole, 1.0), 0.0)
    observed = np.where(table.where("observed_s"), np.maximum(filled(table, "observed_s"), 0.0), 0.0)
    by_tokens_s = float((observed * part).sum())
    found = bounds(case)
    if found is None:
        return priced(by_tokens_s, 0.0, by_tokens_s, judged_s, "the recomputed tokens' share of their steps")
    floor, new = (np.nan_to_num(found[0].analyse(steps).floor_s) for steps in (every, without))
    lost = np.where(floor > 0, np.maximum(floor - new, 0.0) / np.maximum(floor, 1e-12), part)
    # At least what the floor saves, but of a step that was observed below it no more than there was.
    return priced(
        float((observed * lost).sum()),
        float((np.minimum(floor, observed) * lost).sum()),
        max(by_tokens_s, float((observed * lost).sum())),
        judged_s,
        "the steps put through the roofline without the recomputed tokens (floor alone to their share of the tokens)",
    )


def _with_and_without(case: Case) -> tuple[StepTable, StepTable] | None:
    """The steps as they were, and without what was computed again; None where that is not known.

    A page counts preemptions only, and no token twice: each is taken to have computed a sequence of the mean context
    again, which is then added to the row to get the steps as they were.
    """
    table, context = case.windows[-1].steps, case.figures[-1].context_tokens_mean
    query = filled(table, "query_tokens")
    if table.where("recomputed_tokens").any():
        kept = 1.0 - np.minimum(filled(table, "recomputed_tokens"), query) / np.maximum(query, 1.0)
        names = ("query_tokens", "prefill_tokens", "causal_pairs", "prefill_pairs")
        return table, changed(table, {n: table[n] * kept for n in table.columns if split(n)[0] in names})
    if context is None or not table.where("preempted").any():
        return None
    again = filled(table, "preempted")
    added = {"query_tokens": again * context, "causal_pairs": again * context * (context + 1) / 2}
    return changed(table, {n: table[n] + more for n, more in added.items() if n in table.columns}), table


def _price_of_queue(case: Case) -> Price | None:
    """The steps at the batch that would run if the queue had room; None without bounds that fit."""
    table, judged_s = case.windows[-1].steps, active_s(case.figures[-1])
    found = bounds(case)
    if found is None:
        return None
    rows = queued(table) & table.where("observed_s")
    target = _wanted(case, table)
    roofline, analysis = found
    roofline = without_cache(roofline, step_bytes(analysis, table))
    larger = at_larger_batch(roofline, table, rows, target)
    if larger is None:
        return None
    derivation = (
        f"the middle of the steps put through the roofline at a batch of {target:.0f}, as many fewer for the same"
    )
    derivation += " tokens (what lies above what is reachable grows with the batch, to not at all)"
    return priced(larger.saved_s, larger.low_s, larger.high_s, judged_s, derivation)


def _wanted(case: Case, table: StepTable) -> float:
    """Running and waiting together, at most the cap."""
    rows = queued(table)
    steps = steps_of(table)[rows]
    mean = float(((admitted(table)[rows] + filled(table, "waiting")[rows]) * steps).sum() / steps.sum())
    cap = case.info.max_sequences if case.info else None
    return min(mean, float(cap)) if cap else mean


def _remedy(case: Case, preempting: bool) -> str:
    """More pool; where requests are preempted, also the batch that the pool carries without."""
    figures, info = case.figures[-1], case.info
    cache = setting(
        info,
        f"(now {info.kv_blocks} blocks)" if info is not None and info.kv_blocks else "",
        "give the KV cache more memory {} or a format of half the bytes",
        "raise --gpu-memory-utilization or use --kv-cache-dtype fp8",
        "raise --mem-fraction-static or use --kv-cache-dtype fp8_e4m3",
    )
    if not preempting:
        return cache
    running, used = figures.running_mean or figures.batch_mean or 1.0, figures.kv_used_mean or 1.0
    fits = max(1, int(FULL_RATIO * running / max(used, 1e-6)))
    cap = setting(info, str(fits), "cap the batch at {}", "--max-num-seqs", "--max-running-requests")
    return f"{cache}; else {cap}, which fills {FULL_RATIO:.0%} of the pool"
