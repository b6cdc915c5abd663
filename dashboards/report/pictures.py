"""The time line as a picture that needs no script, for print and where uPlot is not there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rooflens.dashboards.report import words
from rooflens.dashboards.report.markup import Markup, tag
from rooflens.dashboards.report.view import Line

WIDTH, LEFT, RIGHT, TOP, PANEL, GAP, BOTTOM = 960, 70, 12, 8, 84, 26, 24
MOST_POINTS = 480  # a picture of this width shows no more
TICKS = 6


@dataclass(frozen=True, slots=True)
class Panel:
    """Lines that share an axis: (column, words, class of its colour)."""

    title: str
    lines: tuple[tuple[str, str, str], ...]
    text: Callable[[float | None], str]


def panels(line: Line, basis: str) -> list[Panel]:
    """The panels of which something is known."""
    every = [
        Panel(
            "step time",
            (("step_mean_s", "mean", "observed"), ("bound_s", basis, "reachable"), ("floor_s", "floor", "floor")),
            words.seconds,
        ),
        Panel("steps/s", (("steps_per_s", "steps/s", "observed"),), words.number),
        Panel("tokens/s", (("tokens_per_s", "generated tokens/s", "observed"),), words.number),
        Panel("sequences", (("batch", "batch", "observed"), ("waiting", "waiting", "waste")), words.number),
        Panel(
            "used",
            (("kv_used_ratio", "KV cache", "kv"), ("mbu", "MBU", "observed"), ("mfu", "MFU", "waste")),
            words.percent,
        ),
    ]
    kept = [(each, tuple(one for one in each.lines if one[0] in line.columns)) for each in every]
    return [Panel(each.title, lines, each.text) for each, lines in kept if lines]


def still(line: Line, basis: str, marks: Sequence[Mapping[str, Any]]) -> Markup:
    """The whole time line as SVG."""
    shown = panels(line, basis)
    height = TOP + len(shown) * (PANEL + GAP) + BOTTOM
    parts = [_panel(line, panel, TOP + at * (PANEL + GAP) + GAP - 8) for at, panel in enumerate(shown)]
    return tag(
        "svg",
        _marks(line, marks, height),
        parts,
        _hours(line, height),
        class_="still",
        viewBox=f"0 0 {WIDTH} {height}",
        role="img",
        aria_label="time line: " + ", ".join(panel.title for panel in shown),
    )


def _x(line: Line, unix_s: float) -> float:
    part = (unix_s - line.start_unix_s) / (line.width_s * line.count)
    return LEFT + min(1.0, max(0.0, part)) * (WIDTH - LEFT - RIGHT)


def _panel(line: Line, panel: Panel, top: float) -> Markup:
    columns = [(_thinned(line.columns[name]), title, colour) for name, title, colour in panel.lines]
    most = max((value for column, _, _ in columns for value in column if value is not None), default=0.0) or 1.0
    bottom = top + PANEL
    legend = [
        tag("tspan", f"{' · ' if at else ''}{title}", class_=f"text-{colour}")
        for at, (_, title, colour) in enumerate(columns)
    ]
    name = panel.title if len(columns) > 1 or panel.title != columns[0][1] else None
    return tag(
        "g",
        tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=bottom, y2=bottom, class_="axis"),
        tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=top, y2=top, class_="grid"),
        tag("text", panel.text(most), x=LEFT - 6, y=top + 5, class_="tick end"),
        tag("text", panel.text(0.0), x=LEFT - 6, y=bottom + 4, class_="tick end"),
        tag("text", f"{name}: " if name else None, legend, x=LEFT, y=top - 5, class_="tick"),
        [
            tag("path", d=_path(column, top, bottom, most), class_=f"line line-{colour}")
            for column, _, colour in reversed(columns)
        ],
    )


def _thinned(column: Sequence[float | None]) -> list[float | None]:
    """Means of neighbours, so that at most MOST_POINTS are left."""
    each = -(-len(column) // MOST_POINTS)
    found: list[float | None] = []
    for at in range(0, len(column), each):
        known = [value for value in column[at : at + each] if value is not None]
        found.append(sum(known) / len(known) if known else None)
    return found


def _path(column: Sequence[float | None], top: float, bottom: float, most: float) -> str:
    """Steps, so that a window alone is seen too; gaps where nothing is known."""
    step = (WIDTH - LEFT - RIGHT) / len(column)
    words_, before = [], None
    for at, value in enumerate(column):
        if value is None:
            before = None
            continue
        y = bottom - (bottom - top) * value / most
        words_.append(f"M{LEFT + at * step:.1f} {y:.1f}" if before is None else f"V{y:.1f}")
        words_.append(f"H{LEFT + (at + 1) * step:.1f}")
        before = value
    return "".join(words_)


def _marks(line: Line, marks: Sequence[Mapping[str, Any]], height: float) -> list[Markup]:
    found = []
    for mark in marks:
        x, bottom = _x(line, mark["at"]), height - BOTTOM
        end = _x(line, mark["until"]) if mark["until"] is not None else x
        title = tag("title", f"{words.clock(mark['at'])} {mark['engine']}: {mark['text']}")
        place: dict[str, object] = {"x": x, "y": TOP, "width": max(1.5, end - x), "height": bottom - TOP}
        found.append(tag("rect", title, class_=f"mark mark-{mark['kind']}", **place))
    return found


def _hours(line: Line, height: float) -> list[Markup]:
    span = line.width_s * line.count
    found = []
    for at in range(TICKS):
        unix_s = line.start_unix_s + span * at / (TICKS - 1)
        anchor = "start" if not at else "end" if at == TICKS - 1 else "middle"
        text = words.clock(unix_s, span / 100) + (" UTC" if at == TICKS - 1 else "")
        place: dict[str, object] = {"x": _x(line, unix_s), "y": height - 6}
        found.append(tag("text", text, class_="tick", text_anchor=anchor, **place))
    return found
