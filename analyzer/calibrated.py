"""A calibration put to use: the roof of a CPU that was measured, and what kernels reach on a device.

A calibration tells what this machine reached. On a CPU, whose datasheet says little, its best figures are the roof; on
a device with a datasheet they never are, and only say what is reachable. Shares are of the datasheet's rates, once:
what a clock or a power cap took while it was measured is in them already.
"""

from __future__ import annotations

import bisect
import datetime
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median

from rooflens.analyzer.efficiency import efficiency_of
from rooflens.analyzer.hardware import all_names, find_hardware
from rooflens.analyzer.measured_cpu import CPU as CPU
from rooflens.analyzer.measured_cpu import check_roof, highest_products
from rooflens.analyzer.pass_floor import falling, pass_rate
from rooflens.analyzer.unsteady import UNSTEADY, is_disturbed, is_steady, list_text, steady, widest
from rooflens.calibration_records import Calibration, MachineIdentity, Measured
from rooflens.model_records import Efficiency, HardwareSpec
from rooflens.records import RooflensError

THIS_CPU = "this-cpu"
MEMORY_MULTIPLE = 4  # caches: from this size on, a read over and over is taken to come from memory
USUAL_MEMORY_BYTES = 1 << 30  # where the calibration does not say
# Small calls for each operator of an engine on a CPU, which has no graphs and few fused kernels: the norms, rotations,
# the softmax and the gate around the products of the embedded engine are 52 calls a layer of five operators.
CALLS_OF_OPERATOR = 10

NOT_MEASURED = " not known: "  # in the flag of a calibration: of no use where only the roof is told

PARTS = ("weight", "kv", "gemm", "attention")  # what Efficiency.best tells of

Curve = Sequence[tuple[int, Measured]]
Points = tuple[tuple[float, float], ...]


def hardware_of(calibration: Calibration, read_bytes: int | None = None) -> HardwareSpec:
    """The CPU that was calibrated, as hardware with a measured roof.

    An engine reads its weights in every pass, so what caches keep of ``read_bytes`` from pass to pass is in the rate of
    a read of so many bytes over and over, and no bytes need to be excepted (``cache_bytes`` None). The bandwidth is
    that of pass_floor: what no pass of so many bytes beats. Without ``read_bytes`` it is that of memory, the best of
    four caches or more, and the caches are excepted.
    RooflensError as check_roof has it.
    """
    check_roof(calibration)
    all_best = best_passes(calibration)
    cache_bytes = calibration.identity.cache_bytes
    ceiling = highest_products(calibration)
    if read_bytes:
        bandwidth = pass_rate(all_best, read_bytes)
    else:
        wanted = MEMORY_MULTIPLE * (cache_bytes or all_best[-1][0])
        bandwidth = next((rate for size, rate in all_best if size >= wanted), all_best[-1][1])
    roof = HardwareSpec(
        id=THIS_CPU,
        name=calibration.identity.name,
        vendor="unknown",
        memory_bytes=calibration.identity.memory_bytes or USUAL_MEMORY_BYTES,
        memory_bandwidth_bytes_per_s=bandwidth,
        peak_flops_per_s=ceiling,
        ceiling_flops_per_s=ceiling,
        cache_bytes=None if read_bytes else cache_bytes,
        read_curve=((read_bytes, bandwidth),) if read_bytes else all_best,
        origin="measured",
        source=f"measured on this machine by rooflens calibrate, {date_text(calibration)}",
        flags=tuple(flag for flag in calibration.flags if NOT_MEASURED not in flag),
    )
    why = why_unsteady(calibration, roof)
    return roof if why is None else replace(roof, flags=(*roof.flags, why))


def best_passes(calibration: Calibration) -> tuple[tuple[int, float], ...]:
    """(bytes, bytes/s) of the best passes over so many bytes, whatever read them, in ascending order."""
    return tuple(falling((size, rate.best) for size, rate in (*calibration.reads, *calibration.copies)))


def fits(identity: MachineIdentity, hardware: HardwareSpec) -> bool:
    """Whether a device is such ``hardware``: a CPU is the measured one, others go by the name their driver gives."""
    if identity.kind == CPU or hardware.id == THIS_CPU:
        return identity.kind == CPU and hardware.id == THIS_CPU
    name = identity.name
    if name.strip().casefold() in (each.casefold() for each in all_names(hardware)):
        return True
    try:
        return find_hardware(name).id == hardware.id
    except RooflensError:
        return False


