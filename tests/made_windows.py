"""Made windows of an engine whose roofline is known: Llama 3.1 8B in bf16 on one H100, and what goes wrong in them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rooflens.analyzer.hardware import find_hardware
from rooflens.analyzer.roofline import Roofline
from rooflens.analyzer.rules.case import Case
from rooflens.analyzer.window_figures import window_figures
from rooflens.live_records import Progress, SourceKind, State, Window
from rooflens.records import EngineInfo, StepKind, StepTable

CONFIG = {
    "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
    "intermediate_size": 14336, "vocab_size": 128256, "hidden_act": "silu", "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}  # fmt: skip
H100 = find_hardware("h100-sxm5-80")
BLOCK_TOKENS = 16
INFO = EngineInfo(
    "made", "vllm", model_config=CONFIG, weight_dtype="bfloat16", kv_dtype="auto", kv_blocks=20_000,
    block_tokens=BLOCK_TOKENS, max_sequences=256, max_batched_tokens=8192, async_scheduling=False,
    concurrent_batches=1, chunked_prefill=True,
)  # fmt: skip
ROOFLINE = Roofline.of(INFO, H100)
MIXTURE = {
    "model_type": "qwen3_moe", "hidden_size": 2048, "num_hidden_layers": 48, "num_attention_heads": 32,
    "num_key_value_heads": 4, "head_dim": 128, "intermediate_size": 6144, "moe_intermediate_size": 768,
    "num_experts": 128, "num_experts_per_tok": 8, "decoder_sparse_step": 1, "vocab_size": 151936,
    "hidden_act": "silu", "tie_word_embeddings": False,
}  # fmt: skip
SUMS = (
    "observed_s", "device_s", "schedule_s", "update_s", "executor_s", "wait_s", "requests", "prefill_requests",
    "query_tokens", "prefill_tokens", "sampled_rows", "generated_tokens", "context_tokens", "causal_pairs",
    "recomputed_tokens", "preempted", "finished_requests", "new_requests",
)  # fmt: skip
Values = Any  # a number for every step, or one number each


def steps(
    count: int = 100,
    decode: Values = 32,
    context: Values = 1000,
    prefill: Values = 0,
    factor: Values = 1.4,
    gap_ratio: Values = 0.02,
    roofline: Roofline = ROOFLINE,
    **columns: Values,
) -> StepTable:
    """``count`` steps of ``decode`` sequences with ``context`` tokens each, and one prompt of ``prefill`` tokens.

    Each takes ``factor`` times its floor, and ``gap_ratio`` of that passes before it. ``columns`` replace or add.
    """

    def each(value: Values, kind: type = np.int64) -> NDArray[Any]:
        return np.broadcast_to(np.asarray(value, dtype=kind), (count,)).copy()

    sequences, cached, prompt = each(decode), each(context), each(prefill)
    prompts = (prompt > 0).astype(np.int64)
    requests = sequences + prompts
    kinds = np.where(prompt == 0, StepKind.DECODE, np.where(sequences == 0, StepKind.PREFILL, StepKind.MIXED))
    table = {
        "kind": kinds.astype(np.int64),
        "requests": requests,
        "prefill_requests": prompts,
        "query_tokens": sequences + prompt,
        "prefill_tokens": prompt,
        "sampled_rows": requests,
        "generated_tokens": requests,
        "context_tokens": sequences * cached,
        "causal_pairs": sequences * (cached + 1) + prompt * (prompt + 1) // 2,
        "running": requests,
        "waiting": each(0),
        "deferred": each(0),
        "preempted": each(0),
        "recomputed_tokens": each(0),
        "kv_blocks_used": sequences * -(-(cached + 1) // BLOCK_TOKENS) + -(-prompt // BLOCK_TOKENS),
        "sequence": np.arange(1, count + 1),
    }
    table |= {n: each(v, np.float64 if n.endswith("_s") else np.int64) for n, v in columns.items()}
    floor_s = roofline.analyse(StepTable(table)).floor_s
    observed = table["observed_s"] if "observed_s" in table else floor_s * each(factor, np.float64)
    output = np.cumsum(observed * (1 + each(gap_ratio, np.float64)))
    times = {"observed_s": observed, "submit_monotonic_s": output - observed, "output_monotonic_s": output}
    return StepTable(table | times)


def merged(table: StepTable, together: int) -> StepTable:
    """The same steps as a metrics page gives them: rows of ``together`` steps, sums and mean gauges."""
    rows = len(table) // together
    kept = {n: c[: rows * together].reshape(rows, together) for n, c in table.columns.items()}
    columns: dict[str, NDArray[Any]] = {n: c.sum(axis=1) for n, c in kept.items() if n in SUMS}
    gauges = ("running", "waiting", "deferred", "kv_blocks_used")
    columns |= {n: c.mean(axis=1) for n, c in kept.items() if n in gauges}
    columns["kind"] = np.where(columns["prefill_tokens"] > 0, StepKind.MIXED, StepKind.DECODE).astype(np.int64)
    columns["submit_monotonic_s"] = kept["submit_monotonic_s"][:, 0]
    columns["output_monotonic_s"] = kept["output_monotonic_s"][:, -1]
    columns["resolution_steps"] = np.full(rows, together)
    return StepTable(columns)


def window(
    table: StepTable, info: EngineInfo | None = INFO, roofline: Roofline | None = ROOFLINE, **more: Any
) -> Window:
    """A window of ``table``, from its first submit to its last output, with the bounds beside it."""
    many = "resolution_steps" in table.columns
    start_s, end_s = float(table["submit_monotonic_s"][0]), float(table["output_monotonic_s"][-1])
    return Window(
        info=info,
        source=SourceKind.METRICS if many else SourceKind.RING,
        start_unix_s=1e9 + start_s,
        end_unix_s=1e9 + end_s,
        start_monotonic_s=start_s,
        end_monotonic_s=end_s,
        steps=table,
        analysis=roofline.analyse(table) if roofline is not None else None,
        **more,
    )


def case(*windows: Window | StepTable, info: EngineInfo | None = INFO, roofline: Roofline | None = ROOFLINE) -> Case:
    """What a rule would get of these windows; tables become windows of ``info``."""
    laid = tuple(w if isinstance(w, Window) else window(w, info, roofline) for w in windows)
    figures = tuple(window_figures(w) for w in laid)
    hardware = roofline.hardware if roofline is not None else None
    return Case(laid, figures, roofline, hardware, Progress(State.LIVE))


def info_with(**changes: Any) -> EngineInfo:
    """The engine with some facts changed."""
    return replace(INFO, **changes)
