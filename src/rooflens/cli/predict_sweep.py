"""Many points of one command: computed one after the other, shown as a table with a row for each."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from rooflens.cli.predict_answer import Answer, Sources, answer
from rooflens.cli.predict_figures import (
    EXPECTED_WORDS,
    bound_text,
    error_words,
    fits_text,
    formats_text,
    has_expected,
    likely,
    published_reachable,
    token_word,
    with_transfer,
)
from rooflens.cli.predict_notes import floor_words, misfit, remarks
from rooflens.cli.predict_options import SWEPT, Asked, Sweep
from rooflens.cli.predict_speculation import HEAD, acceptance_words, sweep_cells
from rooflens.cli.predict_text import reachable_words
from rooflens.cli.units import NOT_KNOWN, aligned, duration_text, percent_text, tokens_text
from rooflens.records import RooflensError

PROGRESS_AFTER_S = 1.0
PROGRESS_EVERY_S = 0.2


@dataclass(frozen=True, slots=True)
class Impossible:
    """A point of a sweep that makes no sense, such as heads that its devices cannot divide, and why."""

    asked: Asked
    reason: str


def answers(points: Sequence[Asked], sources: Sources) -> list[Answer | Impossible]:
    """The prediction of every point, or why there is none; RooflensError where there is none of any.

    A terminal sees how far it is.
    """
    found: list[Answer | Impossible] = []
    with Progress(len(points)) as tick:
        for point in points:
            try:
                found.append(answer(point, sources))
            except RooflensError as error:
                found.append(Impossible(point, str(error)))
            tick(len(found))
    if not any(isinstance(one, Answer) for one in found):
        raise RooflensError(next(one.reason for one in found if isinstance(one, Impossible)))
    return found


def possible(found: Sequence[Answer | Impossible]) -> list[Answer]:
    """The points that have a prediction."""
    return [one for one in found if isinstance(one, Answer)]


def left_out(sweep: Sweep, found: Sequence[Answer | Impossible]) -> list[str]:
    """A line for each reason why points are not in the table."""
    reasons: dict[str, list[str]] = {}
    for one in found:
        if isinstance(one, Impossible):
            reasons.setdefault(one.reason, []).append(where(sweep, one.asked))
    return [f"left out: {'; '.join(points)}: {reason}" for reason, points in reasons.items()]


def where(sweep: Sweep, asked: Asked) -> str:
    """What tells a point from the others: batch 64, context 8,192."""
    return ", ".join(f"{SWEPT[name]} {getattr(asked, name):,}" for name in sweep.axes)


class Progress:
    """A line on a terminal's standard error while a sweep takes long, gone when it ends."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._next_s = time.monotonic() + PROGRESS_AFTER_S
        self._drawn = False

    def __enter__(self) -> Progress:
        return self

    def __call__(self, done: int) -> None:
        now_s = time.monotonic()
        if now_s < self._next_s or not sys.stderr.isatty():
            return
        self._next_s, self._drawn = now_s + PROGRESS_EVERY_S, True
        full = 30 * done // self._total
        print(f"\r[{'#' * full}{'.' * (30 - full)}] {done:,} of {self._total:,} points", end="", file=sys.stderr)

    def __exit__(self, *fault: object) -> None:
        if self._drawn:
            print("\r\x1b[2K", end="", file=sys.stderr, flush=True)


def table(sweep: Sweep, found: Sequence[Answer]) -> list[str]:
    """The lines of the table: a heading, a row for each point, and what the columns are."""
    expected = any(map(has_expected, found))
    reachable = any(a.result.reachable_s is not None for a in found)
    columns: list[tuple[str, Callable[[Answer], str]]] = [("floor", lambda a: duration_text(a.result.floor_s or None))]
    columns += [("expected", lambda a: duration_text(a.result.expected_s))] * expected
    columns += [("reachable", lambda a: duration_text(a.result.reachable_s))] * reachable
    columns += [("tokens/s", lambda a: tokens_text(likely(a).tokens_per_s))]
    columns += [(_word(found), lambda a: duration_text(likely(a).token_s))]
    columns += _handover_columns(found)
    columns += [("bound", bound_text)]
    if found[0].speculation is None:
        columns += [("MFU", lambda a: percent_text(a.result.mfu)), ("MBU", lambda a: percent_text(a.result.mbu))]
    columns += [("fits", fits_text)]
    rows = [[SWEPT[name] for name in sweep.axes] + [name for name, _ in columns]]
    rows += [[_axis(one, name) for name in sweep.axes] + [text(one) for _, text in columns] for one in found]
    if found[0].speculation is not None:
        rows = [
            [*row, *cells]
            for row, cells in zip(rows, (HEAD, *(sweep_cells(a.speculation) for a in found)), strict=True)
        ]
    lines = aligned([[cell.replace(NOT_KNOWN, "-") for cell in row] for row in rows])
    return [*lines, "", *_legend(sweep, found, expected, reachable)]


