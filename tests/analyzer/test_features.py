"""The features of steps: over spans, of experts, of shared prefixes; never more than can be known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from counted_calls import calls_of
from hypothesis import given, settings
from hypothesis import strategies as st

from rooflens.analyzer import features
from rooflens.analyzer.arch import find_model
from rooflens.analyzer.features import Features, feature_matrix
from rooflens.analyzer.hardware import find_hardware
from rooflens.analyzer.precision import choose_precision
from rooflens.analyzer.roofline import Roofline
from rooflens.records import RooflensError, StepKind, StepTable
from rooflens.spans import pairs_within, within

SPANS = st.builds("{}{}".format, st.sampled_from("wco"), st.integers(1, 300))
SEQUENCES = st.lists(st.tuples(st.integers(0, 600), st.integers(1, 40)), min_size=1, max_size=8)
PREFILL = 2  # a sequence that computes at least as many tokens is working on its prompt


def table(known: dict[str, Any] | None = None, **columns: Any) -> StepTable:
    return StepTable({name: np.asarray(column) for name, column in columns.items()}, known or {})


def of(sequences: list[tuple[int, int]], spans: list[str] | None = None, **more: Any) -> StepTable:
    """One step of sequences with (context, query) each; without ``spans`` as a source that tells no lengths."""
    prompts = [row for row in sequences if row[1] >= PREFILL]
    columns: dict[str, Any] = {
        "kind": [StepKind.MIXED if prompts else StepKind.DECODE],
        "requests": [len(sequences)],
        "sampled_rows": [len(sequences)],
        "query_tokens": [sum(query for _, query in sequences)],
        "prefill_tokens": [sum(query for _, query in prompts)],
        "context_tokens": [sum(context for context, _ in sequences)],
        "causal_pairs": [sum(pairs_within(*row, "") for row in sequences)],
        "prefill_pairs": [sum(pairs_within(*row, "") for row in prompts)],
    }
    for span in spans or ():
        columns[f"context_tokens@{span}"] = [sum(within(context, span) for context, _ in sequences)]
        columns[f"causal_pairs@{span}"] = [sum(pairs_within(*row, span) for row in sequences)]
        columns[f"prefill_pairs@{span}"] = [sum(pairs_within(*row, span) for row in prompts)]
    return table(**columns, **more)


def value(steps: StepTable, name: str, **about: Any) -> float:
    matrix, known = feature_matrix(steps, (name,), **about)
    assert known.all()
    return float(matrix[0, 0])


FOUR = ("context_tokens", "causal_pairs", "prefill_pairs", "decode_pairs")


@given(SEQUENCES, SPANS, st.booleans(), st.booleans())
def test_what_is_not_told_over_a_span_is_never_counted_too_high(
    sequences: list[tuple[int, int]], span: str, longest_told: bool, limit_told: bool
) -> None:
    told = of(sequences, [span])
    more = {"max_context_tokens": [max(context for context, _ in sequences)]} if longest_told else {}
    limit = max(sum(row) for row in sequences) if limit_told else None
    guessed = of(sequences, **more)
    for name in FOUR:
        exact = value(told, f"{name}@{span}")
        assert 0 <= value(guessed, f"{name}@{span}", longest_tokens=limit) <= exact * (1 + 1e-12)


def test_least_over_a_window_by_hand() -> None:
    # 8 sequences of 1000 cached tokens, of 4000 at most, in a window of 1000: 8000 tokens could be two sequences of
    # 4000, which reach 2 x 1000. If the longest is known to be 1000, all 8000 are within reach.
    steps = of([(1000, 1)] * 8)
    assert value(steps, "context_tokens@w1000", longest_tokens=4000) == 2000
    assert value(of([(1000, 1)] * 8, max_context_tokens=[1000]), "context_tokens@w1000") == 8000
    assert value(steps, "context_tokens@w1000") == 1000  # nothing is known: all of it may be one sequence's
    assert value(steps, "context_tokens@c1000", longest_tokens=4000) == 0  # each may be about to begin a chunk
    assert value(steps, "causal_pairs@c1000", longest_tokens=4000) == 8  # each query sees itself
    assert value(steps, "causal_pairs@w1000", longest_tokens=4004) == pytest.approx(8008 * 1000 / 4004)


def test_columns_known_for_some_steps_are_used_there() -> None:
    told = {"context_tokens@w100": np.array([True, False])}
    steps = table(told, query_tokens=[1, 1], context_tokens=[1000, 1000], **{"context_tokens@w100": [77, 999]})
    matrix, known = feature_matrix(steps, ("context_tokens@w100",))
    assert (matrix[:, 0].tolist(), known.tolist()) == ([77, 100], [True, True])


def test_which_pairs_are_of_prompts() -> None:
    steps = of([(100, 1), (0, 10)])  # 101 pairs of the one that decodes, 55 of the prompt
    assert (value(steps, "prefill_pairs"), value(steps, "decode_pairs")) == (55, 101)
    bare = {n: c for n, c in steps.columns.items() if n != "prefill_pairs"}
    # Not told: all of them may be of prompts, which is the cheaper kind of latent attention.
    assert (value(StepTable(bare), "prefill_pairs"), value(StepTable(bare), "decode_pairs")) == (156, 0)
    for none in ({"prefill_tokens": np.array([0])}, {"kind": np.array([StepKind.VERIFY])}):
        assert value(StepTable(bare | none), "decode_pairs") == 156


def test_experts_under_uniform_routing_by_hand() -> None:
    name = "expert_spread@8:2:1"
    # One token reaches 2 of 8 experts, which is the strict part: nothing beyond it.
    assert value(of([(9, 1)]), name) == pytest.approx(0, abs=1e-12)
    # Four: 8 (1 - (6/8)^4) = 5.46875 distinct ones, less the two.
    assert value(of([(9, 1)] * 4), name) == pytest.approx(3.46875)
    # Four of each of two ranks are eight: 8 (1 - (6/8)^8) - 2.
    assert value(of([(9, 1)] * 4), "expert_spread@8:2:2") == pytest.approx(8 * (1 - 0.75**8) - 2)
    assert value(of([(9, 1)] * 4), "rank_tokens@2") == 8
    # A row of three steps with twelve tokens is three passes of four.
    assert value(table(query_tokens=[12], resolution_steps=[3]), name) == pytest.approx(3 * 3.46875)
    # No tokens, no pass; all experts chosen, no spread, however many tokens.
    assert value(table(query_tokens=[0]), name) == 0
    assert value(table(query_tokens=[5]), "expert_spread@4:4:1") == 0
    assert value(table(query_tokens=[10**6]), "expert_spread@256:8:1") == pytest.approx(248)
    # Two tokens that choose one of four each: 4 (1 - (3/4)^2) = 1.75 distinct ones, less the one.
    assert value(table(query_tokens=[2]), "expert_spread@4:1:1") == pytest.approx(0.75)


def test_experts_that_were_measured_stand_instead_of_uniform_ones() -> None:
    """Four tokens that choose 2 of 8 reach 5.46875 where they choose at random; told of 3, it is one more than 2."""
    name = "expert_spread@8:2:1"
    steps = table(
        {"distinct_experts": np.array([True, False, True, True, True])},
        query_tokens=[4, 4, 4, 4, 0], distinct_experts=[3.0, 3.0, 9.0, 1.5, 3.0],
    )  # fmt: skip
    # Told, not told, more than there are (all 8), fewer than one token chooses (no less than those 2), no pass.
    assert feature_matrix(steps, (name,))[0][:, 0].tolist() == pytest.approx([1, 3.46875, 6, 0, 0])
    window = table(query_tokens=[12], resolution_steps=[3], distinct_experts=[4.5])
    assert value(window, name) == 3 * 2.5  # a mean of three passes
    assert value(window, "expert_spread@8:2:4") == 3 * 2.5  # of the tokens of all ranks, as told
    assert feature_matrix(window, ("query_tokens",))[1].all()


def test_measured_experts_move_what_is_expected_and_not_the_floor() -> None:
    arch = find_model("qwen3-30b-a3b")
    roofline = Roofline(arch, find_hardware("h100-sxm5-80"), choose_precision(arch))
    plain = of([(99, 1)] * 16)
    told = StepTable({**plain.columns, "distinct_experts": np.array([40.0])}, plain.known)
    uniform, measured = roofline.bounds(plain), roofline.bounds(told)
    assert measured.floor_s == uniform.floor_s
    # 48 layers of experts of 3 x 2048 x 768 at two bytes, 82.4 of them under uniform routing.
    fewer = 128 * (1 - (120 / 128) ** 16) - 40
    difference_s = fewer * 48 * 3 * 2048 * 768 * 2 / 3.35e12
    assert uniform.expected_s - measured.expected_s == pytest.approx(difference_s)


def test_adapters_padding_and_encoders() -> None:
    steps = table(
        {"padded_tokens": np.array([True, False])}, query_tokens=[5, 5], lora_rows=[3, 0], padded_tokens=[8, 0]
    )
    names = ("lora_rows", "lora_adapters", "padded_tokens", "encoder_tokens")
    assert feature_matrix(steps, names)[0].tolist() == [[3, 1, 8, 0], [0, 0, 5, 0]]
    assert feature_matrix(table(query_tokens=[5]), names)[0].tolist() == [[0, 0, 5, 0]]
    many = table(query_tokens=[50], lora_rows=[3], resolution_steps=[10])  # three rows in ten steps: three passes
    assert value(many, "lora_adapters") == 3


def test_a_row_of_several_steps_is_padded_pass_by_pass() -> None:
    # 30 tokens in three passes are ten in each, padded to 16: 48 in all. 60 are twenty in each, beyond the last size.
    steps = table(query_tokens=[30, 60], resolution_steps=[3, 3])
    ((_, found, _),) = Features(("padded_tokens",), graph_sizes=(8, 16)).chunks(steps)
    assert found[0].tolist() == [48, 60]


@pytest.mark.parametrize(
    "name", ["nothing", "expert_spread", "expert_spread@8", "expert_spread@2:8:1", "expert_spread@8:0:1",
             "expert_spread@8:2:0", "context_tokens@x5", "rank_tokens@0", "rank_tokens"]
)  # fmt: skip
def test_names_that_are_no_feature(name: str) -> None:
    with pytest.raises(RooflensError):
        Features((name,))


def test_a_missing_column_is_named() -> None:
    with pytest.raises(RooflensError, match=r"no contexts are told \(causal_pairs\)"):
        feature_matrix(table(query_tokens=[1]), ("decode_pairs@w8",))


@settings(deadline=None)
@given(shared=st.integers(0, 20), own=st.lists(st.integers(0, 20), min_size=1, max_size=6), over=st.integers(1, 40))
def test_index_keys_of_shared_prefixes_never_count_more_than_there_are(shared: int, own: list[int], over: int) -> None:
    """No feature sees the whole context here: the blocks held are compared with all contexts all the same."""
    contexts = [shared + each for each in own]
    long = [(row, context) for row, context in enumerate(contexts) if context > over]
    keys = {("shared", at) if at < shared else (row, at) for row, context in long for at in range(context)}
    held = (shared if own else 0) + sum(own)
    steps = of([(context, 1) for context in contexts], [f"o{over}", "w3"], kv_blocks_used=[held])
    matrix, _ = feature_matrix(steps, (f"context_tokens@o{over}", "context_tokens@w3"), block_tokens=1)
    assert matrix[0, 0] <= len(keys) * (1 + 1e-12)
    if shared == 0:
        assert matrix[0, 0] == pytest.approx(len(keys))


def test_least_over_a_length_by_hand() -> None:
    # 3 sequences of 30 in all, lengths not told: with 8 each in two of them one has 14; over 10 it could be none.
    steps = of([(14, 1), (8, 1), (8, 1)])
    assert value(steps, "context_tokens@o8") == 14
    assert value(steps, "context_tokens@o10") == 0
    # The longest is 10: each is over 8 then, (30 - 24) / (10 - 8) = 3.
    assert value(of([(10, 1)] * 3, max_context_tokens=[10]), "context_tokens@o8") == 30


def test_states_are_read_by_sequences_that_have_one() -> None:
    # 5 sequences of which 2 are on their prompt, whichever chunk of it; where no column tells, none may
    # have one.
    assert value(of([(9, 1)] * 3 + [(0, 4)] * 2, prefill_requests=[2]), "continued_requests") == 3
    assert value(of([(9, 1)] * 3 + [(0, 4)] * 2), "continued_requests") == 0
    assert value(of([(9, 1)] * 3), "continued_requests") == 3


@settings(deadline=None)
@given(shared=st.integers(0, 20), own=st.lists(st.integers(0, 20), min_size=1, max_size=6), window=st.integers(1, 40))
def test_shared_prefixes_never_count_more_than_there_is(shared: int, own: list[int], window: int) -> None:
    """Sequences of ``shared`` blocks in common and ``own`` ones each, of one token: what a window holds, counted."""
    contexts = [shared + each for each in own]
    spans = ["", f"w{window}"]
    distinct = {
        span: len({
            ("shared", at) if at < shared else (row, at)
            for row, context in enumerate(contexts)
            for at in range(context - (within(context, span)), context)
        })
        for span in spans
    }  # fmt: skip
    steps = of([(context, 1) for context in contexts], spans[1:], kv_blocks_used=[distinct[""]])
    matrix, _ = feature_matrix(steps, ("context_tokens", f"context_tokens@w{window}"), block_tokens=1)
    assert matrix[0, 0] == pytest.approx(distinct[""])
    assert matrix[0, 1] <= distinct[f"w{window}"] * (1 + 1e-12)
    whole = sum(within(context, f"w{window}") for context in contexts)
    if shared == 0:
        assert matrix[0, 1] == pytest.approx(whole)
    assert matrix[0, 1] >= whole / len(own) * (1 - 1e-12)


def test_a_model_of_windows_alone_holds_no_more_than_they_reach() -> None:
    # Four sequences of 10,000 tokens in a window of 1024: 4096 tokens in 256 blocks of 16, nothing shared.
    steps = of([(10_000, 1)] * 4, ["w1024"], kv_blocks_used=[256])
    assert value(steps, "context_tokens@w1024", block_tokens=16) == 4096
    # Half of the blocks: half of it is shared.
    steps = of([(10_000, 1)] * 4, ["w1024"], kv_blocks_used=[128])
    assert value(steps, "context_tokens@w1024", block_tokens=16) == 2048


def test_groups_of_layers_with_blocks_of_their_own() -> None:
    # Two sequences share 4096 tokens and have 16 of their own: 4128 distinct ones in 258 blocks of 16. Five groups of
    # window layers hold 64 blocks of each: 258 + 5 x 128 = 898 in all. Of these at most 5 x (2048 / 16 + 2 / 16 +
    # 2 x 2) are the windows', so at least 898 - 660.625 = 237.375 blocks, 3798 tokens, are the other layers'.
    names = ("context_tokens", "context_tokens@w1024")
    steps = of([(4112, 1)] * 2, ["w1024"], kv_blocks_used=[898])
    chosen = Features(names, 16, None, kv_groups=6)
    ((_, matrix, _),) = chosen.chunks(steps)
    assert matrix[0, 0] == pytest.approx(3798)
    assert matrix[0, 0] < 4128 < feature_matrix(steps, names, 16)[0][0, 0]


def test_chunks_give_what_one_chunk_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(4)
    count = 300
    batch, context = rng.integers(1, 9, count), rng.integers(0, 500, count)
    steps = table(
        query_tokens=batch, sampled_rows=batch, requests=batch, context_tokens=batch * context,
        causal_pairs=batch * (context + 1), kv_blocks_used=rng.integers(0, 150, count),
        finished_requests=rng.integers(0, 2, count), preempted=(rng.random(count) < 0.2).astype(int),
    )  # fmt: skip
    names = ("passes", "context_tokens", "context_tokens@w64", "expert_spread@8:2:1")
    whole, _ = feature_matrix(steps, names, 16)
    monkeypatch.setattr(features, "CHUNK_STEPS", 7)
    np.testing.assert_array_equal(feature_matrix(steps, names, 16)[0], whole)
    assert len(list(Features(names, 16).chunks(steps))) == -(-count // 7)


def test_what_stands_in_is_said() -> None:
    names = ("decode_pairs", "context_tokens@w64", "causal_pairs@w64", "encoder_tokens", "expert_spread@8:2:1")
    bare = table(query_tokens=[1], context_tokens=[1], causal_pairs=[1])
    said = Features(names).notes(bare)
    assert [note.split(" ")[0] for note in said] == ["which", "how", "the"]
    assert Features(names[:2]).notes(of([(9, 1)], ["w64"])) == ()


def test_memory_is_that_of_a_chunk() -> None:
    import tracemalloc

    def peak_bytes(count: int) -> int:
        steps = table(query_tokens=np.ones(count, int), context_tokens=np.ones(count, int))
        tracemalloc.start()
        for _ in Features(("passes", "context_tokens")).chunks(steps):
            pass
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak

    assert peak_bytes(400_000) < 1.2 * peak_bytes(50_000)


def test_many_steps_are_quick() -> None:
    steps = table(query_tokens=np.ones(10**6, int), context_tokens=np.ones(10**6, int))
    made = calls_of(lambda: feature_matrix(steps, ("passes", "context_tokens", "expert_spread@256:8:1")))
    assert made < 100_000  # a Python loop makes a million
