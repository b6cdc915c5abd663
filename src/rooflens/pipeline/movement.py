"""Whether an engine moves, by its steps and events: asleep, idle, at rest, or with a step open."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from rooflens.collector.ring_file import InFlight
from rooflens.live_records import Load, Progress, State
from rooflens.pipeline.recording import open_step
from rooflens.pipeline.time_parts import leaves_nothing
from rooflens.protocols import Batch
from rooflens.records import EngineInfo, StepKind

FALLS_ASLEEP, WAKES_UP = ("sleep", "pause_scheduler"), ("wake_up", "resume_scheduler")
# Hooks that count the queue after a step's results were taken in: what is left then is still to be worked on. Others
# may count before, and would look as if they stood still when they have nothing to do.
COUNT_WHAT_IS_LEFT = ("vllm",)
ALL_ENDED = "requests_ended"  # told when requests ended after the last step, and none runs any more
LOST_TRACK = {"hook_failed", "hook_off"}  # told when steps were not: what they left is not known


class Movement:
    """Remembers what the last step and the last event of one engine say of its state."""

    def __init__(self) -> None:
        self.moved_s = 0.0
        self._last_submit_s = 0.0
        self._asleep = False
        self._left = False
        self._nothing = self._all_ended = False
        self._last_sequence = 0

    def follow(self, batch: Batch) -> None:
        """Take what one read brought."""
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
            self.moved_s = max(self.moved_s, float(batch.steps["output_monotonic_s"][-1]))
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
        self.moved_s = max([self.moved_s, *(event.monotonic_s for event in batch.events)])

    def progress(self, state: State, stamps: Sequence[InFlight], now_s: float, info: EngineInfo | None) -> Progress:
        """How it is at ``now_s``; ``stamps`` are the steps that were handed over, committed or not."""
        opened = None if state is State.ENDED else open_step(stamps, self._last_submit_s)
        progress = Progress(state, asleep=self._asleep)
        if opened is None:
            return self._at_rest(progress, now_s, info)
        age_s = max(0.0, now_s - opened.submit_monotonic_s)
        return replace(progress, open_age_s=age_s, open_tokens=opened.tokens, open_requests=opened.requests, idle_s=0.0)

    def _at_rest(self, progress: Progress, now_s: float, info: EngineInfo | None) -> Progress:
        """With what is known of an engine that has no step open."""
        rests_s = max(0.0, now_s - self.moved_s)
        if info is not None and info.engine in COUNT_WHAT_IS_LEFT:
            progress = replace(progress, still_s=rests_s if self._left else 0.0, idle_s=0.0 if self._left else None)
        if self._nothing:
            progress = replace(progress, idle_s=rests_s)
        # The last step still had those that have ended since; what is left of the pool then is not told.
        return replace(progress, load=Load(now_s, running=0.0, waiting=0.0)) if self._all_ended else progress
