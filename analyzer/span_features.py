"""Contexts and pairs over a span: as the reader counted them, else the least that they can be."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rooflens.analyzer.spans import OVER, WINDOW, parse, spanned
from rooflens.analyzer.step_rows import Column, Known, Rows

Value = Callable[[Rows], Column]


def span_feature(base: str, span: str, plain: Value, longest_tokens: int | None) -> Value:
    """The values of the feature ``base`` over ``span``; ``plain`` is the same without a span.

    RooflensError for a text that is no span.
    """
    limit = parse(span)
    if limit.kind == OVER:
        return _over(base, span, plain, limit.tokens)
    window = limit.tokens if limit.kind == WINDOW else 0

    def least(rows: Rows) -> Column:
        whole = plain(rows)
        found = whole * _least_share(rows, window, longest_tokens, base != "context_tokens")
        if base == "context_tokens":  # if it were all one sequence's
            return np.maximum(found, np.minimum(whole, window))
        if base == "causal_pairs":  # every query sees itself
            return np.maximum(found, np.minimum(whole, rows["query_tokens"]))
        return found

    def value(rows: Rows) -> Column:
        told, counted = _counted(rows, base, span)
        if told is True:
            return counted
        found: Column = np.where(told, counted, least(rows))
        return found

    return value


def _over(base: str, span: str, plain: Value, limit: int) -> Value:
    """Where not counted, the least that contexts (of sequences) or what tokens see can sum to over ``limit``.

    Of n that sum to C at least (C - n limit) / (longest - limit) are over it, and one if C > n limit; the others have
    no more than ``limit`` each.
    """

    def value(rows: Rows) -> Column:
        told, counted = _counted(rows, base, span)
        if told is True:
            return counted
        whole, many, longest = plain(rows), rows["query_tokens"], rows.filled("max_context_tokens", np.inf)
        if base == "context_tokens":
            many = np.minimum(many, rows.filled("requests", np.inf))
        else:
            longest = longest + many
        beyond = np.maximum(whole - many * limit, 0.0)
        over = np.minimum(many, np.maximum(beyond / np.maximum(longest - limit, 1.0), 1.0))
        found: Column = np.where(told, counted, np.where(beyond > 0, whole - (many - over) * limit, 0.0))
        return found

    return value


def _counted(rows: Rows, base: str, span: str) -> tuple[Known, Column]:
    if base != "decode_pairs":
        return rows.known(name := spanned(base, span)), rows.filled(name, 0.0)
    both, prompts = spanned("causal_pairs", span), spanned("prefill_pairs", span)
    known, told = rows.known(both), rows.known(prompts)
    return (True if known is True and told is True else known & told), (
        rows.filled(both, 0.0) - rows.filled(prompts, 0.0)
    )


def _least_share(rows: Rows, window: int, longest_tokens: int | None, of_pairs: bool) -> Column | float:
    """What part of contexts, or of pairs, a window reaches at least: min(c, W) >= c min(1, W / longest), a ratio.

    The longest is that of the step where it is known, else the longest that any may be. Of a chunk nothing is certain.
    """
    named = window / longest_tokens if longest_tokens else 0.0
    known = rows.known("max_context_tokens")
    if not window or known is False:
        return min(1.0, named)
    longest = rows.filled("max_context_tokens", 0.0) + (rows["query_tokens"] if of_pairs else 0.0)
    return np.where(known, np.minimum(1.0, window / np.maximum(longest, 1.0)), min(1.0, named))
