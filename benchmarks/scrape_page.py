"""How fast a large metrics page is read: ours beside prometheus_client's parser, in one run, on the same text.

The page is that of vLLM with eight data-parallel engines: 6,560 samples, most of them buckets of histograms.
Run it on a quiet machine: python benchmarks/scrape_page.py [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from rooflens.adapters.scrape.names import names_of
from rooflens.adapters.scrape.readings import page_reading
from rooflens.adapters.scrape.text import read_samples

ENGINES, SAMPLES = 8, 6560
GOAL_MS = 10.0
BUCKETS = [0.001 * 1.35**step for step in range(24)]
GAUGES = ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc")
COUNTERS = ("num_preemptions", "prompt_tokens", "generation_tokens", "prefix_cache_queries", "prefix_cache_hits")
HISTOGRAMS = (
    "iteration_tokens_total", "time_to_first_token_seconds", "inter_token_latency_seconds",
    "e2e_request_latency_seconds", "request_queue_time_seconds", "request_inference_time_seconds",
    "request_prefill_time_seconds", "request_decode_time_seconds", "request_prompt_tokens",
    "request_generation_tokens", "request_max_num_generation_tokens", "request_params_n", "request_params_max_tokens",
    "request_time_per_output_token_seconds", "request_num_preemptions", "request_prefill_kv_computed_tokens",
)  # fmt: skip
REASONS = ("stop", "length", "abort", "error", "repetition")


def build() -> str:
    """The page; filled up to SAMPLES with the histogram of the HTTP server, which no engine's quantity is."""
    lines, count = ["process_start_time_seconds 1.7e+09"], 1
    labels = [f'engine="{engine}",model_name="meta-llama/Llama-3.1-8B-Instruct"' for engine in range(ENGINES)]

    def family(name: str, kind: str, series: list[tuple[str, str, float]]) -> None:
        nonlocal count
        lines.extend((f"# HELP vllm:{name} Of this engine: {name}.", f"# TYPE vllm:{name} {kind}"))
        lines.extend(f"vllm:{name}{suffix}{{{told}}} {value!r}" for suffix, told, value in series)
        count += len(series)

    for name in GAUGES:
        family(name, "gauge", [("", told, 0.5) for told in labels])
    for name in COUNTERS:
        family(name, "counter", [("_total", told, 12345.0) for told in labels])
    ended = [("_total", f'{told},finished_reason="{reason}"', 7.0) for told in labels for reason in REASONS]
    family("request_success", "counter", ended)
    family(
        "cache_config_info", "gauge", [("", f'{told},block_size="16",num_gpu_blocks="27300"', 1.0) for told in labels]
    )
    for name in HISTOGRAMS:
        rows = [
            ("_bucket", f'{told},le="{bound:.6g}"', 9.0 * at) for told in labels for at, bound in enumerate(BUCKETS)
        ]
        rows += [(suffix, told, 987.5) for told in labels for suffix in ("_sum", "_count")]
        family(name, "histogram", rows)
    lines.append("# TYPE http_request_duration_seconds histogram")
    lines += [
        f'http_request_duration_seconds_bucket{{handler="/v1/completions",le="{at}"}} {at}.0'
        for at in range(SAMPLES - count)
    ]
    return "\n".join([*lines, ""])


def ours(text: str) -> int:
    """The page read to the engines on it; how many there are."""
    names = names_of("vllm")
    return len(page_reading(read_samples(text, names.meanings), names, 0.0, 0.0).engines)


def theirs(text: str) -> int:
    """The page parsed by prometheus_client; how many samples it has."""
    return sum(len(family.samples) for family in text_string_to_metric_families(text))


def times_ms(read: Callable[[str], int], text: str, times: int) -> list[float]:
    """Wall time of each of ``times`` reads, in ms."""
    found = []
    for _ in range(times):
        began_s = time.perf_counter()
        read(text)
        found.append((time.perf_counter() - began_s) * 1e3)
    return found


def main() -> None:
    """Measure, print, and write the JSON if asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result there as well")
    options = parser.parse_args()
    text = build()
    assert (ours(text), theirs(text)) == (ENGINES, SAMPLES)
    mine, others = [], []
    for _ in range(5):  # in turns, so that a busy moment hits both
        mine += times_ms(ours, text, 20)
        others += times_ms(theirs, text, 2)
    result = {
        "samples": SAMPLES,
        "page_bytes": len(text.encode()),
        "ours_ms_p50": round(statistics.median(mine), 2),
        "ours_ms_max": round(max(mine), 2),
        "prometheus_client_ms_p50": round(statistics.median(others), 1),
        "ratio": round(statistics.median(others) / statistics.median(mine), 1),
        "goal_ms": GOAL_MS,
        "python": platform.python_version(),
        "machine": platform.machine(),
    }
    for name, value in result.items():
        print(f"{name:26}{value}")
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
