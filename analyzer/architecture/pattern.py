"""Which mixers and which MLP stand at each depth, by the lists, periods and offsets that families write."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rooflens.analyzer.architecture.kinds import (
    describes_state,
    resolved,
    shares_a_block,
    size_of_attention,
    window_acts,
)
from rooflens.analyzer.architecture.mlp_pattern import has_two_blocks, mlp_kinds
from rooflens.analyzer.architecture.numbers import flag, stated
from rooflens.analyzer.architecture.periods import (
    listed_places,
    per_layer_list,
    place_in_period,
)
from rooflens.analyzer.config_fields import shown, size
from rooflens.records import RooflensError

Fields = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Place:
    """One depth: its mixers (two where they run side by side), its MLP's kind, and fields of its own."""

    mixers: tuple[str, ...]
    mlp: str | None
    own: Mapping[str, Any] = field(default_factory=dict)


# What lists of layer kinds say, and the kind of mixer that it is; "linear" and "mamba" are told apart by fields.
LAYER_WORDS: Mapping[str, str] = {
    "full_attention": "full", "attention": "full", "full": "full", "global": "full", "global_attention": "full",
    "sliding_attention": "window", "sliding_window_attention": "window", "sliding": "window", "local": "window",
    "local_attention": "window", "chunked_attention": "chunk", "linear_attention": "linear", "linear": "linear",
    "lightning_attention": "lightning", "gated_deltanet": "gated_delta", "mamba": "mamba", "mamba2": "mamba2",
    "conv": "short_conv", "deepseek_sparse_attention": "latent", "indexed_attention": "full",
    "compressed_sparse_attention": "compressed",
    "heavily_compressed_attention": "compressed", "minimax_m3_sparse": "sparse", "kda": "kda",
    "kimi_delta_attention": "kda", "recurrent": "recurrent",
}  # fmt: skip
LETTERS = {"L": "window", "G": "full"}  # EXAONE 4


def places(fields: Fields) -> tuple[Place, ...]:
    """What stands at each depth, the first layer first.

    Raises RooflensError, one line naming the field, for lists of a wrong length and values that are not understood.
    """
    count = depth(fields)
    mixers = mixer_kinds(fields, count)
    if size_of_attention(fields) is None and describes_state(fields):
        return tuple(Place(m, None) for m in mixers)  # a Mamba layer has no MLP
    if shares_a_block(fields):
        return tuple(Place(m, None) for m in mixers)
    if has_two_blocks(fields):
        return tuple(Place(m, mlp) for m in mixers for mlp in ("dense", "moe"))
    return tuple(Place(m, mlp) for m, mlp in zip(mixers, mlp_kinds(fields, count), strict=True))


def depth(fields: Fields) -> int:
    """The number of decoder layers: stated, or as many as a list of their kinds has."""
    for name in ("layers_block_type", "hybrid_override_pattern"):
        listed = fields.get(name)
        if size(fields, "layers") is None and isinstance(listed, list | str) and 0 < len(listed) <= 10_000:
            return len(listed)
    found = stated(fields, "decoder_layers", "num_decoder_layers") or size(fields, "layers")
    if found is None:
        raise RooflensError("config field num_hidden_layers is missing")
    return found


def mixer_kinds(fields: Fields, count: int) -> tuple[tuple[str, ...], ...]:
    """The mixers of each layer, by the first of the families' ways to say it that the fields have."""
    for rule in RULES:
        found = rule(fields, count)
        if found is not None:
            return tuple(resolved(fields, kind) for kind in found)
    return (resolved(fields, "full"),) * count


def _by_layer_types(fields: Fields, count: int) -> Sequence[str] | None:
    name = "layer_types" if fields.get("layer_types") is not None else "layers_block_type"
    if fields.get(name) is None:
        return None
    return [_word(name, value) for value in per_layer_list(fields, name, count)]


