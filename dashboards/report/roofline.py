"""The roofline as a picture: windows and kinds of steps below the roofs of their own hardware.

A step's arithmetic intensity over the ridge of its hardware is the time at peak arithmetic over the time at peak
bandwidth, which is MFU over MBU; its arithmetic over the peak is MFU. So engines on different hardware share one
picture, and no figure is needed that the report does not have.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rooflens.dashboards.report import words
from rooflens.dashboards.report.markup import Markup, tag
from rooflens.dashboards.report.view import Line

Row = Mapping[str, Any]
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 960, 430, 78, 30, 16, 52
MOST_DOTS = 400
POWERS = range(-6, 7)


def points_of(history: Row, line: Line | None) -> tuple[list[Row], list[Row]]:
    """(windows, kinds of steps and sizes of batches), each with MFU, MBU and words."""
    dots = list(_dots(line)) if line else []
    named: list[Row] = []
    for phase in (*(history.get("phases") or ()), *(history.get("decode_by_batch") or ())):
        floor = phase.get("floor") or {}
        if floor.get("mbu") and floor.get("mfu"):
            name = str(phase["name"])
            title = f"decode, {name}" if name.startswith("batch") else name
            named.append({"mbu": floor["mbu"], "mfu": floor["mfu"], "title": title, "seconds": phase["seconds"]})
    return dots[:: max(1, -(-len(dots) // MOST_DOTS))], named


def _dots(line: Line) -> Iterator[Row]:
    mbu, mfu = line.columns.get("mbu"), line.columns.get("mfu")
    for at in range(line.count if mbu and mfu else 0):
        used, arithmetic = (mbu or ())[at], (mfu or ())[at]
        if used and arithmetic:
            unix_s = line.start_unix_s + at * line.width_s
            yield {"mbu": used, "mfu": arithmetic, "title": words.clock(unix_s, line.width_s), "at": unix_s}


class _Axes:
    """Whole powers of ten around the points and the ridge."""

    def __init__(self, points: Sequence[Row]) -> None:
        xs = [math.log10(each["mfu"] / each["mbu"]) for each in points]
        ys = [math.log10(each["mfu"]) for each in points]
        self.left, self.right = min(math.floor(min(xs)), -1), max(1, math.ceil(max(xs)))
        self.low, self.high = min(math.floor(min(ys)), -1), max(0.2, max(ys) + 0.2)

    def x(self, value: float) -> float:
        part = (math.log10(value) - self.left) / (self.right - self.left)
        return LEFT + part * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        return HEIGHT - BOTTOM - (math.log10(value) - self.low) / (self.high - self.low) * (HEIGHT - TOP - BOTTOM)


def scatter(dots: Sequence[Row], named: Sequence[Row]) -> Markup | None:
    """The picture; None where neither windows nor kinds have both figures."""
    if not dots and not named:
        return None
    axes = _Axes([*dots, *named])
    return tag(
        "svg",
        _grid(axes),
        _roofs(axes),
        [_dot(axes, each, 3.0, "dot") for each in dots],
        _named(axes, named),
        class_="scatter",
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        role="img",
        aria_label="roofline: arithmetic intensity against the arithmetic that was reached, both logarithmic",
    )


def _grid(axes: _Axes) -> list[Markup]:
    found = []
    for power in POWERS:
        value = 10.0**power
        if axes.left <= power <= axes.right:
            x = axes.x(value)
            found.append(tag("line", x1=x, x2=x, y1=TOP, y2=HEIGHT - BOTTOM, class_="grid"))
            text = "ridge" if not power else f"{value:g} ×"
            found.append(tag("text", text, x=x, y=HEIGHT - BOTTOM + 18, class_="tick", text_anchor="middle"))
        if axes.low <= power <= axes.high:
            y = axes.y(value)
            found.append(tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=y, y2=y, class_="grid"))
            found.append(tag("text", f"{100 * value:g} %", x=LEFT - 8, y=y + 4, class_="tick end"))
    middle = (LEFT + WIDTH - RIGHT) / 2
    title = "arithmetic intensity over the hardware's ridge (left: memory binds, right: arithmetic)"
    found.append(tag("text", title, x=middle, y=HEIGHT - 10, class_="tick", text_anchor="middle"))
    found.append(tag("text", "of peak arithmetic (MFU)", x=LEFT + 6, y=TOP + 12, class_="tick"))
    return found


def _roofs(axes: _Axes) -> list[Markup]:
    """Peak bandwidth and peak arithmetic, and a tenth of them."""
    found = []
    for part, name in ((1.0, "roof"), (0.1, "roof tenth")):
        left = max(10.0**axes.left, 10.0**axes.low / part)
        points = [(left, part * left), (1.0, part), (10.0**axes.right, part)]
        if part * left > 10.0**axes.high or math.log10(part) < axes.low or left > 1:
            continue
        path = "L".join(f"{axes.x(x):.1f} {axes.y(y):.1f}" for x, y in points)
        found.append(tag("path", tag("title", f"{part:.0%} of the hardware's peaks"), d=f"M{path}", class_=name))
    return found


def _dot(axes: _Axes, point: Row, radius: float, class_: str) -> Markup:
    of = f", {words.seconds(point['seconds'])}" if "seconds" in point else ""
    text = f"{point['title']}{of}: MFU {words.percent(point['mfu'])}, MBU {words.percent(point['mbu'])}"
    x, y = axes.x(point["mfu"] / point["mbu"]), axes.y(point["mfu"])
    return tag("circle", tag("title", text), cx=x, cy=y, r=radius, class_=class_)


def _named(axes: _Axes, named: Sequence[Row]) -> list[Markup]:
    """Circles whose area follows the time, with their names where there is room."""
    most = max((each["seconds"] for each in named), default=0.0) or 1.0
    found: list[Markup] = []
    taken: list[tuple[float, float]] = []
    for point in sorted(named, key=lambda each: -each["seconds"]):
        radius = 4.0 + 9.0 * math.sqrt(point["seconds"] / most)
        found.append(_dot(axes, point, radius, "kind"))
        x, y = axes.x(point["mfu"] / point["mbu"]), axes.y(point["mfu"])
        to_left = x > WIDTH * 0.75
        if all(abs(y - other) > 13 or abs(x - beside) > 170 for beside, other in taken):
            taken.append((x, y))
            place: dict[str, object] = {"x": x + (-radius - 4 if to_left else radius + 4), "y": y + 4}
            found.append(tag("text", point["title"], class_="name end" if to_left else "name", **place))
    return found
