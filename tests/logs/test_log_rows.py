"""Lines into steps: intervals, iterations, decode lines, timings; what is not known stays so."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from logs.log_lines import BEGIN, CONFIG, FITS, POOL, decode, engines_of, iteration, prefill, told_by, vllm

from rooflens.adapters.logs.batches import AFTER_IDLE
from rooflens.adapters.logs.clock import Clock
from rooflens.adapters.logs.intervals import RESET, SET
from rooflens.adapters.logs.names import VALUES
from rooflens.adapters.logs.requests import OVERLAP
from rooflens.adapters.logs.rows import LogEngines
from rooflens.log_records import LogRecord, RecordKind
from rooflens.protocols import Batch
from rooflens.records import StepKind


def only(lines: list[str]) -> Batch:
    batches = engines_of(lines)
    assert len(batches) == 1
    return batches[0]


def test_intervals_tell_tokens_steps_and_contexts() -> None:
    """800 tokens/s over 10 s of 8 sequences are 1,000 steps; a tenth of 10,000 blocks holds 2,000 tokens each."""
    batch = only([CONFIG, POOL, FITS, *(vllm(10 * i, 800.0, waiting=2) for i in range(4))])
    assert told_by(batch, "generated_tokens") == [8000] * 3
    assert told_by(batch, "resolution_steps") == [1000] * 3
    assert told_by(batch, "kind") == [StepKind.DECODE] * 3
    assert told_by(batch, "observed_s") == [10.0] * 3, "the first line has no begin"
    assert told_by(batch, "waiting") == [2] * 3
    assert told_by(batch, "kv_blocks_used") == [1000] * 3
    sequence = told_by(batch, "context_tokens")[1] or 0
    assert sequence / 8000 == pytest.approx(2000 - 8.5)
    bounds = {value.name: (value.low, value.high) for value in batch.derived}
    assert bounds["generated_tokens"] == (7200.0, 8800.0), "stamps are whole seconds"


def test_the_first_line_is_credited_with_no_time() -> None:
    """vllm#12314: lines 5 s apart at 41.7 tokens/s of one sequence; two intervals, and no 10 s before the first."""
    batch = only([CONFIG, *(vllm(5 * at, 41.7, running=1) for at in range(3))])
    assert told_by(batch, "observed_s") == [5.0, 5.0]
    assert told_by(batch, "generated_tokens") == [209, 209]
    assert told_by(batch, "resolution_steps") == [208, 208]


def test_a_gap_among_the_first_lines_is_credited_with_no_guessed_time() -> None:
    """Every 30 s, or a rest: three gaps tell."""
    batch = only([vllm(30 * at, 80.0) for at in range(5)])
    assert told_by(batch, "generated_tokens") == [2400, 2400]
    assert told_by(batch, "observed_s") == [30.0, 30.0]


def test_start_up_lines_are_the_facts_and_hold_no_path() -> None:
    info = only([CONFIG, POOL, FITS, vllm(0, 1.0)]).info
    assert info is not None
    assert (info.engine, info.engine_version, info.model_name) == ("vllm", "0.32.0", "Meta-Llama-3-8B-Instruct")
    assert (info.weight_dtype, info.tensor_parallel, info.max_context_tokens) == ("bfloat16", 1, 8000)
    assert (info.kv_blocks, info.block_tokens) == (10_000, 16)
    assert "secret" not in str(info)


def test_a_pause_of_the_log_is_no_interval() -> None:
    """An idle engine writes no lines: the next one tells of its own ten seconds."""
    batch = only([*(vllm(10 * i, 80.0) for i in range(5)), vllm(640, 80.0)])
    assert told_by(batch, "generated_tokens")[-1] == 800
    assert told_by(batch, "observed_s")[-1] is None
    lengths = batch.steps["output_monotonic_s"] - batch.steps["submit_monotonic_s"]
    assert lengths.tolist() == pytest.approx([10.0] * 5)


def test_prompts_make_an_interval_mixed() -> None:
    batch = only([vllm(0, 80.0), vllm(10, 80.0, prompt=6500.0)])
    assert told_by(batch, "kind") == [StepKind.MIXED]
    assert told_by(batch, "prefill_tokens") == [65_000]


def test_a_negative_rate_is_a_reset_and_its_interval_left_out() -> None:
    """vllm#6642: -1.1 tokens/s."""
    batch = only([vllm(0, 80.0), vllm(10, -1.1), vllm(20, 80.0)])
    assert len(batch.steps) == 1
    assert batch.complaints == (RESET,)


