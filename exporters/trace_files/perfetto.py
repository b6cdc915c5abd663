"""Perfetto's own protobuf (perfetto.protos.Trace), written packet by packet; times are nanoseconds since 1970.

Tracks are those of TrackDescriptor: an engine is a track with its steps, host, events and findings as children, and
counter tracks below. Names of slices and of their details are interned (InternedData). Needs the package ``perfetto``.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from hashlib import sha256
from typing import Any

from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as protos
from perfetto.trace_builder.proto_builder import StreamingTraceProtoBuilder

from rooflens.exporters.trace_files.counted import sampled
from rooflens.exporters.trace_files.drawing import Drawing
from rooflens.exporters.trace_files.engines import EVENTS, FINDINGS, FIRST, Process, devices_of
from rooflens.exporters.trace_files.parts import CounterRows, Output
from rooflens.exporters.trace_files.slices import COUNTERS, STEPS, Counter, Slice, Value
from rooflens.exporters.trace_files.stood import Stood, event_details, finding_details
from rooflens.records import RingEvent
from rooflens.trace_records import TraceFacts

LIMIT_BYTES = 1e9  # its viewer holds all of it in the memory of a browser's tab, several times the file
TICKS_PER_S = 1_000_000_000
SEQUENCE_ID = 1  # one writer writes all packets
EVENT = protos.TrackEvent
REALTIME, BOOTTIME = 1, 6  # of BuiltinClocks; times without a clock are of the second, which is set to the first here
RANK = {name: at for at, name in enumerate((*FIRST, *COUNTERS))}


class PerfettoWriter(Drawing):
    """See Drawing. Its ticks count from ``begin_unix_s``, what is written is absolute."""

    def __init__(self, output: Output, begin_unix_s: int, about: Mapping[str, Any]) -> None:
        """Write the clocks and the first packet of the sequence; ``about`` has no place in this format."""
        super().__init__(output, begin_unix_s, TICKS_PER_S)
        self._builder = StreamingTraceProtoBuilder(_Written(output))
        self._packet = self._builder.create_packet()
        self._names: dict[tuple[str, str], int] = {}
        clocks = self._packet.clock_snapshot
        for clock in (BOOTTIME, REALTIME):
            clocks.clocks.add(clock_id=clock, timestamp=begin_unix_s * TICKS_PER_S)
        self._packet.sequence_flags = self._packet.SEQ_INCREMENTAL_STATE_CLEARED
        self._send()

    def _write_all(self, facts: TraceFacts, made: Iterable[Slice | Value]) -> None:
        process = self._engine(facts)
        for each in made:
            if isinstance(each, Value):
                name = process.track_name(each.counter.name, facts.run, 0)
                self._value(self._counter_track(process, name, each.counter), each.counter, each.at, each.value)
                continue
            track = self._track(process, each.track, facts.run, each.lane)
            self._slice(track, each.name, "step" if each.track == STEPS else "host", (each.begin, each.end),
                        each.details)  # fmt: skip
            self._last = max(self._last, each.end)

    def _event(self, process: Process, at: int, event: RingEvent) -> None:
        track = self._track(process, EVENTS, "", 0)
        self._moment(EVENT.TYPE_INSTANT, track, at, event.name, "event", event_details(event))

    def _stood(self, stood: Stood) -> None:
        process = self._engine(stood.first.facts)
        track = self._track(process, FINDINGS, "", 0, str(stood.finding.code))  # findings overlap: a track for each
        self._slice(track, str(stood.finding.code), "finding", self._ends(stood), finding_details(stood.finding))

    def _counters(self, rows: CounterRows) -> None:
        for each in sampled(rows):
            process = self._named(devices_of(each.host), devices_of(each.host))
            track = self._counter_track(process, f"{each.counter.name} {each.uuid}", each.counter)
            self._value(track, each.counter, max(0, self._ticks(each.begin_unix_s)), each.value)

    def _named(self, name: str, title: str) -> Process:
        process, new = self._processes.named(name)
        if new:
            self._describe(process, None, title, process.number, None)
        return process

    def _track(self, process: Process, kind: str, run: str, lane: int, own: str = "") -> int:
        number, new = process.track((kind, run, lane, own))
        if new:
            name = process.track_name(kind, run, lane) if run else f"{kind}: {own}" if own else kind
            self._describe(process, (kind, run, lane, own), name, RANK[kind] * 1000 + number, None)
        return _uuid(process, (kind, run, lane, own))

    def _counter_track(self, process: Process, name: str, counter: Counter) -> int:
        number, new = process.track(("counter", name))
        if new:
            rank = RANK.get(counter, len(RANK)) * 1000 + number
            self._describe(process, ("counter", name), name, rank, counter)
        return _uuid(process, ("counter", name))

    def _describe(self, process: Process, key: Hashable | None, name: str, rank: int, counter: Counter | None) -> None:
        track = self._packet.track_descriptor
        track.uuid, track.name, track.sibling_order_rank = _uuid(process, key), name, rank
        if key is None:
            track.child_ordering = track.EXPLICIT
        else:
            track.parent_uuid = _uuid(process, None)
        if counter is not None:
            if counter.unit == "bytes":
                track.counter.unit = track.counter.UNIT_SIZE_BYTES
            elif counter.unit:
                track.counter.unit_name = "%" if _percent(counter) else "x" if counter.unit == "1" else counter.unit
            else:
                track.counter.unit = track.counter.UNIT_COUNT
        self._send()

    def _slice(self, track: int, name: str, category: str, time: tuple[int, int], details: Mapping[str, Any]) -> None:
        self._moment(EVENT.TYPE_SLICE_BEGIN, track, time[0], name, category, details)
        self._moment(EVENT.TYPE_SLICE_END, track, time[1], "", "", {})

    def _moment(self, kind: int, track: int, at: int, name: str, category: str, details: Mapping[str, Any]) -> None:
        event = self._packet.track_event
        event.type, event.track_uuid = kind, track
        if name:
            event.name_iid = self._interned("event_names", name)
            event.category_iids.append(self._interned("event_categories", category))
        for key, value in details.items():
            told = event.debug_annotations.add(name_iid=self._interned("debug_annotation_names", key))
            if isinstance(value, bool):
                told.bool_value = value
            elif isinstance(value, int):
                told.int_value = value
            elif isinstance(value, float):
                told.double_value = value
            else:
                told.string_value = str(value)
        self._packet.timestamp = self._begin * TICKS_PER_S + at
        self._send()

    def _value(self, track: int, counter: Counter, at: int, value: float) -> None:
        event = self._packet.track_event
        event.type, event.track_uuid = EVENT.TYPE_COUNTER, track
        event.double_counter_value = value * 100 if _percent(counter) else value
        self._packet.timestamp = self._begin * TICKS_PER_S + at
        self._send()

    def _interned(self, kind: str, name: str) -> int:
        """The number of a name, which the packet that uses it first tells."""
        number = self._names.get((kind, name))
        if number is None:
            number = self._names[kind, name] = len(self._names) + 1
            getattr(self._packet.interned_data, kind).add(iid=number, name=name)
        return number

    def _send(self) -> None:
        packet = self._packet
        packet.trusted_packet_sequence_id = SEQUENCE_ID
        packet.sequence_flags |= packet.SEQ_NEEDS_INCREMENTAL_STATE if packet.HasField("track_event") else 0
        self._builder.write_packet(packet)
        self._packet = self._builder.create_packet()  # Clear() would keep what the last one took, and so all memory


class _Written:
    """The file as the builder wants it."""

    def __init__(self, output: Output) -> None:
        self.write = output.write


def _percent(counter: Counter) -> bool:
    return counter.unit == "1" and not counter.name.startswith("x ")


def _uuid(process: Process, key: Hashable | None) -> int:
    """Of a track, the same in every file: 63 bits that are never 0."""
    return int.from_bytes(sha256(f"{process.name}\n{key}".encode()).digest()[:8]) >> 1 | 1
