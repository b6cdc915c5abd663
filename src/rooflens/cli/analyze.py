"""Where the step time of a recording went, beside the shortest time that the hardware allows.

Reads rings of engines that run, ended or died; without an argument those of this user's default folder, newest first.
Reads traces that a sidecar kept, on disk or in an object store, as one report over all of their engines: who wastes
most, the time line, the worst windows, when the step time changed, what it cost, and with --set what would change.
Reads logs of vLLM, SGLang, TensorRT-LLM and llama.cpp too, plain or gzip, the files of a rotated one together, and
saved metrics pages, results of benchmarks and texts of nvidia-smi.
The floor needs the hardware: --hardware, or for a recording of the embedded engine that has ended this machine's CPU,
as 'rooflens calibrate' measured it, else measured now for the bytes that a pass of the recorded model reads. A kept
calibration of the device that the engine ran on says what is reachable.

examples:
  rooflens analyze
  rooflens analyze /dev/shm/rooflens-0/host-1a2b3c4d-0.ring --hardware h100-sxm5-80
  rooflens analyze /dev/shm/rooflens-0 --json
  rooflens analyze /var/lib/rooflens/trace --from 14:30 --to 14:40   (docs/analyze.md)
  rooflens analyze s3://bucket/trace --engine 'llama*' --set kv=fp8 --set batch=128 --price 2.50
  rooflens analyze /var/lib/rooflens/trace --html incident.html   (docs/report.md)
  rooflens analyze /var/log/vllm.log --hardware h100-sxm5-80   (docs/logs.md)
  rooflens analyze vllm-result.json --model meta-llama-3-8b --hardware h100-sxm5-80   (docs/benchmarks.md)
  rooflens analyze rank0.pt.trace.json.gz   (a profile of torch, or SQLite of nsys: docs/profiles.md)
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rooflens.cli.amounts import count
from rooflens.cli.analysis.asked import Question, add_options, not_for, question_of
from rooflens.cli.calibrations import Calibrations, add_calibration_option
from rooflens.cli.embedded import best_threads
from rooflens.cli.find_rings import not_recorded
from rooflens.cli.output import json_text, one_line, printable
from rooflens.cli.plot_file import check_picture
from rooflens.cli.recorded import Asked, format_of
from rooflens.cli.recorded.inputs import refuse_input
from rooflens.cli.recorded.places import recordings_at, together
from rooflens.collector.raw_slots import RawSummary, read_raw
from rooflens.collector.trace.listing import is_trace
from rooflens.records import RooflensError

if TYPE_CHECKING:
    from rooflens.calibration_records import Calibration
    from rooflens.model_records import HardwareSpec
    from rooflens.pipeline import Recording

EXIT_FAULT = 2
EMBEDDED = "rooflens-embedded"
INSTALL_HINT = "for phases, lengths and the roofline: pip install 'rooflens[sidecar]'"
UNREADABLE = "no step can be read: {:,} lost, {:,} torn"
DAMAGED = "warning   the ring's state is damaged: its steps were found by their own numbers"
NO_STEPS = "no step recorded yet: the engine has not run since it started, or was gone in its first step"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `rooflens analyze`."""
    add = parser.add_argument
    add(
        "rings",
        nargs="*",
        metavar="FILE|FOLDER|URL",
        help="traces, rings, logs and other recordings, or folders of them (default: this user's folder of rings)",
    )
    add(
        "--hardware",
        metavar="ID",
        help="what the engine ran on: a known device, the name NVML gives it, a TOML file of yours, or this-cpu "
        "(as calibrated, else measured now for some seconds; of rings, not of a trace)",
    )
    add_calibration_option(parser)
    add("--model", metavar="NAME", help="the model, or its config.json, of a recording that does not state it")
    add("--devices", type=count, metavar="N", help="devices in all, of a benchmark's result that does not tell")
    add(
        "--plot",
        metavar="FILE|-",
        help="of benchmarks: decode against the batch, a .svg or .png, or - for the terminal",
    )
    add("--html", metavar="FILE", help="also write the report as one HTML page, which opens offline (docs/report.md)")
    add("--json", action="store_true", help="a JSON array with one object a recording, in SI units, null for not known")
    add_options(parser)


