"""What stands beside the bounds of a step: its bytes and flops, and its time by groups of operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rooflens.analyzer.compiled_rows import Parts, Sides, coefficients, rates
from rooflens.analyzer.products import Matrix, product
from rooflens.analyzer.work import Work
from rooflens.arch_records import Deployment
from rooflens.model_records import HardwareSpec

Column = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Beside:
    """Columns of shape (steps,), named as in StepAnalysis; ``at_peak_s`` is what the flops take at the peak."""

    serial_floor_s: Column
    link_s: Column
    at_peak_s: Column
    weight_bytes: Column
    kv_read_bytes: Column
    kv_write_bytes: Column
    flops: Column
    group_s: Mapping[str, Column]
    group_bytes: Mapping[str, Column]
    group_flops: Mapping[str, Column]


class AnalysisRows:
    """Compiled once: times are those of one device (``rows``), work is that of ``whole`` on all tensor devices."""

    def __init__(
        self,
        rows: Sequence[Work],
        whole: Sequence[Work],
        names: Sequence[str],
        hardware: HardwareSpec,
        deployment: Deployment,
    ) -> None:
        """``whole`` are the operators of one device that runs the whole depth of the model."""
        self._groups = tuple(dict.fromkeys(row.group for row in (*rows, *whole)))
        self._member = np.array([[float(row.group == group) for row in rows] for group in self._groups])
        of_whole = np.array([[float(row.group == group) for row in whole] for group in self._groups])

        def work(*parts: Parts) -> list[Matrix]:
            return [deployment.tensor * coefficients(whole, names, part) for part in parts]

        weights, reads, writes, moved, flops = work(
            lambda row: (row.weight_bytes,),
            lambda row: (row.kv_read_bytes,),
            lambda row: (row.kv_write_bytes,),
            Work.memory_parts,
            lambda row: (row.flops,),
        )
        link = coefficients(rows, names, lambda row: (row.link_bytes,)) / (
            hardware.link_bandwidth_bytes_per_s or np.inf
        )
        peaks = rates(rows, hardware.peak_flops_per_s, hardware)
        at_peak = coefficients(rows, names, lambda row: (row.flops,)) / peaks
        sums = [matrix.sum(axis=0) for matrix in (link, at_peak, weights, reads, writes, flops)]
        self._linear = np.vstack([*sums, of_whole @ moved, of_whole @ flops])
        self._group_link_s = self._member @ link

    def empty(self, steps: int) -> Matrix:
        """Room for what ``fill`` writes, shape (rows, steps)."""
        return np.empty((1 + len(self._linear) + len(self._groups), steps))

    def fill(self, features: Matrix, sides: Sides, rows: Matrix) -> None:
        """Write the rows of some steps with ``features`` (features, steps)."""
        operator_s = np.maximum(product(sides.operator_compute_s, features), product(sides.operator_memory_s, features))
        count = len(self._linear)
        rows[:count] = product(self._linear, features)
        rows[count] = operator_s.sum(axis=0)
        rows[count + 1 :] = product(self._member, operator_s) + product(self._group_link_s, features)

    def named(self, rows: Matrix) -> Beside:
        """The filled rows by their names."""
        link_s, at_peak_s, weights, reads, writes, flops = rows[:6]
        size = len(self._groups)
        moved, worked, spent = rows[6 : 6 + size], rows[6 + size : 6 + 2 * size], rows[7 + 2 * size :]
        return Beside(
            serial_floor_s=rows[6 + 2 * size],
            link_s=link_s,
            at_peak_s=at_peak_s,
            weight_bytes=weights,
            kv_read_bytes=reads,
            kv_write_bytes=writes,
            flops=flops,
            group_s=dict(zip(self._groups, spent, strict=True)),
            group_bytes=dict(zip(self._groups, moved, strict=True)),
            group_flops=dict(zip(self._groups, worked, strict=True)),
        )