def test_a_clock_that_goes_back_costs_one_interval() -> None:
    batch = only([vllm(3600, 80.0), vllm(3610, 80.0), vllm(10, 80.0), vllm(20, 80.0)])
    assert len(batch.steps) == 2
    assert batch.complaints == (SET,)
    assert (batch.steps["output_monotonic_s"][1:] > batch.steps["output_monotonic_s"][:-1]).all()


def test_drafts_of_their_own_line_belong_to_the_interval() -> None:
    """vllm#19254: of 1,488 drafted 725 were accepted; each of eight sequences brought 2.5 tokens a step."""
    line = (
        "INFO 06-23 10:00:10 [metrics.py:86] SpecDecoding metrics: Draft acceptance rate: 48.7%, Mean acceptance "
        "length: 2.50, Accepted: 725 tokens, Drafted: 1488 tokens, Per-position acceptance rate: 0.615, 0.464, 0.383"
    )
    batch = only([vllm(0, 200.0), vllm(10, 200.0), line])
    assert told_by(batch, "kind") == [StepKind.VERIFY]
    assert told_by(batch, "drafted_tokens") == [1488]
    assert told_by(batch, "rejected_tokens") == [763]
    assert told_by(batch, "requests") == [800]
    assert told_by(batch, "resolution_steps") == [100]


def test_ranks_that_write_one_log_are_engines_of_their_own() -> None:
    lines = [vllm(10 * i, 80.0 * (rank + 1), engine=rank) for i in range(3) for rank in range(4)]
    batches = engines_of([CONFIG, *lines])
    assert [batch.info.rank for batch in batches if batch.info] == [0, 1, 2, 3]
    assert {batch.info.data_parallel for batch in batches if batch.info} == {4}
    assert [told_by(batch, "generated_tokens")[-1] for batch in batches] == [800, 1600, 2400, 3200]
    assert len({batch.info.instance for batch in batches if batch.info}) == 4


def test_a_line_of_several_engines_tells_their_tokens_and_no_step_times() -> None:
    lines = [vllm(10 * i, 800.0, running=16).replace("Engine 000", "8 Engines Aggregated") for i in range(3)]
    batch = only(lines)
    assert told_by(batch, "generated_tokens")[-1] == 8000
    assert told_by(batch, "resolution_steps")[-1] == 8 * 500
    assert told_by(batch, "observed_s") == [None] * 2


def test_another_start_is_another_run() -> None:
    other = CONFIG.replace("v0.32.0", "v0.33.0")
    batches = engines_of([CONFIG, vllm(0, 80.0), vllm(10, 80.0), other, vllm(100, 80.0), vllm(110, 80.0)])
    assert [batch.info.engine_version for batch in batches if batch.info] == ["0.32.0", "0.33.0"]
    assert [len(batch.steps) for batch in batches] == [1, 1]
    assert len({batch.info.instance for batch in batches if batch.info}) == 2


def test_iterations_are_steps_by_their_kind() -> None:
    lines = [
        CONFIG, POOL, FITS,
        iteration(1, 0, 30.0, prompts=1, prompt_tokens=512, decodes=0),
        iteration(2, 0, 12.0), iteration(3, 0, 12.5, prompts=1, prompt_tokens=64),
        iteration(4, 0, 2.0, decodes=0, dummy=" (dummy)"),
    ]  # fmt: skip
    batch = only(lines)
    kinds = [StepKind.PREFILL, StepKind.DECODE, StepKind.MIXED, StepKind.DUMMY]
    assert told_by(batch, "kind") == kinds
    assert told_by(batch, "observed_s") == [0.030, 0.012, 0.0125, 0.002]
    assert told_by(batch, "query_tokens") == [512, 8, 72, 0]
    assert told_by(batch, "resolution_steps") == [1, 1, 1, 1]
    assert told_by(batch, "context_tokens")[1] == 1000 * 16 - 8 * 7.5 - 8
    assert "scheduling is not in it" in batch.derived[0].derivation


