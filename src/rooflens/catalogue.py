"""Every metric that rooflens publishes, once: name, unit, kind, help, labels and how to read it."""

from __future__ import annotations

from rooflens.device_metrics import DEVICE_CATALOGUE, ENGINE_DEVICE_CATALOGUE
from rooflens.findings import Code, Severity
from rooflens.group_records import GroupKind
from rooflens.metric_records import BY_INTERVALS, PREFIX, Kind, Metric, engine_metric
from rooflens.records import StepKind
from rooflens.trace_metrics import TRACE_CATALOGUE

STEP_KINDS = tuple(kind.name.lower() for kind in StepKind)
# Where every second of an engine's life goes: these add up to the time that was watched.
TIME_PARTS = ("memory", "compute", "link", "beyond_floor", "not_modelled", "between_steps", "idle", "not_recorded")
TOKEN_KINDS = ("prefill", "generated", "drafted", "accepted", "recomputed", "discarded", "prefix_hit")
BYTE_KINDS = ("weights", "kv_read", "kv_write")
SOURCES = ("ring", "push", "feed", "metrics", "log")
ORIGINS = ("datasheet", "measured")
GROUP_LABELS = ("model_name", "kind", "group")
GROUP_KINDS = tuple(str(kind) for kind in GroupKind)
CODES = tuple(str(code) for code in Code)
SEVERITIES = tuple(str(severity) for severity in Severity)
# Half-octaves from 1 ms to 16 s: a quantile is off by a fifth at most.
STEP_BUCKETS_S = tuple(float(f"{2.0 ** (half / 2):.4g}") for half in range(-20, 9))

# What the figures of a metrics page are worth.
KIND_OF_INTERVALS = (
    "Their sum is counted; a whole interval between two readings counts as mixed where a prompt was computed in it."
)
BY_KV_USE = (
    "Estimated from KV use at the ends of each interval: what came and went in between is missing, which with short "
    "requests may be half of it; a shared prefix counts once."
)
TIME_OF_PAGES = (
    "Estimated: the time of the steps is their number times the mean time between tokens. What is left of an interval "
    "is idle where nothing ran at both ends, else not_recorded; between_steps is absent."
)

C, G, H, I = Kind.COUNTER, Kind.GAUGE, Kind.HISTOGRAM, Kind.INFO  # noqa: E741

