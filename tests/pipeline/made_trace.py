"""A writer of traces for tests: keeps what it is handed, and says that it is written when it is told to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from rooflens.collector.tables import concatenated
from rooflens.findings import Finding
from rooflens.records import RingEvent, StepTable
from rooflens.trace_records import TraceCounters, TraceEvents, TraceRows
from rooflens.trace_tables import TraceState


@dataclass
class MadeWriter:
    """``items`` are what was put, in order; ``raises`` makes it fail, ``told`` is what state() gives."""

    items: list[TraceRows | TraceEvents | TraceCounters] = field(default_factory=list)
    raises: Exception | None = None
    told: TraceState = field(default_factory=TraceState)
    closed: bool = False
    callbacks: list[Callable[[Mapping[str, int]], None]] = field(default_factory=list)

    def put(self, item: TraceRows | TraceEvents | TraceCounters) -> None:
        if self.raises is not None:
            raise self.raises
        self.items.append(item)

    def on_written(self, callback: Callable[[Mapping[str, int]], None]) -> None:
        self.callbacks.append(callback)

    def state(self) -> TraceState:
        return self.told

    def close(self) -> None:
        self.write()
        self.closed = True

    def write(self) -> None:
        """All that was put is safe."""
        last: dict[str, int] = {}
        for rows in self.rows:
            last[rows.facts.run] = max(last.get(rows.facts.run, 0), int(rows.steps["sequence"][-1]))
        for callback in self.callbacks:
            callback(last)

    @property
    def rows(self) -> list[TraceRows]:
        return [item for item in self.items if isinstance(item, TraceRows)]

    @property
    def steps(self) -> StepTable:
        """All steps that were put, by sequence."""
        table = concatenated([rows.steps for rows in self.rows])
        return table.take(np.argsort(table["sequence"], kind="stable")) if len(table) else table

    @property
    def events(self) -> list[RingEvent]:
        return [e for item in self.items if isinstance(item, TraceEvents) for _, e in item.events]

    @property
    def findings(self) -> list[Finding]:
        return [f for item in self.items if isinstance(item, TraceEvents) for _, f in item.findings]

    @property
    def counters(self) -> list[TraceCounters]:
        return [item for item in self.items if isinstance(item, TraceCounters)]


def same_steps(found: StepTable, wanted: StepTable) -> None:
    """Each row once, and every value that is known the same; of the wall time all but what an anchor moves."""
    np.testing.assert_array_equal(found["sequence"], wanted["sequence"])
    for name in wanted.columns:
        mask = wanted.where(name)
        np.testing.assert_array_equal(found.where(name), mask, err_msg=name)
        if name == "unix_s":
            np.testing.assert_allclose(found[name][mask], wanted[name][mask], atol=0.05, rtol=0)
        else:
            np.testing.assert_array_equal(found[name][mask], wanted[name][mask], err_msg=name)
