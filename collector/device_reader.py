"""A worker's ring of device times followed live: its newest spans, and which of them belong to a stretch of steps."""

from __future__ import annotations

from collections import deque
from pathlib import Path

from rooflens.collector.device_spans import KIND, join_device, spans_of, started_by
from rooflens.collector.ring_file import RingFile
from rooflens.records import DeviceSpan, RooflensError, StepTable
from rooflens.ring import DEVICE_SPAN, EVENT, RingHeader

KEPT_SPANS = 8192  # of each worker: more than the steps of the longest window and of those in flight beside it
AROUND_S = 0.5  # spans of the steps before and after a stretch help to tell which one is whose


class DeviceReader:
    """Reads one worker's ring from where it left off; keeps the newest KEPT_SPANS spans."""

    def __init__(self, path: Path) -> None:
        """Open ``path`` a little before its live end; RooflensError in one line if it is no such ring."""
        self.path = path
        self._file = RingFile(path)
        try:
            facts = self._file.facts()
            if facts is None or facts.get("kind") != KIND:
                raise RooflensError(f"{path} is no ring of device times: those end in .device")
            self._facts = facts
            self._after = max(0, self._file.state().sequence - KEPT_SPANS)
        except BaseException:
            self._file.close()
            raise
        self._spans: deque[DeviceSpan] = deque(maxlen=KEPT_SPANS)

    def belongs_to(self, engine: RingHeader) -> bool:
        """As DeviceRing.belongs_to."""
        return started_by(engine, self._file.header, self._facts)

    @property
    def device_uuids(self) -> tuple[str, ...]:
        """The devices that the worker says it runs on."""
        told = self._facts.get("device_uuids")
        return tuple(uuid for uuid in told if isinstance(uuid, str)) if isinstance(told, list) else ()

    def read(self) -> None:
        """Take in what is new."""
        found = self._file.slots(self._after)
        self._after = found.last
        slots = found.slots
        timed = (slots["frame"] == EVENT) & ((slots["flags"] & DEVICE_SPAN) != 0)
        self._spans.extend(spans_of(slots[timed]))

    def live(self) -> bool:
        """Whether the worker still holds its ring."""
        return self._file.live()

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()

    def join(self, steps: StepTable) -> StepTable:
        """The steps with ``device_s`` where it is clear; as they are where none of this worker's spans is near."""
        if not len(steps):
            return steps
        first_s = float(steps["submit_monotonic_s"][0]) - AROUND_S
        last_s = float(steps["output_monotonic_s"][-1]) + AROUND_S
        near = [s for s in self._spans if s.end_monotonic_s >= first_s and s.start_monotonic_s <= last_s]
        return join_device(steps, near) if near else steps
