"""How many requests wait, and for what, across the names that vLLM has given its queues."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Sized
from itertools import islice
from typing import Any

from rooflens.ring import UNKNOWN

SCAN_NS = 100_000_000  # ages change slowly; a scan costs a microsecond for every few requests
MOST_SCANNED = 2048  # a longer queue is sampled from its head: the sum becomes unknown, the oldest stays right
BLOCKED = (
    "WAITING_FOR_FSM",
    "WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR",
    "WAITING_FOR_REMOTE_KVS",
    "WAITING_FOR_STREAMING_REQ",
)


class WaitingQueue:
    """Counts of waiting and deferred requests, and now and then their ages."""

    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler
        self.next_scan_ns = 0
        self._blocked = 0
        # vLLM 0.18 to 0.30 keep blocked requests in a queue of their own; later ones in a set beside two queues.
        self._separate = hasattr(scheduler, "skipped_waiting")
        self._marked = hasattr(scheduler, "deferred_waiting")
        # vLLM's first-come queue is a deque whose __len__ calls the deque's: ask that one at once.
        self._length = deque.__len__ if isinstance(scheduler.waiting, deque) else len

    def counts(self) -> tuple[int, int]:
        """(waiting, deferred): requests that lack capacity, and those that wait for something else."""
        scheduler = self._scheduler
        length = self._length
        waiting = length(scheduler.waiting)
        if self._marked:
            deferred = len(scheduler.deferred_waiting)
            return waiting + length(scheduler.kv_holding_waiting) - deferred, deferred
        if self._separate:
            return waiting, length(scheduler.skipped_waiting)
        if not waiting:
            return 0, 0
        deferred = min(self._blocked, waiting)
        return waiting - deferred, deferred

    def _queues(self) -> list[Iterable[Any]]:
        names = ("waiting", "skipped_waiting", "kv_holding_waiting")
        return [getattr(self._scheduler, name) for name in names if hasattr(self._scheduler, name)]

    def scan(self, now_ns: int) -> tuple[int, int] | None:
        """(age of the oldest, sum of ages) of the waiting requests in microseconds; the sum may be unknown.

        None if it is not time or nothing waits. Counts the blocked requests too, where vLLM keeps them among these.
        """
        if now_ns < self.next_scan_ns:
            return None
        self.next_scan_ns = now_ns + SCAN_NS
        now_s = time.time()
        oldest = total = 0.0
        blocked = scanned = 0
        for queue in self._queues():
            for request in islice(queue, MOST_SCANNED):
                if getattr(request.status, "name", "") in BLOCKED:
                    blocked += 1
                    continue
                age = max(0.0, now_s - request.arrival_time)
                oldest = max(oldest, age)
                total += age
                scanned += 1
        self._blocked = blocked
        truncated = any(isinstance(queue, Sized) and len(queue) > MOST_SCANNED for queue in self._queues())
        if not scanned:
            return None
        return int(oldest * 1e6), UNKNOWN if truncated else int(total * 1e6)
