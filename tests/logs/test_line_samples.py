"""Every line as an engine wrote it gives the record that it says, whether or not the engine is named."""

from __future__ import annotations

from pathlib import Path

import pytest
from line_samples import NOW, Sample, moment, read, samples

from rooflens.adapters.logs.lines import LineReader
from rooflens.adapters.logs.names import RANKS, VALUES, WORDS, declared
from rooflens.adapters.logs.table import ENGINES, table_of
from rooflens.log_records import LogRecord, RecordKind

RECORDED = Path(__file__).resolve().parents[1] / "data" / "llamacpp"


@pytest.mark.parametrize("sample", samples(), ids=lambda sample: sample.name)
@pytest.mark.parametrize("named", [False, True], ids=["recognised", "named"])
def test_a_line_says_what_is_written_beside_it(sample: Sample, named: bool) -> None:
    records = read(sample.lines, sample.engine if named else None)
    assert len(records) == len(sample.records)
    for record, expected in zip(records, sample.records, strict=True):
        assert record.engine == sample.engine
        assert record.kind == RecordKind(expected["kind"])
        assert record.values == pytest.approx(expected["values"], rel=1e-12)
        assert record.words == expected.get("words", {})
        assert record.ranks == expected.get("ranks", {})
        assert list(record.unknown) == expected.get("unknown", [])
        if moment(expected) is None:
            assert record.unix_s is None
        else:
            assert record.unix_s == pytest.approx(moment(expected), abs=1e-5)


@pytest.mark.parametrize("sample", samples(), ids=lambda sample: sample.name)
def test_another_engine_reads_nothing_of_it(sample: Sample) -> None:
    for engine in ENGINES:
        if engine != sample.engine:
            assert read(sample.lines, engine) == []


@pytest.mark.parametrize("sample", samples(), ids=lambda sample: sample.name)
def test_each_sample_says_where_it_was_read(sample: Sample) -> None:
    assert len(sample.source) > 5


def test_every_name_of_the_tables_is_declared_and_every_declared_name_is_told_of() -> None:
    named: set[str] = set()
    for engine in ENGINES:
        table = table_of(engine)
        for line in table.lines:
            named |= {value.name for value in (*line.values.values(), *line.endings.values())} - {""}
            named |= {*line.flags.values(), *line.otherwise.values(), *line.less}
            assert set(line.words.values()) <= {*WORDS, ""}
            assert set(line.ranks.values()) <= set(RANKS)
        for fact in table.facts:
            groups = set(fact.template.pattern.groupindex)
            named |= groups - fact.template.words
            assert fact.template.words <= set(WORDS)
    assert [name for name in named if not declared(name)] == []
    assert all(text for text in (*VALUES.values(), *WORDS.values(), *RANKS.values()))


def test_names_end_in_their_units() -> None:
    ending = ("_ratio", "_s", "_bytes", "_per_s", "_tokens", "_N")
    for name, text in VALUES.items():
        if text.startswith(("part of", "time ", "mean time", "size of")):
            assert name.endswith(ending), name


def test_an_engine_without_a_table_is_refused_in_one_line() -> None:
    with pytest.raises(ValueError, match=r"no table of what 'tgi' writes: one of vllm, sglang, "):
        LineReader("tgi")


def recorded(name: str) -> list[LogRecord]:
    return read(tuple((RECORDED / name).read_text("utf-8").splitlines()))


@pytest.mark.parametrize("name", ["server.log", "server_lv4.log", "server_lv4_noprefix.log"])
def test_the_log_of_a_real_llama_cpp_server_holds_its_six_requests(name: str) -> None:
    timings = [record for record in recorded(name) if record.kind is RecordKind.TIMING]
    assert len(timings) == 6
    computed = sum(record.values["prompt_tokens"] for record in timings)
    assert sum(record.values["generated_tokens"] for record in timings) == 1370
    # What stood in the cache is what a sequence has more than it computed and generated, less the last token.
    found = sum(r.values["sequence_tokens"] + 1 - r.values["total_tokens"] for r in timings)
    assert computed + found == 1003
    assert computed == 766 or name != "server.log"
    assert {record.ranks["slot"] for record in timings} == {0, 1, 2, 3}


def test_the_start_of_a_real_llama_cpp_server_tells_the_model_and_the_cache() -> None:
    values: dict[str, float] = {}
    words: dict[str, str] = {}
    for record in recorded("server_lv4.log"):
        if record.kind is RecordKind.STARTUP:
            values.update(record.values)
            words.update(record.words)
    assert values["layers"] == 4
    assert values["kv_heads"] == 4
    assert values["kv_capacity_tokens"] == 4096
    assert values["max_context_tokens"] == 1024
    assert values["kv_bytes"] == 8 * 2**20
    assert values["parameters"] == 2.62e6
    assert words["kv_dtype"] == "f16"
    assert words["quantization"] == "F16"
    assert words["engine_version"] == "1"


def test_requests_are_not_read_whatever_they_hold() -> None:
    """A prompt may hold any text, also that of a log."""
    said = "Avg prompt throughput: 1.0 tokens/s, Running: 9 reqs"
    assert read((f"INFO 01-27 19:04:07 logger.py:37] Received request cmpl-1: prompt: '{said}', params: ...",)) == []
    assert read((f'INFO:     1.2.3.4:5 - "GET /?q={said} HTTP/1.1" 200 OK',)) == []


def test_what_a_line_does_not_tell_is_absent() -> None:
    (record,) = read(("Avg prompt throughput: nan tokens/s, Running: -nan reqs, Waiting: inf reqs, Swapped: 1 reqs",))
    assert record.values == {"swapped": 1.0}
    assert record.unix_s is None
    assert NOW > 0
