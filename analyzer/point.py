"""The features of one step of equal sequences, as features.py computes them for many: plain floats, no dependency."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from rooflens.records import RooflensError
from rooflens.spans import pairs_within, split, within


@dataclass(frozen=True, slots=True)
class UniformBatch:
    """A step of ``sequences`` equal ones on one data-parallel rank; below one, of a rank that is idle at times.

    Each has ``cached_tokens`` in the KV cache, computes ``query_tokens`` and gives the head ``sampled_rows``;
    ``prefill`` says that what it computes is part of its prompt. ``shared_tokens`` of the cached ones are the same in
    all sequences. ``chosen`` are the spans that stand for the top-k entries an indexer chooses, which may all lie in
    what is shared. ``graph_sizes`` are the token counts that were captured: a pass is padded up to the next
    one, and runs as it is beyond the last. ``lora_adapters`` are the distinct adapters in use, 0 for none (their mean
    where a step has several passes);
    ``expert_sharing_ratio`` and ``distinct_experts`` are what Plan says of them.
    """

    sequences: float
    cached_tokens: int
    query_tokens: int = 1
    sampled_rows: int = 1
    prefill: bool = False
    shared_tokens: int = 0
    chosen: frozenset[str] = frozenset()
    block_tokens: int | None = None
    graph_sizes: tuple[int, ...] = ()
    encoder_tokens: int = 0
    lora_adapters: float = 0.0
    expert_sharing_ratio: float | None = None
    distinct_experts: float | None = None

    @property
    def passes(self) -> float:
        """Forward passes: one, or the part of one that a rank idle at times runs."""
        return min(1.0, self.sequences) if self.query_tokens else 0.0


def _context(batch: UniformBatch, span: str) -> float:
    """Cached tokens read: each sequence's own, and what is shared once a pass."""
    each = within(batch.cached_tokens, span)
    if span in batch.chosen:
        own = max(0, each - batch.shared_tokens)
    else:
        own = min(each, batch.cached_tokens - batch.shared_tokens)
    return batch.sequences * own + batch.passes * (each - own)


def _pairs(batch: UniformBatch, span: str) -> float:
    return batch.sequences * pairs_within(batch.cached_tokens, batch.query_tokens, span)


def _blocks(batch: UniformBatch, span: str) -> float:
    """Whole blocks, or tokens where the size of a block is not known."""
    return batch.sequences * math.ceil(within(batch.cached_tokens, span) / (batch.block_tokens or 1))


def _lora_rows(batch: UniformBatch, span: str) -> float:
    return batch.sequences * batch.query_tokens if batch.lora_adapters else 0.0


def _padded(batch: UniformBatch, span: str) -> float:
    if not batch.passes:
        return 0.0
    each = batch.sequences * batch.query_tokens / batch.passes
    return batch.passes * min((size for size in batch.graph_sizes if size >= each), default=each)


FEATURES: Mapping[str, Callable[[UniformBatch, str], float]] = {
    "passes": lambda batch, span: batch.passes,
    "head_passes": lambda batch, span: min(batch.passes, batch.sequences * batch.sampled_rows),
    "query_tokens": lambda batch, span: batch.sequences * batch.query_tokens,
    "sampled_rows": lambda batch, span: batch.sequences * batch.sampled_rows,
    "requests": lambda batch, span: batch.sequences,
    "continued_requests": lambda batch, span: batch.sequences if batch.cached_tokens or not batch.prefill else 0.0,
    "context_tokens": _context,
    "context_blocks": _blocks,
    "causal_pairs": _pairs,
    "prefill_pairs": lambda batch, span: _pairs(batch, span) if batch.prefill else 0.0,
    "decode_pairs": lambda batch, span: 0.0 if batch.prefill else _pairs(batch, span),
    "lora_rows": _lora_rows,
    "lora_adapters": lambda batch, span: batch.passes * batch.lora_adapters,
    "encoder_tokens": lambda batch, span: batch.sequences * batch.encoder_tokens,
    "padded_tokens": _padded,
}
SPREAD, RANK_TOKENS = "expert_spread", "rank_tokens"


def point_features(batch: UniformBatch, names: Iterable[str]) -> dict[str, float]:
    """The value of each of ``names``; RooflensError for a name that is no feature."""
    return {name: _value(batch, name) for name in names}


def expected_experts(experts: int, top_k: float, tokens: float) -> float:
    """Distinct experts that ``tokens`` reach in one layer where each chooses ``top_k`` at random.

    E (1 - (1 - k / E) ^ T): the chance that a token leaves an expert alone is 1 - k / E. Real routing is skewed, so
    this is not a bound: the fewest possible are top_k.
    """
    untouched: float = (1.0 - top_k / experts) ** tokens
    return experts * (1.0 - untouched)


def _value(batch: UniformBatch, name: str) -> float:
    feature, span = split(name)
    if feature == SPREAD:
        return _spread(batch, span)
    if feature == RANK_TOKENS:
        return _ranks(span) * batch.sequences * batch.query_tokens
    if feature not in FEATURES:
        raise RooflensError(f"{name[:60]!r} is no feature of a step")
    return FEATURES[feature](batch, span)


def _ranks(argument: str) -> int:
    """How many data-parallel ranks send their tokens; they are all equal here."""
    if argument.isdecimal() and argument.isascii() and int(argument) > 0:
        return int(argument)
    raise RooflensError(f"{RANK_TOKENS}@{argument[:40]} names no number of ranks")


def _spread(batch: UniformBatch, sizes: str) -> float:
    """Expected experts beyond the strict top-k, summed over the passes; ``sizes`` is "E:k:D" (D ranks send tokens)."""
    try:
        experts, top_k, ranks = (int(part) for part in sizes.split(":"))
    except ValueError:
        raise RooflensError(f"{SPREAD}@{sizes[:40]} names no experts, top-k and ranks") from None
    if not batch.passes:
        return 0.0
    each = batch.sequences / batch.passes
    reached = expected_experts(experts, token_experts(experts, top_k, batch), ranks * each)
    if batch.distinct_experts is not None:
        reached = min(batch.distinct_experts, float(experts))
    return batch.passes * max(0.0, reached - top_k)


def token_experts(experts: int, top_k: int, batch: UniformBatch) -> float:
    """Distinct experts that the tokens of one sequence reach in one layer.

    With a sharing ratio r each token after the first adds k (1 - r): GLM-4.7-Flash shares 0.257 of its top 4 of 64
    with the token before (0.0625 by chance), so the two tokens of a verify step of one draft reach 1.74 x 4
    (ml-explore/mlx-lm pull request 1485).
    """
    if batch.expert_sharing_ratio is None:
        return expected_experts(experts, top_k, batch.query_tokens)
    return min(float(experts), top_k * (1 + (batch.query_tokens - 1) * (1 - batch.expert_sharing_ratio)))
