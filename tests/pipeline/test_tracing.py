"""What a watch hands to its trace: every step of every ring once, over restarts of sidecar and engine, and the rest."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli.test_sidecar_log import Writer as LogWriter
from counted_calls import calls_of
from logs.log_lines import CONFIG as CONFIG_LINE
from logs.log_lines import FITS, POOL
from made_engine import CONFIG, made_engine
from pipeline.made_pages import URL, Site
from pipeline.made_probes import MadeProbe, facts, sample, sampled, wait_for
from pipeline.made_trace import MadeWriter, same_steps

from rooflens.adapters import recorder as recorder_module
from rooflens.adapters.logs.follow import LogFeed
from rooflens.adapters.recorder import Recorder
from rooflens.analyzer.hardware import find_hardware
from rooflens.findings import Status
from rooflens.live_records import SourceKind
from rooflens.pipeline.recording import lay_beside, read_ring
from rooflens.pipeline.tracing import TraceTo
from rooflens.pipeline.watch import Watch
from rooflens.ring_folder import create_ring
from rooflens.trace_tables import TraceState

MakeWatch = Callable[..., Watch]


@pytest.fixture
def writer() -> MadeWriter:
    return MadeWriter()


@pytest.fixture
def traced(watch: MakeWatch, folder: Path) -> Callable[..., Watch]:
    """Makes a Watch that keeps a trace in ``writer`` and its cursors in a folder of the test."""

    def make(writer: MadeWriter, **settings: Any) -> Watch:
        return watch(**{"trace": TraceTo(writer, "/trace"), "state": folder / "state", **settings})

    return make


def steps_there(writer: MadeWriter, count: int) -> None:
    wait_for(lambda: len(writer.steps) >= count, f"{count} steps in the trace, not {len(writer.steps)}")


def test_every_step_of_a_ring_is_there_once_with_the_bounds_that_analyze_finds(
    traced: MakeWatch, folder: Path, writer: MadeWriter
) -> None:
    with made_engine(folder) as engine:
        engine.steps(500)
        it = traced(writer)
        it.turn()
        engine.steps(30)
        it.turn()
        engine.event("load_ended")
        engine.steps(7)
        it.turn()
        steps_there(writer, 537)
        recording = read_ring(engine.path)
        same_steps(writer.steps, recording.steps)
        in_order = sorted(writer.events, key=lambda event: event.sequence)  # old and new steps come by two threads
        assert [event.name for event in in_order] == [event.name for event in recording.events]
        assert "load_ended" in {event.name for event in writer.events}
        (told,) = {(rows.facts.run, rows.facts.digest, rows.facts.label) for rows in writer.rows}
        assert told[2].startswith("llama/0@")
        _, analysis, _ = lay_beside(recording, find_hardware("h100-sxm5-80"))
        assert analysis is not None
        for rows in writer.rows:
            assert rows.analysis is not None
            place = rows.steps["sequence"] - 1 - (rows.steps["sequence"] > 530)  # the event has a sequence too
            np.testing.assert_allclose(rows.analysis.floor_s, analysis.floor_s[place])
            assert rows.analysis.floor_s.base is None, "no row keeps 511 others in memory"


def test_devices_are_those_of_the_engine_where_the_hardware_is_not_known(
    traced: MakeWatch, folder: Path, writer: MadeWriter
) -> None:
    with made_engine(folder, tensor_parallel=4, pipeline_parallel=2) as engine:
        engine.steps(20)
        it = traced(writer, hardware=None)
        it.turn()
        steps_there(writer, 20)  # taken from the ring
        engine.steps(5)
        it.turn()
        steps_there(writer, 25)
        assert {rows.facts.devices for rows in writer.rows} == {8}


def test_over_restarts_each_step_once_and_what_was_overwritten_is_said(
    traced: MakeWatch, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder_module, "create_ring", partial(create_ring, sizes=((256, 1 << 16),)))
    with Recorder("made", folder=folder, strict=True, model_name="llama", model_config=CONFIG) as recorder:

        def steps(count: int) -> None:
            for _ in range(count):
                with recorder.step(contexts=[100, 200]) as step:
                    step.done()

        first, second, third, fourth = (MadeWriter() for _ in range(4))
        it = traced(first)
        it.turn()
        steps(100)
        it.turn()
        first.write()
        steps(50)
        it.turn()  # these were never written: the sidecar is killed here
        assert len(first.steps) == 150
        again = traced(second)
        again.turn()
        steps_there(second, 50)
        steps(10)
        again.turn()
        assert second.steps["sequence"].tolist() == [*range(101, 161)]
        again.close()
        steps(300)
        third_time = traced(third)
        third_time.turn()
        steps_there(third, 256)
        assert third.steps["sequence"].tolist() == [*range(205, 461)]
        (event,) = third.events
        assert (event.name, event.sequence, event.detail) == ("trace_gap", 160, {"steps": 44})
        third_time.close()
        last = traced(fourth)
        last.turn()
        steps(1)
        last.turn()
        assert fourth.steps["sequence"].tolist() == [461]
        assert fourth.events == []


def test_a_ring_whose_engine_died_meanwhile_is_taken_once(traced: MakeWatch, folder: Path) -> None:
    writer, other = MadeWriter(), MadeWriter()
    with made_engine(folder) as engine:
        engine.steps(40)
        engine.kill()
        it = traced(writer)
        it.turn()
        steps_there(writer, 40)
        same_steps(writer.steps, read_ring(engine.path).steps)
        assert {rows.facts.label.partition("@")[0] for rows in writer.rows} == {"llama/0"}
        it.close()
        again = traced(other)
        again.turn()
        again.close()
        assert other.items == []


def test_without_a_state_folder_it_begins_at_the_live_end(traced: MakeWatch, folder: Path, writer: MadeWriter) -> None:
    with made_engine(folder) as engine:
        engine.steps(20)
        it = traced(writer, state=None)
        it.turn()
        engine.steps(5)
        it.turn()
        it.close()
        assert writer.steps["sequence"].tolist() == [*range(21, 26)]


def test_once_a_second_a_step_has_its_lengths(traced: MakeWatch, folder: Path, writer: MadeWriter) -> None:
    with made_engine(folder) as engine:
        engine.steps(200, step_s=0.02)  # four seconds, taken from the ring
        it = traced(writer)
        it.turn()
        steps_there(writer, 200)
        old = [(rows, row) for rows in writer.rows for row in rows.keyframes]
        assert 3 <= len(old) <= 6
        engine.steps(3)
        it.turn()
        engine.steps(3)
        it.turn()
        live = [(rows, row) for rows in writer.rows for row in rows.keyframes][len(old) :]
        assert len(live) == 1, "two turns of the same second"
        for rows, row in old + live:
            contexts, queries = rows.keyframes[row]
            assert (sum(contexts), sum(queries)) == (rows.steps["context_tokens"][row], rows.steps["query_tokens"][row])


def test_a_finding_is_kept_when_it_begins_and_when_it_ends(traced: MakeWatch, folder: Path, writer: MadeWriter) -> None:
    with made_engine(folder) as engine:
        it = traced(writer)
        for _ in range(8):
            engine.steps(60, step_s=0.01, gap_s=0.03)  # more host than engine
            it.turn()
        begun = [finding for finding in writer.findings if finding.status is Status.FIRING]
        assert begun
        assert len({finding.code for finding in begun}) == len(begun), "each once, not every turn"
        engine.kill()
        it.turn()
        ended = {finding.code for finding in writer.findings if finding.status is not Status.FIRING}
        assert ended == {finding.code for finding in begun}


def test_samples_of_devices_that_engines_run_on(traced: MakeWatch, folder: Path, writer: MadeWriter) -> None:
    probe = MadeProbe(facts("GPU-1"), facts("GPU-2"))
    it = traced(writer, probes=(sampled(probe),))
    with made_engine(folder, device="cuda", device_uuids=["GPU-1"]) as engine:
        engine.steps(5)
        it.turn()
        wait_for(lambda: it.turn() and it.snapshot.devices, "the device")
        now_s = time.monotonic()
        probe.put(sample(now_s - 1.0, now_s, "GPU-1"), sample(now_s - 1.0, now_s, "GPU-2"))
        wait_for(lambda: it.turn() and writer.counters, "a sample")
    (found,) = writer.counters
    assert found.device.uuid == "GPU-1"
    ((unix_s, _),) = found.samples
    assert unix_s == pytest.approx(time.time() - time.monotonic() + now_s, abs=0.1)


def test_a_page_is_kept_too_under_a_run_of_its_own(traced: MakeWatch, site: Site) -> None:
    runs = set()
    for _ in range(2):
        writer = MadeWriter()
        it = traced(writer, scrape_urls=(URL,))
        it.turn()
        site.tell(0)
        it.turn()
        for total in (100, 250):
            site.tell(total)
            it.turn()
        assert writer.steps["sequence"].tolist() == [1, 2]
        assert writer.steps["resolution_steps"].tolist() == [100, 150]
        assert writer.steps.has("unix_s")
        ((run, source),) = {(rows.facts.run, rows.facts.source) for rows in writer.rows}
        assert source is SourceKind.METRICS
        runs.add(run)
        it.close()
        site.pages.clear()
    assert len(runs) == 2, "its steps are numbered anew, so they are another run's"


def test_a_log_is_kept_too_and_its_path_is_not(traced: MakeWatch, tmp_path: Path, writer: MadeWriter) -> None:
    log = tmp_path / "server.log"
    it = traced(writer, use_rings=False, feeds=(LogFeed(str(log)),))
    it.turn()
    lines = LogWriter(log)
    log.write_text("\n".join([CONFIG_LINE, POOL, FITS, ""]))

    def two_intervals() -> bool:
        lines.line(100.0)
        it.turn()
        return len(writer.steps) >= 2

    wait_for(two_intervals, "intervals of the log")
    (facts,) = {rows.facts.digest: rows.facts for rows in writer.rows}.values()
    assert facts.source is SourceKind.LOG
    assert str(tmp_path) not in str(facts.to_json())
    assert writer.steps["resolution_steps"].min() > 1


def test_a_fault_of_the_trace_takes_nothing_with_it(traced: MakeWatch, folder: Path, writer: MadeWriter) -> None:
    writer.raises = ValueError("no such thing")
    it = traced(writer)
    with made_engine(folder) as engine:
        engine.steps(9)
        snapshot = it.turn()
        assert len(snapshot.engines[0].recent) == 9
        (line,) = snapshot.problems
        assert line == "trace: something was not kept (ValueError: no such thing): please report it"
        writer.raises = None
        engine.steps(1)
        assert it.turn().problems == ()


def test_what_it_costs_does_not_grow_with_the_steps(traced: MakeWatch, folder: Path, writer: MadeWriter) -> None:
    with made_engine(folder) as engine:
        it = traced(writer)
        it.turn()
        (watched,) = it._engines.values()
        taken: list[tuple[Any, Any]] = []
        tap = watched.tap
        watched.tap = lambda batch, analysis: taken.append((batch, analysis))
        for count in (10, 1000):
            engine.steps(count)
            it.turn()
        tap(*taken[0])
        calls = [calls_of(lambda each=each: tap(*each)) for each in taken]  # type: ignore[misc]
        assert calls[1] <= calls[0] < 400


def test_how_the_writer_does_is_told(traced: MakeWatch, writer: MadeWriter) -> None:
    it = traced(writer)
    writer.told = TraceState(7, 700, 2, 3, 1, 12.5, "trace folder /trace: no space left on device")
    snapshot = it.turn()
    assert snapshot.problems == ("trace folder /trace: no space left on device",)
    found = {s.metric.name: s.value for s in snapshot.samples if "_trace_" in s.metric.name}
    assert found == {
        "rooflens_trace_rows_total": 7.0,
        "rooflens_trace_written_bytes_total": 700.0,
        "rooflens_trace_files_total": 2.0,
        "rooflens_trace_dropped_rows_total": 3.0,
        "rooflens_trace_failures_total": 1.0,
        "rooflens_trace_oldest_unwritten_seconds": 12.5,
    }
    it.close()
    assert writer.closed


def test_without_a_trace_there_is_no_series_of_one(watch: MakeWatch) -> None:
    assert not [s for s in watch().turn().samples if "_trace_" in s.metric.name]
