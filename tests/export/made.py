"""A small trace on disk: two engines, two seconds, an event and a finding."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from rooflens.analyzer.arch import known_models
from rooflens.analyzer.hardware import find_hardware
from rooflens.analyzer.roofline import analyse_engine
from rooflens.collector.trace.held import Held
from rooflens.collector.trace.place import LocalPlace
from rooflens.findings import Code, Finding, Severity, Status
from rooflens.live_records import SourceKind
from rooflens.records import EngineInfo, RingEvent, StepKind, StepTable
from rooflens.trace_records import TraceEvents, TraceFacts, TraceRows

INFO = EngineInfo(
    "a", "vllm", "0.32.0", model_config=dict(known_models()[0]["config"]), weight_dtype="bfloat16", kv_dtype="bfloat16"
)
HARDWARE = find_hardware("h100-sxm5-80")
BEGIN_UNIX_S = 1_800_000_000.0  # a full hour: 2027-01-15 08:00 UTC
STEPS = 100  # of each engine, 20 ms apart


def facts_of(engine: str) -> TraceFacts:
    return TraceFacts(f"{engine:0>16}", "host-1", "llama", engine, SourceKind.RING, INFO, HARDWARE)


def decode_rows(facts: TraceFacts) -> TraceRows:
    """Decode steps of eight sequences, of the first of which the time is not known."""
    times = BEGIN_UNIX_S + 0.02 * np.arange(STEPS)
    sequences = np.arange(1, STEPS + 1)
    columns = {
        "sequence": sequences,
        "kind": np.full(STEPS, int(StepKind.DECODE)),
        "unix_s": times,
        "output_monotonic_s": times - BEGIN_UNIX_S + 51_062.125,
        "observed_s": np.full(STEPS, 0.011),
        **{name: np.full(STEPS, 8) for name in ("requests", "query_tokens", "sampled_rows", "generated_tokens")},
        **dict.fromkeys(("context_tokens", "causal_pairs"), 8000 + sequences),
        "context_blocks": np.full(STEPS, 504),
        "prefill_tokens": np.zeros(STEPS, np.int64),
    }
    steps = StepTable(columns, {"observed_s": sequences != 1})
    return TraceRows(facts, steps, analyse_engine(steps, INFO, HARDWARE))


def made_trace(folder: Path) -> Path:
    """The trace, as the sidecar's writer lays it out."""
    held = Held()
    for engine in ("0", "1"):
        held.add(decode_rows(facts_of(engine)), 0.0, 1, BEGIN_UNIX_S)
    finding = Finding(Code.KV_PRESSURE, Severity.WARNING, Status.FIRING, "the pool is full")
    event = RingEvent(5, 1.0, "sleep", {"level": 1})
    beside = TraceEvents(facts_of("0"), ((BEGIN_UNIX_S + 1.0, event),), ((BEGIN_UNIX_S + 0.5, finding),))
    held.add(beside, 0.0, 1, BEGIN_UNIX_S)
    assert held.write(LocalPlace(folder)).problem is None
    return folder