def _word(name: str, value: Any) -> str:
    if value == "hybrid":
        return "mamba and a shared block" if name == "layers_block_type" else "parallel"
    if not isinstance(value, str):
        raise RooflensError(f"config field {name} has {shown(value)}, not the name of a kind of layer")
    return LAYER_WORDS.get(value, f"unknown:{value[:40]}")


def _by_attention_types(fields: Fields, count: int) -> Sequence[str] | None:
    """MiniMax: 1 is softmax attention, 0 lightning attention."""
    if fields.get("attn_type_list") is None:
        return None
    return _of_numbers(fields, "attn_type_list", count, {0: "lightning", 1: "full"})


def _by_hybrid_pattern(fields: Fields, count: int) -> Sequence[str] | None:
    """MiMo V2: 1 is a window, 0 full attention."""
    if not isinstance(fields.get("hybrid_layer_pattern"), list):
        return None
    return _of_numbers(fields, "hybrid_layer_pattern", count, {0: "full", 1: "window"})


def _of_numbers(fields: Fields, name: str, count: int, kinds: Mapping[int, str]) -> Sequence[str]:
    values = per_layer_list(fields, name, count)
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int) or value not in kinds:
            raise RooflensError(f"config field {name} has {shown(value)}: not one of {', '.join(map(str, kinds))}")
    return [kinds[value] for value in values]


def _by_blocks_chosen(fields: Fields, count: int) -> Sequence[str] | None:
    """MiniMax M3: 1 reads chosen blocks of tokens, 0 all of them; without the list every layer chooses."""
    nested = fields.get("sparse_attention_config")
    if not isinstance(nested, dict) or not flag(nested, "use_sparse_attention", default=True):
        return None
    if nested.get("sparse_attention_freq") is None:
        return ["sparse"] * count
    return _of_numbers(nested, "sparse_attention_freq", count, {0: "full", 1: "sparse"})


def _by_ratios(fields: Fields, count: int) -> Sequence[str] | None:
    return ["compressed"] * count if fields.get("compress_ratios") is not None else None


def _by_period(fields: Fields, count: int) -> Sequence[str] | None:
    """Jamba: attention at one place of each period, a state elsewhere."""
    period = stated(fields, "attn_layer_period")
    if period is None:
        return None
    offset = place_in_period(fields, "attn_layer_offset", period)
    return ["full" if i % period == offset else "mamba" for i in range(count)]


def _by_indices(fields: Fields, count: int) -> Sequence[str] | None:
    """Bamba and LFM2 list the layers with attention, Kimi Linear those without."""
    for name, other in (("attn_layer_indices", "mamba"), ("full_attn_idxs", "short_conv")):
        if fields.get(name) is not None:
            full = listed_places(fields, name, count)
            return ["full" if i in full else other for i in range(count)]
    nested = fields.get("linear_attn_config")
    if isinstance(nested, dict):
        linear = {i - 1 for i in listed_places(nested, "kda_layers", count + 1)}  # Kimi Linear counts from 1
        return ["kda" if i in linear else "full" for i in range(count)]
    return None


def _by_interval(fields: Fields, count: int) -> Sequence[str] | None:
    """The last layer of each interval is full attention, the others linear (Qwen3-Next, Ring-linear)."""
    interval = stated(fields, "full_attention_interval", "layer_group_size")
    if interval is None:
        return None
    return ["linear" if (i + 1) % interval else "full" for i in range(count)]


def _by_state(fields: Fields, count: int) -> Sequence[str] | None:
    """A state beside attention in each layer (Falcon-H1), or nothing but states where no list names attention."""
    if not describes_state(fields):
        return None
    return ["parallel" if fields.get("mamba_d_ssm") is not None else "mamba"] * count


def _by_recurrence(fields: Fields, count: int) -> Sequence[str] | None:
    """RecurrentGemma repeats a short list of kinds."""
    listed = fields.get("block_types")
    if not isinstance(listed, list) or not listed:
        return None
    words = [_word("block_types", value) for value in listed]
    return ["window" if words[i % len(words)] == "full" else words[i % len(words)] for i in range(count)]


