"""The roofline of a planned deployment: the shortest possible step, what bounds it, and what fits in memory.

examples:
  rooflens predict --model meta-llama-3-70b --hardware h100-sxm5-80 --devices 8
  rooflens predict --model meta-llama-3-70b --hardware h100-sxm5-80 --devices 8 --batch 64 --context 8192
  rooflens predict --model ./config.json --hardware "NVIDIA H200" --weights fp8 --kv fp8 --phase prefill --json
  rooflens predict --hardware rubin-vr200 --weights nvfp4      (no model: the ridge of the hardware)
  rooflens predict --model qwen2.5-0.5b --hardware this-cpu    (measures this machine for ten seconds first)
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict, fields
from typing import Any

from rooflens.analyzer.arch import find_model
from rooflens.analyzer.hardware import find_hardware
from rooflens.analyzer.precision import KV_FORMATS, WEIGHT_FORMATS, Precision, choose_precision, weight_format
from rooflens.analyzer.predict import (
    PHASES,
    Plan,
    Prediction,
    predict,
    ridge_announced_flop_per_byte,
    ridge_flop_per_byte,
)
from rooflens.model_records import HardwareSpec, ModelArch

THIS_CPU = "this-cpu"
Row = tuple[str, str, str]  # label, value with its unit, remark


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `rooflens predict`."""
    add = parser.add_argument
    add(
        "--model",
        metavar="NAME|config.json",
        help="a known model, or the config.json of another; without it only the hardware's ridge is shown",
    )
    add(
        "--hardware",
        metavar="ID",
        required=True,
        help="a known device, the name NVML gives it, a TOML file of yours, or this-cpu",
    )
    add("--devices", type=int, metavar="N", help="devices in all (default: --tp)")
    add(
        "--tp",
        type=int,
        metavar="N",
        help="devices that share one copy of the model (default: --devices); further devices are further copies, "
        "which share the batch",
    )
    add("--batch", type=int, default=1, metavar="N", help="sequences in flight over all devices (default: 1)")
    add(
        "--context",
        type=int,
        default=1024,
        metavar="TOKENS",
        help="tokens of each sequence, in the KV cache (decode) or in its prompt (prefill) (default: 1024)",
    )
    add(
        "--phase",
        choices=PHASES,
        default="decode",
        help="decode computes one token a sequence, prefill its whole prompt (default: decode)",
    )
    add("--weights", metavar="FORMAT", help=f"{', '.join(WEIGHT_FORMATS)} (default: what the model's files say)")
    add("--kv", metavar="FORMAT", help=f"{', '.join(KV_FORMATS)} (default: that of the activations)")
    add("--memory", type=float, metavar="BYTES", help="memory of all devices together (default: the hardware's)")
    add(
        "--utilization",
        type=float,
        default=0.9,
        metavar="RATIO",
        help="part of the memory that the engine may use, above 0, at most 1 (default: 0.9)",
    )
    add("--json", action="store_true", help="one JSON object in SI units, null for what is not known")


def run(args: argparse.Namespace) -> int:
    """Print the prediction, as a table or as JSON."""
    hardware = _hardware(args)
    default_format = "fp32" if hardware.id == THIS_CPU else None
    weights = weight_format(args.weights or default_format or "bf16")
    if args.model is None:
        _print(args, _hardware_json(hardware, weights), _hardware_rows(hardware, weights), "")
        return 0
    arch = find_model(args.model, read_quantization=args.weights is None)
    precision = choose_precision(arch, args.weights or default_format, args.kv)
    devices = args.devices if args.devices is not None else args.tp if args.tp is not None else 1
    plan = Plan(
        devices=devices,
        tensor_parallel=args.tp if args.tp is not None else devices,
        batch=args.batch,
        context_tokens=args.context,
        phase=args.phase,
        memory_bytes=args.memory,
        utilization_ratio=args.utilization,
    )
    result = predict(arch, hardware, precision, plan)
    data = _hardware_json(hardware, precision.weights) | asdict(result)
    data |= {"model": arch.name, "devices": plan.devices, "tensor_parallel": plan.tensor_parallel}
    data |= {"weights": precision.weights, "kv": precision.kv, "phase": plan.phase, "batch": plan.batch}
    data |= {
        "context_tokens": plan.context_tokens,
        "notes": _notes(arch, precision, plan, result) + list(hardware.flags),
    }
    _print(args, data, _rows(arch, hardware, precision, plan, result), _sentence(result, plan))
    return 0


