"""What the records of a log amount to, in bounded memory: counts, facts, gauges, and the steps of each engine."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from rooflens.adapters.logs.clock import Clock
from rooflens.adapters.logs.rows import LogEngines
from rooflens.collector.tables import concatenated, empty_table
from rooflens.log_records import LogRecord, RecordKind
from rooflens.protocols import Batch
from rooflens.records import EngineInfo, StepTable

KEPT_RECORDS = 1000
KEPT_ROWS = 300_000  # of one engine: the newest; a log of 10 GB may hold seventy million iterations
MOST_ENGINES = 512
MOST_NAMES = 200  # of labels that are not known
MOST_PROBLEMS = 32
DRAIN_EVERY = 4_096  # records between two looks at the rows, which hold a fifth of what may wait
GAUGES = ("running", "waiting", "deferred", "swapped", "kv_used_ratio", "prefix_hit_ratio", "generated_tokens_per_s",
          "prompt_tokens_per_s")  # fmt: skip
DRAFTS = ("drafted_tokens", "accepted_tokens")


@dataclass(slots=True)
class Gauge:
    """A value over the lines that told it."""

    lines: int = 0
    total: float = 0.0
    most: float = float("-inf")

    def add(self, value: float) -> None:
        """One more line."""
        self.lines, self.total, self.most = self.lines + 1, self.total + value, max(self.most, value)

    @property
    def mean(self) -> float:
        """The mean over lines."""
        return self.total / self.lines

    def to_json(self) -> dict[str, float]:
        """Mean and maximum."""
        return {"lines": self.lines, "mean": self.mean, "max": self.most}


@dataclass(slots=True)
class Engine:
    """One run of one rank; ``rows`` were counted, of which ``tables`` hold the last."""

    info: EngineInfo
    tables: deque[StepTable] = field(default_factory=deque)
    kept: int = 0
    rows: int = 0
    complaints: Counter[str] = field(default_factory=Counter)

    def take(self, batch: Batch) -> None:
        """What is new of it."""
        if batch.info is not None:
            self.info = batch.info
        self.complaints.update(batch.complaints)
        if not len(batch.steps):
            return
        self.tables.append(batch.steps)
        self.kept += len(batch.steps)
        self.rows += len(batch.steps) + batch.lost_steps
        while self.kept > KEPT_ROWS and len(self.tables) > 1:
            self.kept -= len(self.tables.popleft())

    def steps(self) -> StepTable:
        """The rows that were kept."""
        return concatenated([*self.tables]) if self.tables else empty_table()


class Said:
    """Takes the records of a log in order."""

    def __init__(self, place: str) -> None:
        self.counts: Counter[str] = Counter()
        self.by_engine: Counter[str] = Counter()
        self.last: deque[LogRecord] = deque(maxlen=KEPT_RECORDS)
        self.unknown: Counter[str] = Counter()
        self.first_unix_s: float | None = None
        self.last_unix_s: float | None = None
        self.gauges: dict[str, Gauge] = {}
        self.drafts: Counter[str] = Counter()
        self.drafter_totals: dict[tuple[str, str], dict[str, int]] = {}  # by source and drafter: the last told
        self.acceptance_length = Gauge()
        self.preempted = 0.0
        self.facts: dict[str, float | str] = {}
        self.engines: dict[str, Engine] = {}
        self.left_out = 0
        self._log = LogEngines(place, Clock(time.monotonic() - time.time()))
        self._since = 0

    def take(self, records: Iterable[LogRecord]) -> None:
        """Some records."""
        for record in records:
            self._count(record)
            self._log.take(record)
            self._since += 1
        if self._since >= DRAIN_EVERY:
            self._drain()

    def end(self) -> None:
        """No more come."""
        self._log.flush()
        self._drain()

    def _count(self, record: LogRecord) -> None:
        kind, values = record.kind, record.values
        self.counts[str(kind)] += 1
        self.by_engine[record.engine] += 1
        self.last.append(record)
        for label in record.unknown:
            if label in self.unknown or len(self.unknown) < MOST_NAMES:
                self.unknown[label] += 1
        if record.unix_s is not None:
            self.first_unix_s = min(self.first_unix_s or record.unix_s, record.unix_s)
            self.last_unix_s = max(self.last_unix_s or record.unix_s, record.unix_s)
        if kind is RecordKind.STARTUP:
            self.facts |= {**values, **record.words}
            return
        for name in GAUGES:
            if name in values and values[name] >= 0:
                self.gauges.setdefault(name, Gauge()).add(values[name])
        if kind is RecordKind.PREEMPTION:
            total = values.get("preempted_total")
            self.preempted = max(self.preempted, total) if total else self.preempted + values.get("preempted", 1.0)
        elif "preempted" in values:
            self.preempted += max(values["preempted"], 0.0)
        self._speculation(record)

    def _speculation(self, record: LogRecord) -> None:
        values = record.values
        if (drafter := record.words.get("drafter")) is not None:
            self._drafter(record, drafter)
        elif "system_efficiency_ratio" in values:  # counted since the engine began
            for name in DRAFTS:
                self.drafts[name] = int(max(self.drafts[name], values.get(name, 0.0)))
        elif all(values.get(name, -1.0) >= 0 for name in DRAFTS):
            for name in DRAFTS:
                self.drafts[name] += int(values[name])
        if values.get("acceptance_length", 0.0) >= 1:
            self.acceptance_length.add(values["acceptance_length"])

    def _drafter(self, record: LogRecord, drafter: str) -> None:
        """Totals since the start: each line holds the one before it."""
        key = (record.words.get("source", ""), drafter)
        if all(record.values.get(name, -1.0) >= 0 for name in DRAFTS) and (
            key in self.drafter_totals or len(self.drafter_totals) < MOST_NAMES
        ):
            self.drafter_totals[key] = {name: int(record.values[name]) for name in DRAFTS}

    def _drain(self) -> None:
        self._since = 0
        for batch in self._log.drain():
            if batch.info is None:
                continue
            engine = self.engines.get(batch.info.instance)
            if engine is None:
                if len(self.engines) >= MOST_ENGINES:
                    self.left_out += 1
                    continue
                engine = self.engines[batch.info.instance] = Engine(batch.info)
            engine.take(batch)

    def to_json(self) -> dict[str, Any]:
        """Counts, gauges, facts and the last records, in SI units."""
        return {
            "records_by_kind": dict(self.counts),
            "records_by_engine": dict(self.by_engine),
            "first_unix_s": self.first_unix_s,
            "last_unix_s": self.last_unix_s,
            "unknown": dict(self.unknown),
            "startup": self.facts,
            "gauges": {name: gauge.to_json() for name, gauge in self.gauges.items()},
            "speculation": self.speculation(),
            "preempted": self.preempted,
            "records": [record_json(record) for record in self.last],
        }

    def speculation(self) -> dict[str, float] | None:
        """Drafts over the whole log, None where none is told; without counts where lines tell the length alone.

        Totals of drafters count the drafts of requests once more: they stand in where no request tells its own.
        """
        parts = [self.drafts] if self.drafts else list(self.drafter_totals.values())
        drafted, accepted = (sum(part[name] for part in parts) for name in DRAFTS)
        if not drafted and not self.acceptance_length.lines:
            return None
        found: dict[str, float] = {"drafted_tokens": drafted, "accepted_tokens": accepted} if parts else {}
        if drafted:
            found["acceptance_ratio"] = accepted / drafted
        if self.acceptance_length.lines:
            found["acceptance_length_mean"] = self.acceptance_length.mean
        return found


def record_json(record: LogRecord) -> dict[str, Any]:
    """One record without what it does not tell."""
    data = asdict(record)
    return {name: value for name, value in data.items() if value not in ((), {}, None)} | {"kind": str(record.kind)}
