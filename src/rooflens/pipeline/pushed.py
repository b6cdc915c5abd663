"""What engines push as a feed: the slots that were handed over read as a ring's are, on this host's clock."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rooflens.adapters.push.receiver import Receiver
from rooflens.adapters.push.sender import DIED_S, SILENT_S, Handed
from rooflens.analyzer.spans import spans_of_engine
from rooflens.collector.handed_slots import HandedSlots
from rooflens.collector.ring_file import InFlight
from rooflens.collector.ring_source import CLOCK_JUMP_S, SlotSource
from rooflens.collector.tables import concatenated
from rooflens.live_records import Progress, SourceHealth, SourceKind, State
from rooflens.pipeline.movement import Movement
from rooflens.protocols import Batch, Keyframe
from rooflens.records import EngineInfo, RingEvent, StepTable

NAME = "/api/v1/push"


class PushFeed:
    """The engines that push to a receiver; see protocols.Feed. ``failures`` are bodies, steps, events not taken."""

    kind = SourceKind.PUSH
    here = False  # a batch says it of its engine

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self.failures = 0
        self._engines: dict[str, _Engine] = {}

    def start(self) -> None:
        """Nothing to start: the HTTP server hands over."""

    def close(self) -> None:
        """Forget what was handed over."""
        self._receiver.taken()
        self._engines.clear()

    def read(self) -> list[Batch]:
        """What came since the last call, a batch for each run; one that ended or died comes a last time."""
        for handed in self._receiver.taken():
            instance = handed.info.instance
            if instance not in self._engines:
                self._engines[instance] = _Engine(handed.info)
            self._engines[instance].take(handed)
        self.failures = self._receiver.failures
        now_s = time.monotonic()
        batches = []
        for instance, engine in list(self._engines.items()):
            batch, over = engine.batch(now_s)
            batches.append(batch)
            if over:
                del self._engines[instance]
        return batches

    def health(self) -> SourceHealth:
        """Whether anybody pushes, and what was last refused."""
        return SourceHealth(
            name=NAME,
            kind=self.kind,
            state=State.LIVE,
            last_read_unix_s=self._receiver.last_unix_s,
            problem=self._receiver.problem,
        )


class _Engine:
    """One run: its slots into a table, and how it is."""

    def __init__(self, info: EngineInfo) -> None:
        self._file = HandedSlots(info)
        self._source = SlotSource(self._file, spans_of=spans_of_engine)
        self._movement = Movement()
        self._last: Handed | None = None
        self._output_s = self._known_s = 0.0
        self._wall_s: float | None = None
        self._batches: list[Batch] = []

    def take(self, handed: Handed) -> None:
        """One body, in the order in which they came."""
        if handed.info != self._file.facts:
            self._file.facts = handed.info
            self._source.know(handed.info)
        self._file.hand(handed.slots, handed.payloads, handed.lost_steps)
        read = self._source.read()
        wall_s = time.time() - time.monotonic()
        steps = self._mapped(read.steps, handed, wall_s)
        events = tuple(
            replace(event, monotonic_s=max(0.0, event.monotonic_s + handed.offset_s)) for event in read.events
        )
        if self._wall_s is not None and abs(wall_s - self._wall_s) >= CLOCK_JUMP_S:
            last = int(read.steps["sequence"][-1]) if len(read.steps) else 0
            jump = {"jump_s": round(wall_s - self._wall_s, 6)}
            events = (*events, RingEvent(last, handed.received_s, "clock_jump", jump))
        self._wall_s, self._last = wall_s, handed
        self._known_s = max(self._known_s, handed.sent_s + handed.offset_s)
        batch = replace(read, steps=steps, events=events, complaints=handed.complaints)
        self._movement.follow(batch)
        self._batches.append(batch)

    def batch(self, now_s: float) -> tuple[Batch, bool]:
        """All that came since the last call, and whether the run is over."""
        batches, self._batches = self._batches, []
        last = self._last
        assert last is not None
        silent_s = now_s - last.received_s
        state = State.ENDED if last.ended else State.DIED if silent_s > DIED_S else State.LIVE
        if state is State.LIVE and silent_s > SILENT_S:
            state = State.UNREACHABLE
        joined = Batch(
            info=last.info,
            steps=concatenated([each.steps for each in batches]),
            events=tuple(event for each in batches for event in each.events),
            lost_steps=sum(each.lost_steps for each in batches),
            complaints=tuple(dict.fromkeys(line for each in batches for line in each.complaints)),
            progress=self._progress(state, last),
            here=last.here,
            known_until_monotonic_s=self._known_s,
            keyframe=_keyframe(batches),
        )
        return joined, state in (State.ENDED, State.DIED)

    def _progress(self, state: State, last: Handed) -> Progress:
        stamps = [] if last.in_flight is None else [InFlight(1, *last.in_flight)]
        return self._movement.progress(state, stamps, self._known_s, last.info)

    def _mapped(self, steps: StepTable, handed: Handed, wall_s: float) -> StepTable:
        """The steps on this host's clock; durations stay those of the sender's, and no output lies before the last."""
        columns: dict[str, NDArray[Any]] = dict(steps.columns)
        known = dict(steps.known)
        if not len(steps):
            return steps
        output = np.maximum.accumulate(np.maximum(columns["output_monotonic_s"] + handed.offset_s, self._output_s))
        self._output_s = float(output[-1])
        columns["submit_monotonic_s"] = np.minimum(columns["submit_monotonic_s"] + handed.offset_s, output)
        columns["output_monotonic_s"] = output
        columns["unix_s"] = output + wall_s
        if handed.jumped:
            mask = steps.where("observed_s").copy()
            mask[0] = False
            known["observed_s"] = mask
        return StepTable(columns, known)


def _keyframe(batches: Sequence[Batch]) -> Keyframe | None:
    """The last one, in the table of all their steps."""
    found, rows = None, 0
    for batch in batches:
        found = batch.keyframe.moved(rows) if batch.keyframe is not None else found
        rows += len(batch.steps)
    return found
