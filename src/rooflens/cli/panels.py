"""What a plot shows, before anything draws it: panels of curves and marks on two logarithmic axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Curve:
    """Points in ascending x. ``style``: 'line', 'dashed', 'dotted', or 'points' and 'crosses' that stand alone.

    Curves of the same ``family`` have the same colour; None is one by itself.
    """

    label: str
    points: tuple[Point, ...]
    style: str = "line"
    family: str | None = None

    @property
    def alone(self) -> bool:
        """Whether the points are not joined."""
        return self.style in ("points", "crosses")


@dataclass(frozen=True, slots=True)
class Mark:
    """A value on the x axis with its name in words: the ridge, the knee, the largest batch that fits."""

    label: str
    x: float


@dataclass(frozen=True, slots=True)
class Panel:
    """One pair of axes, both logarithmic; the labels name the units. ``binary``: x is ticked at powers of two."""

    title: str
    x_label: str
    y_label: str
    curves: tuple[Curve, ...]
    marks: tuple[Mark, ...] = ()
    binary: bool = False

    def shown(self) -> tuple[Curve, ...]:
        """The curves with what a logarithm has: points above zero."""
        kept = (replace(c, points=tuple(p for p in c.points if min(p) > 0)) for c in self.curves)
        return tuple(curve for curve in kept if curve.points)

    def spans(self) -> tuple[Point, Point]:
        """(smallest, largest) of x and of y over all that is shown, never of no width."""
        curves = self.shown()
        xs = [x for c in curves for x, _ in c.points] + [mark.x for mark in self.marks if mark.x > 0]
        return _span(xs), _span([y for c in curves for _, y in c.points])


def _span(values: Sequence[float]) -> Point:
    low, high = min(values, default=1.0), max(values, default=1.0)
    return (low, high) if high > low * 1.01 else (low / 2, high * 2)
