"""What a trace takes from rings as it begins: the steps behind its cursor that were recorded while nobody looked.

In a thread of its own, ring by ring. Only the trace resumes: metrics begin at the live end.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rooflens import __version__
from rooflens.analyzer.spans import spans_of_engine
from rooflens.calibration_records import Calibration
from rooflens.collector.ring_source import RingSource
from rooflens.collector.tables import concatenated
from rooflens.live_records import SourceKind
from rooflens.model_records import HardwareSpec
from rooflens.pipeline.engine_calibration import calibration_of_engine
from rooflens.pipeline.engine_roof import NOT_ITS_HARDWARE, analysed, devices_of, roofline_of
from rooflens.pipeline.engine_trace import KEYFRAME_S, Kept, gap, offset_of, slim
from rooflens.pipeline.labels import Key, model_name
from rooflens.pipeline.pages import with_model
from rooflens.pipeline.ring_reader import PRIMED_STEPS, said
from rooflens.protocols import Batch
from rooflens.records import EngineInfo, RingEvent
from rooflens.trace_records import TraceEvents, TraceFacts, TraceRows

if TYPE_CHECKING:
    from rooflens.pipeline.trace_cursors import TraceCursors
    from rooflens.pipeline.tracing import Writer

FEWEST_SLOTS, MOST_SLOTS = 32, 4096  # of one read: about a second's, for each has one keyframe
PIECE_STEPS = 4096  # that are analysed and handed over at once
MOST_WAITING_ROWS = 65_536  # handed over and not written; with more there would be no room for the steps of now
PACE_S = 0.25
PATIENCE_S = 3.0  # for the devices of an engine that neither it nor its workers name
CLOSE_S = 8.0  # on a busy machine the first bounds take seconds; with the writer's end it stays under 20 s
MOST_PROBLEMS = 4
UNFINISHED = (
    "trace: steps from before it began were not all taken from their rings before it ended: the next start takes them, "
    "as long as the rings hold them"
)


@dataclass(frozen=True, slots=True)
class Old:
    """A ring with steps from before the sidecar: up to sequence ``until``, None for all of one whose engine is dead.

    ``run`` is what the trace calls it, ``key`` its engine's label, None for one that was never watched. ``uuids`` asks
    which devices it is known to run on, the same that decide about the calibration of its steps of now.
    """

    path: Path
    run: str
    until: int | None
    key: Key | None
    uuids: Callable[[], tuple[str, ...]] = tuple


@dataclass(slots=True)
class _Piece:
    """What is to be handed over together."""

    batches: list[Batch] = field(default_factory=list)
    keyframes: Kept = field(default_factory=dict)
    events: list[tuple[float, RingEvent]] = field(default_factory=list)
    rows: int = 0


class Resume:
    """Takes old steps; ``problems`` are rings of which it could not, one line each."""

    def __init__(
        self,
        writer: Writer,
        cursors: TraceCursors,
        host: str,
        roof: tuple[HardwareSpec | None, Sequence[Calibration]],
        model_config: Mapping[str, Any] | None,
    ) -> None:
        self.problems: tuple[str, ...] = ()
        self._writer, self._cursors, self._host = writer, cursors, host
        self._roof, self._model_config = roof, model_config
        self._rings: queue.SimpleQueue[Old | None] = queue.SimpleQueue()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._handed_rows = 0

    def add(self, old: Old) -> None:
        """Take the steps of this ring; never waits."""
        self._cursors.older(old.run)  # before a step of now is handed over
        self._rings.put(old)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="rooflens-resume", daemon=True)
            self._thread.start()

    def close(self, timeout_s: float = CLOSE_S) -> str | None:
        """Take what is left if that is soon done, and stop; what was not taken comes when the trace begins again.

        The line that says so then, None where all was taken.
        """
        self._rings.put(None)
        if self._thread is None:
            return None
        self._thread.join(timeout_s)
        unfinished = self._thread.is_alive()
        self._stop.set()
        self._thread.join(PACE_S)
        return UNFINISHED if unfinished else None

    def _run(self) -> None:
        while (old := self._rings.get()) is not None and not self._stop.is_set():
            try:
                self._take(old)
            except Exception as error:
                self.problems = (*self.problems, f"trace: {said(error, old.path)}")[-MOST_PROBLEMS:]
                self._cursors.older_taken(old.run, old.until or 0)

    def _take(self, old: Old) -> None:
        """Read the ring from behind the cursor, and hand it over piece by piece."""
        source = RingSource(old.path)
        try:
            until = source.file.state().sequence if old.until is None else old.until
            cursor = self._cursors.get(old.run)
            if cursor is None or cursor < until:
                after = max(0, (cursor or 0) - PRIMED_STEPS)
                source.close()
                source = RingSource(old.path, after=after, spans_of=spans_of_engine)
                if not self._read(_Reading(source, cursor or 0, until, cursor is None), old):
                    return
            self._cursors.older_taken(old.run, until)
        finally:
            source.close()

    def _read(self, reading: _Reading, old: Old) -> bool:
        """Whether all of it was handed over."""
        piece = _Piece()
        while not self._stop.is_set():
            more = reading.into(piece)
            if piece.rows >= PIECE_STEPS or not more:
                if not self._hand(piece, old, reading.source):
                    return False
                piece = _Piece()
            if not more:
                return True
        return False

    def _hand(self, piece: _Piece, old: Old, source: RingSource) -> bool:
        while self._waiting_rows() + piece.rows > MOST_WAITING_ROWS:
            if self._stop.wait(PACE_S):
                return False
        info = with_model(source.info, self._model_config)
        steps = concatenated([batch.steps for batch in piece.batches])
        hardware, calibrations = self._roof
        calibration = calibration_of_engine(calibrations, self._uuids(old, info), here=True)
        roofline, problem = roofline_of(info, hardware, calibration)
        analysis = None
        if roofline is not None and info is not None and len(steps):
            analysis, problem = analysed(roofline, steps, info.engine, SourceKind.RING)
        facts = TraceFacts(
            run=old.run,
            host=self._host,
            model_name=old.key[0] if old.key else model_name(info),
            engine=old.key[1] if old.key else str(source.file.header.rank),
            source=SourceKind.RING,
            info=info,
            hardware=None if problem == NOT_ITS_HARDWARE else hardware,
            devices=devices_of(info),
            roof_version=None if problem else __version__,
            problem=problem,
        )
        if len(steps):
            self._writer.put(TraceRows(facts, steps, slim(analysis), piece.keyframes))
            self._handed_rows += len(steps)
        if piece.events:
            self._writer.put(TraceEvents(facts, events=tuple(piece.events)))
        return True

    def _uuids(self, old: Old, info: EngineInfo | None) -> tuple[str, ...]:
        """The devices of the engine; where they decide, a moment is waited for those that drivers tell of."""
        until_s = time.monotonic() + PATIENCE_S
        several = len({one.identity.device_uuid for one in self._roof[1]}) > 1
        while not (uuids := old.uuids() or (info.device_uuids if info is not None else ())):
            if not several or old.key is None or time.monotonic() >= until_s or self._stop.wait(PACE_S):
                break
        return uuids

    def _waiting_rows(self) -> int:
        """About how many of the rows handed over here are not written yet."""
        state = self._writer.state()
        return max(0, self._handed_rows - state.rows_written - state.dropped_rows)


class _Reading:
    """One ring's steps from behind ``cursor`` up to ``until``; those before it only tell the lengths of the first."""

    def __init__(self, source: RingSource, cursor: int, until: int, from_start: bool) -> None:
        self.source = source
        self._cursor, self._until, self._from_start = cursor, until, from_start
        self._slots = FEWEST_SLOTS
        self._keyframe_s = -KEYFRAME_S
        created_s, created_unix_s = source.file.created
        self._offset_s = created_unix_s - created_s

    def into(self, piece: _Piece) -> bool:
        """Read on; whether there is more."""
        source = self.source
        before = source.position
        source.file.most_slots = self._slots
        batch = source.read()
        self._lost(batch, before, piece)
        numbers = batch.steps["sequence"]
        wanted = (numbers > self._cursor) & (numbers <= self._until)
        skipped = int((numbers <= self._cursor).sum())
        keyframe = batch.keyframe and batch.keyframe.moved(-skipped)
        batch = replace(batch, steps=batch.steps.take(wanted), keyframe=keyframe)
        if len(batch.steps):
            self._offset_s = offset_of(batch.steps)
            self._keep(batch, piece)
            piece.batches.append(batch)
            piece.rows += len(batch.steps)
        piece.events += [
            (event.monotonic_s + self._offset_s, event)
            for event in batch.events
            if self._cursor < event.sequence <= self._until
        ]
        return before < source.position < self._until

    def _lost(self, batch: Batch, before: int, piece: _Piece) -> None:
        """Say what was overwritten; nobody missed what was there before the first trace."""
        overwritten = min(before + batch.lost_steps, self._until) - max(before, self._cursor)
        if batch.lost_steps and overwritten > 0 and not self._from_start:
            start = batch.steps["output_monotonic_s"][:1].tolist()
            event = gap(max(before, self._cursor), start[0] if start else time.monotonic(), overwritten)
            piece.events.append((event.monotonic_s + offset_of(batch.steps), event))
        self._from_start = False

    def _keep(self, batch: Batch, piece: _Piece) -> None:
        """A keyframe a second; the next read is of about a second's steps."""
        times = batch.steps["output_monotonic_s"]
        span_s = float(times[-1] - times[0])
        if span_s > 0:
            self._slots = min(MOST_SLOTS, max(FEWEST_SLOTS, round(len(times) / span_s)))
        frame = batch.keyframe
        if frame is not None and frame.row < len(times):
            at_s = float(times[frame.row])
            if at_s - self._keyframe_s >= KEYFRAME_S * 0.9:
                self._keyframe_s = at_s
                piece.keyframes[piece.rows + frame.row] = (frame.contexts.tolist(), frame.queries.tolist())
