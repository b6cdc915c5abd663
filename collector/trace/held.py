"""What waits to be written, by file; and one attempt to write it."""

from __future__ import annotations

import secrets
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from hashlib import sha256
from math import isfinite
from typing import NamedTuple, TypeVar
from urllib.parse import quote

import pyarrow as pa

from rooflens.collector.trace.beside import counters_table, events_table
from rooflens.collector.trace.buffer import HOUR_S, LATEST_UNIX_S, TIMES, Part, hours_of, packed, steps_table
from rooflens.collector.trace.facts import FactsBook
from rooflens.collector.trace.file import SUFFIX, encoded
from rooflens.collector.trace.place import Place, reason
from rooflens.records import RooflensError
from rooflens.trace_records import TraceCounters, TraceEvents, TraceRows, TraceTable

Item = TraceRows | TraceEvents | TraceCounters
WRITER_BYTES = 6  # of chance in a writer's name, so that two never write the same file
LONGEST_HOST = 180  # characters of a name of a folder; file systems take 255
FAILURES_AT_ONCE = 3  # of files in one attempt; what hinders three hinders the rest
T = TypeVar("T")


class Key(NamedTuple):
    """Which folder: the table, the host, and the hour counted from 1970 in UTC."""

    table: TraceTable
    host: str
    hour: int

    @property
    def folders(self) -> tuple[str, ...]:
        """Their names, one below the other."""
        begin = datetime.fromtimestamp(self.hour * HOUR_S, UTC)
        return (self.table, f"host={folder_name(self.host)}", f"date={begin:%Y-%m-%d}", f"hour={begin:%H}")


def folder_name(host: str) -> str:
    """A host as part of a path, %-encoded; a very long one is cut and told apart by a digest."""
    name = quote(host, safe="", errors="replace") or "unknown"
    if len(name) <= LONGEST_HOST:
        return name
    return f"{name[:LONGEST_HOST].rpartition('%')[0]}-{sha256(name.encode()).hexdigest()[:8]}"


@dataclass(frozen=True, slots=True)
class Aside:
    """Events or counters, all of one hour."""

    item: TraceEvents | TraceCounters
    rows: int
    first_unix_s: float
    arrived_monotonic_s: float
    weight_bytes: int

    def __len__(self) -> int:
        return self.rows


@dataclass(slots=True)
class Attempt:
    """What one attempt to write everything came to; ``cursors`` are the last sequences that are safe, by run."""

    files: int = 0
    rows: int = 0
    bytes: int = 0
    dropped: int = 0
    failures: int = 0
    problem: str | None = None
    cursors: dict[str, int] = field(default_factory=dict)

    def add(self, other: Attempt) -> None:
        """Count what another came to as well."""
        self.files, self.rows, self.bytes = self.files + other.files, self.rows + other.rows, self.bytes + other.bytes
        self.dropped, self.failures = self.dropped + other.dropped, self.failures + other.failures


