"""Did the engine change between two recordings: an upgrade, a setting, a machine; the traffic is taken off.

Compares the same kinds of steps on both sides (phase, batch, context), each with its contents, and says how much
longer the same step takes, with a 95 % interval and the noise floor: what two recordings of the same engine differ by.
Takes rings and traces, folders and URLs of them; several recordings a side make the noise a measurement. A period of
one recording is NAME@FROM..TO. Hardware or models that differ are compared relative to what is reachable.
Exit code 1 where --fail-if-worse is given and the whole interval lies beyond it, 3 with --strict where it cannot be
told or the interval reaches across the limit, else 0; docs/diff.md.

examples:
  rooflens diff before.ring after.ring
  rooflens diff trace/@14:00..14:30 trace/@15:00..15:30 --engine 'llama*'
  rooflens diff --a mon.ring tue.ring --b wed.ring thu.ring --fail-if-worse 3%
  rooflens diff s3://traces/v1 s3://traces/v2 --json
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace

from rooflens.analyzer.diff.compare import compare
from rooflens.analyzer.diff.facts import differing, other_work
from rooflens.analyzer.diff.result import Comparison, Verdict
from rooflens.analyzer.diff.steps import relative
from rooflens.analyzer.diff.verdict import CPU_RUN_FLOOR, ENOUGH_RUNS, Thresholds
from rooflens.cli.amounts import Refused, ratio
from rooflens.cli.analysis.period import NEGATIVE
from rooflens.cli.bar import Bar
from rooflens.cli.diff_period import Period
from rooflens.cli.diff_sides import Side, Wanted, side_of
from rooflens.cli.diff_text import as_json, text
from rooflens.cli.named import hardware_named
from rooflens.cli.output import json_text, one_line, printable
from rooflens.records import RooflensError

WORSE_CODE, UNTOLD_CODE = 1, 3
NARROW = "longer recordings, or three and more a side, narrow it"
TWO = "diff compares two sides: rooflens diff A B, or --a A1 A2 --b B1 B2"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `rooflens diff`."""
    parser._negative_number_matcher = NEGATIVE  # so that -15m is a value and no option
    add = parser.add_argument
    add("places", nargs="*", metavar="A B", help="a ring, a trace or a folder of either, each side one")
    for side in "ab":
        words = f"recordings of side {side.upper()}, one or several"
        add(f"--{side}", nargs="+", action="extend", default=[], metavar="PLACE", help=words)
    add(
        "--from", dest="begin", metavar="TIME", help="leave out what was before, on sides without a period of their own"
    )
    add("--to", dest="end", metavar="TIME", help="leave out what came then and later")
    add(
        "--engine",
        action="append",
        default=[],
        metavar="PATTERN",
        help="only engines whose label matches, with * and ?",
    )
    add("--hardware", metavar="ID", help="what both sides ran on, where the recordings do not say it")
    add("--hardware-a", metavar="ID", help="what side A ran on")
    add("--hardware-b", metavar="ID", help="what side B ran on")
    add(
        "--fail-if-worse",
        type=_threshold,
        metavar="3%",
        help="exit with 1 where B is worse and the whole interval lies beyond this",
    )
    add(
        "--strict",
        action="store_true",
        help="exit with 3 where it cannot be told, or the interval reaches beyond --fail-if-worse",
    )
    add(
        "--run-spread",
        type=_threshold,
        metavar="1%",
        help="standard deviation between runs of one engine here, of a step (default: 1%%, on a CPU 8%% where a side "
        "has fewer than three runs to measure it)",
    )
    add("--json", action="store_true", help="one JSON object, ratios and seconds, null for not known")


def _threshold(text: str) -> float:
    found = ratio(text)
    if not 0 <= found < 1 or not found < float("inf"):
        raise Refused(f"{text[:40]!r} is no part of a step: write 3% or 0.03")
    return found


def run(args: argparse.Namespace) -> int:
    """Read both sides, compare, tell; the exit code is for a pipeline."""
    a_places, b_places = _sides(args)
    bar = Bar(quiet=True)
    try:
        a, b = _read(args, a_places, b_places, bar)
        bar.tell("comparing", 1.0)
        found = compared(a, b, args.run_spread)
    finally:
        bar.end()
    for problem in (*a.problems, *b.problems):
        print(one_line(f"rooflens: {problem}"), file=sys.stderr)
    code, warning = exit_of(found, args.fail_if_worse, args.strict)
    print(json_text(as_json(found, a, b, args.fail_if_worse, code)) if args.json else printable(text(found, a, b)))
    if warning:
        print(one_line(f"rooflens: {warning}"), file=sys.stderr)
    return code


