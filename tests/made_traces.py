"""Traces for tests: made steps with bounds and gaps in what is known, and their cells worked out by NumPy alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rooflens.analyzer.hardware import find_hardware
from rooflens.analyzer.roofline import analyse_engine
from rooflens.collector.trace.file import write_file
from rooflens.collector.trace.schema import to_arrow
from rooflens.live_records import SourceKind
from rooflens.records import EngineInfo, StepTable
from rooflens.trace_records import TraceFacts, TraceRows

START_UNIX_S = 1_796_040_000.0  # 2026-11-30T12:00Z
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "torch_dtype": "bfloat16",
    "hidden_act": "silu",
}


def facts_of(engine: str = "0", host: str = "host-1", run: str | None = None) -> TraceFacts:
    """An engine that serves Llama 8B on an H100."""
    info = EngineInfo("a", "vllm", "0.32.0", model_config=CONFIG, weight_dtype="bfloat16", kv_dtype="bfloat16")
    hardware = find_hardware("h100-sxm5-80")
    return TraceFacts(run or f"{engine:0>16}", host, "llama", engine, SourceKind.RING, info, hardware)


def made_table(facts: TraceFacts, count: int = 500, seed: int = 0, start_unix_s: float = START_UNIX_S) -> pa.Table:
    """Steps of two kinds and many batches, some of their values not known."""
    random = np.random.default_rng(seed)
    requests = random.integers(1, 200, count)
    context = requests * random.integers(1, 5000, count)
    prefill = np.where(random.random(count) < 0.2, random.integers(1, 500, count), 0)
    columns: dict[str, NDArray[np.generic]] = {
        "sequence": np.arange(1, count + 1),
        "kind": np.where(prefill > 0, 2, 1),
        "unix_s": start_unix_s + np.cumsum(random.random(count) * 0.05),
        "observed_s": random.lognormal(-4.5, 0.5, count),
        "requests": requests,
        "query_tokens": requests + prefill,
        "prefill_tokens": prefill,
        "sampled_rows": requests,
        "generated_tokens": requests,
        "context_tokens": context,
        "causal_pairs": context + requests,
        "prefill_pairs": prefill * 10,
        "context_blocks": context // 16 + requests,
        "waiting": random.integers(0, 3, count),
        "kv_blocks_used": random.integers(0, 1000, count),
        "schedule_s": random.random(count) * 1e-4,
        "resolution_steps": np.where(random.random(count) < 0.1, 4, 1),
    }
    known = {name: random.random(count) < 0.9 for name in ("observed_s", "waiting", "requests", "schedule_s")}
    steps = StepTable(columns, known)
    assert facts.info is not None
    assert facts.hardware is not None
    return to_arrow(TraceRows(facts, steps, analyse_engine(steps, facts.info, facts.hardware)))


def place_of(folder: Path, name: str = "00-a", hour: str = "12", host: str = "host-1") -> Path:
    """Where the writer would put a file."""
    return folder / "steps" / f"host={host}" / "date=2026-11-30" / f"hour={hour}" / f"{name}.parquet"


def written(folder: Path, table: pa.Table, facts: TraceFacts, name: str = "00-a", hour: str = "12") -> Path:
    """The table as a file of a trace."""
    path = place_of(folder, name, hour, facts.host)
    write_file(path, table, [facts])
    return path


Key = tuple[int, ...]
Column = NDArray[np.float64]


def by_numpy(
    table: pa.Table, width_s: float, engine: int = 0, devices: int = 1, pool_blocks: int | None = None
) -> dict[Key, dict[str, float]]:
    """The cells of one engine's table by key, worked out row by row without SQL; NaN for not known."""
    pool = float(pool_blocks) if pool_blocks else float("nan")
    data = {
        name: table.column(name).cast(pa.float64()).to_numpy(zero_copy_only=False)
        for name in table.column_names
        if pa.types.is_floating(table.schema.field(name).type) or pa.types.is_integer(table.schema.field(name).type)
    }
    steps = np.where(np.isnan(data["resolution_steps"]), 1.0, np.maximum(data["resolution_steps"], 1.0))
    requests, context = data["requests"], data["context_tokens"]
    keys = [
        np.full(len(steps), float(engine)),
        np.floor(data["unix_s"] / width_s),
        np.where(np.isnan(data["kind"]), -1, data["kind"]),
        np.where(np.isnan(requests), -1, np.trunc(np.log2(np.maximum(requests / steps, 1.0)))),
        np.trunc(np.log2(np.maximum(context / np.maximum(requests, 1.0), 1.0)) / 2),
    ]
    keys[4] = np.where(np.isnan(keys[4]) | np.isnan(requests), -1, keys[4])
    keys.append(np.full(len(steps), float(devices)))
    rows: dict[Key, list[int]] = {}
    for row, key in enumerate(zip(*(column.astype(np.int64).tolist() for column in keys), strict=True)):
        rows.setdefault(key, []).append(row)
    return {key: _sums(data, steps, np.array(found), pool) for key, found in rows.items()}


