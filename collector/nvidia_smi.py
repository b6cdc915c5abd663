"""What ``nvidia-smi`` printed, kept as text: ``--query-gpu`` as CSV, ``-q`` and ``dmon``; each device a record.

Read in driver 361 to 580 (nvitop#208, ollama#6163, DGX Spark), dmon with and without ``-o DT`` and ``--gpm-metrics``.
"[N/A]", "[Not Supported]", "-" and the like are not known, never 0: a machine with unified memory (GB10) tells no
memory at all, and its "utilization.memory" is 0 (nvitop#208, gpud#1170). What its processes hold is told and summed;
the host's own memory is no stand-in. "GPU-Util" is the time in which any kernel ran and says nothing of efficiency.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from datetime import datetime

from rooflens.collector.nvidia_smi_names import (
    COLUMNS,
    DMON,
    OTHER_DMON,
    POWER,
    REASONS,
    SECTIONS,
    UNITS,
    WORDS,
)
from rooflens.log_records import LogRecord, RecordKind

ORIGIN = "nvidia-smi"
MOST_LINES = 1_000_000
MOST_COLUMNS = 128
LONGEST_LINE = 4096
LONGEST_WORD = 80
_NUMBER = re.compile(r"[-+]?\d{1,15}(?:\.\d{1,9})?")
_DEVICE = re.compile(r"GPU (?:[0-9A-Fa-f]{4,8}:)?[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d\s*$")
_UNKNOWN_LABEL = re.compile(r"[\w.# ]{1,64}")
NO_MEMORY = "no memory of its own is told (unified memory?); the host's is no stand-in"


def is_mine(head: str) -> bool:
    """Whether a text is something that nvidia-smi prints and this module reads."""
    begin = head.lstrip("\ufeff \t\r\n")
    first = begin.partition("\n")[0][:LONGEST_LINE]
    columns = [_column(each)[0] for each in first.split(",")][:MOST_COLUMNS]
    return (
        any(each in COLUMNS for each in columns)
        or (begin.startswith("#") and first.split()[1:2] in (["gpu"], ["Date"], ["Time"]))
        or "NVSMI LOG" in head[:400]
        or "Clocks Event Reasons" in head
        or "Clocks Throttle Reasons" in head
    )


def read_text(text: str) -> tuple[LogRecord, ...]:
    """Each device at each moment, kind SENSOR; never raises for what the text holds.

    ``ranks["gpu"]`` is the index where it is told.
    """
    lines = [line[:LONGEST_LINE] for line in text.lstrip("\ufeff").splitlines()[:MOST_LINES]]
    first = next((line for line in lines if line.strip()), "")
    if first.lstrip().startswith("#"):
        return tuple(_dmon(lines))
    if any(_column(each)[0] in COLUMNS for each in first.split(",")[:MOST_COLUMNS]):
        return tuple(_table(lines))
    return tuple(_query(lines))


def _number(text: str, unit: str = "") -> float | None:
    """A value in SI units; the unit that stands beside it, else the one of its column."""
    found = _NUMBER.match(text.strip())
    if found is None:
        return None
    beside = text.strip()[found.end() :].strip()
    told = beside or unit
    return float(found[0]) / 100 if told.endswith("%") else float(found[0]) * UNITS.get(told, 1.0)


def _record(values: dict[str, float], words: dict[str, str], gpu: int | None, unix_s: float | None,
            unknown: tuple[str, ...] = ()) -> LogRecord:  # fmt: skip
    ranks = {"gpu": gpu} if gpu is not None else {}
    return LogRecord(ORIGIN, RecordKind.SENSOR, values, words, ranks, unix_s, unknown)


def _column(text: str) -> tuple[str, str]:
    """The name of a column and its unit, "memory.total [MiB]"."""
    name, _, unit = text.strip().partition(" [")
    return name.strip(), unit.rstrip("] ")


def _table(lines: list[str]) -> Iterator[LogRecord]:
    rows = csv.reader((line for line in lines if line.strip()), skipinitialspace=True)
    columns: list[tuple[str, str]] = []
    try:
        for cells in rows:
            found = [_column(cell) for cell in cells[:MOST_COLUMNS]]
            if any(name in COLUMNS for name, _ in found):  # the head; a file may hold several runs
                columns = found
                continue
            yield _row(columns, cells)
    except csv.Error:
        return


def _row(columns: list[tuple[str, str]], cells: list[str]) -> LogRecord:
    values: dict[str, float] = {}
    words: dict[str, str] = {}
    unknown: list[str] = []
    index: int | None = None
    unix_s: float | None = None
    for (name, unit), cell in zip(columns, cells, strict=False):
        reason = REASONS.get(name.rpartition("_reasons.")[2]) if "_reasons." in name else None
        if name in COLUMNS:
            read = _number(cell, unit)
            if read is not None:
                values[COLUMNS[name]] = values.get(COLUMNS[name], 0.0) * (COLUMNS[name] == "process_used_bytes") + read
        elif reason is not None:
            values.update(_flag(reason, cell))
        elif name == "index":
            index = int(cell) if cell.strip().isdigit() and len(cell) < 6 else None
        elif name == "timestamp":
            unix_s = _moment(cell)
        elif name in WORDS:
            _keep(words, WORDS[name], cell)
        elif name not in ("pid", "process_name") and _UNKNOWN_LABEL.fullmatch(name):
            unknown.append(name)
    names = [name for name, _ in columns]
    if "memory.total" in names and "memory_total_bytes" not in values:
        words["complaint"] = NO_MEMORY
    return _record(values, words, index, unix_s, tuple(unknown[:16]))


def _keep(words: dict[str, str], name: str, text: str) -> None:
    text = text.strip()
    plain = text.isprintable() and not any(sign in text for sign in "/\\[")
    if text and plain and len(text) <= LONGEST_WORD:
        words[name] = text


def _flag(name: str, text: str) -> dict[str, float]:
    return {"Active": {name: 1.0}, "Not Active": {name: 0.0}}.get(text.strip(), {})


def _moment(text: str) -> float | None:
    for form in ("%Y/%m/%d %H:%M:%S.%f", "%Y/%m/%d %H:%M:%S", "%a %b %d %H:%M:%S %Y"):
        try:
            return datetime.strptime(text.strip(), form).timestamp()
        except (ValueError, OverflowError, OSError):
            continue
    return None


def _dmon(lines: list[str]) -> Iterator[LogRecord]:
    columns: list[str] = []
    units: list[str] = []
    for line in lines:
        cells = line.split()[:MOST_COLUMNS]
        if cells[:1] == ["#"] or (cells and cells[0].startswith("#")):
            cells = cells[1:] if cells[0] == "#" else [cells[0][1:], *cells[1:]]
            if any(cell in ("gpu", "pwr", "sm") for cell in cells):
                columns = cells
            elif not any(cell.isdigit() for cell in cells):
                units = cells
            continue
        if not columns or len(cells) < 2:
            continue
        values: dict[str, float] = {}
        told = dict(zip(columns, cells, strict=False))
        for position, (column, cell) in enumerate(zip(columns, cells, strict=False)):
            read = _number(cell, units[position] if position < len(units) else "") if column in DMON else None
            if read is not None:
                values[DMON[column]] = read
        gpu = told.get("gpu", "")
        unix_s = _day(told.get("Date", ""), told.get("Time", ""))
        unknown = tuple(c for c in columns if c not in DMON and c not in ("gpu", "Date", "Time", *OTHER_DMON))[:16]
        if values:
            yield _record(values, {}, int(gpu) if gpu.isdigit() and len(gpu) < 6 else None, unix_s, unknown)


def _day(date: str, clock: str) -> float | None:
    try:
        return datetime.strptime(f"{date} {clock}", "%Y%m%d %H:%M:%S").timestamp()
    except (ValueError, OverflowError, OSError):
        return None


def _query(lines: list[str]) -> Iterator[LogRecord]:
    values: dict[str, float] = {}
    words: dict[str, str] = {}
    sections: list[tuple[int, str]] = []
    unix_s: float | None = None
    gpu = -1
    for line in lines:
        if _DEVICE.match(line):
            if values or words:
                yield _record(values, words, gpu if gpu >= 0 else None, unix_s)
            values, words, sections, gpu = {}, {}, [], gpu + 1
            continue
        depth = len(line) - len(line.lstrip())
        label, colon, text = (part.strip() for part in line.partition(":"))
        while sections and sections[-1][0] >= depth:
            sections.pop()
        if not colon:
            if label:
                sections.append((depth, label))
            continue
        if label == "Timestamp":
            unix_s = _moment(text)
            continue
        _labelled(sections, label, text, values, words)
        if text in ("Active", "Not Active"):
            sections.append((depth, label))
    if values or words:
        yield _record(values, words, gpu if gpu >= 0 else None, unix_s)


def _labelled(sections: list[tuple[int, str]], label: str, text: str, values: dict[str, float],
              words: dict[str, str]) -> None:  # fmt: skip
    section = sections[-1][1] if sections else ""
    above = {name for _, name in sections}
    if above & {"Clocks Event Reasons", "Clocks Throttle Reasons"}:
        values.update(_flag(REASONS.get(label.lower().replace(" ", "_"), ""), text) if label else {})
        values.pop("", None)
        return
    name = SECTIONS.get((section, label))
    if name is None and section in ("Power Readings", "GPU Power Readings"):
        name = POWER.get(label)
    read = _number(text)
    if name is not None:
        if read is not None:
            values[name] = read
        elif name == "memory_total_bytes":
            words["complaint"] = NO_MEMORY
    elif label in ("Used GPU Memory",) and read is not None:
        values["process_used_bytes"] = values.get("process_used_bytes", 0.0) + read
    elif label in ("Product Name", "GPU UUID"):
        _keep(words, "name" if label == "Product Name" else "uuid", text)
