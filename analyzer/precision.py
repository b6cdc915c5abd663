"""The formats of a deployment: which group of tensors is stored how, and which units multiply it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from rooflens.analyzer.file_types import file_type
from rooflens.analyzer.group_formats import group_formats
from rooflens.analyzer.number_formats import (
    GGUF_FORMATS,
    KV_FORMATS,
    PLAIN,
    WEIGHT_FORMATS,
    NumberFormat,
    known_format,
    normalise,
)
from rooflens.analyzer.quantization import FIXED_METHODS, SAME_METHOD, quantization_of
from rooflens.analyzer.tensor_format import TensorFormat
from rooflens.arch_records import ModelArch, Quantization, StoredFormat
from rooflens.records import EngineInfo, RooflensError

__all__ = [
    "GROUPS",
    "KV_FORMATS",
    "PLAIN",
    "WEIGHT_FORMATS",
    "NumberFormat",
    "Precision",
    "TensorFormat",
    "choose_precision",
    "normalise",
    "precision_of",
    "stated_formats",
    "stated_weights",
    "weight_format",
]

GROUPS = (
    "attention", "mlp", "experts", "shared_experts", "router", "state", "indexer", "embedding", "head", "mtp",
    "encoder",
)  # fmt: skip
GGUF_NOTE = "a GGUF file quantises embedding and head too: they are taken at {}; give the file for their own formats"


@dataclass(frozen=True, slots=True)
class Precision:
    """The formats of one deployment: linear weights, KV cache, language-model head and embedding, activations.

    A quantised checkpoint leaves embedding and head at 16 bit unless ``head`` says otherwise. ``groups`` are the
    groups of tensors (GROUPS) of which more is known than that. ``indexer_keys`` is the format of the keys of a sparse
    attention's indexer, None where they are in that of the KV cache; ``state`` that of the states of linear attention
    or Mamba, None where it is what the model says. ``exact_weights`` says that the bytes resident are those of the
    model's files. ``notes`` are what a reader should know of all this, one sentence each.
    """

    weights: str
    kv: str
    head: str
    activations: str
    groups: Mapping[str, tuple[TensorFormat, ...]] = field(default_factory=dict)
    indexer_keys: str | None = None
    state: str | None = None
    exact_weights: bool = False
    notes: tuple[str, ...] = ()

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
    """The formats of ``arch`` where ``weights`` and ``kv`` (names of the tables) may override its files.

    Without an override: what the model's files state of each group, else their activation format. With one, every
    linear layer has that format, and where it is one of GGUF files the embedding and the head as well, which llama.cpp
    quantises too. Raises RooflensError for an unknown name.
    """
    groups: Mapping[str, tuple[TensorFormat, ...]] = {}
    if not weights and arch.quantization is not None:
        groups = group_formats(arch, arch.quantization)
    stated = stated_weights(arch.quantization) or arch.weight_format or arch.activation_format
    chosen = weight_format(weights) if weights else stated
    activations = chosen if chosen in PLAIN else _narrow(arch.activation_format)
    cache = known_format(kv, KV_FORMATS, "KV") if kv else arch.kv_format or activations
    if weights and chosen in GGUF_FORMATS:
        return Precision(chosen, cache, chosen, activations, notes=(GGUF_NOTE.format(chosen),))
    head = groups["head"][0].name if "head" in groups else activations
    return Precision(weights=chosen, kv=cache, head=head, activations=activations, groups=groups)


def precision_of(info: EngineInfo, arch: ModelArch) -> Precision:
    """The formats that a running engine states; RooflensError where its quantisation cannot be told.

    A method's name alone is believed only where it fixes the size (fp8, modelopt_fp4, mxfp4, ...); for awq, gptq
    or compressed-tensors the model's own quantization_config, read into ``arch``, decides. The type of a GGUF file in
    llama.cpp's words ("Q4_K - Medium") is that of its weights.
    """
    weights = None
    if arch.quantization is None and arch.weight_format is None:
        stored = file_type(info.quantization or "") or info.quantization
        if stored and normalise(stored) in GGUF_FORMATS:
            weights = stored
        elif stored:
            arch = replace(arch, quantization=_named(stored))
        else:
            weights = info.weight_dtype
    kv = None if info.kv_dtype in (None, "auto") else info.kv_dtype
    found = choose_precision(arch, weights, kv)
    indexed = any(getattr(layer.mixer, "indexer", None) for layer in (*arch.layers, *arch.mtp))
    wide = KV_FORMATS[found.kv].bytes_per_element > 1  # engines keep an indexer's keys in fp8 all the same
    state = normalise(info.state_dtype or "")
    return replace(
        found, indexer_keys="fp8" if indexed and wide else None, state=state if state in KV_FORMATS else None
    )


def _named(method: str) -> Quantization:
    """The formats that an engine's method gives a model whose files state none."""
    name = normalise(method)
    if SAME_METHOD.get(name, name) in FIXED_METHODS:
        return quantization_of({"quant_method": name}, {})
    if name not in WEIGHT_FORMATS:
        raise RooflensError(
            f"quantization {method[:40]!r} does not fix the size of a weight and the model's config has no "
            "quantization_config: give --model the path of a config.json that has it"
        )
    return Quantization(name, StoredFormat(name, WEIGHT_FORMATS[name].bytes_per_element))


def weight_format(name: str) -> str:
    """The table's name of a weight format; RooflensError that lists them for an unknown one."""
    return known_format(name, WEIGHT_FORMATS, "weight")


def stated_weights(quantization: Quantization | None) -> str | None:
    """One word for what files state of linear weights: their default, else the first format that they name."""
    if quantization is None:
        return None
    if quantization.default is not None:
        return quantization.default.name
    return next((rule.stored.name for rule in quantization.rules if rule.stored), None)


def stated_formats(quantization: Any) -> tuple[str | None, str | None]:
    """(weight format, KV format) that a ``quantization_config`` states; RooflensError for one not understood."""
    stated = quantization_of(quantization, {})
    return stated_weights(stated), stated.kv


def _narrow(activation_format: str) -> str:
    """Activations beside quantised weights: 16 bit, whatever width the original had."""
    return "bf16" if activation_format == "fp32" else activation_format
