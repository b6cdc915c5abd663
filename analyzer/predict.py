"""The roofline of a planned deployment: one operating point, plain floats, no dependency."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from rooflens.analyzer.capacity import device_bytes, devices_needed, kept_bytes, kept_form, room
from rooflens.analyzer.counting import Count, parameters
from rooflens.analyzer.hardware import fastest
from rooflens.analyzer.operators import rate_flops_per_s, unknown_rate
from rooflens.analyzer.plan import PHASES, Plan, check_plan
from rooflens.analyzer.point import point_features
from rooflens.analyzer.precision import WEIGHT_FORMATS, Precision
from rooflens.analyzer.sides import (
    batch_of,
    cached_bytes,
    memory_bytes,
    micro_batch,
    moved_bytes,
    names_of,
)
from rooflens.analyzer.step_time import Compiled, Cycle, Least
from rooflens.analyzer.work import Work, dot, resident_bytes
from rooflens.arch_records import ModelArch
from rooflens.model_records import Efficiency, HardwareSpec

__all__ = [
    "PHASES",
    "GroupWork",
    "Plan",
    "Prediction",
    "devices_needed",
    "predict",
    "predict_each",
    "ridge_announced_flop_per_byte",
    "ridge_flop_per_byte",
]


@dataclass(frozen=True, slots=True)
class GroupWork:
    """One group of operators in a step: ``seconds`` operator after operator and what it sends, sums of all devices."""

    group: str
    seconds: float
    flops: float
    bytes: float


@dataclass(frozen=True, slots=True)
class Prediction:
    """The roofline of a plan; seconds and bytes, everything summed over the whole deployment but the times.

    The sums take every device to be as busy as the busiest of its stage, which matters to expert parallelism alone.

    ``floor_s`` of a step is strict; ``expected_s`` is the same with the experts that uniform routing reads, and
    ``reachable_s`` what a well-tuned engine gets (``reachable_origin`` is that of its Efficiency); neither is a bound.
    Each is in the number of micro-batches that is best for it, and floor <= expected <= reachable. ``memory_s``,
    ``compute_s`` and all sums are of the step at the floor: where arithmetic sets it, more micro-batches may read more.
    ``mfu`` (of the datasheet's peak) and ``mbu`` are what a step at the floor would reach, so no real step exceeds
    them. ``tokens_per_s`` are output tokens in decode (with every drafted token accepted), prompt tokens in prefill, at
    the floor.

    ``weight_bytes`` are resident, ``weight_read_bytes`` the fewest read in one step, ``expert_bytes`` what uniform
    routing reads beyond them; ``kv_bytes`` is the cache of the batch, states included, ``sequence_bytes`` that of one
    sequence, ``kv_bytes_per_token`` its mean. ``state_bytes`` are states read and written in the step.
    ``capacity_bytes`` is the memory that the engine may use, ``max_batch`` how many sequences of this context fit
    beside the weights, 0 where the weights alone do not fit, ``max_context_tokens`` how long each sequence of the batch
    can be; ``fits`` is whether the batch does.

    ``bound`` is the side that sets the floor; ``bound_known`` is False where the true step may be bound by another:
    by arithmetic of an unknown rate, or by memory where ``cached_bytes``, what the last-level cache may keep from
    step to step, made its side the smaller. ``micro_batches`` are in flight in a pipeline at
    the floor, ``expected_micro_batches`` and ``reachable_micro_batches`` at the other two. ``parameters`` and
    ``active_parameters`` (those that multiply a token) are of the model. None is not known.
    """

    floor_s: float
    memory_s: float
    compute_s: float | None
    serial_floor_s: float
    link_s: float
    expected_s: float
    reachable_s: float | None
    reachable_origin: str | None
    tokens_per_s: float | None
    bound: str | None
    bound_known: bool
    mfu: float | None
    mbu: float | None
    cached_bytes: float
    fits: bool
    flops: float
    flops_per_token: float
    weight_bytes: float
    weight_read_bytes: float
    expert_bytes: float
    kv_bytes: float
    kv_read_bytes: float
    kv_write_bytes: float
    state_bytes: float
    sequence_bytes: float
    kv_bytes_per_token: float
    capacity_bytes: float
    kv_capacity_bytes: float
    max_batch: int
    max_context_tokens: int
    micro_batches: int
    expected_micro_batches: int
    reachable_micro_batches: int | None
    padded_tokens: float
    parameters: float | None
    active_parameters: float | None
    groups: tuple[GroupWork, ...]


def ridge_flop_per_byte(hardware: HardwareSpec, weights: str) -> float | None:
    """Flops that must be done with each byte read before arithmetic, not memory, is the limit (Williams 2009).

    At the datasheet's dense peak of the format that ``weights`` are multiplied in; None where none is stated.
    """
    chosen = fastest(hardware, WEIGHT_FORMATS[weights].compute)
    return None if chosen is None else hardware.peak_flops_per_s[chosen] / hardware.memory_bandwidth_bytes_per_s


def ridge_announced_flop_per_byte(hardware: HardwareSpec, weights: str) -> float | None:
    """The same at an announced rate that is not dense; None where the vendor announced none."""
    rate = hardware.announced_flops_per_s.get(fastest(hardware, WEIGHT_FORMATS[weights].compute) or "")
    return None if rate is None else rate / hardware.memory_bandwidth_bytes_per_s


def predict(
    arch: ModelArch, hardware: HardwareSpec, precision: Precision, plan: Plan, efficiency: Efficiency | None = None
) -> Prediction:
    """The bounds of one step of ``plan``; RooflensError in one line for a plan that makes no sense.

    ``efficiency`` is what kernels reach, by default what was published of the hardware.
    """
    return predict_each(arch, hardware, precision, (plan,), efficiency)[0]


def predict_each(
    arch: ModelArch,
    hardware: HardwareSpec,
    precision: Precision,
    plans: Sequence[Plan],
    efficiency: Efficiency | None = None,
) -> tuple[Prediction, ...]:
    """The same for many operating points, compiled once for each deployment among them; raises what predict raises."""
    compiled: dict[tuple[object, ...], Compiled] = {}
    found, count = [], parameters(arch)
    for plan in plans:
        check_plan(plan)
        key = (plan.deployment, plan.lora_rank, plan.lora_adapters, plan.eager)
        if key not in compiled:
            compiled[key] = Compiled.of(arch, hardware, precision, plan, efficiency)
        found.append(_predicted(compiled[key], plan, count))
    return tuple(found)


def _predicted(compiled: Compiled, plan: Plan, count: Count) -> Prediction:
    least = compiled.least(plan)
    cycle = least.cycle
    mean = micro_batch(batch_of(compiled.arch, plan, plan.batch / plan.ranks), cycle.micro_batches)
    sums = _Sums(compiled.whole, plan, cycle.micro_batches, point_features(mean, names_of(compiled.whole)))
    return _prediction(compiled, least, sums, count)


@dataclass(frozen=True, slots=True)
class _Sums:
    """What all devices together do in one step: ``rows`` of one device in width, through the whole depth."""

    rows: tuple[Work, ...]
    plan: Plan
    micro_batches: int
    features: Mapping[str, float]

    @property
    def lanes(self) -> float:
        """Devices side by side, each with the whole depth behind it, times the passes of a step."""
        return self.plan.devices / self.plan.deployment.pipeline * self.micro_batches

    def of(self, name: str) -> float:
        """The sum of one linear form of Work."""
        return self.lanes * sum(dot(getattr(row, name), self.features) for row in self.rows)

    def cached(self, hardware: HardwareSpec) -> float:
        """Bytes that the last caches may keep."""
        return self.lanes * cached_bytes(self.rows, self.features, hardware, self.plan.deployment.pipeline)

    def peak_s(self, hardware: HardwareSpec) -> float:
        """Seconds that the flops take all devices at the datasheet's peak."""
        rates = (rate_flops_per_s(hardware.peak_flops_per_s, hardware, row) for row in self.rows)
        flops_s = sum(dot(row.flops, self.features) / rate for row, rate in zip(self.rows, rates, strict=True))
        return self.lanes * flops_s / self.plan.devices

    def memory_s(self, hardware: HardwareSpec) -> float:
        """Seconds that the bytes take all devices."""
        moved = self.lanes * moved_bytes(self.rows, self.features) - self.cached(hardware)
        return moved / self.plan.devices / hardware.memory_bandwidth_bytes_per_s


def _prediction(compiled: Compiled, least: Least, sums: _Sums, count: Count) -> Prediction:
    cycle, (expected_s, expected_parts) = least.cycle, least.expected
    hardware, plan, sides, floor_s = compiled.hardware, sums.plan, cycle.sides, cycle.sides.floor_s
    known = unknown_rate(hardware, compiled.whole) is None
    space, kept = room(compiled.stages, plan, device_bytes(hardware, plan)), kept_form(sums.rows)
    each = plan.deployment.tensor * kept_bytes(kept, plan, 1)
    tokens = plan.batch * plan.computed_tokens
    weights = plan.devices / plan.deployment.pipeline * resident_bytes(sums.rows)
    reached_s, reached_parts = least.reachable or (None, None)
    return Prediction(
        floor_s=floor_s,
        memory_s=sides.memory_s,
        compute_s=sides.compute_s if known else None,
        serial_floor_s=sides.serial_s,
        link_s=sides.link_s,
        expected_s=expected_s,
        reachable_s=reached_s,
        reachable_origin=None if compiled.efficiency is None else compiled.efficiency.origin,
        tokens_per_s=tokens / floor_s if floor_s else None,
        bound=cycle.bound,
        bound_known=known and floor_s > 0 and (floor_s == sides.memory_s or sides.uncached_s <= floor_s),
        mfu=sums.peak_s(hardware) / floor_s if known and floor_s else None,
        mbu=sums.memory_s(hardware) / floor_s if floor_s else None,
        cached_bytes=sums.cached(hardware),
        fits=space.fits,
        flops=sums.of("flops"),
        flops_per_token=sums.of("flops") / tokens,
        weight_bytes=weights,
        weight_read_bytes=sums.of("weight_bytes"),
        expert_bytes=sums.of("expert_bytes"),
        kv_bytes=plan.ranks * plan.deployment.tensor * kept_bytes(kept, plan, plan.batch / plan.ranks),
        kv_read_bytes=sums.of("kv_read_bytes"),
        kv_write_bytes=sums.of("kv_write_bytes"),
        state_bytes=sums.of("state_bytes"),
        sequence_bytes=each,
        kv_bytes_per_token=each / max(1, plan.kept_tokens),
        capacity_bytes=plan.devices * device_bytes(hardware, plan),
        kv_capacity_bytes=max(0.0, plan.devices * device_bytes(hardware, plan) - weights),
        max_batch=space.max_batch,
        max_context_tokens=space.max_context_tokens,
        micro_batches=cycle.micro_batches,
        expected_micro_batches=expected_parts,
        reachable_micro_batches=reached_parts,
        padded_tokens=plan.ranks
        * cycle.micro_batches
        * point_features(cycle.batch, ("padded_tokens",))["padded_tokens"],
        parameters=count.total,
        active_parameters=count.active,
        groups=_groups(hardware, cycle, sums, known),
    )


def _groups(hardware: HardwareSpec, cycle: Cycle, sums: _Sums, known: bool) -> tuple[GroupWork, ...]:
    """The step split by group; the seconds add up to the serial floor and the link's."""
    features = point_features(cycle.batch, names_of(cycle.rows))
    found: dict[str, GroupWork] = {}
    for row in cycle.rows:
        compute_s = dot(row.flops, features) / rate_flops_per_s(hardware.ceiling_flops_per_s, hardware, row)
        bytes_s = memory_bytes(row, features) / hardware.memory_bandwidth_bytes_per_s
        sent_s = dot(row.link_bytes, features) / (hardware.link_bandwidth_bytes_per_s or math.inf)
        seconds = cycle.passes * (max(bytes_s, compute_s if known else 0.0) + sent_s)
        so_far = found.get(row.group, GroupWork(row.group, 0.0, 0.0, 0.0))
        found[row.group] = replace(so_far, seconds=so_far.seconds + seconds)
    for row in sums.rows:
        so_far = found.get(row.group, GroupWork(row.group, 0.0, 0.0, 0.0))
        flops, moved = dot(row.flops, sums.features), memory_bytes(row, sums.features)
        found[row.group] = replace(
            so_far, flops=so_far.flops + sums.lanes * flops, bytes=so_far.bytes + sums.lanes * moved
        )
    return tuple(found.values())
