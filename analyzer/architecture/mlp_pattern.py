"""Which layers have a dense MLP and which a mixture of experts, by the ways that families say it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rooflens.analyzer.architecture.numbers import flag, stated
from rooflens.analyzer.architecture.periods import listed_places, per_layer_list, place_in_period
from rooflens.analyzer.config_fields import shown
from rooflens.records import RooflensError

EXPERTS = (
    "num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts", "num_routed_experts", "n_experts",
)  # fmt: skip
TOP_K = (
    "num_experts_per_tok", "num_experts_per_token", "top_k_experts", "moe_topk", "moe_top_k", "moe_k",
    "num_selected_experts", "experts_per_token", "num_activated_experts",
)  # fmt: skip
LEADING_DENSE = ("first_k_dense_replace", "num_dense_layers", "moe_layer_num_skipped", "n_dense_layers")
SPARSE_WORDS = {"dense": "dense", "sparse": "moe", "moe": "moe", "hash_moe": "moe", "mlp": "dense"}


def expert_count(fields: Mapping[str, Any]) -> int:
    """Routed experts of a layer with experts; 0 for a model without a mixture."""
    if fields.get("is_moe") is False or fields.get("use_moe") is False:
        return 0
    nested = fields.get("ffn_config")
    found = stated(fields, *EXPERTS, least=0)
    if found is None and isinstance(nested, dict):
        found = stated(nested, "moe_num_experts", least=0)
    if found is None and flag(fields, "enable_moe_block"):
        raise RooflensError("config field num_experts is missing, and enable_moe_block says there are experts")
    if found == 0 and (chosen := stated(fields, *TOP_K, least=0)):
        raise RooflensError(f"config has 0 experts, of which a token cannot use {chosen}")
    return found if found is not None and found > 1 else 0


def has_two_blocks(fields: Mapping[str, Any]) -> bool:
    """LongCat: a layer is two blocks of attention and dense MLP, with experts beside the second of the MLPs."""
    return stated(fields, "zero_expert_num", least=0) is not None and bool(expert_count(fields))


def mlp_kinds(fields: Mapping[str, Any], count: int) -> Sequence[str]:
    """The word dense or moe for each of ``count`` layers."""
    if not expert_count(fields):
        return ("dense",) * count
    for rule in (_listed, _by_frequency_list, _by_period, _by_interval, _by_places, _by_sparse_step):
        found = rule(fields, count)
        if found is not None:
            return tuple("moe" if sparse else "dense" for sparse in found)
    return _behind_the_dense(fields, count)


def _listed(fields: Mapping[str, Any], count: int) -> list[bool] | None:
    """A word for each layer (GLM-5.2, Step 3.5, DeepSeek V4 in transformers)."""
    if fields.get("mlp_layer_types") is None:
        return None
    words = per_layer_list(fields, "mlp_layer_types", count)
    for word in words:
        if not isinstance(word, str) or word not in SPARSE_WORDS:
            raise RooflensError(f"config field mlp_layer_types has {shown(word)}: not dense or sparse")
    return [SPARSE_WORDS[word] == "moe" for word in words]


def _by_frequency_list(fields: Mapping[str, Any], count: int) -> list[bool] | None:
    """0 or 1 for each layer (MiMo V2, MiniMax M3)."""
    if not isinstance(fields.get("moe_layer_freq"), list):
        return None
    values = per_layer_list(fields, "moe_layer_freq", count)
    for value in values:
        if value not in (0, 1):
            raise RooflensError(f"config field moe_layer_freq has {shown(value)}: not 0 or 1")
    return [bool(value) for value in values]


def _by_period(fields: Mapping[str, Any], count: int) -> list[bool] | None:
    """Jamba: experts at one place of each period."""
    period = stated(fields, "expert_layer_period")
    if period is None:
        return None
    offset = place_in_period(fields, "expert_layer_offset", period)
    return [i % period == offset for i in range(count)]


def _by_interval(fields: Mapping[str, Any], count: int) -> list[bool] | None:
    """ERNIE 4.5: every n-th layer between a first and a last one (-1: of all layers)."""
    if fields.get("moe_layer_start_index") is None:
        return None
    interval = stated(fields, "moe_layer_interval") or 1
    first = stated(fields, "moe_layer_start_index", least=0) or 0
    last = stated(fields, "moe_layer_end_index", least=-1)
    last = count - 1 if last is None or last == -1 else last
    return [first <= i <= last and (i + 1) % interval == 0 for i in range(count)]


def _by_places(fields: Mapping[str, Any], count: int) -> list[bool] | None:
    """Llama 4 lists them or has one in every step; Step 3 writes them as text."""
    if fields.get("moe_layers") is not None:
        places = listed_places(fields, "moe_layers", count)
        return [i in places for i in range(count)]
    text = fields.get("moe_layers_enum")
    if isinstance(text, str) and text:
        return _written(text, count)
    step = stated(fields, "interleave_moe_layer_step")
    return None if step is None else [(i + 1) % step == 0 for i in range(count)]


def _written(text: str, count: int) -> list[bool]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and len(part) < 6 for part in parts):
        raise RooflensError(f"config field moe_layers_enum is {shown(text)}, not numbers of layers")
    chosen = {int(part) for part in parts}
    if max(chosen) >= count + 8:
        raise RooflensError(f"config field moe_layers_enum names layer {max(chosen)} of {count}")
    return [i in chosen for i in range(count)]


def _by_sparse_step(fields: Mapping[str, Any], count: int) -> list[bool] | None:
    """Qwen: experts in every n-th layer, but for those listed as dense."""
    step = stated(fields, "decoder_sparse_step")
    if step is None:
        return None
    dense = listed_places(fields, "mlp_only_layers", count)
    return [(i + 1) % step == 0 and i not in dense for i in range(count)]


def _behind_the_dense(fields: Mapping[str, Any], count: int) -> Sequence[str]:
    """DeepSeek: the first k layers are dense, and of the others every moe_layer_freq-th has experts."""
    first = stated(fields, *LEADING_DENSE, least=0) or 0
    every = stated(fields, "moe_layer_freq") or 1
    dense = listed_places(fields, "mlp_only_layers", count)
    return tuple("moe" if i >= first and i % every == 0 and i not in dense else "dense" for i in range(count))
