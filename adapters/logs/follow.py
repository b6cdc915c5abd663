"""A log that is being written, as a feed: a thread follows the file, read() hands over what came and never waits."""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

from rooflens.adapters.logs.clock import Clock
from rooflens.adapters.logs.files import LineCutter
from rooflens.adapters.logs.lines import LineReader
from rooflens.adapters.logs.rows import LogEngines
from rooflens.adapters.logs.tail import Piece, Tail
from rooflens.live_records import NOT_READ_YET, SourceHealth, SourceKind, State
from rooflens.log_records import RecordKind
from rooflens.protocols import Batch

PERIOD_S = 0.5
HEAD_BYTES = 8 << 20  # in which an engine's start-up lines are looked for, where it has started before
SETTLE_S = 2.0  # what belongs to a line is written within it
QUIET_S = 60.0  # beyond it, an engine that had requests at its last line may be gone
STDIN = "-"
NOTHING_KNOWN_LINES = 1_000
UNKNOWN = (
    "no line of it is of an engine that is known: vLLM, SGLang, TensorRT-LLM and llama.cpp; is this its log, and does "
    "it write statistics?"
)
QUIET = "no line for {:.0f} s, though requests ran at the last one: has the engine ended?"
OVER = "standard input ended (--log -): rooflens analyze FILE reads it afterwards"
DIED = "it is not read any more ({}: {}): please report it"


class LogFeed:
    """The engines that one log tells of, from now on; start-up lines before are read for their facts."""

    kind = SourceKind.LOG
    here = True

    def __init__(self, path: str | Path, period_s: float = PERIOD_S) -> None:
        """``path`` need not be there yet; "-" is standard input."""
        self.name = str(path)
        self.failures = 0
        self._period_s = period_s
        self._tail = None if self.name == STDIN else Tail(Path(path))
        self._engines = LogEngines(self.name, Clock())
        self._cutter, self._reader = LineCutter(), LineReader()
        self._lock, self._stop = threading.Lock(), threading.Event()
        self._thread: threading.Thread | None = None
        self._lines = self._records = 0
        self._last_read_unix_s: float | None = None
        self._heard_s: float | None = None
        self._first = self._over = False
        self._died: str | None = None
        self._problem: str | None = NOT_READ_YET

    def start(self) -> None:
        """Begin to follow, in a thread of its own; a second call does nothing."""
        if self._thread is None and not self._stop.is_set():
            self._thread = threading.Thread(target=self._run, name=f"log {self.name}", daemon=True)
            self._thread.start()

    def read(self) -> list[Batch]:
        """What came since the last call, a batch for each rank that the log tells of."""
        now_s = time.monotonic()
        with self._lock:
            self._engines.flush(now_s - SETTLE_S)
            return self._engines.drain(self._state(now_s), now_s)

    def health(self) -> SourceHealth:
        """Whether the file is there, and what is wrong with what it says."""
        with self._lock:
            now_s = time.monotonic()
            return SourceHealth(
                name=self.name,
                kind=self.kind,
                state=self._state(now_s),
                last_read_unix_s=self._last_read_unix_s,
                problem=self._named(self._died or self._problem or self._said(now_s)),
            )

    def close(self) -> None:
        """Let the thread end; one that waits for standard input is left to itself."""
        self._stop.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout=0.1 if self._tail is None else 1.0)
        if self._tail is not None and (self._thread is None or not self._thread.is_alive()):
            self._tail.close()

    def _named(self, problem: str | None) -> str | None:
        """A problem after the name of the log that it is of."""
        return problem if problem in (None, NOT_READ_YET, OVER) else f"{self.name}: {problem}"

    def _state(self, now_s: float) -> State:
        if self._died or (self._tail is not None and not self._tail.open):
            return State.UNREACHABLE
        return State.ENDED if self._over else State.UNREACHABLE if self._quiet_s(now_s) else State.LIVE

    def _quiet_s(self, now_s: float) -> float | None:
        """How long nothing was written by an engine that had requests; None where that is not long."""
        if self._heard_s is None or now_s - self._heard_s <= QUIET_S:
            return None
        works = any(engine.standing.has_work for engine in self._engines.engines)
        return now_s - self._heard_s if works else None

    def _said(self, now_s: float) -> str | None:
        if not self._records and self._lines >= NOTHING_KNOWN_LINES:
            return UNKNOWN
        if self._over:
            return OVER
        if (quiet_s := self._quiet_s(now_s)) is not None:
            return QUIET.format(quiet_s)
        return next(iter(self._cutter.problems), None)

    def _run(self) -> None:
        try:
            if self._tail is None:
                self._run_stdin()
            else:
                self._run_tail(self._tail)
        except Exception as error:  # a line must not take the sidecar's other sources with it
            with self._lock:
                self.failures += 1
                self._died = DIED.format(type(error).__name__, error)

    def _run_tail(self, tail: Tail) -> None:
        while not self._stop.is_set():
            pieces = tail.read(HEAD_BYTES)
            if not self._first and tail.open:
                self._first = True
                self._take_facts(tail.head)
                tail.head = b""
            self._take(pieces)
            with self._lock:
                if tail.problem is not None and self._problem in (None, NOT_READ_YET):
                    self.failures += self._problem is None
                self._problem = tail.problem
            if not any(len(piece.data) >= 1 << 19 for piece in pieces):
                self._stop.wait(self._period_s)

    def _run_stdin(self) -> None:
        self._problem = None
        while not self._stop.is_set():
            data = os.read(sys.stdin.fileno(), 1 << 16)
            if not data:
                break
            self._take([Piece(data)])
        with self._lock:
            self._lines_of(list(self._cutter.end()))
            self._engines.flush()
            self._over = True

    def _take_facts(self, head: bytes) -> None:
        """Start-up lines of an engine that has run for long are at the head of its log."""
        cutter, reader = LineCutter(), LineReader()
        records = [record for line in cutter.take(head) for record in reader.take(line)]
        with self._lock:
            for record in records:
                if record.kind is RecordKind.STARTUP:
                    self._engines.take(record)

    def _take(self, pieces: list[Piece]) -> None:
        for piece in pieces:
            with self._lock:
                if piece.begins:
                    self._lines_of(list(self._cutter.end()))
                    self._cutter, self._reader = LineCutter(), LineReader()
                lines = list(self._cutter.take(piece.data))
                if piece.old_s is None:
                    self._lines_of(lines)
                else:
                    self._past(lines, piece.old_s)

    def _lines_of(self, lines: list[str]) -> None:
        now_s, now_unix_s = time.monotonic(), time.time()
        self._lines += len(lines)
        for line in lines:
            for record in self._reader.take(line):
                self._records += 1
                self._engines.take(record, now_s, now_unix_s)
                self._heard_s = now_s
        if lines:
            self._last_read_unix_s = now_unix_s

    def _past(self, lines: list[str], old_s: float) -> None:
        """The last lines before the live end: what holds since then; what they count was before anybody looked."""
        records = [record for line in lines for record in self._reader.take(line)]
        stamps = [record.unix_s for record in records if record.unix_s is not None]
        self._lines += len(lines)
        if not stamps:
            return  # when they were written is not known
        self._records += len(records)
        written_s = time.monotonic() - old_s
        for record in records:
            if record.unix_s is not None:
                self._engines.take(record, written_s - (stamps[-1] - record.unix_s), record.unix_s)
        self._heard_s = written_s
        self._engines.flush()
        self._engines.forget()
