"""A recording in figures: where its step time went by phase, beside the floor; batch, context, KV cache, queue."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from rooflens.analyzer.figures import Floor, Phase, Reached, SlowStep, Spread, Summary
from rooflens.analyzer.regimes import learned_from, regime_figures
from rooflens.analyzer.sums import Mask, TimeSpent, clock_jumps_s, known_sum, time_spent, total
from rooflens.model_records import Bound, StepAnalysis
from rooflens.records import RingEvent, StepKind, StepTable

WINDOW_STEPS = 50  # a late output shortens the next interval, so a bound is judged over many steps, never on one


SPREADS = ("requests", "query_tokens", "context_tokens", "max_context_tokens", "waiting", "deferred", "running",
           "kv_blocks_used", "oldest_wait_s")  # fmt: skip
TOTALS = (
    "query_tokens", "prefill_tokens", "generated_tokens", "drafted_tokens", "accepted_tokens", "rejected_tokens",
    "discarded_tokens", "unprefilled_tokens", "recomputed_tokens", "preempted", "prompt_tokens", "new_requests",
    "finished_requests", "prefix_hit_local_tokens", "prefix_hit_external_tokens",
)  # fmt: skip
HOST = ("schedule_s", "update_s", "hook_s")
BETWEEN, IDLE, NOT_RECORDED = "between steps", "idle (no request)", "not recorded"


def summarise(
    table: StepTable,
    events: Sequence[RingEvent] = (),
    analysis: StepAnalysis | None = None,
    kv_blocks: int | None = None,
    synchronous: bool = False,
) -> Summary:
    """The figures of a recording of at least one step.

    ``kv_blocks`` is the size of the engine's pool; ``synchronous`` says that it schedules a step only after the
    output of the one before.
    """
    spent = time_spent(table)
    active_s = spent.active_s
    windows, invalid = _windows(analysis)
    reached = analysis.efficiency if analysis is not None else None
    return Summary(
        steps=len(table),
        span_s=active_s + (spent.idle_s or 0.0),
        idle_s=spent.idle_s,
        active_s=active_s,
        slowest_step=_slowest(table, spent.timed, events),
        phases=tuple(_phases(table, spent, analysis)),
        decode_by_batch=_decode_by_batch(table, spent.timed, active_s, analysis),
        host_s={name: known_sum(table, name) for name in HOST if name in table.columns},
        spreads=_spreads(table),
        totals={name: total(table, name) for name in TOTALS},
        ratios=_ratios(table, active_s, kv_blocks),
        events=dict(Counter(event.name for event in events)),
        clock_jumps_s=clock_jumps_s(events),
        windows=windows,
        invalid_windows=invalid,
        below_floor_steps=int(analysis.below_floor.sum()) if analysis is not None else 0,
        compared_steps=int(analysis.compared.sum()) if analysis is not None else 0,
        synchronous=synchronous,
        notes=analysis.notes if analysis is not None else (),
        efficiency=Reached(reached.origin, reached.source) if reached is not None else None,
        regimes=regime_figures(learned_from(table, analysis)),
    )


def _phases(table: StepTable, spent: TimeSpent, analysis: StepAnalysis | None) -> Iterator[Phase]:
    """The kinds of steps, the longest first, then what lies between them, and last the idle time."""
    kinds = [
        _phase(StepKind(kind).name.lower(), table, (table["kind"] == kind) & spent.timed, spent.active_s, analysis)
        for kind in np.unique(table["kind"]).tolist()
        if kind in list(StepKind)
    ]
    yield from sorted(kinds, key=lambda phase: -phase.seconds)
    yield Phase(BETWEEN, 0, spent.between_s, _ratio(spent.between_s, spent.active_s) or 0.0)
    if spent.unrecorded_s > 0:
        yield Phase(NOT_RECORDED, 0, spent.unrecorded_s, _ratio(spent.unrecorded_s, spent.active_s) or 0.0)
    if spent.idle_s:
        yield Phase(IDLE, 0, spent.idle_s, None)


def _slowest(table: StepTable, timed: Mask, events: Sequence[RingEvent]) -> SlowStep | None:
    if not timed.any():
        return None
    at = int(np.argmax(np.where(timed, table["observed_s"], -np.inf)))
    seconds, kind = float(table["observed_s"][at]), int(table["kind"][at])
    sequence = int(table["sequence"][at]) if table.has("sequence") else None
    # Events take places in the ring too; those that were overwritten cannot be counted.
    own = [event.sequence for event in events if event.name != "clock_jump"]
    number = None
    if sequence is not None and min([int(table["sequence"][0]), *own]) == 1:
        number = sequence - sum(other < sequence for other in own)
    return SlowStep(
        sequence=sequence,
        number=number,
        kind=StepKind(kind).name.lower() if kind in list(StepKind) else "other",
        seconds=max(seconds, 0.0),
        start_unix_s=float(table["unix_s"][at]) - seconds if table.has("unix_s") else None,
    )


def _decode_by_batch(
    table: StepTable, timed: Mask, active_s: float, analysis: StepAnalysis | None
) -> tuple[Phase, ...]:
    rows = timed & (table["kind"] == StepKind.DECODE) & (table["requests"] > 0)
    batch = table["requests"]
    powers = np.floor(np.log2(np.maximum(batch, 1))).astype(np.int64)
    phases = []
    for power in np.unique(powers[rows]).tolist():
        first, last = 1 << power, (2 << power) - 1
        name = f"batch {first}" if first == last else f"batch {first} to {last}"
        phases.append(_phase(name, table, rows & (powers == power), active_s, analysis))
    return tuple(phases)


def _phase(name: str, table: StepTable, rows: Mask, active_s: float, analysis: StepAnalysis | None) -> Phase:
    seconds = np.maximum(table["observed_s"][rows], 0.0)
    return Phase(
        name=name,
        steps=int(rows.sum()),
        seconds=float(seconds.sum()),
        share_ratio=_ratio(float(seconds.sum()), active_s) or 0.0,
        query_tokens=int(table["query_tokens"][rows].sum()),
        generated_tokens=total(table.take(rows), "generated_tokens"),
        step_s=_quantiles(seconds),
        floor=_floor(analysis, rows) if analysis is not None else None,
    )


def _floor(analysis: StepAnalysis, rows: Mask) -> Floor | None:
    rows = rows & analysis.compared
    observed_s = float(analysis.observed_s[rows].sum())
    if not observed_s:
        return None
    bounds = Counter(analysis.bound[rows].tolist())
    return Floor(
        steps=int(rows.sum()),
        observed_s=observed_s,
        floor_s=float(analysis.floor_s[rows].sum()),
        serial_floor_s=float(analysis.serial_floor_s[rows].sum()),
        link_s=float(analysis.link_s[rows].sum()),
        mbu=float(analysis.memory_s[rows].sum()) / observed_s,
        mfu=float((analysis.mfu[rows] * analysis.observed_s[rows]).sum()) / observed_s
        if analysis.compute_known
        else None,
        expected_s=float(analysis.expected_s[rows].sum()),
        reachable_s=None if analysis.reachable_s is None else float(analysis.reachable_s[rows].sum()),
        bound_steps={Bound(number).name.lower(): count for number, count in sorted(bounds.items())},
    )


def _windows(analysis: StepAnalysis | None) -> tuple[int, int]:
    """(windows judged, windows faster than possible); a last, shorter one counts only where it is the only one."""
    if analysis is None or not analysis.compared.any():
        return 0, 0
    observed, floor = analysis.observed_s[analysis.compared], analysis.floor_s[analysis.compared]
    starts = np.arange(0, max(1, len(observed) - WINDOW_STEPS + 1), WINDOW_STEPS)
    end = starts[-1] + WINDOW_STEPS
    faster = np.add.reduceat(observed[:end], starts) < np.add.reduceat(floor[:end], starts)
    return len(starts), int(faster.sum())


def _quantiles(values: NDArray[np.float64]) -> Spread | None:
    if not len(values):
        return None
    p50, p90 = np.percentile(values, (50, 90)).tolist()
    return Spread(p50, p90, float(values.max()))


def _spread(table: StepTable, name: str) -> Spread | None:
    rows = table.where(name)
    return _quantiles(table[name][rows].astype(np.float64)) if rows.any() else None


def _spreads(table: StepTable) -> dict[str, Spread | None]:
    found: dict[str, Spread | None] = {n: spread for n in SPREADS if (spread := _spread(table, n)) is not None}
    if "waiting" in table.columns:
        queued = table.where("waiting") & (table["waiting"] > 0)
        # An empty queue's wait of 0 s must not stand for that of the full ones, of which none is known.
        if queued.any() and not (queued & table.where("oldest_wait_s")).any():
            found["oldest_wait_s"] = None
    return found


def _ratio(part: float | None, whole: float | None) -> float | None:
    return None if part is None or not whole else part / whole


def _ratios(table: StepTable, active_s: float, kv_blocks: int | None) -> dict[str, float | None]:
    generated, prompt = total(table, "generated_tokens"), total(table, "prompt_tokens")
    local, external = total(table, "prefix_hit_local_tokens"), total(table, "prefix_hit_external_tokens")
    used = _spread(table, "kv_blocks_used")
    hits = None if local is None or external is None else local + external
    return {
        "generated_tokens_per_s": _ratio(generated, active_s),
        "draft_acceptance": _ratio(total(table, "accepted_tokens"), total(table, "drafted_tokens")),
        "prefix_hit": _ratio(hits, prompt),
        "recomputed": _ratio(total(table, "recomputed_tokens"), total(table, "query_tokens")),
        "kv_used_p50": _ratio(used.p50 if used else None, kv_blocks),
        "kv_used_p90": _ratio(used.p90 if used else None, kv_blocks),
        "kv_used_max": _ratio(used.max if used else None, kv_blocks),
    }