STEPS = engine_metric(
    "steps_total", C, "", "Engine steps.",
    "Steps a second: `sum without (kind) (rate(rooflens_steps_total[5m]))`.", "kind", values={"kind": STEP_KINDS},
    page=KIND_OF_INTERVALS,
)  # fmt: skip
STEP_SECONDS = engine_metric(
    "step_duration_seconds", H, "seconds", "Busy time of a step: from submit, or the output before it, to its output.",
    '`histogram_quantile(0.99, rate(rooflens_step_duration_seconds_bucket{kind="decode"}[5m]))`: with one token a step '
    "this is the time per output token, the time between steps left out.", "kind",
    values={"kind": STEP_KINDS}, buckets=STEP_BUCKETS_S,
    page="Absent: it tells the mean of many steps, of which no quantile follows.",
)  # fmt: skip
TIME = engine_metric(
    "time_seconds_total", C, "seconds", "Watched time by where it went; the parts add up to it.",
    "Share of a part: `rate(rooflens_time_seconds_total[5m]) / ignoring (part) group_left sum without (part) "
    "(rate(rooflens_time_seconds_total[5m]))`. memory, compute and link are the floor by what set it, beyond_floor is "
    "what those steps took above it, not_modelled are steps without a floor.", "part", values={"part": TIME_PARTS},
    page=TIME_OF_PAGES,
)  # fmt: skip
TOKENS = engine_metric(
    "tokens_total", C, "", "Tokens, by what became of them.",
    'Tokens a second: `rate(rooflens_tokens_total{kind="generated"}[5m])`. What preemption costs: '
    '`rate(rooflens_tokens_total{kind="recomputed"}[5m]) / ignoring (kind) '
    'rate(rooflens_tokens_total{kind="prefill"}[5m])`.', "kind", values={"kind": TOKEN_KINDS},
)  # fmt: skip
BYTES = engine_metric(
    "model_bytes_total", C, "bytes", "Bytes that the model had to move in the steps with a floor.",
    "MBU of any window, idle time included: `sum without (kind) (rate(rooflens_model_bytes_total[5m])) / "
    "ignoring (origin) rooflens_hardware_bandwidth_bytes_per_second`.", "kind", values={"kind": BYTE_KINDS},
    page=BY_INTERVALS,
)  # fmt: skip
FLOPS = engine_metric(
    "model_flops_total", C, "", "Floating-point operations that the model had to do in the steps with a floor.",
    "MFU of any window, idle time included: `rate(rooflens_model_flops_total[5m]) / ignoring (format, origin) "
    'rooflens_hardware_flops_per_second{format="bf16"}`, with the format that the model computes in.',
    page=BY_INTERVALS,
)  # fmt: skip
COMPARED = engine_metric(
    "compared_seconds_total", C, "seconds", "Observed time of the steps with a floor.",
    "Factor above the floor: `rate(rooflens_compared_seconds_total[5m]) / rate(rooflens_floor_seconds_total[5m])`.",
    page=BY_INTERVALS,
)  # fmt: skip
FLOOR = engine_metric(
    "floor_seconds_total", C, "seconds", "Shortest time that the hardware allows for the steps with a floor.",
    "Part of the observed time that the hardware needs: "
    "`rate(rooflens_floor_seconds_total[5m]) / rate(rooflens_compared_seconds_total[5m])`.",
    page=BY_INTERVALS,
)  # fmt: skip
EXPECTED = engine_metric(
    "expected_seconds_total", C, "seconds", "The floor with the experts that uniform routing reads; no bound.",
    "What the experts of a mixture are expected to add: "
    "`rate(rooflens_expected_seconds_total[5m]) / rate(rooflens_floor_seconds_total[5m])`; 1 without experts.",
    page=BY_INTERVALS,
)  # fmt: skip
REACHABLE = engine_metric(
    "reachable_seconds_total", C, "seconds", "What a well-tuned engine takes for the steps with a floor; no bound.",
    "Factor above what is reachable: "
    "`rate(rooflens_compared_seconds_total[5m]) / rate(rooflens_reachable_seconds_total[5m])`. Absent on hardware "
    "whose roof was measured. Not corrected by what this engine usually takes.",
    page=BY_INTERVALS,
)  # fmt: skip
MEMORY_FLOOR = engine_metric(
    "memory_floor_seconds_total", C, "seconds", "Time that the bytes of the steps with a floor take at full bandwidth.",
    "MBU while busy: `rate(rooflens_memory_floor_seconds_total[5m]) / rate(rooflens_compared_seconds_total[5m])`.",
    page=BY_INTERVALS,
)  # fmt: skip
BATCH_SUM = engine_metric(
    "step_requests_total", C, "", "Sequences in the steps, summed over the steps.",
    "Mean batch: `rate(rooflens_step_requests_total[5m]) / sum without (kind) (rate(rooflens_steps_total[5m]))`.",
)  # fmt: skip
CONTEXT_SUM = engine_metric(
    "step_context_tokens_total", C, "", "Tokens in the KV cache before each step, summed over sequences and steps.",
    "Mean context of a sequence: "
    "`rate(rooflens_step_context_tokens_total[5m]) / rate(rooflens_step_requests_total[5m])`.",
    page=BY_KV_USE,
)  # fmt: skip
PREEMPTIONS = engine_metric(
    "preemptions_total", C, "", "Requests preempted.",
    "`increase(rooflens_preemptions_total[1h])` above zero is work done twice.",
)  # fmt: skip
FINISHED = engine_metric(
    "requests_finished_total", C, "", "Requests that ended, for any reason.",
    "Requests a second: `rate(rooflens_requests_finished_total[5m])`.",
)  # fmt: skip
HOOK = engine_metric(
    "hook_seconds_total", C, "seconds", "What capturing the steps cost the engine's own process.",
    "Share of a core: `rate(rooflens_hook_seconds_total[5m])`. Absent without the hook.",
)  # fmt: skip
LOST = engine_metric(
    "lost_steps_total", C, "", "Steps that were not read: overwritten first, or their check sum was wrong.",
    "`increase(rooflens_lost_steps_total[1h])` above zero: the sums and rates miss these steps.",
)  # fmt: skip
RESTARTS = engine_metric(
    "engine_restarts_total", C, "", "Times that another run of the engine took this label.",
    "`increase(rooflens_engine_restarts_total[1h])` above zero marks a restart.",
)  # fmt: skip
FINDING_COST = engine_metric(
    "finding_cost_seconds_total", C, "seconds", "Engine time that the cause of a finding cost while it fired.",
    "Share of the engine that the change would give back: `rate(rooflens_finding_cost_seconds_total[1h])`. Costs of "
    "different codes overlap and do not add up.", "code", values={"code": CODES},
)  # fmt: skip
FINDINGS_RAISED = engine_metric(
    "findings_total", C, "", "Times that a finding began to fire.",
    "`increase(rooflens_findings_total[1d])` shows what flaps.", "code", values={"code": CODES},
)  # fmt: skip

