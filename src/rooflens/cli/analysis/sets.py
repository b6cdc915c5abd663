"""The what-ifs of --set on captured steps: what their names mean, and the steps put through them piece by piece."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rooflens.analyzer.arch import find_model
from rooflens.analyzer.hardware import find_hardware
from rooflens.analyzer.history.changed import Change, change_of, under
from rooflens.analyzer.history.records import History, WhatIfAnswer
from rooflens.analyzer.history.what_if import Keyframes, WhatIf
from rooflens.analyzer.roofline import Roofline
from rooflens.cli import what_if as syntax
from rooflens.model_records import HardwareSpec
from rooflens.records import RooflensError, StepTable
from rooflens.trace_records import TraceFacts

NO_HARDWARE = "its hardware is not known: give --hardware ID"
NO_FACTS = "its facts are not recorded"
Roof = Callable[[TraceFacts], Roofline]


@dataclass(frozen=True, slots=True)
class Piece:
    """Some steps of one engine."""

    facts: TraceFacts
    steps: StepTable
    keyframes: Keyframes


def changes_of(asked: Sequence[syntax.WhatIf]) -> tuple[Change, ...]:
    """What the names in the what-ifs stand for; RooflensError in one line for a name that is not known."""
    return tuple(_named(one) for one in asked)


def _named(one: syntax.WhatIf) -> Change:
    hardware, model = one.changes.get("hardware"), one.changes.get("model")
    try:
        return change_of(
            one.text,
            one.changes,
            find_hardware(str(hardware)) if hardware is not None else None,
            find_model(str(model)) if model is not None else None,
        )
    except RooflensError as error:
        raise RooflensError(f"--set {one.text[:60]}: {error}") from None


def roof_of(facts: TraceFacts, hardware: HardwareSpec | None = None) -> Roofline:
    """The roofline of an engine as it is; RooflensError in one line where it cannot be told."""
    spec = hardware or facts.hardware
    if facts.info is None:
        raise RooflensError(f"{facts.label}: {NO_FACTS}")
    if spec is None:
        raise RooflensError(f"{facts.label}: {NO_HARDWARE}")
    try:
        return Roofline.of(facts.info, spec)
    except RooflensError as error:
        raise RooflensError(f"{facts.label}: {error}") from None


def answers(
    pieces: Iterable[Piece],
    changes: Sequence[Change],
    roof: Roof,
    price_per_device_hour: float | None = None,
    left_out: Mapping[str, str] = {},
) -> tuple[WhatIfAnswer, ...]:
    """The answer of each change over all pieces; an engine of which there is none is a line in its problems.

    ``left_out`` are engines of which nothing can be told, by label, and why.
    """
    found = [WhatIf(change) for change in changes]
    rooflines: dict[str, tuple[Roofline | str, tuple[Roofline | str, ...]]] = {}
    for piece in pieces:
        key = piece.facts.digest
        if key not in rooflines:
            why = left_out.get(piece.facts.label)
            told = f"{piece.facts.label}: {why}", tuple("" for _ in changes)
            rooflines[key] = told if why else _rooflines(piece.facts, changes, roof)
        now, thens = rooflines[key]
        for one, then in zip(found, thens, strict=True):
            if isinstance(now, str) or isinstance(then, str):
                one.problems[now if isinstance(now, str) else str(then)] = None
                one.skipped += len(piece.steps)
                continue
            try:
                one.take(now, then, piece.facts.info, piece.steps, piece.keyframes, piece.facts.label)
            except RooflensError as error:
                one.problems[f"{piece.facts.label}: {error}"] = None
                one.skipped += len(piece.steps)
    return tuple(one.answer(price_per_device_hour) for one in found)


def invalid_in(history: History) -> dict[str, str]:
    """The engines that were faster than possible, by label, and the line that says so."""
    return {each.label: each.problem or "" for each in history.engines if each.measurement_invalid}


def _rooflines(
    facts: TraceFacts, changes: Sequence[Change], roof: Roof
) -> tuple[Roofline | str, tuple[Roofline | str, ...]]:
    """The roofline now and under each change; a line where there is none."""
    try:
        now = roof(facts)
    except RooflensError as error:
        return str(error), tuple("" for _ in changes)
    return now, tuple(_under(facts, now, change) for change in changes)


def _under(facts: TraceFacts, now: Roofline, change: Change) -> Roofline | str:
    try:
        return under(now, change)
    except RooflensError as error:
        return f"{facts.label}: {error}"


def counted(pieces: Iterable[Piece], rows: int, tell: Callable[[str, float], None]) -> Iterator[Piece]:
    """The pieces, with a bar that says how far they are of ``rows``."""
    done = 0
    for piece in pieces:
        yield piece
        done += len(piece.steps)
        tell("putting steps through the what-ifs", done / max(1, rows))


def keyframes_in(table: Any, names: Sequence[str]) -> Keyframes:
    """The keyframes of an Arrow table that has their columns, else none."""
    from rooflens.collector.trace.schema import keyframes_of
    from rooflens.trace_records import KEYFRAME_COLUMNS

    if not all(name in names for name, _, _ in KEYFRAME_COLUMNS):
        return {}
    found: Keyframes = keyframes_of(table)
    return found
