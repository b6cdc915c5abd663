"""Whether an MLP has three matrices or two: by what the fields say, and a declared type where they say nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rooflens.analyzer.architecture.mlp_pattern import expert_count
from rooflens.analyzer.architecture.numbers import flag
from rooflens.analyzer.config_fields import shown
from rooflens.records import RooflensError

GATED_ACTIVATIONS = ("silu", "swish", "swiglu", "geglu", "reglu", "swigluoai", "situ", "xielu_gated")
PLAIN_ACTIVATIONS = ("relu", "relu2", "gelu_new", "gelu_fast", "xielu")
# GELU stands in gated and plain blocks alike; where no field tells, the declared architecture does.
GATED_TYPES = ("gemma", "gemma2", "gemma3", "gemma3_text", "gemma4_text", "chatglm", "grok-1")
SILU_TYPES = (
    "llama", "mistral", "mistral3", "ministral", "qwen2", "qwen3", "phi3", "cohere", "granite", "olmo2", "internlm2",
    "internlm3", "baichuan", "smollm3", "stablelm", "qwen", "internlm", "lfm2", "lfm2_moe", "lfm2-vl", "nemotron-nas",
)  # fmt: skip
PLAIN_TYPES = (
    "gpt_neox", "phi", "starcoder2", "falcon", "opt", "gpt2", "gpt_bigcode", "bloom", "gptj", "codegen", "mpt",
    "gpt_neo", "gpt_neox_japanese", "bert", "roberta", "xlm-roberta", "electra", "camembert", "openai-gpt", "ctrl",
    "ernie", "data2vec-text", "rembert", "megatron-bert",
    "persimmon", "nemotron", "arcee", "apertus", "bart", "mbart", "whisper", "biogpt",
)  # fmt: skip
# Fields that only families with two matrices write.
PLAIN_FIELDS = (
    "ffn_dim", "n_inner", "parallel_attn", "activation_function", "decoder_ffn_dim", "expansion_ratio", "inner_dim",
)  # fmt: skip


def gated(fields: Mapping[str, Any]) -> bool:
    """Three MLP matrices or two: by an explicit flag, the fields' family, the activation, the architecture, in turn.

    Raises RooflensError where none of them tells.
    """
    for name in ("mlp_gated", "is_gated_act", "use_gated_mlp", "gated_mlp"):
        if fields.get(name) is not None:
            return flag(fields, name)
    projection = fields.get("feed_forward_proj")
    if isinstance(projection, str):
        return projection.startswith("gated-")
    if fields.get("ffn_config") is not None and expert_count(fields):
        return True  # DBRX
    if any(name in fields for name in PLAIN_FIELDS):
        return False
    return _by_activation(fields, activation(fields))


def _by_activation(fields: Mapping[str, Any], name: Any) -> bool:
    kind = fields.get("model_type")
    if kind in PLAIN_TYPES:
        return False
    if kind == "bitnet":
        return True  # a squared ReLU on the gate
    if name is None and (kind in SILU_TYPES or expert_count(fields)):
        return True
    if name in GATED_ACTIVATIONS:
        return True
    if name in PLAIN_ACTIVATIONS:
        return False
    if "hidden_activation" in fields or kind in GATED_TYPES or expert_count(fields):
        return True
    raise RooflensError(
        f"config field hidden_act is {shown(name)}, which does not tell a gated MLP from a plain one: "
        f'add "mlp_gated": true or false'
    )


def activation(fields: Mapping[str, Any]) -> Any:
    """The activation that the fields name, None where they name none."""
    for name in ("mlp_hidden_act", "hidden_act", "hidden_activation", "activation", "dense_act_fn"):
        value = fields.get(name)
        if value is not None:
            return value if isinstance(value, str) else shown(value)
    return None


def assumed_gated(fields: Mapping[str, Any]) -> str | None:
    """In one sentence what was taken for granted of the MLP; None where the fields tell."""
    named = any(name in fields for name in (*PLAIN_FIELDS, "mlp_gated", "is_gated_act", "feed_forward_proj"))
    if named or activation(fields) is not None or fields.get("ffn_config") is not None:
        return None
    kind = fields.get("model_type")
    if kind in SILU_TYPES:
        return f"the config states no hidden_act: a gated MLP (silu) is assumed, as in model_type {shown(kind)}"
    if expert_count(fields):
        return "the config states no hidden_act: gated experts (silu) are assumed"
    return None
