"""What one engine hands to a trace: its steps with their bounds, its events, its findings when they begin and end."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rooflens import __version__
from rooflens.findings import Code, Finding, Status
from rooflens.model_records import StepAnalysis
from rooflens.pipeline.analysed import columns_of, with_columns
from rooflens.protocols import Batch, Keyframe
from rooflens.records import RingEvent, StepTable
from rooflens.trace_records import TraceEvents, TraceFacts, TraceRows

if TYPE_CHECKING:
    from rooflens.pipeline.engine import WatchedEngine
    from rooflens.trace_records import TraceSink

# Workers tell the device time of a pass once a later one has begun: rows of an engine whose workers are timed are kept
# back for so long, and joined then.
HELD_S = 2.0
MOST_HELD_ROWS = 65_536
KEYFRAME_S = 1.0
GAP = "trace_gap"
Kept = dict[int, tuple[list[int], list[int]]]


class _Held(NamedTuple):
    since_s: float
    steps: StepTable
    analysis: StepAnalysis | None
    keyframes: Kept


class EngineTrace:
    """The tap of one watched engine; belongs to the thread of the loop.

    ``timed`` says whether its workers tell device times. ``put`` is told of the last sequence that went to the sink.
    """

    def __init__(
        self,
        engine: WatchedEngine,
        run: str,
        host: str,
        sink: TraceSink,
        timed: Callable[[], bool] | None = None,
        put: Callable[[str, int], None] = lambda run, last: None,
    ) -> None:
        self._engine, self._run, self._host, self._sink = engine, run, host, sink
        self._timed, self._put = timed, put
        self._made: TraceFacts | None = None
        self._made_of: tuple[Any, ...] = ()
        self._held: deque[_Held] = deque()
        self._firing: dict[Code, Finding] = {}
        self._keyframe_s = -KEYFRAME_S
        self._last = 0  # sequence

    @property
    def facts(self) -> TraceFacts:
        """Those of now; made anew only when the engine's facts or its roof are others."""
        engine = self._engine
        now = (engine.info, *engine.roof)
        if self._made is None or now != self._made_of:
            info, hardware, devices, problem = now
            self._made_of = now
            self._made = TraceFacts(
                run=self._run,
                host=self._host,
                model_name=engine.key[0],
                engine=engine.key[1],
                source=engine.source,
                info=info,
                hardware=hardware,
                devices=devices,
                roof_version=None if problem else __version__,
                problem=problem,
            )
        return self._made

    def take(self, batch: Batch, analysis: StepAnalysis | None) -> None:
        """What one read brought, with the bounds of its steps."""
        steps = batch.steps
        offset_s = offset_of(steps)
        if len(steps):
            steps = self._numbered(filled(steps, offset_s))
            keyframes = self._kept(batch.keyframe)
            if self._timed is not None and self._timed():
                self._held.append(_Held(time.monotonic(), steps, slim(analysis), keyframes))
            else:
                self._release(time.monotonic(), all_of_it=True)
                self._rows(steps, slim(analysis), keyframes)
        events = batch.events
        if batch.lost_steps:
            at = int(steps["sequence"][0]) - 1 if len(steps) else self._last
            at_s = float(steps["output_monotonic_s"][0]) if len(steps) else time.monotonic()
            events = (gap(at, at_s, batch.lost_steps), *events)
        if events:
            stamped = tuple((event.monotonic_s + offset_s, event) for event in events)
            self._sink.put(TraceEvents(self.facts, events=stamped))

    def look(self, findings: Sequence[Finding]) -> None:
        """Once a turn: let go of rows that were kept back, and of findings what has begun, changed or ended."""
        self._release(time.monotonic(), all_of_it=False)
        firing = {finding.code: finding for finding in findings if finding.status is Status.FIRING}
        if firing or self._firing:
            now_unix_s = time.time()
            changed = [*_begun(self._firing, firing, now_unix_s), *_ended(self._firing, firing, findings, now_unix_s)]
            if changed:
                self._sink.put(TraceEvents(self.facts, findings=tuple(changed)))
        self._firing = firing

    def end(self, findings: Sequence[Finding] | None) -> None:
        """The engine is gone, ``findings`` are its last; None where only the sidecar ends, and they go on."""
        self._release(time.monotonic(), all_of_it=True)
        if findings is not None:
            self.look(findings)

    def _numbered(self, steps: StepTable) -> StepTable:
        """With the sequences of the source where they rise, else with a count of its own."""
        if steps.has("sequence"):
            numbers = steps["sequence"]
            if int(numbers[0]) > self._last and bool((np.diff(numbers) > 0).all()):
                self._last = int(numbers[-1])
                return steps
        numbers = np.arange(self._last + 1, self._last + 1 + len(steps), dtype=np.int64)
        self._last = int(numbers[-1])
        known = {name: mask for name, mask in steps.known.items() if name != "sequence"}
        return StepTable({**steps.columns, "sequence": numbers}, known)

    def _kept(self, keyframe: Keyframe | None) -> Kept:
        now_s = time.monotonic()
        if keyframe is None or now_s - self._keyframe_s < KEYFRAME_S * 0.9:  # a turn may come a little early
            return {}
        self._keyframe_s = now_s
        return {keyframe.row: (keyframe.contexts.tolist(), keyframe.queries.tolist())}

    def _release(self, now_s: float, all_of_it: bool) -> None:
        held = self._held
        while held and (all_of_it or now_s - held[0].since_s >= HELD_S or _rows_of(held) > MOST_HELD_ROWS):
            _, steps, analysis, keyframes = held.popleft()
            self._rows(self._engine.join(steps), analysis, keyframes)

    def _rows(self, steps: StepTable, analysis: StepAnalysis | None, keyframes: Kept) -> None:
        self._sink.put(TraceRows(self.facts, steps, analysis, keyframes))
        self._put(self._run, int(steps["sequence"][-1]))


