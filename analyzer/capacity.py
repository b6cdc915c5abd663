"""What fits in memory beside the weights: sequences, the longest context, and the smallest deployment for a batch."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from rooflens.analyzer.operators import works
from rooflens.analyzer.plan import LARGEST, Plan
from rooflens.analyzer.point import UniformBatch, point_features
from rooflens.analyzer.precision import Precision
from rooflens.analyzer.work import Work, dot, resident_bytes
from rooflens.arch_records import Deployment, ModelArch
from rooflens.model_records import HardwareSpec
from rooflens.records import RooflensError


def device_bytes(hardware: HardwareSpec, plan: Plan) -> float:
    """Bytes of one device that the engine may use."""
    return plan.utilization_ratio * (plan.memory_bytes or plan.devices * float(hardware.memory_bytes)) / plan.devices


def kept_bytes(rows: Sequence[Work], plan: Plan, sequences: float, tokens: int | None = None) -> float:
    """Bytes that the caches of ``sequences`` of one rank take on one device, in whole blocks where their size is known.

    ``tokens`` is the length of each instead of the plan's.
    """
    length = max(1, plan.kept_tokens) if tokens is None else tokens
    block = plan.block_tokens or 1
    length = math.ceil(length / block) * block
    batch = UniformBatch(
        sequences,
        length,
        shared_tokens=min(plan.shared_prefix_tokens, length),
        block_tokens=plan.block_tokens,
        encoder_tokens=plan.encoder_tokens,
    )
    forms = [row.stored_bytes or {"context_tokens": row.kv_write_bytes.get("query_tokens", 0.0)} for row in rows]
    values = point_features(batch, {name for form in forms for name in form})
    return sum(dot(form, values) for form in forms)


def held_sequences(rows: Sequence[Work], plan: Plan, free_bytes: float) -> int:
    """How many sequences of the plan's length fit in ``free_bytes`` of one device; at most LARGEST."""
    if free_bytes < 0:
        return 0
    return _largest(lambda count: kept_bytes(rows, plan, count) <= free_bytes, LARGEST)


def longest_context(rows: Sequence[Work], plan: Plan, free_bytes: float, sequences: int) -> int:
    """Tokens that each of ``sequences`` can have in ``free_bytes`` of one device; 0 where none, at most LARGEST."""
    if free_bytes < 0:
        return 0
    return _largest(lambda tokens: kept_bytes(rows, plan, sequences, tokens) <= free_bytes, LARGEST)


def _largest(fits: Callable[[int], bool], most: int) -> int:
    """The largest n from 0 to ``most`` that fits, where all smaller ones fit too."""
    if fits(most):
        return most
    low, high = 0, 1
    while fits(high):
        low, high = high, min(most, 2 * high)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def devices_needed(
    arch: ModelArch, hardware: HardwareSpec, precision: Precision, plan: Plan
) -> tuple[int, Deployment] | None:
    """(devices, how a copy is spread) of the smallest deployment that holds the batch; None where none does.

    A copy keeps at least the plan's tensor and pipeline parallelism, and its other parallelism as it is; each device
    has the memory that it has in the plan. Of equally many devices, the fewest stages, then the narrowest tensor
    parallelism win.
    """
    each = device_bytes(hardware, plan)
    found: list[tuple[int, int, int, Deployment]] = []
    for spread in _spreads(arch, hardware, plan.deployment):
        try:
            rows = works(arch, precision, spread)
        except RooflensError:
            continue  # the heads or layers cannot be divided that way
        held = held_sequences(rows, plan, each - resident_bytes(rows))
        if held:
            replicas = math.ceil(math.ceil(plan.batch / held) / spread.data)
            found.append((replicas * spread.devices * spread.data, spread.pipeline, spread.tensor, spread))
    best = min(found, key=lambda entry: entry[:3], default=None)
    return None if best is None else (best[0], best[3])


def _spreads(arch: ModelArch, hardware: HardwareSpec, least: Deployment) -> Iterator[Deployment]:
    """Tensor parallelism up to the heads, times pipelines of doubling length up to the layers."""
    if hardware.link_bandwidth_bytes_per_s is None:
        yield least
        return
    heads = max((row.mixer.heads for row in arch.layers if row.mixer is not None), default=1)
    depth = sum(layer.count for layer in arch.layers)
    pipeline = least.pipeline
    while pipeline <= max(depth, least.pipeline):
        for tensor in range(least.tensor, max(heads, least.tensor) + 1):
            if tensor % least.context == 0:
                yield replace(least, tensor=tensor, pipeline=pipeline)
        pipeline *= 2
