"""Findings as pieces of time: from when one fired to when it cleared."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from rooflens.exporters.trace_files.parts import Happened
from rooflens.findings import Code, Finding, Status
from rooflens.records import RingEvent

MOST_OPEN = 100_000  # engines times codes; a code stands once at a time


@dataclass(frozen=True, slots=True)
class Stood:
    """A finding from ``begin_unix_s`` to ``end_unix_s``; None where it still stood at the end."""

    first: Happened
    finding: Finding
    begin_unix_s: float
    end_unix_s: float | None


@dataclass(slots=True)
class Standing:
    """Findings that fire now, by engine and code."""

    _open: dict[tuple[str, Code], Stood] = field(default_factory=dict)

    def take(self, happened: Happened) -> Stood | None:
        """The one that has ended with this, None where none has."""
        finding = happened.what
        if not isinstance(finding, Finding) or finding.status is Status.CANNOT_TELL:
            return None
        key = (happened.facts.label, finding.code)
        before = self._open.pop(key, None)
        began_unix_s = finding.since_unix_s if finding.since_unix_s is not None else happened.unix_s
        began_unix_s = before.begin_unix_s if before is not None else min(began_unix_s, happened.unix_s)
        if finding.status is Status.CLEARED:
            return Stood(happened, before.finding if before else finding, began_unix_s, happened.unix_s)
        if len(self._open) < MOST_OPEN:
            self._open[key] = Stood(happened, finding, began_unix_s, None)
        return None

    def end(self) -> Iterator[Stood]:
        """Those that still stand."""
        yield from self._open.values()
        self._open = {}


def finding_details(finding: Finding) -> dict[str, Any]:
    """What a viewer shows of a finding."""
    found: dict[str, Any] = {"severity": str(finding.severity), "summary": finding.summary}
    if finding.price is not None:
        found["saved_s"] = finding.price.saved_s
    if finding.remedy is not None:
        found["remedy"] = finding.remedy
    for fact in finding.evidence:
        found[fact.name] = fact.value
    return {name: value for name, value in found.items() if _shown(value)}


def event_details(event: RingEvent) -> dict[str, Any]:
    """What a viewer shows of an event: its plain values."""
    plain = {str(name): value for name, value in event.detail.items() if _shown(value)}
    return plain | ({"sequence": event.sequence} if event.sequence else {})


def _shown(value: Any) -> bool:
    return isinstance(value, bool | int | str) or (isinstance(value, float) and math.isfinite(value))