ENGINE_UP = engine_metric(
    "engine_up", G, "", "1 while the engine lives and its source is read, else 0.",
    "Alert on `rooflens_engine_up == 0`: all other gauges of that engine but its facts are absent then.",
)  # fmt: skip
ENGINE_INFO = engine_metric(
    "engine_info", I, "", "Facts of the engine as labels.",
    "`rooflens_mbu_ratio * on (instance, model_name, engine) group_left (hardware) rooflens_engine_info`.",
    "engine_kind", "engine_version", "source", "hardware", values={"source": SOURCES},
)  # fmt: skip
RUNNING = engine_metric(
    "requests_running", G, "", "Requests in the batch now, or at the last step where only steps tell.",
    "Beside the engine's cap it says whether batching is held down.",
)  # fmt: skip
WAITING = engine_metric(
    "requests_waiting", G, "", "Requests that wait for capacity now, or at the last step where only steps tell.",
    "`min_over_time(rooflens_requests_waiting[10m]) > 0`: look at the findings.",
)  # fmt: skip
DEFERRED = engine_metric(
    "requests_deferred", G, "",
    "Requests that wait for something else than capacity now, or at the last step where only steps tell.",
    "Remote KV, a grammar, more input: not a lack of capacity.",
)  # fmt: skip
KV_USED = engine_metric(
    "kv_used_ratio", G, "ratio", "Part of the KV blocks that requests hold.",
    "High is good until requests wait or are preempted.",
)  # fmt: skip
BATCH = engine_metric(
    "batch_requests", G, "", "Mean sequences a step over the last window.",
    "For a glance, absent once it is old; over any window use rooflens_step_requests_total.",
)  # fmt: skip
CONTEXT = engine_metric(
    "context_tokens", G, "", "Mean context of a sequence over the last window.",
    "For a glance, absent once it is old; over any window use rooflens_step_context_tokens_total.",
    page=BY_KV_USE,
)  # fmt: skip
MBU = engine_metric(
    "mbu_ratio", G, "ratio", "Memory bandwidth utilisation of the steps of the last window.",
    "For a glance, absent once it is old; over any window use rooflens_memory_floor_seconds_total.",
    page=BY_INTERVALS,
)  # fmt: skip
MFU = engine_metric(
    "mfu_ratio", G, "ratio", "Model flops utilisation of the steps of the last window.",
    "For a glance, absent once it is old; over any window use rooflens_model_flops_total.",
    page=BY_INTERVALS,
)  # fmt: skip
FLOOR_FACTOR = engine_metric(
    "observed_over_floor_ratio", G, "ratio", "Observed time over the floor in the last window.",
    "For a glance, absent once it is old. Below 1 cannot be: see the finding measurement_invalid.",
    page=BY_INTERVALS,
)  # fmt: skip
BANDWIDTH = engine_metric(
    "hardware_bandwidth_bytes_per_second", G, "bytes_per_second",
    "Memory bandwidth of the engine's devices together, as the floor uses it.",
    "The roof of rooflens_model_bytes_total.", "origin", values={"origin": ORIGINS},
)  # fmt: skip
PEAK_FLOPS = engine_metric(
    "hardware_flops_per_second", G, "flops_per_second", "Peak rate of the engine's devices together by number format.",
    "The roof of rooflens_model_flops_total for the format that the model computes in.", "format", "origin",
    values={"origin": ORIGINS},
)  # fmt: skip
FINDING_ACTIVE = engine_metric(
    "finding_active", G, "", "1 while a finding fires, else 0.",
    'Alert on `max without (severity) (rooflens_finding_active{severity!="info"}) == 1`. 0 is clear only where '
    "rooflens_finding_unknown is 0 too.",
    "code", "severity", values={"code": CODES, "severity": SEVERITIES},
)  # fmt: skip
FINDING_UNKNOWN = engine_metric(
    "finding_unknown", G, "", "1 while the rule of a finding cannot tell or has not judged yet, else 0.",
    "What is clear: `(max without (severity) (rooflens_finding_active) == 0) and (rooflens_finding_unknown == 0)`. "
    "What is missing for an answer: /api/v1/findings?status=cannot_tell.",
    "code", values={"code": CODES},
)  # fmt: skip
GROUP_MEMBERS = Metric(
    PREFIX + "group_members", G, "", "Engines of a group that live.", GROUP_LABELS,
    "`max_over_time(rooflens_group_members[1h]) - rooflens_group_members > 0`: a rank or a replica is missing.",
    {"kind": GROUP_KINDS},
)  # fmt: skip
GROUP_RUNNING_SPREAD = Metric(
    PREFIX + "group_running_spread", G, "", "Running requests of the fullest member less those of the emptiest.",
    GROUP_LABELS, "Means of their newest windows; absent while fewer than two members tell.", {"kind": GROUP_KINDS},
)  # fmt: skip
GROUP_WAITING_SPREAD = Metric(
    PREFIX + "group_waiting_spread", G, "", "Waiting requests of the longest queue in a group less the shortest.",
    GROUP_LABELS,
    "`min_over_time(rooflens_group_waiting_spread[10m]) > 0`: some wait where others do not; see rank_imbalance.",
    {"kind": GROUP_KINDS},
)  # fmt: skip
SOURCES_UP = Metric(
    PREFIX + "sources_up", G, "", "Sources that are being read, by kind.", ("source",), "Falls when an engine ends.",
    {"source": SOURCES},
)  # fmt: skip
SOURCE_FAILURES = Metric(
    PREFIX + "source_failures_total", C, "", "Reads of a source that failed.", ("source",),
    "`rate(rooflens_source_failures_total[5m]) > 0`: /api/v1/engines says what is wrong.", {"source": SOURCES},
)  # fmt: skip
LOOP_SECONDS = Metric(
    PREFIX + "loop_seconds_total", C, "seconds", "What reading, sampling, analysing and publishing cost the sidecar.",
    (),
    "Share of a core: `rate(rooflens_loop_seconds_total[5m])`.",
)  # fmt: skip
SIDECAR_INFO = Metric(
    PREFIX + "sidecar_info", I, "", "Facts of the sidecar as labels.", ("version",), "Which version runs where."
)

CATALOGUE: tuple[Metric, ...] = (
    STEPS, STEP_SECONDS, TIME, TOKENS, BYTES, FLOPS, COMPARED, FLOOR, EXPECTED, REACHABLE, MEMORY_FLOOR, BATCH_SUM,
    CONTEXT_SUM, PREEMPTIONS, FINISHED, HOOK, LOST, RESTARTS, FINDING_COST, FINDINGS_RAISED, ENGINE_UP, ENGINE_INFO,
    RUNNING, WAITING, DEFERRED, KV_USED, BATCH, CONTEXT, MBU, MFU, FLOOR_FACTOR, BANDWIDTH, PEAK_FLOPS, FINDING_ACTIVE,
    FINDING_UNKNOWN, *ENGINE_DEVICE_CATALOGUE, GROUP_MEMBERS, GROUP_RUNNING_SPREAD, GROUP_WAITING_SPREAD,
    SOURCES_UP, SOURCE_FAILURES, LOOP_SECONDS, SIDECAR_INFO,
    *TRACE_CATALOGUE, *DEVICE_CATALOGUE,
)  # fmt: skip
