"""A small llama with random weights under transformers' continuous batching, and a witness inside its forward pass."""

from __future__ import annotations

import functools
import random
import time
from dataclasses import dataclass, field, fields
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from compare import read_ring
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM
from transformers.generation.configuration_utils import ContinuousBatchingConfig

from rooflens.protocols import Batch

PAGE_TOKENS = 16
VOCABULARY = 1024


def small_llama(**shape: int) -> Any:
    """2.6 million parameters in bfloat16, the attention sdpa."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    sizes = {"hidden_size": 256, "num_hidden_layers": 4, "intermediate_size": 512} | shape
    config = LlamaConfig(num_attention_heads=8, num_key_value_heads=4, vocab_size=VOCABULARY, **sizes)
    model = LlamaForCausalLM(config).to(torch.bfloat16).eval()
    model.set_attn_implementation("sdpa")
    return model


def greedy(tokens: int, **more: Any) -> Any:
    """Generate exactly ``tokens`` for each request."""
    return GenerationConfig(**({"max_new_tokens": tokens, "do_sample": False, "eos_token_id": -1} | more))


def engine(blocks: int = 256, budget: int = 64, **more: Any) -> Any:
    """Settings of the engine: KV blocks of 16 tokens, tokens a batch."""
    named = {field.name for field in fields(ContinuousBatchingConfig)}
    size = "page_size" if "page_size" in named else "block_size"  # before 5.17
    return ContinuousBatchingConfig(**{"num_blocks": blocks, size: PAGE_TOKENS, "max_batch_tokens": budget, **more})


def prompts(count: int, shortest: int = 5, longest: int = 90, seed: int = 1) -> list[list[int]]:
    """Made-up prompts that share no beginning."""
    rng = random.Random(seed)
    return [[rng.randrange(VOCABULARY) for _ in range(rng.randrange(shortest, longest))] for _ in range(count)]


@dataclass
class Pass:
    """One forward pass as the model saw it: tokens computed and tokens cached before, a figure a sequence."""

    queries: list[int]
    contexts: list[int]
    blocks: int


@dataclass
class Witness:
    """Reads the arguments of the model's own forward; it knows nothing of the hook."""

    model: Any
    passes: list[Pass] = field(default_factory=list)

    def __enter__(self) -> Witness:
        self._forward = self.model.forward

        @functools.wraps(self._forward)  # the engine looks at its parameters
        def forward(*args: Any, **kwargs: Any) -> Any:
            ends, keys = kwargs["cu_seq_lens_q"].tolist(), kwargs["cu_seq_lens_k"]
            reached = (keys["full_attention"] if isinstance(keys, dict) else keys).tolist()
            queries = [b - a for a, b in pairwise(ends)]
            cached = [b - a for a, b in pairwise(reached)]
            contexts = [k - q for k, q in zip(cached, queries, strict=False)]
            self.passes.append(Pass(queries, contexts, held_blocks(kwargs["cache"])))
            return self._forward(*args, **kwargs)

        self.model.forward = forward
        return self

    def __exit__(self, *_: object) -> None:
        del self.model.forward


def held_blocks(cache: Any) -> int:
    """Distinct blocks in the tables of all requests."""
    allocators = getattr(cache, "cache_allocators", None)
    tables = allocators.values() if allocators is not None else cache.group_cache_managers
    return sum(len({block for row in one.block_table.values() for block in row}) for one in tables)


def ring(rings: Path) -> tuple[Batch, dict[int, Any]]:
    """The only ring of a folder, each step with its lengths; it ended in order and nothing in it is doubted."""
    (path,) = rings.glob("*.ring")
    batch, lengths, doubted = read_ring(path)
    assert (batch.lost_steps, batch.torn_steps, doubted) == (0, 0, 0)
    return batch, lengths


def terms(batch: Batch) -> dict[str, int]:
    """The sums of the identity; a column that is not known for every step is a KeyError."""
    names = (
        "query_tokens", "prompt_tokens", "prefix_hit_local_tokens", "generated_tokens", "recomputed_tokens",
        "discarded_tokens", "unprefilled_tokens", "preempted", "new_requests", "finished_requests", "prefill_tokens",
    )  # fmt: skip
    return {name: int(batch.steps[name].sum()) for name in names}


def gap(sums: dict[str, int], generating: int) -> int:
    """What is left over: query = prompt - unprefilled - hits + generated - requests + recomputed + discarded."""
    first = sums["prompt_tokens"] - sums["unprefilled_tokens"] - sums["prefix_hit_local_tokens"]
    again = sums["recomputed_tokens"] + sums["discarded_tokens"]
    return sums["query_tokens"] - first - (sums["generated_tokens"] - generating) - again


def differences(batch: Batch, lengths: dict[int, Any], seen: list[Pass]) -> list[str]:
    """Every disagreement between the ring and what the model was given, in words."""
    steps = batch.steps
    found = [] if len(steps) == len(seen) else [f"{len(steps)} steps, {len(seen)} passes"]
    for row, one in enumerate(seen[: len(steps)]):
        mine = lengths[row]
        query, context = mine.queries.tolist(), mine.contexts.tolist()
        if (query, context) != (one.queries, one.contexts):
            found.append(f"step {row}: {query} over {context}, not {one.queries} over {one.contexts}")
        for name, truth in (("query_tokens", sum(one.queries)), ("context_tokens", sum(one.contexts)),
                            ("requests", len(one.queries)), ("kv_blocks_used", one.blocks)):  # fmt: skip
            if steps[name][row] != truth:
                found.append(f"step {row}: {name} {steps[name][row]}, not {truth}")
    return found


def serve(seconds: float, places: int, waiting: int = 32) -> None:
    """Hold ``waiting`` requests beside at most ``places`` that run, for so long."""
    model = small_llama(num_hidden_layers=2)
    manager = model.init_continuous_batching(greedy(60), engine(512, 256, max_requests_per_batch=places))
    manager.start()
    until, held, made = time.monotonic() + seconds, 0, 0
    while time.monotonic() < until:
        for _ in range(places + waiting - held):
            made += 1
            manager.add_request(prompts(1, 20, 60, seed=made)[0])
        held = places + waiting - (manager.get_result(timeout=1) is not None)
    manager.stop(block=True, hard_stop=True)
