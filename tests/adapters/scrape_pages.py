"""Metrics pages for the tests: recorded ones, made ones, and real servers that serve them, well or badly."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from rooflens.adapters.scrape.names import names_of
from rooflens.adapters.scrape.readings import PageReading, page_reading
from rooflens.adapters.scrape.text import read_samples

PAGES = Path(__file__).parents[1] / "data" / "metrics_pages"
CONFIG = {"num_gpu_blocks": "1001", "block_size": "16", "cache_dtype": "auto", "enable_prefix_caching": "True"}
TLS_HELLO = b"\x16"
STARTED = 1_700_000_000.25


def recorded(name: str) -> tuple[str, float]:
    """A recorded page and when it was recorded, Unix seconds."""
    when = json.loads((PAGES / "provenance.json").read_text())["pages"][name]["unix_s"]
    return (PAGES / f"{name}.txt").read_text(), when


def read(text: str, unix_s: float = 1e9, monotonic_s: float = 0.0) -> PageReading:
    """A page as the scraper reads it."""
    names = names_of("vllm")
    return page_reading(read_samples(text, names.meanings), names, unix_s, monotonic_s)


def page(
    started: float | None = STARTED,
    engine: str | None = "0",
    model: str | None = "m",
    config: Mapping[str, str] | None = None,
    **values: float,
) -> str:
    """A page of one engine as a recent vLLM writes it; ``values`` by short names, all others as in an idle engine."""
    labels = [f'{k}="{v}"' for k, v in (("engine", engine), ("model_name", model)) if v is not None]
    got = DEFAULTS | values
    lines = [] if started is None else [f"process_start_time_seconds {started!r}"]
    for short, series in SERIES.items():
        if short in got and got[short] is not None:
            name, _, more = series.partition("{")
            lines.append(f"vllm:{name}{{{','.join(labels + ([more] if more else []))}}} {float(got[short])!r}")
    facts = CONFIG if config is None else config
    if facts:
        told = ",".join(f'{k}="{v}"' for k, v in {**facts, **({} if engine is None else {"engine": engine})}.items())
        lines.append(f"vllm:cache_config_info{{{told}}} 1.0")
    return "\n".join(lines) + "\n"


SERIES = {
    "running": "num_requests_running",
    "waiting": "num_requests_waiting",
    "capacity": 'num_requests_waiting_by_reason{reason="capacity"',
    "deferred": 'num_requests_waiting_by_reason{reason="deferred"',
    "awake": 'engine_sleep_state{sleep_state="awake"',
    "kv": "kv_cache_usage_perc",
    "preempted": "num_preemptions_total",
    "prompt": "prompt_tokens_total",
    "generated": "generation_tokens_total",
    "steps": "iteration_tokens_total_count",
    "step_tokens": "iteration_tokens_total_sum",
    "itl_n": "inter_token_latency_seconds_count",
    "itl_s": "inter_token_latency_seconds_sum",
    "first_n": "time_to_first_token_seconds_count",
    "first_s": "time_to_first_token_seconds_sum",
    "finished": 'request_success_total{finished_reason="length"',
    "drafted": "spec_decode_num_draft_tokens_total",
    "accepted": "spec_decode_num_accepted_tokens_total",
    "hits": "prefix_cache_hits_total",
}
DEFAULTS: dict[str, float] = dict.fromkeys(SERIES, 0.0) | {"awake": 1.0}
del DEFAULTS["drafted"], DEFAULTS["accepted"]

# Ten requests decode for five seconds: 100 steps of 50 ms.
DECODE_1 = {"running": 10, "kv": 0.1, "generated": 10, "first_n": 10, "first_s": 1, "prompt": 1000, "steps": 1}
DECODE_2 = DECODE_1 | {"kv": 0.2, "generated": 1010, "itl_n": 1000, "itl_s": 50.0, "steps": 101}


@contextmanager
def serving(answer: Callable[[socket.socket, bytes], None]) -> Iterator[str]:
    """A server on raw sockets: ``answer`` gets each connection and the head of its request. Yields the url."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        stop = threading.Event()

        def one(connection: socket.socket) -> None:
            with connection, suppress(OSError):
                connection.settimeout(5)
                head = b""
                while b"\r\n\r\n" not in head and head[:1] != TLS_HELLO:
                    head += connection.recv(4096) or b"\r\n\r\n"
                answer(connection, head)

        def loop() -> None:
            with suppress(OSError):
                while not stop.is_set():
                    threading.Thread(target=one, args=(listener.accept()[0],), daemon=True).start()

        thread = threading.Thread(target=loop, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            stop.set()
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            thread.join(5)


class Site:
    """Serves the text that ``page`` is at the moment, or an error status; keeps the heads of the requests."""

    def __init__(self, text: str = "") -> None:
        self.page, self.status, self.heads = text, 200, []  # type: tuple[str, int, list[bytes]]

    def __call__(self, connection: socket.socket, head: bytes) -> None:
        self.heads.append(head)
        body = self.page.encode()
        connection.sendall(b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n" % (self.status, len(body)) + body)


def numbers(batch: Any) -> dict[str, float]:
    """The last row of a batch as a dict, without what is not known."""
    table = batch.steps
    return {name: column[-1].item() for name, column in table.columns.items() if table.where(name)[-1]}
