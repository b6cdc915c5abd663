"""The trace of a watch: a tap at every engine, what happened before it was there, and how its writer is doing."""

from __future__ import annotations

import os
import secrets
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from rooflens import trace_metrics as metrics
from rooflens.collector.ring_file import RingFile
from rooflens.collector.state.cursors import Cursors
from rooflens.device_records import DeviceFacts, DeviceSample
from rooflens.findings import Finding
from rooflens.live_records import EngineView
from rooflens.metric_records import Sample
from rooflens.model_records import StepAnalysis
from rooflens.pipeline.devices import uuids_beside
from rooflens.pipeline.engine_trace import EngineTrace
from rooflens.pipeline.trace_cursors import TraceCursors
from rooflens.pipeline.trace_resume import Old, Resume
from rooflens.protocols import Batch
from rooflens.records import RooflensError
from rooflens.trace_records import RUN_DIGITS, TraceCounters, TraceSink, run_of_ring
from rooflens.trace_tables import TraceState

if TYPE_CHECKING:
    from rooflens.pipeline.engine import WatchedEngine
    from rooflens.pipeline.ring_reader import RingReader
    from rooflens.pipeline.watch_settings import WatchSettings

MOST_PROBLEMS = 4


class Writer(TraceSink, Protocol):
    """What keeps a trace; see collector.trace.writer.TraceWriter. Every thread may call it."""

    def on_written(self, callback: Callable[[Mapping[str, int]], None]) -> None:
        """Call this with {run: last sequence} once steps are safe, and with them all that was put before them."""
        ...

    def state(self) -> TraceState:
        """How it is doing."""
        ...

    def close(self) -> None:
        """Write what is there, within a time limit."""
        ...


@dataclass(frozen=True, slots=True)
class TraceTo:
    """Where a watch keeps its trace: ``place`` is a folder or the address of an object store, as its user gave it.

    ``unfinished`` are lines of what was not taken in time when the watch ended.
    """

    writer: Writer
    place: str
    unfinished: list[str] = field(default_factory=list)

    @property
    def identity(self) -> str:
        """The place, the same however it is written."""
        local = self.place.removeprefix("file://").removeprefix("local://")
        return self.place if "://" in local else os.path.realpath(os.path.expanduser(local))


