"""A pass as a row: what is exact, what is bounded, what is not known."""

from __future__ import annotations

from statistics import pvariance

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rooflens.adapters.forward_pass.layout import ForwardPass, Queued, Scheduled
from rooflens.adapters.forward_pass.rows import columns_of, derived_of, longest_context, prefill_pairs
from rooflens.adapters.forward_pass.table import Timed, table_of
from rooflens.records import COLUMN_KINDS, StepKind


def told(scheduled: Scheduled, wall_time_s: float = 0.02, scope: str | None = None) -> ForwardPass:
    return ForwardPass(1, "w", 0, 1, wall_time_s, scheduled, Queued(2, 1), scope)


def scheduled_of(prompts: list[tuple[int, int, int]], contexts: list[int]) -> Scheduled:
    """What an engine tells of prompts (computed, cached, whole length) and decoding contexts."""
    return Scheduled(
        len(prompts),
        sum(q for q, _, _ in prompts),
        sum(c for _, c, _ in prompts),
        len(contexts),
        sum(contexts),
        pvariance([whole for _, _, whole in prompts]) if prompts else 0.0,
        pvariance(contexts) if contexts else 0.0,
    )


def test_decoding_is_exact() -> None:
    got = columns_of(told(scheduled_of([], [1000, 1000, 1000, 1000])))
    assert got == {
        "kind": StepKind.DECODE,
        "observed_s": 0.02,
        "requests": 4,
        "prefill_requests": 0,
        "query_tokens": 4,
        "prefill_tokens": 0,
        "sampled_rows": 4,
        "context_tokens": 4000,
        "causal_pairs": 4004,
        "prefill_pairs": 0,
        "max_context_tokens": 1000,
        "waiting": 3,
        "resolution_steps": 1,
    }


def test_one_prompt_is_exact() -> None:
    pairs = prefill_pairs(scheduled_of([(256, 64, 320)], []))
    assert pairs.exact
    assert pairs.low == 256 * 64 + 256 * 257 / 2


def test_whole_prompts_are_told_by_their_variance() -> None:
    """Prompts of 100 and 300: 100 * 101 / 2 + 300 * 301 / 2 = 50,200; alike they would have 40,200."""
    pairs = prefill_pairs(scheduled_of([(100, 0, 100), (300, 0, 300)], []))
    assert (pairs.low, pairs.likely) == (40_200, 50_200)


LENGTHS = st.lists(st.tuples(st.integers(1, 5000), st.integers(0, 5000), st.integers(0, 100)), min_size=1, max_size=8)


@given(LENGTHS)
def test_the_pairs_of_prompts_lie_within_their_bounds(lengths: list[tuple[int, int, int]]) -> None:
    prompts = [(q, c, q + c + rest) for q, c, rest in lengths]
    true = sum(q * c + q * (q + 1) / 2 for q, c, _ in prompts)
    pairs = prefill_pairs(scheduled_of(prompts, []))
    assert pairs.low <= true * (1 + 1e-12)
    assert pairs.high >= true * (1 - 1e-12)
    assert pairs.low <= pairs.likely <= pairs.high
    assert columns_of(told(scheduled_of(prompts, [])))["prefill_pairs"] <= true


@given(st.lists(st.integers(0, 100_000), min_size=1, max_size=12))
def test_the_longest_context_lies_within_its_bounds(contexts: list[int]) -> None:
    low, high = longest_context(scheduled_of([], contexts))
    assert low <= max(contexts) * (1 + 1e-9) + 1e-6
    assert high >= max(contexts) * (1 - 1e-9) - 1e-6
    told_longest = columns_of(told(scheduled_of([], contexts))).get("max_context_tokens")
    assert told_longest in (None, max(contexts))


def test_a_mixed_pass_holds_both() -> None:
    got = columns_of(told(scheduled_of([(256, 64, 320)], [500, 700])))
    assert (got["kind"], got["query_tokens"], got["context_tokens"]) == (StepKind.MIXED, 258, 1264)
    assert got["causal_pairs"] == 256 * 64 + 256 * 257 / 2 + 1202
    assert "max_context_tokens" not in got


def test_device_time_is_only_what_spans_the_whole_step() -> None:
    decode = scheduled_of([], [10])
    assert "device_s" not in columns_of(told(decode))
    assert "device_s" not in columns_of(told(decode, scope="execute_model_cuda"))
    assert columns_of(told(decode, scope="model_step_cuda"))["device_s"] == 0.02


def test_a_pass_of_nobody_is_a_dummy() -> None:
    """SGLang's idle forward beside other data-parallel ranks: no requests, but device time."""
    assert columns_of(told(Scheduled(0, 0, 0, 0, 0)))["kind"] == StepKind.DUMMY


def test_what_was_not_told_is_derived_with_bounds() -> None:
    passes = [told(scheduled_of([(100, 0, 100), (300, 0, 300)], [1000]))]
    found = {value.name: value for value in derived_of(passes)}
    assert (found["query_tokens"].low, found["query_tokens"].high) == (401, None)
    assert (found["prefill_pairs"].low, found["prefill_pairs"].value) == (40_200, 50_200)
    assert (found["sampled_rows"].low, found["sampled_rows"].high) == (1, 3)
    assert (found["decode_context_tokens"].low, found["decode_context_tokens"].high) == (999, 1000)


@given(st.integers(0, 2**52), st.integers(1, 2**52), st.integers(0, 2**52), st.floats(0, 1e299))
def test_huge_numbers_fit_or_are_not_known(requests: int, tokens: int, cached: int, variance: float) -> None:
    scheduled = Scheduled(requests, tokens if requests else 0, cached if requests else 0, 1, cached, variance, variance)
    table = table_of([Timed(1, 1.0, 1.0, columns_of(told(scheduled)))])
    assert set(table.columns) <= set(COLUMN_KINDS)
    derived_of([told(scheduled)])


def test_a_bunch_is_spread_by_the_time_of_its_passes() -> None:
    """Three messages that came together were passes one after the other."""
    rows = [Timed(n, 10.0, 1000.0, {"observed_s": 0.5}) for n in (1, 2, 3)]
    table = table_of(rows, after_s=8.0)
    assert table["output_monotonic_s"].tolist() == [9.0, 9.5, 10.0]
    assert table["submit_monotonic_s"].tolist() == [8.5, 9.0, 9.5]
    assert table["unix_s"].tolist() == [999.0, 999.5, 1000.0]


@given(st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 1e3)), min_size=1, max_size=20), st.floats(0, 1e6))
def test_outputs_are_in_order_and_never_after_their_message(came: list[tuple[float, float]], after_s: float) -> None:
    came.sort()
    rows = [Timed(n, at, at, {"observed_s": took}) for n, (at, took) in enumerate(came)]
    outputs = table_of(rows, after_s)["output_monotonic_s"].tolist()
    assert outputs == sorted(outputs)
    assert all(output <= at for output, (at, _) in zip(outputs, came, strict=True))


def test_a_column_that_some_do_not_know_has_a_mask() -> None:
    table = table_of([Timed(1, 1.0, 1.0, {"observed_s": 0.5}), Timed(2, 2.0, 2.0, {})])
    assert table.where("observed_s").tolist() == [True, False]


def test_no_pass_is_no_row() -> None:
    assert len(table_of([])) == 0


@pytest.mark.parametrize("wall_time_s", [0.0])
def test_no_time_is_not_known(wall_time_s: float) -> None:
    assert "observed_s" not in columns_of(told(scheduled_of([], [5]), wall_time_s))
