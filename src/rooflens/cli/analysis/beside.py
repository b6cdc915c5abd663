"""What a trace or a ring holds beside steps, as the report shows it: events, findings, lost steps, energy."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
SPAN = ("start_unix_s", "end_unix_s", "energy_j")
OTHERS = "{:,} more events and findings are in the trace than a report lists"


def of_trace(files: TraceFiles, chosen: TraceFilter, problems: list[str]) -> Beside:
    """What the events and counters of a trace tell of the period; what cannot be read is a line in ``problems``."""
    events: list[Happening] = []
    findings: list[tuple[float, str, Mapping[str, Any]]] = []
    lost = left_out = 0
    seen: set[tuple[object, ...]] = set()
    for facts, table in events_of(files, chosen, problems):
        for row in table.to_pylist():
            if (key := _key(row)) in seen:
                continue
            seen.add(key)
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


def _key(row: Mapping[str, Any]) -> tuple[object, ...]:
    """What is the same of an event that copied files hold twice; one of a ring, though two sidecars tell it."""
    sequence = row.get("sequence")
    return row["run"], row["class"], row["name"], row.get("detail"), sequence or row["unix_s"]


def of_ring(steps: StepTable, events: Sequence[RingEvent], label: str, lost_steps: int, chosen: TraceFilter) -> Beside:
    """The same of a ring; its events have the wall clock of the last step before them."""
    found = []
    known = steps.where("unix_s") & steps.where("output_monotonic_s") if len(steps) else np.zeros(0, np.bool_)
    if known.any():
        at_s, unix_s = steps["output_monotonic_s"][known], steps["unix_s"][known]
        for event in events:
            step = max(0, int(np.searchsorted(at_s, event.monotonic_s, "right")) - 1)
            when = float(event.monotonic_s + unix_s[step] - at_s[step])
            if _within(when, chosen):
                found.append(Happening(when, label, event.name, _words(event.detail)))
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
    spans: dict[tuple[str, str], list[NDArray[np.float64]]] = {}
    for table in counters_of(files, chosen, problems):
        if not {"energy_j", "start_unix_s"} <= set(table.column_names):
            continue
        values = np.stack([table.column(name).cast("double").to_numpy() for name in SPAN])
        hosts, uuids = (np.array(table.column(name).to_pylist()) for name in ("host", "uuid"))
        for host, uuid in dict.fromkeys(zip(hosts.tolist(), uuids.tolist(), strict=True)):
            mine = values[:, (hosts == host) & (uuids == uuid)]
            spans.setdefault((host, uuid), []).append(mine[:, np.isfinite(mine).all(axis=0)])
    told_of = {key: np.concatenate(found, axis=1) for key, found in spans.items()}
    spent = {key: _spent_j(found) for key, found in told_of.items() if found.shape[1]}
    if not spent:
        return None, None
    wanted = set(_devices(files.facts.values(), spent))
    told = wanted & set(spent)
    if not told:
        return None, None
    return sum(spent[key] for key in told), len(told) / len(wanted)


def _spent_j(spans: NDArray[np.float64]) -> float:
    """The energy of one device from samples (SPAN, count): time that several tell of, copied or not, counts once."""
    begin, end, energy_j = spans[:, np.lexsort((spans[1], spans[0]))]
    told = np.concatenate([[-np.inf], np.maximum.accumulate(end)[:-1]])
    length = end - begin
    with np.errstate(divide="ignore", invalid="ignore"):
        fresh = np.where(length > 0, np.clip(end - np.maximum(begin, told), 0, None) / length, end > told)
    return float((energy_j * fresh).sum())


def _devices(facts: Iterable[TraceFacts], spent: Mapping[tuple[str, str], float]) -> Iterator[tuple[str, str]]:
    for each in facts:
        uuids = each.info.device_uuids if each.info else ()
        yield from (((each.host, uuid) for uuid in uuids) if uuids else (key for key in spent if key[0] == each.host))
