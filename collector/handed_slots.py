"""Slots that somebody hands over, read as a ring's are: those of an engine that pushes its steps."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from rooflens.collector.ring_file import Slots
from rooflens.records import EngineInfo
from rooflens.ring import EXTRA_FIELDS, SLOT_BYTES, SLOT_FIELDS

_FORMATS = [(name, f"<{kind}") for name, kind in SLOT_FIELDS]


class HandedSlots:
    """A collector.ring_source.SlotFile of what was handed over last; it forgets what was read.

    ``facts`` are those of the engine, as they are when the next slots are read.
    """

    state_damaged = False
    extras = EXTRA_FIELDS

    def __init__(self, facts: EngineInfo) -> None:
        self.facts = facts
        self.created = (time.monotonic(), time.time())
        self._slots: Sequence[bytes] = ()
        self._payloads: Sequence[bytes] = ()
        self._lost = 0

    def hand(self, slots: Sequence[bytes], payloads: Sequence[bytes], lost: int = 0) -> None:
        """Give the next slots, each of SLOT_BYTES, in order; the ``arena_offset`` of one is its place in ``payloads``.

        ``lost`` is how many steps before them never came.
        """
        self._slots, self._payloads, self._lost = slots, payloads, lost

    def info(self) -> EngineInfo | None:
        """The facts of the engine."""
        return self.facts

    def slots(self, after: int) -> Slots:
        """What was handed over; the sequences are the sender's to count."""
        raw = b"".join(self._slots)
        found = np.frombuffer(raw, np.dtype(_FORMATS)) if raw else np.empty(0, np.dtype(_FORMATS))
        assert found.dtype.itemsize == SLOT_BYTES
        last = int(found["sequence"][-1]) if len(found) else after
        self._slots = ()
        lost, self._lost = self._lost, 0
        return Slots(found, last, lost, 0)

    def payload(self, offset: int, size: int) -> bytes | None:
        """The payload of a slot."""
        return self._payloads[offset] if size and offset < len(self._payloads) else None

    def close(self) -> None:
        """Forget what is left."""
        self._slots, self._payloads = (), ()