class Held:
    """Rows by the file that they go to; used by one thread. ``weight_bytes`` is what it takes."""

    def __init__(self) -> None:
        self.weight_bytes = 0
        self._groups: dict[Key, list[Part | Aside]] = {}
        self._failed: set[Key] = set()
        self._book = FactsBook()
        self._writer, self._files = secrets.token_hex(WRITER_BYTES), 0

    def __bool__(self) -> bool:
        return bool(self._groups)

    @property
    def oldest_monotonic_s(self) -> float | None:
        """When the oldest row arrived."""
        return min((group[0].arrived_monotonic_s for group in self._groups.values()), default=None)

    def add(self, item: Item, arrived_monotonic_s: float, weight_bytes: int, now_unix_s: float) -> None:
        """Put an item to the rest of its files."""
        for key, part in self._parts(item, arrived_monotonic_s, weight_bytes, now_unix_s):
            self._groups.setdefault(key, []).append(part)
            self.weight_bytes += part.weight_bytes

    def _parts(
        self, item: Item, arrived_monotonic_s: float, weight_bytes: int, now_unix_s: float
    ) -> Iterator[tuple[Key, Part | Aside]]:
        if isinstance(item, TraceRows):
            whole = packed(item, self._book.entry(item.facts).digest, arrived_monotonic_s, weight_bytes)
            for hour, part in hours_of(whole, now_unix_s).items():
                yield Key(TraceTable.STEPS, item.facts.host, hour), part
            return
        table = TraceTable.COUNTERS if isinstance(item, TraceCounters) else TraceTable.EVENTS
        host = item.host if isinstance(item, TraceCounters) else item.facts.host
        hours = list(_beside_hours(item, now_unix_s))
        for hour, each, moments in hours:
            weight = weight_bytes // len(hours)
            yield (
                Key(table, host, hour),
                Aside(each, len(moments), min(moments, default=0.0), arrived_monotonic_s, weight),
            )

    def write(self, place: Place, most_failures: float = FAILURES_AT_ONCE) -> Attempt:
        """Try every file once, those that failed before last, and end after so many failures.

        What is written is held no more.
        """
        attempt, reached = Attempt(), dict[str, int]()
        for key in sorted(self._groups, key=lambda key: (key in self._failed, key.hour, key)):
            try:
                self._write(key, place, attempt, reached)
                self._failed.discard(key)
            except (OSError, RooflensError) as error:
                self._failed.add(key)
                attempt.failures += 1
                attempt.problem = str(error) if isinstance(error, RooflensError) else _line(place, error)
                if attempt.failures >= most_failures:
                    break
            except Exception as error:  # rows that no file can hold would fail for ever
                attempt.failures += 1
                attempt.problem = f"trace {place.shown}: rows were left out ({type(error).__name__})"
                attempt.dropped += self._leave(key)
        attempt.cursors = self._safe(reached)
        return attempt

    def _write(self, key: Key, place: Place, attempt: Attempt, reached: dict[str, int]) -> None:
        group = self._groups[key]
        data = _file(key.table, group, self._book)
        place.write(key.folders, self._name(key, group), data)
        attempt.files += 1
        attempt.bytes += data.size
        attempt.rows += self._leave(key)
        for part in group:
            if isinstance(part, Part):
                run = part.facts.run
                reached[run] = max(reached.get(run, 0), part.sequences[1])

    def _leave(self, key: Key) -> int:
        group = self._groups.pop(key)
        self._failed.discard(key)
        self.weight_bytes -= sum(part.weight_bytes for part in group)
        return sum(map(len, group))

    def _name(self, key: Key, group: Sequence[Part | Aside]) -> str:
        """The minute of its first row, whose file it is, and a number that the writer never gives twice."""
        self._files += 1
        first_unix_s = min(_first_unix_s(part, key) for part in group)
        minute = min(max(int(first_unix_s - key.hour * HOUR_S) // 60, 0), 59)  # a row without a time is of any minute
        return f"{minute:02}-{self._writer}-{self._files:06}{SUFFIX}"

    def _safe(self, reached: Mapping[str, int]) -> dict[str, int]:
        """How far each run is written, with nothing before it that waits."""
        waits: dict[str, int] = {}
        for group in self._groups.values():
            for part in group:
                if isinstance(part, Part) and part.facts.run in reached:
                    run = part.facts.run
                    waits[run] = min(waits.get(run, part.sequences[0]), part.sequences[0])
        return {run: min(last, waits.get(run, last + 1) - 1) for run, last in reached.items()}

    def drop(self, to_bytes: int) -> int:
        """Drop the oldest of what could not be written until the rest of that is within ``to_bytes``; the rows."""
        rows, weight = 0, sum(part.weight_bytes for key in self._failed for part in self._groups[key])
        for key in sorted(self._failed, key=lambda key: (key.hour, key)):
            group = self._groups[key]
            while group and weight > to_bytes:
                part = group.pop(0)
                weight -= part.weight_bytes
                self.weight_bytes -= part.weight_bytes
                rows += len(part)
            if not group:
                self._leave(key)
        return rows

    def drop_all(self) -> int:
        """Forget everything; the rows."""
        return sum(self._leave(key) for key in list(self._groups))


def _file(table: TraceTable, group: Iterable[Part | Aside], book: FactsBook) -> pa.Buffer:
    parts = [part for part in group if isinstance(part, Part)]
    items = [part.item for part in group if isinstance(part, Aside)]
    if table is TraceTable.STEPS:
        return encoded(steps_table(parts), list({part.digest: part.facts for part in parts}.values()), (), book)
    events = [item for item in items if isinstance(item, TraceEvents)]
    counters = [item for item in items if isinstance(item, TraceCounters)]
    if table is TraceTable.EVENTS:
        facts = {book.entry(item.facts).digest: item.facts for item in events}
        return encoded(events_table(events, lambda facts: book.entry(facts).digest), list(facts.values()), (), book)
    return encoded(counters_table(counters), (), list({item.device.uuid: item.device for item in counters}.values()))


def _hour(unix_s: float, now_unix_s: float) -> int:
    return int((unix_s if 0 <= unix_s < LATEST_UNIX_S else now_unix_s) // HOUR_S)


def _beside_hours(
    item: TraceEvents | TraceCounters, now_unix_s: float
) -> Iterator[tuple[int, TraceEvents | TraceCounters, list[float]]]:
    """The item by the hour of its rows, with their times."""
    if isinstance(item, TraceCounters):
        samples = _by_hour(item.samples, now_unix_s)
        for hour, found in samples.items():
            yield hour, replace(item, samples=tuple(found)), [unix_s for unix_s, _ in found]
        return
    events, findings = _by_hour(item.events, now_unix_s), _by_hour(item.findings, now_unix_s)
    for hour in sorted({*events, *findings}):
        one, other = tuple(events.get(hour, ())), tuple(findings.get(hour, ()))
        yield hour, replace(item, events=one, findings=other), [unix_s for unix_s, _ in (*one, *other)]


def _by_hour(rows: Iterable[tuple[float, T]], now_unix_s: float) -> dict[int, list[tuple[float, T]]]:
    found: dict[int, list[tuple[float, T]]] = defaultdict(list)
    for unix_s, row in rows:
        found[_hour(unix_s, now_unix_s)].append((unix_s, row))
    return found


def _first_unix_s(part: Part | Aside, key: Key) -> float:
    first = part.first_unix_s if isinstance(part, Aside) else float(part.times[TIMES.index("unix_s"), 0])
    return first if isfinite(first) else key.hour * HOUR_S


def _line(place: Place, error: OSError) -> str:
    return f"trace folder {place.shown}: {reason(error)}; it is tried again"
