"""Which facts of the engines differ between the sides: the candidates for the cause."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rooflens.analyzer.diff.result import FactChange
from rooflens.records import EngineInfo

# What can change the speed of an engine, in the order in which a person would ask; name of the field, its words.
NAMES: tuple[tuple[str, str], ...] = (
    ("model_name", "model"),
    ("engine", "engine"),
    ("engine_version", "version"),
    ("device", "device"),
    ("weight_dtype", "weights"),
    ("quantization", "quantization"),
    ("kv_dtype", "KV cache"),
    ("tensor_parallel", "tensor parallel"),
    ("pipeline_parallel", "pipeline parallel"),
    ("data_parallel", "data parallel"),
    ("expert_parallel", "expert parallel"),
    ("context_parallel", "context parallel"),
    ("graph_mode", "graphs"),
    ("graph_sizes", "graph sizes"),
    ("attention_backend", "attention backend"),
    ("moe_backend", "mixture backend"),
    ("async_scheduling", "async scheduling"),
    ("max_sequences", "most sequences"),
    ("max_batched_tokens", "token budget"),
    ("block_tokens", "KV block"),
    ("kv_blocks", "KV blocks"),
    ("prefix_caching", "prefix caching"),
    ("chunked_prefill", "chunked prefill"),
    ("speculative_method", "speculation"),
    ("speculative_tokens", "speculative tokens"),
    ("runner", "runner"),
    ("role", "role"),
    ("host", "host"),
)


def differing(
    a: Sequence[EngineInfo], b: Sequence[EngineInfo], hardware_a: Sequence[str] = (), hardware_b: Sequence[str] = ()
) -> tuple[FactChange, ...]:
    """The facts that no two engines across the sides share; values of several engines of one side are listed.
    ``hardware_a`` and ``hardware_b`` are the devices that each side is laid beside."""
    found = []
    for field, words in NAMES:
        left, right = (_values(side, field) for side in (a, b))
        if a and b and not left & right and (left or right):
            found.append(FactChange(words, _text(left), _text(right)))
    if a and b and not {_config(each) for each in a} & {_config(each) for each in b} and not _named(found, "model"):
        found.insert(0, FactChange("model's config", "its own", "another"))
    if hardware_a and hardware_b and not set(hardware_a) & set(hardware_b):
        found.insert(0, FactChange("hardware", ", ".join(hardware_a), ", ".join(hardware_b)))
    return tuple(found)


def other_work(facts: Sequence[FactChange]) -> list[str]:
    """The names of those facts after which the same step is other work for the device."""
    return [each.name for each in facts if each.name in ("hardware", "model", "model's config", "device")]


def _named(found: Sequence[FactChange], name: str) -> bool:
    return any(each.name == name for each in found)


def _config(info: EngineInfo) -> str:
    return repr(sorted((info.model_config or {}).items(), key=lambda item: item[0]))


def _values(side: Sequence[EngineInfo], field: str) -> set[str]:
    return {_word(value) for info in side if (value := getattr(info, field)) not in (None, ())}


def _word(value: Any) -> str:
    if isinstance(value, tuple):
        return f"{len(value)} up to {max(value)}" if value else ""
    return {True: "on", False: "off"}.get(value, str(value)) if isinstance(value, bool) else str(value)


def _text(values: set[str]) -> str | None:
    return ", ".join(sorted(values)) or None
