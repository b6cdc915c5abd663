"""Metrics pages for tests: they say what a test tells them to, through the real reader of pages."""

from __future__ import annotations

import time
from typing import Any

from rooflens.adapters.scrape.fetch import Page
from rooflens.adapters.scrape.page_source import MetricsPage
from rooflens.live_records import Snapshot, SourceKind, State
from rooflens.metric_records import Metric

URL = "http://127.0.0.1:8000/metrics"
AWAY = "http://10.1.2.3:8000/metrics"
# Of an engine that decodes ten sequences in steps of 50 ms.
SERIES = {
    "num_requests_running": lambda n: 10,
    "num_requests_waiting": lambda n: 0,
    "kv_cache_usage_perc": lambda n: 0.1 + n / 1e5,
    "generation_tokens_total": lambda n: 10 + 10 * n,
    "prompt_tokens_total": lambda n: 1000,
    "iteration_tokens_total_count": lambda n: 1 + n,
    "iteration_tokens_total_sum": lambda n: 1000 + 10 * n,
    "inter_token_latency_seconds_count": lambda n: 10 * n,
    "inter_token_latency_seconds_sum": lambda n: 0.5 * n,
    "time_to_first_token_seconds_count": lambda n: 10,
    "time_to_first_token_seconds_sum": lambda n: 1.0,
    "num_preemptions_total": lambda n: 0,
}  # fmt: skip


class Site:
    """Pages that come when the test says so, from the real reader of pages; none of them is fetched."""

    def __init__(self) -> None:
        self.began_s = time.time() - 1000.0
        self.pages: list[MetricsPage] = []

    def tell(self, steps: int, page: int = 0, model: str = "llama", engine: str = "0", idle: bool = False) -> None:
        """The page after so many steps, as fetched now."""
        labels = f'{{engine="{engine}",model_name="{model}"}}'
        values = {name: value(steps) for name, value in SERIES.items()}
        if idle:
            values |= {"num_requests_running": 0, "kv_cache_usage_perc": 0.0}
        lines = [f"process_start_time_seconds {self.began_s!r}"]
        lines += [f"vllm:{name}{labels} {float(value)!r}" for name, value in values.items()]
        lines.append(f'vllm:cache_config_info{{block_size="16",num_gpu_blocks="1000",engine="{engine}"}} 1.0')
        self.pages[page].take(Page("\n".join(lines) + "\n"), time.time(), time.monotonic())
        self.pages[page].last_read_unix_s = time.time()

    def restart(self) -> None:
        """Another process answers from now on."""
        self.began_s = time.time() + 10.0


def value(snapshot: Snapshot, metric: Metric, *labels: str) -> Any:
    (found,) = [s.value for s in snapshot.samples if s.metric is metric and s.labels[-len(labels) :] == labels]
    return found


def engines(snapshot: Snapshot) -> list[tuple[str, str, SourceKind, State]]:
    return [(view.model_name, view.engine, view.source, view.state) for view in snapshot.engines]


def page_states(snapshot: Snapshot) -> list[State]:
    return [source.state for source in snapshot.sources if source.kind is SourceKind.METRICS]
