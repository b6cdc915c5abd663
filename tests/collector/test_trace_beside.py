"""Events, findings and counters go into a trace and come back as they were."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from written_traces import BEGIN_UNIX_S, Clock, facts_of, trace_files, trace_table

from rooflens.collector.trace.beside import (
    COUNTER_SCHEMA,
    PLAIN,
    THROTTLED,
    counters_table,
    event_of,
    events_table,
)
from rooflens.collector.trace.file import read_footer
from rooflens.collector.trace.writer import TraceWriter
from rooflens.device_records import CounterSource, DeviceFacts, DeviceSample, Throttle
from rooflens.findings import Code, Evidence, Finding, Price, Severity, Status
from rooflens.records import RingEvent, RooflensError
from rooflens.trace_records import TraceCounters, TraceEvents

FINDING = Finding(
    Code.KV_PRESSURE, Severity.WARNING, Status.FIRING, "the pool is full", "a",
    (Evidence("kv_used", 0.99, "1"), Evidence("policy", "fcfs")), Price(1.0, 60.0, 0.5, 1.5, "refit"), 0.9, "memory",
)  # fmt: skip
DEVICE = DeviceFacts("GPU-1", CounterSource.NVML, "NVIDIA H100", 0, memory_bytes=80 << 30, pids=(1, 2))
seconds = st.floats(0, 1e9)


@st.composite
def samples(draw: Callable[..., Any]) -> DeviceSample:
    always = ("uuid", "source", "start_monotonic_s", "end_monotonic_s", "slack_s")
    names = [name for name in PLAIN if name not in always]
    chosen = draw(st.lists(st.sampled_from(names), unique=True))
    values = {name: draw(st.integers(0, 2**50)) if name == "memory_used_bytes" else draw(seconds) for name in chosen}
    return DeviceSample(
        "GPU-1",
        draw(st.sampled_from(CounterSource)),
        draw(seconds),
        draw(seconds),
        draw(seconds),
        throttles=draw(st.none() | st.lists(st.sampled_from(Throttle), unique=True).map(tuple)),
        throttled_s=draw(st.dictionaries(st.sampled_from(Throttle), seconds)),
        **values,
    )


def sample_of(row: Mapping[str, Any]) -> DeviceSample:
    """The inverse of a row of counters."""
    reasons = row["throttles"]
    plain = {name: row[name] for name in PLAIN if row[name] is not None}
    throttled = {reason: row[name] for reason, name in THROTTLED.items() if row[name] is not None}
    told = None if reasons is None else tuple(map(Throttle, reasons))
    source = CounterSource(row["source"])
    return DeviceSample(**plain | {"source": source, "throttles": told, "throttled_s": throttled})


@given(st.lists(samples(), max_size=3))
@settings(max_examples=50)
def test_samples_come_back(made: list[DeviceSample]) -> None:
    item = TraceCounters("host-1", DEVICE, tuple((100.0 + at, sample) for at, sample in enumerate(made)))
    table = counters_table([item])
    assert [sample_of(row) for row in table.to_pylist()] == made
    assert table.column_names == COUNTER_SCHEMA.names


def test_every_field_of_a_sample_and_every_reason_has_a_column() -> None:
    fields = set(DeviceSample.__dataclass_fields__)
    assert fields - set(PLAIN) == {"throttles", "throttled_s"}
    assert set(THROTTLED.values()) < set(COUNTER_SCHEMA.names)


details = st.dictionaries(st.text(max_size=5), st.none() | st.integers() | st.text(max_size=5), max_size=3)
events = st.builds(RingEvent, st.integers(0, 2**40), seconds, st.text(max_size=10), details)


@given(st.lists(st.tuples(seconds, events), max_size=4))
@settings(max_examples=50)
def test_events_come_back(made: list[tuple[float, RingEvent]]) -> None:
    table = events_table([TraceEvents(facts_of(), tuple(made), ((5.0, FINDING),))])
    rows = table.to_pylist()
    assert [row["unix_s"] for row in rows] == sorted(row["unix_s"] for row in rows)
    back = [(row["unix_s"], event_of(row)) for row in rows]
    assert sorted(map(repr, back)) == sorted(map(repr, [*made, (5.0, FINDING)]))


@pytest.mark.parametrize("detail", ["{", "[]", '{"code": "no such"}', "{}"])
def test_a_damaged_finding_is_one_line(detail: str) -> None:
    with pytest.raises(RooflensError, match="a row of events cannot be read"):
        event_of({"class": "finding", "detail": detail, "name": "x", "sequence": None, "monotonic_s": None})


def test_they_have_folders_of_their_own_and_footers(tmp_path: Path) -> None:
    clock, monotonic = Clock(), Clock(1000.0)
    writer = TraceWriter(str(tmp_path), None, clock, monotonic, threaded=False)
    facts = facts_of(host="node/1")
    writer.put(
        TraceEvents(facts, ((BEGIN_UNIX_S + 3599, RingEvent(7, 5.0, "sleep")),), ((BEGIN_UNIX_S + 3601, FINDING),))
    )
    sample = DeviceSample("GPU-1", CounterSource.NVML, 1.0, 2.0, power_w=300.0)
    writer.put(TraceCounters("node/1", DEVICE, ((BEGIN_UNIX_S, sample),)))
    monotonic.now_s += 61
    writer.turn()
    paths = trace_files(tmp_path, "events")
    assert [path.parent.name for path in paths] == ["hour=08", "hour=09"]
    assert [trace_table(path).column("name").to_pylist() for path in paths] == [["sleep"], ["kv_pressure"]]
    assert read_footer(str(paths[0])).facts == {facts.digest: facts}
    (counters,) = trace_files(tmp_path, "counters")
    assert counters.parts[-4] == "host=node%2F1"
    (row,) = trace_table(counters).to_pylist()
    assert (row["host"], row["start_unix_s"], row["end_unix_s"]) == ("node/1", BEGIN_UNIX_S - 1, BEGIN_UNIX_S)
    footer = read_footer(str(counters))
    assert (footer.devices, footer.first_unix_s) == ({"GPU-1": DEVICE}, BEGIN_UNIX_S)
    assert writer.state().rows_written == 3
    assert json.loads(trace_table(paths[1]).column("detail")[0].as_py())["price"]["saved_s"] == 1.0
