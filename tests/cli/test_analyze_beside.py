"""What a trace holds beside steps, in the report: energy of the engines' devices, findings that stand, damaged rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from recorded_trace import HOUR, made_trace

from rooflens.cli.analysis.beside import of_ring, of_trace
from rooflens.collector.trace.beside import counters_table, events_table
from rooflens.collector.trace.file import write_file
from rooflens.collector.trace.files import find_trace
from rooflens.device_records import CounterSource, DeviceFacts, DeviceSample
from rooflens.findings import Code, Finding, Severity, Status
from rooflens.records import RingEvent, StepTable
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


def test_what_copied_files_and_a_second_sidecar_tell_counts_once(trace: Path) -> None:
    """The other sidecar samples half a second later, and stamps the event of the ring with its own anchor."""
    folder = trace / "counters" / HOUR
    device = DeviceFacts("GPU-1", CounterSource.NVML)

    def samples(late_s: float, count: int) -> TraceCounters:
        made = (
            (START_UNIX_S + at + late_s, DeviceSample("GPU-1", CounterSource.NVML, at, at + 1.0, energy_j=200.0))
            for at in range(count)
        )
        return TraceCounters("host-a", device, tuple(made))

    for name, late_s in [("00", 0.0), ("01", 0.0), ("02", 0.5)]:
        write_file(folder / f"{name}-test.parquet", counters_table([samples(late_s, 4)]), [])
    facts = facts_of(trace, "embedded")
    for name, late_s in [("01", 0.0), ("02", 0.0), ("03", 0.001)]:
        event = (START_UNIX_S + late_s, RingEvent(7, 3.0, "trace_gap", {"steps": 5}))
        write_file(
            trace / "events" / HOUR / f"{name}-test.parquet", events_table([TraceEvents(facts, (event,))]), [facts]
        )
    found = of_trace(find_trace([str(trace)], EVERYTHING), EVERYTHING, [])
    assert found.energy_j == pytest.approx(900.0)  # 4.5 s at 200 W
    assert (found.lost_steps, len(found.events)) == (12 + 5, 2)


def test_events_of_a_ring_keep_the_clock_that_they_had() -> None:
    """The wall clock is set back by 30 s between the second step and the third."""
    times = np.array([100.0, 101.0, 102.0, 103.0])
    steps = StepTable({"unix_s": times + 1e9 - np.array([0, 0, 30, 30]), "output_monotonic_s": times})
    events = [RingEvent(at, 99.5 + at, "sleep", {}) for at in range(4)]
    found = of_ring(steps, events, "m/0@h", 0, EVERYTHING)
    assert [event.unix_s - 1e9 for event in found.events] == [99.5, 100.5, 101.5, 72.5]


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
