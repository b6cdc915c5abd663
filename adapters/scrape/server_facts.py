"""What a server says of itself beside its metrics: model, version, precision, sizes, as fields of EngineInfo.

Read in vLLM 0.6 to 0.32 (/v1/models, /version), SGLang 0.4 to 0.5.23 (/get_server_info, later /server_info, which state
the server's arguments flat and what each scheduler adds under internal_states), llama.cpp b4000 to b8681 (/props),
TGI 1 to 3 (/info). Every field is looked for where it is; one that is missing, of another type or a path is not known.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from rooflens.adapters.facts import word
from rooflens.info_fields import fits
from rooflens.records import EngineInfo

MOST_BYTES = 1 << 20  # SGLang's answer with all of its arguments is about 10 kB
_ANNOTATIONS = {each.name: str(each.type) for each in fields(EngineInfo)}


@dataclass(frozen=True, slots=True)
class Place:
    """Where a fact stands in an answer: ``keys`` from the outside in, a number for the place in a list."""

    fact: str
    keys: tuple[str | int, ...]


def _at(fact: str, *keys: str | int) -> Place:
    return Place(fact, keys)


MODELS = (
    _at("model_name", "data", 0, "id"), _at("base_model_name", "data", 0, "root"),
    _at("max_context_tokens", "data", 0, "max_model_len"),
)  # fmt: skip
VERSION = (_at("engine_version", "version"),)
SGLANG = tuple(
    _at(fact, key)
    for fact, key in (
        ("model_name", "served_model_name"), ("model_name", "model_path"), ("base_model_name", "model_path"),
        ("engine_version", "version"), ("weight_dtype", "dtype"), ("quantization", "quantization"),
        ("kv_dtype", "kv_cache_dtype"), ("tensor_parallel", "tp_size"), ("tensor_parallel", "tp"),
        ("data_parallel", "dp_size"), ("data_parallel", "dp"), ("pipeline_parallel", "pp_size"),
        ("max_sequences", "max_running_requests"), ("max_context_tokens", "context_length"),
        ("max_batched_tokens", "chunked_prefill_size"), ("block_tokens", "page_size"),
        ("attention_backend", "attention_backend"), ("moe_backend", "moe_runner_backend"),
        ("speculative_method", "speculative_algorithm"), ("speculative_tokens", "speculative_num_draft_tokens"),
    )
)  # fmt: skip
LLAMA_CPP = (
    _at("model_name", "model_alias"), _at("model_name", "model_path"), _at("engine_version", "build_info"),
    _at("max_sequences", "total_slots"), _at("max_context_tokens", "default_generation_settings", "n_ctx"),
)  # fmt: skip
TGI = (
    _at("model_name", "model_id"), _at("engine_version", "version"), _at("weight_dtype", "model_dtype"),
    _at("max_context_tokens", "max_total_tokens"), _at("device", "model_device_type"),
)  # fmt: skip
# By engine, the paths to ask, the first that tells a fact is taken.
ASKED: Mapping[str, Mapping[str, tuple[Place, ...]]] = {
    "vllm": {"/v1/models": MODELS, "/version": VERSION},
    "sglang": {"/server_info": SGLANG, "/get_server_info": SGLANG, "/v1/models": MODELS},
    "tensorrt-llm": {"/v1/models": MODELS, "/version": VERSION},
    "llama.cpp": {"/props": LLAMA_CPP, "/v1/models": MODELS},
    "tgi": {"/info": TGI},
}
NAMED_BY_ITS_FILE = (".gguf", ".safetensors", ".bin")


def facts_from(answers: Mapping[str, str], engine: str) -> dict[str, Any]:
    """The facts in ``answers`` (texts by path) of an engine called ``engine``; anything may stand there."""
    found: dict[str, Any] = {}
    for path, places in ASKED.get(engine, {}).items():
        data = _read(answers.get(path))
        for place in places:
            value = _value(data, place)
            if place.fact not in found and value is not None:
                found[place.fact] = value
        if engine == "sglang" and path != "/v1/models" and (tokens := _pool_tokens(data)) is not None:
            found.setdefault("kv_blocks", tokens // found.get("block_tokens", 1))
            found.setdefault("block_tokens", 1)
    if found.get("base_model_name") == found.get("model_name"):
        found.pop("base_model_name", None)
    return found


def _read(text: str | None) -> Any:
    """The answer, None for what is no JSON; Python reads NaN, numbers of any length and deep nesting too."""
    if not text or len(text) > MOST_BYTES:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _value(data: Any, place: Place) -> Any:
    """What stands there, as it may be kept; None where nothing does."""
    for key in place.keys:
        inside = isinstance(data, Mapping) if isinstance(key, str) else isinstance(data, list) and key < len(data)
        data = (data.get(key) if isinstance(data, Mapping) else data[key]) if inside else None
    if isinstance(data, str):
        data = _name(data) if place.fact.endswith("model_name") else word(data)
        if not data or data.casefold() in ("auto", "none", "null"):
            return None
    return data if data is not None and fits(place.fact, _ANNOTATIONS[place.fact], data) else None


def _name(text: str) -> str | None:
    """A model's name without folders, organisation and the ending of its file."""
    last = text.rstrip("/").replace("\\", "/").rpartition("/")[2]
    for ending in NAMED_BY_ITS_FILE:
        last = last.removesuffix(ending)
    return last if last.isprintable() and len(last) < 200 else None


def _pool_tokens(data: Any) -> int | None:
    """Tokens that SGLang's KV pool holds: of one scheduler, all of them say the same."""
    if not isinstance(data, Mapping):
        return None
    states = data.get("internal_states")
    inner = states[0] if isinstance(states, list) and states and isinstance(states[0], Mapping) else {}
    for told in (data.get("max_total_num_tokens"), inner.get("max_total_num_tokens")):
        if told is not None and fits("kv_blocks", "int | None", told):
            return int(told) or None
    return None
