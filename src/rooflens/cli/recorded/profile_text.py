"""A profile as text: the phases, where the time within the steps went, and the worst steps."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rooflens.adapters.profiler.boundaries import FAMILIES
from rooflens.adapters.profiler.capture import HOST, Capture
from rooflens.adapters.profiler.kernels import CLASSES
from rooflens.cli.output import one_line
from rooflens.cli.report import phase_table, time_text
from rooflens.cli.units import aligned, factor_text, seconds_text

if TYPE_CHECKING:
    from rooflens.adapters.profiler.steps import Track
    from rooflens.cli.recorded.profiler import Seen

MOST_SHOWN = 16  # tracks of a file as text; --json has all
WORST, WORST_RATIO = 3, 1.1  # steps that are named, each at least so many times the median
LEAST_FOR_WORST = 8  # steps of a kind: of fewer a median says little
IDLE = {True: "nothing runs", False: "no operator: Python and the engine"}


def text(path: Path, capture: Capture, seen: Sequence[Seen]) -> str:
    """The whole report."""
    families = dict.fromkeys(FAMILIES[one.track.family] for one in seen)
    lines = [f"profile   {path}; {capture.format}, steps by the ranges {' and '.join(families)}"]
    for one in seen[:MOST_SHOWN]:
        lines += ["", *_track(one, capture, len(seen) > 1)]
    if len(seen) > MOST_SHOWN:
        lines += ["", f"          and {len(seen) - MOST_SHOWN:,} more devices, which --json has"]
    lines.append("")
    lines += [f"floor     none: {why}" for why in dict.fromkeys(one.problem for one in seen if one.problem)]
    lines.append("times     a profiler slows the host down: gaps are longer than without it, kernels hardly")
    if capture.cut_off:
        lines.append("warning   the file is cut off or damaged: what stood before that was read")
    if capture.odd:
        lines.append(f"warning   {capture.odd:,} events were left out: their times cannot be")
    return "\n".join(map(one_line, lines))


def _track(seen: Seen, capture: Capture, several: bool) -> list[str]:
    track = seen.track
    where = "operators on the host, as the file holds no work of a device"
    if track.device != HOST:
        name = capture.device_names.get(track.device)
        where = f"device {track.device}{f', {name}' if name else ''}"
    elif not track.worked:
        where = "the ranges alone, as the file holds neither kernels nor operators"
    process = f"{track.process}, " if several and track.process else ""
    span_s = float(track.end_s[-1] - track.begin_s[0])
    begin = f" from {time_text(capture.unix_s + float(track.begin_s[0]))}" if capture.unix_s is not None else ""
    lines = [
        f"device    {process}{where}",
        f"recorded  {len(track):,} step{'s' if len(track) > 1 else ''} in {seconds_text(span_s)}{begin}",
    ]
    if track.empty:
        lines.append(f"          left out: {track.empty:,} without a request")
    if track.without_work:
        lines.append(f"          left out: {track.without_work:,} without a kernel")
    lines += ["", *(phase_table(seen.summary) if seen.summary else _plain_table(track))]
    if track.worked:
        lines += ["", *_classes(track)]
    if seen.summary and seen.summary.measurement_invalid:
        lines.append("measurement_invalid: steps were faster than the floor allows: model or hardware are others")
    return lines + _worst(track)


def _plain_table(track: Track) -> list[str]:
    """Where the ranges do not tell what a step did: all of them as one."""
    duration_s = track.end_s - track.begin_s
    span_s, within_s = float(track.end_s[-1] - track.begin_s[0]), float(duration_s.sum())
    p50, p90 = (float(value) for value in np.percentile(duration_s, (50, 90)))
    between_s = max(0.0, span_s - within_s)
    share = 1 - between_s / span_s if span_s else 1.0
    spread = (seconds_text(p50), seconds_text(p90), seconds_text(float(duration_s.max())))
    return aligned(
        [
            ("where the time went", "steps", "time", "share", "p50", "p90", "max"),
            ("steps", f"{len(track):,}", seconds_text(within_s), f"{share:.1%}", *spread),
            ("between steps", "", seconds_text(between_s), f"{1 - share:.1%}", "", "", ""),
        ]
    )


def _classes(track: Track) -> list[str]:
    """Seconds by class, each moment once; "hidden" is what ran behind other kernels meanwhile."""
    whole_s = float((track.end_s - track.begin_s).sum())
    spent, summed = track.class_s.sum(axis=0), track.summed_s
    rows: list[Sequence[str]] = [("within the steps", "time", "share", "a step", "hidden")]
    for number in np.argsort(-spent, kind="stable"):
        if not spent[number] and (track.device == HOST or not summed[number]):
            continue
        hidden_s = float(summed[number] - spent[number]) if track.device != HOST else 0.0
        hidden = seconds_text(hidden_s) if hidden_s > 1e-6 else ""
        rows.append((CLASSES[number], *_amounts(float(spent[number]), whole_s, len(track)), hidden))
    gap_s = whole_s - float(track.busy_s.sum())
    rows.append((IDLE[track.device != HOST], *_amounts(gap_s, whole_s, len(track)), ""))
    kernels = "kernels" if track.device != HOST else "operators"
    count, gaps = (float(np.median(column)) for column in (track.kernels, track.gaps))
    shown = [row if any(one[4] for one in rows[1:]) else row[:4] for row in rows]
    return [*aligned(shown), f"a step has {count:,.0f} {kernels} and {gaps:,.0f} gaps of 5 us or more (medians)"]


def _amounts(seconds: float, whole_s: float, steps: int) -> tuple[str, str, str]:
    share = f"{seconds / whole_s:.1%}" if whole_s else ""
    return seconds_text(seconds), share, seconds_text(seconds / steps)


def _worst(track: Track) -> list[str]:
    """The steps that took longest beside the median of their kind."""
    duration_s = track.end_s - track.begin_s
    kinds = [one.boundary.kind for one in track.ranges]
    ratio = np.zeros(len(track))
    for kind in set(kinds):
        rows = np.array([one == kind for one in kinds])
        median_s = float(np.median(duration_s[rows]))
        if rows.sum() >= LEAST_FOR_WORST and median_s > 0:
            ratio[rows] = duration_s[rows] / median_s
    lines: list[str] = []
    for row in np.argsort(-ratio, kind="stable")[:WORST]:
        if ratio[row] < WORST_RATIO:
            break
        kind = kinds[row]
        name = "step" if kind is None else kind.name.lower()
        at = seconds_text(float(track.begin_s[row] - track.begin_s[0]))
        words = f"number {row + 1:,}, {name}, {seconds_text(float(duration_s[row]))}, {factor_text(float(ratio[row]))} "
        words += f"times the median, {at} after the first"
        if track.worked:
            gap_s = float(duration_s[row] - track.busy_s[row])
            words += (
                f"; {seconds_text(gap_s)} of it nothing ran, at most {seconds_text(track.longest_gap_s[row])} at once"
            )
        lines.append(f"{'worst' if not lines else '':<10}{words}")
    return ["", *lines] if lines else []
