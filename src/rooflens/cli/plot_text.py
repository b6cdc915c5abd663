"""A panel in plain characters, as wide as the terminal: log-log axes, curves, and marks below the axis."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

from rooflens.cli.panels import Curve, Panel, Point

LEAST_COLUMNS, MOST_COLUMNS = 40, 120
ROWS = 16
POINT_SIGNS = "ox#%&@"
LINE_SIGNS = "*.:=~"
TICKS_APART = 12  # columns


def plot_lines(panel: Panel, columns: int) -> list[str]:
    """The panel as lines of at most ``columns`` characters (40 at least), its legend below."""
    canvas = _Canvas(panel, max(LEAST_COLUMNS, min(columns, MOST_COLUMNS)))
    signs: list[tuple[str, str]] = []
    of_line, of_point = iter(LINE_SIGNS * len(panel.curves)), iter(POINT_SIGNS * len(panel.curves))
    for curve in sorted(panel.shown(), key=lambda c: c.alone):  # points last: nothing hides them
        sign = next(of_point if curve.alone else of_line)
        canvas.draw(curve, sign)
        signs.append((sign, curve.label))
    return [panel.title, *canvas.lines(), *canvas.legend(signs)]


class _Canvas:
    def __init__(self, panel: Panel, columns: int) -> None:
        self.panel = panel
        (self.left, self.right), (self.low, self.high) = panel.spans()
        self.margin = max(len(_tick(y)) for y in (self.low, self.high, self.middle)) + 1
        self.width = columns - self.margin - 1
        self.cells = [[" "] * self.width for _ in range(ROWS)]
        self.marks = [(chr(ord("A") + n), mark) for n, mark in enumerate(m for m in panel.marks if m.x > 0)]
        for _, mark in self.marks:
            for row in self.cells[::2]:
                row[self._column(mark.x)] = "|"

    @property
    def middle(self) -> float:
        return math.sqrt(self.low) * math.sqrt(self.high)

    def draw(self, curve: Curve, sign: str) -> None:
        spots = curve.points if curve.alone else tuple(self._filled(curve.points))
        for x, y in spots:
            if self.low <= y * 1.0001 and y <= self.high * 1.0001:
                self.cells[self._row(y)][self._column(x)] = sign

    def _filled(self, points: tuple[Point, ...]) -> Iterator[Point]:
        """A spot in every column between the points, straight lines on logarithmic axes."""
        yield points[0]
        for (x0, y0), (x1, y1) in itertools.pairwise(points):
            steps = max(1, 2 * abs(self._column(x1) - self._column(x0)), 2 * abs(self._row(y1) - self._row(y0)))
            for step in range(1, steps + 1):
                part = step / steps
                yield x0 * (x1 / x0) ** part, y0 * (y1 / y0) ** part

    def _column(self, x: float) -> int:
        return _place(x, self.left, self.right, self.width)

    def _row(self, y: float) -> int:
        return ROWS - 1 - _place(y, self.low, self.high, ROWS)

    def lines(self) -> list[str]:
        labels = {0: _tick(self.high), self._row(self.middle): _tick(self.middle), ROWS - 1: _tick(self.low)}
        drawn = [
            f"{labels.get(row, ''):>{self.margin}}|{''.join(cells)}".rstrip() for row, cells in enumerate(self.cells)
        ]
        return [f"{'':>{self.margin}} {self.panel.y_label}", *drawn, self._axis(), self._x_ticks()]

    def _axis(self) -> str:
        axis = ["-"] * self.width
        for name, mark in self.marks:
            axis[self._column(mark.x)] = name
        return f"{'':>{self.margin}}+{''.join(axis)}"

    def _x_ticks(self) -> str:
        """Values below the axis, as many as fit beside each other."""
        text = [" "] * self.width
        for value in self._tick_values():
            label = f"{value:,.0f}" if self.panel.binary else _tick(value)
            start = min(max(0, self._column(value) - len(label) // 2), self.width - len(label))
            if all(char == " " for char in text[max(0, start - 1) : start + len(label) + 1]):
                text[start : start + len(label)] = label
        return f"{'':>{self.margin}} {''.join(text)}".rstrip()

    def _tick_values(self) -> list[float]:
        """The two ends, or powers of two, first those that are shown in any case."""
        count = max(2, self.width // TICKS_APART)
        if not self.panel.binary:
            return [self.left * (self.right / self.left) ** (n / (count - 1)) for n in range(count)]
        first, last = math.ceil(math.log2(self.left) - 0.01), math.floor(math.log2(self.right) + 0.01)
        apart = max(1, math.ceil((last - first) / count))
        return [2.0**power for power in range(last, first - 1, -apart)]

    def legend(self, signs: list[tuple[str, str]]) -> list[str]:
        indent = " " * (self.margin + 1)
        curves = [f"{indent}{sign} {label}" for sign, label in signs]
        marks = [f"{indent}{name} {mark.label}" for name, mark in self.marks]
        return [f"{indent}{self.panel.x_label}", *curves, *marks]


def _place(value: float, low: float, high: float, places: int) -> int:
    part = (math.log(value) - math.log(low)) / (math.log(high) - math.log(low))
    return min(places - 1, max(0, round(part * (places - 1))))


def _tick(value: float) -> str:
    """A value with three digits, as on any axis: 12, 3,400, 20,200, 2.1G, 990T."""
    for power, prefix in ((15, "P"), (12, "T"), (9, "G"), (6, "M")):
        if value >= 10**power * 0.9995:
            return f"{value / 10**power:.3g}{prefix}"
    return f"{float(f'{value:.3g}'):,.0f}" if value >= 100 else f"{value:.3g}"
