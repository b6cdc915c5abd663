"""The options of `rooflens predict`, and what was asked by them: points of a sweep and what-ifs are changes of it."""

from __future__ import annotations

import argparse
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from rooflens.cli.amounts import count, counts, depths, link_rate, memory_size, ratio, ratios
from rooflens.cli.calibrations import add_calibration_option
from rooflens.cli.predict_list import ListNames
from rooflens.cli.what_if import METHODS, PHASE_NAMES
from rooflens.records import RooflensError

SEVERAL = "N,..."  # how the value of an option is shown that may be a sweep
MOST_POINTS = 2000  # of a sweep: more rows than anybody reads, and seconds of work
SWEPT: Mapping[str, str] = {
    "devices": "devices",
    "tp": "tp",
    "pp": "pp",
    "dp": "dp",
    "cp": "cp",
    "batch": "batch",
    "context": "context",
    "chunk": "chunk",
    "cached": "cached",
    "shared_prefix": "shared-prefix",
    "encoder_tokens": "encoder-tokens",
    "block": "block",
    "spec_tokens": "spec-tokens",
}  # field of Asked -> option


@dataclass(frozen=True, slots=True)
class Asked:
    """One operating point as it was asked for; None where an option was not given."""

    hardware: str
    model: str | None = None
    devices: int | None = None
    tp: int | None = None
    pp: int | None = None
    dp: int | None = None
    cp: int | None = None
    ep: bool = False
    batch: int | None = None
    context: int | None = None
    phase: str | None = None
    chunk: int | None = None
    cached: int | None = None
    shared_prefix: int | None = None
    block: int | None = None
    graph_sizes: tuple[int, ...] | None = None
    encoder_tokens: int | None = None
    lora: tuple[int, int] | None = None
    weights: str | None = None
    kv: str | None = None
    memory: float | None = None
    utilization: float | None = None
    distinct_experts: float | None = None
    spec_method: str | None = None
    spec_tokens: int | str | None = None
    acceptance: tuple[float, ...] | None = None
    draft_model: str | None = None
    kv_link: float | None = None
    calibration: str | None = None

    def given(self) -> tuple[str, ...]:
        """The options that were given, as they are written."""
        found = [f.name for f in fields(self) if getattr(self, f.name) not in (None, False)]
        return tuple(f"--{name.replace('_', '-')}" for name in found)


