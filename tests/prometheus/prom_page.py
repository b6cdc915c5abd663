"""A server that counts like vLLM 0.32: its /metrics page over real HTTP, at a steady rate, and restarts of it."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

MODEL = "scraped"
BATCH, RATE = 8, 50  # sequences, and steps a second: every sequence decodes one token a step
CONTEXT = 1024
KV_BLOCKS, BLOCK_TOKENS = 4096, 16
BOUNDS_TOKENS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
BOUNDS_S = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
LABELS = f'engine="0",model_name="{MODEL}"'


def counter(name: str, value: float, born_unix_s: float, labels: str = "") -> str:
    labels = LABELS + labels
    return (
        f"# HELP vllm:{name}_total A count.\n# TYPE vllm:{name}_total counter\n"
        f"vllm:{name}_total{{{labels}}} {value!r}\n"
        f"# HELP vllm:{name}_created A count.\n# TYPE vllm:{name}_created gauge\n"
        f"vllm:{name}_created{{{labels}}} {born_unix_s!r}\n"
    )


def gauge(name: str, value: float) -> str:
    return f"# HELP vllm:{name} A gauge.\n# TYPE vllm:{name} gauge\nvllm:{name}{{{LABELS}}} {value!r}\n"


def histogram(name: str, bounds: tuple[float, ...], count: float, each: float) -> str:
    rows = [f'vllm:{name}_bucket{{{LABELS},le="{b!r}"}} {count if each <= b else 0.0!r}\n' for b in map(float, bounds)]
    rows.append(f'vllm:{name}_bucket{{{LABELS},le="+Inf"}} {count!r}\n')
    rows.append(f"vllm:{name}_count{{{LABELS}}} {count!r}\nvllm:{name}_sum{{{LABELS}}} {count * each!r}\n")
    return f"# HELP vllm:{name} A histogram.\n# TYPE vllm:{name} histogram\n" + "".join(rows)


@dataclass
class Served:
    """What one answer said: the run of the server, and its steps and generated tokens so far."""

    unix_s: float
    run: int
    steps: int
    tokens: int


@dataclass
class Life:
    """One run of the server since ``born_unix_s``."""

    run: int
    born_unix_s: float = field(default_factory=time.time)

    def page(self) -> tuple[Served, str]:
        now = time.time()
        steps = int((now - self.born_unix_s) * RATE)
        born, said = self.born_unix_s, Served(now, self.run, steps, steps * BATCH)
        used = BATCH * -(-CONTEXT // BLOCK_TOKENS) / KV_BLOCKS
        parts = [
            f"# TYPE process_start_time_seconds gauge\nprocess_start_time_seconds {born!r}\n",
            gauge("num_requests_running", float(BATCH)), gauge("num_requests_waiting", 0.0),
            gauge("kv_cache_usage_perc", used),
            counter("num_preemptions", 0.0, born), counter("prompt_tokens", 0.0, born),
            counter("generation_tokens", float(said.tokens), born),
            counter("request_success", 0.0, born, ',finished_reason="stop"'),
            counter("prefix_cache_queries", 0.0, born), counter("prefix_cache_hits", 0.0, born),
            histogram("iteration_tokens_total", BOUNDS_TOKENS, float(steps), float(BATCH)),
            histogram("inter_token_latency_seconds", BOUNDS_S, float(said.tokens), 1 / RATE),
            histogram("time_to_first_token_seconds", BOUNDS_S, 0.0, 0.1),
            "# TYPE vllm:cache_config_info gauge\n"
            f'vllm:cache_config_info{{block_size="{BLOCK_TOKENS}",cache_dtype="auto",enable_prefix_caching="True",'
            f'engine="0",num_gpu_blocks="{KV_BLOCKS}"}} 1.0\n',
        ]  # fmt: skip
        return said, "".join(parts)


class Page:
    """Serves the page until ``close``; ``served`` is every answer that went out."""

    def __init__(self) -> None:
        self.served: list[Served] = []
        self._life = Life(0)
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                said, text = outer._life.page()
                body = text.encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)
                outer.served.append(said)

            def log_message(self, *words: object) -> None:
                del words

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/metrics"

    def restart(self) -> None:
        """As if the server's process had been replaced: every counter begins at zero."""
        self._life = Life(self._life.run + 1)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
