"""The vocabulary of watching live: windows, their figures, what a sidecar publishes; frozen, SI, None for not known."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from rooflens.calibration_records import Ceiling
from rooflens.device_records import DeviceView, WindowCounters
from rooflens.group_records import GroupView
from rooflens.model_records import HardwareSpec, RegimeFigures, StepAnalysis
from rooflens.records import EngineInfo, RingEvent, StepTable

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rooflens.findings import Finding
    from rooflens.metric_records import Sample


NOT_READ_YET = "not read yet"  # what a page says of itself before its first answer, which is no problem


class SourceKind(StrEnum):
    """Where an engine's steps come from.

    RING is the hook or the recorder, PUSH the recorder over HTTP, FEED the engine's own forward-pass messages, METRICS
    its /metrics page, LOG the lines that it writes.
    """

    RING = "ring"
    PUSH = "push"
    FEED = "feed"
    METRICS = "metrics"
    LOG = "log"

    @property
    def single_steps(self) -> bool:
        """Whether each row of its tables is one step; of the others a row may stand for an interval of many."""
        return self in (SourceKind.RING, SourceKind.PUSH, SourceKind.FEED)


class State(StrEnum):
    """How an engine is doing, as far as its source tells.

    LIVE: its ring is held, or its page answers. ENDED: closed in order. DIED: gone without a word.
    UNREACHABLE: its page does not answer now, or something else answers there. STANDBY: its page is left aside because
    its ring, or another page that tells of the same engine, is read.
    """

    LIVE = "live"
    ENDED = "ended"
    DIED = "died"
    UNREACHABLE = "unreachable"
    STANDBY = "standby"


@dataclass(frozen=True, slots=True)
class Derived:
    """A value that was computed from others and not read: with its bounds and, in words, how it was computed.

    ``unit`` is an SI unit, "1" for a ratio, "" for a count; ``low`` and ``high`` are hard bounds where the
    derivation says so, else None.
    """

    name: str
    value: float
    unit: str
    derivation: str
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Load:
    """What an engine holds at one moment, later than any step that was read; counts, None for not known.

    ``waiting`` is for capacity, as in a step.
    """

    monotonic_s: float
    running: float | None = None
    waiting: float | None = None
    deferred: float | None = None
    kv_blocks_used: float | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """Whether an engine moves, at one moment; ages in seconds.

    ``open_age_s``, ``open_tokens`` and ``open_requests`` describe the oldest step that was handed to the executor
    and has not come back; None where none is open, or the source cannot see it. ``still_s`` is how long requests
    have been running or waiting for capacity while nothing was counted: None where the source cannot tell, 0 where it
    moves or all that wait are deferred.
    ``idle_s`` is how long the engine has had no request at all, as far as it was watched: 0 where it has one, None
    where the source cannot tell. ``asleep`` is whether the engine was put to sleep or paused and has not woken.
    ``load`` is what it holds now, None where only its steps tell. ``steps_made`` and ``mean_step_s`` are of its whole
    life, what nobody watched included: None where the source does not count it.
    """

    state: State
    open_age_s: float | None = None
    open_tokens: int | None = None
    open_requests: int | None = None
    still_s: float | None = None
    asleep: bool = False
    idle_s: float | None = None
    load: Load | None = None
    steps_made: int | None = None
    mean_step_s: float | None = None


@dataclass(frozen=True, slots=True)
class Window:
    """A stretch of one engine's steps, at least as long as WindowSettings say, with the bounds beside them.

    ``analysis`` has one row for each row of ``steps``; None, with ``problem`` saying why in one line, where there
    are no bounds. ``complaints`` are what the source found wrong with what it read in this stretch, in words
    (a counter that went down, a series given twice). ``whole`` is False for a window that was cut short: the
    engine ended, or made too few steps. ``rested_s`` is the time between the rows of a page for which it told that
    there were no requests. ``counters`` are those of its devices, None without any.
    """

    info: EngineInfo | None
    source: SourceKind
    start_unix_s: float
    end_unix_s: float
    start_monotonic_s: float
    end_monotonic_s: float
    steps: StepTable
    analysis: StepAnalysis | None
    problem: str | None = None
    events: tuple[RingEvent, ...] = ()
    lost_steps: int = 0
    torn_steps: int = 0
    derived: tuple[Derived, ...] = ()
    complaints: tuple[str, ...] = ()
    whole: bool = True
    rested_s: float = 0.0
    counters: WindowCounters | None = None


@dataclass(frozen=True, slots=True)
class KindFigures:
    """The steps of one kind in a window; sums over the steps unless a name says mean or a percentile.

    ``steps`` counts engine steps (a row read from a metrics page stands for several), ``compared_steps`` those that
    could be compared with their floor. Of these are ``floor_s``, ``expected_s`` (the floor with the experts that
    uniform routing reads), ``reachable_s`` (what a well-tuned engine takes), ``usual_s`` (what such steps took in
    earlier windows of this engine) and ``compared_s`` (observed time); None where that is not known.
    """

    steps: int
    observed_s: float
    step_p50_s: float | None
    step_p99_s: float | None
    step_max_s: float | None
    batch_mean: float | None
    query_tokens: int
    context_tokens_mean: float | None
    floor_s: float | None = None
    compared_s: float | None = None
    expected_s: float | None = None
    reachable_s: float | None = None
    usual_s: float | None = None
    compared_steps: int | None = None


@dataclass(frozen=True, slots=True)
class WindowFigures:
    """What a window amounts to; all that a view needs of it and most of what a rule needs.

    ``span_s`` is wall time from first to last, ``busy_s`` the observed time of its steps, ``between_s`` the time
    between steps while requests were there (None: a page does not tell it), ``idle_s`` without any (None: the engine
    does not tell its queue), ``not_recorded_s`` the time of which it is not known what it was.
    ``kinds`` is by StepKind name in lower case. Ratios are 0 to 1: ``mbu`` and ``mfu`` over the compared steps,
    ``kv_used_mean`` and ``kv_used_max`` of the pool. ``waiting_share`` is the part of the steps after which
    requests waited for capacity. ``bound_s`` splits the compared floor by what set it (memory, compute, link);
    ``expected_s`` and ``reachable_s`` are of the same steps, as in KindFigures.
    """

    start_unix_s: float
    end_unix_s: float
    steps: int
    span_s: float
    busy_s: float
    between_s: float | None
    idle_s: float | None
    kinds: Mapping[str, KindFigures] = field(default_factory=dict)
    generated_tokens: int | None = None
    prefill_tokens: int | None = None
    recomputed_tokens: int | None = None
    preempted: int | None = None
    batch_mean: float | None = None
    batch_max: int | None = None
    running_mean: float | None = None
    running_max: float | None = None
    waiting_mean: float | None = None
    waiting_share: float | None = None
    deferred_mean: float | None = None
    oldest_wait_max_s: float | None = None
    kv_used_mean: float | None = None
    kv_used_max: float | None = None
    context_tokens_mean: float | None = None
    floor_s: float | None = None
    compared_s: float | None = None
    mbu: float | None = None
    mfu: float | None = None
    bound_s: Mapping[str, float] = field(default_factory=dict)
    weight_bytes: float | None = None
    kv_bytes: float | None = None
    flops: float | None = None
    not_recorded_s: float = 0.0
    expected_s: float | None = None
    reachable_s: float | None = None
    counters: WindowCounters | None = None


@dataclass(frozen=True, slots=True)
class SourceHealth:
    """How one source is doing: ``name`` is a ring's file name or a page's address.

    The address has no credentials and no query, and its path only where that is not /metrics.
    ``problem`` is one line, None while it is well. ``last_read_unix_s`` is the last read that brought something.
    """

    name: str
    kind: SourceKind
    state: State
    engines: int = 0
    last_read_unix_s: float | None = None
    read_s: float | None = None
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class EngineView:
    """One engine as a view sees it; ``engine`` is its label, unique together with ``model_name``.

    ``windows`` are the figures of the last windows, oldest first, at most six. ``findings`` are those that fire,
    those cleared within the last windows, and the rules' cannot_tell, in that order. ``recent`` are its last
    steps, at most 512, with ``recent_analysis`` row by row beside them where there are bounds. ``regimes`` are what
    its windows taught about each regime of its steps. ``ceilings`` are the roofs of one of its devices, those that are
    only shown included; ``device_uuids`` the devices that it is known to run on. ``recent_dram_bytes`` works out
    what these counted, apportioned to the recent steps and measured of none: NaN where not known, None where of all.
    """

    model_name: str
    engine: str
    source: SourceKind
    state: State
    info: EngineInfo | None
    hardware: HardwareSpec | None
    first_seen_unix_s: float
    last_step_unix_s: float | None
    windows: tuple[WindowFigures, ...]
    findings: tuple[Finding, ...]
    recent: StepTable
    recent_analysis: StepAnalysis | None
    problem: str | None = None
    progress: Progress | None = None
    derived: tuple[Derived, ...] = ()
    regimes: tuple[RegimeFigures, ...] = ()
    ceilings: tuple[Ceiling, ...] = ()
    device_uuids: tuple[str, ...] = ()
    recent_dram_bytes: Callable[[], NDArray[Any] | None] | None = None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All that an exporter or a view may see, published by one assignment; ``number`` counts up from 1.

    ``loop_s`` is what the last turn of the loop cost. ``problems`` are what hinders the sidecar as a whole,
    one line each with the next step. ``groups`` are those of the engines that belong together.
    """

    number: int
    created_unix_s: float
    started_unix_s: float
    loop_s: float
    version: str
    engines: tuple[EngineView, ...] = ()
    sources: tuple[SourceHealth, ...] = ()
    samples: tuple[Sample, ...] = ()
    problems: tuple[str, ...] = ()
    devices: tuple[DeviceView, ...] = ()
    groups: tuple[GroupView, ...] = ()
