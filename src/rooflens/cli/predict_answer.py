"""From what was asked to its prediction: model, device and formats are found, a plan is made, its step is bounded."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rooflens.analyzer.arch import arch_from_config, find_model
from rooflens.analyzer.calibrated import efficiency_from, hardware_of
from rooflens.analyzer.counting import kv_bytes
from rooflens.analyzer.gguf_model import gguf_config
from rooflens.analyzer.handover import Handover, Link, handover
from rooflens.analyzer.hardware import find_hardware
from rooflens.analyzer.measured_cpu import makes_roof
from rooflens.analyzer.precision import Precision, choose_precision
from rooflens.analyzer.predict import Plan, Prediction, predict
from rooflens.analyzer.tensor_files import precision_from_files, weight_files
from rooflens.arch_records import Deployment, ModelArch
from rooflens.calibration_records import Calibration
from rooflens.cli.calibrations import Calibrations
from rooflens.cli.named import is_this_cpu
from rooflens.cli.predict_options import Asked, spread
from rooflens.cli.predict_speculation import Speculation, speculates, speculation
from rooflens.model_records import Efficiency, HardwareSpec
from rooflens.records import RooflensError

# Options that are fields of Plan by another name; what was not given keeps the default of Plan.
PLAN_FIELDS = {
    "batch": "batch",
    "context": "context_tokens",
    "memory": "memory_bytes",
    "utilization": "utilization_ratio",
    "shared_prefix": "shared_prefix_tokens",
    "block": "block_tokens",
    "graph_sizes": "graph_sizes",
    "encoder_tokens": "encoder_tokens",
    "distinct_experts": "distinct_experts",
}
WEIGHT_ENDINGS = (".gguf", ".safetensors")
PREFILL_ONLY = ("chunk", "cached")
MEASURING = "measuring this machine for ten seconds ('rooflens calibrate' measures more, once, and keeps it)"
DEFAULT_DRAFTS = 4  # of a verify step whose depth was not given


@dataclass(frozen=True, slots=True)
class Answer:
    """A prediction with what it was made of.

    ``sequence_kv_bytes`` is the cache of one sequence, each entry once however many devices keep it, and
    ``next_token_kv_bytes`` what one more token adds to it. ``exact_weights``: their bytes are those of the files.
    ``without_ep`` is the same without the --ep that was asked for, ``efficiency`` what kernels reach where that is
    not as published.
    """

    asked: Asked
    arch: ModelArch
    hardware: HardwareSpec
    precision: Precision
    plan: Plan
    result: Prediction
    sequence_kv_bytes: float
    next_token_kv_bytes: float
    exact_weights: bool = False
    speculation: Speculation | None = None
    handover: Handover | None = None
    without_ep: Prediction | None = None
    efficiency: Efficiency | None = None

    @property
    def phase(self) -> str:
        """The phase in the user's words: a verify step is a decode step to the plan."""
        return self.asked.phase or "decode"


@dataclass(slots=True)
class Sources:
    """Models and devices found so far: a sweep reads each file, and measures this machine, once."""

    _models: dict[tuple[str, bool], ModelArch] = field(default_factory=dict)
    _devices: dict[tuple[str, str | None], tuple[HardwareSpec, Efficiency | None]] = field(default_factory=dict)
    _formats: dict[tuple[str, str | None, str | None], Precision] = field(default_factory=dict)

    def model(self, name: str, read_quantization: bool) -> ModelArch:
        """The model called ``name``; for a file of weights that of the config.json beside it."""
        key = (name, read_quantization)
        if key not in self._models:
            files = files_of(name)
            if files is None or (files / "config.json").is_file():
                self._models[key] = find_model(name, read_quantization=read_quantization)
            else:
                first = weight_files(files)[0] if files.is_dir() else files
                self._models[key] = _model_of_file(first, read_quantization)
        return self._models[key]

    def precision(self, name: str, weights: str | None, kv: str | None) -> Precision:
        """The formats of the model called ``name``, where these two may override what its files say."""
        key = (name, weights, kv)
        if key not in self._formats:
            arch, files = self.model(name, read_quantization=weights is None), files_of(name)
            exact = weights is None and files is not None
            self._formats[key] = (
                precision_from_files(arch, files, kv) if exact and files else choose_precision(arch, weights, kv)
            )
        return self._formats[key]

    def hardware(self, name: str, calibration: str | None = None) -> tuple[HardwareSpec, Efficiency | None]:
        """The device called ``name``, and what it was calibrated to reach: by the file ``calibration``, or what is
        kept of this-cpu, which is measured where nothing is.
        """
        key = (name, calibration)
        if key not in self._devices:
            self._devices[key] = _device(name, calibration)
        return self._devices[key]


