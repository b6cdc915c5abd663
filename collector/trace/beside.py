"""What a trace holds beside steps, as Arrow tables: counters of devices, and events with findings and back."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from rooflens.collector.trace.arrays import floats_array, integers_array, lists_array, texts_array
from rooflens.device_records import DeviceSample, Throttle
from rooflens.findings import Finding
from rooflens.records import RingEvent, RooflensError
from rooflens.trace_records import TraceCounters, TraceEvents
from rooflens.trace_tables import COUNTER_COLUMNS, EVENT_COLUMNS

TYPES: Mapping[str, pa.DataType] = {
    "string": pa.string(),
    "int64": pa.int64(),
    "double": pa.float64(),
    "list<string>": pa.list_(pa.string()),
}
REQUIRED = ("facts", "run", "unix_s", "class", "host", "uuid", "source", "end_unix_s")
EVENT, FINDING = "event", "finding"
THROTTLED = {reason: f"throttled_{reason}_s" for reason in Throttle}
# Fields of a sample that stand in a column of their name; the others are taken apart.
PLAIN = tuple(
    name for name, kind, _ in COUNTER_COLUMNS if name in DeviceSample.__dataclass_fields__ and "list" not in kind
)


def _schema(columns: Iterable[tuple[str, str, str]]) -> pa.Schema:
    return pa.schema([pa.field(name, TYPES[kind], nullable=name not in REQUIRED) for name, kind, _ in columns])


# The folder's name says the host as well; readers that make a column of it (pandas, pyarrow) take a dictionary for it.
HOST = pa.field("host", pa.dictionary(pa.int32(), pa.string()), nullable=False)
EVENT_SCHEMA, COUNTER_SCHEMA = _schema(EVENT_COLUMNS), _schema(COUNTER_COLUMNS)


def _table(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.Table:
    return pa.table([_column([row.get(field.name) for row in rows], field.type) for field in schema], schema=schema)


def _column(values: list[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_list(kind):
        known = np.array([value is not None for value in values], np.bool_)
        inner = texts_array([word for value in values for word in value or ()])
        return lists_array(inner, [len(value or ()) for value in values], known)
    if pa.types.is_string(kind):
        return texts_array(values)
    return integers_array(values) if pa.types.is_integer(kind) else floats_array(values)


def events_table(items: Sequence[TraceEvents], digest: Callable[[Any], str] = lambda facts: facts.digest) -> pa.Table:
    """Events and findings in the order of time, a row each; ``digest`` gives that of the facts of an item."""
    rows: list[dict[str, Any]] = []
    for item in items:
        own = {"facts": digest(item.facts), "run": item.facts.run}
        rows += [own | _event_row(unix_s, event) for unix_s, event in item.events]
        rows += [own | _finding_row(unix_s, finding) for unix_s, finding in item.findings]
    rows.sort(key=lambda row: (row["facts"], row["unix_s"]))
    return _table(rows, EVENT_SCHEMA)


def _event_row(unix_s: float, event: RingEvent) -> dict[str, Any]:
    return {
        "unix_s": unix_s,
        "sequence": event.sequence,
        "monotonic_s": event.monotonic_s,
        "class": EVENT,
        "name": event.name,
        "detail": json.dumps(dict(event.detail), separators=(",", ":"), default=str),
    }


def _finding_row(unix_s: float, finding: Finding) -> dict[str, Any]:
    return {
        "unix_s": unix_s,
        "class": FINDING,
        "name": str(finding.code),
        "severity": str(finding.severity),
        "status": str(finding.status),
        "summary": finding.summary,
        "detail": json.dumps(finding.to_json(), separators=(",", ":"), default=str),
    }


def event_of(row: Mapping[str, Any]) -> RingEvent | Finding:
    """The inverse of a row of events; RooflensError for a detail that is damaged or of a newer rooflens."""
    try:
        detail = json.loads(row["detail"] or "{}")
        if row["class"] == FINDING:
            return Finding.from_json(detail)
        return RingEvent(int(row["sequence"] or 0), float(row["monotonic_s"] or 0.0), str(row["name"]), dict(detail))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RooflensError(f"a row of events cannot be read ({type(error).__name__}: {str(error)[:80]})") from None


def counters_table(items: Sequence[TraceCounters]) -> pa.Table:
    """Samples in the order of device and time, a row each; a counter that is not known is null."""
    rows = [_counter_row(item.host, unix_s, sample) for item in items for unix_s, sample in item.samples]
    rows.sort(key=lambda row: (row["host"], row["uuid"], row["end_unix_s"]))
    table = _table(rows, COUNTER_SCHEMA)
    return table.set_column(0, HOST, table.column("host").dictionary_encode())


def _counter_row(host: str, unix_s: float, sample: DeviceSample) -> dict[str, Any]:
    row = {name: getattr(sample, name) for name in PLAIN}
    reasons = sample.throttles
    return row | {
        "host": host,
        "source": str(sample.source),
        "end_unix_s": unix_s,
        "start_unix_s": unix_s - sample.span_s,
        "throttles": None if reasons is None else [str(reason) for reason in reasons],
        **{THROTTLED[reason]: spent_s for reason, spent_s in sample.throttled_s.items()},
    }
