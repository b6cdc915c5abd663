"""Chrome Trace Event JSON, which Perfetto, speedscope and chrome://tracing open; times are whole microseconds.

The format is that of "Trace Event Format" (Google, 2016): an object with ``traceEvents``; ``X`` is a slice with ``ts``
and ``dur``, ``C`` a counter, ``i`` an instant, ``b`` and ``e`` a range that may overlap others, ``M`` a name.

A step is a slice named after its kind alone, for speedscope adds up what has the same name and the same ``args``; its
figures are the ``args`` of the slice below it, which is as long as its floor.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from rooflens.exporters.trace_files.counted import sampled
from rooflens.exporters.trace_files.drawing import Drawing
from rooflens.exporters.trace_files.engines import EVENTS, FINDINGS, FIRST, Process, devices_of
from rooflens.exporters.trace_files.parts import CounterRows, Output
from rooflens.exporters.trace_files.slices import STEPS, Slice, Value
from rooflens.exporters.trace_files.stood import Stood, event_details, finding_details
from rooflens.records import RingEvent
from rooflens.trace_records import TraceFacts

LIMIT_BYTES = 500e6  # a browser's strings end at 512 MiB, and viewers read the file as one
TICKS_PER_S = 1_000_000
_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


class ChromeWriter(Drawing):
    """See Drawing. ``begin_unix_s`` is where the times of the file begin."""

    def __init__(self, output: Output, begin_unix_s: int, about: Mapping[str, Any]) -> None:
        """Write the head; ``about`` is what the file says of itself."""
        super().__init__(output, begin_unix_s, TICKS_PER_S)
        self._first = True
        head = {"displayTimeUnit": "ms", "otherData": {**about, "begin_unix_s": begin_unix_s}, "traceEvents": []}
        output.write(_encode(head)[:-2].encode())

    def end(self) -> None:
        """Nothing follows: what still stands is drawn until the last step, and the file is closed."""
        super().end()
        self._output.write(b"\n]}\n")

    def _write_all(self, facts: TraceFacts, made: Iterable[Slice | Value]) -> None:
        process = self._engine(facts)
        for each in made:
            if isinstance(each, Value):
                name = process.track_name(each.counter.name, facts.run, 0)
                self._write(_counter(process.number, name, each.at, each.value))
                continue
            thread = self._thread(process, each.track, facts.run, each.lane)
            where = {"pid": process.number, "tid": thread, "ts": each.begin}
            category = "step" if each.track == STEPS else "host"
            self._write({"ph": "X", "cat": category, "name": each.name, **where, "dur": each.end - each.begin})
            if each.details:
                self._write({"ph": "X", "cat": "floor", **where, **_floor(each), "args": each.details})
            self._last = max(self._last, each.end)

    def _event(self, process: Process, at: int, event: RingEvent) -> None:
        where = {"pid": process.number, "tid": self._thread(process, EVENTS, "", 0), "ts": at}
        self._write({"ph": "i", "s": "p", "cat": "event", "name": event.name, **where, "args": event_details(event)})

    def _stood(self, stood: Stood) -> None:
        process = self._engine(stood.first.facts)
        thread = self._thread(process, FINDINGS, "", 0)
        begin, end = self._ends(stood)
        which: dict[str, Any] = {
            "cat": "finding",
            "name": str(stood.finding.code),
            "id": f"{process.number}.{stood.finding.code}",
        }
        which |= {"pid": process.number, "tid": thread}
        self._write({"ph": "b", **which, "ts": begin, "args": finding_details(stood.finding)})
        self._write({"ph": "e", **which, "ts": end})

    def _counters(self, rows: CounterRows) -> None:
        for each in sampled(rows):
            process = self._named(devices_of(each.host), devices_of(each.host))
            unit = f", {each.counter.unit}" if each.counter.unit not in ("", "1") else ""
            name = f"{each.counter.name}{unit} {each.uuid}"
            self._write(_counter(process.number, name, max(0, self._ticks(each.begin_unix_s)), each.value))

    def _named(self, name: str, title: str) -> Process:
        process, new = self._processes.named(name)
        if new:
            self._meta(process.number, 0, "process_name", {"name": title})
            self._meta(process.number, 0, "process_sort_index", {"sort_index": process.number})
        return process

    def _thread(self, process: Process, kind: str, run: str, lane: int) -> int:
        number, new = process.track((kind, run, lane))
        if new:
            name = process.track_name(kind, run, lane) if run else kind
            rank = FIRST.index(kind) * 1000 + number  # an engine has few tracks, and steps stand above the host
            self._meta(process.number, number, "thread_name", {"name": name})
            self._meta(process.number, number, "thread_sort_index", {"sort_index": rank})
        return number

    def _meta(self, pid: int, tid: int, name: str, args: Mapping[str, Any]) -> None:
        self._write({"ph": "M", "name": name, "pid": pid, "tid": tid, "args": args})

    def _write(self, event: Mapping[str, Any]) -> None:
        self._output.write(("\n" if self._first else ",\n").encode() + _encode(event).encode())
        self._first = False


def _floor(step: Slice) -> dict[str, Any]:
    """The part of a step that its floor takes; all of it where there is no floor."""
    floor_ms, duration = step.details.get("floor_ms"), step.end - step.begin
    if floor_ms is None:
        return {"name": f"step of {step.details.get('batch', '?')}", "dur": duration}
    floor = min(round(floor_ms * TICKS_PER_S / 1e3), duration)
    return {"name": f"{step.details.get('bound', '')} floor".strip(), "dur": floor}


def _counter(pid: int, name: str, at: int, value: float) -> dict[str, Any]:
    return {"ph": "C", "name": name, "pid": pid, "tid": 0, "ts": at, "args": {"value": value}}
