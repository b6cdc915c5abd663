"""Exported files as what a reader of the format makes of them."""

from __future__ import annotations

import base64
import csv
import io
import json
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent

IDS = ("traceId", "spanId", "parentSpanId")
US, NS = 1_000_000, 1_000_000_000


class Slice(NamedTuple):
    """A slice as a viewer has it: seconds since the file begins."""

    track: tuple[str, str]  # of which process or parent, and of which name
    name: str
    begin: int
    end: int
    args: dict[str, Any]


def chrome(data: bytes) -> tuple[list[dict[str, Any]], list[Slice]]:
    """(all events, the slices with the names of their process and thread); times are whole microseconds."""
    events: list[dict[str, Any]] = json.loads(data)["traceEvents"]
    names: dict[tuple[int, int, str], str] = {
        (e["pid"], e["tid"], e["name"]): e["args"]["name"] for e in events if e["ph"] == "M" and "name" in e["args"]
    }
    slices = [
        Slice(
            (names[e["pid"], 0, "process_name"], names[e["pid"], e["tid"], "thread_name"]),
            e["name"], e["ts"], e["ts"] + e["dur"], e.get("args", {}),
        )
        for e in events
        if e["ph"] == "X"
    ]  # fmt: skip
    return events, slices


class Perfetto(NamedTuple):
    """A decoded trace; times are nanoseconds since 1970, counters by the name of their track."""

    slices: list[Slice]
    instants: list[tuple[str, int]]
    counters: dict[tuple[str, str], list[tuple[int, float]]]
    units: dict[str, str]


def perfetto(data: bytes) -> Perfetto:
    """Every packet decoded with Perfetto's own classes, interned names looked up, slices matched."""
    trace = Trace()
    trace.ParseFromString(data)
    names: dict[str, dict[int, str]] = defaultdict(dict)
    tracks: dict[int, Any] = {}
    stacks: dict[int, list[Any]] = defaultdict(list)
    found = Perfetto([], [], defaultdict(list), {})
    for packet in trace.packet:
        for kind in ("event_names", "event_categories", "debug_annotation_names"):
            names[kind].update({entry.iid: entry.name for entry in getattr(packet.interned_data, kind)})
        if packet.HasField("track_descriptor"):
            assert packet.track_descriptor.uuid not in tracks, "a track is told once"
            tracks[packet.track_descriptor.uuid] = packet.track_descriptor
            if packet.track_descriptor.HasField("counter"):
                found.units[packet.track_descriptor.name] = packet.track_descriptor.counter.unit_name
        if not packet.HasField("track_event"):
            continue
        event, track = packet.track_event, tracks[packet.track_event.track_uuid]
        where = (tracks[track.parent_uuid].name, track.name)
        if event.type == TrackEvent.TYPE_SLICE_BEGIN:
            args = {
                names["debug_annotation_names"][a.name_iid]: getattr(a, a.WhichOneof("value"))
                for a in event.debug_annotations
            }
            stacks[track.uuid].append((names["event_names"][event.name_iid], packet.timestamp, args))
        elif event.type == TrackEvent.TYPE_SLICE_END:
            name, begin, args = stacks[track.uuid].pop()
            found.slices.append(Slice(where, name, begin, packet.timestamp, args))
        elif event.type == TrackEvent.TYPE_INSTANT:
            found.instants.append((names["event_names"][event.name_iid], packet.timestamp))
        else:
            found.counters[where].append((packet.timestamp, event.double_counter_value))
    assert not any(stacks.values()), "a slice that never ends"
    return found


def otlp(data: bytes) -> list[tuple[dict[str, Any], Span]]:
    """Each span with the attributes of its resource, by OpenTelemetry's own classes; ids stand there in hex."""
    found = []
    for line in data.decode().splitlines():
        request = json.loads(line)
        for spans in (scope["spans"] for each in request["resourceSpans"] for scope in each["scopeSpans"]):
            for span in spans:
                for name in IDS:
                    if name in span:
                        span[name] = base64.b64encode(bytes.fromhex(span[name])).decode()
        message = json_format.ParseDict(request, ExportTraceServiceRequest())
        for each in message.resource_spans:
            resource = {a.key: getattr(a.value, a.value.WhichOneof("value")) for a in each.resource.attributes}
            found += [(resource, span) for scope in each.scope_spans for span in scope.spans]
    return found


def attributes(span: Span) -> dict[str, Any]:
    """A span's own."""
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in span.attributes}


def table(data: bytes) -> list[dict[str, str]]:
    """The rows of a CSV."""
    return list(csv.DictReader(io.StringIO(data.decode(), newline="")))


def well_formed(slices: list[Slice]) -> None:
    """No slice is negative, and on each track one ends before the next begins or holds it whole."""
    by_track: dict[tuple[str, str], list[Slice]] = defaultdict(list)
    for each in slices:
        assert each.begin <= each.end
        by_track[each.track].append(each)
    for track, found in by_track.items():
        begins = [each.begin for each in found]
        if all(each.begin >= 0 for each in found):
            assert begins == sorted(begins), f"{track}: not in the order of time"
        open_ends: list[int] = []
        for each in found:
            while open_ends and open_ends[-1] <= each.begin:
                open_ends.pop()
            assert not open_ends or each.end <= open_ends[-1], f"{track}: {each} overlaps"
            open_ends.append(each.end)


def exported(arguments: list[str], place: Path) -> bytes:
    """What `rooflens export trace` wrote to ``place``."""
    from rooflens.cli import main

    assert main(["export", "trace", *arguments, "-o", str(place)]) == 0
    return place.read_bytes()
