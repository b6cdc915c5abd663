"""A layer's MLP from the fields of a config.json: its width, how many matrices, and its experts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rooflens.analyzer.architecture.gating import gated
from rooflens.analyzer.architecture.mlp_pattern import TOP_K, expert_count, has_two_blocks
from rooflens.analyzer.architecture.numbers import flag, part, stated
from rooflens.analyzer.config_fields import SIZES, required, shown, size
from rooflens.arch_records import DenseMLP, MixtureOfExperts
from rooflens.records import RooflensError

Fields = Mapping[str, Any]
EXPERT_WIDTH = (
    "moe_intermediate_size", "expert_ffn_hidden_size", "moe_ffn_hidden_size", "expert_intermediate_size",
    "moe_expert_intermediate_size", "expert_hidden_size",
)  # fmt: skip
SHARED_COUNT = ("n_shared_experts", "num_shared_experts", "moe_num_shared_experts", "num_shared_expert")
# The whole width of what is shared, whatever the number of shared experts.
SHARED_WIDTH = (
    "shared_expert_intermediate_size", "moe_shared_expert_intermediate_size", "share_expert_dim",
    "shared_intermediate_size",
)  # fmt: skip
FOUR_TIMES = ("bloom", "gpt_neo", "gpt_neox_japanese", "mpt", "openai-gpt", "gpt2", "gptj", "codegen")
DENSE_WIDTH_BESIDE_EXPERTS = ("intermediate_size_mlp", "dense_intermediate_size", "prefix_dense_intermediate_size")


def mlp(fields: Fields, kind: str | None) -> DenseMLP | MixtureOfExperts | None:
    """The MLP of a layer of ``kind``: dense, moe, or None where the layer has none.

    Raises RooflensError, one line naming the field, for sizes that are missing or contradict each other.
    """
    if kind is None:
        return None
    return dense(fields) if kind == "dense" else experts(fields)


def dense(fields: Fields) -> DenseMLP:
    """The dense MLP; Gemma 4's dense part beside its experts is one too."""
    return DenseMLP(_dense_width(fields), gated(fields))


def _dense_width(fields: Fields) -> int:
    nested = part(fields, "ffn_config")
    width = stated(fields, *DENSE_WIDTH_BESIDE_EXPERTS) if expert_count(fields) else None
    width = width or size(fields, "intermediate_size") or stated(nested, "ffn_hidden_size")
    if width is None and expert_count(fields) == 0:
        width = stated(fields, "shared_intermediate_size")  # Granite 4 without experts
    if width is None:
        return _default_width(fields)
    if fields.get("model_type") == "qwen" or fields.get("lru_width") is not None:
        return width // 2  # the first Qwen and RecurrentGemma state both halves of their gated MLP
    if flag(fields, "block_auto_adjust_ff_dim"):
        return _adjusted(fields, width)
    return width


def _default_width(fields: Fields) -> int:
    """GPT-2's n_inner, Falcon's ffn_hidden_size and MPT's expansion default to four times the width."""
    ratio = stated(fields, "expansion_ratio", "intermediate_multiple_size")
    four = ("n_embd", "n_inner", "parallel_attn", "new_decoder_architecture", "num_ln_in_parallel_attn")
    if ratio is None and not any(name in fields for name in four) and fields.get("model_type") not in FOUR_TIMES:
        return required(fields, "intermediate_size")
    return (ratio or 4) * required(fields, "hidden_size")


def _adjusted(fields: Fields, width: int) -> int:
    """LFM2: two thirds of what is stated, times a factor, up to a multiple."""
    times = fields.get("block_ffn_dim_multiplier")
    if times is not None and (isinstance(times, bool) or not isinstance(times, int | float) or not 0 < times <= 64):
        raise RooflensError(f"config field block_ffn_dim_multiplier is {shown(times)}: not a number from 0 to 64")
    multiple = stated(fields, "block_multiple_of") or 1
    return -(-int((1 if times is None else times) * int(2 * width / 3)) // multiple) * multiple


def experts(fields: Fields) -> MixtureOfExperts:
    """The mixture: routed experts, what is shared, groups, a narrower space, a dense MLP beside it."""
    nested = part(fields, "ffn_config")
    count = expert_count(fields)
    top_k = stated(fields, *TOP_K) or stated(nested, "moe_top_k")
    if top_k is None:
        raise RooflensError(f"config has {count} experts and no {' or '.join(TOP_K[:3])}")
    if top_k > count:
        raise RooflensError(f"config has {count} experts, of which a token cannot use {top_k}")
    width = _expert_width(fields)
    groups, top_groups = _groups(fields, count)
    return MixtureOfExperts(
        experts=count,
        top_k=top_k,
        intermediate_size=width,
        gated=gated(fields),
        shared_intermediate_size=_shared_width(fields, width),
        shared_gate=(stated(fields, "shared_expert_intermediate_size", least=0) or 0) > 0,
        latent_size=stated(fields, "moe_latent_size", "routed_expert_hidden_size"),
        groups=groups,
        top_groups=top_groups,
        dense=_dense_beside(fields),
        expert_bias_elements=_expert_biases(fields, width),
        zero_experts=stated(fields, "zero_expert_num", least=0) or 0,
    )


def _expert_width(fields: Fields) -> int:
    width = stated(fields, *EXPERT_WIDTH) or stated(part(fields, "ffn_config"), "ffn_hidden_size")
    width = width or size(fields, "intermediate_size")
    if width is None:
        names = " or ".join((EXPERT_WIDTH[0], *SIZES["intermediate_size"][0][:1]))
        raise RooflensError(f"config field {names} is missing")
    return width


def _shared_width(fields: Fields, width: int) -> int:
    """The shared expert's width: stated whole, or as a number of experts of the routed ones' width.

    Llama 4 has one in each mixture and no field for it; it is told by the width of its dense layers.
    """
    if fields.get("num_shared_experts") == 0 or fields.get("n_shared_experts") == 0:
        return 0
    whole = stated(fields, *SHARED_WIDTH, least=0)
    if whole is not None:
        return whole
    number = stated(fields, *SHARED_COUNT, least=0)
    if number is not None:
        return number * width
    return width if fields.get("intermediate_size_mlp") is not None else 0


def _groups(fields: Fields, count: int) -> tuple[int | None, int | None]:
    """Groups of experts and how many a token may use; one group is none."""
    groups = stated(fields, "n_group", "num_expert_group", "n_expert_groups", least=0)
    top = stated(fields, "topk_group", "n_limited_groups", least=0)
    if not groups or groups == 1 or not top:
        return None, None
    if count % groups or top > groups:
        raise RooflensError(f"config has {count} experts in {groups} groups, of which a token uses {top}")
    return groups, top


def _dense_beside(fields: Fields) -> DenseMLP | None:
    """Gemma 4, Arctic and LongCat run a dense MLP beside the experts."""
    if any(
        flag(fields, name) for name in ("enable_moe_block", "parallel_attn_mlp_res", "residual_moe")
    ) or has_two_blocks(fields):
        return dense(fields)
    return None


def _expert_biases(fields: Fields, width: int) -> int:
    """gpt-oss: each expert's projections have biases, which no field says; its clipped gate (1.702) tells."""
    if fields.get("model_type") != "gpt_oss":
        return 0
    return 2 * width + required(fields, "hidden_size")
