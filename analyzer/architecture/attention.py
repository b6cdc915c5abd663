"""Softmax attention from the fields of a config.json: heads, widths and reach of one kind of layer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rooflens.analyzer.architecture.numbers import flag, needed, part, stated
from rooflens.analyzer.config_fields import shown
from rooflens.arch_records import Attention
from rooflens.records import RooflensError

KINDS = ("full", "window", "chunk")
HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads", "attention_heads", "decoder_attention_heads")
KV_HEADS = ("num_key_value_heads", "num_kv_heads", "n_head_kv", "num_attention_groups")
HEAD_DIM = ("head_dim", "attention_head_dim", "kv_channels", "d_kv", "head_size")
WINDOW_HEADS = ("swa_num_attention_heads", "num_sliding_attention_heads")
WIDTH = ("hidden_size", "n_embd", "d_model")
WINDOW = ("sliding_window", "sliding_window_size", "attention_window_size", "window_size", "local_attention_window")
CHUNK = ("attention_chunk_size", "attn_chunk_size")


def softmax(fields: Mapping[str, Any], kind: str) -> Attention:
    """One layer's attention; ``kind`` (of KINDS) is how far a query sees.

    Families give one of the kinds heads or widths of its own: ``swa_*`` belong to the windows (MiMo V2), ``global_*``
    to the layers that see everything (Gemma 4). Raises RooflensError, one line naming the field.
    """
    if kind not in KINDS:
        raise RooflensError(f"attention of kind {kind[:40]!r} is not known; known: {', '.join(KINDS)}")
    flat = _flat(fields, kind)
    window = kind == "window"
    heads = needed(flat, *(WINDOW_HEADS if window else ()), *HEADS)
    k_is_v = kind == "full" and flag(flat, "attention_k_eq_v")
    head_dim = _head_dim(flat, kind, heads)
    return Attention(
        heads=heads,
        kv_heads=_checked(heads, _kv_heads(flat, kind, heads, k_is_v)),
        head_dim=head_dim,
        value_head_dim=stated(flat, *(("swa_v_head_dim",) if window else ()), "v_head_dim") or head_dim,
        window_tokens=needed(flat, *WINDOW) if window else None,
        chunk_tokens=needed(flat, *CHUNK) if kind == "chunk" else None,
        output_gate=_output_gate(flat),
        keys_are_values=k_is_v,
    )


def _flat(fields: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    """The fields with what some families keep in an object of its own.

    DBRX and MPT have an ``attn_config``, Step 3.5 the windows' heads in ``attention_other_setting``.
    """
    nested = part(fields, "attn_config")
    named = {"num_key_value_heads": nested.get("kv_n_heads"), "sliding_window": nested.get("sliding_window_size")}
    if nested.get("attn_type") == "multiquery_attention":
        named["num_key_value_heads"] = 1
    if kind == "window":
        own = part(fields, "attention_other_setting")
        named.update({WINDOW_HEADS[0]: own.get("num_attention_heads"), "swa_head_dim": own.get("head_dim")})
        named["swa_num_key_value_heads"] = own.get("num_attention_groups")
    return {**fields, **{k: v for k, v in named.items() if v not in (None, -1)}}


def _head_dim(fields: Mapping[str, Any], kind: str, heads: int) -> int:
    own = {"window": ("swa_head_dim",), "full": ("global_head_dim",)}
    found = stated(fields, *own.get(kind, ()), *HEAD_DIM)
    if found is not None:
        return found
    width = needed(fields, *WIDTH)
    if width % heads:
        raise RooflensError(f"config has no head_dim and hidden_size {width} is no multiple of its {heads} heads")
    return width // heads


def _kv_heads(fields: Mapping[str, Any], kind: str, heads: int, k_is_v: bool) -> int:
    """KV heads by the family's own rule; one per head where nothing is said.

    Falcon and GPT-BigCode say multi_query, and Falcon's num_kv_heads then means nothing; ChatGLM says
    multi_query_attention and keeps its number in multi_query_group_num.
    """
    if flag(fields, "multi_query") and not flag(fields, "new_decoder_architecture"):
        return 1
    if flag(fields, "multi_query_attention"):
        return stated(fields, "multi_query_group_num") or 1
    if kind == "window":
        own = stated(fields, "swa_num_key_value_heads")
        if own is not None:
            return own
        if fields.get("attention_value_scale") is not None:  # MiMo V2 as transformers writes it
            return 2 * needed(fields, *KV_HEADS)
    if k_is_v:
        own = stated(fields, "num_global_key_value_heads")
        if own is not None:
            return own
    return stated(fields, *KV_HEADS) or heads


def _checked(heads: int, kv_heads: int) -> int:
    if heads % kv_heads:
        raise RooflensError(f"config has {heads} attention heads, not a multiple of its {kv_heads} KV heads")
    return kv_heads


def _output_gate(fields: Mapping[str, Any]) -> bool:
    """Whether a gate as wide as the heads multiplies the output; one number a head is no matter of width.

    Qwen3.5 and Step say so. Qwen3-Next and AFMoE have the gate in each softmax layer and no field for it: what tells
    is linear_num_value_heads without OLMo Hybrid's linear_allow_neg_eigval, and mup_enabled with route_scale.
    """
    value = fields.get("gating")
    if value is not None and fields.get("attn_output_gate") is None:
        if value not in (True, False, "per-head", "per-element"):
            raise RooflensError(f"config field gating is {shown(value)}: not true, false, per-head or per-element")
        return bool(value == "per-element")
    if fields.get("model_type") == "muse_glimmer_text":
        return True
    linear = fields.get("linear_num_value_heads") is not None and "linear_allow_neg_eigval" not in fields
    return flag(fields, "attn_output_gate", linear or ("mup_enabled" in fields and "route_scale" in fields))