def run(args: argparse.Namespace) -> int:
    """Report every ring; those that cannot be read are one line each, and make the exit code 2."""
    if args.plot and args.plot != "-":
        check_picture(args.plot)
    if args.html:
        from rooflens.dashboards.report import check_html

        check_html(args.html)
        refuse_input(args.html, args.rings)
    if args.plot == "-" and args.json:
        raise RooflensError("--plot - and --json both write to standard output: name a file for the plot")
    question = question_of(args)
    asked = Asked(args.hardware, args.model, args.calibration, args.devices)
    traces = [place for place in args.rings if is_trace(place)]
    others = [place for place in args.rings if place not in traces]
    told = _Told(args.json)
    if traces:
        told.take(", ".join(traces), lambda: _trace(traces, question, asked), alone=not others)
    if others or not traces:
        _recordings(others, args, question, asked, told)
    if args.json:
        print(json_text(told.objects))
    if beside := _beside(args, told.objects):
        print(printable("\n".join(beside)))
    if args.html and told.objects:
        from rooflens.dashboards.report import write_html

        write_html(args.html, json.loads(json_text(told.objects)))
        print(one_line(f"rooflens: the report is {args.html}"), file=sys.stderr)
    return told.code


class _Told:
    """What was reported so far: the objects of --json, and the exit code."""

    def __init__(self, as_json: bool) -> None:
        self.objects: list[dict[str, Any]] = []
        self.code = 0
        self._json = as_json

    def take(self, place: str, report: Callable[[], tuple[dict[str, Any], str]], alone: bool) -> None:
        """Print one report; one that fails is a line, or the fault of all where it is ``alone``."""
        try:
            data, text = report()
        except RooflensError as error:
            if alone:
                raise
            print(one_line(f"rooflens: {error}"), file=sys.stderr)
            self.code = EXIT_FAULT
            return
        if not self._json:
            print(printable(("\n" if self.objects else "") + text))
        self.objects.append(data)


def _trace(places: Sequence[str], question: Question, asked: Asked) -> tuple[dict[str, Any], str]:
    from rooflens.cli.analysis.trace import report

    return report(places, question, asked)


def _recordings(places: Sequence[str], args: argparse.Namespace, question: Question, asked: Asked, told: _Told) -> None:
    """Rings, logs and the rest, each by itself."""
    paths = recordings_at(places)
    full = find_spec("numpy") is not None
    of_ring = _full_report(args.hardware, args.calibration, question) if full else _raw_report

    def report(path: Path, its: Asked) -> tuple[dict[str, Any], str]:
        other = format_of(path)
        if other is None:
            return of_ring(path)
        if line := not_for(question, str(path), other.__module__.rpartition(".")[2].replace("_", " ")):
            print(one_line(f"rooflens: {line}"), file=sys.stderr)
        return other(path, its)

    recordings = together(paths, asked)
    for path, its in recordings:
        told.take(str(path), partial(report, path, its), alone=len(recordings) == 1 and not told.objects)
    if all(os.path.isdir(place) for place in places) and (hint := not_recorded(paths)):
        print(one_line(f"rooflens: none of these rings is live: {hint}"), file=sys.stderr)


def _beside(args: argparse.Namespace, objects: Sequence[Mapping[str, Any]]) -> list[str]:
    """Results of benchmarks in several files as a table, and the plot that was asked for."""
    if not args.plot and (args.json or len(objects) < 2):
        return []
    from rooflens.cli.recorded.bench_plot import files_table, plotted

    plot = plotted(objects, args.plot) if args.plot else []
    return [] if args.json else [*files_table(objects), *plot]


Report = Callable[[Path], tuple[dict[str, Any], str]]


