"""What a trace or a ring holds beside steps, as the report shows it: events, findings, lost steps, energy."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rooflens.analyzer.history.overview import Beside
from rooflens.analyzer.history.records import Happening, StoodFinding
from rooflens.collector.trace.files import TraceFiles
from rooflens.collector.trace.scan import counters_of, events_of
from rooflens.records import RingEvent, StepTable
from rooflens.trace_records import TraceFacts, TraceFilter

FINDING = "finding"
ENDED = "cleared"
UNCERTAIN = "cannot_tell"
GAP, LOST = "trace_gap", ("steps", "lost_steps")  # an event of the writer, and the field that counts what it missed
MOST_KEPT = 10_000  # events and findings of a report; beyond them they are counted
LONGEST_TEXT = 120
OTHERS = "{:,} more events and findings are in the trace than a report lists"


def of_trace(files: TraceFiles, chosen: TraceFilter, problems: list[str]) -> Beside:
    """What the events and counters of a trace tell of the period; what cannot be read is a line in ``problems``."""
    events: list[Happening] = []
    findings: list[tuple[float, str, Mapping[str, Any]]] = []
    lost = left_out = 0
    for facts, table in events_of(files, chosen, problems):
        for row in table.to_pylist():
            label = facts[row["facts"]].label
            detail = _detail(row.get("detail"))
            if row["class"] != FINDING and row["name"] == GAP:
                lost += _lost(detail)
            if len(events) + len(findings) >= MOST_KEPT:
                left_out += 1
            elif row["class"] == FINDING:
                findings.append((row["unix_s"], label, row))
            else:
                events.append(Happening(row["unix_s"], label, str(row["name"]), _words(detail)))
    energy_j, energy_ratio = _energy(files, chosen, problems)
    return Beside(
        events=tuple(sorted(events, key=lambda event: event.unix_s)),
        findings=tuple(_stood(findings)),
        lost_steps=lost,
        energy_j=energy_j,
        energy_ratio=energy_ratio,
        notes=(OTHERS.format(left_out),) if left_out else (),
    )


def of_ring(steps: StepTable, events: Sequence[RingEvent], label: str, lost_steps: int, chosen: TraceFilter) -> Beside:
    """The same of a ring; its events have the wall time of the step that is nearest to them."""
    found = []
    if len(steps):
        offset = float(steps["unix_s"][-1]) - float(steps["output_monotonic_s"][-1])
        for event in events:
            unix_s = event.monotonic_s + offset
            if _within(unix_s, chosen):
                found.append(Happening(unix_s, label, event.name, _words(event.detail)))
    return Beside(events=tuple(found[:MOST_KEPT]), lost_steps=lost_steps)


def _within(unix_s: float, chosen: TraceFilter) -> bool:
    return (chosen.from_unix_s is None or unix_s >= chosen.from_unix_s) and (
        chosen.to_unix_s is None or unix_s < chosen.to_unix_s
    )


def _detail(text: str | None) -> Mapping[str, Any]:
    try:
        found = json.loads(text or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _words(detail: Mapping[str, Any]) -> str:
    words = ", ".join(
        f"{name} {value:.6g}" if isinstance(value, float) else f"{name} {value}" for name, value in detail.items()
    )
    return words[:LONGEST_TEXT]


def _lost(detail: Mapping[str, Any]) -> int:
    return sum(int(value) for name in LOST if isinstance(value := detail.get(name), int | float) and value > 0)


def _stood(found: Sequence[tuple[float, str, Mapping[str, Any]]]) -> Iterator[StoodFinding]:
    """Findings from when they fired to when they cleared; one that never fired in the period is left out."""
    standing: dict[tuple[str, str], StoodFinding] = {}
    done: list[StoodFinding] = []
    for unix_s, label, row in sorted(found, key=lambda entry: entry[0]):
        key, status = (label, str(row["name"])), str(row["status"])
        before = standing.pop(key, None)
        if status == UNCERTAIN:
            if before is not None:
                standing[key] = before
            continue
        if status == ENDED:
            if before is not None:
                done.append(_until(before, unix_s))
            continue
        since = before.unix_s if before is not None else unix_s
        standing[key] = StoodFinding(
            since, None, label, key[1], str(row["severity"] or ""), status, str(row["summary"] or "")
        )
    yield from sorted([*done, *standing.values()], key=lambda finding: (finding.unix_s, finding.engine))


def _until(finding: StoodFinding, unix_s: float) -> StoodFinding:
    return StoodFinding(
        finding.unix_s, unix_s, finding.engine, finding.code, finding.severity, finding.status, finding.summary
    )


def _energy(files: TraceFiles, chosen: TraceFilter, problems: list[str]) -> tuple[float | None, float | None]:
    """(energy of the engines' devices, the part of them that it is known of); None where no counter tells it.

    Of an engine that does not name its devices, all that were counted on its host are taken.
    """
    spent: dict[tuple[str, str], float] = {}
    for table in counters_of(files, chosen, problems):
        if "energy_j" not in table.column_names:
            continue
        for row in table.select(["host", "uuid", "energy_j"]).to_pylist():
            if row["energy_j"] is not None:
                key = (row["host"], row["uuid"])
                spent[key] = spent.get(key, 0.0) + row["energy_j"]
    if not spent:
        return None, None
    wanted = set(_devices(files.facts.values(), spent))
    told = wanted & set(spent)
    if not told:
        return None, None
    return sum(spent[key] for key in told), len(told) / len(wanted)


def _devices(facts: Iterable[TraceFacts], spent: Mapping[tuple[str, str], float]) -> Iterator[tuple[str, str]]:
    for each in facts:
        uuids = each.info.device_uuids if each.info else ()
        yield from (((each.host, uuid) for uuid in uuids) if uuids else (key for key in spent if key[0] == each.host))
