"""Metrics pages of a fleet of engines whose counters move by the clock, and the servers that serve them.

Each engine decodes for SEQUENCES requests in steps of STEP_S; each REQUEST_S one ends and another begins.
The pages of vLLM and llama.cpp are recorded ones with their values moved; those of SGLang, TGI and TensorRT-LLM have
the names of their tables and as many histograms with as many buckets as the real ones.
"""

from __future__ import annotations

import json
import re
import sys
import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

DATA = Path(__file__).resolve().parents[1] / "tests" / "data"
SEQUENCES, STEP_S, REQUEST_S, PROMPT, CONTEXT = 16, 0.02, 1.0, 500, 1200
ITERATIONS = "tensorrt-llm (JSON)"  # at /metrics: each step since the last answer
FLEET = ("vllm",) * 8 + ("sglang",) * 8 + ("llama.cpp",) * 8 + ("tgi",) * 4 + ("tensorrt-llm",) * 2 + (ITERATIONS,) * 2
Page = Callable[[float], str]


class Moved:
    """What an engine has counted when it is ``age_s`` old."""

    def __init__(self, age_s: float) -> None:
        self.steps = int(age_s / STEP_S)
        self.requests = int(age_s / REQUEST_S) + SEQUENCES
        self.decoded = self.steps * SEQUENCES
        self.generated = self.decoded + self.requests
        self.prompt = self.requests * PROMPT


def histogram(name: str, labels: str, buckets: int, count: float, total: float) -> list[str]:
    """The lines of one histogram."""
    before = labels + "," if labels else ""
    lines = [f"# HELP {name} Histogram of {name}.", f"# TYPE {name} histogram"]
    lines += [f'{name}_bucket{{{before}le="{0.001 * 1.4**at:.4g}"}} {float(count)}' for at in range(buckets)]
    lines.append(f'{name}_bucket{{{before}le="+Inf"}} {float(count)}')
    told = f"{{{labels}}}" if labels else ""
    return [*lines, f"{name}_count{told} {float(count)}", f"{name}_sum{told} {float(total)}"]


def recorded(file: str, values: Callable[[Moved], Mapping[str, float]], started: float) -> Page:
    """A recorded page, with these series (whole name and labels, or name alone) at other values."""
    lines = (DATA / file).read_text().split("\n")
    names = [re.match(r"[^\s#{]+", line) for line in lines]
    places: dict[str, list[int]] = {}
    for at, name in enumerate(names):
        if name:
            places.setdefault(name[0], []).append(at)

    def page(age_s: float) -> str:
        now = list(lines)
        for name, value in {**values(Moved(age_s)), "process_start_time_seconds": started}.items():
            for at in places.get(name, ()):
                now[at] = f"{lines[at].rpartition(' ')[0]} {value!r}"
        return "\n".join(now)

    return page


def of_vllm(moved: Moved) -> dict[str, float]:
    """What moves on a page of vLLM."""
    blocks = SEQUENCES * CONTEXT / 128 / 1600
    return {
        "vllm:num_requests_running": float(SEQUENCES), "vllm:kv_cache_usage_perc": blocks,
        "vllm:prompt_tokens_total": float(moved.prompt), "vllm:generation_tokens_total": float(moved.generated),
        "vllm:iteration_tokens_total_count": float(moved.steps),
        "vllm:iteration_tokens_total_sum": float(moved.generated + moved.prompt),
        "vllm:time_to_first_token_seconds_count": float(moved.requests),
        "vllm:time_to_first_token_seconds_sum": 0.1 * moved.requests,
        "vllm:inter_token_latency_seconds_count": float(moved.decoded),
        "vllm:inter_token_latency_seconds_sum": moved.decoded * STEP_S,
        "vllm:prefix_cache_queries_total": float(moved.prompt),
    }  # fmt: skip


def of_llama_cpp(moved: Moved) -> dict[str, float]:
    """What moves on a page of llama.cpp."""
    return {
        "llamacpp:prompt_tokens_total": float(moved.prompt), "llamacpp:n_decode_total": float(moved.steps),
        "llamacpp:tokens_predicted_total": float(moved.generated), "llamacpp:requests_processing": float(SEQUENCES),
        "llamacpp:n_busy_slots_per_decode": float(SEQUENCES), "llamacpp:prompt_seconds_total": 0.05 * moved.requests,
        "llamacpp:tokens_predicted_seconds_total": moved.steps * STEP_S,
    }  # fmt: skip


