"""The dense MLP: two matrices, or three where two input projections are multiplied."""

from __future__ import annotations

from collections.abc import Iterator

from rooflens.analyzer.operators.shard import Shard
from rooflens.analyzer.work import Work
from rooflens.arch_records import DenseMLP


def mlp_rows(shard: Shard, count: int, mlp: DenseMLP) -> Iterator[Work]:
    """The rows of ``count`` layers; the input side is one row, gate and all."""
    hidden, columns = shard.hidden, (2 if mlp.gated else 1) * mlp.intermediate_size
    rows = mlp.intermediate_size / shard.devices
    yield from shard.matrix("mlp_in_projection", "mlp", count, hidden, columns / shard.devices, hidden * columns)
    yield from shard.matrix("mlp_out_projection", "mlp", count, rows, hidden, mlp.intermediate_size * hidden)
