"""Rows of work as matrices over the features of a step: what many steps cost is then a product and a maximum."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from rooflens.analyzer.features import RANK_TOKENS
from rooflens.analyzer.operators import rate_flops_per_s, strict_link_bytes, unknown_rate
from rooflens.analyzer.products import Matrix, product
from rooflens.analyzer.spans import split
from rooflens.analyzer.work import Coefficients, Work
from rooflens.model_records import HardwareSpec

Parts = Callable[[Work], Sequence[Coefficients]]


def features_of(rows: Iterable[Work]) -> tuple[str, ...]:
    """The names of all features that the floor of ``rows`` and what stands beside it need, sorted."""
    used = {
        name
        for row in rows
        for part in (row.flops, row.link_bytes, row.expert_bytes, *row.memory_parts())
        for name in part
    }
    return tuple(sorted(used | {"passes", "query_tokens"}))


def coefficients(rows: Sequence[Work], names: Sequence[str], parts: Parts) -> Matrix:
    """The matrix (operators, features) of one kind of work of one device."""
    place = {name: at for at, name in enumerate(names)}
    matrix = np.zeros((len(rows), len(names)))
    for at, row in enumerate(rows):
        for part in parts(row):
            for name, coefficient in part.items():
                matrix[at, place[name]] += coefficient
    return matrix


def strict_flops(row: Work) -> Coefficients:
    """What of a row's flops belongs to the floor: of the tokens of all ranks those that are known, this one's own."""
    if not any(split(name)[0] == RANK_TOKENS for name in row.flops):
        return row.flops
    found: dict[str, float] = {}
    for name, flops in row.flops.items():
        known = "query_tokens" if split(name)[0] == RANK_TOKENS else name
        found[known] = found.get(known, 0.0) + flops
    return found


def rates(rows: Sequence[Work], table: Mapping[str, float], hardware: HardwareSpec) -> Matrix:
    """The flop/s at which each operator can run, shape (operators, 1); infinite for no flops, for all if one is not
    known."""
    if unknown_rate(hardware, tuple(rows)):
        return np.full((len(rows), 1), np.inf)
    return np.array([[rate_flops_per_s(table, hardware, row)] for row in rows])


class Sides:
    """The sides of the floor of one device, compiled: seconds for each unit of each feature.

    ``of`` gives memory, compute and link seconds, then memory and compute as uniform routing over equally loaded
    ranks is expected to make them; what the last cache may keep of each pass is taken off memory. Of several pipeline
    stages each is that of the stage where it is largest, so that their maximum is that of the slowest stage.
    """

    COUNT = 5

    def __init__(
        self, stages: Sequence[Sequence[Work]], names: Sequence[str], hardware: HardwareSpec, tensor: int
    ) -> None:
        """``stages`` are the operators of one device of each stage, ``tensor`` the devices that share one."""
        rows = [row for stage in stages for row in stage]
        self.stages = len(stages)
        self.of_stage = np.repeat(np.eye(len(stages)), [len(stage) for stage in stages], axis=1)
        self.bytes = coefficients(rows, names, Work.memory_parts)
        ceilings = rates(rows, hardware.ceiling_flops_per_s, hardware)
        self.operator_memory_s = self.bytes / hardware.memory_bandwidth_bytes_per_s
        self.operator_compute_s = coefficients(rows, names, lambda row: (strict_flops(row),)) / ceilings
        expected_s = coefficients(rows, names, lambda row: (row.flops,)) / ceilings
        own = self.of_stage.astype(bool)

        def each(parts: Matrix) -> Matrix:
            return np.stack([parts[mine].sum(axis=0) for mine in own])

        experts = each(coefficients(rows, names, lambda row: (row.expert_bytes,)))
        link = each(coefficients(rows, names, lambda row: (strict_link_bytes(hardware, row, tensor),)))
        memory_s = each(self.operator_memory_s)
        memory_s[:, names.index("passes")] -= (hardware.cache_bytes or 0) / hardware.memory_bandwidth_bytes_per_s
        compute_s, expected_compute_s = each(self.operator_compute_s), each(expected_s)
        self._matrix = np.concatenate(
            [
                memory_s,
                compute_s,
                link / (hardware.link_bandwidth_bytes_per_s or np.inf),
                memory_s + experts / hardware.memory_bandwidth_bytes_per_s,
                expected_compute_s,
            ]
        )
        self.linked = bool(link.any())
        self.expects = bool(experts.any()) or not np.array_equal(compute_s, expected_compute_s)

    def of(self, features: Matrix) -> Matrix:
        """The five rows (COUNT, steps) for ``features`` (features, steps)."""
        sides = product(self._matrix, features)
        if self.stages > 1:
            sides = sides.reshape(self.COUNT, self.stages, -1).max(axis=1)
        np.maximum(sides[0], 0.0, out=sides[0])
        np.maximum(sides[3], 0.0, out=sides[3])
        return sides