class Tracing:
    """Belongs to the thread of the loop and never blocks it; without a writer it does nothing."""

    def __init__(self, settings: WatchSettings) -> None:
        self._writer = settings.trace.writer if settings.trace is not None else None
        self._host = socket.gethostname()
        self._started_unix_s = time.time()
        self._taps: dict[str, EngineTrace] = {}
        self._faults: dict[str, str] = {}
        self._samples: dict[str, tuple[DeviceFacts, list[tuple[float, DeviceSample]]]] = {}
        if settings.trace is None:
            return
        kept = Cursors(settings.state) if settings.state is not None else None
        self._cursors = TraceCursors(kept, settings.trace.identity)
        self._unfinished = settings.trace.unfinished
        settings.trace.writer.on_written(self._cursors.written)
        roof = (settings.hardware, settings.calibrations)
        self._resume = Resume(settings.trace.writer, self._cursors, self._host, roof, settings.model_config)

    def begin(
        self, run: str, engine: WatchedEngine, ring: RingReader | None = None, timed: Callable[[], bool] | None = None
    ) -> None:
        """Keep what this engine does from now on; of a ring also what it holds from before."""
        if self._writer is None:
            return
        # Other sources than rings number their steps anew when the sidecar begins, so their runs are its own.
        name = secrets.token_hex(RUN_DIGITS // 2)
        if ring is not None:
            name = ring.lasting_name
            self._cursors.follow(name)
            if self._cursors.kept and (ring.attached_at or 0) > (self._cursors.get(name) or 0):
                self._resume.add(Old(ring.path, name, ring.attached_at, engine.key, lambda: engine.device_uuids))
        tap = EngineTrace(engine, name, self._host, self._writer, timed, self._cursors.put)
        self._taps[run] = tap
        engine.tap = partial(self._take, run, tap)

    def _pass(self, path: Path) -> None:
        file = RingFile(path)
        file.close()
        run = run_of_ring(path.name, file.header.created_unix_ns)
        self._resume.add(Old(path, run, None, None, lambda: uuids_beside(path.parent, file.header)))

    def turn(self, views: Mapping[str, EngineView], passed: Sequence[Path] = ()) -> None:
        """The end of a turn of the loop: findings, and what was kept back.

        ``passed`` are rings whose engines were dead before the watch began: their last steps are taken once.
        """
        if self._writer is None:
            return
        for path in passed if self._cursors.kept else ():
            self._guarded(path.name, partial(self._pass, path))
        for run, tap in self._taps.items():
            view = views.get(run)
            if view is not None:
                self._guarded(f"{run} at the end of a turn", partial(tap.look, view.findings))
        if self._samples:
            samples, self._samples = self._samples, {}
            for facts, taken in samples.values():
                self._writer.put(TraceCounters(self._host, facts, tuple(taken)))

    def sampled(self, sample: DeviceSample, facts: DeviceFacts | None) -> None:
        """One sample of a device that an engine runs on."""
        if self._writer is not None:
            end_unix_s = time.time() - time.monotonic() + sample.end_monotonic_s
            told = facts or DeviceFacts(sample.uuid, sample.source)
            self._samples.setdefault(sample.uuid, (told, []))[1].append((end_unix_s, sample))

    def end(self, run: str, findings: Sequence[Finding]) -> None:
        """This engine is gone; ``findings`` are its last."""
        tap = self._taps.pop(run, None)
        if tap is not None:
            self._guarded(run, partial(tap.end, findings))

    def close(self) -> None:
        """Hand over what was kept back, and let the writer write it."""
        if self._writer is None:
            return
        self.turn({})
        for run, tap in self._taps.items():
            self._guarded(run, partial(tap.end, None))
        self._unfinished += [line for line in (self._resume.close(),) if line is not None]
        self._cursors.end()
        self._writer.close()

    @property
    def problems(self) -> tuple[str, ...]:
        """What hinders the trace, one line each."""
        if self._writer is None:
            return ()
        hindered = (self._writer.state().problem, self._cursors.problem)
        lines = (*hindered, *self._faults.values(), *self._resume.problems)
        return tuple(line for line in lines if line)[:MOST_PROBLEMS]

    def samples(self) -> Iterator[Sample]:
        """The series of the trace."""
        if self._writer is None:
            return
        state, since = self._writer.state(), self._started_unix_s
        yield Sample(metrics.TRACE_ROWS, (), float(state.rows_written), since)
        yield Sample(metrics.TRACE_DROPPED, (), float(state.dropped_rows), since)
        yield Sample(metrics.TRACE_BYTES, (), float(state.bytes_written), since)
        yield Sample(metrics.TRACE_FILES, (), float(state.files_written), since)
        yield Sample(metrics.TRACE_FAILURES, (), float(state.failures), since)
        if state.oldest_unwritten_s is not None:
            yield Sample(metrics.TRACE_AGE, (), state.oldest_unwritten_s)

    def _take(self, run: str, tap: EngineTrace, batch: Batch, analysis: StepAnalysis | None) -> None:
        self._guarded(run, partial(tap.take, batch, analysis))

    def _guarded(self, run: str, act: Callable[[], None]) -> None:
        """A fault of the trace is a line, and takes nothing else with it."""
        try:
            act()
            self._faults.pop(run, None)
        except Exception as error:
            self._faults.pop(run, None)
            report = f"something was not kept ({type(error).__name__}: {error}): please report it"
            self._faults[run] = f"trace: {error if isinstance(error, RooflensError) else report}"
            while len(self._faults) > MOST_PROBLEMS:
                del self._faults[next(iter(self._faults))]
