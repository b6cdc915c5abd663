"""Parameters of a model and bytes of a sequence's cache, counted from the rows of its operators."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rooflens.analyzer.operators import mtp_works, works
from rooflens.analyzer.operators.experts import expert_elements
from rooflens.analyzer.precision import Precision
from rooflens.analyzer.work import Work, stored_bytes
from rooflens.arch_records import Layer, MixtureOfExperts, ModelArch
from rooflens.spans import split, within

COUNTED = Precision("bf16", "bf16", "bf16", "bf16")  # a format for each group; a count does not depend on it


@dataclass(frozen=True, slots=True)
class Count:
    """Parameters of the language model, its embedding and head included, each matrix once.

    ``active`` are those that one token uses: top_k of the experts, and of a table that is only gathered from none; the
    embedding is in it, as most publishers count. ``vision`` (None: not known) and ``mtp``, the layers of multi-token
    prediction, are not part of ``total``.
    """

    total: float
    active: float
    vision: int | None
    mtp: float


def parameters(arch: ModelArch) -> Count:
    """The counts of ``arch``."""
    total = sum(row.elements for row in works(arch, COUNTED) if row.operator != "vision")
    idle = sum(_idle(arch, layer) for layer in (*arch.layers, *arch.encoder))
    mtp = sum(row.elements for row in mtp_works(arch, COUNTED))
    return Count(total, total - idle - arch.gathered_elements, arch.vision_elements, mtp)


def _idle(arch: ModelArch, layer: Layer) -> int:
    """Elements of the experts that a token does not choose."""
    moe = layer.mlp
    if not isinstance(moe, MixtureOfExperts):
        return 0
    each = expert_elements(arch.hidden_size, moe) + moe.expert_bias_elements
    used = moe.top_k * moe.experts / (moe.experts + moe.zero_experts)  # of experts with weights, on average
    return round(layer.count * (moe.experts - used) * each)


def sequence_bytes(rows: Iterable[Work], context_tokens: int, encoder_tokens: int = 0) -> float:
    """Bytes that the caches and the state of one sequence of ``context_tokens`` take on one device."""
    rows = tuple(rows)
    known = {"requests": 1.0, "encoder_tokens": float(encoder_tokens)}
    for name in {name for row in rows for name in row.stored_bytes} - known.keys():
        known[name] = float(within(context_tokens, split(name)[1]))
    return stored_bytes(rows, known)


def kv_bytes(arch: ModelArch, precision: Precision, context_tokens: int, encoder_tokens: int = 0) -> float:
    """The same for a model on one device."""
    return sequence_bytes(works(arch, precision), context_tokens, encoder_tokens)
