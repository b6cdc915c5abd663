"""The features of sequences, counted token by token as their definitions say, for the forms of the operators."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rooflens.analyzer.work import Work, dot

PARTS = (
    "flops", "weight_bytes", "kv_read_bytes", "kv_write_bytes", "state_bytes", "gather_bytes", "expert_bytes",
    "activation_bytes", "link_bytes", "stored_bytes",
)  # fmt: skip


@dataclass(frozen=True)
class One:
    """One sequence of a step: tokens in the cache, tokens computed, whether these are of its prompt."""

    context: int
    query: int = 1
    prefill: bool = False
    sampled: int = 1
    encoder: int = 0


def reach(position: int, span: str) -> int:
    """Keys that the query at ``position`` (from 1) sees, itself among them."""
    if not span:
        return position
    size = int(span[1:])
    if span[0] == "o":
        return position if position > size else 0
    return min(position, size) if span[0] == "w" else (position - 1) % size + 1


def held(context: int, span: str) -> int:
    """Cached tokens that a window of that size can reach, or that are in the next query's chunk."""
    if not span:
        return context
    size = int(span[1:])
    if span[0] == "o":
        return context if context > size else 0
    return min(context, size) if span[0] == "w" else context % size


def points(rows: Iterable[Work], step: Sequence[One]) -> Mapping[str, float]:
    """Every feature that ``rows`` name, of one pass over the sequences of ``step``."""
    names = {name for row in rows for part in PARTS for name in getattr(row, part)}
    return {name: _value(name, step) for name in names}


def _value(name: str, step: Sequence[One]) -> float:
    base, _, span = name.partition("@")
    tokens = sum(one.query for one in step)
    plain = ("passes", "head_passes", "query_tokens", "sampled_rows", "requests", "encoder_tokens")
    if base in (*plain, "continued_requests"):
        return {
            "passes": 1, "head_passes": int(any(one.sampled for one in step)), "query_tokens": tokens,
            "sampled_rows": sum(one.sampled for one in step), "requests": len(step),
            "encoder_tokens": sum(one.encoder for one in step),
            "continued_requests": sum(one.context > 0 or not one.prefill for one in step),
        }[base]  # fmt: skip
    if base == "context_tokens":
        return sum(held(one.context, span) for one in step)
    if base.endswith("_pairs"):
        kinds = {"causal_pairs": (True, False), "prefill_pairs": (True,), "decode_pairs": (False,)}[base]
        chosen = [one for one in step if one.prefill in kinds]
        return sum(reach(one.context + 1 + i, span) for one in chosen for i in range(one.query))
    if base == "expert_spread":
        experts, top_k, ranks = (int(part) for part in span.split(":"))
        return experts * (1 - (1 - top_k / experts) ** (ranks * tokens)) - top_k
    if base == "rank_tokens":
        return int(span) * tokens
    return {"lora_rows": tokens, "lora_adapters": 2}[base]


def total(rows: Iterable[Work], part: str, step: Sequence[One], operator: str = "") -> float:
    """One part of the rows of ``operator`` (all of them without one), summed at the features of ``step``."""
    chosen = [row for row in rows if not operator or row.operator == operator]
    assert chosen, f"no row {operator}"
    at = points(chosen, step)
    return sum(dot(getattr(row, part), at) for row in chosen)
