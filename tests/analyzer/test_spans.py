"""Windows and chunks in closed form against counting one position after the other."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rooflens.analyzer import spans
from rooflens.arch_records import Attention, CompressedAttention, Indexer, LatentAttention, Layer, ModelArch, StateMixer
from rooflens.records import RooflensError

LENGTHS = st.integers(0, 200)
SPANS = st.builds("{}{}".format, st.sampled_from("wco"), st.integers(1, 70))


def seen_by(position: int, span: str) -> int:
    """Keys that the query at ``position`` (counted from 1) sees, itself among them: counted one by one."""
    limit = spans.parse(span)
    if limit.kind == spans.OVER:
        return position if position > limit.tokens else 0
    if limit.kind == spans.WINDOW:
        return len([key for key in range(1, position + 1) if position - key < limit.tokens])
    return len([key for key in range(1, position + 1) if (key - 1) // limit.tokens == (position - 1) // limit.tokens])


@given(LENGTHS, LENGTHS, SPANS)
def test_pairs_are_those_counted_one_by_one(context: int, query: int, span: str) -> None:
    counted = sum(seen_by(context + step, span) for step in range(1, query + 1))
    assert spans.pairs_within(context, query, span) == counted


@given(LENGTHS, SPANS)
def test_cached_tokens_within_reach(context: int, span: str) -> None:
    # The next query sees itself and what is cached; a window counts at most one token more than that. With exactly as
    # many tokens as it may have the next query is over, and what is cached is not yet.
    if span[0] == spans.OVER:
        assert spans.within(context, span) == seen_by(context, span)
        return
    cached = seen_by(context + 1, span) - 1
    more = spans.within(context, span) - cached
    assert more in ((0, 1) if span[0] == spans.WINDOW else (0,))


@given(st.lists(st.tuples(LENGTHS, LENGTHS), max_size=20), SPANS)
def test_arrays_give_what_ints_give(rows: list[tuple[int, int]], span: str) -> None:
    contexts = np.array([context for context, _ in rows], dtype=np.int64)
    queries = np.array([query for _, query in rows], dtype=np.int64)
    assert spans.within(contexts, span).tolist() == [spans.within(context, span) for context, _ in rows]
    assert spans.pairs_within(contexts, queries, span).tolist() == [spans.pairs_within(*row, span) for row in rows]


def test_by_hand() -> None:
    # Over 4: queries at 4, 5, 6 see nothing, 5 and 6; of a context of 4 nothing counts, of 5 all.
    assert spans.pairs_within(3, 3, "o4") == 11
    assert (spans.within(4, "o4"), spans.within(5, "o4")) == (0, 5)
    # Window of 4, 3 tokens cached, 3 queries at positions 4, 5, 6: each sees 4 keys.
    assert spans.pairs_within(3, 3, "w4") == 12
    # Chunks of 4, 3 cached: position 4 sees 4 keys, 5 sees 1, 6 sees 2.
    assert spans.pairs_within(3, 3, "c4") == 7
    # No span: 4 + 5 + 6.
    assert spans.pairs_within(3, 3, "") == 15
    assert (spans.within(9, "w4"), spans.within(9, "c4"), spans.within(9, "")) == (4, 1, 9)
    # A decode token at a million of context in a window of 128: 128 pairs, no overflow of 64 bits either.
    assert spans.pairs_within(np.array([10**6]), np.array([1]), "w128").tolist() == [128]


def test_names() -> None:
    assert spans.spanned("context_tokens", "w1024") == "context_tokens@w1024"
    assert spans.split("context_tokens@w1024") == ("context_tokens", "w1024")
    assert (spans.spanned("causal_pairs", ""), spans.split("causal_pairs")) == ("causal_pairs", ("causal_pairs", ""))


@pytest.mark.parametrize("text", ["", "w", "1024", "x5", "w-3", "w0", "w1.5", "w 5", "w٣", "w" + "9" * 30])
def test_what_is_no_span(text: str) -> None:
    with pytest.raises(RooflensError, match="is no span"):
        spans.parse(text)


def test_spans_of_every_mixer() -> None:
    plain = Attention(8, 2, 64, 64)
    sparse = LatentAttention(8, 16, 32, 16, 8, 16, Indexer(4, 16, 2048))
    compressed = CompressedAttention(8, 64, 8, 16, 1, 16, 128, 4, Indexer(4, 16, 512))
    mixers = (
        plain, Attention(8, 2, 64, 64, window_tokens=1024), Attention(8, 2, 64, 64, chunk_tokens=8192),
        Attention(8, 2, 64, 64, window_tokens=1024, kv_shared=True), sparse, compressed,
        StateMixer("mamba", 8, 64, 64, 0, 64, 4, 8.0), None,
    )  # fmt: skip
    arch = ModelArch("m", 512, 1000, True, tuple(Layer(1, mixer, None) for mixer in mixers))
    # Windows 1024, 128 and 512 x 4 = 2048 compressed tokens, top 2048 latents, chunks of 8192. An indexer is idle up to
    # 2048 tokens, and of entries of 4 tokens each up to 3 more, which are no entry yet.
    assert spans.spans_of(arch) == ("c8192", "o2048", "o2051", "w128", "w1024", "w2048")
    assert spans.spans_of(ModelArch("m", 512, 1000, True, (Layer(2, plain, None),))) == ()
    drafter = ModelArch("m", 512, 1000, True, (Layer(2, plain, None),), mtp=(Layer(1, sparse, None),))
    assert spans.spans_of(drafter) == ("o2048", "w2048")
