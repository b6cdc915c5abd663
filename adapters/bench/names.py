"""What the labels of benchmarks mean: names in lower case, without their unit, to fields of an Observation.

Read in: vLLM benchmarks/benchmark_serving.py 0.1 to 0.10 and vllm/benchmarks/serve.py 0.10 to 0.32; SGLang
bench_serving.py and bench_offline_throughput.py 0.2 to 0.5.12; TensorRT-LLM bench/dataclasses/reporting.py 0.17 to 1.2;
aiperf's and genai-perf's console, CSV and JSON exporters of 2024 to 2026.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

TOTAL_TOKENS = "total token throughput adds the prompt's tokens to those that were generated"
PEAK = (
    "peak output token throughput counts streamed chunks in its best second: with speculation, or where a chunk holds "
    "several tokens, these are not tokens"
)
LAST = "last generation throughput is the server's last look, at the drain of the run when few sequences were left"
PER_USER = "output throughput per user is of one request, its prefill and queue included"
WITH_FIRST = "time per output token of this kind holds the first token: prefill and queue are in it"
GOODPUT = "goodput counts requests within limits that were given to the benchmark alone"
RETOKENIZED = "retokenized tokens are the text split anew, not what the engine generated"
CHUNKS = "inter-chunk latency is between streamed chunks, each of which may hold several tokens"

# Label or key of JSON (underscores as blanks) -> field.
NUMBERS: Mapping[str, str] = {
    "successful requests": "requests",
    "completed": "requests",
    "number of requests": "requests",
    "request count": "requests",
    "num requests": "requests",
    "failed requests": "failed_requests",
    "failed": "failed_requests",
    "error request count": "failed_requests",
    "request rate configured": "request_rate_per_s",
    "traffic request rate": "request_rate_per_s",
    "request rate": "request_rate_per_s",
    "maximum request concurrency": "concurrency",
    "max request concurrency": "concurrency",
    "max reqeuest concurrency": "concurrency",  # so SGLang spelled it until 0.4.6
    "max concurrency": "concurrency",
    "concurrency": "concurrency_mean",
    "number of concurrent requests": "concurrency_mean",
    "avg num concurrent requests": "concurrency_mean",
    "benchmark duration": "duration_s",
    "duration": "duration_s",
    "total time": "duration_s",
    "total latency": "duration_s",
    "elapsed time": "duration_s",
    "total input tokens": "prompt_tokens",
    "total input": "prompt_tokens",
    "total num prompt tokens": "prompt_tokens",
    "total isl": "prompt_tokens",
    "total generated tokens": "generated_tokens",
    "total output tokens": "generated_tokens",
    "total output": "generated_tokens",
    "total num output tokens": "generated_tokens",
    "total osl": "generated_tokens",
    "average input length": "prompt_tokens_mean",
    "avg input length": "prompt_tokens_mean",
    "input sequence length": "prompt_tokens_mean",
    "average output length": "generated_tokens_mean",
    "avg output length": "generated_tokens_mean",
    "output sequence length": "generated_tokens_mean",
    "request throughput": "requests_per_s",
    "requests per second": "requests_per_s",
    "throughput": "requests_per_s",
    "output token throughput": "generated_tokens_per_s",
    "output throughput": "generated_tokens_per_s",
    "total output throughput": "generated_tokens_per_s",
    "input token throughput": "prompt_tokens_per_s",
    "input throughput": "prompt_tokens_per_s",
    "request inthroughput": "prompt_tokens_per_s",
    "accept length": "acceptance_length",
    "acceptance length": "acceptance_length",
    "spec decode acceptance length": "acceptance_length",
    "tp size": "tensor_parallel",
    "token throughput": "generated_tokens_per_s",  # trtllm-bench 0.17
}
WITHHELD: Mapping[str, str] = {
    "peak output token throughput": PEAK,
    "max output tokens per s": PEAK,
    "last generation throughput": LAST,
    "last gen throughput": LAST,
    "total token throughput": TOTAL_TOKENS,
    "total throughput": TOTAL_TOKENS,
    "tokens per second": TOTAL_TOKENS,
    "total num tokens": TOTAL_TOKENS,
    "request goodput": GOODPUT,
    "total generated tokens (retokenized)": RETOKENIZED,
    "total output tokens retokenized": RETOKENIZED,
    "average latency per token": WITH_FIRST,
    "average latency per output token": WITH_FIRST,
    "per user output throughput [w/ ctx]": PER_USER,
    "per user output throughput": PER_USER,
    "output token throughput per user": PER_USER,
    "output throughput per user": PER_USER,
    "inter chunk latency": CHUNKS,
    "user throughput": PER_USER,
}
# Of these, rates whose difference to the output's is the prompts' rate.
TOTAL_RATES = frozenset(("total token throughput", "total throughput", "tokens per second"))
# What a result also says, is understood and is no figure of this record.
ASIDE_NAMES = """
backend, endpoint type, label, tokenizer id, num prompts, burstiness, tag, dataset name, sharegpt output len,
random input len, random output len, random range ratio, rtfx, best of, use beam search, version, date, model id,
rps change events, ramp up strategy, ramp up start rps, ramp up end rps, spec decode acceptance rate,
spec decode num drafts, spec decode draft tokens, spec decode accepted tokens,
spec decode per position acceptance rates, acceptance rate, drafts, draft tokens, accepted tokens, input lens,
output lens, ttfts, itls, latencies, start times, queue times, generated texts, errors, server info,
total input text tokens, total input vision tokens, total input text, total input vision, pp size, ep size,
max runtime batch size, max runtime tokens, scheduling policy, kv memory percentage, issue rate, model, model path,
engine directory, tensorrt llm version, tensorrt-llm version, dtype, kv cache dtype, quantization, max input length,
max sequence length, revision, per gpu output throughput, time to second token, time to first output token,
good request count, dataset path, number of sequences, per user output speed, per user output speed [1/tpot],
max concurrent requests, peak concurrent requests, total input sequences, rtfx (inverse real-time factor),
input sequence throughput
"""
ASIDE = frozenset(" ".join(name.split()) for name in ASIDE_NAMES.split(","))

LATENCIES: Mapping[str, str] = {
    "ttft": "ttft_s",
    "time to first token": "ttft_s",
    "tpot": "tpot_s",
    "itl": "itl_s",
    "e2el": "e2e_s",
    "e2e latency": "e2e_s",
    "e2e": "e2e_s",
    "request latency": "e2e_s",
    "latency": "e2e_s",
}
STATISTICS: Mapping[str, str] = {
    "mean": "mean", "avg": "mean", "average": "mean", "median": "p50", "std": "std", "stddev": "std", "min": "min",
    "minimum": "min", "max": "max", "maximum": "max",
}  # fmt: skip
OF_LATENCY = re.compile(r"^(mean|median|std|max|min|average|avg|p\d{1,2}(?:\.\d{1,4})?) (.{2,40}?)(?: ms)?$")


def statistic(word: str) -> str | None:
    """ "mean", "std", "min", "max" or "p99" of how a benchmark calls it; None for what is none of these."""
    wanted = word.strip().lower()
    if wanted in STATISTICS:
        return STATISTICS[wanted]
    number = wanted[1:]
    is_rank = wanted[:1] == "p" and len(wanted) < 9 and wanted.isascii() and number.replace(".", "", 1).isdigit()
    return wanted if is_rank and float(number) <= 100 else None


def latency(name: str) -> tuple[str, str] | None:
    """(field, statistic) of a label such as "p99 ttft" or a key such as "mean e2e latency ms"; else None."""
    found = OF_LATENCY.match(name)
    if found is None or found[2] not in LATENCIES:
        return None
    kind = statistic(found[1])
    return None if kind is None else (LATENCIES[found[2]], kind)