def _hardware(args: argparse.Namespace) -> HardwareSpec:
    if args.hardware.strip().lower() != THIS_CPU:
        return find_hardware(args.hardware)
    from rooflens.collector.cpu_roof import measure_cpu  # needs numpy, which the base install does not have

    show = sys.stderr.isatty()
    return measure_cpu(progress=(lambda text: print(text, file=sys.stderr)) if show else None)


def _hardware_json(hardware: HardwareSpec, weights: str) -> dict[str, Any]:
    """Every key of the full answer, null for those that need a model, and what the hardware alone says."""
    empty: dict[str, Any] = {f.name: None for f in fields(Prediction)}
    return empty | {
        "hardware": hardware.id,
        "weights": weights,
        "ridge_flop_per_byte": ridge_flop_per_byte(hardware, weights),
        "ridge_announced_flop_per_byte": ridge_announced_flop_per_byte(hardware, weights),
        "memory_bandwidth_bytes_per_s": hardware.memory_bandwidth_bytes_per_s,
        "peak_flops_per_s": dict(hardware.peak_flops_per_s),
        "ceiling_flops_per_s": dict(hardware.ceiling_flops_per_s),
        "announced_flops_per_s": dict(hardware.announced_flops_per_s),
        "read_curve": [list(point) for point in hardware.read_curve],
        "source": hardware.source,
        "notes": list(hardware.flags),
    }


def _notes(arch: ModelArch, precision: Precision, plan: Plan, result: Prediction) -> list[str]:
    """What a reader of the figures should know, each one sentence."""
    notes = []
    if result.max_batch == 0:
        notes.append("the weights and one sequence do not fit in the memory")
    elif plan.batch > result.max_batch:
        notes.append(f"a batch of {plan.batch} does not fit: the largest is {result.max_batch}")
    if arch.max_context_tokens and plan.context_tokens > arch.max_context_tokens:
        notes.append(f"the model was made for contexts up to {arch.max_context_tokens} tokens")
    if any(plan.tensor_parallel > layer.kv_heads for layer in arch.layers):
        notes.append("more devices than KV heads: each KV head is stored on several devices")
    if precision.weights != precision.head:
        notes.append(f"embedding and head are taken at {precision.head}")
    if result.mfu > 1:
        notes.append("the floor is at the highest clock, above the datasheet's peak, so mfu at the floor exceeds 1")
    return notes


def _flag_rows(hardware: HardwareSpec) -> list[Row]:
    """How a measurement went; a datasheet's flags are for whoever checks the facts, and only in the JSON."""
    return [("note", flag, "") for flag in hardware.flags] if hardware.origin == "measured" else []


def _hardware_rows(hardware: HardwareSpec, weights: str) -> list[Row]:
    rows = [("hardware", hardware.id, hardware.name)]
    rows.append(("memory bandwidth", _si(hardware.memory_bandwidth_bytes_per_s, "B/s"), hardware.origin))
    for name, rate in hardware.peak_flops_per_s.items():
        ceiling = hardware.ceiling_flops_per_s[name]
        announced = hardware.announced_flops_per_s.get(name)
        remark = f"at most {_si(ceiling, 'FLOP/s')} at the highest clock" if ceiling > rate and not announced else ""
        if announced:
            remark = f"{_si(announced, 'FLOP/s')} announced for inference, not dense"
        rows.append((f"peak {name}", _si(rate, "FLOP/s"), remark))
    return rows + _ridge_rows(hardware, weights) + _flag_rows(hardware)


