"""One worker's forward passes timed on its device: an event at each end, read back once both have passed."""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable
from time import monotonic_ns
from typing import Any

from rooflens.ring import COLD_FIELDS, DEVICE_SPAN, EVENT, UNKNOWN
from rooflens.ring_writer import RingWriter, pack_cold

log = logging.getLogger("vllm.rooflens")

MOST_PAIRS = 64  # events in flight; an engine keeps a handful
MOST_FAILURES = 8  # a timer that fails this often tells nothing true any more
TELL_SKIPPED_NS = 1_000_000_000
LOW = 0xFFFFFFFF
# What became of the call that execute_model began, until the call that ends it.
IDLE, OPEN, GIVEN_UP = 0, 1, 2


class Pass:
    """A forward pass under way: times of the host in nanoseconds, the events at its ends, the stream between them."""

    __slots__ = ("begin", "end", "gap_ns", "hook_ns", "ordinal", "requests", "start_ns", "stop_ns", "stream", "tokens")

    def __init__(self, begin: Any, end: Any) -> None:
        self.begin, self.end = begin, end
        self.ordinal = self.tokens = self.requests = 0
        self.start_ns = self.stop_ns = self.gap_ns = self.hook_ns = 0
        self.stream: Any = None


class DeviceTimer:
    """Times the passes of one model runner; used by the worker's thread alone. Never waits for the device.

    ``cuda`` is torch.cuda as the worker has it; ``open_ring`` is called once, at the first pass. A pass whose time
    would be doubtful is not timed but counted in ``skipped`` by its reason.
    """

    def __init__(self, cuda: Any, open_ring: Callable[[], RingWriter], in_two_calls: bool) -> None:
        self._cuda = cuda
        self._open_ring = open_ring
        self._in_two_calls = in_two_calls
        self.ring: RingWriter | None = None
        self.off = False
        self.inside = False
        self.warming = 0
        self.ordinal = 0
        self.failures = 0
        self.skipped: Counter[str] = Counter()
        self._told = 0
        self._told_ns = 0
        self._state = IDLE
        self._now: Pass | None = None
        self._returned_ns = 0
        self._made = 0
        self._free: list[Pass] = []
        self._ended: deque[Pass] = deque()

    def begin(self, output: Any) -> None:
        """Before execute_model of a pass that is no dummy."""
        started_ns = monotonic_ns()
        if self._state == OPEN:
            self._give_up("begun twice")
        self._state = GIVEN_UP
        tokens = output.total_num_scheduled_tokens
        if not tokens:  # bookkeeping for the worker, no pass
            return
        self.ordinal += 1
        if self.ring is None:
            self.ring = self._open_ring()
        if self._cuda.is_current_stream_capturing():
            self._skip("graph capture")
            return
        self._read_back()
        found = self._pair()
        if found is None:
            self._skip("no free event")
            return
        found.ordinal, found.tokens, found.requests = self.ordinal, tokens, len(output.num_scheduled_tokens)
        found.start_ns, found.gap_ns = started_ns, 0
        self._now = found  # from here on it comes back to the pool whatever happens
        found.stream = self._cuda.current_stream()
        found.begin.record(found.stream)
        found.hook_ns = monotonic_ns() - started_ns
        self._state = OPEN

    def returned(self, result: Any) -> None:
        """After execute_model: None means that sampling follows as a call of its own."""
        if self._state != OPEN:
            return
        if result is None and self._in_two_calls:
            self._returned_ns = monotonic_ns()
        else:
            self._end()
            self._state = GIVEN_UP  # vLLM may call sample_tokens all the same, where there is nothing to sample

    def sampling(self) -> None:
        """Before the call that ends the pass."""
        if self._state == OPEN and self._now is not None:
            self._now.gap_ns = monotonic_ns() - self._returned_ns
        elif self._state == IDLE:
            self._skip("sampled without a pass")

    def sampled(self) -> None:
        """After the call that ends the pass."""
        if self._state == OPEN:
            self._end()
        self._state = IDLE

    def broke(self, reason: str = "exception") -> None:
        """The pass under way, if there is one, went another way than planned."""
        if self._state == OPEN:
            self._give_up(reason)

    def failed(self, where: str) -> None:
        """Count a failure of the timer itself; the first is logged, the last switches it off."""
        self.failures += 1
        try:
            if self._now is not None:
                self._give_up("failure")
            if self.ring is None:  # it could not be opened: nothing can be said, and trying again costs the worker
                self.off = True
                log.warning("rooflens does not time this worker's device", exc_info=True)
                return
            self.ring.count_failure()
            if self.failures == 1:
                log.warning("rooflens failed to time the device in %s and goes on", where, exc_info=True)
            if self.failures >= MOST_FAILURES:
                self.off = True
                self.ring.event("hook_off", {"failures": self.failures})
        except Exception:
            self.off = True

    def _pair(self) -> Pass | None:
        if self._free:
            return self._free.pop()
        if self._made >= MOST_PAIRS:
            return None
        self._made += 1
        event = self._cuda.Event
        return Pass(event(enable_timing=True), event(enable_timing=True))

    def _skip(self, reason: str) -> None:
        self.skipped[reason] += 1

    def _give_up(self, reason: str) -> None:
        self._skip(reason)
        self._state = GIVEN_UP
        if self._now is not None:
            self._free.append(self._now)  # recording an event anew forgets what it was
            self._now = None

    def _end(self) -> None:
        stopped_ns = monotonic_ns()
        found = self._now
        if found is None:
            return
        if self._cuda.is_current_stream_capturing():
            self._give_up("graph capture")
        elif self._cuda.current_stream() != found.stream:
            self._give_up("another stream")
        else:
            found.end.record(found.stream)
            found.stop_ns = stopped_ns
            found.hook_ns += monotonic_ns() - stopped_ns
            self._now = None
            self._ended.append(found)

    def _read_back(self) -> None:
        """Write the passes that the device has finished, oldest first; looks, never waits."""
        ended, ring = self._ended, self.ring
        if ring is None:
            return
        while ended and ended[0].end.query():
            found = ended.popleft()
            self._free.append(found)
            found.stream = None
            elapsed_ms = found.begin.elapsed_time(found.end)
            if elapsed_ms >= 0:
                self._write(ring, found, round(elapsed_ms * 1e6))
            else:
                self._skip("no time")
        total = self.skipped.total()
        now_ns = monotonic_ns() if total != self._told else 0
        if now_ns - self._told_ns >= TELL_SKIPPED_NS:
            self._told, self._told_ns = total, now_ns
            ring.event("device_spans_skipped", self.skipped)

    def _write(self, ring: RingWriter, found: Pass, device_ns: int) -> None:
        given = {
            "query_tokens": found.tokens,
            "requests": found.requests,
            "preempted": self.skipped.total(),
            "frame": EVENT,
            "flags": DEVICE_SPAN,
            "kv_blocks_cached": UNKNOWN,
            "padded_tokens": UNKNOWN,
        }
        cold = pack_cold(*(given.get(name, 0) for name, _ in COLD_FIELDS))
        low, high = found.ordinal & LOW, found.ordinal >> 32
        ring.commit(
            found.start_ns, found.stop_ns, device_ns, low, high, UNKNOWN, found.gap_ns, found.hook_ns, UNKNOWN, cold
        )
