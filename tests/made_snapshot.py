"""A Snapshot as a sidecar would publish it, made up: for tests and benchmarks of whatever reads one.

``made_snapshot(engines=2, number=1)`` is deterministic; with a higher ``number`` every counter is higher.
"""

from __future__ import annotations

import itertools
import math
from functools import partial
from typing import Any

import numpy as np

from rooflens import catalogue
from rooflens.analyzer.ceilings import ceilings_of
from rooflens.analyzer.groups import group_view
from rooflens.analyzer.hardware import find_hardware
from rooflens.analyzer.roofline import analyse_engine
from rooflens.catalogue import CATALOGUE
from rooflens.device_records import CounterSource, DeviceFacts, DeviceSample, DeviceView, WindowCounters
from rooflens.findings import Code, Evidence, Finding, Price, Severity, Status
from rooflens.group_records import Group, GroupKind, GroupView, MemberFigures, Role
from rooflens.live_records import (
    Derived,
    EngineView,
    KindFigures,
    Progress,
    Snapshot,
    SourceHealth,
    SourceKind,
    State,
    WindowFigures,
)
from rooflens.metric_records import ENGINE_LABELS, HistogramValue, Kind, Metric, Sample
from rooflens.model_records import RegimeFigures
from rooflens.records import EngineInfo, StepKind, StepTable

STARTED_UNIX_S = 1_790_000_000.0
STEP_S = 0.01
LLAMA_8B = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 14336,
    "vocab_size": 128256, "tie_word_embeddings": False, "torch_dtype": "bfloat16", "hidden_act": "silu",
}  # fmt: skip
DEVICE = DeviceFacts(
    "GPU-11111111-2222-3333-4444-555555555555", CounterSource.NVML, name="NVIDIA H100 80GB HBM3", index=0,
    memory_bandwidth_bytes_per_s=3.35e12, sm_clock_max_hz=1.98e9, driver_version="580.82", counters=True, pids=(4242,),
)  # fmt: skip
COUNTERS = WindowCounters(
    CounterSource.NVML, 1, 1, 0.93, counter_bytes=2.1e13, model_bytes=2.0e13, ratio=1.05, ratio_low=1.01,
    ratio_high=1.09, dram_ratio=0.68, sm_clock_hz=1.98e9, sm_clock_ratio=1.0, power_w=610.0, power_ratio=0.87,
)  # fmt: skip
FIXED_LABELS = {
    "engine_kind": "vllm", "engine_version": "0.32.0", "source": "ring", "hardware": "h100-sxm5-80", "format": "bf16",
    "version": "0.1.0", "device_uuid": DEVICE.uuid, "model_name": "meta/Llama-3.1-8B", "group": "0",
    "device_name": "NVIDIA H100 80GB HBM3", "driver_version": "580.82", "mig_profile": "none",
}  # fmt: skip


def made_info(model_name: str = "meta/Llama-3.1-8B", rank: int = 0) -> EngineInfo:
    """An engine as the hook describes it."""
    return EngineInfo(
        instance=f"made-{rank}", engine="vllm", engine_version="0.32.0", rank=rank, host="node-1", runner="generate",
        model_name=model_name, model_config=LLAMA_8B, weight_dtype="bfloat16", kv_dtype="auto", kv_blocks=20_000,
        block_tokens=16, max_sequences=256, max_batched_tokens=8192, max_context_tokens=131_072,
        start_unix_s=STARTED_UNIX_S - 60, async_scheduling=True, concurrent_batches=2, prefix_caching=True,
        chunked_prefill=True, graph_mode="FULL_AND_PIECEWISE", attention_backend="FLASH_ATTN", device="cuda",
    )  # fmt: skip


def made_steps(count: int = 512, batch: int = 32, now_unix_s: float = STARTED_UNIX_S) -> StepTable:
    """Decode steps with a mixed one every 64; device times are not known, the oldest wait only here and there."""
    rows = np.arange(count)
    mixed = rows % 64 == 63
    query = np.where(mixed, batch + 2048, batch)
    context = batch * (1000 + rows)
    ones, zeros = np.ones(count, np.int64), np.zeros(count, np.int64)
    observed_s = np.where(mixed, 0.060, STEP_S + 0.001 * np.sin(rows))
    output_s = np.cumsum(observed_s + 0.0005)
    columns: dict[str, Any] = {
        "sequence": rows + 1, "kind": np.where(mixed, int(StepKind.MIXED), int(StepKind.DECODE)),
        "unix_s": now_unix_s - output_s[-1] + output_s if count else output_s, "observed_s": observed_s,
        "submit_monotonic_s": output_s - observed_s, "output_monotonic_s": output_s, "schedule_s": ones * 2e-4,
        "update_s": ones * 1e-4, "hook_s": ones * 5e-6, "requests": batch * ones, "query_tokens": query,
        "prefill_requests": mixed.astype(np.int64), "prefill_tokens": np.where(mixed, 2048, 0),
        "sampled_rows": batch * ones, "generated_tokens": batch * ones, "drafted_tokens": zeros,
        "accepted_tokens": zeros, "rejected_tokens": zeros, "discarded_tokens": zeros, "recomputed_tokens": zeros,
        "finished_requests": mixed.astype(np.int64), "preempted": zeros, "context_tokens": context,
        "causal_pairs": context + query, "prefill_pairs": np.where(mixed, 2048 * 1024, 0),
        "context_blocks": context // 16 + batch, "max_context_tokens": 1000 + rows,
        "kv_blocks_used": context // 16 + batch, "running": batch * ones, "waiting": 3 * ones, "deferred": zeros,
        "oldest_wait_s": np.full(count, 1.5), "graph_mode": 3 * ones, "resolution_steps": ones,
    }  # fmt: skip
    return StepTable(columns, {"oldest_wait_s": rows % 2 == 0})


