"""Every metric that rooflens publishes, once: name, unit, kind, help, labels and how to read it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from rooflens.findings import Code, Severity
from rooflens.records import StepKind

PREFIX = "rooflens_"
ENGINE_LABELS = ("model_name", "engine")


class Kind(StrEnum):
    """The kinds of the Prometheus exposition; INFO is a gauge that is always 1 and carries facts as labels."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
    INFO = "info"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric. ``name`` is as Prometheus shows it, with the unit and, of a counter, `_total`.

    ``unit`` is seconds, bytes, ratio or empty for a count. ``values`` closes the set of a label where it is closed
    (``model_name`` and ``engine`` are not: they are what is served here). ``buckets`` are upper bounds in the unit.
    ``reading`` says what to do with it, PromQL first.
    """

    name: str
    kind: Kind
    unit: str
    help: str
    labels: tuple[str, ...]
    reading: str
    values: Mapping[str, tuple[str, ...]] = field(default_factory=dict, hash=False, compare=False)
    buckets: tuple[float, ...] = ()


STEP_KINDS = tuple(kind.name.lower() for kind in StepKind)
# Where every second of an engine's life goes: these add up to the time that was watched.
TIME_PARTS = ("memory", "compute", "link", "beyond_floor", "not_modelled", "between_steps", "idle", "not_recorded")
TOKEN_KINDS = ("prefill", "generated", "drafted", "accepted", "recomputed", "discarded", "prefix_hit")
BYTE_KINDS = ("weights", "kv_read", "kv_write")
CODES = tuple(str(code) for code in Code)
SEVERITIES = tuple(str(severity) for severity in Severity)
# Half-octaves from 1 ms to 16 s: a quantile is off by a fifth at most.
STEP_BUCKETS_S = tuple(round(2.0 ** (half / 2), 9) for half in range(-20, 9))


def _engine(
    name: str, kind: Kind, unit: str, text: str, reading: str, *labels: str,
    values: Mapping[str, tuple[str, ...]] | None = None, buckets: tuple[float, ...] = (),
) -> Metric:  # fmt: skip
    """A metric of one engine: model_name and engine come first."""
    return Metric(PREFIX + name, kind, unit, text, (*ENGINE_LABELS, *labels), reading, values or {}, buckets)


C, G, H, I = Kind.COUNTER, Kind.GAUGE, Kind.HISTOGRAM, Kind.INFO  # noqa: E741

STEPS = _engine(
    "steps_total", C, "", "Engine steps.",
    "`rate()` is steps a second.", "kind", values={"kind": STEP_KINDS},
)  # fmt: skip
STEP_SECONDS = _engine(
    "step_duration_seconds", H, "seconds", "Busy time of a step, from submit (or the output before it) to its output.",
    "`histogram_quantile()`; with kind=\"decode\" this is TPOT without the time between steps.", "kind",
    values={"kind": STEP_KINDS}, buckets=STEP_BUCKETS_S,
)  # fmt: skip
TIME = _engine(
    "time_seconds_total", C, "seconds", "Watched time, split by where it went; the parts add up to it.",
    "The share of a part is its `rate()`. memory, compute and link are the floor by what set it, beyond_floor is what "
    "the steps took above it, not_modelled are steps without a floor.", "part", values={"part": TIME_PARTS},
)  # fmt: skip
TOKENS = _engine(
    "tokens_total", C, "", "Tokens, by what became of them.",
    "`rate()` is tokens a second; recomputed over prefill is what preemption costs.", "kind",
    values={"kind": TOKEN_KINDS},
)  # fmt: skip
BYTES = _engine(
    "model_bytes_total", C, "bytes", "Bytes that the model had to move in the steps with a floor.",
    "`rate()` over rooflens_hardware_bandwidth_bytes_per_second is MBU of any window, idle time included.", "kind",
    values={"kind": BYTE_KINDS},
)  # fmt: skip
FLOPS = _engine(
    "model_flops_total", C, "", "Arithmetic operations that the model had to do in the steps with a floor.",
    "`rate()` over rooflens_hardware_flops_per_second is MFU of any window, idle time included.",
)  # fmt: skip
COMPARED = _engine(
    "compared_seconds_total", C, "seconds", "Observed time of the steps with a floor.",
    "Busy MBU is the `rate()` of rooflens_memory_floor_seconds_total over the `rate()` of this.",
)  # fmt: skip
FLOOR = _engine(
    "floor_seconds_total", C, "seconds", "Shortest time that the hardware allows for the steps with a floor.",
    "`rate()` of rooflens_compared_seconds_total over `rate()` of this is the factor above the floor.",
)  # fmt: skip
MEMORY_FLOOR = _engine(
    "memory_floor_seconds_total", C, "seconds", "Time that the bytes of the steps with a floor take at full bandwidth.",
    "Over rooflens_compared_seconds_total: MBU while busy.",
)  # fmt: skip
BATCH_SUM = _engine(
    "batch_requests_total", C, "", "Sequences in the steps, summed.",
    "`rate()` over the `rate()` of rooflens_steps_total, both summed over kinds, is the mean batch.",
)  # fmt: skip
CONTEXT_SUM = _engine(
    "context_tokens_total", C, "", "Tokens in the KV cache before each step, summed over sequences and steps.",
    "`rate()` over the `rate()` of rooflens_batch_requests_total is the mean context of a sequence.",
)  # fmt: skip
PREEMPTIONS = _engine(
    "preemptions_total", C, "", "Requests preempted.", "Anything above zero is work done twice.",
)  # fmt: skip
FINISHED = _engine(
    "requests_finished_total", C, "", "Requests that ended, for any reason.", "`rate()` is requests a second."
)
HOOK = _engine(
    "hook_seconds_total", C, "seconds", "What capturing the steps cost the engine's own process.",
    "`rate()` is the share of a core; absent without the hook.",
)  # fmt: skip
LOST = _engine(
    "lost_steps_total", C, "", "Steps that were not read: overwritten first, or their check sum was wrong.",
    "Above zero: sums and rates miss these steps.",
)  # fmt: skip
RESTARTS = _engine(
    "engine_restarts_total", C, "", "Times that another run of the engine took this label.",
    "`increase()` above zero marks a restart.",
)  # fmt: skip
FINDING_COST = _engine(
    "finding_cost_seconds_total", C, "seconds", "Engine time that the cause of a finding cost while it fired.",
    "`rate()` is the share of the engine that the change would give back.", "code", values={"code": CODES},
)  # fmt: skip
FINDINGS_RAISED = _engine(
    "findings_total", C, "", "Times that a finding began to fire.", "`increase()` over a day shows what flaps.", "code",
    values={"code": CODES},
)  # fmt: skip

ENGINE_UP = _engine(
    "engine_up", G, "", "1 while the engine's source is read and the engine lives, else 0.", "Alert on 0 with `for`.",
)  # fmt: skip
ENGINE_INFO = _engine(
    "engine_info", I, "", "Facts of the engine as labels.", "Join with `* on (model_name, engine) group_left(...)`.",
    "engine_kind", "engine_version", "source", "hardware", values={"source": ("ring", "metrics")},
)  # fmt: skip
RUNNING = _engine(
    "requests_running",
    G,
    "",
    "Requests in the batch at the last step.",
    "Beside the cap it says whether batching is held down.",
)
WAITING = _engine(
    "requests_waiting",
    G,
    "",
    "Requests that wait for capacity at the last step.",
    "Above zero for long: look at the findings.",
)
DEFERRED = _engine(
    "requests_deferred",
    G,
    "",
    "Requests that wait for something else than capacity.",
    "Remote KV, a grammar, more input.",
)
KV_USED = _engine(
    "kv_used_ratio",
    G,
    "ratio",
    "Part of the KV blocks that requests hold.",
    "High is good until requests wait or are preempted.",
)
BATCH = _engine(
    "batch_requests",
    G,
    "",
    "Mean sequences a step over the last window.",
    "For a glance; over any window use rooflens_batch_requests_total.",
)
CONTEXT = _engine(
    "context_tokens", G, "", "Mean context of a sequence over the last window, in tokens.", "For a glance."
)
MBU = _engine(
    "mbu_ratio",
    G,
    "ratio",
    "Memory bandwidth utilisation of the steps of the last window.",
    "For a glance; over any window use the counters.",
)
MFU = _engine(
    "mfu_ratio",
    G,
    "ratio",
    "Model flops utilisation of the steps of the last window.",
    "For a glance; over any window use the counters.",
)
FLOOR_FACTOR = _engine(
    "observed_over_floor",
    G,
    "",
    "Observed time over the floor in the last window.",
    "Below 1 cannot be: see measurement_invalid.",
)
BANDWIDTH = _engine(
    "hardware_bandwidth_bytes_per_second", G, "bytes", "Memory bandwidth of the engine's devices that the floor uses.",
    "The roof of rooflens_model_bytes_total.", "origin", values={"origin": ("datasheet", "measured")},
)  # fmt: skip
PEAK_FLOPS = _engine(
    "hardware_flops_per_second", G, "", "Peak rate of the engine's devices by number format.",
    "The roof of rooflens_model_flops_total for the format that the model computes in.", "format", "origin",
    values={"origin": ("datasheet", "measured")},
)  # fmt: skip
FINDING_ACTIVE = _engine(
    "finding_active", G, "", "1 while a finding fires, else 0.", "Alert on it with `for`; a rule's cannot_tell is 0.",
    "code", "severity", values={"code": CODES, "severity": SEVERITIES},
)  # fmt: skip
SOURCES_UP = Metric(
    PREFIX + "sources_up", G, "", "Sources that are being read, by kind.", ("source",), "Falls when an engine ends.",
    {"source": ("ring", "metrics")},
)  # fmt: skip
SOURCE_FAILURES = Metric(
    PREFIX + "source_failures_total", C, "", "Reads of a source that failed.", ("source",),
    "`rate()` above zero: /api/v1/engines says what is wrong.", {"source": ("ring", "metrics")},
)  # fmt: skip
LOOP_SECONDS = Metric(
    PREFIX + "loop_seconds_total", C, "seconds", "What reading, analysing and publishing cost the sidecar.", (),
    "`rate()` is the share of a core.",
)  # fmt: skip
SIDECAR_INFO = Metric(
    PREFIX + "sidecar_info", I, "", "Facts of the sidecar as labels.", ("version",), "Which version runs where."
)

CATALOGUE: tuple[Metric, ...] = (
    STEPS, STEP_SECONDS, TIME, TOKENS, BYTES, FLOPS, COMPARED, FLOOR, MEMORY_FLOOR, BATCH_SUM, CONTEXT_SUM, PREEMPTIONS,
    FINISHED, HOOK, LOST, RESTARTS, FINDING_COST, FINDINGS_RAISED, ENGINE_UP, ENGINE_INFO, RUNNING, WAITING, DEFERRED,
    KV_USED, BATCH, CONTEXT, MBU, MFU, FLOOR_FACTOR, BANDWIDTH, PEAK_FLOPS, FINDING_ACTIVE, SOURCES_UP,
    SOURCE_FAILURES, LOOP_SECONDS, SIDECAR_INFO,
)  # fmt: skip
