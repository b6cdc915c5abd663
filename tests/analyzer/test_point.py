"""The features of a step of equal sequences: by hand, and equal to those of the step's columns."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rooflens.analyzer.features import feature_matrix
from rooflens.analyzer.point import UniformBatch, expected_experts, point_features
from rooflens.records import RooflensError, StepTable
from rooflens.spans import pairs_within, within

SPANS = ("w7", "w1024", "c16", "c8192", "o7", "o1024")
SPREADS = ("expert_spread@128:8:1", "expert_spread@256:8:16", "expert_spread@8:8:1")
PLAIN = ("passes", "head_passes", "query_tokens", "sampled_rows", "requests", "context_tokens", "encoder_tokens")
PAIRS = ("causal_pairs", "prefill_pairs", "decode_pairs")
SPANNED = tuple(f"{name}@{span}" for name in ("context_tokens", *PAIRS) for span in SPANS)


def one(name: str, *values: Any, **fields: Any) -> float:
    return point_features(UniformBatch(*values, **fields), (name,))[name]


def columns_of(batch: UniformBatch) -> StepTable:
    """The step that an engine would have recorded."""
    count = int(batch.sequences)
    found: dict[str, float] = {
        "query_tokens": count * batch.query_tokens,
        "sampled_rows": count * batch.sampled_rows,
        "requests": count,
        "encoder_tokens": count * batch.encoder_tokens,
        "lora_rows": count * batch.query_tokens if batch.lora_adapters else 0,
    }
    for span in ("", *SPANS):
        mark = f"@{span}" if span else ""
        pairs = count * pairs_within(batch.cached_tokens, batch.query_tokens, span)
        found[f"context_tokens{mark}"] = count * within(batch.cached_tokens, span)
        found[f"causal_pairs{mark}"] = pairs
        found[f"prefill_pairs{mark}"] = pairs if batch.prefill else 0
    return StepTable({name: np.array([value], dtype=np.int64) for name, value in found.items()}, {})


@settings(max_examples=150, deadline=None)
@given(
    st.integers(1, 300),
    st.integers(0, 40_000),
    st.integers(1, 9_000),
    st.sampled_from([0, 1]),
    st.booleans(),
    st.integers(0, 500),
    st.booleans(),
)
def test_a_point_is_the_step_of_equal_sequences(
    sequences: int, cached: int, query: int, sampled: int, prefill: bool, encoder: int, lora: bool
) -> None:
    batch = UniformBatch(
        sequences, cached, query, sampled, prefill, encoder_tokens=encoder, lora_adapters=1 if lora else 0
    )
    names = (*PLAIN, *PAIRS, *SPANNED, *SPREADS, "lora_rows", "lora_adapters")
    matrix, known = feature_matrix(columns_of(batch), names)
    assert known.all()
    point = point_features(batch, names)
    for place, name in enumerate(names):
        assert point[name] == pytest.approx(matrix[0, place], rel=1e-9, abs=1e-6), name


def test_windows_and_chunks_by_hand() -> None:
    # Three sequences of 2,000 cached tokens and one query: a window of 1,024 reads 1,024 of them and pairs with 1,024
    # positions, itself among them; position 2,001 is the 977th of its chunk of 1,024, so 976 are read.
    assert one("context_tokens@w1024", 3, 2000) == 3 * 1024
    assert one("decode_pairs@w1024", 3, 2000) == 3 * 1024
    assert one("context_tokens@c1024", 3, 2000) == 3 * 976
    assert one("decode_pairs@c1024", 3, 2000) == 3 * 977
    # A prompt of 4 tokens under a window of 2 has 1 + 2 + 2 + 2 pairs.
    assert one("prefill_pairs@w2", 1, 0, 4, prefill=True) == 7
    assert one("decode_pairs@w2", 1, 0, 4, prefill=True) == 0
    assert one("causal_pairs", 1, 10, 4) == 11 + 12 + 13 + 14


def test_distinct_experts_by_hand() -> None:
    # 128 experts, 8 for each of 16 tokens: 128 (1 - (120/128)^16) = 82.4, of which 8 are the fewest possible.
    assert expected_experts(128, 8, 16) == pytest.approx(82.4, abs=0.05)
    assert one("expert_spread@128:8:1", 16, 0) == pytest.approx(74.4, abs=0.05)
    assert one("expert_spread@128:8:1", 1, 0) == pytest.approx(0, abs=1e-9)
    assert one("expert_spread@128:8:1", 0, 0) == 0
    # Two ranks that send 8 tokens each are one that sends 16; so are 4 sequences of 4 tokens.
    assert one("expert_spread@128:8:2", 8, 0) == pytest.approx(one("expert_spread@128:8:1", 16, 0))
    assert one("expert_spread@128:8:1", 4, 0, 4) == pytest.approx(one("expert_spread@128:8:1", 16, 0))
    assert one("rank_tokens@4", 3, 0, 5) == 4 * 3 * 5


def test_tokens_of_a_sequence_share_experts() -> None:
    # GLM-4.7-Flash: 64 experts, 4 a token, 25.7 % of them shared with the token before: two tokens reach 1.743 x 4.
    spread = one("expert_spread@64:4:1", 1, 0, 2, expert_sharing_ratio=0.257)
    assert (spread + 4) / 4 == pytest.approx(1.743)
    independent = one("expert_spread@64:4:1", 1, 0, 2)
    assert (independent + 4) / 4 == pytest.approx(2 - 4 / 64)  # 6.25 % are shared by chance
    # Sharing by chance is what independence means.
    assert one("expert_spread@64:4:1", 9, 0, 2, expert_sharing_ratio=4 / 64) == pytest.approx(
        one("expert_spread@64:4:1", 9, 0, 2)
    )
    assert one("expert_spread@64:4:1", 3, 0, 400, expert_sharing_ratio=0.0) == pytest.approx(60)


def test_experts_that_were_measured() -> None:
    for distinct, spread in ((40.0, 32), (8.0, 0), (2.0, 0), (500.0, 120)):
        assert one("expert_spread@128:8:1", 16, 0, distinct_experts=distinct) == spread
        assert one("expert_spread@128:8:4", 16, 0, 3, distinct_experts=distinct, expert_sharing_ratio=0.5) == spread
    assert one("expert_spread@128:8:1", 0.25, 0, distinct_experts=40.0) == 0.25 * 32
    assert one("expert_spread@128:8:1", 0, 0, distinct_experts=40.0) == 0


def test_what_sequences_share_is_read_once() -> None:
    shared = {"cached_tokens": 1000, "shared_tokens": 900}
    assert one("context_tokens", 8, **shared) == 8 * 100 + 900
    assert one("context_tokens", 1, **shared) == 1000
    # A window of 300 reaches 200 tokens into what is shared.
    assert one("context_tokens@w300", 8, **shared) == 8 * 100 + 200
    assert one("context_tokens@w50", 8, **shared) == 8 * 50
    # What an indexer chooses may lie wholly in what is shared.
    assert one("context_tokens@w300", 8, chosen=frozenset({"w300"}), **shared) == 300
    assert one("context_tokens@w950", 8, chosen=frozenset({"w950"}), **shared) == 8 * 50 + 900
    assert one("causal_pairs", 8, **shared) == 8 * 1001


def test_padding_to_captured_sizes() -> None:
    sizes = (1, 2, 4, 8, 16)
    assert one("padded_tokens", 5, 10, graph_sizes=sizes) == 8
    assert one("padded_tokens", 8, 10, graph_sizes=sizes) == 8
    assert one("padded_tokens", 17, 10, graph_sizes=sizes) == 17  # beyond the last graph it runs as it is
    assert one("padded_tokens", 3, 10, 3, graph_sizes=sizes) == 16
    assert one("padded_tokens", 5, 10) == 5
    assert one("padded_tokens", 0, 10, graph_sizes=sizes) == 0
    assert one("padded_tokens", 0.5, 10, graph_sizes=(4,)) == 2  # every other step


def test_a_plain_decode_step_is_what_is_meant_without_more_words() -> None:
    assert one("sampled_rows", 3, 10) == one("query_tokens", 3, 10) == 3
    assert one("decode_pairs", 3, 10) == 33
    assert one("lora_rows", 3, 10) == one("lora_adapters", 3, 10) == one("encoder_tokens", 3, 10) == 0


def test_what_goes_on_from_a_state() -> None:
    # Every decode step does, of a prompt all but its first chunk.
    continued = [
        point_features(UniformBatch(3, cached, prefill=prefill), ("continued_requests",))["continued_requests"]
        for cached in (0, 10)
        for prefill in (False, True)
    ]
    assert continued == [3, 0, 3, 3]


def test_blocks_are_whole() -> None:
    assert one("context_blocks", 3, 100, block_tokens=16) == 3 * 7
    assert one("context_blocks", 3, 100) == 300


def test_a_rank_that_is_idle_at_times() -> None:
    assert one("passes", 0.25, 100) == 0.25
    assert one("head_passes", 0.25, 100) == 0.25
    assert one("query_tokens", 0.25, 100) == 0.25
    assert one("expert_spread@64:4:1", 0.25, 0, 3) == pytest.approx(0.25 * one("expert_spread@64:4:1", 1, 0, 3))
    assert one("lora_adapters", 0.25, 0, lora_adapters=1) == 0.25


@pytest.mark.parametrize(
    "name", ["tokens", "context_tokens@x5", "expert_spread@8", "rank_tokens@none", "rank_tokens", "rank_tokens@0"]
)
def test_what_is_no_feature(name: str) -> None:
    with pytest.raises(RooflensError):
        one(name, 1, 10)


@given(st.integers(1, 400), st.integers(1, 64), st.floats(0, 1e4))
def test_expected_experts_stay_within_their_limits(experts: int, top_k: int, tokens: float) -> None:
    top_k = min(top_k, experts)
    found = expected_experts(experts, top_k, tokens)
    assert 0 <= found <= experts * (1 + 1e-12)
    assert found <= top_k * tokens * (1 + 1e-9) + 1e-9 or tokens < 1
    assert math.isclose(expected_experts(experts, top_k, 1), top_k, rel_tol=1e-9)
