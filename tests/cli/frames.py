"""A made Snapshot as the live view gets it: through the JSON of the API."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rooflens.analyzer.hardware import find_hardware
from rooflens.cli.top_feeds import with_findings
from rooflens.exporters.json_view import engines_json, findings_json
from rooflens.findings import Code, Finding, Price, Severity, Status
from rooflens.live_records import EngineView, KindFigures, Snapshot, SourceKind, State, WindowFigures
from rooflens.records import EngineInfo, StepTable

NOON_S = 1_700_049_600.0  # 12:00:00 UTC
DECODE = KindFigures(
    steps=980, observed_s=9.6, step_p50_s=9.81e-3, step_p99_s=14.2e-3, step_max_s=0.03, batch_mean=15.6,
    query_tokens=15_288, context_tokens_mean=1204.0, floor_s=5.9, compared_s=9.6, expected_s=5.9, reachable_s=6.9,
    compared_steps=980,
)  # fmt: skip
FIGURES = WindowFigures(
    start_unix_s=NOON_S - 11, end_unix_s=NOON_S - 1, steps=1000, span_s=10.0, busy_s=8.5, between_s=1.0, idle_s=0.5,
    kinds={"decode": DECODE}, generated_tokens=15_300, prefill_tokens=4000, recomputed_tokens=0, preempted=3,
    batch_mean=15.6, batch_max=16, running_mean=16.0, running_max=16.0, waiting_mean=3.2, waiting_share=0.41,
    deferred_mean=0.0, kv_used_mean=0.413, kv_used_max=0.55, context_tokens_mean=1204.0, floor_s=5.0, compared_s=8.0,
    mbu=0.61, mfu=0.05, bound_s={"memory": 4.8, "compute": 0.2, "link": 0.0},
)  # fmt: skip
PRESSURE = Finding(
    Code.KV_PRESSURE, Severity.WARNING, Status.FIRING,
    "3 preemptions in ten seconds, and requests wait after 41% of the steps while the pool is full",
    price=Price(1.2, 10.0, 0.9, 1.5, "the recomputed tokens at the floor"),
    remedy="--gpu-memory-utilization 0.95, or --kv-cache-dtype fp8", since_unix_s=NOON_S - 60,
)  # fmt: skip
STALLED = Finding(Code.ENGINE_STALLED, Severity.CRITICAL, Status.FIRING, "no output for 42 s", remedy="py-spy dump")
UNTOLD = Finding(
    Code.HOST_OVERHEAD, Severity.INFO, Status.CANNOT_TELL, "device time is missing", missing=("device time",)
)  # fmt: skip
CLEARED = Finding(Code.MISSED_BATCHING, Severity.INFO, Status.CLEARED, "nothing is missed")


def engine(name: str = "llama-3-8b", label: str = "0", **changes: Any) -> EngineView:
    """One engine of vLLM on an H100, read from its ring."""
    info = EngineInfo(instance="i", engine="vllm", engine_version="0.33.0", model_name=name)
    view = EngineView(
        model_name=name, engine=label, source=SourceKind.RING, state=State.LIVE, info=info,
        hardware=find_hardware("h100-sxm5-80"), first_seen_unix_s=NOON_S - 300, last_step_unix_s=NOON_S,
        windows=(FIGURES,), findings=(UNTOLD, PRESSURE, CLEARED), recent=StepTable({}), recent_analysis=None,
    )  # fmt: skip
    return replace(view, **changes)


def snapshot_of(engines: Sequence[EngineView], problems: Sequence[str] = ()) -> Snapshot:
    """The seventh Snapshot of a sidecar, at noon."""
    return Snapshot(7, NOON_S, NOON_S - 300, 0.01, "0.1.0", tuple(engines), problems=tuple(problems))


def frame(engines: Sequence[EngineView], problems: Sequence[str] = ()) -> dict[str, Any]:
    """The frame of a Snapshot of these engines, gone through JSON as from a sidecar."""
    snapshot = snapshot_of(engines, problems)
    made: dict[str, Any] = json.loads(json.dumps(with_findings(engines_json(snapshot), findings_json(snapshot))))
    return made
