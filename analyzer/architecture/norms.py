"""Weights of a layer that belong to no operator: norms, biases, gates, what per-layer embeddings add."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rooflens.analyzer.architecture.latent import gated_output
from rooflens.analyzer.architecture.numbers import flag, stated
from rooflens.arch_records import (
    MLP,
    Attention,
    CompressedAttention,
    CrossAttention,
    DenseMLP,
    LatentAttention,
    Mixer,
    MixtureOfExperts,
)

Fields = Mapping[str, Any]
# A norm before and one behind each of the two blocks, which no field says.
SANDWICHED = (
    "gemma2", "gemma3_text", "gemma3n_text", "gemma4_text", "glm4", "vaultgemma", "gemma3", "t5_gemma_module",
    "muse_glimmer_text",
)  # fmt: skip
# Every projection has a bias, which no field says.
BIASED = (
    "gpt2", "opt", "gpt_neox", "phi", "bloom", "codegen", "gpt_bigcode", "bart", "mbart", "whisper", "biogpt", "xglm",
    "pegasus", "blenderbot", "m2m_100", "marian", "plbart", "openai-gpt", "persimmon", "ctrl",
)  # fmt: skip
QKV_BIASED = (
    "qwen2", "qwen2_moe", "qwen2_vl", "qwen2_5_vl", "qwen2_5_vl_text", "qwen2_vl_text", "qwen", "glm", "chatglm",
)  # fmt: skip


def other_elements(
    fields: Fields, hidden: int, mixer: Mixer | None, mlp: MLP | None, cross: CrossAttention | None
) -> int:
    """Elements of one layer beside its operators' matrices: norms, biases, gates, low-rank additions."""
    blocks = sum(part is not None for part in (mixer, mlp, cross))
    norm = norm_elements(fields, hidden)
    norms = blocks * norm * (2 if fields.get("model_type") in SANDWICHED else 1)
    return norms + _of_mixer(fields, hidden, mixer) + _of_mlp(fields, hidden, mlp) + _of_layer(fields, hidden)


def norm_elements(fields: Fields, hidden: int) -> int:
    """A LayerNorm has a scale and a bias, an RMSNorm a scale, and some have no weights (the first OLMo)."""
    if fields.get("layer_norm_with_affine") is False or fields.get("model_type") == "olmo":
        return 0
    return hidden * (2 if _has_layer_norm(fields) else 1)


def _has_layer_norm(fields: Fields) -> bool:
    return "layer_norm_epsilon" in fields and not any("rms" in name or name == "norm_eps" for name in fields)


def _of_mixer(fields: Fields, hidden: int, mixer: Mixer | None) -> int:
    if isinstance(mixer, Attention):
        queries, keys = mixer.heads * mixer.head_dim, mixer.kv_heads * mixer.head_dim
        return (
            _attention_biases(fields, hidden, mixer)
            + _head_norms(fields, mixer, queries, keys)
            + _gates(fields, hidden, mixer)
        )
    if isinstance(mixer, LatentAttention):
        return mixer.kv_rank + (mixer.q_rank or 0) + _of_latent(fields, hidden, mixer)
    if isinstance(mixer, CompressedAttention):
        return _of_compressed(mixer)
    return 0


def _of_latent(fields: Fields, hidden: int, mixer: LatentAttention) -> int:
    """The indexer's norm, what weighs tokens into one of its keys (GLM-5 Next), sinks and a gate a head (HY V4)."""
    indexer = mixer.indexer if mixer.indexer and not mixer.indexer.shared else None
    chosen = 2 * indexer.head_dim if indexer else 0
    if indexer and indexer.pool > 1:
        chosen += indexer.head_dim * (hidden + indexer.pool)
    by_default = fields.get("model_type") == "hy_v4"
    sunk = mixer.heads if flag(fields, "learnable_sink", by_default) else 0
    return chosen + sunk + (hidden * mixer.heads if gated_output(fields) == "headwise" else 0)


