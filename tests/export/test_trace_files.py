"""Writers of trace files: clocks that jump, steps that overlap, values that are not known, words that bite."""

from __future__ import annotations

import io
import json
import math
from dataclasses import replace
from typing import Any

import pytest
from export import read_back
from hypothesis import given, settings
from hypothesis import strategies as st

from rooflens.exporters.trace_files.chrome import ChromeWriter
from rooflens.exporters.trace_files.csv import CsvWriter, iso, safe
from rooflens.exporters.trace_files.lanes import MOST_LANES, Lanes
from rooflens.exporters.trace_files.otlp import OtlpWriter
from rooflens.exporters.trace_files.parts import CounterRows, Happened, Output, Part, StepRows, TooLarge
from rooflens.exporters.trace_files.perfetto import PerfettoWriter
from rooflens.findings import Code, Finding, Price, Severity, Status
from rooflens.live_records import SourceKind
from rooflens.records import EngineInfo, RingEvent
from rooflens.trace_records import TraceFacts

BEGIN = 1_800_000_000
FACTS = TraceFacts("a" * 16, "host-1", "llama", "0", SourceKind.RING, EngineInfo("a", "vllm", kv_blocks=100))
WRITERS: dict[str, Any] = {
    "chrome": ChromeWriter, "perfetto": PerfettoWriter, "otlp": OtlpWriter, "csv": CsvWriter
}  # fmt: skip


def written(kind: str, *parts: Part, limit_bytes: float | None = None) -> tuple[bytes, Output]:
    """The file of these parts, ended where it is full."""
    output = Output(io.BytesIO(), limit_bytes)
    writer = WRITERS[kind](output, BEGIN, {})
    try:
        for part in parts:
            writer.take(part)
    except TooLarge:
        pass
    writer.end()
    assert isinstance(output.stream, io.BytesIO)
    return output.stream.getvalue(), output


def rows(*steps: tuple[float | None, float | None], facts: TraceFacts = FACTS, **columns: list[Any]) -> StepRows:
    """Decode steps by the seconds of their end after BEGIN, and their duration."""
    unix_s = [None if end is None else BEGIN + end for end, _ in steps]
    made: dict[str, list[Any]] = {"sequence": [*range(1, len(steps) + 1)], "kind": [1] * len(steps), "unix_s": unix_s}
    return StepRows(facts, made | {"observed_s": [duration for _, duration in steps]} | columns)


def steps_of(data: bytes) -> list[tuple[str, int, int]]:
    """Thread, begin and end of each step in microseconds."""
    return [(each.track[1], each.begin, each.end) for each in read_back.chrome(data)[1] if each.name == "decode"]


def test_a_step_begins_where_it_began_to_be_busy_and_two_in_flight_do_not_overlap() -> None:
    """An asynchronous engine submits step 2 before the output of step 1: it is busy with it from then on."""
    data, _ = written("chrome", rows((1.0, 0.4), (1.3, 0.3)))
    assert steps_of(data) == [("steps", 600_000, 1_000_000), ("steps", 1_000_000, 1_300_000)]


def test_what_the_host_did_is_in_the_order_of_time() -> None:
    """Step 2 is scheduled before the output of step 1 is there, and the file still goes forward."""
    part = rows((1.0, 0.4), (1.3, 0.3), submit_monotonic_s=[0.55, 0.9], output_monotonic_s=[1.0, 1.3],
                schedule_s=[0.05, 0.1], update_s=[0.02, 0.03], wait_s=[0.08, 0.2])  # fmt: skip
    _, slices = read_back.chrome(written("chrome", part)[0])
    host = [(each.name, each.begin, each.end) for each in slices if each.track[1] == "host"]
    assert host == [
        ("schedule", 500_000, 550_000),
        ("schedule", 800_000, 900_000),
        ("wait for the output", 920_000, 1_000_000),
        ("update", 1_000_000, 1_020_000),
        ("wait for the output", 1_100_000, 1_300_000),
        ("update", 1_300_000, 1_330_000),
    ]
    read_back.well_formed(slices)


def test_a_clock_that_is_set_back_opens_a_lane() -> None:
    data, output = written("chrome", rows((10.0, 0.5), (5.0, 0.5), (5.6, 0.5), (10.6, 0.5)))
    assert [(track, end) for track, _, end in steps_of(data)] == [
        ("steps", 10_000_000), ("steps (2)", 5_000_000), ("steps (2)", 5_600_000), ("steps", 10_600_000)
    ]  # fmt: skip
    assert output.left_out == 0
    read_back.well_formed(read_back.perfetto(written("perfetto", rows((10.0, 0.5), (5.0, 0.5)))[0]).slices)