def test_iterations_of_one_second_follow_each_other_within_it() -> None:
    batch = only([iteration(i, i // 80, 12.0) for i in range(400)])
    output = batch.steps["output_monotonic_s"]
    assert (output[1:] > output[:-1]).all()
    assert output[-1] - output[0] == pytest.approx(4.8, abs=1.0)


def test_periodic_lines_beside_iterations_are_not_counted_twice() -> None:
    lines = [iteration(i, i // 80, 12.0) for i in range(100)]
    assert len(only([*lines[:50], vllm(0, 800.0), *lines[50:], vllm(10, 800.0)]).steps) == 100


def test_the_device_time_of_a_step_is_on_the_line_after_it() -> None:
    """The form of TensorRT-LLM 1.3, whose lines tell the device time of the iteration before."""
    line = (
        "[07/22/2026-00:00:00] [TRT-LLM] [I] [_torch][RANK 0] iter = {}, global_rank = 0, rank = 0, "
        "num_scheduled_requests = 2, kv_cache_util = 0.100, currank_total_requests = 1/1, host_step_time = {}ms, "
        "prev_device_step_time = {}, timestamp = 2026-07-22 00:00:00, states = {{'num_ctx_requests': 0, "
        "'num_ctx_tokens': 0, 'num_generation_tokens': 2}}"
    )
    batch = only([line.format(5, 5.0, "N/A"), line.format(6, 6.0, "15.0ms"), line.format(8, 7.0, "16.0ms")])
    assert told_by(batch, "observed_s") == [0.005, 0.006, 0.007]
    assert told_by(batch, "device_s") == [0.015, None, None], "iteration 7 is missing, and its time is nobody's"


@pytest.mark.parametrize("told", [{"kv_blocks_used": 5495.0}, {"kv_used_ratio": 0.9}])
@pytest.mark.parametrize("tokens", [None, 500.0])
def test_blocks_kept_for_reuse_are_neither_contexts_nor_held(told: dict[str, float], tokens: float | None) -> None:
    """TensorRT-LLM#3376: 5,495 used blocks of 64 beside one request whose 16,000 tokens take 250."""
    values = {"iteration_s": 0.008, "context_requests": 0.0, "context_tokens": 0.0, "generation_requests": 1.0,
              "kv_blocks": 7240.0, "block_tokens": 64.0, "active_requests": 1.0, "running": 1.0, **told}  # fmt: skip
    if tokens is not None:
        values["generation_kv_tokens"] = tokens
    engines = LogEngines("log", Clock(0.0))
    engines.take(LogRecord("tensorrt-llm", RecordKind.ITERATION, values, unix_s=BEGIN))
    engines.flush()
    (batch,) = engines.drain()
    assert told_by(batch, "kv_blocks_used") == told_by(batch, "context_blocks") == [None]
    assert told_by(batch, "context_tokens") == [tokens]
    assert told_by(batch, "causal_pairs") == [None if tokens is None else tokens + 1]
    assert batch.progress is not None
    assert batch.progress.load is not None
    assert batch.progress.load.kv_blocks_used is None


def test_other_ranks_of_one_engine_are_not_counted_again() -> None:
    line = "[TensorRT-LLM][RANK {}] iter = {}, global_rank = {}, rank = {}, host_step_time = 5.0ms, states = {{'num_ctx_requests': 0, 'num_ctx_tokens': 0, 'num_generation_tokens': 2}}"  # noqa: E501
    lines = [line.format(rank, number, rank, rank) for number in range(10) for rank in (0, 1, 2, 3)]
    assert len(only(lines).steps) == 10


def test_a_time_of_zero_is_not_known() -> None:
    """TensorRT-LLM#3376: the first iteration of a dump tells 0.0 ms."""
    values = {"iteration_s": 0.0, "context_requests": 1.0, "context_tokens": 16_000.0, "generation_requests": 0.0}
    record = LogRecord("tensorrt-llm", RecordKind.ITERATION, values)
    engines = LogEngines("log", Clock(0.0))
    engines.take(record)
    engines.flush()
    (batch,) = engines.drain()
    assert told_by(batch, "kind") == [StepKind.PREFILL]
    assert told_by(batch, "observed_s") == [None]


def test_decode_lines_stand_for_forty_steps() -> None:
    """8 sequences at 160 tokens/s take 50 ms a step: forty in two seconds, whatever whole seconds the stamps tell."""
    batch = only([decode(0, 160.0), decode(2, 160.0), decode(4, 160.0, queue=3)])
    assert told_by(batch, "resolution_steps") == [40, 40]
    assert told_by(batch, "observed_s") == [2.0, 2.0]
    assert told_by(batch, "generated_tokens") == [320, 320]
    assert told_by(batch, "context_tokens") == [40 * (62_531 - 8 * 20.5)] * 2, "the line tells contexts at its end"
    assert told_by(batch, "waiting") == [0, 3]


def test_the_first_rate_after_an_idle_time_is_left_out() -> None:
    lines = [decode(0, 160.0), decode(2, 160.0), prefill(600, 0), decode(601, 0.96), decode(603, 160.0)]
    batch = only(lines)
    assert told_by(batch, "observed_s") == [2.0, 2.0]
    assert batch.complaints == (AFTER_IDLE,)
    quiet = only([decode(0, 160.0), decode(2, 160.0), decode(600, 0.5), decode(602, 160.0)])
    assert len(quiet.steps) == 2, "also where no prefill line says so"


def test_prefill_batches_make_the_interval_mixed() -> None:
    batch = only([decode(0, 160.0), prefill(1, 8), decode(4, 80.0)])
    assert told_by(batch, "kind") == [StepKind.MIXED]
    assert told_by(batch, "prefill_tokens") == [791]
    assert told_by(batch, "resolution_steps") == [41]
    assert told_by(batch, "causal_pairs") == [None]


def test_attention_data_parallel_ranks_are_engines() -> None:
    lines = [decode(2 * i, 160.0, rank=f"DP{rank} TP{rank}") for i in range(3) for rank in range(4)]
    batches = engines_of(lines)
    assert [batch.info.rank for batch in batches if batch.info] == [0, 1, 2, 3]
    assert [len(batch.steps) for batch in batches] == [2, 2, 2, 2]


TIMING = [
    "prompt eval time =    8734.21 ms /   971 tokens (    9.00 ms per token,   111.17 tokens per second)",
    "       eval time =    1075.76 ms /    19 tokens (   56.62 ms per token,    17.66 tokens per second)",
    "      total time =    9809.97 ms /   990 tokens",
]


def test_the_timing_of_a_request_is_its_decode() -> None:
    batch = only([*TIMING, *TIMING])
    assert told_by(batch, "resolution_steps") == [18, 18], "the first token came of the pass over the prompt"
    assert told_by(batch, "observed_s") == [1.07576, 1.07576]
    assert told_by(batch, "context_tokens") == [18 * 971 + 9 * 17] * 2


def test_requests_that_ran_at_one_time_tell_no_step_time() -> None:
    engines = LogEngines("log", Clock(0.0))
    for at_s in (10.0, 11.0):
        values = {"generated_tokens": 100.0, "generation_s": 5.0, "prompt_tokens": 10.0}
        engines.take(LogRecord("llama.cpp", RecordKind.TIMING, values, unix_s=BEGIN + at_s + 0.5))
    (batch,) = engines.drain()
    assert told_by(batch, "observed_s") == [5.0, None]
    assert batch.complaints == (OVERLAP,)


def test_lines_without_times_stand_a_period_apart() -> None:
    lines = [vllm(10 * i, 80.0).partition("Engine")[2].join(("Engine", "")) for i in range(3)]
    batch = only(lines)
    assert "unix_s" not in batch.steps.columns
    assert told_by(batch, "generated_tokens") == [800] * 2


names = st.sampled_from(sorted(name for name in VALUES if not name.endswith("_N")))
numbers = st.floats(allow_nan=True, allow_infinity=True) | st.integers(-3, 10**20).map(float)
records = st.builds(
    LogRecord,
    st.sampled_from(("vllm", "sglang", "tensorrt-llm", "llama.cpp")),
    st.sampled_from(list(RecordKind)),
    st.dictionaries(names, numbers, max_size=8),
    st.dictionaries(
        st.sampled_from(("engine_version", "model_name", "graph_sizes", "source")), st.text(max_size=8), max_size=2
    ),
    st.dictionaries(st.sampled_from(("engine", "dp", "tp", "rank", "slot")), st.integers(0, 5), max_size=2),
    st.none() | st.floats(0, 4e9),
)


@given(st.lists(records, max_size=30))
def test_no_record_raises_and_what_is_told_can_be(found: list[LogRecord]) -> None:
    engines = LogEngines("log", Clock(0.0))
    for record in found:
        engines.take(record)
    engines.flush()
    for batch in engines.drain():
        assert batch.info is not None
        steps = batch.steps
        for name in steps.columns:
            assert len(steps[name]) == len(steps)
        if len(steps):
            assert (steps["output_monotonic_s"] >= steps["submit_monotonic_s"]).all()
            assert (steps["resolution_steps"] >= 1).all()
