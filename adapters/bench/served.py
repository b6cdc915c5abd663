"""JSON results of vLLM's and SGLang's own benchmarks: of serving, and offline."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from rooflens.adapters.bench.amounts import named, number_of
from rooflens.adapters.bench.draft import Draft
from rooflens.adapters.bench.labelled import (
    LATENCY,
    OFFLINE,
    SGLANG,
    THROUGHPUT,
    VLLM,
    VLLM_OLD,
    check_retokenized,
    engine_of,
    take_number,
)
from rooflens.adapters.bench.names import ASIDE, NUMBERS, WITHHELD, latency, statistic

# Keys that the newer of vLLM's two programs alone writes.
NEWER_KEYS = ("endpoint_type", "label", "failed", "max_output_tokens_per_s", "max_concurrent_requests")
CHUNKED_RATIO = 1.3  # gaps so much longer than a token takes are of chunks that hold several
CHUNKED = "inter-token latency is between streamed chunks, which held about {:.2g} tokens each: TPOT is a token's"
SERVING_KEYS = (
    "duration", "completed", "total_input_tokens", "total_output_tokens", "request_throughput", "output_throughput",
    "input_throughput", "total_token_throughput", "mean_ttft_ms", "median_ttft_ms", "mean_tpot_ms", "median_tpot_ms",
    "mean_itl_ms", "mean_e2el_ms", "mean_e2e_latency_ms", "p99_ttft_ms", "p99_tpot_ms",
)  # fmt: skip
# What people write with --metadata, beside words of their own.
HARDWARE_KEYS = ("gpu", "hardware", "accelerator", "gpu_type")
PARALLEL_KEYS = ("tensor_parallel_size", "tensor_parallel", "tp_size", "tp")
OWN_KEYS = (*HARDWARE_KEYS, *PARALLEL_KEYS, "model", "quantization")


def is_serving(data: Mapping[str, Any]) -> bool:
    """Whether ``data`` is a result of serving, of vLLM or SGLang of any era."""
    return sum(name in data for name in SERVING_KEYS) >= 3


def serving(data: Mapping[str, Any]) -> Draft:
    """A result of `vllm bench serve`, benchmark_serving.py or SGLang's bench_serving."""
    sglang = any(name in data for name in ("total_output_tokens_retokenized", "mean_e2e_latency_ms", "server_info"))
    newer = any(name in data for name in NEWER_KEYS)
    draft = Draft(SGLANG if sglang else VLLM if newer else VLLM_OLD, client_side=True)
    backend = data.get("backend") or data.get("endpoint_type")
    draft.word("engine", engine_of(backend) if isinstance(backend, str) else None)
    draft.model(data.get("model_id") or data.get("model"))
    draft.word("hardware", next((data[name] for name in HARDWARE_KEYS if isinstance(data.get(name), str)), None))
    draft.word("quantization", data.get("quantization"))
    for name in PARALLEL_KEYS:
        draft.number("tensor_parallel", data.get(name), name)
    _server_info(draft, data.get("server_info"))
    stamp = data.get("date")
    if isinstance(stamp, str):
        _date(draft, stamp)
    for key, value in data.items():
        _field(draft, key, value)
    if "concurrency" not in draft.values:
        draft.number("concurrency", data.get("max_concurrent_requests"), "max_concurrent_requests")
    check_retokenized(draft, number_of(data.get("total_output_tokens_retokenized")))
    _details(draft, data)
    withhold_chunks(draft)
    return draft


def _field(draft: Draft, key: str, value: Any) -> None:
    name, _ = named(key.rstrip(":"))
    timed = latency(name)
    if timed is not None:
        draft.time(*timed, value, key, 1e-3)
    elif name in WITHHELD:
        draft.withheld_figure(name, value)
    elif name in NUMBERS:
        take_number(draft, name, value, key, "s")
    elif (
        name not in ASIDE
        and key not in OWN_KEYS
        and "queue" not in name
        and not name.startswith(("probe", "diffusion"))
    ):
        draft.not_known(key)


