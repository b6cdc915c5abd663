"""Timings of llama.cpp's requests into passes of the model: drafts, first tokens, slots that work at one time."""

from __future__ import annotations

import datetime

from logs.log_lines import BEGIN, engines_of, told_by

from rooflens.adapters.logs.clock import Clock
from rooflens.adapters.logs.lines import LineReader
from rooflens.adapters.logs.requests import OVERLAP, UNSURE
from rooflens.adapters.logs.rows import LogEngines
from rooflens.protocols import Batch
from rooflens.records import StepKind

START = "0.00.025.723 I srv    load_model: initializing, n_slots = 4, n_ctx_slot = 1024, kv_unified = 'false'"


def clock(at_s: float) -> str:
    minutes, seconds = divmod(at_s, 60)
    return f"{minutes:.0f}.{int(seconds):02d}.{round(seconds % 1 * 1000):03d}.000 I "


def begun(at_s: float, slot: int, task: int) -> str:
    return f"{clock(at_s)}slot launch_slot_: id  {slot} | task {task} | processing task, is_child = 0"


def idle(at_s: float) -> str:
    return f"{clock(at_s)}srv  update_slots: all slots are idle"


def ended(at_s: float, slot: int, tokens: int, ms: float, task: int, drafts: str = "") -> list[str]:
    """The block of build 10434 with a prompt of ten tokens; drafts as "250 accepted / 300 generated"."""
    slot_task = f"id  {slot} | task {task} | "
    head = f"{clock(at_s)}slot print_timing: {slot_task}"
    return [
        f"{head}prompt eval time =      10.00 ms /    10 tokens (    1.00 ms per token,  1000.00 tokens per second)",
        f"{head}       eval time = {ms:10.2f} ms / {tokens:5d} tokens (    2.00 ms per token,   500 tokens per second)",
        f"{head}      total time = {ms + 10:10.2f} ms / {tokens + 10:5d} tokens",
        *([f"{head}draft acceptance = 0.83333 ( {drafts})"] if drafts else []),
        f"{clock(at_s)}slot      release: {slot_task}stop processing: n_tokens = {tokens + 9}, truncated = 0",
    ]


def only(lines: list[str]) -> Batch:
    (batch,) = engines_of(lines)
    return batch


def test_accepted_drafts_are_no_passes() -> None:
    """Of 400 tokens one came of the prompt and 250 were drafts: 149 passes, each of its token and of its drafts."""
    batch = only([START, begun(10, 0, 1), *ended(12, 0, 400, 800.0, 1, "  250 accepted /   300 generated")])
    assert told_by(batch, "kind") == [StepKind.VERIFY]
    assert told_by(batch, "resolution_steps") == [149]
    assert told_by(batch, "query_tokens") == [149 + 300]
    assert told_by(batch, "rejected_tokens") == [50]
    assert told_by(batch, "observed_s") == [0.8]
    assert told_by(batch, "context_tokens") == [149 * 10 + 149 * 74], "at the least: one token more a pass"


def test_the_first_token_took_no_timed_pass() -> None:
    lines = [START, begun(1, 0, 1), *ended(2, 0, 1, 0.01, 1), begun(3, 0, 2), *ended(4, 0, 41, 800.0, 2)]
    batch = only(lines)
    assert told_by(batch, "resolution_steps") == [40], "a request of one token has no row"
    assert batch.derived[0].value == 0.020


def test_a_program_counts_its_calls() -> None:
    """The block of llama-cli, as in build 4679."""
    name = "0.00.052.726 I llama_perf_context_print:"
    lines = [
        f"{name}        load time =      46.53 ms",
        f"{name} prompt eval time =       4.07 ms /     9 tokens (    0.45 ms per token,  2211.85 tokens per second)",
        f"{name}        eval time =     630.00 ms /    63 runs   (   10.00 ms per token,   100.00 tokens per second)",
        f"{name}       total time =     680.00 ms /    72 tokens",
    ]
    assert told_by(only(lines), "resolution_steps") == [63]