def sglang(started: float) -> Page:
    """A page as SGLang 0.5.12 to 0.5.23 writes it."""
    rank = 'engine_type="unified",model_name="m",pp_rank="0",tp_rank="0"'
    front = 'engine_type="unified",model_name="m"'
    latencies = ("e2e_request_latency_seconds", "queue_time_seconds", "prompt_tokens_histogram",
                 "generation_tokens_histogram", "func_latency_seconds", "per_stage_req_latency_seconds")  # fmt: skip

    def page(age_s: float) -> str:
        moved = Moved(age_s)
        gauges = {
            "num_running_reqs": SEQUENCES, "num_queue_reqs": 0, "num_grammar_queue_reqs": 0, "token_usage": 0.12,
            "kv_used_tokens": SEQUENCES * CONTEXT, "max_total_num_tokens": 160_000, "page_size": 1,
            "gen_throughput": SEQUENCES / STEP_S, "cache_hit_rate": 0.0, "decode_sum_seq_lens": SEQUENCES * CONTEXT,
            "utilization": 0.1, "max_running_requests_under_SLO": 0, "engine_startup_time": 20.5,
        }  # fmt: skip
        lines = [f"process_start_time_seconds {started!r}"]
        for name, value in gauges.items():
            lines += [f"# HELP sglang:{name} The {name}.", f"# TYPE sglang:{name} gauge"]
            lines.append(f"sglang:{name}{{{rank}}} {float(value)}")
        for mode, value in (("decode_cuda_graph", moved.steps), ("prefill_none", moved.requests)):
            lines.append(f'sglang:cuda_graph_passes_total{{mode="{mode}",{rank}}} {float(value)}')
        for mode, value in (("prefill_compute", moved.prompt), ("decode", moved.decoded)):
            lines.append(f'sglang:realtime_tokens_total{{mode="{mode}",{rank}}} {float(value)}')
        for name, value in (("prompt_tokens", moved.prompt), ("generation_tokens", moved.generated)):
            lines.append(f"sglang:{name}_total{{{front}}} {float(value)}")
        lines.append(f"sglang:num_requests_total{{{front}}} {float(moved.requests)}")
        first, inter = "sglang:time_to_first_token_seconds", "sglang:inter_token_latency_seconds"
        lines += histogram(first, front, 20, moved.requests, 0.1 * moved.requests)
        lines += histogram(inter, front, 32, moved.decoded, moved.decoded * STEP_S)
        for name in latencies:
            lines += histogram(f"sglang:{name}", front, 28, moved.requests, 2.0 * moved.requests)
        return "\n".join([*lines, ""])

    return page


def tgi(_: float) -> Page:
    """A page as TGI 3 writes it."""
    others = ("tgi_request_duration", "tgi_request_validation_duration", "tgi_request_queue_duration",
              "tgi_request_inference_duration", "tgi_request_mean_time_per_token_duration",
              "tgi_request_max_new_tokens", "tgi_batch_next_size")  # fmt: skip

    def page(age_s: float) -> str:
        moved = Moved(age_s)
        lines = [f"tgi_batch_current_size {SEQUENCES}", "tgi_queue_size 0", f"tgi_request_success {moved.requests}"]
        for name in ("tgi_batch_forward_duration", "tgi_batch_inference_duration", "tgi_batch_decode_duration"):
            lines += histogram(name, 'method="decode"', 24, moved.steps, moved.steps * STEP_S)
            lines += histogram(name, 'method="prefill"', 24, moved.requests, moved.requests * 0.05)
        lines += histogram("tgi_request_generated_tokens", "", 24, moved.requests, moved.generated)
        lines += histogram("tgi_request_input_length", "", 24, moved.requests, moved.prompt)
        for name in others:
            lines += histogram(name, "", 24, moved.requests, moved.requests)
        return "\n".join([*lines, ""])

    return page


def tensorrt_llm(started: float) -> Page:
    """A page as trtllm-serve 1.3 writes it at /prometheus/metrics."""
    front = 'engine_type="trtllm",model_name="m"'

    def page(age_s: float) -> str:
        moved = Moved(age_s)
        gauges = {"num_requests_running": SEQUENCES, "num_requests_waiting": 0, "kv_cache_utilization": 0.12,
                  "kv_cache_max_blocks": 5000, "kv_cache_tokens_per_block": 32}  # fmt: skip
        lines = [f"process_start_time_seconds {started!r}"]
        lines += [f"trtllm_{name}{{{front}}} {float(value)}" for name, value in gauges.items()]
        counted = (("generation_tokens", moved.generated), ("prompt_tokens", moved.prompt))
        lines += [f"trtllm_{name}_total{{{front}}} {float(value)}" for name, value in counted]
        lines.append(f'trtllm_request_success_total{{finished_reason="stop",{front}}} {float(moved.requests)}')
        lines += histogram("trtllm_iteration_latency_seconds", front, 20, moved.steps, moved.steps * STEP_S)
        lines += histogram("trtllm_time_to_first_token_seconds", front, 24, moved.requests, 0.1 * moved.requests)
        lines += histogram("trtllm_time_per_output_token_seconds", front, 24, moved.requests, STEP_S * moved.requests)
        for name in ("e2e_request_latency_seconds", "request_queue_time_seconds"):
            lines += histogram(f"trtllm_{name}", front, 24, moved.requests, moved.requests)
        return "\n".join([*lines, ""])

    return page


