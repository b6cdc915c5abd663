"""An engine of one's own, recorded: run it, then `rooflens analyze`. It only counts; put a real forward pass in."""

from __future__ import annotations

import time
from dataclasses import dataclass

from rooflens.adapters.recorder import Recorder

CONFIG = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "hidden_act": "silu",
}


@dataclass
class Request:
    """A sequence: its prompt, and what is cached and still to be generated, in tokens."""

    prompt_tokens: int
    cached_tokens: int = 0
    tokens_left: int = 20


def forward(requests: list[Request], queries: list[int]) -> None:
    """Where a model would run."""
    time.sleep(0.005)
    for request, query in zip(requests, queries, strict=True):
        request.cached_tokens += query
        request.tokens_left -= 1


def main() -> None:
    """Prefill three prompts, then decode until all are done."""
    requests = [Request(100), Request(200), Request(50, tokens_left=40)]
    with Recorder("my-engine", model_config=CONFIG, weight_dtype="bfloat16", block_tokens=16) as recorder:
        while requests:
            queries = [1 if request.cached_tokens else request.prompt_tokens for request in requests]
            with recorder.step(contexts=[r.cached_tokens for r in requests], queries=queries) as step:
                forward(requests, queries)
                step.generated_tokens = len(requests)
            requests = [request for request in requests if request.tokens_left]
        print(f"rooflens analyze {recorder.path} --hardware h100-sxm5-80")


if __name__ == "__main__":
    main()
