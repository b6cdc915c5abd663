"""The least time that each published figure allows: seconds observed beside seconds without which it cannot be done.

Where the sharding is not stated (and everywhere as a second look) the bound is free of it: all bytes and flops of one
copy of the model, over as many devices as the row has, each perfectly busy. No real sharding needs less, as every
tensor, cache entry and product must be on some device, and copies only add to that.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from measured_rows import Row

from rooflens.analyzer.acceptance import expected_tokens
from rooflens.analyzer.capacity import kept_bytes, kept_form
from rooflens.analyzer.operators import works
from rooflens.analyzer.plan import Plan
from rooflens.analyzer.point import point_features
from rooflens.analyzer.precision import Precision
from rooflens.analyzer.predict import Prediction, predict
from rooflens.analyzer.sides import Sides, batch_of, names_of, sides_of
from rooflens.analyzer.work import Work, resident_bytes
from rooflens.arch_records import Deployment, ModelArch
from rooflens.records import RooflensError

MANY = 1 << 20  # sequences, so many that what is read once a pass is nothing to each of them
SECONDS = {"tpot_ms": 1e-3, "step_ms": 1e-3, "ttft_ms": 1e-3, "prefill_ms": 1e-3}
OUTPUT_RATES = ("tok_s", "out_tok_s", "gpu_out_tok_s", "node_out_tok_s")


@dataclass(frozen=True)
class Bound:
    """``observed_s`` of what ``of`` names, the least it can take, and the floor_s of the product where it has one.

    ``product_s`` is that of the deployment stated or taken (tensor parallel over all devices).
    """

    of: str
    observed_s: float
    floor_s: float
    product_s: float | None = None

    @property
    def ratio(self) -> float:
        """Observed over least; below 1 is impossible."""
        return self.observed_s / self.floor_s


def bound_of(row: Row) -> Bound:
    """The bound of any row."""
    if row.metric == "spec_speedup":
        return _speculation(row)
    if row.metric == "out_tok_s":
        return _served(row)
    if row.metric in ("gpu_out_tok_s", "node_out_tok_s"):
        return Bound("a token of a wide deployment", 1 / row.value, _each(row, row.ctx).floor_s)
    if row.metric in ("mfu", "mbu"):
        return _utilisation(row)
    if row.phase == "prefill" and row.batch is None and row.maker != "llama.cpp":
        return Bound("a prompt among many", row.isl / row.value, _each(row, row.isl, prefill=True).floor_s)
    return _step(row)


def plan_of(row: Row, precision: Precision | None = None) -> Plan:
    """The operating point of a row of single steps, in the deployment stated or taken."""
    spread, prefill = row.deployment, row.phase == "prefill"
    plan = Plan(spread.tensor, spread, row.batch or 1, row.isl if prefill else row.ctx, row.phase)
    if not row.isl or prefill or row.flag:
        return plan
    room = predict(row.arch, row.hardware_spec, precision or row.least, replace(plan, utilization_ratio=1.0))
    return replace(plan, batch=max(1, min(plan.batch, room.max_batch)))


def _step(row: Row) -> Bound:
    """One pass: a decode step, or a prompt from its start to its first token."""
    batch, what = row.batch or 1, "a prompt" if row.phase == "prefill" else "a step"
    if row.metric in SECONDS:
        observed_s = row.value * SECONDS[row.metric]
    else:
        observed_s = (batch * row.isl if row.phase == "prefill" else batch) / row.value
    fitting = batch
    product: Prediction | None = None
    try:
        plan = plan_of(row)
        fitting = plan.batch
        product = predict(row.arch, row.hardware_spec, row.least, plan)
    except RooflensError:  # 64 devices and 48 heads: the model was cut otherwise
        pass
    sides = spread_sides(row, fitting, row.isl if row.phase == "prefill" else row.ctx, row.phase == "prefill")
    return Bound(what, observed_s, sides.floor_s, product.floor_s if product and row.n >= 1 else None)


def _utilisation(row: Row) -> Bound:
    """A fraction of the peak: what it says is how much longer than at the peak the same work took."""
    prefill = row.phase == "prefill"
    sides = spread_sides(row, row.batch or 1, row.isl if prefill else row.ctx, prefill)
    side_s = sides.compute_s if row.metric == "mfu" else sides.uncached_s
    return Bound("a prompt" if prefill else "a step", side_s / row.value, sides.floor_s)


def _speculation(row: Row) -> Bound:
    """A gain: a verify step takes at least as long as a plain one and yields expected_tokens, so no gain is more."""
    return Bound("a token beside a plain one", 1 / row.value, 1 / expected_tokens(row.alpha, row.gamma))


def _served(row: Row) -> Bound:
    """A request of a full server: its own flops and cache, and its part of the weights at the largest batch.

    The prompt gives the first token, each other one is a decode step. It reads the weights with at most as many others
    as fit: over a long run the mean context of all that runs is the middle of a request, so no more sequences than fit
    with that context share a pass on average. Prompts may ride along, so their weights are not counted again.
    """
    later = row.osl - 1
    middle = row.isl + (later - 1) // 2
    batch = largest_batch(row, middle)
    token = _each(row, middle)
    prompt = _each(row, row.isl, prefill=True)
    weights_s = spread_sides(row, 1, middle).uncached_s - token.uncached_s
    memory_s = later * (weights_s / batch + token.uncached_s) + prompt.uncached_s
    compute_s = later * token.compute_s + prompt.compute_s
    return Bound("a request", row.osl / row.value, max(memory_s, compute_s))


def largest_batch(row: Row, tokens: int) -> float:
    """Sequences of ``tokens`` that all devices' memory holds beside one copy of the weights."""
    rows, plan = whole(row.arch, row.least), Plan(context_tokens=tokens)
    free = row.n * row.hardware_spec.memory_bytes - resident_bytes(rows)
    form = kept_form(rows)
    first, two = (kept_bytes(form, plan, count) for count in (1, 2))
    return max(1.0, free / (two - first))


def _each(row: Row, tokens: int, prefill: bool = False) -> Sides:
    """What one more sequence adds where there are many: weights are nothing to it."""
    many, half = (spread_sides(row, count, tokens, prefill) for count in (MANY, MANY // 2))
    parts = {name: (getattr(many, name) - getattr(half, name)) / (MANY // 2) for name in Sides.__slots__}
    return replace(many, **parts)


def spread_sides(row: Row, sequences: int, tokens: int, prefill: bool = False) -> Sides:
    """The sides of one pass over ``sequences`` of ``tokens`` each, spread evenly over all devices of the row."""
    rows = whole(row.arch, row.least)
    plan = Plan(batch=sequences, context_tokens=tokens, phase="prefill" if prefill else "decode")
    features = point_features(batch_of(row.arch, plan, sequences), names_of(rows))
    sides = sides_of(rows, features, row.hardware_spec, 1, row.n)
    return sides.times(1 / row.n)


def whole(arch: ModelArch, precision: Precision) -> tuple[Work, ...]:
    """Every operator of one copy of the model, undivided."""
    return works(arch, precision, Deployment())
