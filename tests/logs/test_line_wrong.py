"""Lines that are cut off, mixed up, made up or without an end: no exception, nothing unbounded, the rest is kept."""

from __future__ import annotations

import math

import pytest
from counted_calls import calls_of
from hypothesis import given, settings
from hypothesis import strategies as st
from line_samples import NOW, Sample, read, samples

from rooflens.adapters.logs.lines import LONGEST_LINE, LineReader
from rooflens.adapters.logs.marks import gates_of, marks_of
from rooflens.adapters.logs.names import RANKS, WORDS, declared
from rooflens.adapters.logs.table import ENGINES
from rooflens.log_records import LogRecord

ALL = samples()
LINES = [line for sample in ALL for line in sample.lines]
PIECES = [mark.text for mark in marks_of(ENGINES)] + ["1", "-", ", ", ": ", "=", "{", "[", "}", "]", "(", "'", '"', "%"]


def check(records: list[LogRecord]) -> None:
    """What every record must be, whatever was read."""
    assert len(records) < 2048
    for record in records:
        assert record.engine in ENGINES
        assert all(declared(name) for name in record.values)
        assert all(isinstance(value, float) and math.isfinite(value) for value in record.values.values())
        assert len(record.values) < 400
        assert set(record.words) <= set(WORDS)
        assert all(isinstance(word, str) and len(word) <= 8192 for word in record.words.values())
        assert set(record.ranks) <= set(RANKS)
        assert all(isinstance(rank, int) for rank in record.ranks.values())
        assert len(record.unknown) <= 16
        assert all(len(label) <= 64 for label in record.unknown)
        assert record.unix_s is None or math.isfinite(record.unix_s)


@pytest.mark.parametrize("sample", ALL, ids=lambda sample: sample.name)
def test_a_sample_that_is_cut_off_anywhere_says_no_more_than_the_whole(sample: Sample) -> None:
    for line in sample.lines:
        for end in range(0, len(line), max(1, len(line) // 97)):
            check(read((line[:end],)))
            check(read((line[end:],)))


@settings(max_examples=300)
@given(st.sampled_from(LINES), st.integers(0, 4000), st.integers(0, 40), st.text(max_size=12))
def test_a_sample_with_something_else_in_its_midst_raises_nothing(line: str, at: int, gone: int, put: str) -> None:
    at = at % (len(line) + 1)
    check(read((line[:at] + put + line[at + gone :],)))


@settings(max_examples=300)
@given(st.lists(st.sampled_from([*PIECES, *LINES]), max_size=12))
def test_pieces_of_lines_in_any_order_raise_nothing(pieces: list[str]) -> None:
    check(read(("".join(pieces), *pieces)))


@settings(max_examples=200)
@given(st.sampled_from(PIECES), st.text(max_size=200))
def test_anything_after_a_mark_raises_nothing(mark: str, text: str) -> None:
    check(read((mark + text, text + mark, mark + "{" * 50 + text)))


@pytest.mark.parametrize("sample", ALL, ids=lambda sample: sample.name)
def test_a_label_of_a_version_to_come_is_named_and_the_rest_is_kept(sample: Sample) -> None:
    before = read(sample.lines)
    if len(sample.lines) > 1 or not any(record.kind in ("interval", "decode", "prefill") for record in before):
        return
    line = sample.lines[0].rstrip().rstrip(",")
    if line.endswith("}") or len(before) > 1 or "[pod" in line or not line[-1:].strip(".%") or line == "Prefix":
        return
    (record,) = read((line + ", Novel gauge: 7",))
    named = (*before[0].unknown, "Novel gauge")
    assert record.unknown == named or len(before[0].values) == 2  # a sentence (MFU) has no labels
    assert {name: record.values[name] for name in before[0].values} == before[0].values


@pytest.mark.parametrize(
    "unit",
    ["Avg prompt throughput: ", "Avg prompt throughput: 1,", "(", "[{", "1,", ", ", " = ", "Iteration(1): ",
     "currank_total_requests = {", "prompt eval time = ", "eval time = 1.00 ms / ", "K (", "9" * 40 + " ",
     "2024-01-01 00:00:00", '{"iterLatencyMS":', "server_args=ServerArgs(model=", "model_path=", "#token: full=",
     " LLM engine (v", "is preempted by PreemptionMode.", "\x1b[", "Engine 1", "(A pid=1", "DP1 ", "id 0 | task "],
)  # fmt: skip
def test_the_longest_line_of_one_thing_costs_what_its_length_costs(unit: str) -> None:
    """No pattern that goes back and forth: twice the length is at most some twice the work."""
    long = unit * (LONGEST_LINE // len(unit) + 1)
    for mark in ("Avg prompt throughput: ", "Decode batch. ", "iter = 1, currank_total_requests = ", " eval time ="):
        check(read((mark + long, long + mark)))
    reader = LineReader(now_unix_s=NOW)
    whole, half = (calls_of(lambda text=text: reader.take(text)) for text in (long, long[: LONGEST_LINE // 2]))
    assert whole < 3 * half + 3000


def test_what_stands_beyond_the_longest_line_is_not_read() -> None:
    assert read(("x" * LONGEST_LINE + "Avg prompt throughput: 1.0 tokens/s",)) == []
    (record,) = read(("Avg prompt throughput: 1.0 tokens/s, " + "x" * (1 << 20) + "Running: 1 reqs",))
    assert record.values == {"prompt_tokens_per_s": 1.0}


def test_a_line_without_a_mark_is_ruled_out_by_a_look_for_each_gate() -> None:
    reader = LineReader(now_unix_s=NOW)
    line = "(APIServer pid=1) INFO 11-28 23:05:46 [thing.py:97] nothing that any table knows" * 3
    assert calls_of(lambda: reader.take(line)) <= len(gates_of(ENGINES)) + 8


def test_every_mark_holds_its_gate() -> None:
    gated = [mark for gate in gates_of(ENGINES) for mark in gate.marks if gate.text in mark.text]
    assert sorted(mark.place for mark in gated) == [mark.place for mark in marks_of(ENGINES)]
    assert len(gates_of(ENGINES)) < len(marks_of(ENGINES)) / 2


def test_no_word_is_a_path_or_an_address() -> None:
    line = (
        " LLM engine (v0.9.0) with config: model='/data/joe/secret/llama', quantization=/etc/passwd, "
        "kv_cache_dtype=../x, served_model_name=https://host/a?key=1, dtype=torch.bfloat16"
    )
    (record,) = read((line,))
    assert record.words == {"engine_version": "0.9.0", "base_model_name": "llama", "weight_dtype": "bfloat16"}


def test_the_smaller_kv_size_of_a_hybrid_model_is_not_trusted() -> None:
    """vllm#40691: 290,864 tokens are told where 33.04 requests of 32,768 fit."""
    lines = ("INFO [kv_cache_utils.py:1319] GPU KV cache size: 290,864 tokens",
             "INFO [kv_cache_utils.py:1324] Maximum concurrency for 32,768 tokens per request: 33.04x")  # fmt: skip
    first, second = read(lines)
    assert first.values == {"kv_capacity_tokens": 290864.0}
    assert second.values["kv_capacity_tokens"] == pytest.approx(1_082_655, abs=1)
    assert second.values["kv_capacity_said_tokens"] == 290864.0
    assert "1,082,655 tokens are taken" in second.words["complaint"]
    _, agrees = read((lines[0].replace("290,864", "1,082,000"), lines[1]))
    assert "complaint" not in agrees.words
    assert "kv_capacity_tokens" not in agrees.values
