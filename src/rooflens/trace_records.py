"""The vocabulary of traces on disk and of what is asked of them; frozen, SI units, None for not known."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

from rooflens.live_records import SourceKind
from rooflens.model_records import HardwareSpec, StepAnalysis
from rooflens.records import EngineInfo, RingEvent, StepTable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from rooflens.device_records import DeviceFacts, DeviceSample
    from rooflens.findings import Finding

TRACE_SCHEMA = 1  # of the columns and the metadata; it rises when a reader of before would misread them
METADATA_KEY = b"rooflens"  # of a Parquet file's footer: JSON, see collector.trace.file.Footer
FACTS_DIGITS = 12
RUN_DIGITS = 16  # hex, of the name of a run


class TraceTable(StrEnum):
    """What a trace holds, each in a folder of that name: ``<table>/host=H/date=YYYY-MM-DD/hour=HH/<file>.parquet``."""

    STEPS = "steps"
    EVENTS = "events"
    COUNTERS = "counters"


# Columns of a step in a trace that are not columns of a StepTable: name, Arrow type, what it is.
KEY_COLUMNS: tuple[tuple[str, str, str], ...] = (
    ("facts", "string", "which of the facts in the file's metadata are this row's engine's"),
    ("run", "string", "one run of one engine; with sequence it names a step"),
)
# The bounds of the step as they were computed when it was captured; all of them NULL where there were none.
ROOF_COLUMNS: tuple[tuple[str, str, str], ...] = (
    ("bound", "int8", "Bound: 0 memory, 1 compute, 2 link sets the floor"),
    ("floor_s", "double", "strict lower bound"),
    ("expected_s", "double", "the floor with the experts that uniform routing reads"),
    ("reachable_s", "double", "what a well-tuned engine takes; NULL where that is not known"),
    ("memory_s", "double", "memory side of the floor"),
    ("compute_s", "double", "compute side of the floor"),
    ("link_floor_s", "double", "link side of the floor"),
    ("serial_floor_s", "double", "dependent operators without overlap"),
    ("link_s", "double", "time on links, beside serial_floor_s"),
    ("weight_bytes", "double", "weights read, all devices together"),
    ("kv_read_bytes", "double", "KV cache read, all devices together"),
    ("kv_write_bytes", "double", "KV cache written, all devices together"),
    ("flops", "double", "arithmetic, all devices together"),
    ("mfu", "double", "model FLOP utilisation, a ratio; NULL where the hardware states no rate"),
)
# Once a second the step's own rows, for what-if: tokens in the KV cache before the step and tokens computed.
KEYFRAME_COLUMNS: tuple[tuple[str, str, str], ...] = (
    ("keyframe_contexts", "list<int32>", "of each sequence the tokens in its KV cache before the step"),
    ("keyframe_queries", "list<int32>", "of each sequence the tokens computed, in the same order"),
)


@dataclass(frozen=True, slots=True)
class TraceFacts:
    """What the rows with one ``facts`` digest have in common: the engine as it was then, and its roof.

    ``engine`` and ``model_name`` are the labels under which the sidecar showed it, ``host`` where its source was read,
    ``run`` 16 hex digits of one run. ``roof_version`` is the rooflens that computed the bounds; ``problem`` why there
    are none. ``devices`` are the devices of the engine together.
    """

    run: str
    host: str
    model_name: str
    engine: str
    source: SourceKind
    info: EngineInfo | None = None
    hardware: HardwareSpec | None = None
    devices: int = 1
    roof_version: str | None = None
    problem: str | None = None

    @property
    def label(self) -> str:
        """How a person names it: model/engine@host."""
        return f"{self.model_name}/{self.engine}@{self.host}"

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready dict; unknown fields are left out."""
        data = asdict(self) | {"source": str(self.source), "info": self.info.to_json() if self.info else None}
        return {name: value for name, value in data.items() if value is not None}

    @property
    def digest(self) -> str:
        """The same for the same facts, in every process."""
        words = json.dumps(self.to_json(), sort_keys=True, default=str)
        return hashlib.sha256(words.encode()).hexdigest()[:FACTS_DIGITS]


def run_of_ring(name: str, created_unix_ns: int) -> str:
    """One run for good: the same ring has it in every sidecar, before and after a restart."""
    return hashlib.sha256(f"{name}\n{created_unix_ns}".encode()).hexdigest()[:RUN_DIGITS]


