"""The layers of a model, counted by kind, out of the fields of its config.json."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rooflens.analyzer.architecture.attention import softmax
from rooflens.analyzer.architecture.latent import compressed, latent, window_latent
from rooflens.analyzer.architecture.mlp import mlp
from rooflens.analyzer.architecture.norms import other_elements
from rooflens.analyzer.architecture.numbers import flag, needed, part, stated
from rooflens.analyzer.architecture.pattern import Place
from rooflens.analyzer.architecture.periods import listed_places
from rooflens.analyzer.architecture.state import KINDS, state
from rooflens.analyzer.config_fields import required, shown
from rooflens.arch_records import Attention, CrossAttention, DenseMLP, Indexer, Layer, Mixer, StateMixer
from rooflens.records import RooflensError

Fields = Mapping[str, Any]
SOFTMAX = ("full", "window", "chunk")

# Fields that some families write as a list with one value a layer.
LISTED = (
    "num_attention_heads", "num_query_heads", "num_kv_heads", "num_key_value_heads", "head_dim", "intermediate_size",
    "ffn_hidden_size", "sliding_window", "num_experts", "num_experts_per_tok", "moe_topk", "moe_intermediate_size",
    "num_shared_expert", "ffn_multipliers", "num_attention_heads_per_layer",
)  # fmt: skip
RENAMED = {"num_attention_heads_per_layer": "num_attention_heads", "num_query_heads": "num_attention_heads"}


@dataclass(frozen=True, slots=True)
class Stack:
    """Distinct layers with their counts, which of them stands at each depth, and what none of them holds."""

    layers: tuple[Layer, ...]
    order: tuple[int, ...]
    unknown: tuple[str, ...] = ()


def stack(fields: Fields, places: Sequence[Place], cross: bool = False, first: int = 0) -> Stack:
    """The layers at ``places``; ``cross`` where each attends to an encoder too, ``first`` the depth of the first one.

    Raises RooflensError, one line naming the field, for what contradicts itself.
    """
    ones: list[Layer] = []
    missing: list[str] = []
    shared_from = _shares_from(fields, len(places))
    crossing = listed_places(fields, "cross_attention_layers", len(places) + first)
    for index, place in enumerate(places, start=first):
        own = layer_fields(fields, place, index, len(places) + first)
        if index in crossing:
            place = replace(place, mixers=())
        ones += _layers(own, place, index, cross or index in crossing, missing)
        if _shares(own, index, shared_from):
            ones[-1] = _sharing(own, ones[-1])
    layers, order = _counted(ones)
    return Stack(layers, order, tuple(dict.fromkeys(missing)))


def layer_fields(fields: Fields, place: Place, index: int, count: int) -> Fields:
    """The fields as they hold for one layer: lists with a value for each, and what the place has of its own."""
    listed = {}
    for name in LISTED:
        values = fields.get(name)
        if isinstance(values, list):
            if len(values) < count:
                raise RooflensError(f"config field {name} has {len(values)} values for {count} layers")
            listed[RENAMED.get(name, name)] = values[index]
    of_layer = fields.get("per_layer_config")
    if isinstance(of_layer, dict):
        for key in (str(index), f"{index:02d}", f"{index:03d}"):
            if isinstance(of_layer.get(key), dict):
                listed.update(of_layer[key])
    return {**fields, **listed, **place.own} if listed or place.own else fields


def _layers(fields: Fields, place: Place, index: int, cross: bool, missing: list[str]) -> Iterable[Layer]:
    """One place as layers: mixers that run side by side follow each other, the last one has the MLP."""
    hidden = required(fields, "hidden_size")
    mixers: list[Mixer | None] = [_mixer(fields, kind, index, missing) for kind in place.mixers] or [None]
    beside = _cross(fields, mixers[-1]) if cross else None
    for mixer in (one for one in mixers[:-1] if one is not None):
        yield Layer(1, mixer, None, other_elements=other_elements(fields, hidden, mixer, None, None))
    last = mlp(fields, place.mlp)
    yield Layer(1, mixers[-1], last, beside, other_elements(fields, hidden, mixers[-1], last, beside))


def _mixer(fields: Fields, kind: str, index: int, missing: list[str]) -> Mixer | None:
    """The mixer of a kind; None, and a sentence in ``missing``, for one that is not understood."""
    if kind in SOFTMAX:
        return softmax(fields, kind)
    if kind == "sparse":
        return replace(softmax(fields, "full"), indexer=chosen_blocks(fields))
    if kind == "latent":
        return latent(fields, index)
    if kind == "window_latent":
        return window_latent(fields)
    if kind == "compressed":
        return compressed(fields, index)
    if kind == "kda":
        return state(kimi_fields(fields), "gated_delta")
    if kind in KINDS:
        return state(fields, kind)
    if kind == "plain_linear":
        hidden = required(fields, "hidden_size")
        return StateMixer("linear layer", hidden, 0, hidden, 0, 0, 0, 0.0)
    word = kind.removeprefix("unknown:")
    missing.append(f"layers of kind {shown(word)} are not understood: what mixes tokens in them is not counted")
    return None


def chosen_blocks(fields: Fields) -> Indexer:
    """MiniMax M3's indexer: it scores each token and keeps blocks of them, the last one among them.

    Qwen4's scores the mean of some tokens (indexer_compress_ratio) and keeps indexer_budget of them.
    """
    if fields.get("indexer_budget") is not None:
        return Indexer(
            heads=needed(fields, "indexer_n_heads"),
            head_dim=needed(fields, "indexer_head_dim"),
            top_k=needed(fields, "indexer_budget"),
            pool=needed(fields, "indexer_compress_ratio"),
        )
    nested = part(fields, "sparse_attention_config")
    block = stated(fields, "index_block_size") or needed(nested, "sparse_block_size")
    blocks = stated(fields, "index_topk_blocks") or needed(nested, "sparse_topk_blocks")
    return Indexer(
        heads=stated(fields, "index_n_heads") or needed(nested, "sparse_num_index_heads"),
        head_dim=stated(fields, "index_head_dim") or needed(nested, "sparse_index_dim"),
        top_k=block * blocks,
    )


def kimi_fields(fields: Fields) -> Fields:
    """Kimi delta attention as its first files describe it: newer ones keep the sizes beside the others."""
    if isinstance(fields.get("linear_attn_config"), dict):
        return fields
    names = {"num_heads": "linear_num_heads", "head_dim": "linear_head_dim",
             "short_conv_kernel_size": "linear_conv_kernel_dim"}  # fmt: skip
    return {**fields, "linear_attn_config": {new: fields.get(old) for new, old in names.items()}}


def _cross(fields: Fields, mixer: Mixer | None) -> CrossAttention:
    own = mixer if isinstance(mixer, Attention) else softmax(fields, "full")
    return CrossAttention(own.heads, own.kv_heads, own.head_dim)


def _shares_from(fields: Fields, count: int) -> int:
    """The first layer that reads another one's keys and values (Gemma 3n and 4)."""
    shared = stated(fields, "num_kv_shared_layers", least=0) or 0
    if shared >= count > 0 and shared:
        raise RooflensError(f"config field num_kv_shared_layers is {shared} of {count} layers: none keeps its own")
    return count - shared