def _handover_columns(found: Sequence[Answer]) -> list[tuple[str, Callable[[Answer], str]]]:
    """How long a prompt's cache takes over the link, and what that makes of a first token."""
    if found[0].handover is None:
        return []
    shown: list[tuple[str, Callable[[Answer], str]]] = [
        ("KV transfer", lambda a: duration_text(a.handover.transfer_s if a.handover else None)),
        ("link", lambda a: "-" if a.handover is None else "keeps up" if a.handover.link_keeps_up else "TOO SLOW"),
    ]
    if any(with_transfer(a, 0.0) for a in found):
        shown.insert(0, ("with transfer", lambda a: duration_text(with_transfer(a, likely(a).token_s))))
    return shown


def _word(found: Sequence[Answer]) -> str:
    """What a column of times is called: that of the last chunk is a first token's, those of the others are not."""
    words = {token_word(one) for one in found}
    return words.pop() if len(words) == 1 else "chunk time"


def _axis(one: Answer, name: str) -> str:
    value = getattr(one.asked, name)
    return f"{value:,}" if isinstance(value, int) else str(value)


def _legend(sweep: Sweep, found: Sequence[Answer], some_expected: bool, some_reachable: bool) -> Iterator[str]:
    yield f"floor: {floor_words(found[0].hardware)}; bound, MFU and MBU are those of a step at the floor"
    if some_expected:
        yield f"expected: {EXPECTED_WORDS}"
    if some_reachable:
        yield f"reachable: {reachable_words(found[0])}"
        if published_reachable(found[0]):
            yield f"           {error_words(found[0])}"
    if found[0].speculation is not None:
        rates = acceptance_words(found[0].speculation)
        yield f"depth: drafted tokens; speculating: tokens/s, and gain: over plain decoding, with {rates}"
    word = _word(found)
    whose = "at the reachable step" if some_reachable else "at the expected step" if some_expected else ""
    whose = whose or "at the floor: at most, and at least"
    yield f"tokens/s are of all sequences and {word} is of one, {whose}"
    if found[0].handover is not None:
        yield "KV transfer: one prompt's cache over the link; link: whether it carries what prefill makes"
        if any(with_transfer(a, 0.0) for a in found):
            yield f"with transfer: {word} and the transfer after it"
    yield from _notes(sweep, found)


def _notes(sweep: Sweep, found: Sequence[Answer]) -> Iterator[str]:
    """The notes that hold at every point, the others once with where, and what would hold the first misfit."""
    every = [remarks(one) for one in found]
    yield from (f"note: {text}" for text in every[0] if all(text in texts for texts in every))
    some: dict[str, list[tuple[Answer, str]]] = {}
    for one, texts in zip(found, every, strict=True):
        for text in texts:
            some.setdefault(re.sub(r"[\d.,]+", "", text), []).append((one, text))
    for cases in some.values():
        one, text = cases[0]
        if len(cases) < len(found) or any(other != text for _, other in cases):
            more = f" and {len(cases) - 1} more" if len(cases) > 1 else ""
            yield f"note at {where(sweep, one.asked)}{more}: {text}"
    first = next((one for one in found if not one.result.fits), None)
    if first is not None and len(found) > 1:
        yield f"the first point that does not fit, {where(sweep, first.asked)}: {misfit(first)}"


def heading(found: Sequence[Answer], axes: Sequence[str]) -> str:
    """What is the same at every point, in one line."""
    one = found[0]
    same = [
        f"{one.arch.name} on {one.plan.devices:,} x {one.hardware.id}"
        if not _spread(axes)
        else f"{one.arch.name} on {one.hardware.id}"
    ]
    same += [f"weights {formats_text(one.precision)}, KV {one.precision.kv}", one.phase]
    same += [f"batch {one.plan.batch:,}"] * ("batch" not in axes)
    same += [f"{one.plan.context_tokens:,} tokens each"] * ("context" not in axes)
    return ", ".join(same)


def _spread(axes: Sequence[str]) -> bool:
    return bool({"devices", "tp", "pp", "dp"} & set(axes))
