"""What an engine does now, as far as its lines tell: gauges of the last one, since when it is idle or stands still."""

from __future__ import annotations

from rooflens.adapters.logs.clock import Moment
from rooflens.adapters.logs.iterations import KEEP_FOR_REUSE
from rooflens.live_records import Load, Progress, State
from rooflens.log_records import LogRecord, RecordKind

TELLING = (RecordKind.INTERVAL, RecordKind.DECODE, RecordKind.PREFILL, RecordKind.ITERATION)
RATES = ("generated_tokens_per_s", "prompt_tokens_per_s")


class Standing:
    """Follows the lines of one engine; ``seen`` is whether any told of its work."""

    def __init__(self) -> None:
        self.seen = False
        self._at_s: float | None = None
        self._running: float | None = None
        self._waiting: float | None = None
        self._deferred: float | None = None
        self._used: float | None = None
        self._reuses = False  # what is used is not what requests hold
        self._moved_s: float | None = None
        self._worked_s: float | None = None

    def note(self, record: LogRecord, moment: Moment | None) -> None:
        """Take a line in."""
        if record.kind not in TELLING:
            return
        self.seen, self._reuses = True, record.engine in KEEP_FOR_REUSE
        if moment is None:
            return
        now_s, values = moment.monotonic_s, record.values
        self._at_s = now_s
        told = {name: values[name] for name in ("running", "waiting", "deferred", "kv_used_ratio") if name in values}
        moved = record.kind is not RecordKind.INTERVAL or any(values.get(name, 0.0) for name in RATES)
        if moved or told.get("kv_used_ratio") != self._used or self._moved_s is None:
            self._moved_s = now_s
        if moved or told.get("running") or told.get("waiting") or self._worked_s is None:
            self._worked_s = now_s
        self._used = told.get("kv_used_ratio")
        self._running, self._waiting = told.get("running"), told.get("waiting")
        self._deferred = told.get("deferred")

    @property
    def known_until_s(self) -> float | None:
        """Up to when the lines have told all: the last one, where requests were there; None for now."""
        return self._at_s if self.has_work else None

    @property
    def has_work(self) -> bool:
        """Whether requests ran or waited at the last line."""
        return bool(self._running or self._waiting)

    def progress(self, state: State, now_s: float | None, blocks: int | None = None) -> Progress:
        """Whether the engine moves; ``blocks`` is the size of its pool.

        Lines that cease say nothing of it: nothing is told beyond the last one.
        """
        if self._at_s is None or state is not State.LIVE:
            return Progress(state)
        used = None if blocks is None or self._used is None or self._reuses else self._used * blocks
        capacity = None if self._waiting is None else max(self._waiting - (self._deferred or 0.0), 0.0)
        load = Load(self._at_s, self._running, capacity, self._deferred, used)
        if self._running is None:
            return Progress(state, load=load)
        has_work = self.has_work
        still_s = self._at_s - (self._moved_s or self._at_s) if has_work else 0.0
        # An idle engine writes no lines: it is idle until one says something else.
        idle_s = 0.0 if has_work else max(now_s or self._at_s, self._at_s) - (self._worked_s or self._at_s)
        return Progress(state, still_s=still_s, idle_s=idle_s, load=load)