def test_a_later_run_of_an_engine_has_a_track_of_its_own() -> None:
    again = replace(FACTS, run="b" * 16)
    data, _ = written("chrome", rows((1.0, 0.5)), rows((1.2, 0.5), facts=again))
    assert [track for track, _, _ in steps_of(data)] == ["steps", "steps, run 2"]


def test_steps_without_a_time_are_left_out_and_counted() -> None:
    part = rows((1.0, 0.5), (None, 0.5), (2.0, None), (3.0, 0.5))
    for kind in ("chrome", "perfetto", "otlp"):
        output = written(kind, part)[1]
        assert (output.steps, output.left_out) == (2, 2), kind
    table = read_back.table(written("csv", part)[0])  # a table has room for what is not known
    assert [row["unix_s"] for row in table] == ["1800000001.0", "", "1800000002.0", "1800000003.0"]


FIRING = Finding(
    Code.KV_PRESSURE, Severity.WARNING, Status.FIRING, "the pool is full", price=Price(2.0, 10.0, 1.0, 3.0, "words")
)


def test_findings_are_ranges_and_what_still_stands_lasts_until_the_last_step() -> None:
    cleared = replace(FIRING, status=Status.CLEARED)
    other = replace(FIRING, code=Code.HOST_OVERHEAD)
    parts = [Happened(FACTS, BEGIN + 2.0, FIRING), Happened(FACTS, BEGIN + 3.0, other),
             Happened(FACTS, BEGIN + 4.0, cleared), rows((9.0, 0.5))]  # fmt: skip
    events, _ = read_back.chrome(written("chrome", *parts)[0])
    found = [(e["ph"], e["name"], e["ts"]) for e in events if e["ph"] in "be"]
    assert found == [("b", "kv_pressure", 2_000_000), ("e", "kv_pressure", 4_000_000),
                     ("b", "host_overhead", 3_000_000), ("e", "host_overhead", 9_000_000)]  # fmt: skip
    slices = read_back.perfetto(written("perfetto", *parts)[0]).slices
    ranges = {each.name: (each.begin - BEGIN * 10**9, each.end - BEGIN * 10**9) for each in slices}
    assert ranges["kv_pressure"] == (2 * 10**9, 4 * 10**9)
    assert next(each for each in slices if each.name == "kv_pressure").args["saved_s"] == 2.0
    spans = {span.name: span for _, span in read_back.otlp(written("otlp", *parts)[0])}
    assert spans["finding kv_pressure"].end_time_unix_nano == (BEGIN + 4) * 10**9
    assert spans["finding host_overhead"].end_time_unix_nano == (BEGIN + 9) * 10**9


def test_a_finding_that_began_before_is_drawn_from_its_beginning_or_that_of_the_file() -> None:
    cleared = replace(FIRING, status=Status.CLEARED, since_unix_s=BEGIN - 100.0)
    events, _ = read_back.chrome(written("chrome", Happened(FACTS, BEGIN + 4.0, cleared))[0])
    assert [(e["ph"], e["ts"]) for e in events if e["ph"] in "be"] == [("b", 0), ("e", 4_000_000)]
    (span,) = [s for _, s in read_back.otlp(written("otlp", Happened(FACTS, BEGIN + 4.0, cleared))[0]) if s.kind and
               s.name == "finding kv_pressure"]  # fmt: skip
    assert span.start_time_unix_nano == (BEGIN - 100) * 10**9


def test_counters_of_devices_have_units() -> None:
    part = CounterRows({"host": ["h"] * 2, "uuid": ["GPU-1"] * 2, "start_unix_s": [BEGIN + 1.0, BEGIN + 2.0],
                        "dram_ratio": [0.5, None], "power_w": [300.0, 310.5]})  # fmt: skip
    found = read_back.perfetto(written("perfetto", part)[0])
    assert found.counters["devices of h", "DRAM GPU-1"] == [((BEGIN + 1) * 10**9, 50.0)]
    assert [value for _, value in found.counters["devices of h", "power GPU-1"]] == [300.0, 310.5]
    assert found.units == {"DRAM GPU-1": "%", "power GPU-1": "W"}
    events, _ = read_back.chrome(written("chrome", part)[0])
    assert [(e["name"], e["args"]["value"]) for e in events if e["ph"] == "C"] == [
        ("DRAM GPU-1", 0.5), ("power, W GPU-1", 300.0), ("power, W GPU-1", 310.5)
    ]  # fmt: skip


