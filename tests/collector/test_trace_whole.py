"""A file of a trace whose bytes changed is a line, wherever they changed; one without a checksum is read."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from made_traces import facts_of, made_table, written

from rooflens.collector.trace.cells import cells_of
from rooflens.collector.trace.file import metadata_of
from rooflens.collector.trace.files import find_trace
from rooflens.collector.trace.scan import counters_of, events_of, parts_of
from rooflens.collector.trace.whole import BEGIN, PIECE_BYTES, check
from rooflens.collector.trace.writer import TraceWriter
from rooflens.device_records import CounterSource, DeviceFacts, DeviceSample
from rooflens.records import RingEvent, RooflensError
from rooflens.trace_records import METADATA_KEY, TraceCounters, TraceEvents, TraceFilter

ALL = TraceFilter()


def flipped(path: Path, place: int, bit: int = 0) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 1 << bit
    path.write_bytes(data)


def test_every_flipped_bit_is_noticed_in_pages_footer_and_checksum(tmp_path: Path) -> None:
    path = written(tmp_path, made_table(facts_of(), 200), facts_of())
    check(str(path))
    good = path.read_bytes()
    chosen = random.Random(7)
    digits = good.rindex(BEGIN) + len(BEGIN)
    for place in (*range(digits, digits + 8), *(chosen.randrange(len(good)) for _ in range(60))):
        flipped(path, place, chosen.randrange(8))
        with pytest.raises(RooflensError):
            check(str(path))
        path.write_bytes(good)


@pytest.mark.parametrize("piece", [7, 64, PIECE_BYTES])
def test_a_checksum_that_lies_over_two_pieces_is_left_out_of_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece: int
) -> None:
    path = written(tmp_path, made_table(facts_of(), 20), facts_of())
    monkeypatch.setattr("rooflens.collector.trace.whole.PIECE_BYTES", piece)
    check(str(path))


def test_a_file_with_one_flipped_bit_is_a_line_and_its_copy_is_read(tmp_path: Path) -> None:
    for engine in ("0", "1"):
        written(tmp_path, made_table(facts_of(engine), 200), facts_of(engine), f"0{engine}-a")
    bad = written(tmp_path, made_table(facts_of("2"), 200), facts_of("2"), "02-a")
    flipped(bad, 5000)
    lost = find_trace([str(tmp_path)], ALL)
    said = f"{bad}: damaged, or written anew by another program: its bytes are not those that its checksum is of"
    assert lost.problems == (said,)
    assert cells_of(lost, ALL).columns["rows"].sum() == 400
    assert sum(len(part.steps) for part in parts_of(lost, ALL)) == 400
    written(tmp_path, made_table(facts_of("2"), 200), facts_of("2"), "03-a")
    found = find_trace([str(tmp_path)], ALL)
    assert found.rows == 600
    assert found.problems == (said,)


def test_only_the_rows_that_are_read_are_checked(tmp_path: Path) -> None:
    bad = written(tmp_path, made_table(facts_of(), 200), facts_of())
    flipped(bad, 5000)
    assert find_trace([str(tmp_path)], ALL, for_rows=False).rows == 200
    with pytest.raises(RooflensError, match="damaged"):
        find_trace([str(tmp_path)], ALL)


def test_a_file_without_a_checksum_is_read(tmp_path: Path) -> None:
    table, facts = made_table(facts_of(), 100), facts_of()
    path = written(tmp_path, table, facts)
    assert pq.read_metadata(path).metadata[METADATA_KEY].startswith(BEGIN)
    pq.write_table(table.replace_schema_metadata(metadata_of([facts], table)), path)
    assert not pq.read_metadata(path).metadata[METADATA_KEY].startswith(BEGIN)
    assert find_trace([str(tmp_path)], ALL).rows == 100


def test_the_checksum_is_not_looked_for_in_what_an_engine_says(tmp_path: Path) -> None:
    """A configuration may hold the same characters."""
    facts = facts_of()
    assert facts.info is not None
    config = {**(facts.info.model_config or {}), "quantization": {"crc32": "00000000"}}
    facts = replace(facts, info=replace(facts.info, model_config=config))
    check(str(written(tmp_path, made_table(facts, 50), facts)))


def test_damaged_events_and_counters_are_lines(tmp_path: Path) -> None:
    writer = TraceWriter(str(tmp_path), threaded=False)
    facts, at = facts_of(), 1_796_040_000.0
    written(tmp_path, made_table(facts, 20), facts)
    writer.put(TraceEvents(facts, events=tuple((at + n, RingEvent(n, float(n), "gap", {})) for n in range(50))))
    device = DeviceFacts("GPU-1", CounterSource.NVML)
    samples = tuple((at + n, DeviceSample("GPU-1", CounterSource.NVML, n - 1.0, float(n))) for n in range(50))
    writer.put(TraceCounters(facts.host, device, samples))
    writer.close()
    for table, read in (("events", events_of), ("counters", counters_of)):
        (path,) = (tmp_path / table).rglob("*.parquet")
        files, problems = find_trace([str(tmp_path)], ALL), list[str]()
        assert list(read(files, ALL, problems))
        assert problems == []
        flipped(path, 100, 3)
        assert list(read(files, ALL, problems)) == []
        assert len(problems) == 1
        assert problems[0].startswith(f"{path}: damaged")


def test_the_metadata_is_as_it_was_beside_the_checksum(tmp_path: Path) -> None:
    table, facts = made_table(facts_of(), 20), facts_of()
    said = (pq.read_metadata(written(tmp_path, table, facts)).metadata or {})[METADATA_KEY]
    assert b"{" + said[len(BEGIN) + 10 :] == metadata_of([facts], table)[METADATA_KEY]
