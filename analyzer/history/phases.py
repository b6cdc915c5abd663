"""Where the time went, as phases: the kinds of steps, decode by batch, and what lay between steps."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rooflens.analyzer.figures import Floor, Phase, Spread
from rooflens.analyzer.history.amounts import Sums, longest_s, step_quantiles, whole
from rooflens.analyzer.history.sums import Table, known, ratio, sums_by
from rooflens.model_records import Bound
from rooflens.records import StepKind
from rooflens.trace_records import Cells

OUTSIDE = "not in a step (idle, or between steps)"
UNKNOWN_BATCH = "batch not known"
BOUND_STEPS = ("memory_bound_steps", "compute_bound_steps", "link_bound_steps")


def phases_of(cells: Cells, table: Table, outside_s: float) -> tuple[Phase, ...]:
    """The kinds of steps, the longest first, then ``outside_s``: shares are of the time in steps."""
    kinds = np.unique(table["kind"])
    place = np.searchsorted(kinds, table["kind"])
    sums = sums_by(table, place, len(kinds))
    total_s = float(np.nansum(sums["observed_s"])) if len(kinds) else 0.0
    found = []
    for at, kind in enumerate(kinds.tolist()):
        quantiles = step_quantiles(cells, float(sums["observed_max_s"][at]), cells.histogram["kind"] == kind)
        found.append(_phase(kind_name(kind), sums, at, total_s, quantiles))
    found.sort(key=lambda phase: -phase.seconds)
    return (*found, *([Phase(OUTSIDE, 0, outside_s, None)] if outside_s > 0 else []))


def kind_name(kind: int) -> str:
    """A StepKind in lower case; other for a number of a newer writer."""
    return StepKind(kind).name.lower() if kind in list(StepKind) else "other"


def decode_by_batch(table: Table) -> tuple[Phase, ...]:
    """The decode steps by powers of two of their batch; quantiles of single steps are not known of these."""
    rows = table["kind"] == StepKind.DECODE
    chosen = table.take(rows)
    batches = np.unique(chosen["batch_log2"])
    sums = sums_by(chosen, np.searchsorted(batches, chosen["batch_log2"]), len(batches))
    total_s = float(np.nansum(table["observed_s"])) if len(table) else 0.0
    return tuple(_by_batch(batches.tolist(), sums, total_s))


def _by_batch(batches: list[int], sums: Sums, total_s: float) -> Iterator[Phase]:
    for at, power in enumerate(batches):
        yield _phase(_batch_name(power), sums, at, total_s, (None, None))


def _batch_name(power: int) -> str:
    if power < 0:
        return UNKNOWN_BATCH
    first, last = 1 << power, (2 << power) - 1
    return f"batch {first}" if first == last else f"batch {first} to {last}"


def _phase(name: str, sums: Sums, at: int, total_s: float, quantiles: tuple[float | None, ...]) -> Phase:
    one = {key: float(column[at]) for key, column in sums.items()}
    seconds = known(one["observed_s"]) or 0.0
    p50, p90 = quantiles
    longest = longest_s(one)
    generated = known(one["generated_tokens"])
    return Phase(
        name=name,
        steps=whole(one["steps"]),
        seconds=seconds,
        share_ratio=ratio(seconds, total_s) or 0.0,
        query_tokens=whole(one["query_tokens"]),
        generated_tokens=None if generated is None else round(generated),
        step_s=None if p50 is None or p90 is None or longest is None else Spread(p50, p90, longest),
        floor=_floor(one),
    )


def _floor(one: dict[str, float]) -> Floor | None:
    steps, observed_s = whole(one["compared_steps"]), known(one["compared_observed_s"])
    if not steps or not observed_s:
        return None
    counts = {str(bound.name.lower()): whole(one[name]) for bound, name in zip(Bound, BOUND_STEPS, strict=True)}
    link_s = known(one["compared_link_s"]) or 0.0
    reached = whole(one["reached_steps"]) == steps  # of some steps only it would stand beside the floor of all
    return Floor(
        steps=steps,
        observed_s=observed_s,
        floor_s=known(one["compared_floor_s"]) or 0.0,
        serial_floor_s=max(0.0, (known(one["compared_serial_s"]) or 0.0) - link_s),
        link_s=link_s,
        mbu=ratio(one["compared_memory_s"], observed_s) or 0.0,
        mfu=ratio(one["compared_mfu_s"], one["mfu_observed_s"]),
        bound_steps={name: count for name, count in counts.items() if count},
        expected_s=known(one["compared_expected_s"]) or 0.0,
        reachable_s=known(one["reachable_s"]) if reached else None,
    )
