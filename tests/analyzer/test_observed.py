"""What step an observation stands for: Little's law, contexts, and what a client's time holds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rooflens.analyzer.observed import operating_points
from rooflens.observation_records import Observation

# vllm-project/vllm issue 43295: 409,600 tokens of 100 requests in 393.02 s at a TPOT of 17.41 ms.
CLIENT = Observation(
    "vllm bench serve", client_side=True, requests=100, duration_s=393.02, concurrency=100.0, requests_per_s=0.25,
    generated_tokens_per_s=1042.18, prompt_tokens_mean=16396.37, generated_tokens_mean=4096.0, context_tokens=18444.37,
    tpot_s={"mean": 0.01741},
)  # fmt: skip
LLAMA = Observation(
    "llama-bench", client_side=False, batch=1.0, phase="decode", context_tokens=576.0, generated_tokens_per_s=116.71,
    tpot_s={"mean": 1 / 116.71},
)  # fmt: skip


def test_the_batch_is_what_littles_law_gives() -> None:
    (point,), missing = operating_points(CLIENT)
    assert missing is None
    # (409,600 - 100) tokens after the first ones / 393.02 s x 17.41 ms
    assert point.batch == pytest.approx((1042.18 - 100 / 393.02) * 0.01741)
    assert (point.batch_of.low, point.batch_of.high) == (1.0, 100.0)
    assert "Little" in point.batch_of.derivation
    assert (point.context_tokens, point.measured_s, point.bound) == (18444, 0.01741, True)
    assert "upper bound" in point.words


def test_the_batch_is_never_more_than_were_allowed() -> None:
    (point,), _ = operating_points(replace(CLIENT, concurrency=4.0))
    assert point.batch == 4.0


def test_first_tokens_are_not_of_decode_steps() -> None:
    """Two tokens a request: half of all are first tokens, which prefill made."""
    seen = replace(CLIENT, requests=None, requests_per_s=500.0, generated_tokens_per_s=1000.0, tpot_s={"mean": 0.1})
    (point,), _ = operating_points(seen)
    assert point.batch == pytest.approx(50.0)


def test_speculation_makes_a_step_several_tokens_long() -> None:
    (point,), _ = operating_points(replace(CLIENT, acceptance_length=2.5))
    assert point.measured_s == pytest.approx(2.5 * 0.01741)
    assert "2.5 tokens" in point.words


def test_a_prompts_wait_is_an_upper_bound_of_prefill() -> None:
    points, _ = operating_points(replace(CLIENT, ttft_s={"mean": 154.0}))
    assert [point.phase for point in points] == ["decode", "prefill"]
    assert (points[1].context_tokens, points[1].cached_tokens, points[1].bound) == (16396, 0, True)
    assert "queue" in points[1].words


def test_a_test_of_llama_bench_is_of_the_engine_alone() -> None:
    (point,), _ = operating_points(LLAMA)
    assert (point.batch, point.context_tokens, point.bound) == (1.0, 576, False)
    seen = replace(LLAMA, phase="prefill", tpot_s={}, prompt_tokens_mean=512.0, prompt_tokens_per_s=1024.0)
    (point,), _ = operating_points(replace(seen, context_tokens=1024.0))
    assert (point.phase, point.measured_s, point.context_tokens, point.cached_tokens) == ("prefill", 0.5, 1024, 512)


@pytest.mark.parametrize(
    ("changes", "lacks"),
    [
        ({"tpot_s": {}}, "a time per output token"),
        ({"context_tokens": None, "prompt_tokens_mean": None}, "the lengths"),
        ({"generated_tokens_per_s": None, "concurrency": None}, "how many sequences"),
    ],
)
def test_what_is_missing_is_named(changes: dict[str, object], lacks: str) -> None:
    points, missing = operating_points(replace(CLIENT, **changes))  # type: ignore[arg-type]
    assert points == ()
    assert missing is not None
    assert lacks in missing