def _by_window_pattern(fields: Fields, count: int) -> Sequence[str] | None:
    """Every n-th layer is full attention, the others windows: a number (Gemma 3, Cohere 2) or letters (EXAONE 4)."""
    for name in ("sliding_window_pattern", "_sliding_window_pattern"):
        value = fields.get(name)
        if isinstance(value, str) and value:
            if set(value) - set(LETTERS):
                raise RooflensError(f"config field {name} is {shown(value)}: not made of L and G")
            kinds = [LETTERS[value[i % len(value)]] for i in range(count)]
            return [*kinds[:-1], "full"]
        every = stated(fields, name)
        if every is not None:
            return ["window" if (i + 1) % every else "full" for i in range(count)]
    return None


def _by_chunk(fields: Fields, count: int) -> Sequence[str] | None:
    """Llama 4: layers with rotary positions see their chunk, the others (0 in no_rope_layers) everything."""
    if stated(fields, "attention_chunk_size", "attn_chunk_size") is None:
        return None
    listed = fields.get("no_rope_layers")
    if isinstance(listed, list) and listed:
        return _of_numbers(fields, "no_rope_layers", count, {0: "full", 1: "chunk"})
    every = stated(fields, "no_rope_layer_interval") or 4
    return ["chunk" if (i + 1) % every else "full" for i in range(count)]


def _by_attention_words(fields: Fields, count: int) -> Sequence[str] | None:
    """GPT-Neo: [[["global", "local"], 12]] repeats the inner list that often."""
    groups = fields.get("attention_types")
    if not isinstance(groups, list):
        return None
    words: list[str] = []
    for group in groups:
        if not (isinstance(group, list) and len(group) == 2 and isinstance(group[0], list)):
            raise RooflensError("config field attention_types is not a list of [kinds, times]")
        times = stated({"attention_types": group[1]}, "attention_types") or 1
        if times * len(group[0]) > count:
            raise RooflensError(f"config field attention_types says more than {count} layers")
        words += [_word("attention_types", value) for value in group[0]] * times
    if len(words) != count:
        raise RooflensError(f"config field attention_types says {len(words)} layers, not {count}")
    return words


def _by_alternation(fields: Fields, count: int) -> Sequence[str] | None:
    """ModernBERT's decoder: one layer in every n sees everything, the first one too."""
    every = stated(fields, "global_attn_every_n_layers")
    if every is None:
        return None
    return ["window" if i % every else "full" for i in range(count)]


def _by_window(fields: Fields, count: int) -> Sequence[str] | None:
    """A window on every layer (Mistral 7B v0.1), from max_window_layers on where it is switched on (Qwen 2).

    Gemma 2 alternates and Gemma 3 has five windows to one, and their first files have no field for it.
    """
    if not window_acts(fields):
        return None
    kind = fields.get("model_type")
    if kind == "gemma2":
        return ["full" if i % 2 else "window" for i in range(count)]
    if kind in ("gemma3", "gemma3_text"):
        return ["window" if (i + 1) % 6 else "full" for i in range(count)]
    first = 0
    if flag(fields, "use_sliding_window") or fields.get("max_window_layers") is not None:
        first = stated(fields, "max_window_layers", least=0) or 0
    return ["window" if i >= first else "full" for i in range(count)]


RULES: tuple[Callable[[Fields, int], Sequence[str] | None], ...] = (
    _by_layer_types,
    _by_attention_types,
    _by_hybrid_pattern,
    _by_blocks_chosen,
    _by_ratios,
    _by_period,
    _by_indices,
    _by_interval,
    _by_state,
    _by_recurrence,
    _by_window_pattern,
    _by_chunk,
    _by_attention_words,
    _by_alternation,
    _by_window,
)