def _full_report(hardware_name: str | None, calibration_name: str | None, question: Question) -> Report:
    """Phases, lengths and floors; the hardware is found, or measured, once for all rings."""
    from rooflens.cli.analysis.ring import lacking, only_asked, over_time, where_rows
    from rooflens.cli.named import hardware_named, is_this_cpu
    from rooflens.cli.report import as_json, ending_text, origin_text, text
    from rooflens.cli.this_cpu import read_bytes_of, roof_here
    from rooflens.collector.ring_source import STATE_DAMAGED
    from rooflens.pipeline import ENDED, lay_beside, read_ring

    missing = lacking(question)
    roofs: dict[tuple[int | None, bool], tuple[HardwareSpec, Calibration | None]] = {}
    named, calibrations = hardware_named(hardware_name), Calibrations(calibration_name)

    def roof_of(recording: Recording) -> tuple[HardwareSpec | None, Calibration | None]:
        embedded = recording.info is not None and recording.info.engine == EMBEDDED
        if not is_this_cpu(hardware_name) and (hardware_name or not embedded or recording.ending != ENDED):
            uuids = recording.info.device_uuids if recording.info else ()
            return named, calibrations.of_device(named, uuids)
        key = (read_bytes_of(recording.info), embedded)
        if key not in roofs:  # the embedded engine has as many threads as the demo gave it
            roofs[key] = roof_here(calibrations, key[0], lambda: best_threads(_silent) if embedded else None)
        return roofs[key]

    def report(path: Path) -> tuple[dict[str, Any], str]:
        recording = read_ring(path)
        if not len(recording.steps):
            facts = {"ring": str(path), "steps": 0, "ending": recording.ending, "pid": recording.pid}
            facts["start_unix_s"] = recording.start_unix_s
            lost, torn = recording.lost_steps, recording.torn_steps
            facts |= {"lost_steps": lost, "torn_steps": torn}
            why = UNREADABLE.format(lost, torn) if lost or torn else NO_STEPS
            return facts, f"ring      {path}; {ending_text(recording)}\n{origin_text(recording)}\n{why}"
        hardware, calibration = roof_of(recording)
        recording, chosen = only_asked(recording, question)
        summary, analysis, problem = lay_beside(recording, hardware, calibration)
        if question.where is not None:
            rows = where_rows(recording, analysis, question.where)
            recording = replace(recording, steps=recording.steps.take(rows))
            summary, analysis, problem = lay_beside(recording, hardware, calibration)
        data = as_json(recording, summary, hardware, problem)
        told = text(recording, summary, hardware, problem)
        told = f"{told}\n{DAMAGED}" if STATE_DAMAGED in summary.events else told
        if missing is not None:
            return data | {"history": None, "history_problem": missing}, f"{told}\n{missing}"
        roof = hardware, calibration, problem
        history, lines = over_time(recording, analysis, *roof, question, chosen)
        return data | {"history": history}, "\n".join([told, *map(one_line, lines)])

    return report


def _silent(_line: str) -> None:
    """Nobody needs to know how the threads were chosen."""


def _raw_report(path: Path) -> tuple[dict[str, Any], str]:
    found = read_raw(path)
    engine = found.info.to_json() if found.info else None
    return {"ring": str(path), **asdict(found), "info": engine, "hint": INSTALL_HINT}, _raw_text(path, found)


def _raw_text(path: Path, found: RawSummary) -> str:
    ending = "live" if found.live else "ended in order" if found.closed else "gone (stopped, killed or died)"
    kinds = ", ".join(f"{name} {count:,}" for name, count in sorted(found.steps_by_kind.items())) or "none"
    lines = [
        f"engine    {found.info.engine if found.info else 'facts not recorded'}; {ending}",
        f"ring      {path}",
        f"recorded  {found.steps:,} steps ({kinds}) in {found.span_s:,.3f} s; lost {found.lost_steps:,}, torn "
        f"{found.torn_steps:,}, hook failures {found.hook_failures:,}",
        f"tokens    {found.query_tokens:,} computed, {found.generated_tokens:,} generated",
    ]
    if found.step_p50_s is not None and found.step_p90_s is not None and found.step_max_s is not None:
        times = (found.step_p50_s, found.step_p90_s, found.step_max_s)
        lines.append("step      p50 {:.3f} ms, p90 {:.3f} ms, max {:.3f} ms".format(*(t * 1e3 for t in times)))
    if found.state_damaged:
        lines.append(DAMAGED)
    return "\n".join(map(one_line, [*lines, INSTALL_HINT]))
