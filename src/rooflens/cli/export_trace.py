"""Recorded steps as a file that other tools open: slices of a viewer, spans of a backend, rows of a table.

Reads rings, traces, traces of forward passes and logs that tell of steps, several at once. The format follows from the
name of the file: .json and .json.gz are a Chrome trace (ui.perfetto.dev, speedscope.app, chrome://tracing), .pftrace
and .perfetto-trace Perfetto's own, .otlp.jsonl OTLP in JSON lines (the Collector's file format), .csv a table; .gz
packs any of them.

examples:
  rooflens export trace vllm.ring -o trace.json.gz
  rooflens export trace /var/lib/rooflens/trace -o incident.pftrace --from 14:30 --to 14:35
  rooflens export trace /var/lib/rooflens/trace --format otlp --engine 'llama*' -o steps.otlp.jsonl
  rooflens export trace vllm.ring --hardware h100-sxm5-80 --format csv -o - | head
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from rooflens.cli.amounts import memory_size
from rooflens.cli.analysis.asked import add_choice
from rooflens.cli.analysis.period import NEGATIVE, Moment, checked
from rooflens.cli.bar import Bar
from rooflens.cli.calibrations import Calibrations, add_calibration_option
from rooflens.cli.named import config_named, hardware_named, is_this_cpu
from rooflens.cli.output import one_line, printable
from rooflens.cli.units import si_text
from rooflens.records import RooflensError

FORMATS = ("chrome", "perfetto", "otlp", "csv")
# By the end of a file's name, .gz left out; the longest first.
SUFFIXES = {
    ".otlp.jsonl": "otlp",
    ".perfetto-trace": "perfetto",
    ".pftrace": "perfetto",
    ".jsonl": "otlp",
    ".json": "chrome",
    ".csv": "csv",
}
OPENED_BY = {
    "chrome": "open it in ui.perfetto.dev, speedscope.app or chrome://tracing",
    "perfetto": "open it in ui.perfetto.dev",
    "otlp": "one ExportTraceServiceRequest a line, as the Collector's OTLP JSON file receiver reads them",
    "csv": "a row a step, times in seconds",
}
NO_BOUNDS = "without floors: the hardware is not recorded, --hardware ID works them out"
THIS_CPU = "--hardware this-cpu measures, which an export does not: name the device, or a TOML file"
LEFT_OUT = "they tell no time, or stand beside too many others"
HOW = f"name a file whose name tells it ({', '.join(SUFFIXES)}, each also with .gz), or give --format"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `rooflens export trace`."""
    parser._negative_number_matcher = NEGATIVE  # so that -15m is a value and no option
    add = parser.add_argument
    add("places", nargs="*", metavar="PATH", help="recordings, or folders of them (default: this user's rings)")
    add("-o", "--output", metavar="FILE|-", default="-", help="the file to write, - for standard output (default)")
    add("--format", choices=FORMATS, help="the format, where the file's name does not tell it")
    add_choice(add)
    add(
        "--hardware",
        metavar="ID",
        help="work out the bounds on this device, a known one or a TOML file (not this-cpu, which is measured); a "
        "trace has those of its capture, a ring has none without",
    )
    add_calibration_option(parser)
    add("--model", metavar="NAME", help="the model, or its config.json, of a recording that does not state it")
    add(
        "--limit",
        type=memory_size,
        metavar="SIZE",
        help="stop at this size before packing, 0 for none (default: what viewers open: 500MB for chrome, 1GB for "
        "perfetto, none for otlp and csv)",
    )


def run(args: argparse.Namespace) -> int:
    """Write the file whole or not at all; 2 where it ends at its limit."""
    chosen = args.format or _format_of(args.output)
    if is_this_cpu(args.hardware):
        raise RooflensError(THIS_CPU)
    if args.output == "-" and chosen == "perfetto" and sys.stdout.isatty():
        raise RooflensError("perfetto is no text for a terminal: name a file with -o, or pipe it")
    from rooflens.cli.recorded.exported import Exported, export
    from rooflens.cli.recorded.steps_in import Roofs, StepsIn, Wanted

    calibrations = Calibrations(args.calibration)
    roofs = Roofs(hardware_named(args.hardware), config_named(args.model), calibrations)
    wanted = Wanted(
        roofs, Period(args.from_, args.to), _relative(args.from_, args.to), tuple(args.engine or ()), args.where
    )
    bar = Bar(quiet=True)
    try:
        steps = StepsIn(args.places, wanted, bar.tell)
        found: Exported = export(steps, chosen, args.output, args.limit, args.places, bar.tell)
    finally:
        bar.end()
    for line in dict.fromkeys((*steps.problems, *roofs.problems)):
        print(one_line(f"rooflens: {line}"), file=sys.stderr)
    if args.output != "-":
        print(printable(_told(args.output, chosen, found)))
        if not any(facts.hardware for facts in steps.facts):
            print(NO_BOUNDS)
    if found.left_out:
        print(f"rooflens: {found.left_out:,} steps left out: {LEFT_OUT}", file=sys.stderr)
    if found.full_unix_s is not None:
        print(one_line(f"rooflens: {_full(args, found, steps)}"), file=sys.stderr)
        return 2
    return 0


class Period:
    """The ends of a period as they were written."""

    def __init__(self, begin: Moment | None, end: Moment | None) -> None:
        self._begin, self._end = begin, end

    def __call__(self, last_unix_s: float | None) -> tuple[float | None, float | None]:
        """In Unix seconds; RooflensError for a period that ends before it begins."""
        begin, end = (each.of(last_unix_s or 0.0) if each else None for each in (self._begin, self._end))
        checked(begin, end, (self._begin.text if self._begin else "", self._end.text if self._end else ""))
        return begin, end


def _relative(*moments: Moment | None) -> bool:
    return any(each is not None and not each.absolute for each in moments)


def _format_of(output: str) -> str:
    if output == "-":
        raise RooflensError(f"which format? {HOW}")
    name = output.lower().removesuffix(".gz")
    found = next((chosen for suffix, chosen in SUFFIXES.items() if name.endswith(suffix)), None)
    if found is None:
        raise RooflensError(f"{output}: its name tells no format: {HOW}")
    return found


def _told(output: str, chosen: str, found: Any) -> str:
    beside = [f"{count:,} {name}" for count, name in ((found.events, "events"), (found.samples, "samples")) if count]
    engines = f"{found.engines:,} {'engine' if found.engines == 1 else 'engines'}"
    what = ", ".join([f"{found.steps:,} steps of {engines}", *beside])
    return f"{one_line(output)}: {what}; {si_text(found.file_bytes, 'B')}. {OPENED_BY[chosen]}"


def _full(args: argparse.Namespace, found: Any, steps: Any) -> str:
    from rooflens.exporters.trace_files.csv import iso

    where = iso(found.full_unix_s)
    who = "no viewer opens more" if args.limit is None else "--limit is reached"
    # Engines are written one after another, a file of a trace at a time: of several no time tells what is missing.
    rest = f" (the rest: --from {where})" if len({facts.label for facts in steps.facts}) == 1 else ""
    return (
        f"{args.output}: stopped after {found.steps:,} of {steps.rows:,} steps, before one of {where}: {who}. "
        f"Narrow it with --from and --to{rest}, or --engine"
    )