def efficiency_from(calibration: Calibration | None, hardware: HardwareSpec) -> Efficiency | None:
    """What kernels reach on ``hardware`` by a calibration of it, ``origin`` 'calibrated'.

    What the calibration does not hold, or holds with runs too far apart to tell what is usual, is what efficiency_of
    says of the device; of a CPU, of which nothing is published, the former is left neutral, and for the latter there
    is no answer at all (None; why_unsteady says why). ``source`` says which. Without a calibration of such a device:
    efficiency_of.
    """
    published = efficiency_of(hardware)
    if calibration is None or not calibration.reads or not fits(calibration.identity, hardware):
        return published
    if hardware.id == THIS_CPU and why_unsteady(calibration, hardware) is not None:
        return None
    whole, (calibration, lost) = calibration, steady(calibration)
    if hardware.id == THIS_CPU:  # of which only the reads beside the roof's bytes count, and these are steady
        calibration, lost = replace(calibration, reads=whole.reads), {}
    known = published or _neutral(hardware)
    found = replace(known, hardware=hardware.id, origin="calibrated", best=dict(known.best))
    missing: list[str] = []
    for part in (_weights, _cache, _products, _launches, _all_reduces):
        found, lacking = part(calibration, hardware, found)
        missing += lacking
    missing = [*(name for name in missing if name not in lost), "prefill attention"]
    instead = f"as published of {known.hardware}" if published else "left neutral"
    unsteady = [f"; runs too far apart, {instead} too: {list_text(lost)}"] * bool(lost)
    beside = ["; others used the machine meanwhile"] * is_disturbed(whole)
    told = f"calibrated {date_text(whole)}; not measured: {', '.join(missing)}, {instead}"
    return replace(found, source="".join((told, *unsteady, *beside)))


def why_unsteady(calibration: Calibration, hardware: HardwareSpec) -> str | None:
    """Why a calibration of this CPU does not tell what is reachable, in one line with the next step; None if it does.

    Of the reads those count that a pass of the roof's bytes lies between.
    """
    if not calibration.reads:
        return None
    disturbed, (_, lost) = is_disturbed(calibration), steady(calibration)
    lost = {name: spread_ratio for name, spread_ratio in lost.items() if name not in ("weights", "products in fp64")}
    place = bisect.bisect_left(calibration.reads, _pass_bytes(calibration, hardware), key=lambda point: point[0])
    beside = [value for _, value in calibration.reads[max(0, place - 1) : place + 1]] or [calibration.reads[-1][1]]
    if not all(is_steady(value, disturbed) for value in beside):
        lost = {"weights": widest(beside), **lost}
    if not lost:
        return None
    who = ", beside others who used the machine" * disturbed
    return f"{UNSTEADY}: runs of its calibration lie too far apart ({list_text(lost)}){who}: calibrate again in quiet"


def pass_rates(calibration: Calibration, hardware: HardwareSpec) -> tuple[float, float]:
    """(usual, best) rate of reading weights, bytes/s: on a CPU of so many as its roof is of, else of the largest read.

    Between two measured sizes it is on the straight line of a log-log plot.
    """
    wanted = _pass_bytes(calibration, hardware)
    usual = [(size, rate.median) for size, rate in calibration.reads]
    best = [(size, rate.best) for size, rate in calibration.reads]
    return _rate_at(usual, wanted), _rate_at(best, wanted)


def _pass_bytes(calibration: Calibration, hardware: HardwareSpec) -> int:
    if hardware.id == THIS_CPU and hardware.cache_bytes:
        return MEMORY_MULTIPLE * hardware.cache_bytes
    if hardware.id == THIS_CPU and hardware.read_curve:
        return hardware.read_curve[0][0]
    return calibration.reads[-1][0]


def _rate_at(curve: Sequence[tuple[int, float]], wanted: float) -> float:
    place = bisect.bisect_left(curve, wanted, key=lambda point: point[0])
    (low, low_rate), (high, high_rate) = curve[max(0, place - 1)], curve[min(place, len(curve) - 1)]
    if low == high:
        return low_rate
    part = math.log(wanted / low) / math.log(high / low)
    return math.exp((1 - part) * math.log(low_rate) + part * math.log(high_rate))


def date_text(calibration: Calibration) -> str:
    """The day it was measured, in UTC."""
    return f"{datetime.datetime.fromtimestamp(calibration.measured_unix_s, datetime.UTC):%Y-%m-%d}"


def _weights(calibration: Calibration, hardware: HardwareSpec, found: Efficiency) -> tuple[Efficiency, list[str]]:
    """Reads of weights. On a CPU a read is of a whole pass and has no latency of its own: that of calls is launch_s."""
    if not calibration.reads:
        return found, ["weights"]
    roof = hardware.memory_bandwidth_bytes_per_s
    usual, best = pass_rates(calibration, hardware)
    latency_s, ratio, best = 0.0, usual / roof, best / roof
    if hardware.id != THIS_CPU:
        latency_s, ratio = _fitted(calibration.reads, roof)
        best = max(rate.best for _, rate in calibration.reads) / roof
    ratio = min(1.0, ratio)
    own = {name: pair for name, pair in found.weight_reads.items() if name not in ("bf16", "fp16", "fp32")}
    return replace(
        found,
        weight_latency_s=latency_s,
        weight_ratio=ratio,
        weight_reads=_moved(own, (found.weight_latency_s, found.weight_ratio), (latency_s, ratio)),
        best={**found.best, "weight": min(1.0, max(best, ratio))},
    ), []


