"""What-ifs beside the answer: each --set a column, each figure a row, with how much it changes."""

from __future__ import annotations

from collections.abc import Sequence

from rooflens.cli.predict_answer import Answer, Sources, answer
from rooflens.cli.predict_figures import COMPARED
from rooflens.cli.predict_notes import misfit, notes
from rooflens.cli.predict_options import Asked, changed
from rooflens.cli.units import aligned
from rooflens.cli.what_if import WhatIf
from rooflens.records import RooflensError

SMALL = 0.0005  # a change below it is none
TWICE = 2.0  # from here on a factor says more than a percentage


def compared(asked: Asked, what_ifs: Sequence[WhatIf], sources: Sources) -> list[Answer]:
    """The answer of each what-if; a fault names it."""
    found = []
    for one in what_ifs:
        try:
            found.append(answer(changed(asked, one.changes), sources))
        except RooflensError as error:
            raise RooflensError(f"--set {one.text[:60]}: {error}") from error
    return found


def comparison(now: Answer, others: Sequence[Answer], what_ifs: Sequence[WhatIf]) -> list[str]:
    """The lines of the table, then what a what-if adds to the notes."""
    head = ["", "now"]
    for one in what_ifs:
        head += [one.text, "change"]
    rows = [head]
    for figure in COMPARED:
        if not any(figure.shown(one) for one in (now, *others)):
            continue
        row = [figure.name, figure.text(now)]
        for other in others:
            row += [figure.text(other), change_text(figure.value(now), figure.value(other))]
        rows.append(row)
    before = set(notes(now))
    new = [
        f"with {one.text}: {'DOES NOT FIT: ' if text == misfit(other) else ''}{text}"
        for one, other in zip(what_ifs, others, strict=True)
        for text in notes(other)
        if text not in before
    ]
    return [*aligned(rows), *([""] if new else []), *new]


def change_text(before: float | None, after: float | None) -> str:
    """How much a figure grows or shrinks: in percent, or as a factor from twice on; empty where there is no number."""
    if before is None or after is None or before < 0 or after < 0:
        return ""
    if before == after or (before and abs(after / before - 1) < SMALL):
        return "="
    if not before or not after:
        return ""
    ratio = after / before
    if 1 / TWICE < ratio < TWICE:
        return f"{ratio - 1:+.1%}"
    return f"x {ratio:,.3g}"
