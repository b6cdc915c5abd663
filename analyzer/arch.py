"""ModelArch from a Hugging Face config.json or from the shipped table, by what the fields say and never by a name."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from rooflens.analyzer.config_fields import NESTED, refuse_unmodelled, required, shown, size
from rooflens.analyzer.precision import PLAIN, normalise, stated_formats
from rooflens.analyzer.small_file import small_text
from rooflens.analyzer.suggest import did_you_mean
from rooflens.arch_records import Attention, DenseMLP, Layer, ModelArch
from rooflens.records import RooflensError

GATED_ACTIVATIONS = ("silu", "swish", "swiglu", "geglu", "reglu")
PLAIN_ACTIVATIONS = ("relu", "relu2", "gelu_new", "gelu_fast")
# GELU stands in gated and plain blocks alike; where no field tells, the declared architecture does.
GATED_TYPES = ("gemma", "gemma2", "gemma3", "gemma3_text", "gemma4_text")
SILU_TYPES = (
    "llama", "mistral", "mistral3", "ministral", "qwen2", "qwen3", "phi3", "cohere", "granite", "olmo2", "internlm2",
    "internlm3", "baichuan", "smollm3", "stablelm",
)  # fmt: skip
PLAIN_TYPES = ("gpt_neox", "phi", "starcoder2", "falcon", "opt", "gpt2", "gpt_bigcode", "bloom", "gptj", "codegen")

# What a multimodal config may say outside its nested language model.
OUTER = ("tie_word_embeddings", "quantization_config", "torch_dtype", "dtype")


def find_model(name: str, read_quantization: bool = True) -> ModelArch:
    """The model ``name``: an id of the shipped table, its Hugging Face id, or the path of a config.json or its folder.

    Raises RooflensError in one line. ``read_quantization=False`` ignores what the files say about formats.
    """
    wanted = name.strip().casefold()
    for row in known_models():
        if wanted in (row["id"].casefold(), row["hf_id"].casefold()):
            return arch_from_config(row["config"], row["id"], read_quantization)
    path = Path(name)
    if name.endswith(".json") or _exists(path):
        return arch_from_file(path / "config.json" if path.is_dir() else path, read_quantization)
    names = {n: str(row["id"]) for row in known_models() for n in (row["id"], row["hf_id"])}
    ids = ", ".join(row["id"] for row in known_models())
    raise RooflensError(
        f"unknown model {name[:80]!r}{did_you_mean(name, names)}; give the path of its config.json, or one of: {ids}"
    )


@cache
def known_models() -> tuple[Mapping[str, Any], ...]:
    """The shipped rows: id, hf_id, source, source_kind and config each."""
    file = files("rooflens.analyzer") / "data" / "models.json"
    return tuple(json.loads(file.read_text(encoding="utf-8"))["models"])


def arch_from_file(path: Path, read_quantization: bool = True) -> ModelArch:
    """The model of a config.json; a hf_quant_config.json beside it is read for its formats."""
    config = read_json(path)
    beside = path.with_name("hf_quant_config.json")
    if isinstance(config, dict) and "quantization_config" not in config and _exists(beside):
        quantization = read_json(beside)
        stated = quantization.get("quantization") if isinstance(quantization, dict) else None
        config = {**config, "quantization_config": stated}
    try:
        return arch_from_config(config, path.parent.name or path.name, read_quantization)
    except RooflensError as error:
        raise RooflensError(f"{path}: {error}") from error


def arch_from_config(config: Any, name: str = "model", read_quantization: bool = True) -> ModelArch:
    """The model that the dict of a config.json describes.

    Raises RooflensError, one line naming the field, for anything missing, absurd or not modelled yet; nothing
    else is raised, whatever ``config`` is.
    """
    if not isinstance(config, dict):
        raise RooflensError(f"config is {shown(config)}, not an object of fields")
    fields = _language_fields(config)
    refuse_unmodelled(fields)
    weight_format, kv_format = None, None
    if read_quantization and fields.get("quantization_config") is not None:
        weight_format, kv_format = stated_formats(fields["quantization_config"])
    hidden = required(fields, "hidden_size")
    layer = _layer(fields, hidden)
    stated = fields.get("torch_dtype") is not None or fields.get("dtype") is not None
    return ModelArch(
        name=name,
        hidden_size=hidden,
        vocab_size=required(fields, "vocab_size"),
        tied_head=_flag(fields, "tie_word_embeddings", default=True),  # transformers writes it only where false
        layers=(layer,),
        activation_format=_activation_format(fields),
        weight_format=weight_format,
        kv_format=kv_format,
        max_context_tokens=size(fields, "max_context_tokens"),
        source="config.json",
        activation_assumed=not stated,
        assumptions=tuple(_assumptions(fields)),
    )


def _language_fields(config: dict[str, Any]) -> dict[str, Any]:
    """The language model's fields, flat: a nested part wins over the outer one, the vision tower is left out."""
    for key in NESTED:
        if key in config:
            if not isinstance(config[key], dict):
                raise RooflensError(f"config field {key} is {shown(config[key])}, not an object of fields")
            return {**{k: config[k] for k in OUTER if k in config}, **config[key]}
    return config


