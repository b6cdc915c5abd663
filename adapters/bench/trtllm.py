"""The JSON report of trtllm-bench (--report_json), of which the text says the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rooflens.adapters.bench.amounts import is_empty
from rooflens.adapters.bench.draft import Draft
from rooflens.adapters.bench.labelled import TRTLLM
from rooflens.adapters.bench.names import PER_USER, statistic
from rooflens.adapters.bench.objects import table_at

NUMBERS: tuple[tuple[str, str, str, float], ...] = (
    ("request_info", "num_requests", "requests", 1.0),
    ("request_info", "avg_num_concurrent_requests", "concurrency_mean", 1.0),
    ("request_info", "avg_input_length", "prompt_tokens_mean", 1.0),
    ("request_info", "avg_output_length", "generated_tokens_mean", 1.0),
    ("performance", "total_latency_ms", "duration_s", 1e-3),
    ("performance", "request_throughput_req_s", "requests_per_s", 1.0),
    ("performance", "system_output_throughput_tok_s", "generated_tokens_per_s", 1.0),
    ("world_info", "tp_size", "tensor_parallel", 1.0),
    ("world_info", "world_size", "devices", 1.0),
)
PERCENTILES = (
    ("performance", "request_latency_percentiles_ms", "e2e_s"),
    ("streaming_metrics", "ttft_percentiles", "ttft_s"),
    ("streaming_metrics", "tpot_percentiles", "tpot_s"),
)
MEANS = (
    ("performance", "avg_request_latency_ms", "e2e_s"),
    ("streaming_metrics", "avg_ttft_ms", "ttft_s"),
    ("streaming_metrics", "avg_tpot_ms", "tpot_s"),
)
SECTIONS = frozenset(
    ("engine", "machine", "world_info", "request_info", "performance", "streaming_metrics", "decoding_stats", "dataset",
     "energy", "memory", "backend", "iterations")
)  # fmt: skip


def is_report(data: Mapping[str, Any]) -> bool:
    """Whether ``data`` is such a report."""
    return isinstance(data.get("performance"), dict) and ("request_info" in data or "engine" in data)


def report(data: Mapping[str, Any]) -> Draft:
    """The run of one report: its clock is inside the process of the engine, its latencies are of whole requests."""
    draft = Draft(TRTLLM, client_side=False, engine="tensorrt-llm")
    engine = table_at(data, "engine")
    draft.model(engine.get("model"))
    draft.word("engine_version", engine.get("version"))
    draft.word("hardware", table_at(data, "machine").get("name"))
    for key, field in (("quantization", "quantization"), ("kv_cache_dtype", "kv_dtype")):
        stated = engine.get(key)
        draft.word(field, stated if isinstance(stated, str) and not is_empty(stated) else None)
    for section, key, field, scale in NUMBERS:
        draft.number(field, table_at(data, section).get(key), key, scale)
    for section, key, field in MEANS:
        draft.time(field, "mean", table_at(data, section).get(key), key, 1e-3)
    for section, key, field in PERCENTILES:
        for rank, value in table_at(data, section, key).items():
            which = statistic(rank)
            if which:
                draft.time(field, which, value, f"{key} {rank}", 1e-3)
    length = table_at(data, "decoding_stats", "acceptance_length_percentiles").get("average")
    draft.number("acceptance_length", length, "acceptance length")
    performance = table_at(data, "performance")
    draft.withheld_figure("total token throughput", performance.get("system_total_throughput_tok_s"))
    if performance.get("output_throughput_per_user_tok_s") is not None:
        draft.withhold(PER_USER)
    for name in data:
        if name not in SECTIONS:
            draft.not_known(str(name))
    return draft