def made_window(end_unix_s: float, batch: int = 32) -> WindowFigures:
    """The figures of ten seconds of decode steps with a mixed one now and then."""
    kinds = {
        "decode": KindFigures(900, 9.0, 0.010, 0.012, 0.015, batch, 900 * batch, 1500.0, 6.3, 9.0, 6.3, 7.1, 9.1, 900),
        "mixed": KindFigures(
            12, 0.72, 0.060, 0.061, 0.061, batch, 12 * (batch + 2048), 1500.0, 0.3, 0.72, 0.3, 0.5, None, 12
        ),
    }
    return WindowFigures(
        start_unix_s=end_unix_s - 10.0, end_unix_s=end_unix_s, steps=912, span_s=10.0, busy_s=9.72, between_s=0.28,
        idle_s=0.0, kinds=kinds, generated_tokens=912 * batch, prefill_tokens=12 * 2048, recomputed_tokens=0,
        preempted=0, batch_mean=float(batch), batch_max=batch, running_mean=float(batch), running_max=float(batch),
        waiting_mean=3.0, waiting_share=1.0, deferred_mean=0.0, oldest_wait_max_s=1.5, kv_used_mean=0.15,
        kv_used_max=0.2, context_tokens_mean=1500.0, floor_s=6.6, compared_s=9.72, mbu=0.66, mfu=0.05,
        bound_s={"memory": 6.3, "compute": 0.3, "link": 0.0}, weight_bytes=1.4e13, kv_bytes=6.0e12, flops=4.8e14,
        expected_s=6.6, reachable_s=7.6, counters=COUNTERS,
    )  # fmt: skip


def made_findings(now_unix_s: float) -> tuple[Finding, ...]:
    """One that fires, one that was cleared, one that cannot tell."""
    return (
        Finding(
            Code.MISSED_BATCHING, Severity.WARNING, Status.FIRING, "3 requests wait while the batch is held at 32.",
            evidence=(Evidence("waiting_mean", 3.0), Evidence("batch_mean", 32.0), Evidence("mbu", 0.66, "1")),
            price=Price(2.5, 10.0, 2.0, 3.0, "the judged steps at the batch that the queue would fill"),
            confidence=0.9, remedy="--max-num-seqs 64", since_unix_s=now_unix_s - 120,
        ),
        Finding(
            Code.KV_PRESSURE, Severity.WARNING, Status.CLEARED, "The KV cache holds what is asked for.",
            since_unix_s=now_unix_s - 600, until_unix_s=now_unix_s - 30,
        ),
        Finding(
            Code.HOST_OVERHEAD, Severity.INFO, Status.CANNOT_TELL, "Device times are missing.",
            missing=("device_s: start the engine with ROOFLENS_DEVICE_TIME=1",),
        ),
    )  # fmt: skip


def made_engine(number: int, model_name: str, engine: str, rank: int = 0, batch: int = 32) -> EngineView:
    """A live engine read from a ring, with bounds; 512 recent steps and six windows."""
    now_unix_s = STARTED_UNIX_S + number
    info, hardware = made_info(model_name, rank), find_hardware("h100-sxm5-80")
    steps = made_steps(batch=batch, now_unix_s=now_unix_s)
    return EngineView(
        model_name=model_name, engine=engine, source=SourceKind.RING, state=State.LIVE, info=info, hardware=hardware,
        first_seen_unix_s=STARTED_UNIX_S, last_step_unix_s=now_unix_s - 0.01,
        windows=tuple(made_window(now_unix_s - 10.0 * back, batch) for back in range(5, -1, -1)),
        findings=made_findings(now_unix_s), recent=steps, recent_analysis=analyse_engine(steps, info, hardware),
        progress=Progress(State.LIVE, open_age_s=0.004, open_tokens=batch, open_requests=batch, still_s=0.0),
        derived=(Derived("kv_blocks_used", 3032.0, "", "KV use times pool size", 3000.0, 3064.0),),
        regimes=(RegimeFigures("decode", 32, 63, 1024, 4095, 12, True, 1.28, 0.02),
                 RegimeFigures("mixed", 32, 63, 1024, 4095, 3, False, None, None)),
        ceilings=ceilings_of(hardware), device_uuids=(DEVICE.uuid,),
        recent_dram_bytes=partial(np.full, len(steps), 2.3e10),
    )  # fmt: skip


