"""Which slots of llama.cpp's server work at a time: it says when one is given a task, stops, and when none works.

Read in the server of 2024 (launch_slot_with_task, "slot released"), of 2025 and in build 10434 (launch_slot_, release).
"""

from __future__ import annotations

MARKS = (
    " | processing task",
    "slot is processing task",
    "all slots are idle",
    "initializing slots",
    "initializing, n_slots",
)
TAKEN, IDLE, START = "processing task", "all slots are idle", "initializing"
MOST_SLOTS = 1024


class Slots:
    """The slots that work. What ran before the first line is known only from a line on which none did."""

    def __init__(self) -> None:
        self._known = False
        self._most: dict[int, int] = {}  # of each that works, how many worked at a time since it began

    def take(self, line: str, slot: int | None) -> bool:
        """Whether the line tells of a slot that begins, or of none that works."""
        if IDLE in line or START in line:
            self._known, self._most = True, {}
            return True
        if TAKEN not in line:
            return False
        if slot is None or len(self._most) >= MOST_SLOTS:
            self._known = False
            return True
        self._most.pop(slot, None)
        self._most[slot] = 1
        for each, most in self._most.items():
            self._most[each] = max(most, len(self._most))
        return True

    def most(self, slot: int | None) -> int | None:
        """How many worked at a time while the task of this slot ran; None where a line of them was not read."""
        return self._most.get(slot) if self._known and slot is not None else None

    def stop(self, slot: int | None) -> None:
        """The task of this slot ended."""
        if slot is not None:
            self._most.pop(slot, None)
