"""Requests wait for a place in the batch while memory-bound steps leave room for more."""

from __future__ import annotations

import math

import numpy as np

from rooflens.analyzer.rules.answers import (
    NO_POOL,
    NO_QUEUE,
    active_s,
    cannot_tell,
    cleared,
    firing,
    setting,
    too_few,
)
from rooflens.analyzer.rules.answers import price as priced
from rooflens.analyzer.rules.bounds import bounds, no_roofline
from rooflens.analyzer.rules.case import Case
from rooflens.analyzer.rules.pool import admitted, at_cap, batch_of, budget_full, full, pool_known, queued, share
from rooflens.analyzer.rules.reprice import Larger, at_larger_batch, ridge_batch, step_bytes, without_cache
from rooflens.analyzer.sums import Mask, filled, steps_of
from rooflens.findings import Code, Evidence, Finding
from rooflens.model_records import Bound

CODE = Code.MISSED_BATCHING
QUEUED_SHARE = 0.5  # of the steps: a queue that is there half of the time is not a burst
MEMORY_SHARE = 0.5  # of the floor of these steps that memory must bind, or more sequences share no reading
LEAST_LARGER_RATIO = 1.25  # the batch that could run over the batch that ran: less is within a window's own variation
LEAST_SAVED_RATIO = 0.05  # of the engine's time; less is not worth a restart


def missed_batching(case: Case) -> Finding:
    """Steps are memory-bound, so the weights are read once whatever the batch; yet requests wait behind a cap.

    Fires when in half of the steps requests wait for capacity while the batch is at its cap (of an engine that does
    not state it: level at its maximum), those steps are bound by memory, the KV pool has room for a quarter more
    sequences, and the token budget is not full of prompts. It is kv_pressure when the pool is full instead. The price
    is the steps put through the roofline at the larger batch (the queue, the pool and the ridge allow it), as many
    fewer for the same tokens: the middle of a range that is wide where steps are far above what is reachable (above
    their floor with the experts that uniform routing touches, where that is not known), for whether
    that part grows with the batch is not known. The evidence says how much longer each step, and so each token of a
    stream, takes at both ends.
    """
    if (few := too_few(case, CODE)) or case.window is None:
        return few or cannot_tell(case, CODE, NO_QUEUE)
    table, info = case.window.steps, case.info
    if not table.where("waiting").any() or "requests" not in table.columns:
        return cannot_tell(case, CODE, NO_QUEUE)
    if share(queued(table), table) < QUEUED_SHARE:
        return cleared(case, CODE, "requests hardly wait")
    capped = queued(table) & at_cap(table, info)
    if share(capped, table) < QUEUED_SHARE:
        return cleared(case, CODE, "the batch is below its cap: something else makes requests wait")
    held = capped & ~budget_full(table, info)
    if share(held, table) < QUEUED_SHARE:
        return cleared(case, CODE, "the token budget of the steps is full of prompts")
    if not pool_known(table, info):
        return cannot_tell(case, CODE, NO_POOL)
    held &= ~full(table, info)
    if share(held, table) < QUEUED_SHARE:
        return cleared(case, CODE, "the KV pool has no room for more sequences")
    return _judge(case, held)


def _judge(case: Case, held: Mask) -> Finding:
    """Of steps with a queue behind the cap and room in the pool: whether more of them at once would be cheaper."""
    found, table = bounds(case), case.windows[-1].steps
    if found is None:
        return cannot_tell(case, CODE, *no_roofline(case))
    strict, analysis = found
    roofline = without_cache(strict, step_bytes(analysis, table))
    if roofline is not strict:
        analysis = roofline.analyse(table)
    rows = held & analysis.compared & (filled(table, "requests") > 0)
    floor_s = float(analysis.floor_s[rows].sum())
    memory_s = float(analysis.floor_s[rows & (analysis.bound == Bound.MEMORY)].sum())
    if memory_s < MEMORY_SHARE * floor_s or not rows.any():
        return cleared(case, CODE, "the steps are not bound by memory: a larger batch takes longer in proportion")
    steps = steps_of(table)[rows]
    batch = float((batch_of(table)[rows] * steps).sum() / steps.sum())
    queue = float(((admitted(table) + filled(table, "waiting"))[rows] * steps).sum() / steps.sum())
    room, ridge = _room(case, rows), ridge_batch(roofline, table, rows)
    target = math.floor(min(queue, room, max(ridge, batch)) + 0.5)
    larger = at_larger_batch(roofline, table, rows, target)
    judged_s = active_s(case.figures[-1])
    if larger is None or target < LEAST_LARGER_RATIO * batch or larger.saved_s < LEAST_SAVED_RATIO * judged_s:
        return cleared(case, CODE, f"a batch of {target} instead of {batch:.3g} would save little")
    evidence = (
        Evidence("batch_mean", batch),
        *((Evidence("batch_cap", case.info.max_sequences),) if case.info and case.info.max_sequences else ()),
        Evidence("batch_possible", target),
        Evidence("batch_of_the_ridge", ridge),
        Evidence("batch_of_the_kv_pool", room),
        Evidence("requests_waiting_mean", float((filled(table, "waiting")[rows] * steps).sum() / steps.sum())),
        Evidence("share_of_steps_with_a_queue", share(held, table), "1"),
        Evidence("kv_used_mean", case.figures[-1].kv_used_mean or 0.0, "1"),
        Evidence("step_time_growth_low", larger.step_growth_low, "1"),
        Evidence("step_time_growth_high", larger.step_growth_high, "1"),
    )
    price = priced(larger.saved_s, larger.low_s, larger.high_s, judged_s, _derivation(target))
    flag = setting(case.info, str(target), "allow {} sequences at once", "--max-num-seqs", "--max-running-requests")
    remedy = f"{flag}; nobody then waits for a place, and each token of a stream takes {_growth(larger)}"
    text = f"{batch:.3g} sequences run and requests wait; {target} at once would do the same work in less time"
    return firing(case, CODE, text, evidence, remedy, confidence=0.8, price=price)


def _room(case: Case, rows: Mask) -> int:
    """Sequences of the mean size that the whole pool holds."""
    table, info = case.windows[-1].steps, case.info
    blocks = info.kv_blocks if info and info.kv_blocks else 0
    used = rows & table.where("kv_blocks_used")
    if not used.any():
        return 0
    each = float(np.sum(filled(table, "kv_blocks_used")[used])) / max(float(np.sum(admitted(table)[used])), 1e-9)
    return int(min(blocks / max(each, 1.0), 1e6))


def _growth(larger: Larger) -> str:
    low, high = larger.step_growth_low, larger.step_growth_high
    if f"{low:.2f}" == f"{high:.2f}":
        return f"{low:.2f} times as long"
    return f"{low:.2f} to {high:.2f} times as long"


def _derivation(target: int) -> str:
    return (
        f"the same tokens in fewer steps at a batch of {target}, put through the roofline; least where the time beyond "
        "what is reachable grows with the batch, most where it stays as it is, and the middle of both"
    )