def iterations(started: float) -> Page:
    """The page of trtllm-serve at /metrics, which empties the queue of its steps."""
    told = 0

    def page(age_s: float) -> str:
        nonlocal told
        first, told = max(told, int(age_s / STEP_S) - 1000), int(age_s / STEP_S)
        steps = []
        for number in range(first, told):
            begins = number % round(REQUEST_S / STEP_S) == 0
            stamp = datetime.fromtimestamp(started + number * STEP_S, UTC).strftime("%m-%d-%Y %H:%M:%S.%f")
            batch = {
                "numContextRequests": int(begins), "numCtxTokens": PROMPT * begins, "numGenRequests": SEQUENCES,
                "numPausedRequests": 0, "numScheduledRequests": SEQUENCES + begins, "microBatchId": 0,
                "avgNumDecodedTokensPerIter": 1.0,
            }  # fmt: skip
            pool = {"maxNumBlocks": 5000, "freeNumBlocks": 4400, "usedNumBlocks": 600, "tokensPerBlock": 32,
                    "allocTotalBlocks": 600, "allocNewBlocks": 1, "reusedBlocks": 0, "cacheHitRate": 0.0}  # fmt: skip
            steps.append({
                "iter": number, "iterLatencyMS": 1e3 * STEP_S, "timestamp": stamp, "numActiveRequests": SEQUENCES,
                "numQueuedRequests": 0, "gpuMemUsage": 25330607135, "cpuMemUsage": 3492, "pinnedMemUsage": 55538100068,
                "maxNumActiveRequests": 16, "maxBatchSizeRuntime": 16, "maxNumTokensRuntime": 8192,
                "inflightBatchingStats": batch, "kvCacheStats": pool, "staticBatchingStats": None,
            })  # fmt: skip
        return json.dumps(steps)

    return page


MAKERS: Mapping[str, Callable[[float], Page]] = {
    "vllm": partial(recorded, "metrics_pages/vllm-0.32-single-decode2-whole.txt", of_vllm),
    "sglang": sglang,
    "llama.cpp": partial(recorded, "llamacpp/metrics_busy.txt", of_llama_cpp),
    "tgi": tgi,
    "tensorrt-llm": tensorrt_llm,
    ITERATIONS: iterations,
}
SAYS: Mapping[str, Mapping[str, object]] = {
    "vllm": {"/version": {"version": "0.32.0"}},
    "sglang": {"/server_info": {"version": "0.5.23", "page_size": 1, "max_total_num_tokens": 160_000}},
    "llama.cpp": {"/props": {"build_info": "b10434", "total_slots": SEQUENCES, "model_alias": "m"}},
    "tgi": {"/info": {"version": "3.3.0", "model_id": "m"}},
    "tensorrt-llm": {"/version": {"version": "1.3.0"}},
    ITERATIONS: {"/version": {"version": "1.3.0"}},
}


def server_of(engine: str) -> ThreadingHTTPServer:
    """A server of one engine at a port of its own, not started."""
    began = time.time()
    page, says = MAKERS[engine](began), SAYS[engine]

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            body = page(time.time() - began) if path == "/metrics" else json.dumps(says[path]) if path in says else ""
            self.send_response(200 if body else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, format: str, *args: object) -> None:
            pass

    return ThreadingHTTPServer(("127.0.0.1", 0), Handler)


def serve(engines: int) -> None:
    """Serve the first ``engines`` of the fleet, spread over its kinds; print their addresses, until stdin ends."""
    fleet = FLEET if engines > 1 else FLEET[:1]
    servers = [server_of(engine) for engine in fleet[:engines]]
    for server in servers:
        threading.Thread(target=server.serve_forever, daemon=True).start()
    print(json.dumps([f"http://127.0.0.1:{server.server_port}/metrics" for server in servers]), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    serve(int(sys.argv[1]))
