"""Number formats: what a stored element costs in bytes and which units multiply it; one format, one row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rooflens.arch_records import ModelArch
from rooflens.records import EngineInfo, RooflensError


@dataclass(frozen=True, slots=True)
class NumberFormat:
    """``bytes_per_element`` with scales included; ``compute`` are the formats its products may run in.

    A lower bound takes the fastest of ``compute`` that the device has: a format without units of its own is
    widened to 16 bit on the way in, so its bytes shrink and its arithmetic does not (weight-only int4 computes
    at the bf16 rate everywhere).
    """

    bytes_per_element: float
    compute: tuple[str, ...]


WEIGHT_FORMATS: Mapping[str, NumberFormat] = {
    "fp32": NumberFormat(4.0, ("fp32", "tf32")),
    "bf16": NumberFormat(2.0, ("bf16",)),
    "fp16": NumberFormat(2.0, ("fp16",)),
    "fp8": NumberFormat(1.0, ("fp8", "bf16")),  # scale per tensor, channel or 128 x 128 block: below 0.03 %
    "int8": NumberFormat(1.0, ("int8", "bf16")),
    "nvfp4": NumberFormat(0.5625, ("nvfp4", "fp8", "bf16")),  # an fp8 scale for 16 elements
    "mxfp4": NumberFormat(0.53125, ("mxfp4", "fp8", "bf16")),  # an e8m0 scale for 32 elements
    "int4": NumberFormat(0.515625, ("bf16", "fp16")),  # weight-only, a 16-bit scale for 128 elements
    "int4-g64": NumberFormat(0.53125, ("bf16", "fp16")),
    "int4-g32": NumberFormat(0.5625, ("bf16", "fp16")),
}
# Attention may multiply in the KV cache's own format (FlashAttention 3 does so with fp8) or widen it.
KV_FORMATS: Mapping[str, NumberFormat] = {
    "fp32": NumberFormat(4.0, ("fp32", "tf32")),
    "bf16": NumberFormat(2.0, ("bf16",)),
    "fp16": NumberFormat(2.0, ("fp16",)),
    "fp8": NumberFormat(1.0, ("fp8", "bf16")),
    "int8": NumberFormat(1.0, ("int8", "bf16")),
    "nvfp4": NumberFormat(0.5625, ("nvfp4", "fp8", "bf16")),
}
PLAIN = ("fp32", "bf16", "fp16")  # formats that tensors left unquantised can have

# How engines and config files spell the formats.
SPELLINGS: Mapping[str, str] = {
    "bfloat16": "bf16", "float16": "fp16", "half": "fp16", "float32": "fp32", "float": "fp32",
    "fp8_e4m3": "fp8", "fp8_e5m2": "fp8", "fp8_inc": "fp8", "float8_e4m3fn": "fp8", "float8_e5m2": "fp8",
    "modelopt_fp4": "nvfp4", "w8a8_fp8": "fp8", "w8a8_int8": "int8", "fbgemm_fp8": "fp8", "ptpc_fp8": "fp8",
}  # fmt: skip

# Parts that every quantised checkpoint may leave at 16 bit without changing what a linear weight costs.
UNQUANTISED_ANYWAY = ("lm_head", "embed", "norm", "vision", "visual", "mm_projector", "multi_modal")


GROUPS = (
    "attention", "mlp", "experts", "shared_experts", "router", "state", "indexer", "embedding", "head", "mtp",
    "encoder",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class TensorFormat:
    """``share`` (a ratio) of a group's elements in one format; ``bytes_per_element`` has the scales in it."""

    share: float
    name: str
    bytes_per_element: float

    @property
    def compute(self) -> tuple[str, ...]:
        """The formats that its products may run in."""
        return WEIGHT_FORMATS[self.name].compute


@dataclass(frozen=True, slots=True)
class Precision:
    """The formats of one deployment: linear weights, KV cache, language-model head and embedding, activations.

    A quantised checkpoint leaves embedding and head at 16 bit unless ``head`` says otherwise. ``groups`` are the
    groups of tensors (GROUPS) of which more is known than that. ``indexer_keys`` is the format of the keys of a sparse
    attention's indexer, None where they are in that of the KV cache.
    """

    weights: str
    kv: str
    head: str
    activations: str
    groups: Mapping[str, tuple[TensorFormat, ...]] = field(default_factory=dict)
    indexer_keys: str | None = None

    @property
    def activation_bytes(self) -> float:
        """Bytes of one activation."""
        return WEIGHT_FORMATS[self.activations].bytes_per_element

    def parts(self, group: str) -> tuple[TensorFormat, ...]:
        """The formats of one group of GROUPS; their shares add up to 1."""
        if group in self.groups:
            return self.groups[group]
        plain = {"embedding": self.head, "head": self.head, "router": self.activations}
        name = plain.get(group, self.weights)
        return (TensorFormat(1.0, name, WEIGHT_FORMATS[name].bytes_per_element),)