def _sides(args: argparse.Namespace) -> tuple[Sequence[str], Sequence[str]]:
    if args.a and args.b and not args.places:
        return args.a, args.b
    if len(args.places) == 2 and not args.a and not args.b:
        return args.places[:1], args.places[1:]
    raise RooflensError(TWO)


def _read(args: argparse.Namespace, a_places: Sequence[str], b_places: Sequence[str], bar: Bar) -> tuple[Side, Side]:
    period = Period(args.begin, args.end)
    both = hardware_named(args.hardware)
    named = [hardware_named(name) or both for name in (args.hardware_a, args.hardware_b)]
    wanted = [Wanted(period, tuple(args.engine), each) for each in named]
    return side_of(a_places, wanted[0], bar), side_of(b_places, wanted[1], bar)


def compared(a: Side, b: Side, run_spread: float | None = None) -> Comparison:
    """The comparison with the facts that differ; relative to what is reachable where the work itself differs.

    ``run_spread`` is the standard deviation between runs of one engine, as a part of a step, where it is known.
    """
    facts = differing(a.infos, b.infos, a.hardware, b.hardware)
    other = other_work(facts)
    runs_a, runs_b, notes = a.runs, b.runs, []
    related = [tuple(each for run in side.runs if (each := relative(run)) is not None) for side in (a, b)]
    if other:
        words = f"another {' and '.join(other)}: "
        if all(related):
            runs_a, runs_b = related
            words = f"{words}times are in parts of what is reachable for each step"
        else:
            words += "times are compared as they are; name --hardware-a and --hardware-b to compare what each reaches"
        notes = [words]
    found = replace(compare(runs_a, runs_b, thresholds_for(a, b, run_spread)), facts=facts)
    if other and all(related):
        sides = [
            replace(each, busy_s=sum(run.busy_s for run in of)) for each, of in ((found.a, a.runs), (found.b, b.runs))
        ]
        why = found.why.replace("the same steps take", "for what is reachable, steps take")
        found = replace(found, a=sides[0], b=sides[1], why=why, relative=True)
    return replace(found, notes=(*notes, *found.notes))


def thresholds_for(a: Side, b: Side, run_spread: float | None) -> Thresholds:
    """What is judged by: too few runs of an engine on a CPU do not show how far its runs lie apart."""
    if run_spread is not None:
        return Thresholds(run_floor=run_spread)
    on_cpu = any(info.device == "cpu" for info in (*a.infos, *b.infos))
    few = min(len(a.runs), len(b.runs)) < ENOUGH_RUNS
    return Thresholds(run_floor=CPU_RUN_FLOOR) if on_cpu and few else Thresholds()


def exit_of(found: Comparison, worst: float | None, strict: bool) -> tuple[int, str | None]:
    """The exit code, and what to warn of on standard error."""
    if found.verdict is Verdict.WORSE and worst is not None:
        change = found.deciding
        if change is None or change.high_ratio <= worst:
            return 0, None
        if change.low_ratio >= worst:
            return WORSE_CODE, None
        span = f"worse by {change.low_ratio:.1%} to {change.high_ratio:.1%}, so perhaps beyond --fail-if-worse"
        words = f"{span} {worst:.1%}; here that fails from a change of about {worst + change.noise_ratio:.1%} on"
        return (UNTOLD_CODE if strict else 0), f"{words}: {NARROW}"
    if found.verdict is Verdict.CANNOT_TELL:
        return (UNTOLD_CODE if strict else 0), f"cannot tell: {found.why}"
    if worst is not None and found.change is not None and not found.identical:
        most = max(each.high_ratio for each in (found.change, found.mean_change) if each is not None)
        if most > worst:
            words = f"B may still be {most:.1%} slower, beyond --fail-if-worse {worst:.1%}"
            return (UNTOLD_CODE if strict else 0), f"{words}: {NARROW}"
    return 0, None