@pytest.mark.parametrize("kind", ["chrome", "perfetto", "otlp"])
def test_a_full_file_is_whole_and_says_where_it_stopped(kind: str) -> None:
    output = Output(io.BytesIO(), 4000)
    writer = WRITERS[kind](output, BEGIN, {})
    part = rows(*((at / 10, 0.05) for at in range(1, 2000)))
    pieces = [
        StepRows(FACTS, {name: column[begin : begin + 10] for name, column in part.columns.items()})
        for begin in range(0, 1999, 10)
    ]
    with pytest.raises(TooLarge) as full:
        [*map(writer.take, pieces)]
    writer.end()
    assert isinstance(output.stream, io.BytesIO)
    data = output.stream.getvalue()
    assert full.value.unix_s == pytest.approx(BEGIN + (output.steps + 1) / 10)
    readers = {"chrome": lambda: steps_of(data), "perfetto": lambda: read_back.perfetto(data).slices,
               "otlp": lambda: [s for _, s in read_back.otlp(data) if s.name == "decode"]}  # fmt: skip
    assert len(readers[kind]()) == output.steps > 5


def test_text_that_a_spreadsheet_computes_is_led_by_an_apostrophe() -> None:
    evil = replace(FACTS, model_name='=HYPERLINK("x")', host="-1\r\n2", engine='a"b,c')
    data, _ = written("csv", rows((1.0, 0.5), facts=evil))
    (row,) = read_back.table(data)
    assert (row["model_name"], row["host"], row["engine"]) == ('\'=HYPERLINK("x")', "'-1??2", 'a"b,c')
    assert data.count(b"\r\n") == 2
    assert [safe(text) for text in ("+1", "@x", "\tx", "plain")] == ["'+1", "'@x", "'?x", "plain"]


def test_times_that_no_calendar_has() -> None:
    assert (iso(0.0), iso(None), iso(math.nan), iso(1e18)) == ("1970-01-01T00:00:00.000000Z", None, None, None)


def test_events_show_their_plain_values_only() -> None:
    event = RingEvent(7, 1.0, "sleep", {"level": 1, "list": [1], "odd": math.inf, "word": "x"})
    events, _ = read_back.chrome(written("chrome", Happened(FACTS, BEGIN + 1.0, event))[0])
    assert [e["args"] for e in events if e["ph"] == "i"] == [{"level": 1, "word": "x", "sequence": 7}]


def test_a_ratio_that_no_number_holds_is_not_told() -> None:
    part = rows((1.0, 1e-310), memory_s=[1.0], floor_s=[1.0], bound=[0])
    _, slices = read_back.chrome(written("chrome", part)[0])
    assert [each.args for each in slices if each.args] == [
        {"step": 1, "observed_ms": 0.0, "floor_ms": 1000.0, "bound": "memory"}
    ]


def test_more_overlaps_than_lanes_are_refused() -> None:
    lanes = Lanes()
    placed = [lanes.place(0, 100) for _ in range(MOST_LANES + 1)]
    assert [each and each[0] for each in placed] == [*range(MOST_LANES), None]


seconds = st.floats(0, 1e6) | st.floats(0, 10)
times = st.lists(st.tuples(seconds | st.none(), st.floats(0, 1e4) | st.floats(0, 0.1) | st.none()), max_size=40)
count = st.integers(0, 1 << 40) | st.none()


@settings(max_examples=40)
@given(times, st.data())
def test_any_steps_make_files_that_are_read_without_overlap(steps: list[Any], data: Any) -> None:
    def column(values: Any) -> Any:
        return data.draw(st.lists(values, min_size=len(steps), max_size=len(steps)))

    part = rows(*steps, requests=column(count), waiting=column(count), schedule_s=column(seconds | st.none()),
                submit_monotonic_s=column(seconds), output_monotonic_s=column(seconds),
                wait_s=column(seconds | st.none()), update_s=column(seconds | st.none()),
                floor_s=column(seconds | st.none()), memory_s=column(seconds | st.none()))  # fmt: skip
    chrome, output = written("chrome", part)
    _, slices = read_back.chrome(chrome)
    read_back.well_formed(slices)
    assert output.steps + output.left_out == len(steps)
    assert sum(each.name == "decode" for each in slices) == output.steps
    packed = read_back.perfetto(written("perfetto", part)[0])
    read_back.well_formed(packed.slices)
    for values in packed.counters.values():
        assert [at for at, _ in values] == sorted(at for at, _ in values)
    spans = read_back.otlp(written("otlp", part)[0])
    assert all(span.start_time_unix_nano <= span.end_time_unix_nano for _, span in spans)
    assert len(read_back.table(written("csv", part)[0])) == len(steps)


@given(st.text(max_size=20), st.text(max_size=20))
def test_any_name_is_kept_inside_its_field(model: str, host: str) -> None:
    facts = replace(FACTS, model_name=model, host=host)
    (row,) = read_back.table(written("csv", rows((1.0, 0.5), facts=facts))[0])
    assert (row["model_name"], row["host"], row["sequence"]) == (safe(model), safe(host), "1")
    assert json.loads(written("chrome", rows((1.0, 0.5), facts=facts))[0])
