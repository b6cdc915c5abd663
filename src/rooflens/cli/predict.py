"""The roofline of a planned deployment: the shortest possible step, what bounds it, and what fits in memory.

The floor may be too low and never too high: bytes that the last-level cache may keep from step to step are not
counted, which matters for small models (docs/decisions/0006-the-floor-is-strict.md says why).
Where the hardware states no rate for a format, compute is not known and the floor is that of memory and link.
docs/predict.md explains every figure with examples.

examples:
  rooflens predict --model meta-llama-3-70b --hardware h100-sxm5-80 --devices 8
  rooflens predict --model meta-llama-3-70b --hardware h100-sxm5-80 --devices 8 --batch 1..512 --context 8k
  rooflens predict --model ./config.json --hardware "NVIDIA H200" --weights fp8 --kv fp8 --phase prefill --json
  rooflens predict --model deepseek-v3 --hardware h200-sxm-141 --devices 8 --ep --batch 64
  rooflens predict --model meta-llama-3-70b --hardware h100-sxm5-80 --tp 8 --set weights=fp8 --set batch=128,kv=fp8
  rooflens predict --model meta-llama-3-70b --hardware h100-sxm5-80 --tp 8 --context 8k --plot -
  rooflens predict --hardware rubin-vr200 --weights nvfp4      (no model: the ridge of the hardware)
  rooflens predict --model qwen2.5-0.5b --hardware this-cpu    (measures this machine for ten seconds first)

The exit code is 0 where there is an answer, also one that does not fit the memory; --fail-if-misfit makes that 1. A
fault is 2.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rooflens.analyzer.precision import WEIGHT_FORMATS, weight_format
from rooflens.analyzer.predict import ridge_flop_per_byte
from rooflens.cli.output import json_text
from rooflens.cli.plot_file import check_picture, draw
from rooflens.cli.plot_text import plot_lines
from rooflens.cli.predict_answer import Answer, Sources
from rooflens.cli.predict_json import answer_json, hardware_json, impossible_json, what_if_json
from rooflens.cli.predict_list import names_json, names_text
from rooflens.cli.predict_notes import misfit, remarks
from rooflens.cli.predict_options import Sweep, add_arguments, sweep_of
from rooflens.cli.predict_panels import Group, batches_to_draw, groups_of, roofline_panel, throughput_panel, widest_axis
from rooflens.cli.predict_set import compared, comparison
from rooflens.cli.predict_sweep import Impossible, answers, heading, left_out, possible, table
from rooflens.cli.predict_text import Row, hardware_rows, rows, sentence
from rooflens.cli.what_if import WhatIf, what_ifs
from rooflens.model_records import HardwareSpec
from rooflens.records import RooflensError

EXIT_MISFIT = 1  # asked for by --fail-if-misfit

__all__ = ["add_arguments", "run"]


def run(args: argparse.Namespace) -> int:
    """Print the prediction of one point, of a sweep or of what-ifs, as tables or as JSON, and draw the plot."""
    if args.list:
        print(json_text(names_json()) if args.json else names_text())
        return 0
    weights = weight_format(args.weights) if args.weights else None
    sources, sweep, changes = Sources(), sweep_of(args), what_ifs(args.set)
    if args.model is None:
        return _hardware_alone(args, sweep, sources, weights)
    if sweep.axes and changes:
        raise RooflensError("--set changes one point: leave the sweep out, or sweep without --set")
    if args.plot and args.plot != "-":
        check_picture(args.plot)
    if args.plot == "-" and args.json:
        raise RooflensError("--plot - and --json both write to standard output: name a file for the plot")
    points = answers(sweep.points, sources)
    found = possible(points)
    others = compared(sweep.points[0], changes, sources)
    plot = _plot(args.plot, sweep, found, changes, others, sources) if args.plot else []
    if args.json:
        print(json_text(_json(sweep, points, changes, others)))
    else:
        print("\n".join([*_text(sweep, found, changes, others), *left_out(sweep, points), *plot]))
    misfits = not all(one.result.fits for one in (*found, *others))
    return EXIT_MISFIT if args.fail_if_misfit and misfits else 0


def _json(
    sweep: Sweep, points: Sequence[Answer | Impossible], changes: Sequence[WhatIf], others: Sequence[Answer]
) -> Any:
    if sweep.axes:
        return [
            answer_json(one, alone=False) if isinstance(one, Answer) else impossible_json(one.asked, one.reason)
            for one in points
        ]
    (now,) = possible(points)
    data = answer_json(now)
    return data | {"what_ifs": what_if_json(now, others, changes)} if changes else data


def _text(sweep: Sweep, found: Sequence[Answer], changes: Sequence[WhatIf], others: Sequence[Answer]) -> list[str]:
    if sweep.axes:
        return [heading(found, sweep.axes), "", *table(sweep, found)]
    one = found[0]
    problem = misfit(one)
    lines = [f"DOES NOT FIT: {problem}", ""] if problem else []
    if changes:
        beside = [f"note: {text}" for text in remarks(one)]
        return [*lines, heading(found, ()), "", *comparison(one, others, changes), *([""] if beside else []), *beside]
    return [*lines, *_laid_out(rows(one)), "", sentence(one)]


def _laid_out(shown: Sequence[Row]) -> list[str]:
    """The rows in columns; a note is as long as it is."""
    plain = [row for row in shown if row[0] != "note"]
    widths = [max(len(row[column]) for row in plain) for column in (0, 1)]
    return [f"{label:<{widths[0]}}  {value:>{widths[1]}}  {remark}".rstrip() for label, value, remark in shown]


def _plot(
    name: str,
    sweep: Sweep,
    found: Sequence[Answer],
    changes: Sequence[WhatIf],
    others: Sequence[Answer],
    sources: Sources,
) -> list[str]:
    """Draw into the file ``name``, or the lines for the terminal; what was written, in words."""
    axis = widest_axis(sweep)
    asked: list[Group] = groups_of(found, sweep, axis)
    asked = [*asked, *((one.text, [other]) for one, other in zip(changes, others, strict=True))]
    if changes:
        asked[0] = ("now", asked[0][1])
    along = asked
    if not sweep.axes:
        along = [
            (label, possible(answers([replace(m.asked, batch=b) for b in batches_to_draw(m.asked, sources)], sources)))
            for label, (m,) in asked
        ]
    panels = (roofline_panel(asked), throughput_panel(along, axis, sources))
    if name == "-":
        columns = shutil.get_terminal_size().columns
        return [line for panel in panels for line in ("", *plot_lines(panel, columns))]
    draw(panels, heading(found, sweep.axes), name)
    return ["", f"plotted in {name}"]


def _hardware_alone(args: argparse.Namespace, sweep: Sweep, sources: Sources, weights: str | None) -> int:
    """What the device is by itself, with a note on every option that means nothing without a model."""
    hardware, _ = sources.hardware(args.hardware, args.calibration)
    shown = weights or _stated_format(hardware)
    remarks = []
    given = [name for name in sweep.points[0].given() if name not in ("--hardware", "--weights")]
    given += [f"--{name.replace('_', '-')}" for name in ("set", "plot", "fail_if_misfit") if getattr(args, name)]
    if given:
        remarks.append(f"{', '.join(given)} ignored: without --model only the hardware is shown")
    if shown != (weights or "bf16"):
        remarks.append(f"{hardware.id} states no rate for bf16: the ridge is that of {shown} (choose by --weights)")
    if args.json:
        data = hardware_json(hardware, shown)
        print(json_text(data | {"notes": remarks + data["notes"]}))
    else:
        print("\n".join(_laid_out([*hardware_rows(hardware, shown), *(("note", text, "") for text in remarks)])))
    return 0


def _stated_format(hardware: HardwareSpec) -> str:
    """bf16, or where the device states no rate for it the first weight format that it does."""
    return next((f for f in ("bf16", *WEIGHT_FORMATS) if ridge_flop_per_byte(hardware, f) is not None), "bf16")