def _ridge_rows(hardware: HardwareSpec, weights: str) -> list[Row]:
    rows = [("ridge", f"{ridge_flop_per_byte(hardware, weights):,.0f} FLOP/B", f"{weights} weights, dense peak")]
    announced = ridge_announced_flop_per_byte(hardware, weights)
    if announced is not None:
        rows.append(("ridge, announced", f"{announced:,.0f} FLOP/B", "at the announced rate, not dense"))
    return rows


def _rows(arch: ModelArch, hardware: HardwareSpec, precision: Precision, plan: Plan, result: Prediction) -> list[Row]:
    used = f"tp {plan.tensor_parallel}" + (f", {plan.replicas} replicas" if plan.replicas > 1 else "")
    return [
        ("model", arch.name, f"weights {precision.weights}, KV {precision.kv}"),
        ("hardware", f"{plan.devices} x {hardware.id}", used),
        (plan.phase, f"batch {plan.batch}", f"{plan.context_tokens:,} tokens each"),
        ("floor", _seconds(result.floor_s), f"bound by {result.bound}; no step can be shorter"),
        ("serial floor", _seconds(result.serial_floor_s), "operator after operator, nothing overlapped"),
        *((("link", _seconds(result.link_s), "beside it, all-reduces"),) if plan.tensor_parallel > 1 else ()),
        ("tokens", f"{result.tokens_per_s:,.0f} tokens/s", "at the floor"),
        ("MFU, MBU", f"{result.mfu:.1%}, {result.mbu:.1%}", f"at the floor, of the peaks ({hardware.origin})"),
        ("weights", _si(result.weight_bytes, "B"), f"{_si(result.weight_read_bytes, 'B')} read in a step"),
        ("KV cache", _si(result.kv_bytes, "B"), f"{_si(result.kv_bytes_per_token, 'B')} a token"),
        ("flops", _si(result.flops, "FLOP"), "in a step"),
        *_ridge_rows(hardware, precision.weights),
        ("largest batch", f"{result.max_batch:,}", f"in {_si(result.capacity_bytes, 'B')} that the engine may use"),
        *(("note", note, "") for note in _notes(arch, precision, plan, result)),
        *_flag_rows(hardware),
    ]


def _sentence(result: Prediction, plan: Plan) -> str:
    """What bounds the step, in one sentence."""
    sides = {"memory": result.memory_s, "compute": result.compute_s, "link": result.link_s}
    reasons = {
        "memory": f"reading {_si(result.weight_read_bytes, 'B')} of weights and "
        f"{_si(result.kv_read_bytes, 'B')} of KV cache",
        "compute": f"computing {_si(result.flops, 'FLOP')}",
        "link": "sending activations between devices",
    }
    others = ", ".join(f"{name} {_seconds(value)}" for name, value in sides.items() if name != result.bound)
    return (
        f"This {plan.phase} step is bound by {result.bound}: {reasons[result.bound]} takes "
        f"{_seconds(result.floor_s)} at best ({others})."
    )


def _print(args: argparse.Namespace, data: dict[str, Any], rows: list[Row], sentence: str) -> None:
    if args.json:
        print(json.dumps(data, allow_nan=False))
        return
    table = [row for row in rows if row[0] != "note"]
    widths = [max(len(row[column]) for row in table) for column in (0, 1)]
    for label, value, remark in rows:
        print(f"{label:<{widths[0]}}  {value:>{widths[1]}}  {remark}".rstrip())
    if sentence:
        print(f"\n{sentence}")


def _si(value: float, unit: str) -> str:
    """A value with three digits and the decimal prefix that fits."""
    for power, prefix in ((15, "P"), (12, "T"), (9, "G"), (6, "M"), (3, "k")):
        if value >= 10**power:
            return f"{value / 10**power:.3g} {prefix}{unit}" if value < 10 ** (power + 3) else f"{value:.3g} {unit}"
    return f"{value:.3g} {unit}"


def _seconds(value: float) -> str:
    for power, unit in ((0, "s"), (-3, "ms"), (-6, "us")):
        if value >= 10.0**power:
            return f"{value / 10.0**power:.3g} {unit}"
    return f"{value / 1e-9:.3g} ns"
