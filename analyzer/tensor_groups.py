"""Which group of tensors a tensor belongs to, by the names that checkpoints and GGUF files give modules."""

from __future__ import annotations

import re
from collections.abc import Mapping

OTHER, VISION = "other", "vision"  # norms, biases and what is small; towers that are no language model
MTP = "mtp"  # the layers of multi-token prediction
LAYER = re.compile(r"(?:^|\.)(?:layers|h|blk|blocks?|layer)\.(\d+)\.")
TOWERS = ("vision", "visual", "vit", "audio", "image", "multi_modal", "mm_", "patch_", "embed_vision", "embed_audio",
          "aligner", "merger")  # fmt: skip
EMBEDDINGS = ("embed_tokens", "wte", "word_embeddings", "tok_embeddings", "token_embd", "embed", "embeddings", "shared",
              "embed_in", "embedding")  # fmt: skip
HEADS = ("lm_head", "head", "output", "embed_out", "output_layer")
# A dotted part of the name below the layer -> its group; the first part that decides does.
PARTS: Mapping[str, str] = {
    "indexer": "indexer", "experts": "experts", "shared_expert": "shared_experts", "shared_experts": "shared_experts",
    "share_expert": "shared_experts", "shared_mlp": "shared_experts", "shared_expert_gate": "shared_experts",
    "gate": "router", "router": "router",
    "linear_attn": "state", "mamba": "state", "ssm": "state",
    "self_attn": "attention", "attn": "attention", "attention": "attention", "self_attention": "attention",
    "cross_attn": "attention", "encoder_attn": "attention", "SelfAttention": "attention", "EncDecAttention":
    "attention",
    "mlp": "mlp", "ffn": "mlp", "feed_forward": "mlp", "DenseReluDense": "mlp",
}  # fmt: skip
# Within a part that may be several things (Nemotron-H's mixer, an MLP that is a mixture), a later part decides.
DEEPER = ("mlp", "ffn", "feed_forward", "mixer", "block_sparse_moe", "moe", "attn", "self_attn", "attention")
LEAVES = {"in_proj": "state", "out_proj": "state", "q_proj": "attention", "k_proj": "attention", "v_proj": "attention",
          "o_proj": "attention", "up_proj": "mlp", "down_proj": "mlp", "gate_proj": "mlp", "fc1_latent_proj": "experts",
          "fc2_latent_proj": "experts", "fc1": "mlp", "fc2": "mlp"}  # fmt: skip
SMALL = ("A_log", "D", "dt_bias", "dt", "dt_proj", "conv1d", "ssm_a", "ssm_d", "ssm_conv1d", "ssm_dt", "sinks", "sink",
         "e_score_correction_bias", "rotary_emb", "rope_freqs", "exp_probs_b", "layer_scalar")  # fmt: skip
GGUF_PARTS = (
    (re.compile(r"indexer"), "indexer"),
    (re.compile(r"ffn_\w*_?shexp|ffn_gate_inp_shexp"), "shared_experts"),
    (re.compile(r"ffn_gate_inp"), "router"),
    (re.compile(r"ffn_\w+_exps"), "experts"),
    (re.compile(r"ssm_|shortconv"), "state"),
    (re.compile(r"attn_"), "attention"),
    (re.compile(r"ffn_"), "mlp"),
)


def group_of(name: str, layers: int | None = None) -> str:
    """The group (one of precision.GROUPS, OTHER or VISION) of a module or tensor of this name.

    ``layers``: how many the decoder has; a later one is for multi-token prediction.
    """
    parts, apart = name.split("."), stands_apart(name, layers)
    if apart == VISION:
        return VISION
    if any(part in SMALL or "norm" in part or part.startswith(("ln_", "hc_")) for part in parts):
        return OTHER
    if apart == MTP:
        copied = any(part in (*EMBEDDINGS, *HEADS, "shared_head") for part in parts)
        return OTHER if copied else MTP  # a copy of the embedding or the head, which an engine shares
    found = LAYER.search(name)
    if found is None:
        return _outside(name)
    group = _inside(name[found.end() :])
    return "encoder" if _of_encoder(name[: found.end()]) and group != OTHER else group


def stands_apart(name: str, layers: int | None = None) -> str | None:
    """VISION or MTP for a tensor of a tower or of multi-token prediction, None for one of the language model."""
    parts = name.split(".")
    if parts[0] in ("v", "a", "mm") or any(part.startswith(TOWERS) or part.endswith("projector") for part in parts):
        return VISION
    found = LAYER.search(name)
    ahead = found is not None and layers and int(found[1][:9]) >= layers
    return MTP if ahead or any(part.startswith(("mtp", "nextn")) for part in parts) else None


def decoder_layer(name: str) -> int | None:
    """The number of the decoder's layer that a tensor belongs to, of prediction too; None for any other."""
    found = LAYER.search(name)
    if found is None or stands_apart(name) or _of_encoder(name[: found.end()]):
        return None
    return int(found[1][:9])


def _of_encoder(prefix: str) -> bool:
    return bool(re.search(r"(?:^|\.)(?:encoder|enc)\.", prefix)) and "decoder" not in prefix


def _outside(name: str) -> str:
    parts = [part for part in name.split(".") if part not in ("model", "language_model", "transformer", "backbone")]
    if any(part in EMBEDDINGS for part in parts):
        return "embedding"
    return "head" if any(part in HEADS for part in parts) else OTHER


def _inside(rest: str) -> str:
    for pattern, group in GGUF_PARTS:
        if pattern.match(rest):
            return group
    found = OTHER
    for part in rest.split("."):
        if part in PARTS:
            found = PARTS[part]
            if part not in DEEPER:
                return found
        elif part in LEAVES and (found == OTHER or LEAVES[part] == "experts"):
            return LEAVES[part]
    return found