def made_bare_engine(model_name: str = "unknown", engine: str = "1") -> EngineView:
    """An engine of which next to nothing is known: read from a page that has stopped to answer."""
    return EngineView(
        model_name=model_name, engine=engine, source=SourceKind.METRICS, state=State.UNREACHABLE, info=None,
        hardware=None, first_seen_unix_s=STARTED_UNIX_S, last_step_unix_s=None, windows=(), findings=(),
        recent=StepTable({}), recent_analysis=None, problem="the hardware is not known: give --hardware ID",
    )  # fmt: skip


def made_samples(engines: list[tuple[str, str]], number: int = 1) -> tuple[Sample, ...]:
    """Every series of the catalogue for these engines; counters grow with ``number``."""
    samples: list[Sample] = []
    for metric in CATALOGUE:
        of_engine = metric.labels[:2] == ENGINE_LABELS
        rest = metric.labels[2:] if of_engine else metric.labels
        owners = engines if of_engine else [()]
        for owner, chosen in itertools.product(owners, itertools.product(*(_values(metric, label) for label in rest))):
            created = STARTED_UNIX_S if metric.kind in (Kind.COUNTER, Kind.HISTOGRAM) else None
            samples.append(Sample(metric, (*owner, *chosen), _value(metric, number), created))
    return tuple(samples)


def _values(metric: Metric, label: str) -> tuple[str, ...]:
    if metric is catalogue.FINDING_ACTIVE and label == "severity":
        return ("warning",)
    if label in ("source", "origin"):
        return metric.values[label][:1]
    return metric.values[label] if label in metric.values else (FIXED_LABELS[label],)


def _value(metric: Metric, number: int) -> float | HistogramValue:
    if metric.kind is Kind.HISTOGRAM:
        counts = tuple(number * (7 if index == 7 else index % 3) for index in range(len(metric.buckets) + 1))
        return HistogramValue(counts, sum(counts) * math.pi / 300)
    if metric.kind is Kind.COUNTER:
        return number * math.e * 1000
    return 1.0 if metric.kind is Kind.INFO else math.pi / 10


def made_group() -> GroupView:
    """Two ranks of one server, of which one has a queue while the other has room."""
    members = tuple(
        MemberFigures(
            "meta/Llama-3.1-8B", engine, Role.BOTH, generated_tokens_per_s=900.0, running=running, waiting=waiting,
            waiting_share=1.0, kv_tokens_used=used, kv_tokens=320_000.0, kv_used_ratio=used / 320_000, batch=running,
            step_p50_s=0.01, dummy_share=0.0,
        )
        for engine, running, waiting, used in (("0", 51.0, 117.0, 320_000.0), ("1", 20.0, 0.0, 100_000.0))
    )  # fmt: skip
    keys = tuple((member.model_name, member.engine) for member in members)
    group = Group(GroupKind.DATA_PARALLEL, keys[0][0], "0", keys, (Role.BOTH, Role.BOTH), (), True)
    return group_view(group, members)


def made_snapshot(engines: int = 2, number: int = 1) -> Snapshot:
    """``engines`` live engines of one model, ranks 0 and up, and one that nothing is known of."""
    views = [made_engine(number, "meta/Llama-3.1-8B", str(rank), rank) for rank in range(engines)]
    views.append(made_bare_engine(engine=str(engines)))
    created_unix_s = STARTED_UNIX_S + number
    return Snapshot(
        number=number, created_unix_s=created_unix_s, started_unix_s=STARTED_UNIX_S, loop_s=0.012, version="0.1.0",
        engines=tuple(views),
        sources=(
            *(SourceHealth(f"node-1-{rank:08x}-{rank}.ring", SourceKind.RING, State.LIVE, 1, created_unix_s, 0.001)
              for rank in range(engines)),
            SourceHealth("http://127.0.0.1:8000/metrics", SourceKind.METRICS, State.UNREACHABLE, 1, None, None,
                         "connection refused: is the server up?"),
        ),
        samples=made_samples([(view.model_name, view.engine) for view in views], number),
        problems=("the hardware is not known: give --hardware ID",),
        devices=(DeviceView(DEVICE, CounterSource.NVML, DeviceSample(DEVICE.uuid, CounterSource.NVML, 1.0, 2.0)),),
        groups=(made_group(),) if engines > 1 else (),
    )  # fmt: skip
