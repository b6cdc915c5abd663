"""Layers that hold a mixer or an MLP and never both (Nemotron-H), and layers each of a shape of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rooflens.analyzer.architecture.kinds import resolved
from rooflens.analyzer.architecture.numbers import flag, stated
from rooflens.analyzer.architecture.pattern import Place, depth, places
from rooflens.analyzer.architecture.periods import per_layer_list
from rooflens.analyzer.config_fields import shown, size
from rooflens.records import RooflensError

Fields = Mapping[str, Any]
PATTERN_LETTERS = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}
WORDS = {"mamba": "mamba", "linear_attention": "mamba", "attention": "full", "full_attention": "full", "mlp": "dense",
         "moe": "moe"}  # fmt: skip


def places_of_hybrid(fields: Fields) -> tuple[Place, ...] | None:
    """The places of a model written in Nemotron-H's way; None where the fields have no such list."""
    words = hybrid_words(fields)
    return None if words is None else tuple(hybrid_place(fields, word) for word in words)


def hybrid_words(fields: Fields) -> Sequence[str] | None:
    """Nemotron-H's list, in which a layer is a mixer or an MLP and never both; None where the fields have none."""
    text = fields.get("hybrid_override_pattern")
    if isinstance(text, str) and text:
        return hybrid_word_list(fields, "hybrid_override_pattern", depth(fields))
    for name in ("layers_block_type", "layer_types"):
        listed = fields.get(name)
        if isinstance(listed, list) and ("moe" in listed or "mlp" in listed):
            return hybrid_word_list(fields, name, depth(fields))
    return None


def hybrid_word_list(fields: Fields, name: str, count: int) -> Sequence[str]:
    """The words of a list or pattern of letters in Nemotron-H's way; RooflensError for any other word or letter."""
    value = fields.get(name)
    if isinstance(value, str):
        if len(value) != count:
            raise RooflensError(f"config field {name} has {len(value)} letters for {count} layers")
        words: Sequence[Any] = [PATTERN_LETTERS.get(letter, letter) for letter in value]
    else:
        words = per_layer_list(fields, name, count)
    for word in words:
        if not isinstance(word, str) or word not in WORDS:
            raise RooflensError(f"config field {name} has {shown(word)}: not mamba, attention, mlp or moe")
    return words


def hybrid_place(fields: Fields, word: str) -> Place:
    """One word as a place with a mixer alone or an MLP alone."""
    kind = WORDS[word]
    return Place((), kind) if kind in ("dense", "moe") else Place(resolved(fields, kind), None)


def hybrid_places(fields: Fields, name: str) -> tuple[Place, ...]:
    """The layers that one pass of multi-token prediction adds, written as the model's own are."""
    value = fields.get(name)
    count = len(value) if isinstance(value, list | str) else 0
    return tuple(hybrid_place(fields, word) for word in hybrid_word_list(fields, name, count))


def block_places(fields: Fields) -> tuple[Place, ...]:
    """Nemotron's searched architectures: each layer has its own attention and MLP, or none."""
    return tuple(_block(fields, block) for block in per_layer_list(fields, "block_configs", depth(fields)))


def _block(fields: Fields, block: Any) -> Place:
    attention = block.get("attention") if isinstance(block, dict) else None
    mlp = block.get("ffn") if isinstance(block, dict) else None
    if not isinstance(attention, dict) or not isinstance(mlp, dict):
        raise RooflensError("config field block_configs has a layer without its attention and ffn")
    own: dict[str, Any] = {}
    mixers: tuple[str, ...] = ()
    if flag(attention, "replace_with_linear"):
        mixers = ("plain_linear",)
    elif not flag(attention, "no_op"):
        window = stated(attention, "window_length")
        mixers = ("full",) if window is None else ("window",)
        own = {"num_key_value_heads": _group_heads(fields, attention), "sliding_window": window}
    if flag(mlp, "replace_with_linear"):
        return Place((*mixers, "plain_linear"), None, own)
    own["intermediate_size"] = None if flag(mlp, "no_op") else _multiplied(fields, mlp)
    return Place(mixers, None if flag(mlp, "no_op") else "dense", own)


def _group_heads(fields: Fields, attention: Fields) -> int:
    heads, group = size(fields, "heads"), stated(attention, "n_heads_in_group")
    if heads is None or group is None or heads % group:
        raise RooflensError(f"config field block_configs groups {shown(heads)} heads by {shown(group)}")
    return heads // group


def _multiplied(fields: Fields, mlp: Fields) -> int:
    """The width that ffn_mult means: two thirds of it times the hidden size, up to a multiple of 256."""
    width = stated(mlp, "intermediate_size")
    if width is not None:
        return width
    hidden, times = size(fields, "hidden_size"), mlp.get("ffn_mult")
    if hidden is None or isinstance(times, bool) or not isinstance(times, int | float) or not 0 < times <= 64:
        raise RooflensError(f"config field block_configs has ffn_mult {shown(times)}: not a number from 0 to 64")
    return -(-int(2 * times * hidden / 3) // 256) * 256


def all_places(fields: Fields) -> tuple[Place, ...]:
    """What stands at each depth, the first layer first, whichever way the fields say it.

    Raises RooflensError, one line naming the field, for lists of a wrong length and values that are not understood.
    """
    if fields.get("block_configs") is not None:
        return block_places(fields)
    hybrid = places_of_hybrid(fields)
    return places(fields) if hybrid is None else hybrid
