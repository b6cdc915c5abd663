"""Results of several files, or of several points, beside each other: a table, and a plot against the batch."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import Any

from rooflens.cli.output import one_line
from rooflens.cli.panels import Curve, Panel
from rooflens.cli.plot_text import plot_lines
from rooflens.cli.recorded.bench_text import MOST_ROWS
from rooflens.cli.units import aligned, factor_text, seconds_text

FORMAT = "benchmark"
NOTHING = "no result tells its decode beside the roofline: nothing to plot (give --model and --hardware)"
Row = Mapping[str, Any]


def results_of(reports: Iterable[Row]) -> list[tuple[str, Row]]:
    """(file, observation) of every result in what `analyze` reported of files of benchmarks."""
    told = (one for one in reports if one.get("format") == FORMAT)
    return [(PurePath(str(one["file"])).name, seen) for one in told for seen in one["observations"]]


def files_table(reports: Sequence[Row]) -> list[str]:
    """One row a result where there are several files; nothing for one file."""
    if sum(one.get("format") == FORMAT for one in reports) < 2:
        return []
    rows = [["file", "point", "at a time", "tokens/s", "TTFT", "TPOT", "batch", "floor", "reachable", "x floor"]]
    rows += [_row(file, seen) for file, seen in results_of(reports)[:MOST_ROWS]]
    keep = [n for n in range(len(rows[0])) if n == 0 or any(row[n] for row in rows[1:])]
    return ["", *map(one_line, aligned([[row[n] for n in keep] for row in rows]))]


def _row(file: str, seen: Row) -> list[str]:
    rate = seen["prompt_tokens_per_s"] if seen["phase"] == "prefill" else seen["generated_tokens_per_s"]
    cells = [file, seen["label"] or "", _number(seen["concurrency"]), _number(rate)]
    cells += [_middle(seen["ttft_s"]), _middle(seen["tpot_s"])]
    if not seen["points"]:
        return [*cells, "", "", "", ""]
    one = seen["points"][0]
    reachable = "" if one["reachable_s"] is None else seconds_text(one["reachable_s"])
    return [*cells, f"{one['batch']:,.3g}", seconds_text(one["floor_s"]), reachable, factor_text(one["times_floor"])]


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,.4g}"


def _middle(times: Mapping[str, float]) -> str:
    found = times.get("mean", times.get("p50"))
    return "" if found is None else seconds_text(found)


def decode_panel(reports: Sequence[Row]) -> Panel | None:
    """Generated tokens/s of decode against the batch, beside what the floor and the reachable time would give."""
    told = [one for _, seen in results_of(reports) for one in seen["points"] if one["phase"] == "decode"]
    points = sorted(((one["batch"], one) for one in told), key=lambda each: float(each[0]))
    if not points:
        return None

    def curve(label: str, field: str, style: str) -> Curve:
        return Curve(label, tuple((batch, batch / one[field]) for batch, one in points if one[field]), style)

    return Panel(
        "decode, tokens/s of all sequences",
        "sequences in a step (of clients by Little's law)",
        "tokens/s",
        (
            curve("at the floor", "floor_s", "line"),
            curve("reachable", "reachable_s", "dashed"),
            curve("measured", "measured_s", "points"),
        ),
        binary=True,
    )


def plotted(reports: Sequence[Row], name: str) -> list[str]:
    """Draw into the file ``name``, or the lines for the terminal; what was written, in words."""
    panel = decode_panel(reports)
    if panel is None:
        return ["", NOTHING]
    if name == "-":
        return ["", *plot_lines(panel, shutil.get_terminal_size().columns)]
    from rooflens.cli.plot_file import draw

    draw((panel,), "benchmarks beside the roofline", name)
    return ["", f"plotted in {name}"]