def _attention_biases(fields: Fields, hidden: int, mixer: Attention) -> int:
    kind = fields.get("model_type")
    everywhere = kind in BIASED or flag_of(fields, "attention_bias", "use_bias", "bias", "projectors_bias")
    inputs = everywhere or kind in QKV_BIASED or flag_of(fields, "qkv_bias", "use_qkv_bias", "add_qkv_bias")
    columns = mixer.heads * mixer.head_dim + mixer.kv_heads * (mixer.head_dim + mixer.value_head_dim)
    return (columns if inputs else 0) + (hidden if everywhere else 0)


def flag_of(fields: Fields, *names: str) -> bool:
    """Whether any of the fields is true; what is neither true nor false is no bias."""
    return any(fields.get(name) is True for name in names)


def _head_norms(fields: Fields, mixer: Attention, queries: int, keys: int) -> int:
    """Norms of queries and keys: of one head's width, or of all heads (MiniMax M2, OLMo 2)."""
    kind = fields.get("model_type")
    if fields.get("qk_norm_type") == "per_layer" or kind in ("olmo2", "olmo3", "olmoe"):
        return queries + keys
    named = isinstance(kind, str) and kind.startswith(("qwen3", "gemma3", "gemma4"))
    return 2 * mixer.head_dim if named or flag_of(fields, "use_qk_norm", "qk_layernorm", "qk_norm") else 0


def _gates(fields: Fields, hidden: int, mixer: Attention) -> int:
    """A gate for each head (Step 3.5, some Laguna layers) and learnt sinks (gpt-oss, MiMo V2)."""
    gated = flag_of(fields, "use_head_wise_attn_gate") or fields.get("gating") == "per-head"
    sinks = "swa" if mixer.window_tokens is not None else "full"
    sunk = flag_of(fields, f"add_{sinks}_attention_sink_bias") or fields.get("model_type") == "gpt_oss"
    return (hidden * mixer.heads if gated else 0) + (mixer.heads if sunk else 0)


def _of_compressed(mixer: CompressedAttention) -> int:
    """Norms of queries and entries, sinks, and the compressor's place biases and norm."""
    plain = mixer.q_rank + mixer.head_dim + mixer.heads
    if not mixer.ratio:
        return plain
    twice = 2 if mixer.indexer is not None else 1
    of_indexer = mixer.indexer.head_dim * (2 * mixer.ratio + 1) if mixer.indexer is not None else 0
    return plain + mixer.head_dim * (twice * mixer.ratio + 1) + of_indexer


def _of_mlp(fields: Fields, hidden: int, mlp: MLP | None) -> int:
    """Biases of a dense MLP; the norm behind experts that work in a narrower space (Kimi K3)."""
    if isinstance(mlp, MixtureOfExperts) and flag_of(fields, "latent_moe_use_norm"):
        return mlp.latent_size or 0
    biased = fields.get("model_type") in (*BIASED, "gptj") or flag_of(fields, "mlp_bias", "use_bias", "use_mlp_bias")
    if not isinstance(mlp, DenseMLP) or not biased:
        return 0
    return mlp.intermediate_size * (2 if mlp.gated else 1) + hidden


def _of_layer(fields: Fields, hidden: int) -> int:
    """Hyper-connections (DeepSeek V4), per-layer inputs (Gemma 3n and 4), AltUp and LAuReL (Gemma 3n).

    Attention residuals (Kimi K3) have a norm and a query before each of the two blocks.
    An mHC block maps ``n`` streams of the hidden size to 2 n + n x n weights, before attention and before the MLP.
    """
    streams = stated(fields, "hc_mult") or 0
    independent = flag(fields, "enable_ihc", fields.get("model_type") == "hy_v4")
    mixed = 0 if independent else streams * streams
    connections = 2 * (2 * streams + mixed) * (streams * hidden + 1) if streams else 0
    width = stated(fields, "hidden_size_per_layer_input", least=0) or 0
    inputs = 2 * hidden * width + hidden if width else 0
    rank = stated(fields, "laurel_rank", least=0) or 0
    laurel = 2 * hidden * rank + hidden if rank else 0
    n = stated(fields, "altup_num_inputs", least=0) or 0
    altup = (n + 2) * hidden + n * n + n * n * n if n else 0
    attended = 4 * hidden if fields.get("attn_res_block_size") is not None else 0
    return connections + inputs + laurel + altup + attended
