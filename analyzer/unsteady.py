"""Which figures of a calibration say nothing of what is usual, since their runs lie too far apart.

The best of them stays what it is, a rate that was reached; the median does not: that of the next minute is another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from rooflens.calibration_records import Calibration, Measured
from rooflens.model_records import DISTURBED

UNSTEADY = "reachable is not known"  # how the flag of a roof begins below which a calibration says nothing of kernels
MOST_SPREAD_RATIO = 1.0
MOST_DISTURBED_RATIO = 0.5  # beside others, who leave at other times something else
MOST_BEST_RATIO = 3.0  # between the median and the best: where most runs were held up alike, their spread is small
ENOUGH_SHARE = 0.5  # of the sizes of a curve: fewer do not make one

Curve = tuple[tuple[int, Measured], ...]


def is_disturbed(calibration: Calibration) -> bool:
    """Whether others used the machine while it was measured."""
    return any(flag.startswith(DISTURBED) for flag in calibration.flags)


def is_steady(value: Measured, disturbed: bool) -> bool:
    """Whether the median of these runs tells what is usual."""
    most = MOST_DISTURBED_RATIO if disturbed else MOST_SPREAD_RATIO
    return value.spread_ratio <= most and from_best(value) <= MOST_BEST_RATIO - 1


def from_best(value: Measured) -> float:
    """How far the best lies from the median, as a part of the smaller one."""
    return max(value.best, value.median) / min(value.best, value.median) - 1


def steady(calibration: Calibration) -> tuple[Calibration, dict[str, float]]:
    """The calibration without its unsteady figures, and the spread of each that is left out as a whole, by name."""
    disturbed, lost = is_disturbed(calibration), {}  # type: tuple[bool, dict[str, float]]

    def curve(points: Curve, name: str) -> Curve:
        kept = tuple((size, value) for size, value in points if is_steady(value, disturbed))
        if len(kept) >= ENOUGH_SHARE * len(points):
            return kept
        lost[name] = widest([value for _, value in points])
        return ()

    def one(value: Measured | None, name: str) -> Measured | None:
        if value is None or is_steady(value, disturbed):
            return value
        lost[name] = widest([value])
        return None

    def table(values: Mapping[str, Measured]) -> dict[str, Measured]:
        return {name: value for name, value in values.items() if one(value, f"products in {name}") is not None}

    between = {n: curve(points, f"all-reduces of {n}") for n, points in calibration.all_reduce_s.items()}
    found = replace(
        calibration,
        reads=curve(calibration.reads, "weights"),
        attention=curve(calibration.attention, "decode attention"),
        products=table(calibration.products),
        launch_s=one(calibration.launch_s, "launches"),
        graph_launch_s=one(calibration.graph_launch_s, "launches in a graph"),
        all_reduce_s={n: points for n, points in between.items() if points},
    )
    return found, lost


def widest(values: Sequence[Measured]) -> float:
    """The largest distance between runs, as a ratio."""
    return max((max(value.spread_ratio, from_best(value)) for value in values), default=0.0)


def list_text(lost: Mapping[str, float]) -> str:
    """The names with their spreads."""
    return ", ".join(f"{name} by {spread_ratio:.0%}" for name, spread_ratio in lost.items())
