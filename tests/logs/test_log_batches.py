"""SGLang's decode lines: how many steps each stands for, pages, pauses, contexts that do not run."""

from __future__ import annotations

from itertools import pairwise

import pytest
from logs.log_lines import decode, engines_of, prefill, told_by

from rooflens.adapters.logs.batches import AFTER_IDLE
from rooflens.protocols import Batch

ARGS = "[2026-06-23 09:59:50] server_args=ServerArgs(model_path='x', {}, tp_size=1)"
POOL = (
    "[2026-06-23 09:59:55] max_total_num_tokens=262144, chunked_prefill_size=8192, max_prefill_tokens=16384, "
    "max_running_requests=2048, context_len=32768"
)


def only(lines: list[str]) -> Batch:
    (batch,) = engines_of(lines)
    return batch


def spans(batch: Batch) -> list[tuple[float, float]]:
    table = batch.steps
    return list(zip(table["submit_monotonic_s"].tolist(), table["output_monotonic_s"].tolist(), strict=True))


def test_the_server_tells_how_many_steps_a_line_stands_for() -> None:
    """A line for each step of 20 ms: six of them in one second."""
    batch = only([ARGS.format("decode_log_interval=1"), *[decode(1, 400.0)] * 6])
    assert told_by(batch, "resolution_steps") == [1] * 5
    assert told_by(batch, "observed_s") == pytest.approx([0.02] * 5)
    ends = spans(batch)
    assert all(after[0] >= before[1] - 1e-6 for before, after in pairwise(ends))


def test_without_it_the_time_between_lines_does() -> None:
    """20 ms a step, a line each four seconds: 200 steps."""
    batch = only([decode(4 * i, 400.0) for i in range(4)])
    assert told_by(batch, "resolution_steps") == [200] * 3
    assert told_by(batch, "observed_s") == pytest.approx([4.0] * 3)


def test_lines_of_one_second_are_told_with_the_next_one() -> None:
    batch = only([decode(i // 5, 400.0) for i in range(16)])
    assert sum(steps or 0 for steps in told_by(batch, "resolution_steps")) == 150
    ends = spans(batch)
    assert all(after[0] >= before[1] - 1e-6 for before, after in pairwise(ends))


def test_rows_follow_each_other_where_stamps_are_whole_seconds() -> None:
    """Forty steps of 40 ms are 1.6 s: stamps tell 1, 3, 4, 6 s."""
    lines = [decode(int(1.6 * i), 200.0) for i in range(1, 40)]
    batch = only([ARGS.format("decode_log_interval=40"), *lines])
    ends = spans(batch)
    assert all(after[0] >= before[1] - 1e-6 for before, after in pairwise(ends))
    assert sum(value or 0 for value in told_by(batch, "observed_s")) == pytest.approx(38 * 1.6)


def test_the_verified_root_is_one_of_sglang_s_draft_tokens() -> None:
    """Its verification has as many tokens of each sequence as speculative_num_draft_tokens: steps + 1 (0.5.23)."""
    lines = [decode(4 * i, 400.0).replace("gen throughput", "accept len: 2.50, gen throughput") for i in range(3)]
    batch = only([ARGS.format("decode_log_interval=40, speculative_num_draft_tokens=4"), *lines])
    assert told_by(batch, "requests") == [320] * 2
    assert told_by(batch, "query_tokens") == told_by(batch, "sampled_rows") == [4 * 320] * 2


def test_pages_are_blocks_of_their_size() -> None:
    """A quarter of 262,144 tokens in pages of 64 is 1,024 blocks."""
    lines = [decode(2 * i, 160.0, tokens=65_536).replace("usage: 0.12", "usage: 0.25") for i in range(3)]
    batch = only([ARGS.format("page_size=64"), POOL, *lines])
    assert batch.info is not None
    assert (batch.info.kv_blocks, batch.info.block_tokens) == (4096, 64)
    assert told_by(batch, "kv_blocks_used") == [1024] * 2
    context = 65_536 - 8 * 20.5 - 8 * 63
    assert told_by(batch, "context_tokens") == [round(40 * context)] * 2
    assert told_by(batch, "context_blocks") == [pytest.approx(40 * context / 64, abs=1)] * 2


def test_prompts_that_came_in_between_were_not_there_all_the_time() -> None:
    batch = only([decode(0, 160.0), prefill(1, 8), decode(4, 80.0)])
    assert told_by(batch, "context_tokens") == [40 * (62_531 - 8 * 20.5 - 791 - 180)]


def test_a_rest_is_no_slow_step_but_a_pace_that_stays_is() -> None:
    rest = only([decode(0, 400.0), decode(1, 400.0), decode(6, 80.0), decode(7, 400.0)])
    assert told_by(rest, "observed_s") == pytest.approx([1.0, 1.0])
    assert rest.complaints == (AFTER_IDLE,)
    slower = only([decode(0, 400.0), decode(2, 400.0), decode(8, 100.0), decode(14, 100.0), decode(20, 100.0)])
    assert told_by(slower, "observed_s") == pytest.approx([2.0, 6.0, 6.0])


def test_the_pool_of_a_decode_instance_holds_more_than_the_contexts_that_run() -> None:
    coming = [decode(2 * i, 160.0) + "pre-allocated usage: 0.28, #prealloc-req: 5, #transfer-req: 3" for i in range(2)]
    assert told_by(only(coming), "context_tokens") == [None]
    role = ARGS.format("disaggregation_mode='decode'")
    assert told_by(only([role, decode(0, 160.0), decode(2, 160.0)]), "context_tokens") == [None]
    none = [line.replace("req: 5", "req: 0").replace("req: 3", "req: 0") for line in coming]
    assert told_by(only([role, *none]), "context_tokens") == [40 * (62_531 - 8 * 20.5)]


def test_a_burst_between_two_small_batches_is_not_timed() -> None:
    """One sequence at both ends, 64 in between: tokens over one sequence are not steps."""
    lines = [decode(2 * i, rate, running=1) for i, rate in enumerate((40.0, 40.0, 2560.0, 40.0))]
    batch = only(lines)
    assert told_by(batch, "observed_s") == pytest.approx([2.0, None, 2.0])
    uneven = only([decode(0, 160.0, running=1), decode(2, 160.0, running=8)])
    assert told_by(uneven, "observed_s") == [None]
