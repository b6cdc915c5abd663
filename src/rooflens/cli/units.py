"""Readable figures: the only place that turns SI units into what a person reads, and columns that line up."""

from __future__ import annotations

from collections.abc import Sequence


def seconds_text(value: float | None) -> str:
    """A duration with three digits and the unit that fits; a dash where it is not known."""
    if value is None:
        return "-"
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if abs(value) >= scale:
            return f"{value / scale:.3g} {unit}" if value < 1000 * scale else f"{value / scale:,.0f} {unit}"
    return "0 s" if not value else f"{value * 1e9:.3g} ns"


def factor_text(value: float) -> str:
    """A factor with three digits, and commas where it is large."""
    digits = float(f"{value:.3g}")
    return f"{digits:,.{2 if digits < 10 else 1 if digits < 100 else 0}f}"


def age_text(seconds: float) -> str:
    """A duration in the words of a person who looks back."""
    for size, unit in ((86400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:,.0f} {unit}"
    return f"{seconds:.0f} s"


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns side by side: the first to the left, the others to the right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [cell.ljust(w) if not n else cell.rjust(w) for n, (cell, w) in enumerate(zip(row, widths, strict=True))]
        lines.append("  ".join(cells).rstrip())
    return lines