def files_of(name: str) -> Path | None:
    """The files of weights that ``name`` leads to: itself, or a folder that holds some; None for any other name."""
    path = Path(name)
    try:
        if path.suffix in WEIGHT_ENDINGS and path.is_file():
            return path
        return path if path.is_dir() and weight_files(path) else None
    except (OSError, ValueError):  # no name that a file could have
        return None


def _model_of_file(file: Path, read_quantization: bool) -> ModelArch:
    """The model of the config.json beside ``file``, else of what a GGUF file says of itself."""
    config = file.with_name("config.json")
    if config.is_file():
        return find_model(str(config), read_quantization=read_quantization)
    if file.suffix == ".gguf":
        return arch_from_config(gguf_config(file), file.stem)
    raise RooflensError(
        f"{file.name[:60]}: the model's config.json must lie beside it: fetch it from where the file is"
    )


def _device(name: str, option: str | None) -> tuple[HardwareSpec, Efficiency | None]:
    if not is_this_cpu(name):
        hardware = find_hardware(name)
        return hardware, _reached(hardware, Calibrations(option).of_device(hardware)) if option else None
    kept = Calibrations(option).of_cpu()
    hardware = hardware_of(kept) if kept and makes_roof(kept) else measured_cpu()
    return hardware, _reached(hardware, kept)


def _reached(hardware: HardwareSpec, calibration: Calibration | None) -> Efficiency | None:
    return efficiency_from(calibration, hardware) if calibration else None


def measured_cpu() -> HardwareSpec:
    """This machine, measured for some seconds; the terminal hears how it goes."""
    from rooflens.collector.cpu_roof import measure_cpu  # needs numpy, which the base install does not have

    print(MEASURING, file=sys.stderr, flush=True)
    show = sys.stderr.isatty()
    return measure_cpu(progress=(lambda text: print(text, file=sys.stderr)) if show else None)


def answer(asked: Asked, sources: Sources) -> Answer:
    """The prediction of one point; RooflensError in one line for one that makes no sense."""
    if asked.model is None:
        raise RooflensError("no --model was given: without one only a device's ridge can be shown")
    arch = sources.model(asked.model, read_quantization=asked.weights is None)
    precision = sources.precision(asked.model, asked.weights, asked.kv)
    plan = plan_of(asked)
    hardware, reached = sources.hardware(asked.hardware, asked.calibration)
    result = predict(arch, hardware, precision, plan, reached)
    found = None
    if speculates(asked):
        drafting = None if asked.draft_model is None else sources.model(asked.draft_model, read_quantization=True)
        found = speculation(asked, arch, hardware, precision, plan, drafting, reached)
    each, longer = (kv_bytes(arch, precision, plan.context_tokens + more, plan.encoder_tokens) for more in (0, 1))
    prompts = plan if plan.prefill else replace(plan, phase="prefill", query_tokens=None)  # whole, on equal devices
    link = None if asked.kv_link is None else Link(asked.kv_link)
    sent = None if link is None else handover(arch, hardware, precision, prompts, link, efficiency=reached)
    cut = None
    if asked.ep:
        whole = replace(plan, deployment=replace(plan.deployment, expert=False))
        cut = predict(arch, hardware, precision, whole, reached)
    weights = precision.exact_weights
    return Answer(
        asked, arch, hardware, precision, plan, result, each, longer - each, weights, found, sent, cut, reached
    )


def plan_of(asked: Asked) -> Plan:
    """The plan of one point."""
    devices, tensor = spread(asked)
    placed = Deployment(tensor, asked.pp or 1, asked.dp or 1, asked.cp or 1, asked.ep)
    given: dict[str, Any] = {key: getattr(asked, name) for name, key in PLAN_FIELDS.items()}
    if asked.phase == "prefill":
        given |= {"phase": "prefill", "cached_tokens": asked.cached, "query_tokens": _chunk(asked)}
    else:
        wrong = [f"--{name}" for name in PREFILL_ONLY if getattr(asked, name) is not None]
        if wrong:
            raise RooflensError(f"{' and '.join(wrong)} belongs to a prompt: add --phase prefill")
    if asked.phase == "verify":
        drafts = asked.spec_tokens if isinstance(asked.spec_tokens, int) else DEFAULT_DRAFTS
        given["query_tokens"] = drafts + 1
    if asked.lora is not None:
        given |= {"lora_rank": asked.lora[0], "lora_adapters": asked.lora[1]}
    return Plan(devices, placed, **{key: value for key, value in given.items() if value is not None})


def _chunk(asked: Asked) -> int | None:
    """Tokens computed of each prompt: the chunk, or what is left of the prompt after what is cached."""
    if asked.chunk is None:
        return None
    left = (asked.context if asked.context is not None else Plan().context_tokens) - (asked.cached or 0)
    return min(asked.chunk, left) if left > 0 else asked.chunk
