"""What a recording says beside its steps over time: names and values, nested ones as tables, and where it is from."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rooflens.dashboards.report import words
from rooflens.dashboards.report.happenings import facts
from rooflens.dashboards.report.markup import Child, Markup, tag
from rooflens.dashboards.report.tables import Cell, Column, table

Row = Mapping[str, Any]
MOST_DEEP = 3
MOST_FACTS = 200
MOST_ROOFS = 20
HIDDEN = {"history", "phases", "decode_by_batch", "model_config", "last_step_age_s", "pid", "instance", "regimes"}
SECRET = re.compile(r"(?<=://)[^/@\s]*@|[?#].*$")  # of an address: who asks, and signed parts


def place_text(place: str) -> str:
    """Where a recording lies, without a secret that its address may hold."""
    return SECRET.sub("", place) if "://" in place else place.rstrip("/").rpartition("/")[2] or place


def about(found: Row) -> Markup | None:
    """The plain facts of a recording; None where there are none."""
    amounts = [(name, text) for name, text in _flat(found, "", 0)][:MOST_FACTS]
    return facts(amounts) if amounts else None


def _flat(found: Row, before: str, deep: int) -> Iterator[tuple[str, Child]]:
    for key, value in found.items():
        name = f"{before}{str(key).replace('_', ' ')}"
        if key in HIDDEN or value is None or value == [] or value == {}:
            continue
        if isinstance(value, Mapping):
            if deep < MOST_DEEP:
                yield from _flat(value, f"{name}, ", deep + 1)
        elif isinstance(value, list | tuple):
            if all(not isinstance(each, Mapping | list | tuple) for each in value):
                yield name, ", ".join(_text(str(key), each) for each in value[:20])
        else:
            yield name, _text(str(key), value)


def _text(key: str, value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return words.short(place_text(value) if key in ("ring", "file", "path", "source") else value, 300)
    if value is None:
        return words.DASH
    if key.endswith("unix_s"):
        return f"{words.moment(value)} UTC"
    if key.endswith("_s") and not key.endswith("per_s"):
        return words.seconds(value)
    if key.endswith("_ratio"):
        return words.percent(value)
    return f"{value:,}" if isinstance(value, int) else words.number(value)


def lists(found: Row) -> Iterator[Markup]:
    """Every list of records in a recording that is no steps, as a table."""
    for key, value in found.items():
        if key in HIDDEN or not isinstance(value, list) or not value or not isinstance(value[0], Mapping):
            continue
        yield _table(str(key).replace("_", " "), [each for each in value if isinstance(each, Mapping)])


def _table(name: str, rows: Sequence[Row]) -> Markup:
    names = [key for key in rows[0] if not isinstance(rows[0][key], Mapping | list | tuple)][:16]
    columns = [
        Column(key.replace("_", " "), any(isinstance(row.get(key), int | float) for row in rows)) for key in names
    ]
    body = [[_cell(key, row.get(key)) for key in names] for row in rows]
    return table(f"{name[:1].upper()}{name[1:]}.", columns, body, name)


def _cell(key: str, value: Any) -> Cell:
    figure = isinstance(value, int | float) and not isinstance(value, bool)
    return Cell(_text(key, value), float(value) if figure else None)


HOW = (
    "Floor: the shortest time that the hardware allows for the bytes and operations of a step, all of them overlapped. "
    "In the time line it is the larger of the two times of a window, and so at most the floor of its single steps.",
    "Reachable: what a well-tuned engine takes, by published or calibrated speeds of kernels. Where that is not known "
    "the expected floor stands for it: the floor with the experts that uniform routing reads.",
    "Lost: observed time above what is reachable, on all devices of an engine.",
    "MBU and MFU: the time that the needed bytes, or operations, take at the hardware's peak, over the observed time.",
    "Quantiles are of single steps, within 2 %. Times are UTC. – is not known, and never nought.",
)


def provenance(found: Row, merged: int, cells_merged: int, version: str, drawn: Child) -> Markup:
    """Where the figures are from, what is missing, and how they were computed."""
    history: Row = found.get("history") or {}
    lines: list[Child] = [f"Written by rooflens {version}. This page asks for nothing from elsewhere."]
    if places := found.get("places"):
        files = found.get("files")
        lines.append(f"Read from {', '.join(map(place_text, places))}{f': {files:,} files' if files else ''}.")
    lines += [f"Floors stand on {roof['text']}." for roof in (found.get("roofs") or ())[:MOST_ROOFS]]
    chosen: Row = history.get("chosen") or {}
    asked = [f"{name.replace('_unix_s', '')} {_asked(name, value)}" for name, value in chosen.items() if value]
    if asked:
        lines.append(f"Only {', '.join(asked)}.")
    if merged > 1:
        lines.append(
            f"The time line has one point for {merged:,} windows of the recording: means, and the longest step."
        )
    if cells_merged > 1:
        lines.append(f"Lines of single engines have one point for {cells_merged:,} windows of the recording.")
    lines += [str(each) for each in (*(found.get("problems") or ()), *(history.get("notes") or ()))]
    if found.get("history_problem"):
        lines.append(str(found["history_problem"]))
    if source := (found.get("efficiency") or {}).get("source"):
        lines.append(f"What is reachable: {source}.")
    if history.get("change_rule"):
        lines.append(f"Changes: {history['change_rule']}.")
    return tag("ul", [tag("li", line) for line in (*lines, drawn, *HOW)], class_="notes")


def _asked(name: str, value: Any) -> str:
    if name.endswith("unix_s"):
        return f"{words.moment(value)} UTC"
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