def choose_precision(arch: ModelArch, weights: str | None = None, kv: str | None = None) -> Precision:
    """The formats of ``arch`` where ``weights`` and ``kv`` (names of the tables above) may override its files.

    Without an override: what the model's files state, else their activation format. Raises RooflensError for an
    unknown name.
    """
    chosen = weight_format(weights) if weights else arch.weight_format or arch.activation_format
    activations = chosen if chosen in PLAIN else _narrow(arch.activation_format)
    cache = _known(kv, KV_FORMATS, "KV") if kv else arch.kv_format or activations
    return Precision(weights=chosen, kv=cache, head=activations, activations=activations)


def precision_of(info: EngineInfo, arch: ModelArch) -> Precision:
    """The formats that a running engine states; RooflensError where its quantisation cannot be told.

    A method's name alone is believed only where it fixes the size (fp8, modelopt_fp4, mxfp4, ...); for awq, gptq
    or compressed-tensors the model's own quantization_config, read into ``arch``, decides.
    """
    weights = None
    if info.quantization and arch.weight_format is None:
        name = normalise(info.quantization)
        if name not in WEIGHT_FORMATS:
            raise RooflensError(
                f"quantization {info.quantization[:40]!r} does not fix the size of a weight and the model's config "
                f"has no quantization_config: say --weights {'|'.join(WEIGHT_FORMATS)}"
            )
        weights = name
    elif info.weight_dtype and arch.weight_format is None:
        weights = info.weight_dtype
    kv = None if info.kv_dtype in (None, "auto") else info.kv_dtype
    return choose_precision(arch, weights, kv)


def normalise(name: str) -> str:
    """The table's spelling of a format that an engine or a file names."""
    plain = name.strip().lower().removeprefix("torch.")
    return SPELLINGS.get(plain, plain)


def weight_format(name: str) -> str:
    """The table's name of a weight format; RooflensError that lists them for an unknown one."""
    return _known(name, WEIGHT_FORMATS, "weight")


def _narrow(activation_format: str) -> str:
    """Activations beside quantised weights: 16 bit, whatever width the original had."""
    return "bf16" if activation_format == "fp32" else activation_format


def _known(name: str, table: Mapping[str, NumberFormat], what: str) -> str:
    found = normalise(name)
    if found not in table:
        raise RooflensError(f"unknown {what} format {name[:40]!r}; known: {', '.join(table)}")
    return found


def stated_formats(quantization: Any) -> tuple[str | None, str | None]:
    """(weight format, KV format) that a ``quantization_config`` states; RooflensError for one not understood.

    The number of bits, type and group size decide, never the method's name alone.
    """
    if not isinstance(quantization, dict):
        raise RooflensError("quantization_config is not an object")
    _refuse_partial(quantization)
    kv = _stated_kv(quantization)
    method = str(quantization.get("quant_algo") or quantization.get("quant_method") or "").lower()
    weights = _described_weights(quantization)
    bits = weights.get("num_bits", weights.get("bits"))
    if bits == 8:
        return ("int8" if weights.get("type") == "int" or "bits" in weights else "fp8"), kv
    if bits == 4:
        return _four_bit(weights), kv
    if method in ("fp8", "fbgemm_fp8", "mxfp4", "nvfp4"):
        return normalise(method), kv
    raise RooflensError(
        f"quantization_config of method {method[:40]!r} is not understood: say --weights {'|'.join(WEIGHT_FORMATS)}"
    )


def _described_weights(quantization: Mapping[str, Any]) -> Mapping[str, Any]:
    """The description of the weights: nested by group, nested once, or flat (awq, gptq)."""
    groups = quantization.get("config_groups")
    parts = list(groups.values()) if isinstance(groups, dict) and groups else [quantization]
    found = [part.get("weights") for part in parts if isinstance(part, dict)]
    if any(weights != found[0] for weights in found):
        raise RooflensError("quantization_config has groups of different weights, not modelled yet: say --weights")
    return found[0] if found and isinstance(found[0], dict) else quantization


def _refuse_partial(quantization: Mapping[str, Any]) -> None:
    """A model whose attention or some layers stay at 16 bit is not one number of bytes per weight."""
    for key in ("ignore", "ignored_layers", "exclude_modules", "modules_to_not_convert"):
        listed = quantization.get(key)
        for module in listed if isinstance(listed, list) else ():
            if not any(part in str(module) for part in UNQUANTISED_ANYWAY):
                raise RooflensError(
                    f"quantization_config.{key} leaves {str(module)[:60]!r} unquantised, which is not modelled yet: "
                    "say --weights"
                )


def _four_bit(weights: Mapping[str, Any]) -> str:
    group = weights.get("group_size")
    if weights.get("type") == "float":
        return "nvfp4" if group == 16 else "mxfp4"
    return {64: "int4-g64", 32: "int4-g32"}.get(group, "int4") if isinstance(group, int) else "int4"


def _stated_kv(quantization: Mapping[str, Any]) -> str | None:
    scheme = quantization.get("kv_cache_scheme")
    if isinstance(scheme, dict) and scheme.get("num_bits") == 8:
        return "int8" if scheme.get("type") == "int" else "fp8"
    algorithm = quantization.get("kv_cache_quant_algo")
    name = normalise(algorithm) if isinstance(algorithm, str) else None
    return name if name in KV_FORMATS else None
