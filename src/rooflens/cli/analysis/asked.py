"""The options of `rooflens analyze` that ask for a part of a recording of steps, or for what would be otherwise."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass, fields

from rooflens.cli.amounts import count
from rooflens.cli.analysis.period import NEGATIVE, Moment, checked, moment, price, width
from rooflens.cli.what_if import KEYS, WhatIf, what_ifs
from rooflens.records import RooflensError
from rooflens.trace_records import TraceFilter

WORST = 10
SET_KEYS = {name: KEYS[name] for name in ("weights", "kv", "tp", "batch", "hardware", "model")}


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of steps; each field is named after its option."""

    from_: Moment | None = None
    to: Moment | None = None
    engine: tuple[str, ...] = ()
    where: str | None = None
    window: float | None = None
    dask: str | None = None
    top: int | None = None
    price: float | None = None
    set: tuple[WhatIf, ...] = ()

    @property
    def given(self) -> tuple[str, ...]:
        """The options that were given, as they are written."""
        return tuple(f"--{each.name.strip('_')}" for each in fields(self) if getattr(self, each.name) not in (None, ()))

    @property
    def most(self) -> int:
        """Rows of the tables of engines, windows and changes."""
        return WORST if self.top is None else self.top

    @property
    def relative(self) -> bool:
        """Whether the end of the recording must be known to tell the period."""
        return any(each is not None and not each.absolute for each in (self.from_, self.to))

    def chosen(self, last_unix_s: float | None = None) -> TraceFilter:
        """The filter; ``last_unix_s`` is the recording's end, without which a relative time is left out."""

        def at(each: Moment | None) -> float | None:
            if each is None or (last_unix_s is None and not each.absolute):
                return None
            return each.of(last_unix_s or 0.0)

        first, last = at(self.from_), at(self.to)
        checked(first, last, (self.from_.text if self.from_ else "", self.to.text if self.to else ""))
        return TraceFilter(first, last, self.engine, self.where)


def question_of(args: argparse.Namespace) -> Question:
    """What the command line asks; RooflensError in one line for a what-if that cannot be read."""
    if args.top is not None and args.top < 1:
        raise RooflensError("--top must be at least 1")
    return Question(
        args.from_, args.to, tuple(args.engine or ()), args.where, args.window, args.dask, args.top, args.price,
        what_ifs(args.set or (), SET_KEYS),
    )  # fmt: skip


def add_choice(add: Callable[..., object]) -> None:
    """The options that choose steps; the parser takes NEGATIVE for no option."""
    add(
        "--from",
        dest="from_",
        type=moment,
        metavar="TIME",
        help="steps from this time on: 2026-11-30T14:32, 14:32 (of the last day), -15m (before the end) or Unix "
        "seconds; UTC unless it says +02:00",
    )
    add("--to", type=moment, metavar="TIME", help="steps before this time, written in the same way")
    add(
        "--engine",
        action="append",
        metavar="PATTERN",
        help="only engines with such a label (model/engine@host), engine or run, with * and ?; may be given again",
    )
    add(
        "--where",
        metavar="SQL",
        help="only steps for which this holds, over the columns of docs/trace.md: 'kind = 1 AND requests > 8' "
        "(kind 1 is decode)",
    )


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options, in a group of their own."""
    parser._negative_number_matcher = NEGATIVE  # so that -15m is a value and no option
    group = parser.add_argument_group("of steps (rings and traces)")
    add: Callable[..., object] = group.add_argument
    add_choice(add)
    add("--window", type=width, metavar="TIME", help="width of the windows: 500ms, 10s, 5m (default: by the period)")
    add("--top", type=count, metavar="N", help=f"rows of the tables of engines, windows and changes (default: {WORST})")
    add("--price", type=price, metavar="MONEY", help="what one device costs an hour, in your currency: 2.50")
    add(
        "--dask", metavar="ADDRESS", help="a Dask scheduler, such as tcp://10.0.0.1:8786, that works on a trace's files"
    )
    add(
        "--set",
        action="append",
        metavar="KEY=VALUE[,...]",
        help="a what-if on the captured steps: kv=fp8, weights=fp8, tp=2, batch=128, hardware=ID, model=NAME, or "
        "several with commas; may be given again",
    )


def not_for(question: Question, place: str, what: str) -> str | None:
    """One line for a recording that is no steps, where options were given that ask for some; else None."""
    if not question.given:
        return None
    verb = "applies" if len(question.given) == 1 else "apply"
    return f"{place}: {', '.join(question.given)} {verb} to recordings of steps (rings, traces), not to {what}"
