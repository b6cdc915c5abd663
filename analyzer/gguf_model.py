"""The fields of a config.json out of a GGUF file's own metadata, for the kinds of models that it describes in full.

Source of the keys: docs/gguf.md of ggml-org/ggml.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rooflens.analyzer.gguf_header import GgufHeader, gguf_header
from rooflens.records import RooflensError

# A key below the architecture's name -> the field of a config.json.
FIELDS: Mapping[str, str] = {
    "embedding_length": "hidden_size",
    "block_count": "num_hidden_layers",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
    "attention.value_length": "v_head_dim",
    "feed_forward_length": "intermediate_size",
    "context_length": "max_position_embeddings",
    "expert_count": "num_experts",
    "expert_used_count": "num_experts_per_tok",
    "expert_feed_forward_length": "moe_intermediate_size",
    "expert_shared_feed_forward_length": "shared_expert_intermediate_size",
    "leading_dense_block_count": "first_k_dense_replace",
}
# Keys of kinds whose shape the metadata alone leaves open: windows by layer, latents, states, indexers.
OPEN = ("attention.sliding_window", "attention.kv_lora_rank", "attention.indexer.head_count", "ssm.inner_size",
        "ssm.conv_kernel", "wkv.head_size", "nextn_predict_layers", "expert_shared_count", "shortconv.l_cache",
        "attention.shared_kv_layers", "embedding_length_per_layer_input", "interleave_moe_layer_step")  # fmt: skip


def gguf_config(path: Path) -> dict[str, Any]:
    """Fields for arch_from_config; RooflensError where the file leaves the model's shape open.

    Whether MLPs are gated and the head is tied is told by the tensors. Other shards are not read.
    """
    header = gguf_header(path)
    family = header.metadata.get("general.architecture")
    if not isinstance(family, str) or not family:
        raise _open(path, "it names no architecture")
    for key in OPEN:
        if header.metadata.get(f"{family}.{key}"):
            raise _open(path, f"{key} is set")
    for key in FIELDS:
        if f"{family}.{key}" in header.lengths:
            raise _open(path, f"{key} differs from layer to layer")
    fields: dict[str, Any] = {
        name: header.metadata[f"{family}.{key}"] for key, name in FIELDS.items() if f"{family}.{key}" in header.metadata
    }
    if not fields.get("num_experts"):
        fields = {k: v for k, v in fields.items() if not k.startswith(("num_exp", "moe_", "shared_", "first_k"))}
    elif "moe_intermediate_size" not in fields and "intermediate_size" in fields:
        fields["moe_intermediate_size"] = fields["intermediate_size"]
    return {**fields, **_told_by_tensors(path, header), "torch_dtype": "float16"}


def _told_by_tensors(path: Path, header: GgufHeader) -> dict[str, Any]:
    shapes = {tensor.name: tensor.shape for tensor in header.tensors}
    table = shapes.get("token_embd.weight")
    if table is None or len(table) != 2:
        raise _open(path, "it holds no token_embd.weight")
    names = [name.split(".")[2] for name in shapes if name.startswith("blk.") and name.count(".") >= 3]
    return {
        "vocab_size": table[0],
        "tie_word_embeddings": "output.weight" not in shapes,
        "mlp_gated": any(name.startswith("ffn_gate") and name != "ffn_gate_inp" for name in names),
    }


def _open(path: Path, why: str) -> RooflensError:
    return RooflensError(
        f"{path.name[-80:]}: its metadata does not describe the model in full ({why}): "
        "put the model's config.json beside it"
    )
