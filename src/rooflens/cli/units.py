"""Readable figures: the only place that turns SI units into what a person reads, and columns that line up."""

from __future__ import annotations

from collections.abc import Sequence

NOT_KNOWN = "not known"


def seconds_text(value: float | None) -> str:
    """A duration with three digits and the unit that fits; a dash where it is not known."""
    if value is None:
        return "-"
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if abs(value) >= 0.9995 * scale:  # with three digits it is a whole one
            return f"{value / scale:.3g} {unit}" if abs(value) < 999.5 * scale else f"{value / scale:,.0f} {unit}"
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


def duration_text(value: float | None) -> str:
    """A duration as seconds_text writes it, or that it is not known."""
    return NOT_KNOWN if value is None else seconds_text(value)


def si_text(value: float, unit: str) -> str:
    """A value with three digits and the decimal prefix that fits."""
    for power, prefix in ((15, "P"), (12, "T"), (9, "G"), (6, "M"), (3, "k")):
        if value >= 10**power:
            return f"{value / 10**power:.3g} {prefix}{unit}" if value < 10 ** (power + 3) else f"{value:.3g} {unit}"
    return f"{value:.3g} {unit}"


def parameters_text(value: float) -> str:
    """A number of parameters with three digits, as models are called: 70.6B."""
    for power, suffix in ((12, "T"), (9, "B"), (6, "M"), (3, "k")):
        if value >= 10**power:
            return f"{value / 10**power:.3g}{suffix}"
    return f"{value:.3g}"


def binary_text(value: float) -> str:
    """Bytes in the binary units in which the sizes of caches are published: 9.62 GiB."""
    for power, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if value >= 1 << power:
            return (
                f"{value / (1 << power):.3g} {unit}"
                if value < 999.5 * (1 << power)
                else f"{value / (1 << power):,.0f} {unit}"
            )
    return f"{value:,.0f} B"


def percent_text(ratio: float | None) -> str:
    """A ratio in percent, below ten with a second decimal; or that it is not known."""
    if ratio is None:
        return NOT_KNOWN
    return f"{ratio:.1%}" if ratio >= 0.1 or ratio == 0 else f"{ratio:.2%}"


def times_text(value: float) -> str:
    """How many times as much: x 2.87."""
    return f"x {factor_text(value)}"


def tokens_text(value: float | None) -> str:
    """A number of tokens, whole where it is large; or that it is not known."""
    return NOT_KNOWN if value is None else f"{value:,.0f}" if value >= 99.5 else f"{value:.3g}"


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns side by side: the first to the left, the others to the right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [cell.ljust(w) if not n else cell.rjust(w) for n, (cell, w) in enumerate(zip(row, widths, strict=True))]
        lines.append("  ".join(cells).rstrip())
    return lines
