"""What is exported, piece by piece, and the file that it goes to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import IO, Any, Protocol

from rooflens.findings import Finding
from rooflens.records import RingEvent
from rooflens.trace_records import TraceFacts

Columns = Mapping[str, list[Any]]  # of equal length, by name; None for not known

# What a view shows of a step; a table of all columns takes the others as well.
VIEWED = (
    "sequence", "kind", "unix_s", "submit_monotonic_s", "output_monotonic_s", "observed_s", "device_s", "schedule_s",
    "update_s", "wait_s", "requests", "prefill_requests", "query_tokens", "prefill_tokens", "generated_tokens",
    "accepted_tokens", "drafted_tokens", "recomputed_tokens", "context_tokens", "running", "waiting", "deferred",
    "preempted", "kv_blocks_used", "graph_mode", "resolution_steps", "bound", "floor_s", "expected_s", "reachable_s",
    "memory_s", "mfu",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class StepRows:
    """Steps of one engine in their order: ``columns`` are those of a trace's steps (records.STEP_COLUMNS and
    trace_records.ROOF_COLUMNS), some or all."""

    facts: TraceFacts
    columns: Columns

    def __len__(self) -> int:
        return len(self.columns["sequence"])


@dataclass(frozen=True, slots=True)
class Happened:
    """An event of one engine, or what became of a finding, at its Unix seconds."""

    facts: TraceFacts
    unix_s: float
    what: RingEvent | Finding


@dataclass(frozen=True, slots=True)
class CounterRows:
    """Samples of devices: ``columns`` are those of trace_tables.COUNTER_COLUMNS, some or all."""

    columns: Columns

    def __len__(self) -> int:
        return len(self.columns["uuid"])


Part = StepRows | Happened | CounterRows


class TooLarge(Exception):
    """The file has reached its limit; ``unix_s`` is the time of the step that found no room, None where none told."""

    def __init__(self, unix_s: float | None) -> None:
        super().__init__("the limit of the file is reached")
        self.unix_s = unix_s


@dataclass(slots=True)
class Output:
    """A file being written: ``limit_bytes`` bounds what the format takes before any compression, None for no bound.

    ``written_bytes``, ``steps``, ``events`` and ``samples`` count what went in; ``left_out`` counts rows without a
    time, which no time line can show, and rows that overlap too many others.
    """

    stream: IO[bytes]
    limit_bytes: float | None = None
    written_bytes: int = 0
    steps: int = 0
    events: int = 0
    samples: int = 0
    left_out: int = 0
    write: Callable[[bytes], object] = field(init=False)

    def __post_init__(self) -> None:
        self.write = self._write

    def _write(self, data: bytes) -> None:
        self.stream.write(data)
        self.written_bytes += len(data)

    def check(self, unix_s: float | None = None) -> None:
        """TooLarge once the limit is reached; between two steps, so that what was written is whole."""
        if self.limit_bytes is not None and self.written_bytes >= self.limit_bytes:
            raise TooLarge(unix_s)


class Writer(Protocol):
    """One format. After ``end`` the file is whole, also where ``take`` raised TooLarge before."""

    def take(self, part: Part) -> None:
        """Write one part; TooLarge where the file is full."""
        ...

    def end(self) -> None:
        """Nothing follows."""
        ...
