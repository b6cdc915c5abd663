"""Attention over latents: MLA (DeepSeek V2), with an indexer (V3.2) and over compressed entries (V4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rooflens.analyzer.architecture.attention import HEADS, WINDOW
from rooflens.analyzer.architecture.numbers import at, flag, needed, part, stated
from rooflens.analyzer.config_fields import shown
from rooflens.arch_records import CompressedAttention, Indexer, LatentAttention
from rooflens.records import RooflensError

OVERLAPPING_RATIO = 4  # of DeepSeek V4: compressed with the four tokens before, and chosen from by an indexer
LAYER_RATIOS = {
    "sliding_attention": 0,
    "compressed_sparse_attention": OVERLAPPING_RATIO,
    "heavily_compressed_attention": 128,
}  # what transformers calls them


def latent(fields: Mapping[str, Any], index: int) -> LatentAttention:
    """The MLA of layer ``index`` (from 0): DeepSeek V2, V3 and V3.2, Kimi K2 and K3, GLM-5, MiniCPM3, LongCat.

    ``q_lora_rank`` 0 or null projects the queries at once. An indexer is there where index_topk is. A gate is said by
    mla_use_output_gate (Kimi K3) or gated_mla (HY V4). Raises RooflensError, one line naming the field.
    """
    rank = stated(fields, "q_lora_rank", least=0)
    return LatentAttention(
        heads=needed(fields, *HEADS),
        q_rank=rank or None,
        kv_rank=needed(fields, "kv_lora_rank"),
        nope_dim=needed(fields, "qk_nope_head_dim"),
        rope_dim=stated(fields, "qk_rope_head_dim", least=0) or 0,
        value_dim=needed(fields, "v_head_dim", "qk_nope_head_dim"),  # MiniCPM3 states one for both
        indexer=_indexer(fields, index),
        output_gate=flag(fields, "mla_use_output_gate") or gated_output(fields) == "elementwise",
    )


def window_latent(fields: Mapping[str, Any]) -> LatentAttention:
    """The MLA of a layer with a window, which has sizes of its own under ``swa_`` and no indexer (dots3)."""
    return LatentAttention(
        heads=needed(fields, "swa_num_attention_heads", *HEADS),
        q_rank=stated(fields, "swa_q_lora_rank", "q_lora_rank", least=0) or None,
        kv_rank=needed(fields, "swa_kv_lora_rank", "kv_lora_rank"),
        nope_dim=needed(fields, "swa_qk_nope_head_dim", "qk_nope_head_dim"),
        rope_dim=stated(fields, "swa_qk_rope_head_dim", "qk_rope_head_dim", least=0) or 0,
        value_dim=needed(fields, "swa_v_head_dim", "v_head_dim"),
        window_tokens=needed(fields, *WINDOW),
    )


def gated_output(fields: Mapping[str, Any]) -> str | None:
    """What HY V4's gate on the output says, None without one; its files may leave the defaults of its class out."""
    if not flag(fields, "gated_mla", default=fields.get("model_type") == "hy_v4"):
        return None
    word = fields.get("gating_type", "elementwise")
    if word not in ("elementwise", "headwise"):
        raise RooflensError(f"config field gating_type is {shown(word)}: not elementwise or headwise")
    return str(word)


def compressed(fields: Mapping[str, Any], index: int) -> CompressedAttention:
    """The compressed attention of layer ``index`` (from 0; entries behind the last layer are those of MTP).

    Ratio 0 is the window alone, ratio 4 chooses by an indexer, ratio 128 reads every compressed entry (DeepSeek V4
    report, section 2.3). Raises RooflensError, one line naming the field.
    """
    ratio = _ratio(fields, index)
    heads = needed(fields, *HEADS)
    groups = needed(fields, "o_groups")
    if heads % groups:
        raise RooflensError(f"config field o_groups is {groups}, which does not divide its {heads} heads")
    return CompressedAttention(
        heads=heads,
        head_dim=needed(fields, "head_dim"),
        rope_dim=needed(fields, "qk_rope_head_dim"),
        q_rank=needed(fields, "q_lora_rank"),
        output_groups=groups,
        output_rank=needed(fields, "o_lora_rank"),
        window_tokens=needed(fields, "sliding_window"),
        ratio=ratio,
        indexer=_own_indexer(fields) if ratio == OVERLAPPING_RATIO else None,
    )


def compressor_columns(ratio: int, width: int) -> int:
    """Columns that make one compressed entry of ``width`` elements: a value and a gate for each, hidden size x columns.

    With ratio 4 both are projected twice, since neighbouring windows overlap (transformers 5.19,
    modeling_deepseek_v4.py: the two compressors).
    """
    return (4 if ratio == OVERLAPPING_RATIO else 2) * width if ratio else 0


def _ratio(fields: Mapping[str, Any], index: int) -> int:
    value = at(fields, "compress_ratios", index)
    if value is None:
        kind = at(fields, "layer_types", index)
        if kind not in LAYER_RATIOS:
            raise RooflensError(f"config field compress_ratios is missing and layer_types says {shown(kind)}")
        return stated(part(fields, "compress_rates"), kind, least=0) or LAYER_RATIOS[kind]
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 1 << 20:
        raise RooflensError(f"config field compress_ratios has {shown(value)} for layer {index}: not a whole number")
    return value


def _own_indexer(fields: Mapping[str, Any]) -> Indexer:
    return Indexer(
        heads=needed(fields, "index_n_heads"),
        head_dim=needed(fields, "index_head_dim"),
        top_k=needed(fields, "index_topk"),
    )


def _indexer(fields: Mapping[str, Any], index: int) -> Indexer | None:
    if fields.get("index_topk") is None:
        return None
    own = _own_indexer(fields)
    pool = stated(fields, "index_kpool") or 1
    return Indexer(own.heads, own.head_dim, own.top_k, _shares_choice(fields, index), pool)


def _shares_choice(fields: Mapping[str, Any], index: int) -> bool:
    """Whether the layer reads what an earlier one chose (GLM-5.2).

    ``indexer_types`` says it for each layer; without it one of every index_topk_freq layers chooses, counted from
    index_skip_topk_offset, and so do all before it (transformers 5.19, configuration_glm_moe_dsa.py).
    """
    types = fields.get("indexer_types")
    types = fields.get("index_topk_pattern") if types is None else types
    if types is not None:
        return _stated_share(types, index)
    frequency = stated(fields, "index_topk_freq", least=0) or 1
    offset = stated(fields, "index_skip_topk_offset", least=0)
    return max(index - (2 if offset is None else offset) + 1, 0) % frequency != 0


def _stated_share(types: Any, index: int) -> bool:
    """One word or letter a layer; a layer behind the last one (MTP) chooses for itself."""
    if not isinstance(types, list | str):
        raise RooflensError(f"config field indexer_types is {shown(types)}, not a list with one value a layer")
    word = types[index] if index < len(types) else "full"
    if word not in ("full", "shared", "F", "S"):
        raise RooflensError(f"config field indexer_types has {shown(word)}, neither full nor shared")
    return bool(word in ("shared", "S"))