def _sums(
    data: dict[str, NDArray[np.float64]], steps: NDArray[np.float64], rows: NDArray[np.int64], pool: float
) -> dict[str, float]:
    at = {name: column[rows] for name, column in data.items()}
    steps, observed = steps[rows], at["observed_s"]
    compared = (observed > 0) & ~np.isnan(at["floor_s"])
    lasted = np.maximum(np.nan_to_num(observed), 1e-9)
    reached = compared & ~np.isnan(at["reachable_s"])

    def total(values: NDArray[np.float64], mask: NDArray[np.bool_] | None = None) -> float:
        values = values if mask is None else values[mask]
        values = values[~np.isnan(values)]
        return float(values.sum()) if len(values) else float("nan")

    def largest(values: NDArray[np.float64]) -> float:
        return float(np.nanmax(values)) if (~np.isnan(values)).any() else float("nan")

    found = {
        "rows": float(len(rows)),
        "steps": float(steps.sum()),
        "first_unix_s": float(at["unix_s"].min()),
        "last_unix_s": float(at["unix_s"].max()),
        "observed_steps": float(steps[~np.isnan(observed)].sum()),
        "observed_s": total(observed),
        "begun_unix_s": float((at["unix_s"] - np.nan_to_num(observed)).min()),
        "observed_max_s": largest(np.where(steps == 1, observed, np.nan)),
        "averaged_steps": float(steps[(steps > 1) & ~np.isnan(observed)].sum()),
        "compared_steps": float(steps[compared].sum()),
        "compared_observed_s": total(observed, compared),
        "compared_serial_s": total(at["serial_floor_s"] + at["link_s"], compared),
        "compared_mfu_s": total(at["mfu"] * observed, compared),
        "mfu_observed_s": total(observed, compared & ~np.isnan(at["mfu"])),
        "below_floor_steps": float(steps[compared & (observed < at["floor_s"])].sum()),
        "reached_steps": float(steps[reached].sum()),
        "reached_observed_s": total(observed, reached),
        "reachable_s": total(at["reachable_s"], compared),
        "requests_steps": float(steps[~np.isnan(at["requests"])].sum()),
        "generated_steps": float(steps[~np.isnan(at["generated_tokens"])].sum()),
        "context_tokens": total(at["context_tokens"], ~np.isnan(at["requests"])),
        "context_requests": total(at["requests"], ~np.isnan(at["context_tokens"])),
        "waiting_s": total(at["waiting"] * lasted),
        "waiting_of_s": total(lasted, ~np.isnan(at["waiting"])),
        "queued_s": total(np.where(at["waiting"] > 0, lasted, 0.0), ~np.isnan(at["waiting"])),
        "kv_ratio_s": total(at["kv_blocks_used"] / pool * lasted),
        "kv_ratio_of_s": total(lasted, ~np.isnan(at["kv_blocks_used"] / pool)),
        "kv_ratio_max": largest(at["kv_blocks_used"] / pool),
        "device_observed_s": total(observed, ~np.isnan(at["device_s"])),
    }
    for name in ("floor", "expected", "memory", "compute", "link_floor", "link"):
        found[f"compared_{name}_s"] = total(at[f"{name}_s"], compared)
    for number, name in enumerate(("memory", "compute", "link")):
        found[f"{name}_bound_steps"] = float(steps[compared & (at["bound"] == number)].sum())
    for name in (
        "weight_bytes", "kv_read_bytes", "kv_write_bytes", "flops", "requests", "query_tokens", "prefill_tokens",
        "generated_tokens", "drafted_tokens", "accepted_tokens", "recomputed_tokens", "preempted",
        "schedule_s", "update_s", "executor_s", "wait_s", "device_s",
    ):  # fmt: skip
        found[name] = total(at[name])
    return found
