"""One ring that is followed: from its live end or its start, until its engine is gone."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from rooflens.analyzer.spans import spans_of_engine
from rooflens.collector.ring_source import RingSource
from rooflens.collector.tables import concatenated, empty_table
from rooflens.live_records import SourceHealth, SourceKind, State
from rooflens.pipeline.movement import Movement
from rooflens.protocols import Batch
from rooflens.records import EngineInfo, RingEvent, RooflensError, StepTable
from rooflens.trace_records import run_of_ring

# Read before the live end and not counted: a keyframe, which comes every second, is among them, and with it the
# lengths of the first steps that count.
PRIMED_STEPS = 1024


class RingReader:
    """Reads one ring. ``run`` names this run of the engine, ``state`` is how it was at the last read.

    ``watched_from_s`` is the monotonic moment from which the engine counts as watched. ``before`` are steps from
    before it: to be shown, never counted. ``attached_at`` is the sequence of the last of them, None of a ring that is
    read from its start.
    """

    def __init__(self, path: Path, run: str, from_start: bool) -> None:
        """Open the ring; RooflensError in one line if it cannot be read."""
        self.path, self.run = path, run
        self.state = State.LIVE
        self.problem: str | None = None
        self.before: StepTable = empty_table()
        self.attached_at: int | None = None
        self._movement = Movement()
        self._read_unix_s: float | None = None
        self._read_s: float | None = None
        self._first: Batch | None = None
        self._source = RingSource(path, spans_of=spans_of_engine)
        self.header = self._source.file.header
        self.rank, self.created_unix_s = self.header.rank, self.header.created_unix_ns / 1e9
        self.watched_from_s = self.header.created_monotonic_ns / 1e9
        try:
            self.live = self._source.file.live()
            self.pid = self._source.file.holder()  # of this host's numbers; the header has those of its own namespace
            if not from_start:
                self._attach()
        except BaseException:
            self._source.close()
            raise

    @property
    def lasting_name(self) -> str:
        """What every sidecar calls this ring, before and after a restart."""
        return run_of_ring(self.path.name, self.header.created_unix_ns)

    @property
    def info(self) -> EngineInfo | None:
        """The engine's facts as last told; None if there are none."""
        return self._source.info

    def _attach(self) -> None:
        """Pass over what was recorded before now."""
        self.watched_from_s = time.monotonic()
        state = self._source.file.state()
        primed = min(PRIMED_STEPS, self._source.file.header.slot_count // 2)
        self._source.close()
        self._source = RingSource(self.path, after=max(0, state.sequence - primed), spans_of=spans_of_engine)
        batch = self._source.read()
        new = batch.steps["sequence"] > state.sequence
        self.before = batch.steps.take(~new)
        self._movement.follow(batch)
        events = tuple(event for event in batch.events if event.sequence > state.sequence)
        self.attached_at = state.sequence
        keyframe = batch.keyframe and batch.keyframe.moved(-len(self.before))
        self._first = replace(
            batch, steps=batch.steps.take(new), events=events, lost_steps=0, torn_steps=0, keyframe=keyframe
        )

    def read(self) -> Batch:
        """What is new, with the engine's progress; sets ``state``. RooflensError if the ring is damaged meanwhile."""
        started_s = time.perf_counter()
        file = self._source.file
        self.live = file.live()  # before the steps: those of an engine that ends meanwhile come with the next read
        stamps = file.in_flight()  # before the steps too, so that none that ends meanwhile is taken for open
        now_s = time.monotonic()
        batch = self._source.read()
        if not self.live:
            self.state = State.ENDED if file.state().closed else State.DIED
        self._movement.follow(batch)
        first, self._first = self._first, None
        if first is not None and (len(first.steps) or first.events):
            batch = _joined(first, batch)
        progress = self._movement.progress(self.state, stamps, now_s, self.info)
        if len(batch.steps) or batch.events:
            self._read_unix_s = time.time()
        self._read_s = time.perf_counter() - started_s
        return replace(batch, progress=progress)

    def fail(self, problem: str) -> None:
        """The ring cannot be read any more."""
        self.problem = problem
        if self.state is State.LIVE:
            self.state = State.DIED

    def health(self) -> SourceHealth:
        """How the ring is doing."""
        return SourceHealth(
            name=self.path.name,
            kind=SourceKind.RING,
            state=self.state,
            engines=1,
            last_read_unix_s=self._read_unix_s,
            read_s=self._read_s,
            problem=self.problem,
        )

    def close(self) -> None:
        """Let go of the file."""
        self._source.close()


def _joined(first: Batch, then: Batch) -> Batch:
    events: tuple[RingEvent, ...] = first.events + then.events
    keyframe = then.keyframe.moved(len(first.steps)) if then.keyframe is not None else first.keyframe
    return replace(then, steps=concatenated([first.steps, then.steps]), events=events, keyframe=keyframe)


def said(error: Exception, path: Path) -> str:
    """One line for a ring that cannot be read, whatever went wrong."""
    return str(error) if isinstance(error, RooflensError) else f"{path}: cannot be read ({type(error).__name__})"
