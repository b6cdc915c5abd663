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
    """Compiled once: times are those of one device, work is that of ``whole`` on all tensor devices.

    Of several pipeline stages the times are those of the stage whose operators add up to most, step by step.
    """

    def __init__(
        self,
        stages: Sequence[Sequence[Work]],
        whole: Sequence[Work],
        names: Sequence[str],
        hardware: HardwareSpec,
        deployment: Deployment,
    ) -> None:
        """``stages`` as Sides has them; ``whole`` are the operators of one device that runs the model's whole depth."""
        rows = [row for stage in stages for row in stage]
        self._stage = np.repeat(np.arange(len(stages)), [len(stage) for stage in stages])[:, np.newaxis]
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
        own = [self._stage[:, 0] == stage for stage in range(len(stages))]
        sums = [matrix.sum(axis=0) for matrix in (weights, reads, writes, flops)]
        peak_s = [at_peak[mine].sum(axis=0) for mine in own]
        linked_s = [self._member[:, mine] @ link[mine] for mine in own]
        self._linear = np.vstack([*sums, of_whole @ moved, of_whole @ flops, *peak_s, *linked_s])

    def empty(self, steps: int) -> Matrix:
        """Room for what ``fill`` writes, shape (rows, steps)."""
        return np.empty((7 + 3 * len(self._groups), steps))

    def fill(self, features: Matrix, sides: Sides, rows: Matrix) -> None:
        """Write the rows of some steps with ``features`` (features, steps)."""
        operator_s = np.maximum(product(sides.operator_compute_s, features), product(sides.operator_memory_s, features))
        found, size, stages = product(self._linear, features), len(self._groups), sides.stages
        work = 4 + 2 * size
        linked_s = found[work + stages :]
        if stages > 1:
            slowest = product(sides.of_stage, operator_s).argmax(axis=0)
            operator_s *= self._stage == slowest
            linked_s = np.take_along_axis(linked_s.reshape(stages, size, -1), slowest[np.newaxis, np.newaxis], 0)[0]
        rows[:work] = found[:work]
        rows[work] = operator_s.sum(axis=0)
        rows[work + 1] = linked_s.sum(axis=0)
        rows[work + 2] = found[work : work + stages].max(axis=0)
        rows[work + 3 :] = product(self._member, operator_s) + linked_s

    def named(self, rows: Matrix) -> Beside:
        """The filled rows by their names."""
        size = len(self._groups)
        weights, reads, writes, flops = rows[:4]
        serial_s, link_s, at_peak_s = rows[4 + 2 * size : 7 + 2 * size]
        moved, worked, spent = rows[4 : 4 + size], rows[4 + size : 4 + 2 * size], rows[7 + 2 * size :]
        return Beside(
            serial_floor_s=serial_s,
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