def _server_info(draft: Draft, info: Any) -> None:
    """What SGLang's server said of itself, since 0.5."""
    if isinstance(info, dict):
        draft.model(info.get("served_model_name") or info.get("model_path"))
        draft.word("engine_version", info.get("version"))
        draft.number("tensor_parallel", info.get("tp_size"), "tp_size")
        draft.word("quantization", info.get("quantization"))
        kv = info.get("kv_cache_dtype")
        draft.word("kv_dtype", kv if kv != "auto" else None)
        draft.word("engine", "sglang")


def _date(draft: Draft, stamp: str) -> None:
    try:
        draft.values["unix_s"] = time.mktime(time.strptime(stamp.strip(), "%Y%m%d-%H%M%S"))
    except (ValueError, OverflowError):
        draft.complain("date is none of a benchmark: left out")


def _details(draft: Draft, data: Mapping[str, Any]) -> None:
    """What the requests one by one say (--save-detailed): how many tokens a streamed chunk held."""
    lengths, gaps = data.get("output_lens"), data.get("itls")
    if not isinstance(lengths, list) or not isinstance(gaps, list) or len(lengths) != len(gaps):
        return
    pairs = [(n, len(g)) for n, g in zip(lengths, gaps, strict=True) if isinstance(n, int) and isinstance(g, list)]
    tokens, chunks = sum(n - 1 for n, _ in pairs if n > 1), sum(g for n, g in pairs if n > 1)
    if chunks and tokens / chunks > CHUNKED_RATIO and draft.times["itl_s"]:
        draft.times["itl_s"].clear()
        draft.withhold(CHUNKED.format(tokens / chunks))


def withhold_chunks(draft: Draft) -> None:
    """Withhold gaps between chunks where these are longer than a token takes on average."""
    gap, token = draft.times["itl_s"].get("mean"), draft.times["tpot_s"].get("mean")
    drafted = (draft.values.get("acceptance_length") or 1.0) > 1.0
    if gap and ((token and gap / token > CHUNKED_RATIO) or drafted):
        ratio = gap / token if token else draft.values["acceptance_length"]
        draft.times["itl_s"].clear()
        draft.withhold(CHUNKED.format(ratio))


def is_offline(data: Mapping[str, Any]) -> bool:
    """Whether ``data`` is a result of SGLang's bench_offline_throughput."""
    return "successful_requests" in data and "total_latency" in data


def offline(data: Mapping[str, Any]) -> Draft:
    """A result of SGLang's bench_offline_throughput: an engine in the same process."""
    draft = Draft(OFFLINE, client_side=False, engine="sglang")
    for key, value in data.items():
        _field(draft, key, value)
    return draft


def is_throughput(data: Mapping[str, Any]) -> bool:
    """Whether ``data`` is a result of `vllm bench throughput` or benchmark_throughput.py."""
    return "elapsed_time" in data and "requests_per_second" in data


def throughput(data: Mapping[str, Any]) -> Draft:
    """A result of `vllm bench throughput`: it does not say how many of the tokens were generated."""
    draft = Draft(THROUGHPUT, client_side=False, engine="vllm")
    draft.model(data.get("model_id"))
    for key, value in data.items():
        _field(draft, key, value)
    return draft


def is_latency(data: Mapping[str, Any]) -> bool:
    """Whether ``data`` is a result of `vllm bench latency` or benchmark_latency.py."""
    return "avg_latency" in data and ("percentiles" in data or "latencies" in data)


def of_latency(data: Mapping[str, Any]) -> Draft:
    """A result of `vllm bench latency`: whole batches, whose size and lengths it does not say."""
    draft = Draft(LATENCY, client_side=False, engine="vllm")
    draft.model(data.get("model_id"))
    draft.time("e2e_s", "mean", data.get("avg_latency"), "avg_latency")
    draft.time("e2e_s", "std", data.get("std_latency"), "std_latency")
    percentiles = data.get("percentiles")
    for rank, value in percentiles.items() if isinstance(percentiles, dict) else ():
        which = statistic(f"p{rank}")
        if which:
            draft.time("e2e_s", which, value, f"p{rank} latency")
    for key in data:
        if key not in ("avg_latency", "std_latency", "percentiles", "latencies", "model_id"):
            draft.not_known(key)
    return draft
