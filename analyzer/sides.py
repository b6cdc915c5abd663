"""The sides of one step's bound on one device, and of a step that goes through the stages of a pipeline."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from rooflens.analyzer.operators import rate_flops_per_s, strict_link_bytes, unknown_rate
from rooflens.analyzer.plan import Plan
from rooflens.analyzer.point import UniformBatch
from rooflens.analyzer.spans import spans_of_mixer
from rooflens.analyzer.work import Coefficients, Work, dot
from rooflens.arch_records import Attention, CompressedAttention, LatentAttention, ModelArch
from rooflens.model_records import HardwareSpec


@dataclass(frozen=True, slots=True)
class Sides:
    """Seconds that one step keeps memory, arithmetic and link of one device busy, each by itself.

    ``memory_s`` leaves out what the last cache may keep (``uncached_s`` does not), ``expected_s`` adds to it the
    experts that uniform routing reads beyond the fewest. ``link_s`` is all that is sent, ``link_floor_s`` what no
    implementation can avoid of it; ``serial_s`` is operator after operator.
    """

    memory_s: float
    uncached_s: float
    expected_s: float
    compute_s: float
    link_s: float
    link_floor_s: float
    serial_s: float

    @property
    def floor_s(self) -> float:
        """The strict lower bound: everything overlaps."""
        return max(self.memory_s, self.compute_s, self.link_floor_s)

    @property
    def expected_floor_s(self) -> float:
        """The same with the experts that uniform routing reads; not a bound."""
        return max(self.expected_s, self.compute_s, self.link_floor_s)

    def times(self, passes: float) -> Sides:
        """The sides of several such steps, one after another."""
        return Sides(*(passes * getattr(self, name) for name in self.__slots__))


def forms_of(row: Work) -> Iterator[Coefficients]:
    """Every linear form of one operator but its stored bytes."""
    yield from row.memory_parts()
    yield from (row.flops, row.expert_bytes, row.activation_bytes, row.link_bytes)


def names_of(rows: Iterable[Work]) -> set[str]:
    """The features that the costs of ``rows`` are said in, and the passes."""
    return {"passes", *(name for row in rows for form in forms_of(row) for name in form)}


def memory_bytes(row: Work, features: Mapping[str, float]) -> float:
    """Bytes that the floor counts of one operator."""
    return sum(dot(part, features) for part in row.memory_parts())


def moved_bytes(rows: Sequence[Work], features: Mapping[str, float]) -> float:
    """Bytes that the floor counts of all operators, before the last cache."""
    return sum(memory_bytes(row, features) for row in rows)


def cached_bytes(rows: Sequence[Work], features: Mapping[str, float], hardware: HardwareSpec, stages: int) -> float:
    """Bytes of them that the last cache of each of ``stages`` devices may keep from step to step."""
    return min(moved_bytes(rows, features), features["passes"] * stages * (hardware.cache_bytes or 0))


def sides_of(
    rows: Sequence[Work], features: Mapping[str, float], hardware: HardwareSpec, tensor: int, stages: int = 1
) -> Sides:
    """The sides of one step with ``features``; ``stages`` are the devices that ``rows`` are spread over in depth.

    Where the device does not state a rate that is needed, all compute times are 0.
    """
    bandwidth, ceilings = hardware.memory_bandwidth_bytes_per_s, hardware.ceiling_flops_per_s
    bytes_s = [memory_bytes(row, features) / bandwidth for row in rows]
    flops_s = [dot(row.flops, features) / rate_flops_per_s(ceilings, hardware, row) for row in rows]
    if unknown_rate(hardware, tuple(rows)):
        flops_s = [0.0 for _ in rows]
    kept_s = cached_bytes(rows, features, hardware, stages) / bandwidth
    experts_s = sum(dot(row.expert_bytes, features) for row in rows) / bandwidth
    memory_s = moved_bytes(rows, features) / bandwidth - kept_s
    link = hardware.link_bandwidth_bytes_per_s or math.inf
    strict = (dot(strict_link_bytes(hardware, row, tensor), features) for row in rows)
    return Sides(
        memory_s=memory_s,
        uncached_s=sum(bytes_s),
        expected_s=memory_s + experts_s,
        compute_s=sum(flops_s),
        link_s=sum(dot(row.link_bytes, features) for row in rows) / link,
        link_floor_s=sum(strict) / link,
        serial_s=sum(max(pair) for pair in zip(bytes_s, flops_s, strict=True)),
    )


def batch_of(arch: ModelArch, plan: Plan, sequences: float) -> UniformBatch:
    """The step of one rank that holds ``sequences`` of the plan's."""
    return UniformBatch(
        sequences,
        plan.read_tokens,
        plan.computed_tokens,
        plan.sampled_rows,
        plan.prefill,
        min(plan.shared_prefix_tokens, plan.read_tokens),
        _chosen_spans(arch),
        plan.block_tokens,
        plan.graph_sizes,
        plan.encoder_tokens,
        min(plan.lora_adapters, math.ceil(sequences)) if plan.lora_rank else 0,
        plan.expert_sharing_ratio,
        plan.distinct_experts,
    )


def _chosen_spans(arch: ModelArch) -> frozenset[str]:
    """The spans that stand for entries which an indexer chooses, and that are no layer's window."""
    found, windows = set[str](), set[str]()
    for layer in arch.layers:
        mixer = layer.mixer
        chooses = isinstance(mixer, Attention | LatentAttention | CompressedAttention) and mixer.indexer
        window = {f"w{mixer.window_tokens}"} if isinstance(mixer, CompressedAttention) else set[str]()
        spans = set(spans_of_mixer(mixer))
        found |= spans - window if chooses else set()
        windows |= window if chooses else spans
    return frozenset(found - windows)


def micro_batch(batch: UniformBatch, count: int) -> UniformBatch:
    """One of ``count`` equal parts of ``batch``, with its part of the adapters: sequences may be sorted by them."""
    adapters = max(1.0, batch.lora_adapters / count) if batch.lora_adapters else 0.0
    return replace(batch, sequences=batch.sequences / count, lora_adapters=adapters)
