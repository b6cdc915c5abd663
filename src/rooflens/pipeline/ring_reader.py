"""One ring that is followed: from its live end or its start, until its engine is gone."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from rooflens.analyzer.spans import spans_of_engine
from rooflens.collector.ring_source import RingSource
from rooflens.collector.tables import concatenated, empty_table
from rooflens.live_records import Load, Progress, SourceHealth, SourceKind, State
from rooflens.pipeline.recording import open_step
from rooflens.pipeline.time_parts import leaves_nothing
from rooflens.protocols import Batch
from rooflens.records import EngineInfo, RingEvent, RooflensError, StepKind, StepTable

# Read before the live end and not counted: a keyframe, which comes every second, is among them, and with it the
# lengths of the first steps that count.
PRIMED_STEPS = 1024
FALLS_ASLEEP, WAKES_UP = ("sleep", "pause_scheduler"), ("wake_up", "resume_scheduler")
# Hooks that count the queue after a step's results were taken in: what is left then is still to be worked on. Others
# may count before, and would look as if they stood still when they have nothing to do.
COUNT_WHAT_IS_LEFT = ("vllm",)
ALL_ENDED = "requests_ended"  # told when requests ended after the last step, and none runs any more
LOST_TRACK = {"hook_failed", "hook_off"}  # told when steps were not: what they left is not known


class RingReader:
    """Reads one ring. ``run`` names this run of the engine, ``state`` is how it was at the last read.

    ``watched_from_s`` is the monotonic moment from which the engine counts as watched. ``before`` are steps from
    before it: to be shown, never counted.
    """

    def __init__(self, path: Path, run: str, from_start: bool) -> None:
        """Open the ring; RooflensError in one line if it cannot be read."""
        self.path, self.run = path, run
        self.state = State.LIVE
        self.problem: str | None = None
        self.before: StepTable = empty_table()
        self._last_submit_s = 0.0
        self._asleep = False
        self._moved_s = 0.0
        self._left = False
        self._nothing = self._all_ended = False
        self._last_sequence = 0
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
        self._follow(batch)
        events = tuple(event for event in batch.events if event.sequence > state.sequence)
        self._first = replace(batch, steps=batch.steps.take(new), events=events, lost_steps=0, torn_steps=0)

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
        self._follow(batch)
        first, self._first = self._first, None
        if first is not None and (len(first.steps) or first.events):
            batch = _joined(first, batch)
        opened = None if self.state is State.ENDED else open_step(stamps, self._last_submit_s)
        progress = Progress(self.state, asleep=self._asleep)
        if opened is not None:
            age_s = max(0.0, now_s - opened.submit_monotonic_s)
            progress = replace(
                progress, open_age_s=age_s, open_tokens=opened.tokens, open_requests=opened.requests, idle_s=0.0
            )
        else:
            progress = self._at_rest(progress, now_s)
        if len(batch.steps) or batch.events:
            self._read_unix_s = time.time()
        self._read_s = time.perf_counter() - started_s
        return replace(batch, progress=progress)

    def _at_rest(self, progress: Progress, now_s: float) -> Progress:
        """With what is known of an engine that has no step open."""
        rests_s = max(0.0, now_s - self._moved_s)
        if self.info is not None and self.info.engine in COUNT_WHAT_IS_LEFT:
            progress = replace(progress, still_s=rests_s if self._left else 0.0, idle_s=0.0 if self._left else None)
        if self._nothing:
            progress = replace(progress, idle_s=rests_s)
        # The last step still had those that have ended since; what is left of the pool then is not told.
        return replace(progress, load=Load(now_s, running=0.0, waiting=0.0)) if self._all_ended else progress

    def _follow(self, batch: Batch) -> None:
        """Remember what the last step and the last event say of the engine's state."""
        changes = [(event.monotonic_s, True) for event in batch.events if event.name in FALLS_ASLEEP]
        changes += [(event.monotonic_s, False) for event in batch.events if event.name in WAKES_UP]
        failed_s = [event.monotonic_s for event in batch.events if event.name == "step_failed"]
        if len(batch.steps):
            failed_s.append(float(batch.steps["submit_monotonic_s"].max()))
            real = np.flatnonzero(batch.steps["kind"] != StepKind.DUMMY)
            if len(real):  # it cannot run asleep; the word that it woke may have been lost
                changes.append((float(batch.steps["submit_monotonic_s"][real[-1]]), False))
        self._last_submit_s = max([self._last_submit_s, *failed_s])
        if changes:
            self._asleep = max(changes)[1]
        self._follow_queue(batch)

    def _follow_queue(self, batch: Batch) -> None:
        """Remember whether requests were left to work on when the engine last moved, and when that was."""
        if len(batch.steps):
            self._moved_s = max(self._moved_s, float(batch.steps["output_monotonic_s"][-1]))
            queues = (name for name in ("running", "waiting") if bool(batch.steps.where(name)[-1]))
            self._left = any(int(batch.steps[name][-1]) > 0 for name in queues)
            self._last_sequence = int(batch.steps["sequence"][-1])
            self._nothing, self._all_ended = bool(leaves_nothing(batch.steps)[-1]), False
        since = {event.name for event in batch.events if event.sequence > self._last_sequence}
        if ALL_ENDED in since:
            self._nothing = self._all_ended = True
        if since & {ALL_ENDED, *LOST_TRACK}:
            self._left = False
        if since & LOST_TRACK:
            self._nothing = self._all_ended = False
        self._moved_s = max([self._moved_s, *(event.monotonic_s for event in batch.events)])

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
    return replace(then, steps=concatenated([first.steps, then.steps]), events=events)


def said(error: Exception, path: Path) -> str:
    """One line for a ring that cannot be read, whatever went wrong."""
    return str(error) if isinstance(error, RooflensError) else f"{path}: cannot be read ({type(error).__name__})"