def _shares(fields: Fields, index: int, shared_from: int) -> bool:
    """By the number of sharing layers at the end, or in groups of which the first keeps its own (Hunyuan)."""
    if index >= shared_from:
        return True
    factor = stated(fields, "cla_share_factor") if flag(fields, "use_cla") else None
    return factor is not None and index % factor != 0


def _sharing(fields: Fields, layer: Layer) -> Layer:
    """The layer without keys and values of its own; Gemma 4 may make its MLP twice as wide."""
    mixer = replace(layer.mixer, kv_shared=True) if isinstance(layer.mixer, Attention) else layer.mixer
    wide = layer.mlp
    if flag(fields, "use_double_wide_mlp") and isinstance(wide, DenseMLP):
        wide = replace(wide, intermediate_size=2 * wide.intermediate_size)
    return replace(layer, mixer=mixer, mlp=wide)


def _counted(ones: Sequence[Layer]) -> tuple[tuple[Layer, ...], tuple[int, ...]]:
    """Equal layers together, in the order in which they first stand."""
    places: dict[Layer, int] = {}
    order = tuple(places.setdefault(one, len(places)) for one in ones)
    counts = [0] * len(places)
    for kind in order:
        counts[kind] += 1
    return tuple(replace(one, count=counts[i]) for one, i in places.items()), order