def _rows_of(held: deque[_Held]) -> int:
    return sum(len(each.steps) for each in held)


def offset_of(steps: StepTable) -> float:
    """Unix less monotonic seconds: as the newest step has it, else as they are now."""
    if len(steps) and {"unix_s", "output_monotonic_s"} <= steps.columns.keys() and bool(steps.where("unix_s")[-1]):
        return float(steps["unix_s"][-1] - steps["output_monotonic_s"][-1])
    return time.time() - time.monotonic()


def filled(steps: StepTable, offset_s: float) -> StepTable:
    """With the wall time of every step."""
    if steps.has("unix_s"):
        return steps
    now_s = time.time()
    output_known = steps.where("output_monotonic_s")
    guessed = steps["output_monotonic_s"] + offset_s if output_known.any() else np.full(len(steps), now_s)
    guessed = np.where(output_known, guessed, now_s)
    said = steps.where("unix_s")
    unix_s = np.where(said, steps["unix_s"], guessed) if "unix_s" in steps.columns else guessed
    known = {name: mask for name, mask in steps.known.items() if name != "unix_s"}
    return StepTable({**steps.columns, "unix_s": unix_s}, known)


def slim(analysis: StepAnalysis | None) -> StepAnalysis | None:
    """Without the columns by operator group, which no trace keeps; none holds a longer array that it is a view of."""
    if analysis is None:
        return None
    bare = replace(analysis, group_s={}, group_bytes={}, group_flops={})
    own = {place: column.copy() for place, column in columns_of(bare).items() if column.base is not None}
    return with_columns(bare, own) if own else bare


def gap(sequence: int, monotonic_s: float, steps: int) -> RingEvent:
    """Steps behind ``sequence`` that were overwritten before anybody read them."""
    return RingEvent(sequence, monotonic_s, GAP, {"steps": steps})


def _begun(
    before: dict[Code, Finding], firing: dict[Code, Finding], now_unix_s: float
) -> Iterator[tuple[float, Finding]]:
    for code, finding in firing.items():
        if code not in before:
            yield (now_unix_s if finding.since_unix_s is None else finding.since_unix_s), finding
        elif before[code].severity is not finding.severity:
            yield now_unix_s, finding


def _ended(
    before: dict[Code, Finding], firing: dict[Code, Finding], findings: Sequence[Finding], now_unix_s: float
) -> Iterator[tuple[float, Finding]]:
    shown = {finding.code: finding for finding in findings}
    for code in before.keys() - firing.keys():
        finding = shown.get(code) or replace(before[code], status=Status.CLEARED, until_unix_s=now_unix_s)
        yield (now_unix_s if finding.until_unix_s is None else finding.until_unix_s), finding