@dataclass(frozen=True, slots=True)
class TraceRows:
    """Steps of one engine on their way into a trace, with their bounds row by row and its keyframes by row."""

    facts: TraceFacts
    steps: StepTable
    analysis: StepAnalysis | None = None
    keyframes: Mapping[int, tuple[Sequence[int], Sequence[int]]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TraceEvents:
    """What is no step: events of one engine's ring, and its findings when they began, changed or ended."""

    facts: TraceFacts
    events: tuple[tuple[float, RingEvent], ...] = ()  # each with its Unix seconds
    findings: tuple[tuple[float, Finding], ...] = ()


@dataclass(frozen=True, slots=True)
class TraceCounters:
    """Samples of one device, each with the Unix seconds of its end; ``host`` is where it is."""

    host: str
    device: DeviceFacts
    samples: tuple[tuple[float, DeviceSample], ...] = ()


class TraceSink(Protocol):
    """Where the live wiring hands what is to be kept; never blocks, never raises: what finds no room is counted."""

    def put(self, item: TraceRows | TraceEvents | TraceCounters) -> None:
        """Take one item, or drop and count it."""
        ...


@dataclass(frozen=True, slots=True)
class TraceFilter:
    """Which steps are asked for.

    ``from_unix_s`` is included, ``to_unix_s`` is not. ``engines`` are patterns with * and ? against the label
    (model/engine@host), the engine or the run; a step of any of them is meant. ``where`` is an SQL condition over the
    columns of steps.
    """

    from_unix_s: float | None = None
    to_unix_s: float | None = None
    engines: tuple[str, ...] = ()
    where: str | None = None


# What a row of Cells is a cell of; all integer columns.
CELL_KEYS: tuple[tuple[str, str], ...] = (
    ("engine", "index into Cells.engines"),
    ("window", "number of the window: floor(unix_s / width_s)"),
    ("kind", "StepKind"),
    ("batch_log2", "power of two of the sequences of a step"),
    ("context_log4", "power of four of the mean context of a sequence, tokens"),
    ("devices", "devices of the engine in the run that made the steps"),
)
# Sums over the steps of a cell, unless the text says otherwise. NaN where no step of the cell knows the value.
# ``compared`` are the steps with observed time and bounds; what is summed over these begins with compared_.
CELL_SUMS: tuple[tuple[str, str], ...] = (
    ("rows", "rows"),
    ("steps", "engine steps: a row of an interval stands for several"),
    ("first_unix_s", "smallest unix_s"),
    ("last_unix_s", "largest unix_s"),
    ("begun_unix_s", "smallest unix_s less the busy time of its row"),
    ("observed_steps", "engine steps whose observed time is known"),
    ("observed_s", "busy time"),
    ("observed_max_s", "largest busy time of one step, of rows that are one step"),
    ("averaged_steps", "of the observed, those in rows that stand for several: only their mean is known"),
    ("compared_steps", "engine steps that can be compared with their bounds"),
    ("compared_observed_s", "their busy time"),
    ("compared_floor_s", "their floors"),
    ("compared_expected_s", "their expected floors"),
    ("compared_memory_s", "memory sides of their floors"),
    ("compared_compute_s", "compute sides"),
    ("compared_link_floor_s", "link sides"),
    ("compared_serial_s", "serial_floor_s + link_s"),
    ("compared_link_s", "link_s"),
    ("compared_mfu_s", "mfu x observed_s"),
    ("mfu_observed_s", "busy time of those whose mfu is known"),
    ("memory_bound_steps", "of the compared, those that memory binds"),
    ("compute_bound_steps", "of the compared, those that compute binds"),
    ("link_bound_steps", "of the compared, those that the link binds"),
    ("below_floor_steps", "of the compared, those observed faster than their floor"),
    ("reached_steps", "compared steps for which reachable time is known"),
    ("reached_observed_s", "their busy time"),
    ("reachable_s", "their reachable time"),
    ("weight_bytes", "weights read"),
    ("kv_read_bytes", "KV cache read"),
    ("kv_write_bytes", "KV cache written"),
    ("flops", "arithmetic"),
    ("requests", "sequences"),
    ("requests_steps", "engine steps whose sequences are known"),
    ("query_tokens", "tokens computed"),
    ("prefill_tokens", "of these, of prompts"),
    ("generated_tokens", "tokens that reached the requests"),
    ("generated_steps", "engine steps of which they are known"),
    ("drafted_tokens", "speculative tokens verified"),
    ("accepted_tokens", "of these, accepted"),
    ("recomputed_tokens", "computed again after a preemption"),
    ("context_tokens", "tokens in the KV cache before the step, where its sequences are known"),
    ("context_requests", "sequences whose context is known"),
    ("preempted", "requests preempted"),
    ("waiting_s", "waiting requests x busy time; a row of unknown or no time counts with 1 ns"),
    ("waiting_of_s", "the same time of the rows for which waiting is known"),
    ("queued_s", "the same time of the rows after which requests waited"),
    ("kv_ratio_s", "share of the KV blocks used x that time"),
    ("kv_ratio_of_s", "that time of the rows for which the share is known"),
    ("kv_ratio_max", "the largest share"),
    ("schedule_s", "host time in the scheduler"),
    ("update_s", "host time in the update"),
    ("executor_s", "host time in the executor's calls"),
    ("wait_s", "time waited for output"),
    ("device_s", "device time of the forward passes"),
    ("device_observed_s", "busy time of the rows whose device time is known"),
)


@dataclass(frozen=True, slots=True)
class Cells:
    """Steps summed by engine, window, kind and regime: all that reports of many steps are made of.

    ``columns`` holds one array of equal length for each name of CELL_KEYS (int64) and CELL_SUMS (float64).
    ``engines`` are the labels, ``facts`` the facts of each, of several the last. ``histogram`` counts the steps of
    known time by engine, kind and bin: columns engine, kind, bin, steps; a bin holds times from HISTOGRAM_BASE ** bin
    microseconds on.
    ``problems`` are one line each: files that could not be read, rows that were left out.
    """

    width_s: float
    engines: tuple[str, ...]
    facts: tuple[TraceFacts, ...]
    columns: Mapping[str, NDArray[Any]]
    histogram: Mapping[str, NDArray[np.int64]]
    files: int = 0
    problems: tuple[str, ...] = ()


HISTOGRAM_BASE = 1.02  # a quantile is off by at most one bin, 2 %
