"""OTLP in JSON lines, the file format of the OpenTelemetry Collector: one ExportTraceServiceRequest a line.

A step is a span with its columns as attributes; the steps of one run in one minute are one trace, below a span of
that minute, so that no backend gets a trace of millions. Ids follow from run, sequence and time: the same steps give
the same ids. The encoding is that of the OTLP specification 1.x for JSON: ids in hex, 64-bit integers as text.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, NamedTuple

from rooflens.exporters.trace_files.parts import Happened, Output, Part, StepRows
from rooflens.exporters.trace_files.slices import BOUND_NAMES, GRAPH_NAMES, KIND_NAMES
from rooflens.exporters.trace_files.stood import Standing, Stood
from rooflens.findings import Finding
from rooflens.trace_records import TraceFacts

LIMIT_BYTES = None  # taken line by line
TICKS_PER_S = 1_000_000_000
BATCH_SPANS = 512  # of a line
MINUTE_S = 60
KEPT_MINUTES = 4096  # of all runs: a minute told again has the same ids
INTERNAL = 1  # SPAN_KIND_INTERNAL
WORDS = {"kind": KIND_NAMES, "bound": BOUND_NAMES, "graph_mode": GRAPH_NAMES}
TIMES = frozenset(("unix_s", "submit_monotonic_s", "output_monotonic_s"))  # which the span itself tells
_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


class _Minute(NamedTuple):
    """What is known of the spans of one run in one minute; times in nanoseconds."""

    facts: TraceFacts
    begin: int
    end: int


class OtlpWriter:
    """See parts.Writer; counters of devices are no spans and have no place in it."""

    def __init__(self, output: Output, begin_unix_s: int, about: Mapping[str, Any]) -> None:
        """``about`` may name the version of the scope; the times are absolute."""
        self._output, self._standing = output, Standing()
        self._scope = {"name": "rooflens", "version": str(about.get("version", ""))}
        self._facts: TraceFacts | None = None
        self._spans: list[dict[str, Any]] = []
        self._minutes: OrderedDict[tuple[str, int], _Minute] = OrderedDict()
        self._last_unix_s = float(begin_unix_s)

    def take(self, part: Part) -> None:
        """Write one part; TooLarge where the file is full."""
        if isinstance(part, StepRows):
            self._steps(part)
        elif isinstance(part, Happened):
            self._happened(part)
            self._output.events += 1

    def end(self) -> None:
        """Nothing follows: what still stands lasts until the last step."""
        for stood in self._standing.end():
            self._stood(stood)
        while self._minutes:
            self._root(*self._minutes.popitem(last=False))
        self._flush()

    def _steps(self, rows: StepRows) -> None:
        names = list(rows.columns)
        for values in zip(*rows.columns.values(), strict=True):
            row = dict(zip(names, values, strict=True))
            unix_s, observed_s = row.get("unix_s"), row.get("observed_s")
            if unix_s is None or observed_s is None or not observed_s >= 0:
                self._output.left_out += 1
                continue
            self._output.check(unix_s)
            kind = KIND_NAMES.get(row.get("kind", -1), "step")
            told = {f"rooflens.step.{name}": WORDS[name].get(value) if name in WORDS else value
                    for name, value in row.items() if name not in TIMES}  # fmt: skip
            self._span(rows.facts, kind, unix_s - observed_s, unix_s, f"step {row.get('sequence')}", told)
            self._last_unix_s = max(self._last_unix_s, unix_s)
            self._output.steps += 1

    def _happened(self, happened: Happened) -> None:
        what = happened.what
        if isinstance(what, Finding):
            if (stood := self._standing.take(happened)) is not None:
                self._stood(stood)
            return
        told = {f"rooflens.event.{name}": value for name, value in what.detail.items()}
        name = f"event {what.name}"
        self._span(happened.facts, name, happened.unix_s, happened.unix_s, f"{name} {what.sequence}", told)

    def _stood(self, stood: Stood) -> None:
        finding = stood.finding
        told: dict[str, Any] = {"rooflens.finding.code": str(finding.code)}
        told |= {"rooflens.finding.severity": str(finding.severity), "rooflens.finding.summary": finding.summary}
        told["rooflens.finding.saved_s"] = finding.price.saved_s if finding.price else None
        end_unix_s = self._last_unix_s if stood.end_unix_s is None else stood.end_unix_s
        name = f"finding {finding.code}"
        self._span(stood.first.facts, name, stood.begin_unix_s, max(stood.begin_unix_s, end_unix_s), name, told)

    def _span(
        self, facts: TraceFacts, name: str, begin_unix_s: float, end_unix_s: float, which: str, told: Mapping[str, Any]
    ) -> None:
        minute = int(begin_unix_s // MINUTE_S)
        trace, root = _trace_ids(facts.run, minute)
        begin, end = round(begin_unix_s * 1e6) * 1000, round(end_unix_s * 1e6) * 1000
        key = facts.run, minute
        known = self._minutes.get(key)
        self._minutes[key] = (
            _Minute(facts, begin, end)
            if known is None
            else _Minute(facts, min(known.begin, begin), max(known.end, end))
        )
        if len(self._minutes) > KEPT_MINUTES:
            self._root(*self._minutes.popitem(last=False))
        own = sha256(f"{facts.run}\n{which}\n{begin}".encode()).hexdigest()[:16]
        self._add(facts, {"traceId": trace, "spanId": own, "parentSpanId": root, "name": name}, (begin, end), told)

    def _root(self, key: tuple[str, int], minute: _Minute) -> None:
        """The span above those of a minute: from the begin of the first to the end of the last."""
        trace, root = _trace_ids(*key)
        span = {"traceId": trace, "spanId": root, "name": "engine minute"}
        self._add(minute.facts, span, (minute.begin, minute.end), {"rooflens.run": key[0]})

    def _add(self, facts: TraceFacts, span: dict[str, Any], time: tuple[int, int], told: Mapping[str, Any]) -> None:
        if facts is not self._facts:
            self._flush()
            self._facts = facts
        span |= {"kind": INTERNAL, "startTimeUnixNano": str(time[0]), "endTimeUnixNano": str(max(time))}
        self._spans.append(span | {"attributes": _attributes(told)})
        if len(self._spans) >= BATCH_SPANS:
            self._flush()

    def _flush(self) -> None:
        if self._spans and self._facts is not None:
            scoped = [{"scope": self._scope, "spans": self._spans}]
            request = {"resourceSpans": [{"resource": {"attributes": _resource(self._facts)}, "scopeSpans": scoped}]}
            self._output.write(f"{_encode(request)}\n".encode())
        self._spans = []


def _trace_ids(run: str, minute: int) -> tuple[str, str]:
    """(of the trace, of its root span)."""
    digits = sha256(f"{run}\n{minute}".encode()).hexdigest()
    return digits[:32], digits[32:48]


def _resource(facts: TraceFacts) -> list[dict[str, Any]]:
    """The engine by the names of OpenTelemetry's semantic conventions where they have one."""
    info = facts.info
    return _attributes(
        {
            "service.name": info.engine if info else "engine",
            "service.version": info.engine_version if info else None,
            "service.instance.id": facts.label,
            "host.name": facts.host,
            "k8s.pod.name": info.pod if info else None,
            "gen_ai.request.model": facts.model_name,
            "rooflens.engine": facts.engine,
            "rooflens.run": facts.run,
            "rooflens.source": str(facts.source),
            "rooflens.hardware": facts.hardware.id if facts.hardware else None,
        }
    )


def _attributes(told: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"key": name, "value": value} for name, each in told.items() if (value := _value(each)) is not None]


def _value(value: Any) -> dict[str, Any] | None:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value} if abs(value) < float("inf") else None
    return {"stringValue": value} if isinstance(value, str) else None
