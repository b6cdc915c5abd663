"""A recording in figures: where its step time went by phase, beside the floor; batch, context, KV cache, queue."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rooflens.model_records import Bound, StepAnalysis
from rooflens.records import RingEvent, StepKind, StepTable

Mask = NDArray[np.bool_]

MOST_BELOW_RATIO = 0.02  # a synchronous engine's steps do not shorten one another: below the floor is below it
WINDOW_STEPS = 50  # a late output shortens the next interval, so a bound is judged over many steps, never on one


@dataclass(frozen=True, slots=True)
class Spread:
    """Median, 90th percentile and maximum of one column over the steps for which it is known."""

    p50: float
    p90: float
    max: float


@dataclass(frozen=True, slots=True)
class Floor:
    """Bounds beside the observed time over the ``steps`` that could be compared; sums in seconds, ratios.

    ``bound_steps`` counts the steps that memory, compute or the link bound.
    """

    steps: int
    observed_s: float
    floor_s: float
    serial_floor_s: float
    link_s: float
    mbu: float
    mfu: float
    bound_steps: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Phase:
    """The steps of one kind, or a stretch between steps (``steps`` is 0 there); ``share_ratio`` is of the span."""

    name: str
    steps: int
    seconds: float
    share_ratio: float
    query_tokens: int = 0
    generated_tokens: int = 0
    step_s: Spread | None = None
    floor: Floor | None = None


@dataclass(frozen=True, slots=True)
class Summary:
    """One recording. ``span_s`` is from the first submit to the last output; None stands for not known.

    ``decode_by_batch`` splits the decode steps by batch: 1, 2 to 3, 4 to 7, and so on in powers of two.
    ``host_s`` is the time of schedule, update and the hook, which may lie between steps or inside them.
    ``windows`` of WINDOW_STEPS steps were judged against the floor, ``invalid_windows`` of them were faster than
    possible: then the measurement or the model is wrong. Of a ``synchronous`` engine, whose next step begins after
    the last output, MOST_BELOW_RATIO of single steps suffices.
    """

    steps: int
    span_s: float
    phases: tuple[Phase, ...]
    decode_by_batch: tuple[Phase, ...]
    host_s: Mapping[str, float]
    spreads: Mapping[str, Spread]
    totals: Mapping[str, int | None]
    ratios: Mapping[str, float | None]
    events: Mapping[str, int]
    clock_jumps_s: tuple[float, ...]
    windows: int = 0
    invalid_windows: int = 0
    below_floor_steps: int = 0
    compared_steps: int = 0
    synchronous: bool = False
    notes: tuple[str, ...] = field(default=())

    @property
    def measurement_invalid(self) -> bool:
        """Whether the recording was, somewhere, faster than possible."""
        often = self.below_floor_steps > MOST_BELOW_RATIO * self.compared_steps
        return self.invalid_windows > 0 or (self.synchronous and often)


SPREADS = ("requests", "query_tokens", "context_tokens", "max_context_tokens", "waiting", "deferred", "running",
           "kv_blocks_used", "oldest_wait_s")  # fmt: skip
TOTALS = (
    "query_tokens", "prefill_tokens", "generated_tokens", "drafted_tokens", "accepted_tokens", "rejected_tokens",
    "discarded_tokens", "unprefilled_tokens", "recomputed_tokens", "preempted", "prompt_tokens", "new_requests",
    "finished_requests", "prefix_hit_local_tokens", "prefix_hit_external_tokens",
)  # fmt: skip
HOST = ("schedule_s", "update_s", "hook_s")


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
    submit, output = table["submit_monotonic_s"], table["output_monotonic_s"]
    timed = table.where("observed_s")
    previous = np.concatenate((submit[:1], output[:-1]))
    between = np.where(timed, np.maximum(submit - previous, 0.0), 0.0)
    unrecorded = np.where(timed, 0.0, np.maximum(output - previous, 0.0))
    observed = np.where(timed, np.maximum(table["observed_s"], 0.0), 0.0)
    span_s = float(observed.sum() + between.sum() + unrecorded.sum())
    phases = [
        _phase(StepKind(kind).name.lower(), table, (table["kind"] == kind) & timed, span_s, analysis)
        for kind in np.unique(table["kind"]).tolist()
        if kind in list(StepKind)
    ]
    phases.sort(key=lambda phase: -phase.seconds)
    for name, seconds in (("between steps", between.sum()), ("not recorded", unrecorded.sum())):
        if name == "between steps" or seconds > 0:
            phases.append(Phase(name, 0, float(seconds), _ratio(float(seconds), span_s) or 0.0))
    windows, invalid = _windows(analysis)
    return Summary(
        steps=len(table),
        span_s=span_s,
        phases=tuple(phases),
        decode_by_batch=_decode_by_batch(table, timed, span_s, analysis),
        host_s={name: float(table[name][table.where(name)].sum()) for name in HOST if name in table.columns},
        spreads={name: spread for name in SPREADS if (spread := _spread(table, name)) is not None},
        totals={name: _total(table, name) for name in TOTALS},
        ratios=_ratios(table, span_s, kv_blocks),
        events=dict(Counter(event.name for event in events)),
        clock_jumps_s=tuple(_jumps(events)),
        windows=windows,
        invalid_windows=invalid,
        below_floor_steps=int(analysis.below_floor.sum()) if analysis is not None else 0,
        compared_steps=int(analysis.compared.sum()) if analysis is not None else 0,
        synchronous=synchronous,
        notes=analysis.notes if analysis is not None else (),
    )


def _decode_by_batch(table: StepTable, timed: Mask, span_s: float, analysis: StepAnalysis | None) -> tuple[Phase, ...]:
    rows = timed & (table["kind"] == StepKind.DECODE) & (table["requests"] > 0)
    batch = table["requests"]
    powers = np.floor(np.log2(np.maximum(batch, 1))).astype(np.int64)
    phases = []
    for power in np.unique(powers[rows]).tolist():
        first, last = 1 << power, (2 << power) - 1
        name = f"batch {first}" if first == last else f"batch {first} to {last}"
        phases.append(_phase(name, table, rows & (powers == power), span_s, analysis))
    return tuple(phases)


def _phase(name: str, table: StepTable, rows: Mask, span_s: float, analysis: StepAnalysis | None) -> Phase:
    seconds = np.maximum(table["observed_s"][rows], 0.0)
    return Phase(
        name=name,
        steps=int(rows.sum()),
        seconds=float(seconds.sum()),
        share_ratio=_ratio(float(seconds.sum()), span_s) or 0.0,
        query_tokens=int(table["query_tokens"][rows].sum()),
        generated_tokens=int(table["generated_tokens"][rows].sum()),
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
        mfu=float((analysis.mfu[rows] * analysis.observed_s[rows]).sum()) / observed_s,
        bound_steps={Bound(number).name.lower(): count for number, count in sorted(bounds.items())},
    )


def _jumps(events: Sequence[RingEvent]) -> Iterator[float]:
    for event in events:
        jump_s = event.detail.get("jump_s")
        if event.name == "clock_jump" and isinstance(jump_s, int | float):
            yield float(jump_s)


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


def _total(table: StepTable, name: str) -> int | None:
    """The sum over steps; None where the column is not known for all of them."""
    return int(table[name].sum()) if table.has(name) else None


def _ratio(part: float | None, whole: float | None) -> float | None:
    return None if part is None or not whole else part / whole


def _ratios(table: StepTable, span_s: float, kv_blocks: int | None) -> dict[str, float | None]:
    generated, prompt = _total(table, "generated_tokens"), _total(table, "prompt_tokens")
    local, external = _total(table, "prefix_hit_local_tokens"), _total(table, "prefix_hit_external_tokens")
    used = _spread(table, "kv_blocks_used")
    hits = None if local is None or external is None else local + external
    return {
        "generated_tokens_per_s": _ratio(generated, span_s),
        "draft_acceptance": _ratio(_total(table, "accepted_tokens"), _total(table, "drafted_tokens")),
        "prefix_hit": _ratio(hits, prompt),
        "recomputed": _ratio(_total(table, "recomputed_tokens"), _total(table, "query_tokens")),
        "kv_used_p50": _ratio(used.p50 if used else None, kv_blocks),
        "kv_used_p90": _ratio(used.p90 if used else None, kv_blocks),
        "kv_used_max": _ratio(used.max if used else None, kv_blocks),
    }
