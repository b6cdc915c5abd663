"""A synthetic model whose bytes a step are known by a count on paper, and the facts that the recorder is told of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

ELEMENT_BYTES = {"bfloat16": 2, "float32": 4}


@dataclass(frozen=True)
class Shape:
    """A Llama with as many KV heads as query heads: then every attention kernel reads each key and value once."""

    hidden: int
    intermediate: int
    layers: int
    heads: int
    vocabulary: int
    dtype: str
    batches: tuple[int, ...]
    context_tokens: int  # in the cache before every step: the loop writes the same position again and again

    @property
    def head_dim(self) -> int:
        return self.hidden // self.heads

    @property
    def element_bytes(self) -> int:
        return ELEMENT_BYTES[self.dtype]

    @property
    def weight_bytes(self) -> int:
        """Read in every step: the projections and two norms of each layer, the last norm, the head."""
        projections = 3 * self.hidden * self.hidden + self.hidden * self.hidden + 3 * self.hidden * self.intermediate
        layers = self.layers * (projections + 2 * self.hidden)
        return self.element_bytes * (layers + self.hidden + self.hidden * self.vocabulary)

    @property
    def token_bytes(self) -> int:
        """Keys and values of one token in all layers."""
        return self.element_bytes * 2 * self.layers * self.hidden

    def step_bytes(self, batch: int) -> int:
        """All that one decode step must move: weights, cache read and written, one row of the embedding a sequence."""
        cache = batch * (self.context_tokens + 1) * self.token_bytes
        return self.weight_bytes + cache + batch * self.hidden * self.element_bytes

    def config(self) -> dict[str, Any]:
        """What a config.json of this model would say."""
        return {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "hidden_size": self.hidden,
            "intermediate_size": self.intermediate,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.heads,
            "head_dim": self.head_dim,
            "vocab_size": self.vocabulary,
            "max_position_embeddings": 8192,
            "rms_norm_eps": 1e-5,
            "tie_word_embeddings": False,
            "torch_dtype": self.dtype,
            "hidden_act": "silu",
        }

    def facts(self, batch: int, graphs: bool, uuid: str | None) -> dict[str, Any]:
        """What the recorder is told. The loop begins a step only after the last output was read."""
        return {
            "engine_version": "1",
            "model_name": "synthetic-llama",
            "model_config": self.config(),
            "weight_dtype": self.dtype,
            "kv_dtype": self.dtype,
            "block_tokens": 1,
            "kv_blocks": max(self.batches) * (self.context_tokens + 1),
            "max_sequences": max(self.batches),
            "graph_mode": "FULL" if graphs else "NONE",
            "graph_sizes": [batch] if graphs else [],
            "async_scheduling": False,
            "concurrent_batches": 1,
            **({"device_uuids": [uuid]} if uuid else {"device": "cpu"}),
        }


# 2.1 GB of weights in 16 layers: forty times the last cache of an H100 and sixteen times that of a B200, and small
# enough that launching the kernels of a step one by one takes longer than reading it.
ON_GPU = Shape(2048, 8192, 16, 32, 32_000, "bfloat16", batches=(1, 16, 64), context_tokens=512)
# 0.3 GB: more than the caches of most CPUs, and a step of some tens of milliseconds.
ON_CPU = Shape(1024, 4096, 4, 16, 8_192, "float32", batches=(1, 4), context_tokens=256)
