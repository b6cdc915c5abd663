"""The sides of one step's bound on one device, and of a step that goes through the stages of a pipeline."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from rooflens.analyzer.operators import rate_flops_per_s, strict_link_share, unknown_rate
from rooflens.analyzer.point import UniformBatch, point_features
from rooflens.analyzer.work import Coefficients, Work, dot
from rooflens.model_records import HardwareSpec

REDUCED = ("", "all_reduce")  # collectives that a switch which adds makes cheaper


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


def cached_bytes(rows: Sequence[Work], features: Mapping[str, float], hardware: HardwareSpec, stages: int = 1) -> float:
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
    link_s = [dot(row.link_bytes, features) / (hardware.link_bandwidth_bytes_per_s or float("inf")) for row in rows]
    share = strict_link_share(hardware, tensor)
    return Sides(
        memory_s=memory_s,
        uncached_s=sum(bytes_s),
        expected_s=memory_s + experts_s,
        compute_s=sum(flops_s),
        link_s=sum(link_s),
        link_floor_s=sum(
            s * (share if row.collective in REDUCED else 1.0) for s, row in zip(link_s, rows, strict=True)
        ),
        serial_s=sum(max(pair) for pair in zip(bytes_s, flops_s, strict=True)),
    )


@dataclass(frozen=True, slots=True)
class Cycle:
    """One step of all sequences through a pipeline: ``micro_batches`` passes, the sides of the one that sets its time.

    ``rows`` are what those sides are of: one device of the busiest stage, or one of each stage together.
    """

    micro_batches: int
    sides: Sides
    rows: tuple[Work, ...]
    batch: UniformBatch


def shortest_cycle(
    stage: tuple[Work, ...],
    whole: tuple[Work, ...],
    hardware: HardwareSpec,
    batch: UniformBatch,
    spread: tuple[int, int],
) -> Cycle:
    """The least time in which every sequence of ``batch`` gets through all stages; ``spread`` is (tensor, pipeline).

    ``stage`` are the rows of the busiest stage, ``whole`` those of all stages. With m micro-batches a stage works m
    times, and a sequence waits for one pass of each stage: the cycle is at least the larger of the two, and the m
    that makes it least is the bound. More micro-batches than stages only read the weights more often. A prompt can be
    cut anywhere, so of a prefill the busiest stage alone is the bound.
    """
    tensor, pipeline = spread
    names = names_of((*stage, *whole))
    most = 1 if batch.prefill or pipeline == 1 else max(1, min(pipeline, int(batch.sequences)))
    found: list[Cycle] = []
    for count in range(1, most + 1):
        part = micro_batch(batch, count)
        features = point_features(part, names)
        busiest = sides_of(stage, features, hardware, tensor).times(count)
        found.append(Cycle(count, busiest, stage, part))
        if pipeline > 1 and not batch.prefill:
            through = sides_of(whole, features, hardware, tensor, pipeline)
            if through.floor_s > busiest.floor_s:
                found[-1] = Cycle(count, through, whole, part)
    return min(found, key=lambda cycle: cycle.sides.floor_s)


def micro_batch(batch: UniformBatch, count: int) -> UniformBatch:
    """One of ``count`` equal parts of ``batch``."""
    return replace(batch, sequences=batch.sequences / count)
