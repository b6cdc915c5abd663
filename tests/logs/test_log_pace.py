"""Intervals whose steps cannot be told by what ran at their ends: tokens stay, and nothing is compared with a floor."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

import pytest
from logs.log_lines import CONFIG, FITS, POOL, engines_of, told_by, vllm

from rooflens.adapters.logs.pace import ENDS, QUICK
from rooflens.analyzer.hardware import find_hardware
from rooflens.analyzer.roofline import analyse_engine
from rooflens.protocols import Batch

LLAMA = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336,
    "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 128256,
    "tie_word_embeddings": False, "torch_dtype": "bfloat16",
}  # fmt: skip


def told(*lines: str) -> Batch:
    (batch,) = engines_of([CONFIG, POOL, FITS, *lines])
    return batch


def compared(batch: Batch) -> list[bool]:
    hardware = find_hardware("h100-sxm5-80")
    assert batch.info is not None
    assert hardware is not None
    info = replace(batch.info, model_config=LLAMA)
    found: list[bool] = analyse_engine(batch.steps, info, hardware).compared.tolist()
    return found


@pytest.mark.parametrize("rates", [(100.0, 100.0, 2560.0, 100.0), (100.0, 2560.0, 100.0), (100.0, 600.0, 100.0)])
def test_a_burst_between_two_ends_is_not_compared(rates: Sequence[float]) -> None:
    """One ran at each line, and 64 between two of them at 25 ms a step: 400 steps, not 25,600."""
    batch = told(*(vllm(10 * at, rate, running=1, used=0.1) for at, rate in enumerate(rates)))
    at = rates.index(max(rates)) - 1  # the first line has no begin
    assert compared(batch) == [each != at for each in range(len(rates) - 1)]
    assert told_by(batch, "observed_s")[at] is None
    assert told_by(batch, "generated_tokens")[at] == 10 * max(rates)
    assert (told_by(batch, "running")[at], told_by(batch, "kv_blocks_used")[at]) == (1, 10)
    assert (told_by(batch, "resolution_steps")[at] or 0) <= 1000
    assert batch.complaints == (QUICK,)


def test_a_burst_at_the_first_interval_shows_by_the_line_after_it() -> None:
    first = vllm(0, 900.0, running=1, used=0.1, prompt=5.0)
    batch = told(first, *(vllm(10 * at, 2560.0 if at == 1 else 100.0, running=1, used=0.1) for at in range(1, 4)))
    assert compared(batch) == [False, True, True]


def test_ends_that_differ_are_not_compared() -> None:
    running = [8, 8, 2, 2, 2]
    batch = told(*(vllm(10 * at, 40.0 * each, running=each) for at, each in enumerate(running)))
    assert compared(batch) == [True, False, True, True]
    assert told_by(batch, "observed_s")[1] is None
    assert told_by(batch, "resolution_steps")[1] == 800 / 8
    assert batch.complaints == (ENDS,)


def test_ends_that_are_near_each_other_keep_their_time_over_the_fewest_steps() -> None:
    batch = told(vllm(0, 2000.0, running=100), vllm(10, 2000.0, running=100), vllm(20, 1960.0, running=98))
    assert told_by(batch, "observed_s")[1] == 10.0
    assert told_by(batch, "resolution_steps")[1] == 196
    assert compared(batch) == [True, False]
    assert batch.complaints == ()


@pytest.mark.parametrize("running", [[1, 1, 1, 1], [8, 8, 8], [1, 1, 8, 8, 8, 1, 1], [64, 64, 64, 1, 1, 1]])
def test_steady_decode_is_compared(running: Sequence[int]) -> None:
    step_s = {1: 0.0158, 8: 0.0376, 64: 0.07}
    lines = [vllm(10 * at, each / step_s[each], running=each) for at, each in enumerate(running)]
    alike = [before == each for before, each in itertools.pairwise(running)]
    assert compared(told(*lines)) == alike


def test_a_step_that_is_half_as_long_with_shorter_contexts_is_compared_after_a_while() -> None:
    lines = [vllm(10 * at, 80.0 if at < 8 else 160.0) for at in range(16)]
    assert compared(told(*lines))[-1]


def test_intervals_with_prompts_keep_their_time_and_are_not_compared() -> None:
    batch = told(vllm(0, 80.0), vllm(10, 80.0), vllm(20, 80.0, prompt=20.0))
    assert told_by(batch, "observed_s") == [10.0, 10.0]
    assert compared(batch) == [True, False]


@pytest.mark.parametrize("resting", [(20,), ()])
def test_a_rest_among_the_first_lines_is_no_work(resting: Sequence[int]) -> None:
    """vLLM's rate is over its own ten seconds: 45 s without lines before one are not multiplied with it."""
    lines = [vllm(10, 100.0, running=1)]
    lines += [vllm(at_s, 50.0, running=0, used=0.0) for at_s in resting]
    batch = told(*lines, vllm(65, 100.0, running=1), vllm(75, 100.0, running=1))
    assert told_by(batch, "generated_tokens") == [*(500 for _ in resting), 1000], "over a time that nothing tells: none"
    assert told_by(batch, "observed_s")[-1] == 10.0


@pytest.mark.parametrize("period_s", [5, 10, 30, 60])
def test_the_period_is_told_by_the_gaps_while_it_works(period_s: int) -> None:
    batch = told(*(vllm(period_s * at, 80.0) for at in range(8)))
    assert told_by(batch, "generated_tokens")[-1] == 80 * period_s
    assert told_by(batch, "observed_s")[-1] == period_s


def test_rests_are_no_period() -> None:
    lines = [vllm(60 * at + more, 80.0, running=running) for at in range(9) for more, running in ((0, 8), (10, 0))]
    assert max(value or 0 for value in told_by(told(*lines), "generated_tokens")) == 800
