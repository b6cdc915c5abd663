"""The time line in a terminal: a row for each window where they are few, else a curve of blocks for each figure."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rooflens.analyzer.history.records import EXPECTED, REACHABLE, History, WindowPoint
from rooflens.cli.report import time_text
from rooflens.cli.units import aligned, factor_text, percent_text, seconds_text

MOST_ROWS = 24  # windows that get a row of their own
COLUMNS = 56  # of a curve
BLOCKS, UNKNOWN = "▁▂▃▄▅▆▇█", "·"
PLAIN_BLOCKS, PLAIN_UNKNOWN = "_.-:=+*#", " "  # where the terminal has no others
NAMES = {REACHABLE: "x reachable", EXPECTED: "x expected"}


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of a window: how it is called, what it is, how it reads, and whether the largest stands for many."""

    name: str
    value: Callable[[WindowPoint], float | None]
    text: Callable[[float], str]
    largest: bool = False
    rate: bool = False  # over the time of a window: nothing where there was no step


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 99.5 else f"{value:.3g}"


def figures(history: History) -> tuple[Figure, ...]:
    """The figures of the time line."""
    return (
        Figure("steps/s", lambda window: window.steps_per_s, _number, rate=True),
        Figure("tokens/s", lambda window: window.tokens_per_s, _number, rate=True),
        Figure("batch", lambda window: window.batch, _number),
        Figure("step mean", lambda window: window.step_mean_s, seconds_text),
        Figure("step max", lambda window: window.step_max_s, seconds_text, largest=True),
        Figure(NAMES.get(history.basis or "", "x bound"), lambda window: window.slowdown, factor_text),
        Figure("MBU", lambda window: window.mbu, percent_text),
        Figure("waiting", lambda window: window.waiting, _number),
        Figure("KV used", lambda window: window.kv_used_ratio, percent_text),
    )


def time_line(history: History) -> list[str]:
    """Rows or curves; figures of which no window knows anything are left out."""
    windows = history.time_line
    shown = [each for each in figures(history) if any(each.value(window) is not None for window in windows)]
    return _rows(history, shown) if len(windows) <= MOST_ROWS else _curves(history, shown)


def _rows(history: History, shown: Sequence[Figure]) -> list[str]:
    rows: list[Sequence[str]] = [("time line (UTC)", *(each.name for each in shown))]
    for window in history.time_line:
        values = [(each, each.value(window)) for each in shown]
        _, clock, _ = time_text(window.start_unix_s).split()
        tenth = f".{int(window.start_unix_s * 10 + 0.5) % 10}" if history.window_s < 1 else ""
        rows.append((f"{clock}{tenth}", *("-" if value is None else each.text(value) for each, value in values)))
    return aligned(rows)


def _curves(history: History, shown: Sequence[Figure]) -> list[str]:
    """Each column of a curve stands for equally many windows, those without a step included."""
    blocks, unknown = _signs()
    first = round(history.time_line[0].start_unix_s / history.window_s)
    last = round(history.time_line[-1].start_unix_s / history.window_s)
    each_windows = max(1, math.ceil((last - first + 1) / COLUMNS))
    count = math.ceil((last - first + 1) / each_windows)
    columns: list[list[WindowPoint]] = [[] for _ in range(count)]
    for window in history.time_line:
        columns[(round(window.start_unix_s / history.window_s) - first) // each_windows].append(window)
    lines = [("time line", "", "least", "most")]
    for figure in shown:
        values = [
            _of_column(figure, column, min(each_windows, last - first + 1 - at * each_windows), history.window_s)
            for at, column in enumerate(columns)
        ]
        known = [value for value in values if value is not None]
        low, high = min(known), max(known)
        curve = "".join(unknown if value is None else _block(blocks, value, low, high) for value in values)
        lines.append((figure.name, curve, figure.text(low), figure.text(high)))
    begin, end = (time_text(each).split()[1] for each in (history.from_unix_s, history.to_unix_s))
    ends = f"{begin}{end.rjust(max(0, count - len(begin)))}"
    lines.append(("UTC", ends, "", ""))
    widths = [max(len(row[at]) for row in lines) for at in range(4)]
    told = [
        "  ".join(
            [row[0].ljust(widths[0]), row[1].ljust(widths[1]), row[2].rjust(widths[2]), row[3].rjust(widths[3])]
        ).rstrip()
        for row in lines
    ]
    return [*told, f"a column is {seconds_text(each_windows * history.window_s)}; {unknown!r} is no step, or not known"]


def _of_column(figure: Figure, windows: Sequence[WindowPoint], count: int, width_s: float) -> float | None:
    """The figure of a column of ``count`` windows, of those with a step; a rate is over all of its recorded time."""
    if figure.rate:
        return _rate(figure, windows, count, width_s)
    values = [value for window in windows if (value := figure.value(window)) is not None]
    if not values:
        return None
    return max(values) if figure.largest else sum(values) / len(values)


def _rate(figure: Figure, windows: Sequence[WindowPoint], count: int, width_s: float) -> float | None:
    told = [(value, window.seconds) for window in windows if (value := figure.value(window)) is not None]
    if windows and not told:
        return None
    seconds = width_s * (count - len(windows)) + sum(each_s for _, each_s in told)
    return sum(value * each_s for value, each_s in told) / seconds if seconds > 0 else None


def _signs() -> tuple[str, str]:
    """(blocks from low to high, sign of what is not known) that standard output can write."""
    try:
        BLOCKS.encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return PLAIN_BLOCKS, PLAIN_UNKNOWN
    return BLOCKS, UNKNOWN


def _block(blocks: str, value: float, low: float, high: float) -> str:
    if not high > low:
        return blocks[0]
    return blocks[min(len(blocks) - 1, int((value - low) / (high - low) * len(blocks)))]
