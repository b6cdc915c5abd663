"""Which fields of a config.json mean what, and how large each may be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rooflens.records import RooflensError

# One size, the names that model families write it under, and the largest value that is not a mistake.
SIZES: Mapping[str, tuple[tuple[str, ...], int]] = {
    "hidden_size": (("hidden_size", "n_embd", "d_model", "dim"), 1 << 20),
    "layers": (("num_hidden_layers", "n_layer", "num_layers", "n_layers"), 10_000),
    "heads": (("num_attention_heads", "n_head", "n_heads", "num_heads"), 1 << 16),
    "kv_heads": (("num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num"), 1 << 16),
    "head_dim": (("head_dim", "attention_head_dim", "kv_channels", "d_kv"), 1 << 16),
    "intermediate_size": (
        ("intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size", "d_ff", "dff", "hidden_dim"),
        1 << 24,
    ),
    "vocab_size": (("vocab_size", "padded_vocab_size"), 1 << 26),
    "max_context_tokens": (
        ("max_position_embeddings", "n_positions", "max_sequence_length", "model_max_length", "seq_length"),
        1 << 32,
    ),
}
# Where multimodal configs keep the language model.
NESTED = ("text_config", "llm_config", "language_config", "language_model", "thinker_config", "decoder")


def size(config: Mapping[str, Any], what: str) -> int | None:
    """The size ``what`` (a key of SIZES) under whichever name it has; None where no name is present or it is null.

    Raises RooflensError for a value that is not a whole number from 1 to the largest sane one.
    """
    names, largest = SIZES[what]
    for name in names:
        value = config.get(name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= largest:
            raise RooflensError(f"config field {name} is {shown(value)}: not a whole number from 1 to {largest}")
        return value
    return None


def required(config: Mapping[str, Any], what: str) -> int:
    """As size, where a missing field is a RooflensError that lists the names it may have."""
    value = size(config, what)
    if value is None:
        raise RooflensError(f"config field {' or '.join(SIZES[what][0])} is missing")
    return value


def shown(value: Any) -> str:
    """A value of a config as it may stand in a one-line message."""
    if isinstance(value, int) and abs(value) > 10**30:
        return "a huge number"
    text = repr(value) if not isinstance(value, dict | list) else f"a {type(value).__name__}"
    return text if len(text) <= 40 else text[:37] + "..."
