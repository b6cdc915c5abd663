"""Panels beside each other in a picture file, drawn by matplotlib, which only this module imports."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rooflens.cli.panels import Panel
from rooflens.records import RooflensError

ENDINGS = (".svg", ".png")
PANEL_INCHES = (7.0, 5.2)
SHADES = ("#1f5fa8", "#c8541a", "#3a8f3a", "#7a4fa3", "#8a6d1f", "#b0346c", "#2a8f8f", "#555555")


def check_picture(name: str) -> None:
    """RooflensError in one line for a file name that says no known kind of picture, or a folder that is not there."""
    path = Path(name)
    if path.suffix.lower() not in ENDINGS:
        raise RooflensError(f"--plot {name[:60]!r} must end in {' or '.join(ENDINGS)}, or be - for the terminal")
    if not path.parent.is_dir():
        raise RooflensError(f"--plot {name[:60]!r}: the folder {str(path.parent)[:60]!r} is not there")


def draw(panels: Sequence[Panel], title: str, name: str) -> None:
    """Write ``panels`` side by side to the file ``name``; the text of an SVG is text, the same input the same file."""
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "rooflens", "font.size": 9.0}):
        figure = Figure(figsize=(PANEL_INCHES[0] * len(panels), PANEL_INCHES[1]))
        figure.subplots_adjust(left=0.13 / len(panels), right=0.99, bottom=0.1, top=0.88, wspace=0.18)
        FigureCanvasAgg(figure)
        figure.suptitle(title)
        for number, panel in enumerate(panels, 1):
            _draw_panel(figure.add_subplot(1, len(panels), number), panel)
        stamp = {"Date": None} if name.lower().endswith(".svg") else {"Software": None}
        figure.savefig(name, dpi=150, metadata=stamp)


def _draw_panel(axes: object, panel: Panel) -> None:
    from matplotlib.axes import Axes
    from matplotlib.ticker import EngFormatter, FuncFormatter, LogLocator

    assert isinstance(axes, Axes)
    axes.set_xscale("log", base=2 if panel.binary else 10)
    axes.set_yscale("log")
    shades: dict[str, str] = {}
    for curve in panel.shown():
        family = curve.family if curve.family is not None else curve.label
        shade = shades.setdefault(family, SHADES[len(shades) % len(SHADES)])
        style = {"line": "solid", "dashed": "dashed", "dotted": "dotted"}.get(curve.style, "none")
        marker = {"points": "o", "crosses": "x"}.get(curve.style)
        xs, ys = [x for x, _ in curve.points], [y for _, y in curve.points]
        axes.plot(xs, ys, linestyle=style, marker=marker, markersize=4, color=shade, label=curve.label)
    (left, right), _ = panel.spans()
    for number, mark in enumerate(panel.marks):
        inward = mark.x > (left * right) ** 0.5  # beside the line on the side where there is room
        axes.axvline(mark.x, color="0.45", linestyle="dotted", linewidth=1.0)
        axes.annotate(
            mark.label, (mark.x, 0.02 + 0.045 * number), xycoords=("data", "axes fraction"), fontsize=8,
            xytext=(-3 if inward else 3, 0), textcoords="offset points", ha="right" if inward else "left",
        )  # fmt: skip
    if panel.binary:
        axes.xaxis.set_major_locator(LogLocator(base=2, numticks=12))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axes.yaxis.set_major_formatter(EngFormatter(sep=" "))
    axes.set(title=panel.title, xlabel=panel.x_label, ylabel=panel.y_label)
    axes.grid(visible=True, which="both", alpha=0.2)
    axes.legend(loc="best", fontsize=8)
