"""What a trace holds beside steps, in the report: energy of the engines' devices, findings that stand, damaged rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from recorded_trace import HOUR, made_trace

from rooflens.cli.analysis.beside import of_trace
from rooflens.collector.trace.beside import counters_table, events_table
from rooflens.collector.trace.file import write_file
from rooflens.collector.trace.files import find_trace
from rooflens.device_records import CounterSource, DeviceFacts, DeviceSample
from rooflens.findings import Code, Finding, Severity, Status
from rooflens.trace_records import TraceCounters, TraceEvents, TraceFacts, TraceFilter

EVERYTHING = TraceFilter()
START_UNIX_S = 1796033210.0


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return made_trace(tmp_path)


def facts_of(trace: Path, engine: str) -> TraceFacts:
    return next(facts for facts in find_trace([str(trace)], EVERYTHING).facts.values() if facts.engine == engine)


def finding(status: Status, code: Code = Code.HOST_OVERHEAD) -> Finding:
    return Finding(code, Severity.WARNING, status, "words", missing=("x",) if status is Status.CANNOT_TELL else ())


def test_energy_is_of_the_devices_on_the_engines_hosts(trace: Path) -> None:
    samples = tuple(
        (START_UNIX_S + at, DeviceSample("GPU-1", CounterSource.NVML, at, at + 1.0, energy_j=200.0)) for at in range(3)
    )
    foreign = ((START_UNIX_S, DeviceSample("GPU-9", CounterSource.NVML, 0.0, 1.0, energy_j=1e6)),)
    device = DeviceFacts("GPU-1", CounterSource.NVML)
    items = [
        TraceCounters("host-a", device, samples),
        TraceCounters("host-b", replace(device, uuid="GPU-9"), foreign),
    ]
    write_file(trace / "counters" / HOUR / "00-test.parquet", counters_table(items), [])
    problems: list[str] = []
    found = of_trace(find_trace([str(trace)], EVERYTHING), EVERYTHING, problems)
    assert (found.energy_j, found.energy_ratio, problems) == (600.0, 1.0, [])
    late = TraceFilter(from_unix_s=START_UNIX_S + 1.5)
    assert of_trace(find_trace([str(trace)], late), late, problems).energy_j == 200.0


def test_a_finding_stands_from_firing_to_cleared(trace: Path) -> None:
    facts = facts_of(trace, "embedded")
    told = [Status.CLEARED, Status.FIRING, Status.FIRING, Status.CANNOT_TELL, Status.CLEARED, Status.FIRING]
    events = TraceEvents(facts, (), tuple((START_UNIX_S + at, finding(status)) for at, status in enumerate(told)))
    write_file(trace / "events" / HOUR / "01-test.parquet", events_table([events]), [facts])
    found = of_trace(find_trace([str(trace)], EVERYTHING), EVERYTHING, [])
    mine = [(each.unix_s - START_UNIX_S, each.until_unix_s) for each in found.findings if each.code == "host_overhead"]
    assert mine == [(1.0, START_UNIX_S + 4), (5.0, None)]


def test_a_damaged_file_beside_the_steps_is_one_line(trace: Path) -> None:
    (trace / "events" / HOUR / "02-test.parquet").write_bytes(b"PAR1")
    problems: list[str] = []
    found = of_trace(find_trace([str(trace)], EVERYTHING), EVERYTHING, problems)
    assert (len(problems), found.lost_steps, len(found.findings)) == (1, 12, 1)
    assert "02-test.parquet" in problems[0]


def test_events_of_other_engines_are_left_out(trace: Path) -> None:
    chosen = TraceFilter(engines=("embedded",))
    found = of_trace(find_trace([str(trace)], chosen), chosen, [])
    assert (found.events, found.findings, found.lost_steps) == ((), (), 0)
