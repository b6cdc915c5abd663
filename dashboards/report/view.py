"""What the report's script draws: columns of windows, few enough for a browser, with figures of four digits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rooflens.dashboards.report.markup import seen

MOST_WINDOWS = 1_500  # of a time line: more than a screen has pixels to tell apart
MOST_CELLS = 20_000  # windows of single engines on a page: a megabyte
MOST_MARKS = 300
BASIS = {"reachable": "reachable", "expected": "expected floor"}
Row = Mapping[str, Any]
BY_STEPS = ("batch", "waiting", "kv_used_ratio")  # means over steps; the others below are means over time
BY_TIME = ("mbu", "mfu")


@dataclass(frozen=True, slots=True)
class Line:
    """Windows of equal width from ``start_unix_s`` on; each column has a value, or None, for each of ``count``.

    ``merged`` is how many windows of the recording one of these stands for.
    """

    start_unix_s: float
    width_s: float
    count: int
    merged: int
    columns: Mapping[str, Sequence[float | None]]


def basis_of(history: Row) -> str:
    """What waste is measured against, in words."""
    return BASIS.get(history.get("basis") or "", "reachable, or the expected floor")


def bound_words(basis: str) -> str:
    """The same with an article, for the middle of a sentence."""
    return f"the {basis}" if basis.startswith("expected") else f"what is {basis}"


def time_line(history: Row, most: int = MOST_WINDOWS) -> Line | None:
    """All engines together; neighbouring windows are put together where there are more than ``most``."""
    windows, width_s = history.get("time_line") or (), history.get("window_s")
    if not windows or not width_s:
        return None
    numbers = [round(each["start_unix_s"] / width_s) for each in windows]
    first, merged = numbers[0], -(-(numbers[-1] - numbers[0] + 1) // most)
    count = (numbers[-1] - first) // merged + 1
    groups: list[list[Row]] = [[] for _ in range(count)]
    for number, window in zip(numbers, windows, strict=True):
        groups[(number - first) // merged].append(window)
    whole = [min(merged, numbers[-1] - first - at * merged + 1) for at in range(count)]
    points = [_point(group, _seconds(group, many, width_s)) for group, many in zip(groups, whole, strict=True)]
    columns = {name: [point.get(name) for point in points] for name in NAMES}
    return Line(first * width_s, width_s * merged, count, merged, {n: c for n, c in columns.items() if _told(c)})


NAMES = (
    "steps_per_s", "tokens_per_s", "step_mean_s", "step_max_s", "bound_s", "floor_s", "slowdown", *BY_STEPS, *BY_TIME,
    "wasted_device_s",
)  # fmt: skip


def _told(column: Iterable[float | None]) -> bool:
    return any(value is not None for value in column)


def _seconds(group: Sequence[Row], count: int, width_s: float) -> float:
    """What rates of ``count`` windows are over; ``group`` are those with a step, of the ends what was recorded."""
    return (count - len(group)) * width_s + sum(float(each["seconds"] or 0.0) for each in group)


def _point(group: Sequence[Row], seconds: float) -> dict[str, float | None]:
    """The figures of some windows as one of ``seconds``; an empty one where there was no step."""
    if not group:
        return {}
    weights = [float(each["steps"]) for each in group]
    found: dict[str, float | None] = {}
    untold = all(each.get("steps_per_s", 0.0) is None for each in group)  # too little of it was recorded for a rate
    found["steps_per_s"] = sum(weights) / seconds if seconds and not untold else None
    tokens = [each["tokens_per_s"] * (each["seconds"] or 0.0) for each in group if each["tokens_per_s"] is not None]
    found["tokens_per_s"] = sum(tokens) / seconds if tokens and seconds else None
    found["step_mean_s"] = _mean(group, "step_mean_s", weights)
    found["step_max_s"] = max((each["step_max_s"] for each in group if each["step_max_s"] is not None), default=None)
    found |= {name: _mean(group, name, weights) for name in BY_STEPS}
    busy = [weight * (each["step_mean_s"] or 0.0) for each, weight in zip(group, weights, strict=True)]
    found |= {name: _mean(group, name, busy) for name in BY_TIME}
    wasted = [each["wasted_device_s"] for each in group if each["wasted_device_s"] is not None]
    found["wasted_device_s"] = sum(wasted) if wasted else None
    found["slowdown"] = slowdown = _slowdown(group, busy)
    mean, used = found["step_mean_s"], [found[name] for name in BY_TIME]
    found["bound_s"] = mean / slowdown if mean is not None and slowdown else None
    shares = [share for share in used if share is not None]
    found["floor_s"] = mean * max(shares) if mean is not None and shares else None
    return {name: rounded(value) for name, value in found.items()}


def _mean(group: Sequence[Row], name: str, weights: Sequence[float]) -> float | None:
    pairs = [(each[name], weight) for each, weight in zip(group, weights, strict=True) if each[name] is not None]
    total = sum(weight for _, weight in pairs)
    return sum(value * weight for value, weight in pairs) / total if total else None


def _slowdown(group: Sequence[Row], busy: Sequence[float]) -> float | None:
    """Observed time over its bound: the bounds are added up, not the ratios."""
    pairs = [(each["slowdown"], spent) for each, spent in zip(group, busy, strict=True) if each["slowdown"]]
    bound = sum(spent / ratio for ratio, spent in pairs)
    return sum(spent for _, spent in pairs) / bound if bound else None


def rounded(value: float | None) -> float | None:
    """Four digits: what a chart shows."""
    return None if value is None else float(f"{value:.4g}")


def engine_lines(history: Row, most: int = MOST_CELLS) -> tuple[list[tuple[int, Line]], int]:
    """((number of the engine, its windows)), how many windows are one); engines in the order of the report.

    All have the same windows, so that they can be laid beside each other.
    """
    columns, width_s = history.get("engine_windows") or {}, history.get("window_s")
    windows: Sequence[int] = columns.get("window") or ()
    if not windows or not width_s:
        return [], 1
    first, last, engines = min(windows), max(windows), len(set(columns["engine"]))
    merged = max(1, -(-(last - first + 1) * engines // most))
    count = (last - first) // merged + 1
    whole = [min(merged, last - first - at * merged + 1) for at in range(count)]
    groups: dict[int, dict[int, list[Row]]] = {}
    names = ("seconds", "steps", "observed_s", "slowdown", "tokens_per_s", "wasted_device_s", "batch", "step_mean_s")
    for at, (engine, window) in enumerate(zip(columns["engine"], windows, strict=True)):
        row = {name: (columns.get(name) or {at: None})[at] for name in names}
        row |= {
            "seconds": width_s if row["seconds"] is None else row["seconds"],
            "step_max_s": None,
            "mbu": None,
            "mfu": None,
            "waiting": None,
            "kv_used_ratio": None,
        }
        groups.setdefault(engine, {}).setdefault((window - first) // merged, []).append(row)
    found = []
    for engine, by_window in sorted(groups.items()):
        rows = [by_window.get(at, ()) for at in range(count)]
        points = [_point(group, _seconds(group, many, width_s)) for group, many in zip(rows, whole, strict=True)]
        kept = {name: [point.get(name) for point in points] for name in NAMES}
        told = {name: column for name, column in kept.items() if _told(column)}
        found.append((engine, Line(first * width_s, merged * width_s, count, merged, told)))
    return found, merged


def marks(history: Row, most: int = MOST_MARKS) -> list[dict[str, Any]]:
    """Moments of the time line, oldest first: changes, findings, the worst windows, events; of very many the first."""
    found = []
    for change in history.get("change_points") or ():
        found.append(_mark("change", change["at_unix_s"], None, change["engine"], change["text"]))
    for one in history.get("findings") or ():
        text = f"{one['code']} ({one['severity']}): {one['summary']}"
        found.append(_mark("finding", one["unix_s"], one["until_unix_s"], one["engine"], text))
    for window in history.get("worst_windows") or ():
        end = window["start_unix_s"] + window["seconds"]
        found.append(_mark("worst", window["start_unix_s"], end, window["engine"], window["text"]))
    for event in history.get("events") or ():
        found.append(_mark("event", event["unix_s"], None, event["engine"], f"{event['name']} {event['text']}".strip()))
    return sorted(found[:most], key=lambda mark: mark["at"])


def _mark(kind: str, at: float, until: float | None, engine: str, text: str) -> dict[str, Any]:
    return {"kind": kind, "at": at, "until": until, "engine": seen(engine), "text": seen(text[:300])}


def data_of(history: Row, most_cells: int = MOST_CELLS) -> dict[str, Any] | None:
    """What the script gets of one recording, None without a time line."""
    line = time_line(history)
    if line is None:
        return None
    engines, merged = engine_lines(history, most_cells)
    labels = [engine["label"] for engine in history.get("engines") or ()]
    return {
        "basis": basis_of(history),
        "bound": bound_words(basis_of(history)),
        "from": history["from_unix_s"],
        "to": history["to_unix_s"],
        "all": _json(line),
        "engines": [{"label": seen(labels[at]), **_json(each)} for at, each in engines if at < len(labels)],
        "merged": merged,
        "marks": marks(history),
    }


def _json(line: Line) -> dict[str, Any]:
    return {"start": line.start_unix_s, "width": line.width_s, "count": line.count, "columns": dict(line.columns)}
