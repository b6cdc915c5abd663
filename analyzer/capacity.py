"""What fits in memory beside the weights: sequences, the longest context, and the smallest deployment for a batch."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from rooflens.analyzer.operators import Lora, stage_works
from rooflens.analyzer.plan import LARGEST, Plan
from rooflens.analyzer.point import UniformBatch, point_features
from rooflens.analyzer.precision import Precision
from rooflens.analyzer.work import Work, resident_bytes, stored_bytes
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
    return stored_bytes(rows, point_features(batch, {name for row in rows for name in row.stored_bytes}))


@dataclass(frozen=True, slots=True)
class Room:
    """What fits on one device of each of ``stages`` (their rows), of ``device_bytes`` each, beside its weights."""

    stages: Sequence[Sequence[Work]]
    plan: Plan
    device_bytes: float

    @property
    def held_sequences(self) -> int:
        """Sequences of the plan's length that one rank can hold; at most LARGEST."""
        return min(self._most(rows, lambda rows, count: kept_bytes(rows, self.plan, count)) for rows in self.stages)

    @property
    def max_batch(self) -> int:
        """Sequences that all ranks can hold; each holds its own, so their remainders are lost."""
        return self.plan.ranks * self.held_sequences

    @property
    def fits(self) -> bool:
        """Whether the plan's batch does."""
        return self._busiest <= self.held_sequences

    @property
    def max_context_tokens(self) -> int:
        """How long each sequence of the batch can be; 0 where none can be, at most LARGEST."""
        return min(
            self._most(rows, lambda rows, tokens: kept_bytes(rows, self.plan, self._busiest, tokens))
            for rows in self.stages
        )

    @property
    def _busiest(self) -> int:
        return math.ceil(self.plan.batch / self.plan.ranks)

    def _most(self, rows: Sequence[Work], taken: Callable[[Sequence[Work], int], float]) -> int:
        free = self.device_bytes - resident_bytes(rows)
        return 0 if free < 0 else _largest(lambda count: taken(rows, count) <= free)


def _largest(fits: Callable[[int], bool]) -> int:
    """The largest n from 0 to LARGEST that fits, where all smaller ones fit too."""
    if fits(LARGEST):
        return LARGEST
    low, high = 0, 1
    while fits(high):
        low, high = high, min(LARGEST, 2 * high)
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
    lora = None if plan.lora_rank is None else Lora(plan.lora_rank, adapters=plan.lora_adapters)
    found: list[tuple[int, int, int, Deployment]] = []
    for spread in _spreads(arch, hardware, plan.deployment):
        try:
            stages = stage_works(arch, precision, spread, lora)
        except RooflensError:
            continue  # the heads or layers cannot be divided that way
        held = Room(stages, plan, each).held_sequences
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
