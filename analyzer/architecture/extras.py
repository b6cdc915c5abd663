"""What a model holds beside its decoder layers: tables, an encoder, layers of multi-token prediction, a tied head."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from rooflens.analyzer.architecture.blocks import all_places, hybrid_places
from rooflens.analyzer.architecture.layers import Stack, stack
from rooflens.analyzer.architecture.norms import norm_elements
from rooflens.analyzer.architecture.numbers import flag, stated
from rooflens.analyzer.architecture.pattern import Place
from rooflens.analyzer.architecture.tied import TIED_BY_DEFAULT, UNTIED_BY_DEFAULT
from rooflens.analyzer.config_fields import required, shown, size
from rooflens.arch_records import Layer
from rooflens.records import RooflensError

Fields = Mapping[str, Any]
LEARNED_POSITIONS = {
    "gpt2": 0,
    "gpt_bigcode": 0,
    "gpt_neo": 0,
    "opt": 2,
    "biogpt": 2,
    "bart": 2,
    "mbart": 2,
    "whisper": 0,
}
POSITIONS = ("max_target_positions", "n_positions", "max_position_embeddings")


def tied_head(fields: Fields) -> tuple[bool, str | None]:
    """Whether the head reads the embedding's matrix, and in one sentence what was assumed where no field says it."""
    if fields.get("tie_word_embeddings") is not None:
        return flag(fields, "tie_word_embeddings"), None
    kind = fields.get("model_type")
    if kind in UNTIED_BY_DEFAULT:
        return False, None
    if kind in TIED_BY_DEFAULT:
        return True, None
    return False, "the config does not say tie_word_embeddings: a head of its own is assumed"


def gathered(fields: Fields) -> tuple[int, int]:
    """(elements, elements that one token reads) of tables beside the embedding: per-layer embeddings, positions."""
    layers, width = size(fields, "layers") or 0, stated(fields, "hidden_size_per_layer_input", least=0) or 0
    table = (stated(fields, "vocab_size_per_layer_input") or required(fields, "vocab_size")) * layers * width
    behind = LEARNED_POSITIONS.get(str(fields.get("model_type")))
    learned = fields.get("position_embedding_type") == "learned"
    count = stated(fields, *POSITIONS)
    if (behind is None and not learned) or count is None:
        return table, layers * width
    hidden = required(fields, "hidden_size")
    return table + (count + (behind or 0)) * hidden, layers * width + hidden


def residual_elements(fields: Fields) -> int:
    """Weights outside the layers that every pass reads: the last norm, and what projects per-layer inputs."""
    hidden = required(fields, "hidden_size")
    width = stated(fields, "hidden_size_per_layer_input", least=0) or 0
    inputs = (size(fields, "layers") or 0) * width * hidden + width
    streams = stated(fields, "altup_num_inputs", least=0) or 0
    altup = 2 * max(0, streams - 1) * hidden * hidden
    connected = stated(fields, "hc_mult") or 0
    buckets = stated(fields, "relative_attention_num_buckets") or 0
    biases = 2 * buckets * (size(fields, "heads") or 0)
    attended = 2 * hidden if fields.get("attn_res_block_size") is not None else 0
    return norm_elements(fields, hidden) + inputs + altup + connected * connected * hidden + biases + attended


def mtp(fields: Fields, decoder: Stack, shape: Sequence[Place]) -> tuple[tuple[Layer, ...], int]:
    """The layers of multi-token prediction, and the elements that join a hidden state and an embedding.

    Each module has a matrix of 2 hidden x hidden and three norms (DeepSeek V3 report, section 2.2); its layer is like
    the model's last, unless the fields describe it.
    """
    modules, depth = mtp_modules(fields)
    if not modules or not depth:
        return (), 0
    hidden = required(fields, "hidden_size")
    joined = modules * (2 * hidden * hidden + 3 * hidden)
    for name in ("mtp_hybrid_override_pattern", "mtp_layers_block_type"):
        if fields.get(name) is not None:
            found = stack(fields, hybrid_places(fields, name)).layers
            return tuple(replace(one, count=one.count * modules) for one in found), joined
    return _like_the_last(fields, decoder, shape, modules * depth), joined


def mtp_modules(fields: Fields) -> tuple[int, int]:
    """(modules, layers in each): DeepSeek and GLM, Qwen, and MiniMax say it differently."""
    if fields.get("use_mtp") is False:
        return 0, 0
    found = stated(fields, "num_nextn_predict_layers", "num_mtp_modules", "num_mtp_layers", least=0)
    if found is not None:
        return found, (stated(fields, "mtp_transformer_layers", least=0) or 1) if "num_mtp_modules" in fields else 1
    layers = stated(fields, "mtp_num_hidden_layers", least=0) or 0
    return min(1, layers), layers


def _like_the_last(fields: Fields, decoder: Stack, shape: Sequence[Place], count: int) -> tuple[Layer, ...]:
    """A layer with experts where the last one has some, and with the attention that sees furthest."""
    full = [p for p in shape if p.mixers and p.mixers[0] in ("full", "latent", "compressed")]
    if count > 10_000 or not full:
        return (replace(decoder.layers[decoder.order[-1]], count=count),)
    like = replace(full[-1], mlp=shape[-1].mlp)
    try:
        found = stack(fields, [like] * count, first=len(shape)).layers
    except RooflensError:  # lists end with the last layer
        found = stack(fields, [like] * count, first=len(shape) - count).layers if count < len(shape) else ()
    return found


def encoder(fields: Fields) -> Stack:
    """The encoder's layers of an encoder-decoder; an empty stack for a model without one."""
    nested = fields.get("encoder")
    if isinstance(nested, dict):
        inner = nested.get("text_config")
        described: Fields = inner if isinstance(inner, dict) else nested
        return stack(described, all_places(described))
    if not has_encoder(fields):
        return Stack((), ())
    layers = stated(fields, "encoder_layers", "num_encoder_layers") or size(fields, "layers")
    if layers is None:
        raise RooflensError("config field num_layers or encoder_layers is missing, and there is an encoder")
    own = {
        "num_attention_heads": stated(fields, "encoder_attention_heads") or size(fields, "heads"),
        "intermediate_size": stated(fields, "encoder_ffn_dim") or size(fields, "intermediate_size"),
    }
    if layers > 10_000:
        raise RooflensError(f"config field encoder_layers is {shown(layers)}: not a number of layers")
    return stack(fields, [Place(("full",), "dense", own)] * layers)


def encoder_table(fields: Fields) -> int:
    """The embedding of a T5Gemma's encoder, which is not its decoder's."""
    nested = fields.get("encoder")
    if fields.get("model_type") != "t5gemma" or not isinstance(nested, dict):
        return 0
    return required(nested, "vocab_size") * required(nested, "hidden_size")


def has_encoder(fields: Fields) -> bool:
    """Whether the decoder attends to an encoder's output."""
    return flag(fields, "is_encoder_decoder") or isinstance(fields.get("encoder"), dict)


def crosses(fields: Fields) -> bool:
    """Whether the decoder's layers have matrices of their own for that: T5Gemma 2 uses those of self-attention."""
    return has_encoder(fields) and fields.get("model_type") != "t5gemma2"
