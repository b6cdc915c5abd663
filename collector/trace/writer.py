"""The writer of a trace: takes rows from the loop without waiting, and puts a file a minute in its place."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping

from rooflens.collector.trace.buffer import ROW_BYTES
from rooflens.collector.trace.held import FAILURES_AT_ONCE, Attempt, Held, Item
from rooflens.collector.trace.limits import Sweeper
from rooflens.collector.trace.place import LocalPlace
from rooflens.collector.trace.store import place_of
from rooflens.trace_records import TraceCounters, TraceRows
from rooflens.trace_tables import TraceLimits, TraceState

ITEM_BYTES = 1200  # of what holds the rows of one item together
BESIDE_BYTES = 1500  # of an event, a finding or a sample
LENGTH_BYTES = 8  # of one sequence in a keyframe
LOOK_S = 1.0  # how often what came is packed, which takes a tenth of the room
RETRY_S, LONGEST_RETRY_S = 1.0, 60.0
SWEEP_S = 300.0
SWEEP_SHARE = 0.02  # of the size that the trace may have; so much more of it is looked after at once
CLOSE_S = 10.0


class TraceWriter:
    """A trace_records.TraceSink that writes to ``place``, a local folder or an address that fsspec knows.

    RooflensError in one line for a place that cannot be used; from then on nothing is raised. What hinders it later is
    in ``state``; the rows are kept as far as the limits allow and tried again with pauses. ``threaded`` is False for
    whoever calls ``turn`` at its own pace.
    """

    def __init__(
        self,
        place: str,
        limits: TraceLimits | None = None,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        threaded: bool = True,
    ) -> None:
        self._place, self._limits = place_of(place), limits or TraceLimits()
        self._clock, self._monotonic = clock, monotonic
        self._lock, self._wake = threading.Lock(), threading.Event()
        self._queue: deque[tuple[float, int, Item]] = deque()
        self._queued_bytes, self._held_bytes, self._held = 0, 0, Held()
        self._oldest_held_s: float | None = None
        self._closing = False
        self._total = Attempt()
        self._problem: str | None = None
        self._sweep_problem: str | None = None
        self._pause_s, self._retry_s = 0.0, -float("inf")
        self._due_s = self._next_due_s(monotonic())
        self._sweeper = Sweeper(self._place.root, self._limits) if isinstance(self._place, LocalPlace) else None
        self._sweep_due_s, self._unswept_bytes = -float("inf"), 0
        self._written: Callable[[Mapping[str, int]], None] | None = None
        self._thread = threading.Thread(target=self._run, name="rooflens-trace", daemon=True) if threaded else None
        if self._thread is not None:
            self._thread.start()

    @property
    def shown(self) -> str:
        """Where it writes, without credentials."""
        return self._place.shown

    def on_written(self, callback: Callable[[Mapping[str, int]], None]) -> None:
        """Call back, in the writer's thread, with the last sequence that is safe in its place for each run."""
        self._written = callback

    def put(self, item: Item) -> None:
        """Take one item, or drop and count it where the limits leave no room; never waits for a disk."""
        rows, weight = _weight(item)
        if not rows:
            return
        with self._lock:
            waiting = self._queued_bytes + self._held_bytes
            if self._closing or waiting + weight > self._limits.memory_bytes or len(self._queue) >= self._limits.items:
                self._total.dropped += rows
                if self._problem is None and not self._closing:
                    self._problem = f"trace {self.shown}: rows are dropped, more comes than can be written"
                return
            self._queue.append((self._monotonic(), weight, item))
            self._queued_bytes += weight
            many = self._queued_bytes * 8 > self._limits.memory_bytes or len(self._queue) * 2 > self._limits.items
        if many:
            self._wake.set()

    def state(self) -> TraceState:
        """How it is doing."""
        with self._lock:
            total, now_s = self._total, self._monotonic()
            since = [self._oldest_held_s] if self._oldest_held_s is not None else []
            since += [self._queue[0][0]] if self._queue else []
            return TraceState(
                rows_written=total.rows,
                bytes_written=total.bytes,
                files_written=total.files,
                dropped_rows=total.dropped,
                failures=total.failures,
                oldest_unwritten_s=max(0.0, now_s - min(since)) if since else None,
                problem=self._problem or self._sweep_problem,
            )

    def close(self, timeout_s: float = CLOSE_S) -> None:
        """Write what is there, for at most ``timeout_s`` seconds; what does not get there is dropped and counted."""
        with self._lock:
            if self._closing:
                return
            self._closing = True
        self._wake.set()
        if self._thread is None:
            self._guarded(closing=True)
        else:
            self._thread.join(timeout_s)
            if self._thread.is_alive():
                with self._lock:
                    self._problem = f"trace {self.shown}: not all was written within {timeout_s:g} s of the end"

    def turn(self) -> None:
        """Pack what came, write what is due, look after the limits; what the thread does over and over."""
        self._turn(closing=False)

    def _run(self) -> None:
        while not self._closing:
            self._wake.wait(min(LOOK_S, self._limits.period_s / 4))
            self._wake.clear()
            if not self._closing:
                self._guarded(closing=False)
        self._guarded(closing=True)

    def _guarded(self, closing: bool) -> None:
        """A turn that ends no thread, whatever happens in it."""
        try:
            self._turn(closing)
        except Exception as error:
            with self._lock:
                self._total.failures += 1
                self._problem = f"trace {self.shown}: {type(error).__name__} while writing; report it"

    def _turn(self, closing: bool) -> None:
        now_s, now_unix_s = self._monotonic(), self._clock()
        self._collect(now_unix_s)
        if self._held and (closing or self._is_due(now_s)):
            self._attempt(now_s, closing)
        if not closing:
            self._sweep(now_s, now_unix_s)

    def _collect(self, now_unix_s: float) -> None:
        with self._lock:
            items, self._queue = self._queue, deque()
            self._held_bytes, self._queued_bytes = self._held_bytes + self._queued_bytes, 0
            if items and self._oldest_held_s is None:
                self._oldest_held_s = items[0][0]
        dropped = 0
        while items:
            arrived_s, weight, item = items.popleft()
            try:
                self._held.add(item, arrived_s, weight, now_unix_s)
            except Exception:  # rows of one engine that are no rows must not cost those of the others
                dropped += _weight(item)[0]
        self._publish(Attempt(dropped=dropped))

    def _is_due(self, now_s: float) -> bool:
        if self._pause_s:
            return now_s >= self._retry_s
        return now_s >= self._due_s or self._held.weight_bytes * 2 > self._limits.memory_bytes

    def _next_due_s(self, now_s: float) -> float:
        """The end of this minute of the wall clock, which may have jumped since."""
        period_s = self._limits.period_s
        return now_s + period_s - self._clock() % period_s

    def _attempt(self, now_s: float, closing: bool) -> None:
        attempt = self._held.write(self._place, float("inf") if closing else FAILURES_AT_ONCE)
        self._due_s = self._next_due_s(self._monotonic())
        failed = attempt.failures > 0
        self._pause_s = min(max(self._pause_s * 2, RETRY_S), LONGEST_RETRY_S) if failed else 0.0
        self._retry_s = now_s + self._pause_s
        if failed:
            attempt.dropped += self._held.drop_all() if closing else self._held.drop(self._limits.memory_bytes // 2)
        self._unswept_bytes += attempt.bytes
        with self._lock:
            self._problem = attempt.problem
        self._publish(attempt)
        if attempt.cursors and self._written is not None:
            self._written(attempt.cursors)

    def _publish(self, attempt: Attempt) -> None:
        with self._lock:
            self._total.add(attempt)
            self._held_bytes, self._oldest_held_s = self._held.weight_bytes, self._held.oldest_monotonic_s

    def _sweep(self, now_s: float, now_unix_s: float) -> None:
        most_bytes = self._limits.max_bytes
        many = most_bytes is not None and self._unswept_bytes > most_bytes * SWEEP_SHARE
        if self._sweeper is None or (now_s < self._sweep_due_s and not many):
            return
        self._sweep_due_s, self._unswept_bytes = now_s + SWEEP_S, 0
        problem = self._sweeper.sweep(now_unix_s).problem
        with self._lock:
            self._sweep_problem = problem


def _weight(item: Item) -> tuple[int, int]:
    """The rows of an item, and about how many bytes they take until they are written."""
    if isinstance(item, TraceRows):
        rows = len(item.steps)
        lengths = sum(len(contexts) for contexts, _ in item.keyframes.values()) if item.keyframes else 0
        return rows, rows * ROW_BYTES + lengths * LENGTH_BYTES + ITEM_BYTES
    rows = len(item.samples) if isinstance(item, TraceCounters) else len(item.events) + len(item.findings)
    return rows, rows * BESIDE_BYTES + ITEM_BYTES
