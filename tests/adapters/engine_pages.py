"""Pages of engines that move with the clock, and a page source that is given them."""

from __future__ import annotations

from typing import Any

from rooflens.adapters.scrape.fetch import Page
from rooflens.adapters.scrape.page_source import MetricsPage
from rooflens.protocols import Batch


class Told:
    """A MetricsPage that is given its pages."""

    def __init__(self) -> None:
        self.page = MetricsPage("http://engine:30000")

    def at(self, seconds: float, text: str) -> list[Batch]:
        self.page.take(Page(text), 1e9 + seconds, 100.0 + seconds)
        return self.page.read()


def column(batch: Batch, name: str) -> Any:
    assert len(batch.steps) == 1
    assert batch.steps.where(name)[0], name
    return batch.steps[name][0].item()


RANKS = '{model_name="q",engine_type="unified",tp_rank="0",pp_rank="0",moe_ep_rank="0"}'


def sglang(seconds: float, **more: float) -> str:
    """SGLang 0.5.23 at a batch of 8: 20 ms a step, 64,000 tokens of context, page size 16."""
    steps, ranks = 50 * seconds, 'tp_rank="0",pp_rank="0",moe_ep_rank="0"'
    label = f'{{model_name="q",engine_type="unified",{ranks}}}'
    server = '{model_name="q",is_streaming="true"}'
    told = {
        f"sglang:num_running_reqs{label}": 8, f"sglang:num_queue_reqs{label}": 0,
        f"sglang:token_usage{label}": 0.25, f"sglang:kv_used_tokens{label}": 65_536,
        f"sglang:max_total_num_tokens{label}": 262_144, f"sglang:page_size{label}": 16,
        f"sglang:decode_sum_seq_lens{label}": 64_000, f"sglang:cache_hit_rate{label}": 0,
        "sglang:cuda_graph_passes_total" + label[:-1] + ',mode="decode_cuda_graph"}': steps,
        "sglang:cuda_graph_passes_total" + label[:-1] + ',mode="decode_none"}': 0,
        "sglang:cuda_graph_passes_total" + label[:-1] + ',mode="prefill_none"}': 8,
        "sglang:realtime_tokens_total" + label[:-1] + ',mode="prefill_compute"}': 4000,
        f"sglang:estimated_read_bytes_per_gpu_total{label}": 1e15 * steps,
        f"sglang:inter_token_latency_seconds_sum{server}": 8 * seconds,
        f"sglang:inter_token_latency_seconds_count{server}": 8 * steps,
        f"sglang:time_to_first_token_seconds_count{server}": 8, f"sglang:cached_tokens_total{server}": 320,
    } | more  # fmt: skip
    return "".join(f"{name} {value}\n" for name, value in told.items())
