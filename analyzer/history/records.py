"""The figures of a recording over time, as the reports show them; SI units, None for not known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rooflens.analyzer.figures import Phase

HISTORY_SCHEMA = 1
REACHABLE, EXPECTED, MIXED = "reachable", "expected", "mixed"


@dataclass(frozen=True, slots=True)
class Amounts:
    """Sums and means over some steps.

    ``span_s`` is from the begin of the first step to the last output, but not less than an engine was busy.
    ``step_p50_s`` and ``step_p90_s`` are of single steps, off by one bin of the histogram at most. Ratios ``x_`` are
    observed over the bound, each over the steps of which that bound is known. ``wasted_s`` is what ``wasted_of_s``
    busy seconds had above ``waste_basis``: what is reachable, or the expected floor where that is not known.
    """

    rows: int
    steps: int
    first_unix_s: float | None
    last_unix_s: float | None
    span_s: float
    observed_s: float | None
    step_mean_s: float | None
    step_max_s: float | None
    step_p50_s: float | None
    step_p90_s: float | None
    requests_mean: float | None
    context_mean_tokens: float | None
    generated_tokens: float | None
    prefill_tokens: float | None
    query_tokens: float | None
    recomputed_tokens: float | None
    drafted_tokens: float | None
    accepted_tokens: float | None
    preempted: float | None
    waiting_mean: float | None
    queued_ratio: float | None
    kv_used_ratio: float | None
    kv_used_max_ratio: float | None
    compared_steps: int
    compared_s: float | None
    floor_s: float | None
    expected_s: float | None
    reached_s: float | None
    reachable_s: float | None
    x_floor: float | None
    x_expected: float | None
    x_reachable: float | None
    mbu: float | None
    mfu: float | None
    below_floor_steps: int
    wasted_s: float | None
    wasted_of_s: float | None
    waste_basis: str | None
    schedule_s: float | None
    update_s: float | None
    executor_s: float | None
    wait_s: float | None
    device_s: float | None


@dataclass(frozen=True, slots=True)
class EngineHistory:
    """One engine. ``held_device_s`` is its span on all of its devices, idle time included: what is paid for; None where
    only some of its steps were chosen. ``problem`` is why nothing is told of its bounds; ``measurement_invalid`` is
    whether that is because it was faster than possible. ``tokens_per_s`` are generated tokens over its span.
    """

    label: str
    model_name: str
    engine: str
    host: str
    run: str
    source: str
    devices: int
    hardware: str | None
    engine_name: str | None
    engine_version: str | None
    weights: str | None
    kv: str | None
    problem: str | None
    wasted_device_s: float | None
    busy_device_s: float | None
    held_device_s: float | None
    amounts: Amounts
    measurement_invalid: bool = False
    tokens_per_s: float | None = None


@dataclass(frozen=True, slots=True)
class WindowPoint:
    """All engines in one window. Rates are over ``seconds``: all of it, of the first and the last window the part that
    was recorded, or the time of its steps where that is longer; None where too little was recorded to tell a rate.

    ``slowdown`` is observed time over the basis of each engine's waste.
    """

    start_unix_s: float
    seconds: float
    engines: int
    steps: int
    steps_per_s: float | None
    tokens_per_s: float | None
    batch: float | None
    step_mean_s: float | None
    step_max_s: float | None
    slowdown: float | None
    mbu: float | None
    mfu: float | None
    waiting: float | None
    kv_used_ratio: float | None
    wasted_device_s: float | None


@dataclass(frozen=True, slots=True)
class WorstWindow:
    """One engine in one window that cost much: ``term`` is what most of its loss is beside, ``usual`` the slowdown
    that this engine has elsewhere at the same regimes, or at all where these were seen too seldom.

    ``above_usual_device_s`` is what it took above that; ``share_ratio`` is of all that was wasted by anybody.
    """

    engine: str
    start_unix_s: float
    seconds: float
    wasted_device_s: float
    above_usual_device_s: float | None
    share_ratio: float | None
    phase: str
    term: str
    slowdown: float | None
    usual: float | None
    step_max_s: float | None
    text: str


@dataclass(frozen=True, slots=True)
class ChangePoint:
    """The time of a step, relative to its bound, moved by ``factor`` at ``at_unix_s``, in the named regimes.

    The moment lies between ``from_unix_s`` and ``to_unix_s``, the factor between low and high, each with 95 %.
    ``confidence`` is 1 less the chance that any series of the report shows as much by noise. ``cost_device_s`` is what
    the change cost from then to the next one, negative where it saved.
    """

    engine: str
    at_unix_s: float
    from_unix_s: float
    to_unix_s: float
    regimes: tuple[str, ...]
    factor: float
    factor_low: float
    factor_high: float
    confidence: float
    cost_device_s: float | None
    text: str
    kind: str = "step"  # "drift", or "mix" where the traffic moved with it


@dataclass(frozen=True, slots=True)
class Happening:
    """An event of an engine: a restart, a sleep, a clock that was set, steps that were lost."""

    unix_s: float
    engine: str
    name: str
    text: str = ""


@dataclass(frozen=True, slots=True)
class StoodFinding:
    """A finding as it stood in the period; ``until_unix_s`` is None while it was not seen to end."""

    unix_s: float
    until_unix_s: float | None
    engine: str
    code: str
    severity: str
    status: str
    summary: str


@dataclass(frozen=True, slots=True)
class Cost:
    """What the period cost. Money is in the user's currency; energy only of devices whose counters were recorded.

    ``energy_ratio`` is the part of the engines' devices of which energy is known.
    """

    busy_device_s: float | None
    held_device_s: float | None
    wasted_device_s: float | None
    device_s_per_million_tokens: float | None
    price_per_device_hour: float | None
    money: float | None
    wasted_money: float | None
    money_per_million_tokens: float | None
    energy_j: float | None
    energy_j_per_million_tokens: float | None
    energy_ratio: float | None


@dataclass(frozen=True, slots=True)
class WhatIfPart:
    """Captured steps of one kind under a change.

    ``new_low_s`` and ``new_high_s`` are the new busy time where what lay above reachable scales with the step, or
    stays as it is.
    """

    name: str
    steps: float
    observed_s: float
    reachable_now_s: float
    reachable_then_s: float
    new_low_s: float
    new_high_s: float
    tokens: float | None
    tokens_per_s_now: float | None
    tokens_per_s_low: float | None
    tokens_per_s_high: float | None


@dataclass(frozen=True, slots=True)
class WhatIfAnswer:
    """One what-if. ``fits`` is whether the caches at their fullest still fit beside the weights, None if not known.

    ``pool_bytes`` and ``needed_bytes`` are of the device that is tightest. ``skipped_steps`` have no bounds, before or
    under the change, and are left out on both sides.
    """

    change: str
    kinds: tuple[WhatIfPart, ...]
    total: WhatIfPart | None
    fits: bool | None
    pool_bytes: float | None
    needed_bytes: float | None
    devices_now: int
    devices_then: int
    saved_device_s: tuple[float, float] | None
    saved_money: tuple[float, float] | None
    skipped_steps: float
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class History:
    """A recording over time: see the fields' own types. ``basis`` is what slowdown and waste are against.

    ``silent_s`` is the time of whole windows that no step of any engine touches, None where that cannot be told;
    ``lost_steps`` are those that the recording says it lost.
    """

    from_unix_s: float
    to_unix_s: float
    span_s: float
    window_s: float
    engines_known: int
    hosts: tuple[str, ...]
    lost_steps: int
    silent_s: float | None
    totals: Amounts
    engines: tuple[EngineHistory, ...]
    phases: tuple[Phase, ...]
    decode_by_batch: tuple[Phase, ...]
    time_line: tuple[WindowPoint, ...]
    basis: str | None
    engine_windows: Mapping[str, Sequence[float | int | None]]
    worst_windows: tuple[WorstWindow, ...]
    change_points: tuple[ChangePoint, ...]
    change_rule: str
    cost: Cost
    events: tuple[Happening, ...] = ()
    findings: tuple[StoodFinding, ...] = ()
    what_ifs: tuple[WhatIfAnswer, ...] = ()
    chosen: Mapping[str, object] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    schema: int = HISTORY_SCHEMA
