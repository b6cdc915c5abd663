"""Any run of an engine, recorded and read back, has exactly the lengths that the engine had."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from rooflens.adapters.recorder import Recorder
from rooflens.collector.lengths import Lengths, blocks, plain_run, sums_of
from rooflens.collector.ring_source import RingSource

BLOCK_TOKENS = 16
SPANS = st.lists(st.builds("{}{}".format, st.sampled_from("wco"), st.integers(1, 60)), max_size=3, unique=True)


def seen_by(position: int, span: str) -> int:
    """Keys that the query at ``position``, counted from 1, sees through a window, in its chunk or over a length."""
    size = int(span[1:])
    if span[0] == "o":
        return position if position > size else 0
    return min(position, size) if span[0] == "w" else (position - 1) % size + 1


def cached_within(context: int, span: str) -> int:
    if span[0] == "o":
        return context if context > int(span[1:]) else 0
    return min(context, int(span[1:])) if span[0] == "w" else context % int(span[1:])


def pairs_of(row: Row, span: str) -> int:
    return sum(seen_by(row.context + place, span) for place in range(1, row.query + 1))


@dataclass
class Row:
    context: int
    query: int = 1
    drafts: int = 0
    rejected: int = 0


@st.composite
def runs(draw: st.DrawFn) -> list[list[Row]]:
    """Steps of an engine: rows go on, leave anywhere, come at the end, prefill in chunks, verify drafts."""
    steps: list[list[Row]] = []
    rows: list[Row] = []
    for _ in range(draw(st.integers(1, 12))):
        kept = [Row(r.context + r.query - r.rejected) for r in rows if draw(st.integers(0, 9))]
        for _ in range(draw(st.sampled_from([0, 0, 0, 1, 3]))):
            kept.append(Row(draw(st.integers(0, 40)), draw(st.integers(1, 50))))
        if draw(st.integers(0, 5)) == 0:
            for row in kept:
                row.query = 1
                row.drafts = draw(st.integers(0, 4))
                row.rejected = draw(st.integers(0, row.drafts))
                row.query += row.drafts
        if draw(st.integers(0, 19)) == 0:
            kept.reverse()
        rows = kept
        steps += [rows]
        for _ in range(draw(st.sampled_from([0, 0, 2, 5]))):
            rows = [Row(r.context + r.query - r.rejected) for r in rows]
            steps += [rows]
    return steps


@settings(max_examples=60, deadline=None)
@given(runs(), st.booleans(), SPANS)
def test_every_length_survives(steps: list[list[Row]], visited: bool, spans: list[str]) -> None:
    with tempfile.TemporaryDirectory() as name:
        recorder = Recorder("test", folder=Path(name), strict=True, block_tokens=BLOCK_TOKENS)
        for rows in steps:
            plain = all(row.query == 1 and not row.drafts for row in rows)
            with recorder.step(
                contexts=[row.context for row in rows],
                queries=None if plain else [row.query for row in rows],
                drafts=[row.drafts for row in rows] if any(row.drafts for row in rows) else None,
            ) as step:
                step.rejected = [row.rejected for row in rows] if any(row.drafts for row in rows) else None
        assert recorder.failures == 0
        assert recorder.path is not None
        seen: dict[int, Lengths] = {}
        source = RingSource(recorder.path, spans_of=lambda info: tuple(spans))
        table = source.read(seen.__setitem__ if visited else None).steps
        recorder.close()
    assert source.doubted_frames == 0
    for at, rows in enumerate(steps):
        contexts = np.array([row.context for row in rows], dtype=np.int64)
        queries = np.array([row.query for row in rows], dtype=np.int64)
        assert table["query_tokens"][at] == queries.sum()
        assert table["context_tokens"][at] == contexts.sum()
        assert table["causal_pairs"][at] == sum(
            row.context + place for row in rows for place in range(1, row.query + 1)
        )
        assert table["context_blocks"][at] == blocks(contexts, BLOCK_TOKENS).sum()
        assert table["max_context_tokens"][at] == max([row.context for row in rows], default=0)
        prefilling = [row for row in rows if row.query - row.drafts > 1]
        for span in spans:
            assert table[f"context_tokens@{span}"][at] == sum(cached_within(row.context, span) for row in rows)
            assert table[f"causal_pairs@{span}"][at] == sum(pairs_of(row, span) for row in rows)
            assert table[f"prefill_pairs@{span}"][at] == sum(pairs_of(row, span) for row in prefilling)
        if visited and rows:
            assert seen[at].contexts.tolist() == contexts.tolist()
            assert seen[at].queries.tolist() == queries.tolist()


@settings(deadline=None)
@given(st.lists(st.integers(0, 5000), max_size=40), st.integers(1, 80), st.sampled_from([1, 7, 16, 128]), SPANS)
def test_a_run_of_plain_steps_is_the_naive_loop(
    contexts: list[int], steps: int, block_tokens: int, spans: list[str]
) -> None:
    start = np.array(contexts, dtype=np.int64)
    ones = np.ones(len(contexts), dtype=np.int64)
    none = np.empty(0, dtype=np.int64)
    naive = [sums_of(Lengths(start + n, ones, none, start + n + 1), block_tokens, spans) for n in range(steps)]
    assert plain_run(start, steps, block_tokens, spans).T.tolist() == [list(row) for row in naive]


def test_by_hand() -> None:
    # Contexts 2 and 9, three decode steps. Window of 4: min(2, 4) + min(9, 4) = 6, then 7, 8; its pairs 7, 8, 8.
    # Chunks of 4: 2 + 1 = 3, then 3 + 2 = 5, then 0 + 3 = 3; pairs are two more.
    # Over 3: 0 + 9, 0 + 10 and 4 + 11; a query counts itself, so its pairs are 10, 4 + 11 and 5 + 12.
    over = plain_run(np.array([2, 9]), 3, 16, ("o3",))
    assert over[4:].tolist() == [[9, 10, 15], [10, 15, 17], [0, 0, 0]]
    sums = plain_run(np.array([2, 9]), 3, 16, ("w4", "c4"))
    assert sums[4:].tolist() == [[6, 7, 8], [7, 8, 8], [0, 0, 0], [3, 5, 3], [5, 7, 5], [0, 0, 0]]
