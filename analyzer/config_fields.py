"""Which fields of a config.json mean what, and which of them mean a kind of model that is not modelled yet."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rooflens.records import RooflensError

# One size, the names that model families write it under, and the largest value that is not a mistake.
SIZES: Mapping[str, tuple[tuple[str, ...], int]] = {
    "hidden_size": (("hidden_size", "n_embd", "d_model"), 1 << 20),
    "layers": (("num_hidden_layers", "n_layer", "num_layers", "n_layers"), 10_000),
    "heads": (("num_attention_heads", "n_head", "n_heads", "num_heads"), 1 << 16),
    "kv_heads": (("num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num"), 1 << 16),
    "head_dim": (("head_dim", "attention_head_dim", "kv_channels"), 1 << 16),
    "intermediate_size": (("intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size"), 1 << 24),
    "vocab_size": (("vocab_size", "padded_vocab_size"), 1 << 26),
    "max_context_tokens": (("max_position_embeddings", "n_positions", "seq_length"), 1 << 32),
}
NESTED = ("text_config", "llm_config", "language_config")  # where multimodal configs keep the language model


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of model that is not modelled yet, recognised by a field that is present and set."""

    field: str  # a regular expression over the whole field name
    what: str
    applies: Callable[[Any, Mapping[str, Any]], bool] = lambda value, config: _is_set(value)


def _is_set(value: Any) -> bool:
    return value not in (None, False, 0, "", [], {})


def _window_is_active(value: Any, config: Mapping[str, Any]) -> bool:
    """A window matters unless it is switched off or no shorter than the longest context."""
    if not _is_set(value) or config.get("use_sliding_window") is False:
        return False
    longest = config.get("max_position_embeddings")
    return not (isinstance(value, int) and isinstance(longest, int) and value >= longest)


def _not_all_full(value: Any, config: Mapping[str, Any]) -> bool:
    return _is_set(value) and not (isinstance(value, list) and all(v == "full_attention" for v in value))


def _differs_from(other: str) -> Callable[[Any, Mapping[str, Any]], bool]:
    return lambda value, config: _is_set(value) and value != config.get(other, value)


# Modelling a kind means deleting its row here and adding operators; a field that looks like one of them and is
# unknown is refused too, since a wrong floor is worse than none.
NOT_MODELLED: tuple[Kind, ...] = (
    Kind(r"is_encoder_decoder", "an encoder-decoder"),
    Kind(r"kv_lora_rank|q_lora_rank|o_lora_rank|qk_(nope|rope)_head_dim", "latent attention (MLA)"),
    Kind(r"(.*_)?(n|num)_(.*_)?experts?|.*experts_per_tok.*|moe_.*|.*_moe_.*|enable_moe_block|.*expert_(dim|size|intermediate_size)",
         "a mixture of experts"),
    Kind(r"mamba_.*|ssm_.*|.*state_size|.*conv_kernel.*|hybrid_.*pattern|layers_block_type|block_types|time_mix.*|wkv_.*|rwkv.*|attn_layer_(period|offset)",
         "a state-space or hybrid model"),
    Kind(r"linear_(num|key|value|attn|conv).*|full_attention_interval", "linear attention"),
    Kind(r"sliding_window|sliding_window_size|attention_window.*", "sliding-window attention", _window_is_active),
    Kind(r"use_sliding_window|sliding_window_pattern|interleaved_sliding_window", "sliding-window attention"),
    Kind(r"swa_.*|local_attention.*|attention_types", "sliding-window attention"),
    Kind(r"layer_types", "a mix of attention kinds", _not_all_full),
    Kind(r"attention_chunk_size|attn_chunk_size", "chunked attention"),
    Kind(r"index_topk.*|index_n_heads|compress_ratios|sparse_attention.*|use_sparse.*", "sparse attention"),
    Kind(r"block_configs", "layers of different shapes"),
    Kind(r"num_kv_shared_layers|.*cla_share.*|kv_sharing.*", "layers that share a KV cache"),
    Kind(r"hidden_size_per_layer_input|altup_.*|laurel_.*", "per-layer embeddings"),
    Kind(r"(num_)?global_(head_dim|key_value_heads)|num_global_key_value_heads", "layers of different head shapes"),
    Kind(r"v_head_dim", "value heads of another width", _differs_from("head_dim")),
    Kind(r"attn_output_gate|attention_k_eq_v|use_double_wide_mlp", "a changed attention or MLP block"),
    Kind(r"cross_attention_layers|add_cross_attention|cross_attention_hidden_size", "cross attention"),
    Kind(r"word_embed_proj_dim|embedding_size", "an embedding of another width", _differs_from("hidden_size")),
    Kind(r"attn_config|ffn_config", "a nested attention or MLP description"),
)  # fmt: skip
_PATTERNS = tuple((re.compile(kind.field), kind) for kind in NOT_MODELLED)


def refuse_unmodelled(config: Mapping[str, Any]) -> None:
    """RooflensError naming the first field that makes this a model of a kind not modelled yet."""
    for name, value in config.items():
        for pattern, kind in _PATTERNS:
            if pattern.fullmatch(name) and kind.applies(value, config):
                raise RooflensError(f"config field {name} says {kind.what}, which is not modelled yet")


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
