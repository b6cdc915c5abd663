"""How large the embedded model is: larger than most caches, small enough that a step stays short."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

HEAD_DIM = 64
QUERIES_PER_KV_HEAD = 4  # grouped-query attention, as most served models have it
VOCABULARY = 8192  # the head is a few per cent of the weights, as in an 8B model
HIDDEN_SIZES = (256, 512, 768, 1024, 1536, 2048, 3072, 4096)
MOST_LAYERS = 16
CACHES = 8  # so many last-level caches are hardly kept by them from one step to the next
# Where the cache is said to be huge (a virtual machine sees all of its host's) steps must still be short: a core
# multiplies a batch by so many weights in less than 0.1 s. What the cache keeps is then in the measured roof.
MOST_BYTES = 192 << 20
LEAST_BYTES = 64 << 20  # below this Python between the products would take longer than the products
MEMORY_SHARE = 0.4  # of the available memory may be taken by the weights
FLOAT_BYTES = 4


@dataclass(frozen=True, slots=True)
class Shape:
    """A Llama: RMSNorm, rotary positions, grouped-query attention, gated MLP, a head of its own; sizes in elements."""

    hidden_size: int
    layers: int
    intermediate_size: int
    vocab_size: int = VOCABULARY
    head_dim: int = HEAD_DIM

    @property
    def heads(self) -> int:
        """Query heads."""
        return self.hidden_size // self.head_dim

    @property
    def kv_heads(self) -> int:
        """Key and value heads."""
        return max(1, self.heads // QUERIES_PER_KV_HEAD)

    @property
    def layer_elements(self) -> int:
        """Weights of one layer that a pass reads."""
        attention = (2 * self.heads + 2 * self.kv_heads) * self.head_dim
        return self.hidden_size * (attention + 3 * self.intermediate_size)

    @property
    def read_elements(self) -> int:
        """Weights that a pass reads: the layers and the head; of the embedding it takes single rows."""
        return self.layers * self.layer_elements + self.vocab_size * self.hidden_size

    def config(self, max_context_tokens: int) -> dict[str, Any]:
        """The fields of a config.json that describe this model."""
        return {
            "model_type": "llama",
            "architectures": ["LlamaForCausalLM"],
            "hidden_size": self.hidden_size,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "intermediate_size": self.intermediate_size,
            "hidden_act": "silu",
            "layer_norm_with_affine": False,
            "vocab_size": self.vocab_size,
            "tie_word_embeddings": False,
            "max_position_embeddings": max_context_tokens,
            "torch_dtype": "float32",
        }


SMALL = Shape(hidden_size=128, layers=2, intermediate_size=256, vocab_size=512, head_dim=32)


def _of_hidden_size(hidden_size: int, target_elements: int) -> Shape:
    intermediate = hidden_size * 11 // 4 // 64 * 64
    one = Shape(hidden_size, 1, intermediate)
    missing = target_elements - one.vocab_size * hidden_size
    return Shape(hidden_size, max(4, -(-missing // one.layer_elements)), intermediate)


def shape_for(cache_bytes: int, available_bytes: int) -> tuple[Shape, str | None]:
    """The model whose fp32 weights are several times ``cache_bytes``, and why it is smaller where it has to be.

    ``cache_bytes`` is the last-level cache that the engine's cores reach, ``available_bytes`` the memory it may use.
    """
    wanted = min(max(CACHES * cache_bytes, LEAST_BYTES), MOST_BYTES)
    allowed = int(available_bytes * MEMORY_SHARE)
    target = min(wanted, allowed) // FLOAT_BYTES
    shapes = [_of_hidden_size(size, target) for size in HIDDEN_SIZES]
    shape = next((s for s in shapes if s.layers <= MOST_LAYERS), shapes[-1])
    weight_bytes = shape.read_elements * FLOAT_BYTES
    if allowed >= wanted:
        return shape, None
    return shape, (
        f"the weights are {weight_bytes / 1e6:.0f} MB because only {available_bytes / 1e6:.0f} MB of memory are "
        "available: more of each step may be read from the cache"
    )
