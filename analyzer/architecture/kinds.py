"""Which mixer a word for a kind of layer means, where other fields tell it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rooflens.analyzer.architecture.numbers import stated
from rooflens.analyzer.config_fields import size

Fields = Mapping[str, Any]


def resolved(fields: Fields, kind: str) -> tuple[str, ...]:
    """A kind as mixers: what the words leave open is told by other fields."""
    if kind == "parallel":
        return ("full", _mamba(fields))
    if kind == "mamba and a shared block":
        return (f"unknown:{kind}", _mamba(fields))
    if kind == "mamba":
        return (_mamba(fields),)
    if kind == "linear":
        return (_linear(fields),)
    if kind == "full" and fields.get("kv_lora_rank") is not None:
        return ("latent",)
    if kind == "window" and fields.get("o_lora_rank") is not None:
        return ("compressed",)
    if kind == "window" and not window_acts(fields):
        return resolved(fields, "full")
    if kind == "window" and fields.get("kv_lora_rank") is not None:
        return ("window_latent",)
    if kind == "full" and fields.get("indexer_budget") is not None:
        return ("sparse",)
    return (kind,)


def _linear(fields: Fields) -> str:
    """Linear attention by the sizes that describe it."""
    if fields.get("linear_num_value_heads") is not None:
        return "gated_delta"
    if fields.get("linear_num_heads") is not None or fields.get("linear_attn_config") is not None:
        return "kda"
    return _mamba(fields) if describes_state(fields) else "lightning"


def describes_state(fields: Fields) -> bool:
    """Whether the fields describe a Mamba layer."""
    return any(fields.get(name) is not None for name in ("state_size", "mamba_d_state", "ssm_state_size"))


def size_of_attention(fields: Fields) -> int | None:
    """Attention heads; None for a model of states alone, whose heads are those of its states."""
    return stated(fields, "num_attention_heads", "n_head", "n_heads")


def shares_a_block(fields: Fields) -> bool:
    """Zamba: layers of states, some of which run one shared block of attention and MLP before."""
    listed = fields.get("layers_block_type")
    return isinstance(listed, list) and "hybrid" in listed


def _mamba(fields: Fields) -> str:
    """Mamba 2 has heads, Mamba 1 none."""
    heads = ("mamba_num_heads", "mamba_n_heads", "mamba_headdim", "mamba_d_head", "mamba_head_dim")
    if size_of_attention(fields) is None and fields.get("num_heads") is not None:
        return "mamba2"
    second = any(fields.get(name) is not None for name in heads) and fields.get("mamba_dt_rank") is None
    return "mamba2" if second else "mamba1"


def window_acts(fields: Fields) -> bool:
    """A window matters unless it is switched off, missing or no shorter than the longest context."""
    if fields.get("use_sliding_window") is False or fields.get("use_sliding_window_attention") is False:
        return False
    window = stated(fields, "sliding_window", "sliding_window_size", "window_size", "attention_window_size")
    window = stated(fields, "local_attention_window", "local_attention") if window is None else window
    longest = size(fields, "max_context_tokens")
    return window is not None and not (longest is not None and window >= longest)
