"""A ZMQ publisher as a feed: a thread takes in what comes, read() hands it over and never waits.

ZMQ's PUB has no authentication here: whoever reaches the port reads it, and whoever answers at the address is
believed. So rooflens connects and never listens, sends nothing but its subscription, bounds every message and every
queue, and takes every field for a stranger's word.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import Any

from rooflens.adapters.forward_pass.address import address_of
from rooflens.adapters.forward_pass.layout import NotReadError
from rooflens.adapters.forward_pass.message import LARGEST_PAYLOAD_BYTES, MISSING, take, unpacker
from rooflens.adapters.forward_pass.publishers import Publishers
from rooflens.live_records import NOT_READ_YET, SourceHealth, SourceKind, State
from rooflens.protocols import Batch
from rooflens.records import RooflensError

WAITING_MESSAGES = 10_000  # in the socket, as many as the engines keep; further ones are dropped and seen as a gap
POLL_MS = 100
PATIENCE_S = 2.0  # for the first connection
BUNCH = 512  # messages between two looks at the clock and at whether to stop
QUIET_S = 30.0  # engines say every second that they are idle; one long pass may last
RECONNECT_MS, LONGEST_RECONNECT_MS = 250, 5_000
ALIVE_MS = 10_000  # a peer that does not answer for twice as long is gone
NOBODY = "nobody answers there: is the engine started with its forward-pass metrics on, and is this its port?"
GONE = "the engine is gone, or its connection is: it is tried again"
NO_PUBLISHER = "what answers there is no ZMQ publisher: forward-pass metrics have a port of their own"
QUIET = "connected, and nothing was said for {:.0f} s: are forward-pass metrics on, and is this the rank that sends?"
UNREADABLE = "a message could not be read ({}): this rooflens reads version 1"


class ForwardPassFeed:
    """The engines that publish ForwardPassMetrics at one address."""

    kind = SourceKind.FEED

    def __init__(self, url: str) -> None:
        """RooflensError in one line for an address that is none."""
        self._address = address_of(url)
        self.here = self._address.here
        self.failures = 0
        self._publishers = Publishers(self._address.place)
        self._lock, self._stop = threading.Lock(), threading.Event()
        self._thread: threading.Thread | None = None
        self._state = State.UNREACHABLE
        self._problem: str | None = NOT_READ_YET
        self._unreadable: Counter[str] = Counter()
        self._last_read_unix_s: float | None = None
        self._heard_s = 0.0
        self._greeted = False  # whether what answers speaks ZMQ's own language
        self._died: str | None = None

    def start(self) -> None:
        """Connect, in a thread of its own; RooflensError that says what to install where that is missing."""
        try:
            import zmq
        except ImportError:
            raise RooflensError(MISSING) from None
        unpack = unpacker()
        if self._thread is None and not self._stop.is_set():
            target = _guarded(self._run, self._fail)
            self._thread = threading.Thread(target=target, args=(zmq, unpack), name="forward passes", daemon=True)
            self._thread.start()

    def read(self) -> list[Batch]:
        """What came since the last call, a batch for each worker and rank."""
        with self._lock:
            return list(self._publishers.read(self._state, time.monotonic()))

    def health(self) -> SourceHealth:
        """Whether the address answers, and what is wrong with what it says."""
        with self._lock:
            problem: str | None = self._died or self._problem
            if problem is None and self._unreadable:
                problem = UNREADABLE.format(self._unreadable.most_common(1)[0][0])  # how often: ``failures``
            if problem is None and self._publishers.problem:
                problem = self._publishers.problem
            if problem is None and (quiet_s := time.monotonic() - self._heard_s) > QUIET_S:
                problem = QUIET.format(quiet_s)
            return SourceHealth(
                name=self._address.name,
                kind=self.kind,
                state=self._state,
                last_read_unix_s=self._last_read_unix_s,
                problem=problem,
            )

    def close(self) -> None:
        """Let the thread end; it does not wait for the peer."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=1.0)

    def _run(self, zmq: Any, unpack: Any) -> None:
        context = zmq.Context()
        socket = context.socket(zmq.SUB)
        try:
            _configure(socket, zmq)
            monitor = socket.get_monitor_socket()
            socket.connect(self._address.url)
            poller = zmq.Poller()
            poller.register(socket, zmq.POLLIN)
            poller.register(monitor, zmq.POLLIN)
            late_s = time.monotonic() + PATIENCE_S
            while not self._stop.is_set():
                ready = dict(poller.poll(POLL_MS))
                if self._problem == NOT_READ_YET and time.monotonic() > late_s:
                    self._connected(State.UNREACHABLE, NOBODY)
                if monitor in ready:
                    self._watch(monitor, zmq)
                if socket in ready:
                    self._take(socket, zmq, unpack)
        finally:
            socket.disable_monitor()
            context.destroy(linger=0)

    def _take(self, socket: Any, zmq: Any, unpack: Any) -> None:
        for _ in range(BUNCH):
            try:
                frames = socket.recv_multipart(flags=zmq.NOBLOCK)
            except zmq.Again:
                return
            now_s, now_unix_s = time.monotonic(), time.time()
            with self._lock:
                try:
                    number, message = take(frames, unpack)
                except NotReadError as error:
                    self.failures += 1
                    reason = str(error)
                    self._unreadable[reason if len(self._unreadable) < 16 else "otherwise"] += 1
                    continue
                self._heard_s, self._last_read_unix_s = now_s, now_unix_s
                self._publishers.take(number, message, now_s, now_unix_s)

    def _watch(self, monitor: Any, zmq: Any) -> None:
        from zmq.utils.monitor import recv_monitor_message

        failed = (zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL, zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL)
        while monitor.poll(0):
            event = recv_monitor_message(monitor)["event"]
            if event == zmq.EVENT_CONNECTED:
                self._greeted = False
            elif event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                self._greeted, self._heard_s = True, time.monotonic()
                self._connected(State.LIVE, None)
            elif event in failed or (event == zmq.EVENT_DISCONNECTED and not self._greeted):
                self._connected(State.UNREACHABLE, NO_PUBLISHER)
            elif event == zmq.EVENT_DISCONNECTED:
                self._connected(State.UNREACHABLE, GONE if self._last_read_unix_s else NOBODY)

    def _connected(self, state: State, problem: str | None) -> None:
        with self._lock:
            if state is State.UNREACHABLE and self._state is State.LIVE:
                self.failures += 1
            self._state, self._problem = state, problem

    def _fail(self, error: Exception) -> None:
        with self._lock:
            self.failures += 1
            self._state, self._died = State.UNREACHABLE, f"it is not read any more: {type(error).__name__}: {error}"


def _configure(socket: Any, zmq: Any) -> None:
    for option, value in (
        (zmq.RCVHWM, WAITING_MESSAGES),
        (zmq.MAXMSGSIZE, 4 * LARGEST_PAYLOAD_BYTES),  # a peer that sends more is let go by the library
        (zmq.LINGER, 0),
        (zmq.RECONNECT_IVL, RECONNECT_MS),
        (zmq.RECONNECT_IVL_MAX, LONGEST_RECONNECT_MS),
        (zmq.HEARTBEAT_IVL, ALIVE_MS),
        (zmq.HEARTBEAT_TIMEOUT, 2 * ALIVE_MS),
        (zmq.IPV6, 1),
    ):
        socket.setsockopt(option, value)
    socket.setsockopt(zmq.SUBSCRIBE, b"")


def _guarded(run: Any, fail: Any) -> Any:
    def target(*arguments: Any) -> None:
        try:
            run(*arguments)
        except Exception as error:
            fail(error)

    return target
