"""What a well-tuned engine gets on a device: operator after operator, at what published kernels reach.

Each operator takes the larger of its reads (a latency and a fraction of the bandwidth) and its arithmetic (a fraction
of the peak); collectives and launches come on top. All of it is linear in the features of a step but for that maximum
and the curves of collectives, so ``Terms`` hold the coefficients once, for one point (here, plain floats) and for
millions of steps (reachable_steps.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from rooflens.analyzer.collectives import Points, all_reduce_curve, link_curve, ring_share, seconds_at, send_curve
from rooflens.analyzer.hardware import fastest
from rooflens.analyzer.operators import strict_link_bytes
from rooflens.analyzer.spans import split
from rooflens.analyzer.work import Coefficients, Work, dot
from rooflens.arch_records import Deployment
from rooflens.model_records import Efficiency, HardwareSpec

PADDED = "padded_tokens"
# Kernels that multiply run for every row of a padded batch; what is read of the cache and sampled is not padded.
PADS = {"query_tokens": PADDED}
KERNEL_FLOOR = 0.5  # of a fitted latency: what the fastest kernels of the tables take (2 of 3.7 us, 6 of 13 us)
WIDE = ("bf16", "fp16", "fp32")  # formats that attention's products run in, the fastest of them


@dataclass(frozen=True, slots=True)
class Collective:
    """``calls`` equal collectives a pass: message bytes of one call times the passes, seconds along ``curve``.

    ``strict_s`` is what the floor counts of all of them, below which no curve is believed.
    """

    message: Coefficients
    calls: float
    curve: Points
    strict_s: Coefficients


@dataclass(frozen=True, slots=True)
class Terms:
    """Seconds for each unit of each feature: of every operator's memory and compute side, and of all launches."""

    operators: tuple[tuple[Coefficients, Coefficients], ...]
    launches: Coefficients
    collectives: tuple[Collective, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The features that the terms are said in, sorted."""
        parts = [part for pair in self.operators for part in pair]
        parts += [part for each in self.collectives for part in (each.message, each.strict_s)]
        return tuple(sorted({"passes", *self.launches, *(name for part in parts for name in part)}))


def terms_of(
    rows: Sequence[Work],
    hardware: HardwareSpec,
    efficiency: Efficiency,
    deployment: Deployment,
    clock_ratio: float = 1.0,
    eager: bool = False,
) -> Terms:
    """The terms of ``rows`` on one device of ``deployment``.

    ``clock_ratio`` is the observed clock over the one that the datasheet's peak is printed at; no rate exceeds the
    ceiling. It is for published figures: calibrated ones have the clock of their measurement in them. ``eager`` is an
    engine without captured graphs. Where the device states no rate for a format its arithmetic counts as nothing.
    """
    operators = tuple(
        (_memory_s(row, hardware, efficiency), _compute_s(row, hardware, efficiency, clock_ratio))
        for row in rows
        if not row.link_bytes
    )
    launch_s = efficiency.eager_launch_s if eager else efficiency.launch_s
    kernels = sum(row.calls for row in rows if not row.link_bytes)
    collectives = _collectives(rows, hardware, efficiency, deployment, eager)
    return Terms(operators, {"passes": launch_s * kernels}, collectives)


def reachable_point(
    rows: Sequence[Work],
    features: Mapping[str, float],
    hardware: HardwareSpec,
    efficiency: Efficiency,
    deployment: Deployment,
    clock_ratio: float = 1.0,
    eager: bool = False,
) -> float:
    """Seconds that a well-tuned engine takes for one step with ``features``; never below the floor of ``rows``.

    Without ``padded_tokens`` among the features nothing is padded.
    """
    values = {PADDED: features.get("query_tokens", 0.0), **features}
    return seconds_of(terms_of(rows, hardware, efficiency, deployment, clock_ratio, eager), values)


def seconds_of(terms: Terms, values: Mapping[str, float]) -> float:
    """The terms at one point."""
    busy = sum(max(dot(memory, values), dot(compute, values)) for memory, compute in terms.operators)
    passes = values["passes"]
    linked = 0.0
    for each in terms.collectives:
        size = dot(each.message, values) / passes if passes else 0.0
        linked += max(passes * each.calls * seconds_at(each.curve, size), dot(each.strict_s, values))
    return busy + dot(terms.launches, values) + linked


def at_best(efficiency: Efficiency) -> Efficiency:
    """The same with the highest ratios of its tables and the shortest latencies: what the fastest kernels reach."""
    return _spread(efficiency, 1.0, KERNEL_FLOOR)


def at_worst(efficiency: Efficiency) -> Efficiency:
    """The same with ratios as far below the usual ones as the highest are above: what a slow kernel still reaches."""
    return _spread(efficiency, -1.0, 1.0)


def _spread(efficiency: Efficiency, power: float, wait: float) -> Efficiency:
    """Every ratio times (highest / usual) ** ``power``, every latency times ``wait``."""
    best, usual = efficiency.best, efficiency.gemm_ratio["other"]
    weight = (best.get("weight", efficiency.weight_ratio) / efficiency.weight_ratio) ** power
    kv = (best.get("kv", efficiency.kv_ratio) / efficiency.kv_ratio) ** power
    gemm = (best.get("gemm", usual) / usual) ** power
    attention = (best.get("attention", efficiency.attention_ratio) / efficiency.attention_ratio) ** power

    def reads(table: Mapping[str, tuple[float, float]], gain: float) -> dict[str, tuple[float, float]]:
        return {name: (wait * each, min(1.0, ratio * gain)) for name, (each, ratio) in table.items()}

    return replace(
        efficiency,
        weight_latency_s=wait * efficiency.weight_latency_s,
        weight_ratio=min(1.0, efficiency.weight_ratio * weight),
        kv_latency_s=wait * efficiency.kv_latency_s,
        kv_ratio=min(1.0, efficiency.kv_ratio * kv),
        gemm_ratio={name: min(1.0, ratio * gemm) for name, ratio in efficiency.gemm_ratio.items()},
        attention_ratio=min(1.0, efficiency.attention_ratio * attention),
        weight_reads=reads(efficiency.weight_reads, weight),
        kv_reads=reads(efficiency.kv_reads, kv),
    )


def _memory_s(row: Work, hardware: HardwareSpec, efficiency: Efficiency) -> Coefficients:
    """A latency for each call, and every byte at the fraction that its kind of kernel reaches."""
    bandwidth = hardware.memory_bandwidth_bytes_per_s
    wait_s, ratio = weight_read(row, efficiency)
    found: dict[str, float] = {}
    plain = (row.weight_bytes, row.expert_bytes, row.state_bytes, row.gather_bytes)
    for part in plain:
        _add(found, part, 1 / (ratio * bandwidth))
    _add(found, _padded(row.activation_bytes), 1 / (ratio * bandwidth))
    if row.kv_read_bytes or row.kv_write_bytes:
        wait_s, ratio = kv_read(row, efficiency)
        for part in (row.kv_read_bytes, row.kv_write_bytes):
            _add(found, part, 1 / (ratio * bandwidth))
    _add(found, {"head_passes" if "head_passes" in row.weight_bytes else "passes": row.calls}, wait_s)
    return found


def _compute_s(row: Work, hardware: HardwareSpec, efficiency: Efficiency, clock_ratio: float) -> Coefficients:
    """The flops at the fraction of the peak that a product of this format reaches, or prefill attention."""
    attends = any(split(name)[0].endswith("_pairs") for name in row.flops)
    chosen = fastest(hardware, WIDE if attends else row.compute) if row.flops else None
    if chosen is None:
        return {}
    table = efficiency.gemm_ratio
    ratio = efficiency.attention_ratio if attends else table.get(chosen, table["other"])
    rate = min(ratio * clock_ratio * hardware.peak_flops_per_s[chosen], hardware.ceiling_flops_per_s[chosen])
    found: dict[str, float] = {}
    _add(found, row.flops if attends else _padded(row.flops), 1 / rate)
    return found


def weight_read(row: Work, efficiency: Efficiency) -> tuple[float, float]:
    """(latency s, ratio of the bandwidth) of reading weights in the format that ``row`` multiplies in."""
    plain = (efficiency.weight_latency_s, efficiency.weight_ratio)
    return next((efficiency.weight_reads[f] for f in row.compute if f in efficiency.weight_reads), plain)


def kv_read(row: Work, efficiency: Efficiency) -> tuple[float, float]:
    """(latency s, ratio of the bandwidth) of decode attention over the cache of ``row``, in a window or not."""
    window = "_window" if any(split(name)[1] for name in row.kv_read_bytes) else ""
    wanted = [f"{each}{end}" for end in dict.fromkeys((window, "")) for each in row.compute]
    plain = (efficiency.kv_latency_s, efficiency.kv_ratio)
    return next((efficiency.kv_reads[name] for name in wanted if name in efficiency.kv_reads), plain)


def _collectives(
    rows: Iterable[Work], hardware: HardwareSpec, efficiency: Efficiency, deployment: Deployment, eager: bool
) -> tuple[Collective, ...]:
    """Every collective of a pass, those of equal messages together.

    A message is the all-reduce that sends as many bytes: a gather is half of one and is charged so.
    """
    found: dict[tuple[object, ...], Collective] = {}
    bandwidth = hardware.link_bandwidth_bytes_per_s
    for row in rows:
        if not row.link_bytes or not row.calls or not bandwidth:
            continue
        devices = _group(row, deployment)
        share, curve = 1.0, send_curve(hardware)
        if row.collective != "p2p":
            share = ring_share(devices)
            curve = all_reduce_curve(efficiency, devices, eager) or link_curve(hardware, devices)
        if curve is None:
            continue
        message = {n: sent / row.calls / share for n, sent in _padded(row.link_bytes).items()}
        strict = {n: b / bandwidth for n, b in strict_link_bytes(hardware, row, deployment.tensor).items()}
        key = (row.collective, devices, tuple(sorted((n, round(each, 6)) for n, each in message.items())))
        if key in found:
            earlier = found[key]
            _add(strict, earlier.strict_s, 1.0)
            found[key] = replace(earlier, calls=earlier.calls + row.calls, strict_s=strict)
        else:
            found[key] = Collective(message, row.calls, curve, strict)
    return tuple(found.values())


def _group(row: Work, deployment: Deployment) -> int:
    """How many devices take part in a collective."""
    groups = {
        "all_to_all": deployment.expert_devices,
        "all_gather": deployment.context if row.operator == "context_gather" else deployment.data,
    }
    return max(2, groups.get(row.collective, deployment.tensor))


def _padded(part: Coefficients) -> Coefficients:
    return {PADS.get(name, name): each for name, each in part.items()}


def _add(found: dict[str, float], part: Coefficients, factor: float) -> None:
    for name, each in part.items():
        found[name] = found.get(name, 0.0) + each * factor
