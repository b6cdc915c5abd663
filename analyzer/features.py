"""The sufficient statistics of a step: every flop and byte of a step is linear in these; one statistic, one row."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rooflens.analyzer.shared_blocks import SharedBlocks
from rooflens.analyzer.span_features import span_feature
from rooflens.analyzer.spans import spanned, split
from rooflens.analyzer.step_rows import Column, Rows
from rooflens.analyzer.untold import UntoldColumn
from rooflens.records import GraphMode, RooflensError, StepKind, StepTable

CHUNK_STEPS = 8192  # a dozen features of them stay in the second-level cache
WITHOUT_PROMPTS = (StepKind.DECODE, StepKind.VERIFY)
SPREAD, RANK_TOKENS = "expert_spread", "rank_tokens"


@dataclass(frozen=True, slots=True)
class Feature:
    """``needs`` are the step columns that must be known for ``value`` (shape (steps,)) to mean anything."""

    needs: tuple[str, ...]
    value: Callable[[Rows], Column]


def _column(name: str) -> Feature:
    return Feature((name,), lambda rows: rows[name])


def _or_nothing(name: str) -> Feature:
    return Feature((), lambda rows: rows.filled(name, 0.0))


def _head_passes(rows: Rows) -> Column:
    """Passes that ran the head: those with a sampled row; of a window row at most as many as rows were sampled."""
    return np.minimum(rows.passes, rows["sampled_rows"])


def _prefill_pairs(rows: Rows) -> Column:
    """Pairs of prompts. Where not told and prompts may be there, all of them: those are the cheaper kind."""
    told = rows.known("prefill_pairs")
    if told is True:
        return rows["prefill_pairs"]
    none = _without_prompts(rows)
    return np.where(told, rows.filled("prefill_pairs", 0.0), np.where(none, 0.0, rows["causal_pairs"]))


def _without_prompts(rows: Rows) -> NDArray[np.bool_]:
    """Rows that are known to have computed nothing of a prompt."""
    none: NDArray[np.bool_] = rows.filled("prefill_tokens", 1.0) == 0
    return none | np.isin(rows.filled("kind", -1.0), WITHOUT_PROMPTS)


def _decode_pairs(rows: Rows) -> Column:
    return np.maximum(rows["causal_pairs"] - _prefill_pairs(rows), 0.0)


def _continued_requests(rows: Rows) -> Column:
    """Sequences with a state from before: all but those on their prompt, whose first pass is not told from others."""
    prompts = np.where(_without_prompts(rows), 0.0, rows.filled("prefill_requests", np.inf))
    return np.maximum(rows["requests"] - prompts, 0.0)


def _lora_adapters(rows: Rows) -> Column:
    """Distinct adapters in a pass: one at least where any row has one; how many is not told."""
    return np.minimum(rows.filled("lora_rows", 0.0), rows.passes)


def _padded(graph_sizes: Sequence[int]) -> Feature:
    """Tokens after padding to a captured size: as the step tells, else a pass to the next of ``graph_sizes``.

    Beyond the largest one, and in a step that is known to have been launched without a graph, nothing is padded.
    """
    sizes = np.array(sorted(graph_sizes), dtype=np.float64)

    def value(rows: Rows) -> Column:
        tokens = rows["query_tokens"]
        if rows.known("padded_tokens") is True:
            return rows["padded_tokens"]
        if len(sizes):
            passes = np.maximum(rows.passes, 1.0)
            place = np.searchsorted(sizes, tokens / passes)
            within = (place < len(sizes)) & (tokens > 0) & (rows.filled("graph_mode", 0.0) != GraphMode.EAGER)
            tokens = np.where(within, passes * sizes[np.minimum(place, len(sizes) - 1)], tokens)
        found: Column = np.where(rows.known("padded_tokens"), rows.filled("padded_tokens", 0.0), tokens)
        return found

    return Feature(("query_tokens",), value)


FEATURES: Mapping[str, Feature] = {
    "passes": Feature(("query_tokens",), lambda rows: rows.passes),
    "head_passes": Feature(("query_tokens", "sampled_rows"), _head_passes),
    "query_tokens": _column("query_tokens"),
    "sampled_rows": _column("sampled_rows"),
    "context_tokens": _column("context_tokens"),
    "causal_pairs": _column("causal_pairs"),
    "prefill_pairs": Feature(("causal_pairs",), _prefill_pairs),
    "decode_pairs": Feature(("causal_pairs",), _decode_pairs),
    "context_blocks": _column("context_blocks"),
    "requests": _column("requests"),
    "continued_requests": Feature(("requests",), _continued_requests),
    "lora_rows": _or_nothing("lora_rows"),
    "lora_adapters": Feature(("query_tokens",), _lora_adapters),
    "encoder_tokens": _or_nothing("encoder_tokens"),
    "padded_tokens": _padded(()),
}


def _spread(sizes: str) -> Feature:
    """Experts that a pass reaches in one layer beyond the strict top-k, under uniform routing; summed over the passes.

    ``sizes`` is "E:k:D": T tokens on each of D ranks reach E (1 - (1 - k/E)^(D T)) distinct ones. It is not linear
    in the tokens; a row of several steps takes their mean. Where a step tells its ``distinct_experts`` they stand
    instead of what uniform routing reaches.
    """
    try:
        experts, top_k, ranks = (int(part) for part in sizes.split(":"))
        if not 0 < top_k <= experts or ranks < 1:
            raise ValueError
    except ValueError:
        raise RooflensError(f"{SPREAD}@{sizes[:40]} names no experts, top-k and ranks") from None
    missed = math.log1p(-top_k / experts) if top_k < experts else -math.inf

    def value(rows: Rows) -> Column:
        passes = rows.passes
        tokens = rows["query_tokens"] / np.maximum(passes, 1.0)
        reached: Column = -experts * np.expm1(ranks * missed * tokens)
        if (told := rows.known("distinct_experts")) is not False:
            measured = np.minimum(rows.filled("distinct_experts", 0.0), experts)
            reached = np.where(told, measured, reached)
        spread: Column = passes * np.maximum(reached - top_k, 0.0)
        return spread

    return Feature(("query_tokens",), value)


def _rank_tokens(ranks: str) -> Feature:
    """Tokens of all of ``ranks`` data-parallel ranks, if the others compute as many as this one: no bound."""
    if not (ranks.isdecimal() and ranks.isascii() and int(ranks)):
        raise RooflensError(f"{RANK_TOKENS}@{ranks[:40]} names no number of ranks")
    return Feature(("query_tokens",), lambda rows: int(ranks) * rows["query_tokens"])


COUNTED: Mapping[str, Callable[[str], Feature]] = {SPREAD: _spread, RANK_TOKENS: _rank_tokens}


def feature(name: str, longest_tokens: int | None = None, graph_sizes: Sequence[int] = ()) -> Feature:
    """The feature of that name, over a span or not; RooflensError where there is none."""
    base, argument = split(name)
    if name == "padded_tokens" and graph_sizes:
        return _padded(graph_sizes)
    if base in COUNTED:
        return COUNTED[base](argument)
    if base not in FEATURES:
        raise RooflensError(f"{name[:60]!r} is no feature of a step")
    if not argument:
        return FEATURES[base]
    plain = FEATURES[base]
    return Feature((*plain.needs, "query_tokens"), span_feature(base, argument, plain.value, longest_tokens))


class Features:
    """The features called ``names`` of many steps, compiled once.

    With ``block_tokens`` (tokens of one KV block), what is read of the cache is bounded by what the blocks held can
    store, of ``kv_groups`` groups of layers: see SharedBlocks. ``longest_tokens`` is the longest context that a
    sequence may have, for bounds where the lengths of a step are not known. ``graph_sizes`` are the numbers of tokens
    that graphs were captured for, to which a step is padded that does not tell.
    """

    def __init__(
        self,
        names: Sequence[str],
        block_tokens: int | None = None,
        longest_tokens: int | None = None,
        kv_groups: int = 1,
        graph_sizes: Sequence[int] = (),
    ) -> None:
        """RooflensError for a name that is no feature."""
        self.names = tuple(names)
        self._features = tuple(feature(name, longest_tokens, graph_sizes) for name in self.names)
        self._needs = tuple(dict.fromkeys(column for each in self._features for column in each.needs))
        self._shared = SharedBlocks(self.names, block_tokens, kv_groups)

    def chunks(self, table: StepTable) -> Iterator[tuple[slice, NDArray[np.float64], NDArray[np.bool_]]]:
        """The steps of ``table`` in order: which, their features (names, steps), and whether all are known (steps,).

        UntoldColumn for a needed column that the table does not have at all. The matrix is the caller's to change.
        """
        for column in self._needs:
            if column not in table.columns:
                raise UntoldColumn(column)
        shared = copy(self._shared)  # it remembers the last step of this table
        for start in range(0, len(table), CHUNK_STEPS):
            rows = Rows(table, start, min(start + CHUNK_STEPS, len(table)))
            matrix = np.empty((len(self.names), len(rows)))
            for place, each in enumerate(self._features):
                matrix[place] = each.value(rows)
            shared.bound(rows, matrix)
            yield slice(rows.start, rows.end), matrix, self._known(rows)

    def notes(self, table: StepTable) -> tuple[str, ...]:
        """What stands in for columns that ``table`` does not tell of every step, in a sentence each."""
        return tuple(dict.fromkeys(note for name in self.names for note in _stand_in(name, table)))

    def _known(self, rows: Rows) -> NDArray[np.bool_]:
        known = np.ones(len(rows), dtype=bool)
        for column in self._needs:
            if (told := rows.known(column)) is not True:
                known &= told
        return known


def feature_matrix(
    table: StepTable, names: Sequence[str], block_tokens: int | None = None, longest_tokens: int | None = None
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """The matrix (steps, len(names)) and the mask of steps for which every one of ``names`` is known.

    What Features gives, all steps at once; raises what Features raises.
    """
    matrix, known = np.empty((len(names), len(table))), np.empty(len(table), dtype=bool)
    for place, part, told in Features(names, block_tokens, longest_tokens).chunks(table):
        matrix[:, place], known[place] = part, told
    return matrix.T, known


def _stand_in(name: str, table: StepTable) -> Iterator[str]:
    base, argument = split(name)
    if base in COUNTED or not len(table):
        return
    if argument and not table.has(spanned("context_tokens", argument)):
        yield (
            "how far windows and chunks reach in each step is not told: the least that the sums of the contexts allow "
            "is counted"
        )
    if base in ("prefill_pairs", "decode_pairs") and not argument and not table.has("prefill_pairs"):
        yield "which query-key pairs belong to prompts is not told: where it matters the cheaper kind is counted"
    if base == "encoder_tokens" and not table.has(base):
        yield "the lengths of encoder inputs are not told: cross attention reads none of them here"
