"""What a well-tuned engine can be expected to reach on a data-sheet device: a wide interval, from published figures.

Kernels never reach the data sheet. The interval holds what was measured over several devices and engines: weight
streaming and decode attention as fractions of the memory bandwidth, matrix products of the peak, collectives of the
link, and a constant per layer for launches and small kernels. It is wide on purpose; a step beyond its slow end is
slow by any measure, one inside it says nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rooflens.analyzer.features import feature_matrix
from rooflens.analyzer.operators import ALL_REDUCES_PER_LAYER
from rooflens.analyzer.roofline import Roofline
from rooflens.model_records import StepAnalysis
from rooflens.records import StepTable

Column = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Reach:
    """One end of the interval: fractions of the data sheet (ratios) and constants in seconds."""

    memory_ratio: float
    kv_ratio: float
    compute_ratio: float
    link_ratio: float
    layer_s: float
    collective_s: float


# Slow: bf16 weights stream at 0.75 to 0.88 of the data sheet in matrices of 200 MB, 0.55 to 0.72 in 30 to 80 MB; KV
# reads run at 0.74 to 0.87 from 512 MB on, 0.32 to 0.47 below 128 MB; usual matrix products reach 0.44 to 0.9 of the
# peak; small steps of real engines lie 54 to 100 us a layer above the bytes; an eager all-reduce adds 15 to 40 us.
SLOW = Reach(0.55, 0.4, 0.4, 0.5, 100e-6, 40e-6)
# Fast: the best of the same measurements; a graph replays the five kernels of a layer in 2 to 3 us each, and a
# custom all-reduce takes 4 us.
FAST = Reach(0.93, 0.96, 0.95, 0.96, 10e-6, 4e-6)


@dataclass(frozen=True, slots=True)
class Reachable:
    """For each step, seconds (steps,): ``fast_s`` is never below the floor, ``slow_s`` never below ``fast_s``.

    NaN where the step is not modelled.
    """

    fast_s: Column
    slow_s: Column


def reachable(roofline: Roofline, table: StepTable, analysis: StepAnalysis) -> Reachable | None:
    """The interval for every step of ``table``; None for hardware whose roof was measured, not printed.

    ``analysis`` is that of the same roofline and table.
    """
    if roofline.hardware.origin != "datasheet":
        return None
    passes = feature_matrix(table, ("passes",))[0][:, 0]
    fast_s = np.maximum(_seconds(roofline, analysis, passes, FAST, together=True), analysis.floor_s)
    slow_s = _seconds(roofline, analysis, passes, SLOW, together=False)
    return Reachable(fast_s, np.maximum(fast_s, slow_s))


def _seconds(roofline: Roofline, analysis: StepAnalysis, passes: Column, reach: Reach, together: bool) -> Column:
    """At one end: ``together`` lets bytes, flops and link overlap perfectly, else one follows the other."""
    kv_bytes = analysis.kv_read_bytes + analysis.kv_write_bytes
    kv_s = np.minimum(
        kv_bytes / roofline.deployment.tensor / roofline.hardware.memory_bandwidth_bytes_per_s, analysis.memory_s
    )
    sides = (
        (analysis.memory_s - kv_s) / reach.memory_ratio + kv_s / reach.kv_ratio,
        analysis.compute_s / reach.compute_ratio,
        (analysis.link_floor_s if together else analysis.link_s) / reach.link_ratio,
    )
    layers = sum(layer.count for layer in roofline.arch.layers)
    collectives = ALL_REDUCES_PER_LAYER * layers if roofline.deployment.tensor > 1 else 0
    constant_s = passes * (layers * reach.layer_s + collectives * reach.collective_s)
    busy: Column = np.maximum.reduce(sides) if together else np.add.reduce(sides)
    return busy + constant_s
