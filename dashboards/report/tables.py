"""Tables: a caption, headings that say what they sort by, and cells that keep the figure behind their words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rooflens.dashboards.report.markup import Child, Markup, tag

MOST_ROWS = 500
TALL = 25  # rows: a table of more scrolls within itself
FILTERED = 8  # rows: from here on a field to filter them is worth its place


@dataclass(frozen=True, slots=True)
class Cell:
    """What stands in a cell and, for figures, the value it sorts by and is copied as."""

    shown: Child
    value: float | None = None
    class_: str | None = None


@dataclass(frozen=True, slots=True)
class Column:
    """A heading; ``help`` explains it where a mouse rests. Figures stand to the right."""

    title: str
    figures: bool = True
    help: str | None = None


Row = Sequence[Cell | Child]


def table(caption: Child, columns: Sequence[Column], rows: Iterable[Row], name: str, sortable: bool = True) -> Markup:
    """A table with at most MOST_ROWS rows, which says how many are left out."""
    every = list(rows)
    shown = every[:MOST_ROWS]
    heads = [
        tag("th", each.title, scope="col", class_="n" if each.figures else None, title=each.help) for each in columns
    ]
    body = [tag("tr", [_cell(cell, column, not at) for at, (cell, column) in enumerate(zip(row, columns, strict=True))])
            for row in shown]  # fmt: skip
    text: list[Child] = [caption]
    if len(every) > len(shown):
        text.append(f" The first {len(shown):,} of {len(every):,} rows.")
    found = tag(
        "table",
        tag("caption", text),
        tag("thead", tag("tr", heads)),
        tag("tbody", body),
        class_="sortable" if sortable else None,
        data_name=name,
        data_filter="" if sortable and len(shown) > FILTERED else None,
    )
    return tag(
        "div",
        found,
        class_="wide tall" if len(shown) > TALL else "wide",
        tabindex="0",
        role="region",
        aria_label=f"table: {name}",
    )


def _cell(cell: Cell | Child, column: Column, first: bool) -> Markup:
    if not isinstance(cell, Cell):
        cell = Cell(cell)
    classes = " ".join(filter(None, ("n" if column.figures else None, cell.class_))) or None
    value = None if cell.value is None else repr(float(cell.value))
    return tag("th" if first else "td", cell.shown, class_=classes, data_v=value, scope="row" if first else None)