@dataclass(frozen=True, slots=True)
class Sweep:
    """The points of one command in order; ``axes`` are the options with several values, as fields of Asked."""

    axes: tuple[str, ...]
    points: tuple[Asked, ...]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `rooflens predict`."""
    hardware = _add_what(parser)
    _add_spread(parser.add_argument_group("how the model is spread (N,... may be a sweep, as below)"))
    _add_point(
        parser.add_argument_group("the operating point (N,... may be a sweep: 1..512, 1..512:64, 1,2,4; k is 1024)")
    )
    _add_formats(parser.add_argument_group("formats and memory"))
    _add_speculation(parser.add_argument_group("speculative decoding"))
    _add_output(parser.add_argument_group("what is shown"), hardware)


def _add_what(parser: argparse.ArgumentParser) -> argparse.Action:
    add = parser.add_argument
    add(
        "--model",
        metavar="NAME|PATH",
        help="a known model, the config.json of another, its folder (safetensors files give exact bytes) or a GGUF "
        "file; without it only the hardware's ridge is shown",
    )
    hardware = add(
        "--hardware",
        metavar="ID",
        required=True,
        help="a known device, the name NVML gives it (of a MIG slice too), a TOML file of yours, or this-cpu",
    )
    add_calibration_option(parser, "what is kept of this-cpu, for other devices none")
    return hardware


def _add_spread(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--devices", type=counts, metavar=SEVERAL, help="devices in all (default: --tp x --pp x --dp)")
    add(
        "--tp",
        type=counts,
        metavar=SEVERAL,
        help="devices that share each layer (default: --devices / --pp / --dp); further devices are further copies of "
        "the model, which share the batch",
    )
    add("--pp", type=counts, metavar=SEVERAL, help="pipeline stages, which share the depth (default: 1)")
    add("--dp", type=counts, metavar=SEVERAL, help="ranks with their own attention that share the experts (default: 1)")
    add("--cp", type=counts, metavar=SEVERAL, help="devices among --tp that share a sequence's KV cache (default: 1)")
    add(
        "--ep",
        type=count,
        nargs="?",
        const=0,
        metavar="N",
        help="whole experts lie on the --tp x --dp devices (N, if given, must be their number); without it each "
        "expert is cut over all of them",
    )


def _add_point(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--batch", type=counts, metavar=SEVERAL, help="sequences in flight over all devices (default: 1)")
    add(
        "--context",
        type=counts,
        metavar=SEVERAL,
        help="tokens of each sequence, in the KV cache (decode, verify) or in its prompt (prefill) (default: 1024)",
    )
    add(
        "--phase",
        choices=PHASE_NAMES,
        help="decode computes one token a sequence, prefill its prompt, verify the --spec-tokens drafted ones and one "
        "more in one pass (default: decode)",
    )
    add("--chunk", type=counts, metavar=SEVERAL, help="prefill only this many tokens of each prompt in the step")
    add(
        "--cached",
        type=counts,
        metavar=SEVERAL,
        help="tokens of each prompt that are in the cache already (default: 0)",
    )
    add(
        "--shared-prefix",
        type=counts,
        metavar=SEVERAL,
        help="tokens that all sequences share in the cache (default: 0)",
    )
    add("--encoder-tokens", type=counts, metavar=SEVERAL, help="input of an encoder-decoder's encoder (default: 0)")
    add("--distinct-experts", type=float, metavar="N", help="measured of a layer and step, not uniform routing's")
    add("--lora", type=lora, metavar="RANK[:N]", help="each sequence uses a LoRA adapter of this rank, one of N")
    add("--block", type=counts, metavar=SEVERAL, help="tokens of a KV block, read whole (default: not counted)")
    add(
        "--graph-sizes",
        type=counts,
        metavar="SIZES",
        help="captured batch sizes, to which a step is padded: all of 1,2,4 or 8..512:8 at once, no sweep",
    )


def _add_formats(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add(
        "--weights",
        metavar="FORMAT",
        help="bf16, fp8, int8, int4, nvfp4, mxfp4, q4_k or another of --list (default: what the model's files say)",
    )
    add("--kv", metavar="FORMAT", help="bf16, fp8, int8, nvfp4 or another of --list (default: that of the activations)")
    add(
        "--memory",
        type=memory_size,
        metavar="SIZE",
        help="memory of all devices together, such as 640GB, 80GiB or 640e9 bytes (default: the hardware's)",
    )
    add(
        "--utilization",
        type=ratio,
        metavar="RATIO",
        help="part of the memory that the engine may use, above 0, at most 1 (default: 0.9)",
    )
    add(
        "--kv-link",
        type=link_rate,
        metavar="RATE",
        help="link between prefill and decode machines, such as 400Gbit/s or 50GB/s: how long a prompt's KV takes",
    )


def _add_speculation(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add(
        "--spec-method",
        choices=METHODS[1:],
        help="who drafts: an n-gram look-up, a model, an EAGLE-3 head, MTP layers, parallel heads",
    )
    add(
        "--spec-tokens",
        type=depth_values,
        metavar=f"{SEVERAL}|best",
        help="drafted tokens a step, a sweep of them (0..8), or best (default: best, and 4 for --phase verify)",
    )
    add(
        "--acceptance",
        type=ratios,
        metavar="A[,A...]",
        help="chance that a drafted token is accepted: one for all, or for each position in which part of all "
        "steps it was (default: 0.8)",
    )
    add("--draft-model", metavar="NAME|PATH", help="the drafting model of --spec-method model")


def _add_output(group: argparse._ArgumentGroup, hardware: argparse.Action) -> None:
    add = group.add_argument
    add(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE[,KEY=VALUE...]",
        help="a what-if beside the answer: weights=fp8, or batch=128,kv=fp8; may be given several times",
    )
    add("--fail-if-misfit", action="store_true", help="exit with 1 where any of what was asked does not fit the memory")
    add("--plot", metavar="FILE|-", help="roofline and tokens/s against batch: a .svg or .png, or - for the terminal")
    add("--list", action=ListNames, released=hardware, help="the known models, devices, formats and nothing else")
    add("--json", action="store_true", help="JSON in SI units, null for what is not known; a list of a sweep")


def lora(text: str) -> tuple[int, int]:
    """(rank, distinct adapters) in RANK or RANK:N."""
    rank, colon, number = text.partition(":")
    return count(rank), count(number) if colon else 1


def depth_values(text: str) -> tuple[int | str, ...]:
    """Numbers of drafted tokens, or ('best',)."""
    return ("best",) if text.strip().casefold() == "best" else depths(text)


def sweep_of(args: argparse.Namespace) -> Sweep:
    """Every combination of the values given, the first option slowest; RooflensError for more than MOST_POINTS."""
    values = {name: getattr(args, name) for name in SWEPT if getattr(args, name) is not None}
    number = math.prod(len(found) for found in values.values())
    if number > MOST_POINTS:
        raise RooflensError(f"the sweep has {number:,} points, at most {MOST_POINTS:,} are shown: use larger steps")
    fixed = {f.name: getattr(args, f.name) for f in fields(Asked) if f.name not in SWEPT}
    base = Asked(**(fixed | {"ep": args.ep is not None}))
    combinations = itertools.product(*values.values())
    points = tuple(_checked(replace(base, **dict(zip(values, c, strict=True))), args.ep) for c in combinations)
    return Sweep(tuple(name for name, found in values.items() if len(found) > 1), points)


def _checked(asked: Asked, ep: int | None) -> Asked:
    """The point, where no option is 0 that counts things, and the number after --ep is that of the devices."""
    for name in ("tp", "devices", "pp", "dp", "cp"):
        value = getattr(asked, name)
        if value is not None and value < 1:
            raise RooflensError(f"--{name} must be at least 1, not {value}")
    tensor, data = spread(asked)[1], asked.dp or 1
    if ep and ep != tensor * data:
        raise RooflensError(f"--ep {ep} is not --tp x --dp = {tensor * data}: experts lie on those devices")
    return asked


def spread(asked: Asked) -> tuple[int, int]:
    """(devices, tensor parallel), each of which defaults to what the other leaves."""
    others = (asked.pp or 1) * (asked.dp or 1)
    if asked.tp is None and asked.devices is not None:
        if asked.devices % others:
            raise RooflensError(f"--devices {asked.devices} is not a multiple of --pp x --dp = {others}")
        return asked.devices, asked.devices // others
    tensor = asked.tp or 1
    return asked.devices if asked.devices is not None else tensor * others, tensor


def changed(asked: Asked, changes: Mapping[str, Any]) -> Asked:
    """``asked`` with the changes of a what-if; what only defaulted to the other, of --tp and --devices, follows."""
    return replace(asked, **{name.replace("-", "_"): value for name, value in changes.items()})


def axis_names(axes: Sequence[str]) -> tuple[str, ...]:
    """The swept options as they are written, without dashes."""
    return tuple(SWEPT[name] for name in axes)
