"""The roofline of a planned deployment: the shortest possible step, what bounds it, and what fits in memory.

The floor may be too low and never too high: bytes that the last-level cache may keep from step to step are not
counted, which matters for small models (docs/decisions/0006-the-floor-is-strict.md says why).
Where the hardware states no rate for a format, compute is not known and the floor is that of memory and link.

examples:
  rooflens predict --model meta-llama-3-70b --hardware h100-sxm5-80 --devices 8
  rooflens predict --model meta-llama-3-70b --hardware h100-sxm5-80 --devices 8 --batch 64 --context 8192
  rooflens predict --model ./config.json --hardware "NVIDIA H200" --weights fp8 --kv fp8 --phase prefill --json
  rooflens predict --hardware rubin-vr200 --weights nvfp4      (no model: the ridge of the hardware)
  rooflens predict --model qwen2.5-0.5b --hardware this-cpu    (measures this machine for ten seconds first)
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

from rooflens.analyzer.arch import find_model
from rooflens.analyzer.hardware import find_hardware
from rooflens.analyzer.precision import KV_FORMATS, WEIGHT_FORMATS, choose_precision, weight_format
from rooflens.analyzer.predict import (
    PHASES,
    Plan,
    Prediction,
    predict,
    ridge_announced_flop_per_byte,
    ridge_flop_per_byte,
)
from rooflens.arch_records import Deployment
from rooflens.cli.output import json_text
from rooflens.cli.predict_text import Answer, Row, hardware_rows, misfit, notes, rows, sentence
from rooflens.model_records import HardwareSpec
from rooflens.records import RooflensError

THIS_CPU = "this-cpu"
# Options whose default, None here so that a given one can be told, is the one of Plan.
PLAN_OPTIONS: Mapping[str, str] = {
    "batch": "batch",
    "context": "context_tokens",
    "phase": "phase",
    "memory": "memory_bytes",
    "utilization": "utilization_ratio",
}


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
    add("--batch", type=int, metavar="N", help="sequences in flight over all devices (default: 1)")
    add(
        "--context",
        type=int,
        metavar="TOKENS",
        help="tokens of each sequence, in the KV cache (decode) or in its prompt (prefill) (default: 1024)",
    )
    add(
        "--phase",
        choices=PHASES,
        help="decode computes one token a sequence, prefill its whole prompt (default: decode)",
    )
    add("--weights", metavar="FORMAT", help=f"{', '.join(WEIGHT_FORMATS)} (default: what the model's files say)")
    add("--kv", metavar="FORMAT", help=f"{', '.join(KV_FORMATS)} (default: that of the activations)")
    add(
        "--memory",
        type=memory_size,
        metavar="SIZE",
        help="memory of all devices together, such as 640GB, 80GiB or 640e9 bytes (default: the hardware's)",
    )
    add(
        "--utilization",
        type=float,
        metavar="RATIO",
        help="part of the memory that the engine may use, above 0, at most 1 (default: 0.9)",
    )
    add("--json", action="store_true", help="one JSON object in SI units, null for what is not known")


def run(args: argparse.Namespace) -> int:
    """Print the prediction, as a table or as JSON."""
    _refuse_no_devices(args)
    weights = weight_format(args.weights) if args.weights else None
    if args.model is None:
        hardware = _hardware(args)
        shown = weights or _stated_format(hardware)
        remarks = _ignored(args)
        if shown != (weights or "bf16"):
            remarks.append(f"{hardware.id} states no rate for bf16: the ridge is that of {shown} (choose by --weights)")
        data = _hardware_json(hardware, shown)
        data["notes"] = remarks + data["notes"]
        _print(args, data, [*hardware_rows(hardware, shown), *(("note", text, "") for text in remarks)])
        return 0
    arch = find_model(args.model, read_quantization=args.weights is None)
    precision = choose_precision(arch, args.weights, args.kv)
    plan = _plan(args)
    hardware = _hardware(args)
    given = tuple(name for name in ("weights", "kv") if getattr(args, name))
    answer = Answer(arch, hardware, precision, plan, predict(arch, hardware, precision, plan), given)
    data = _hardware_json(hardware, precision.weights) | asdict(answer.result)
    data |= {"model": arch.name, "devices": plan.devices, "tensor_parallel": plan.deployment.tensor}
    data |= {"weights": precision.weights, "kv": precision.kv, "phase": plan.phase, "batch": plan.batch}
    data |= {"context_tokens": plan.context_tokens, "notes": notes(answer) + list(hardware.flags)}
    problem = misfit(answer)
    _print(args, data, rows(answer), f"DOES NOT FIT: {problem}" if problem else "", sentence(answer))
    return 0


def _refuse_no_devices(args: argparse.Namespace) -> None:
    """Each of the two defaults to the other, so that only here it is known which one the user gave."""
    for name in ("tp", "devices"):
        value = getattr(args, name)
        if value is not None and value < 1:
            raise RooflensError(f"--{name} must be at least 1, not {value}")


def _plan(args: argparse.Namespace) -> Plan:
    devices = args.devices if args.devices is not None else args.tp if args.tp is not None else 1
    given = {key: getattr(args, name) for name, key in PLAN_OPTIONS.items() if getattr(args, name) is not None}
    return Plan(devices, Deployment(tensor=args.tp if args.tp is not None else devices), **given)


def _ignored(args: argparse.Namespace) -> list[str]:
    """A note that names the options that mean nothing without a model."""
    given = [f"--{name}" for name in ("devices", "tp", "kv", *PLAN_OPTIONS) if getattr(args, name) is not None]
    return [f"{', '.join(given)} ignored: without --model only the hardware is shown"] if given else []


def _stated_format(hardware: HardwareSpec) -> str:
    """bf16, or where the device states no rate for it the first weight format that it does."""
    return next((f for f in ("bf16", *WEIGHT_FORMATS) if ridge_flop_per_byte(hardware, f) is not None), "bf16")


def memory_size(text: str) -> float:
    """Bytes in ``text``: a number, with a decimal (80GB) or binary (80GiB) unit or none (640e9)."""
    found = re.fullmatch(r"\s*([^a-z]*(?:e[+-]?\d+)?|nan|inf)\s*(?:([kmgtp]?)(i?)b?)?\s*", text.lower())
    try:
        value = float(found[1].replace(",", "") if found else "")
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is no memory size: write 80GB, 80GiB or 80e9") from None
    step = 1024 if found and found[3] else 1000
    return value * float(step ** (" kmgtp".index(found[2]) if found and found[2] else 0))


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


def _print(args: argparse.Namespace, data: dict[str, Any], rows: list[Row], first: str = "", last: str = "") -> None:
    if args.json:
        print(json_text(data))
        return
    table = [row for row in rows if row[0] != "note"]
    widths = [max(len(row[column]) for row in table) for column in (0, 1)]
    if first:
        print(f"{first}\n")
    for label, value, remark in rows:
        print(f"{label:<{widths[0]}}  {value:>{widths[1]}}  {remark}".rstrip())
    if last:
        print(f"\n{last}")
