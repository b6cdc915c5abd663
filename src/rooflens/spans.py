"""How far back a query looks: closed forms for windows and chunks, the same for ints and for integer arrays.

A span is written ``w1024`` (a query sees the last 1024 positions, itself among them), ``c8192`` (a query sees its
own chunk of 8192 positions up to itself) or ``o2048`` (a query sees all positions, but only where it has over 2048:
an indexer that chooses 2048 need not look at fewer). A feature over a span is written ``context_tokens@w1024``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar, cast

from rooflens.records import RooflensError

WINDOW, CHUNK, OVER = "w", "c", "o"
MARK = "@"
MOST_TOKENS = 1 << 40  # beyond any context; pairs of longer ones would not fit 64 bits

Count = TypeVar("Count")  # an int, or a NumPy array of them


@dataclass(frozen=True, slots=True)
class Span:
    """``kind`` is WINDOW, CHUNK or OVER, ``tokens`` its length."""

    kind: str
    tokens: int


@lru_cache(maxsize=256)
def parse(span: str) -> Span:
    """The span that ``w1024`` or ``c8192`` writes; RooflensError for anything else."""
    kind, digits = span[:1], span[1:]
    if kind in (WINDOW, CHUNK, OVER) and digits.isdecimal() and digits.isascii() and 0 < int(digits) <= MOST_TOKENS:
        return Span(kind, int(digits))
    raise RooflensError(
        f"{span[:40]!r} is no span: write w1024 for a window of tokens, c8192 for a chunk, o2048 for what is over"
    )


def spanned(feature: str, span: str) -> str:
    """The name of ``feature`` over ``span``; ``feature`` itself where the span is "" (no limit)."""
    return f"{feature}{MARK}{span}" if span else feature


def split(name: str) -> tuple[str, str]:
    """(feature, span) of a feature's name; the span is "" where there is none."""
    feature, _, span = name.partition(MARK)
    return feature, span


def within(context: Count, span: str) -> Count:
    """Cached tokens that the next query may read: min(context, W) of a window, context mod C of a chunk.

    The window's W counts the query too, so this is at most one token more than it needs; kernels read that block. With
    more than the tokens of an OVER it is the context, else nothing.
    """
    if not span:
        return context
    limit, tokens = parse(span), cast(Any, context)
    if limit.kind == OVER:
        return cast(Count, (tokens > limit.tokens) * tokens)
    return cast(Count, tokens % limit.tokens if limit.kind == CHUNK else _smaller(tokens, limit.tokens))


def pairs_within(context: Count, query: Count, span: str) -> Count:
    """Query-key pairs of ``query`` tokens after ``context``: one at position p (from 1) sees min(p, W) keys.

    In a chunk it sees ((p - 1) mod C) + 1; without a span ("") it sees p, and so it does where p is over an OVER.
    """
    before: Any = context
    return cast(Count, _pairs_up_to(before + query, span) - _pairs_up_to(before, span))


def _pairs_up_to(position: Any, span: str) -> Any:
    """Pairs of all queries at positions 1 to ``position``."""
    if not span:
        return _triangle(position)
    limit = parse(span)
    if limit.kind == CHUNK:
        return position // limit.tokens * _triangle(limit.tokens) + _triangle(position % limit.tokens)
    inside = _smaller(position, limit.tokens)
    if limit.kind == OVER:
        return _triangle(position) - _triangle(inside)
    return _triangle(inside) + (position - inside) * limit.tokens


def _triangle(count: Any) -> Any:
    return count * (count + 1) // 2


def _smaller(count: Any, limit: int) -> Any:
    """min(count, limit) without a branch, so that it holds for arrays too."""
    return count - (count > limit) * (count - limit)