def _layer(fields: Mapping[str, Any], hidden: int) -> Layer:
    heads = required(fields, "heads")
    kv_heads = _kv_heads(fields, heads)
    if heads % kv_heads:
        raise RooflensError(f"config has {heads} attention heads, not a multiple of its {kv_heads} KV heads")
    head_dim = size(fields, "head_dim")
    if head_dim is None:
        if hidden % heads:
            raise RooflensError(f"config has no head_dim and hidden_size {hidden} is no multiple of its {heads} heads")
        head_dim = hidden // heads
    intermediate = size(fields, "intermediate_size")
    if intermediate is None:
        if not _four_times_by_default(fields):
            required(fields, "intermediate_size")
        intermediate = 4 * hidden
    return Layer(
        count=required(fields, "layers"),
        mixer=Attention(heads, kv_heads, head_dim, head_dim),
        mlp=DenseMLP(intermediate, _gated(fields)),
    )


def _kv_heads(fields: Mapping[str, Any], heads: int) -> int:
    """Falcon and GPT-BigCode say multi_query, and Falcon's num_kv_heads then means nothing; else one per head."""
    if _flag(fields, "multi_query", default=False) and not _flag(fields, "new_decoder_architecture", default=False):
        return 1
    return size(fields, "kv_heads") or heads


def _four_times_by_default(fields: Mapping[str, Any]) -> bool:
    """GPT-2's n_inner and Falcon's ffn_hidden_size default to four times the width; Llama's size has no default."""
    return any(k in fields for k in ("n_embd", "n_inner", "parallel_attn", "new_decoder_architecture"))


def _gated(fields: Mapping[str, Any]) -> bool:
    """Three MLP matrices or two: by an explicit flag, the fields' family, the activation, the architecture, in turn."""
    if "mlp_gated" in fields:
        return _flag(fields, "mlp_gated", default=True)
    if any(k in fields for k in ("ffn_dim", "n_inner", "parallel_attn", "activation_function")):
        return False
    activation = _activation(fields)
    kind = fields.get("model_type")
    if activation is None and kind in SILU_TYPES:
        return True
    if activation in GATED_ACTIVATIONS:
        return True
    if activation in PLAIN_ACTIVATIONS:
        return False
    if "hidden_activation" in fields or kind in GATED_TYPES:
        return True
    if kind in PLAIN_TYPES:
        return False
    raise RooflensError(
        f"config field hidden_act is {shown(activation)}, which does not tell a gated MLP from a plain one: "
        f'add "mlp_gated": true or false'
    )


def _activation(fields: Mapping[str, Any]) -> Any:
    return fields.get("hidden_act", fields.get("hidden_activation", fields.get("activation")))


def _assumptions(fields: Mapping[str, Any]) -> Iterator[str]:
    """What the fields leave open and was taken for granted, each one sentence."""
    kind = fields.get("model_type")
    if kind is not None and kind not in (*SILU_TYPES, *GATED_TYPES, *PLAIN_TYPES):
        yield f"model_type {shown(kind)} is not known here: taken as a dense decoder by its fields"
    named = any(k in fields for k in ("mlp_gated", "activation_function", "ffn_dim", "n_inner", "parallel_attn"))
    if kind in SILU_TYPES and _activation(fields) is None and not named:
        yield f"the config states no hidden_act: a gated MLP (silu) is assumed, as in model_type {shown(kind)}"


def _flag(fields: Mapping[str, Any], name: str, default: bool) -> bool:
    value = fields.get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise RooflensError(f"config field {name} is {shown(value)}, neither true nor false")
    return value


def _activation_format(fields: Mapping[str, Any]) -> str:
    stated = fields.get("torch_dtype")
    stated = fields.get("dtype") if stated is None else stated
    if stated is None:
        return "bf16"
    found = normalise(stated) if isinstance(stated, str) else ""
    if found not in PLAIN:
        raise RooflensError(f"config field torch_dtype is {shown(stated)}: not one of bfloat16, float16, float32")
    return found


def read_json(path: Path) -> Any:
    """What the file at ``path`` says; RooflensError in one line if it cannot be read."""
    try:
        return json.loads(small_text(path))
    except (OSError, ValueError, RecursionError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise RooflensError(f"{path}: cannot be read as JSON: {reason}") from error


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):
        return False
