"""What fits in memory beside the weights: sequences, the longest context, and the smallest deployment for a batch."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from rooflens.analyzer.operators import Lora, stage_works
from rooflens.analyzer.plan import LARGEST, Plan
from rooflens.analyzer.point import UniformBatch, point_features
from rooflens.analyzer.precision import Precision
from rooflens.analyzer.work import Coefficients, Work, dot, resident_bytes
from rooflens.arch_records import Deployment, ModelArch
from rooflens.model_records import HardwareSpec
from rooflens.records import RooflensError


def device_bytes(hardware: HardwareSpec, plan: Plan) -> float:
    """Bytes of one device that the engine may use."""
    return plan.utilization_ratio * (plan.memory_bytes or plan.devices * float(hardware.memory_bytes)) / plan.devices


def kept_form(rows: Iterable[Work]) -> Coefficients:
    """What the caches of sequences take on one device, all operators together."""
    found: dict[str, float] = {}
    for row in rows:
        for name, each in row.stored_bytes.items():
            found[name] = found.get(name, 0.0) + each
    return found


def kept_bytes(form: Coefficients, plan: Plan, sequences: float, tokens: int | None = None) -> float:
    """Bytes that the caches of ``sequences`` of one rank take on one device, in whole blocks where their size is known.

    ``form`` is kept_form's; ``tokens`` is the length of each sequence instead of the plan's.
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
    return dot(form, point_features(batch, form))


@dataclass(frozen=True, slots=True)
class Room:
    """What fits beside the weights: ``held_sequences`` of the plan's length on one rank, ``max_batch`` on all of them.

    ``fits`` is whether the plan's batch does, ``max_context_tokens`` how long each of its sequences can be: 0 where
    none can be. Both counts end at LARGEST.
    """

    held_sequences: int
    max_batch: int
    fits: bool
    max_context_tokens: int


def room(stages: Sequence[Sequence[Work]], plan: Plan, bytes_of_device: float) -> Room:
    """What fits on devices of ``bytes_of_device`` each; ``stages`` are the rows of one device of each stage."""
    free = [(kept_form(rows), bytes_of_device - resident_bytes(rows)) for rows in stages]
    held = held_sequences(stages, plan, bytes_of_device)
    busiest = math.ceil(plan.batch / plan.ranks)
    longest = min(_largest(partial(kept_bytes, form, plan, busiest), left) for form, left in free)
    return Room(held, plan.ranks * held, busiest <= held, longest)


def held_sequences(stages: Sequence[Sequence[Work]], plan: Plan, bytes_of_device: float) -> int:
    """Sequences of the plan's length that one rank holds beside the weights; at most LARGEST."""
    return min(_held(kept_form(rows), plan, bytes_of_device - resident_bytes(rows)) for rows in stages)


def _held(form: Coefficients, plan: Plan, free: float) -> int:
    """Sequences in ``free`` bytes: the first, and others that need as much as the second."""
    first, two = (kept_bytes(form, plan, count) for count in (1, 2))
    if first > free:
        return 0
    return LARGEST if two <= first else min(LARGEST, 1 + math.floor((free - first) / (two - first)))


def _largest(taken: Callable[[int], float], free: float) -> int:
    """The largest n from 0 to LARGEST with ``taken`` at most ``free``, where more takes more."""
    if free < taken(1):
        return 0
    if taken(LARGEST) <= free:
        return LARGEST
    low, high = 1, 2
    while taken(high) <= free:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if taken(middle) <= free else (low, middle)
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
    best: tuple[int, int, int, Deployment] | None = None
    for spread in sorted(_spreads(arch, hardware, plan.deployment), key=lambda one: one.devices):
        if best is not None and spread.devices * spread.data > best[0]:
            break  # one copy alone is larger
        try:
            stages = stage_works(arch, precision, spread, lora)
        except RooflensError:
            continue  # the heads or layers cannot be divided that way
        held = held_sequences(stages, plan, each)
        if held:
            replicas = math.ceil(math.ceil(plan.batch / held) / spread.data)
            entry = (replicas * spread.devices * spread.data, spread.pipeline, spread.tensor, spread)
            best = entry if best is None or entry[:3] < best[:3] else best
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
