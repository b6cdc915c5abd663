"""The roofline of a planned deployment: one operating point, plain floats, no dependency."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from rooflens.analyzer.hardware import fastest
from rooflens.analyzer.operators import (
    check_link,
    kv_bytes_per_token,
    rate_flops_per_s,
    strict_link_share,
    unknown_rate,
    works,
)
from rooflens.analyzer.precision import WEIGHT_FORMATS, Precision
from rooflens.analyzer.work import Work, dot, resident_bytes
from rooflens.arch_records import Deployment, ModelArch
from rooflens.model_records import Bound, HardwareSpec
from rooflens.records import RooflensError

PHASES = ("decode", "prefill")
LARGEST = 10**9  # of a batch or a context: beyond it a number is a typing error
LARGEST_DEPLOYMENT_DEVICES = 10**6


@dataclass(frozen=True, slots=True)
class Plan:
    """A deployment and its operating point.

    ``devices`` / ``tensor_parallel`` replicas share ``batch`` sequences. In decode each sequence has
    ``context_tokens`` in the KV cache and computes one token; in prefill its prompt of ``context_tokens`` is
    computed whole. ``memory_bytes`` is of all devices together, None for what the hardware has;
    ``utilization_ratio`` is the part of it the engine may use.
    """

    devices: int = 1
    tensor_parallel: int = 1
    batch: int = 1
    context_tokens: int = 1024
    phase: str = "decode"
    memory_bytes: float | None = None
    utilization_ratio: float = 0.9

    @property
    def replicas(self) -> int:
        """Copies of the model, each over ``tensor_parallel`` devices."""
        return self.devices // self.tensor_parallel


@dataclass(frozen=True, slots=True)
class Prediction:
    """The roofline of a plan; seconds and bytes, everything summed over the whole deployment but the times.

    ``floor_s`` of a step is strict; ``mfu`` (of the datasheet's peak) and ``mbu`` are what a step at the floor
    would reach, so no real step exceeds them. ``tokens_per_s`` are output tokens in decode, prompt tokens in
    prefill. ``weight_bytes`` are resident, ``weight_read_bytes`` read in one step; ``kv_bytes`` is the cache of
    the batch. ``capacity_bytes`` is the memory that the engine may use, ``max_batch`` how many sequences of this
    context fit beside the weights, 0 where the weights alone do not fit; ``fits`` is whether the batch does.

    ``bound`` is the side that sets the floor; ``bound_known`` is False where the true step may be bound by another:
    by arithmetic of an unknown rate, or by memory where ``cached_bytes``, what the last-level cache may keep from
    step to step, made its side the smaller. None is not known.
    """

    floor_s: float
    memory_s: float
    compute_s: float | None
    serial_floor_s: float
    link_s: float
    tokens_per_s: float | None
    bound: str | None
    bound_known: bool
    mfu: float | None
    mbu: float | None
    cached_bytes: float
    fits: bool
    flops: float
    weight_bytes: float
    weight_read_bytes: float
    kv_bytes: float
    kv_read_bytes: float
    kv_write_bytes: float
    kv_bytes_per_token: float
    capacity_bytes: float
    kv_capacity_bytes: float
    max_batch: int


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


def predict(arch: ModelArch, hardware: HardwareSpec, precision: Precision, plan: Plan) -> Prediction:
    """The bounds of one step of ``plan``; RooflensError in one line for a plan that makes no sense."""
    _check(plan)
    check_link(hardware, plan.tensor_parallel)
    rows = works(arch, precision, Deployment(tensor=plan.tensor_parallel))
    features = _features(plan, math.ceil(plan.batch / plan.replicas))  # of the busiest replica: it sets the time
    mean = _features(plan, plan.batch / plan.replicas)  # of replicas on average: the sums are theirs
    memory_s, compute_s, link_s, serial_s = _times(rows, features, hardware)
    sides = (memory_s, compute_s, link_s * strict_link_share(hardware, plan.tensor_parallel))
    floor_s = max(sides)
    token_bytes = plan.tensor_parallel * kv_bytes_per_token(rows)
    weights = plan.devices * resident_bytes(rows)
    capacity = plan.utilization_ratio * (plan.memory_bytes or plan.devices * float(hardware.memory_bytes))
    devices, known = plan.devices, unknown_rate(hardware, rows) is None
    at_peak_s = sum(dot(r.flops, mean) / rate_flops_per_s(hardware.peak_flops_per_s, hardware, r) for r in rows)
    uncached_s = sum(_memory_bytes(row, features) for row in rows) / hardware.memory_bandwidth_bytes_per_s
    largest_batch = _largest_batch(plan, capacity - weights, token_bytes)
    tokens = plan.batch * (plan.context_tokens if plan.phase == "prefill" else 1)
    return Prediction(
        floor_s=floor_s,
        memory_s=memory_s,
        compute_s=compute_s if known else None,
        serial_floor_s=serial_s,
        link_s=link_s,
        tokens_per_s=tokens / floor_s if floor_s else None,
        bound=Bound(sides.index(floor_s)).name.lower() if floor_s else None,
        bound_known=known and floor_s > 0 and (floor_s == memory_s or uncached_s <= floor_s),
        mfu=at_peak_s / floor_s if known and floor_s else None,
        mbu=_memory_s(rows, mean, hardware) / floor_s if floor_s else None,
        cached_bytes=devices * _cached_bytes(rows, mean, hardware),
        fits=plan.batch <= largest_batch,
        flops=devices * sum(dot(r.flops, mean) for r in rows),
        weight_bytes=weights,
        weight_read_bytes=devices * sum(dot(r.weight_bytes, mean) for r in rows),
        kv_bytes=plan.batch * plan.context_tokens * token_bytes,
        kv_read_bytes=devices * sum(dot(r.kv_read_bytes, mean) for r in rows),
        kv_write_bytes=devices * sum(dot(r.kv_write_bytes, mean) for r in rows),
        kv_bytes_per_token=token_bytes,
        capacity_bytes=capacity,
        kv_capacity_bytes=max(0.0, capacity - weights),
        max_batch=largest_batch,
    )


def _features(plan: Plan, sequences: float) -> Mapping[str, float]:
    """The features of one step with ``sequences`` in it, as features.py defines them; below one, of an idle share."""
    prefill = plan.phase == "prefill"
    query = plan.context_tokens if prefill else 1
    cached = 0 if prefill else plan.context_tokens
    return {
        "passes": min(1.0, sequences),
        "head_passes": min(1.0, sequences),
        "query_tokens": sequences * query,
        "sampled_rows": sequences,
        "context_tokens": sequences * cached,
        "causal_pairs": sequences * (query * cached + query * (query + 1) // 2),
    }


def _times(
    rows: tuple[Work, ...], features: Mapping[str, float], hardware: HardwareSpec
) -> tuple[float, float, float, float]:
    """(memory, compute, link, serial) seconds of one device, as StepAnalysis defines them."""
    bandwidth, ceilings = hardware.memory_bandwidth_bytes_per_s, hardware.ceiling_flops_per_s
    bytes_s = [_memory_bytes(row, features) / bandwidth for row in rows]
    flops_s = [dot(row.flops, features) / rate_flops_per_s(ceilings, hardware, row) for row in rows]
    if unknown_rate(hardware, rows):
        flops_s = [0.0 for _ in rows]
    sent = sum(dot(row.link_bytes, features) for row in rows)
    link_s = sent / hardware.link_bandwidth_bytes_per_s if hardware.link_bandwidth_bytes_per_s else 0.0
    serial_s = sum(max(pair) for pair in zip(bytes_s, flops_s, strict=True))
    return _memory_s(rows, features, hardware), sum(flops_s), link_s, serial_s


def _memory_s(rows: tuple[Work, ...], features: Mapping[str, float], hardware: HardwareSpec) -> float:
    """Seconds for the bytes that must come from memory: what the last cache can keep from step to step need not."""
    total = sum(_memory_bytes(row, features) for row in rows)
    return (total - _cached_bytes(rows, features, hardware)) / hardware.memory_bandwidth_bytes_per_s


def _cached_bytes(rows: tuple[Work, ...], features: Mapping[str, float], hardware: HardwareSpec) -> float:
    total = sum(_memory_bytes(row, features) for row in rows)
    return min(total, features["passes"] * (hardware.cache_bytes or 0))


def _memory_bytes(row: Work, features: Mapping[str, float]) -> float:
    return sum(dot(part, features) for part in row.memory_parts())


def _largest_batch(plan: Plan, free_bytes: float, token_bytes: float) -> int:
    """Whole sequences that fit; each replica holds its own, so their remainders are lost."""
    sequence_bytes = token_bytes * max(1, plan.context_tokens)
    return plan.replicas * max(0, math.floor(free_bytes / plan.replicas / sequence_bytes))


def devices_needed(arch: ModelArch, hardware: HardwareSpec, precision: Precision, plan: Plan) -> tuple[int, int] | None:
    """(devices, tensor parallel) of the smallest deployment that holds the batch; None where none does.

    A copy keeps at least the plan's tensor parallelism; each device has the memory that it has in the plan.
    """
    each = plan.utilization_ratio * (plan.memory_bytes or plan.devices * float(hardware.memory_bytes)) / plan.devices
    joined = hardware.link_bandwidth_bytes_per_s is not None
    found: list[tuple[int, int]] = []
    for tensor_parallel in range(
        plan.tensor_parallel,
        max(row.mixer.heads for row in arch.layers if row.mixer is not None) + 1 if joined else 2,
    ):
        try:
            rows = works(arch, precision, Deployment(tensor=tensor_parallel))
        except RooflensError:
            continue  # the heads cannot be divided that way
        sequence_bytes = kv_bytes_per_token(rows) * max(1, plan.context_tokens)
        held = math.floor((each - resident_bytes(rows)) / sequence_bytes)
        if held >= 1:
            found.append((tensor_parallel * math.ceil(plan.batch / held), tensor_parallel))
    return min(found, default=None)


def _check(plan: Plan) -> None:
    for name, value, largest in (
        ("devices", plan.devices, LARGEST_DEPLOYMENT_DEVICES),
        ("tp", plan.tensor_parallel, LARGEST_DEPLOYMENT_DEVICES),
        ("batch", plan.batch, LARGEST),
    ):
        if not 1 <= value <= largest:
            raise RooflensError(f"--{name} must be from 1 to {largest}")
    smallest = 1 if plan.phase == "prefill" else 0
    if not smallest <= plan.context_tokens <= LARGEST:
        raise RooflensError(f"--context must be from {smallest} to {LARGEST} tokens")
    if plan.devices % plan.tensor_parallel:
        raise RooflensError(f"--devices {plan.devices} is not a multiple of --tp {plan.tensor_parallel}")
    if plan.phase not in PHASES:
        raise RooflensError(f"--phase must be one of {', '.join(PHASES)}")
    if not 0 < plan.utilization_ratio <= 1:
        raise RooflensError("--utilization must be above 0 and at most 1")
    if plan.memory_bytes is not None and not 0 < plan.memory_bytes < math.inf:
        raise RooflensError("--memory must be a positive number of bytes")