def test_a_long_request_takes_the_times_of_those_beside_it() -> None:
    """Slot 0 works from 1 to 40 s; three requests in slot 1 end before it does."""
    lines = [START, begun(1, 0, 1)]
    for task, at_s in ((2, 12), (3, 20), (4, 30)):
        lines += [begun(at_s - 2.0, 1, task), *ended(at_s, 1, 101, 1900.0, task)]
    lines += [*ended(40, 0, 2001, 38_000.0, 1), idle(40), begun(50, 2, 5), *ended(52, 2, 101, 1900.0, 5)]
    batch = only(lines)
    assert told_by(batch, "observed_s") == [None, None, None, None, 1.9], "the last one ran alone"
    assert told_by(batch, "resolution_steps") == [50, 50, 50, 1000, 100], "passes of two at a time, half for each"
    assert OVERLAP in batch.complaints


def test_without_lines_of_their_begin_requests_of_slots_are_not_timed() -> None:
    three = [line for task, at_s in ((2, 12), (3, 20), (4, 30)) for line in ended(at_s, 1, 101, 1900.0, task)]
    batch = only(three)
    assert told_by(batch, "observed_s") == [None] * 3
    assert batch.complaints == (UNSURE,)
    one_slot = START.replace("n_slots = 4", "n_slots = 1")
    assert told_by(only([one_slot, *three]), "observed_s") == [1.9] * 3, "a server of one slot runs one at a time"


def test_what_ran_before_the_log_began_is_not_known_until_all_slots_are_idle() -> None:
    lines = [begun(1, 0, 7), *ended(3, 0, 101, 1900.0, 7), idle(3), begun(4, 0, 8), *ended(6, 0, 101, 1900.0, 8)]
    assert told_by(only(lines), "observed_s") == [None, 1.9]


def stamped(at_s: float, slot: int = 0, ms: float = 3200.0, task: int = 1) -> list[str]:
    """The block of a request that ended then, as a container runtime writes it: its lines with a date."""
    when = datetime.datetime.fromtimestamp(BEGIN + at_s + 0.25, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return [f"{when} {line.partition(' I ')[2]}" for line in ended(0, slot, 101, ms, task)]


def test_a_stamp_less_the_total_time_tells_when_a_request_began() -> None:
    batch = only([line for at_s in (60, 120, 180) for line in stamped(at_s)])
    assert told_by(batch, "observed_s") == [3.2] * 3
    assert told_by(batch, "resolution_steps") == [100] * 3
    assert batch.complaints == ()


def test_spans_of_requests_that_overlap_tell_which_ran_alone() -> None:
    """The second one ran from 105 to 135 s: the first ended within it, the third began after it."""
    batch = only([*stamped(60), *stamped(120), *stamped(135, 1, 30_000.0), *stamped(180, 1)])
    assert told_by(batch, "observed_s") == [3.2, None, None, 3.2]
    assert told_by(batch, "resolution_steps") == [100, 50, 50, 100]
    assert batch.complaints == (OVERLAP,)


def test_a_request_without_a_span_leaves_all_unsure() -> None:
    no_total = [line for line in stamped(120) if "total time" not in line]
    given_up = [stamped(120, 1)[-1]]
    for odd in (no_total, given_up):
        batch = only([*stamped(60), *odd, *stamped(180)])
        assert set(told_by(batch, "observed_s")) == {None}
        assert batch.complaints == (UNSURE,)


def test_a_slot_that_is_released_before_its_times_is_the_same_request() -> None:
    """The order of the server in 2024 and 2025."""
    released = [[block[-1], *block[:-1]] for block in map(stamped, (60, 120))]
    assert told_by(only([line for block in released for line in block]), "observed_s") == [3.2] * 2


def test_of_a_log_that_goes_on_another_request_may_still_run() -> None:
    engines, reader = LogEngines("log", Clock()), LineReader(now_unix_s=BEGIN + 86_400)
    for line in stamped(60):
        for record in reader.take(line):
            engines.take(record, 60.0, BEGIN + 60)
    engines.flush(70.0)
    (batch,) = engines.drain()
    assert told_by(batch, "observed_s") == [None]
    assert batch.complaints == (UNSURE,)