def _cache(calibration: Calibration, hardware: HardwareSpec, found: Efficiency) -> tuple[Efficiency, list[str]]:
    """Decode attention, by the bytes of keys and values that it reads."""
    if not calibration.attention:
        if hardware.id == THIS_CPU:
            found = replace(found, kv_ratio=found.weight_ratio, best={**found.best, "kv": found.best["weight"]})
        return found, ["decode attention"]
    roof = hardware.memory_bandwidth_bytes_per_s
    latency_s, ratio = _fitted(calibration.attention, roof)
    best = max(rate.best for _, rate in calibration.attention) / roof
    own = {name: pair for name, pair in found.kv_reads.items() if name not in ("bf16", "fp16", "fp32")}
    return replace(
        found,
        kv_latency_s=latency_s,
        kv_ratio=ratio,
        kv_reads=_moved(own, (found.kv_latency_s, found.kv_ratio), (latency_s, ratio)),
        best={**found.best, "kv": min(1.0, max(best, ratio))},
    ), []


def _products(calibration: Calibration, hardware: HardwareSpec, found: Efficiency) -> tuple[Efficiency, list[str]]:
    """Products as shares of the printed peak; formats that were not measured move as those that were."""
    peak = hardware.peak_flops_per_s
    measured = {name: rate for name, rate in calibration.products.items() if name in peak}
    if not measured:
        return found, ["products"]
    ratios = {name: min(1.0, rate.median / peak[name]) for name, rate in measured.items()}
    moved = median(ratio / found.gemm_ratio.get(name, found.gemm_ratio["other"]) for name, ratio in ratios.items())
    others = {name: min(1.0, ratio * moved) for name, ratio in found.gemm_ratio.items() if name not in ratios}
    best = max(rate.best / peak[name] for name, rate in measured.items())
    ratios = others | ratios
    if hardware.id == THIS_CPU:
        found = replace(found, attention_ratio=ratios["other"])
    lacking = ", ".join(name for name in peak if name not in measured)
    found = replace(found, gemm_ratio=ratios, best={**found.best, "gemm": min(1.0, max(best, ratios["other"]))})
    return found, [f"products in {lacking}"] if lacking else []


def _launches(calibration: Calibration, hardware: HardwareSpec, found: Efficiency) -> tuple[Efficiency, list[str]]:
    """What an operator costs on top of its work: on a device one launch, on a CPU as many small calls as it takes."""
    eager, graph = calibration.launch_s, calibration.graph_launch_s
    calls = 1
    if hardware.id == THIS_CPU:
        graph, calls = eager, CALLS_OF_OPERATOR
    if eager is not None:
        found = replace(found, eager_launch_s=calls * eager.median)
    if graph is not None:
        found = replace(found, launch_s=calls * graph.median)
    lacking = {"launches": eager, "launches in a graph": graph}
    return found, [name for name, value in lacking.items() if value is None]


def _all_reduces(calibration: Calibration, hardware: HardwareSpec, found: Efficiency) -> tuple[Efficiency, list[str]]:
    """All-reduces between devices as they were measured, outside of a graph.

    Inside one, engines have kernels of their own for small messages: the published time of the smallest stands, and
    what larger ones take beyond it is as measured.
    """
    if not calibration.all_reduce_s:
        return found, [] if hardware.id == THIS_CPU else ["all-reduces"]
    own = {n: tuple((float(size), each.median) for size, each in row) for n, row in calibration.all_reduce_s.items()}
    inside = {n: _after(row, found.all_reduce_s.get(n)) for n, row in own.items()}
    return replace(
        found,
        all_reduce_s={**found.all_reduce_s, **inside},
        eager_all_reduce_s={**found.eager_all_reduce_s, **own},
    ), []


def _after(measured: Points, published: Points | None) -> Points:
    """The measured times with the latency of the published ones where that is shorter."""
    gained_s = max(0.0, measured[0][1] - published[0][1]) if published else 0.0
    return tuple((size, seconds - gained_s) for size, seconds in measured)


def _fitted(curve: Curve, roof: float) -> tuple[float, float]:
    from rooflens.analyzer.read_fit import read_fit  # with NumPy, which `predict` goes without

    fit = read_fit([size for size, _ in curve], [size / rate.median for size, rate in curve], roof)
    return fit.latency_s, min(1.0, fit.ratio)


def _moved(
    table: Mapping[str, tuple[float, float]], old: tuple[float, float], new: tuple[float, float]
) -> dict[str, tuple[float, float]]:
    """Formats that were not measured, as far from the plain one as they were published to be."""
    wait = new[0] / old[0] if old[0] else 1.0
    return {name: (each * wait, min(1.0, ratio * new[1] / old[1])) for name, (each, ratio) in table.items()}


def _neutral(hardware: HardwareSpec) -> Efficiency:
    """Nothing lost anywhere: what a calibration of a CPU begins from."""
    return Efficiency(hardware.id, 0.0, 1.0, 0.0, 1.0, {"other": 1.0}, 1.0, 0.0, 0.0, best=dict.fromkeys(PARTS, 1.0))
