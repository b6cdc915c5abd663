"""A whole model out of its config.json: the language model's fields, its layers, and what stands beside them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rooflens.analyzer.architecture.blocks import all_places
from rooflens.analyzer.architecture.defaults import with_defaults
from rooflens.analyzer.architecture.extras import (
    crosses,
    encoder,
    encoder_table,
    gathered,
    has_encoder,
    mtp,
    residual_elements,
    tied_head,
)
from rooflens.analyzer.architecture.gating import assumed_gated
from rooflens.analyzer.architecture.layers import Stack, stack
from rooflens.analyzer.architecture.numbers import stated
from rooflens.analyzer.architecture.tied import TIED_BY_DEFAULT, UNTIED_BY_DEFAULT
from rooflens.analyzer.architecture.towers import TOWERS, UNCOUNTED, vision_elements
from rooflens.analyzer.architecture.unknown import unknown_fields
from rooflens.analyzer.config_fields import NESTED, required, shown, size
from rooflens.analyzer.precision import PLAIN, normalise
from rooflens.arch_records import ModelArch
from rooflens.records import RooflensError

# What a multimodal config may say outside its nested language model.
DECODER = {
    "num_attention_heads": "decoder_attention_heads",
    "intermediate_size": "decoder_ffn_dim",
    "num_hidden_layers": "decoder_layers",
}
RARER = {
    "num_decoder_layers": "num_hidden_layers", "num_attention_groups": "num_key_value_heads",
    "n_kv_heads": "num_key_value_heads", "block_ff_dim": "intermediate_size", "n_embed": "hidden_size",
    "num_sliding_attention_heads": "swa_num_attention_heads",
}  # fmt: skip
WINDOWS = ("sliding_window", "sliding_window_size", "window_size", "attention_window_size")
BY_MODALITY = ("moe_num_experts", "moe_intermediate_size", "moe_layer_start_index", "moe_layer_end_index")
DTYPES = ("dtype", "torch_dtype")  # transformers believes the first where both are there
OUTER = ("tie_word_embeddings", "quantization_config", "torch_dtype", "dtype")


def model(config: Mapping[str, Any], name: str) -> ModelArch:
    """The model that the fields of a config.json describe, without what they say of formats.

    Raises RooflensError, one line naming the field, for anything missing, absurd or contradictory.
    """
    fields, defaulted = language_fields(config)
    _refuse_loops(fields)
    hidden = required(fields, "hidden_size")
    shape = all_places(fields)
    decoder = stack(fields, shape, cross=crosses(config))
    before = encoder(config)
    ahead, joined = mtp(fields, decoder, shape)
    tied, tie_assumed = tied_head(fields)
    vision, uncounted = vision_elements(config, hidden)
    table, row = gathered(fields)
    table += encoder_table(config)
    return ModelArch(
        name=name,
        hidden_size=hidden,
        vocab_size=required(fields, "vocab_size"),
        tied_head=tied,
        layers=decoder.layers,
        order=decoder.order,
        activation_format=activation_format(fields),
        max_context_tokens=size(fields, "max_context_tokens"),
        source="config.json",
        activation_assumed=fields.get("torch_dtype") is None and fields.get("dtype") is None,
        assumptions=(*_assumptions(fields, tie_assumed), *defaulted),
        unknown=(*decoder.unknown, *before.unknown, *uncounted, *_unread(config, fields), *_unused(fields, decoder)),
        encoder=before.layers,
        mtp=ahead,
        mtp_elements=joined,
        vision_elements=vision,
        gathered_elements=table,
        gathered_row_elements=row,
        residual_elements=residual_elements(fields) + (hidden if before.layers else 0),
    )


def language_fields(config: Mapping[str, Any]) -> tuple[Mapping[str, Any], tuple[str, ...]]:
    """The language model's fields, flat, and what defaults of its declared type were taken, in words.

    A nested part wins over the outer one, but for the head, which is the whole model's; the towers are left out.
    An encoder-decoder's nested decoder is taken.
    """
    for key in NESTED:
        if config.get(key) is not None:
            nested = config[key]
            if not isinstance(nested, dict):
                raise RooflensError(f"config field {key} is {shown(nested)}, not an object of fields")
            inner = _deeper(nested)
            outer = {k: config[k] for k in OUTER if config.get(k) is not None}
            merged = {**outer, **_stated(inner), **{k: v for k, v in outer.items() if k == "tie_word_embeddings"}}
            return with_defaults(_coherent(merged))
    return _coherent(config), ()


def _deeper(nested: Mapping[str, Any]) -> Mapping[str, Any]:
    """Omni models keep the language model one level further in."""
    inner = nested.get("text_config")
    return inner if isinstance(inner, dict) else nested


def _stated(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """The nested fields without a dtype that is null, which says nothing where the outer one is set."""
    return {k: v for k, v in fields.items() if not (k in OUTER and v is None)}


def _coherent(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """The fields under their common names: an encoder-decoder's decoder, rarer spellings, switched-off windows.

    ERNIE 4.5 VL states its experts for text and for images: those of text are taken.
    """
    kind = fields.get("model_type")
    if kind is not None and not isinstance(kind, str):
        raise RooflensError(f"config field model_type is {shown(kind)}, not a name")
    own = {new: fields[old] for new, old in DECODER.items() if fields.get(old) is not None}
    rarer = {new: fields[old] for old, new in RARER.items() if fields.get(old) is not None and fields.get(new) is None}
    off = {name: None for name in WINDOWS if fields.get(name) in (-1, 0)}
    _refuse_no_window(fields, off)
    pairs = {name: fields[name][0] for name in BY_MODALITY if _is_pair(fields.get(name))}
    changed = {**own, **rarer, **off, **pairs}
    return {**fields, **changed} if changed else fields


def _refuse_no_window(fields: Mapping[str, Any], off: Mapping[str, None]) -> None:
    """A window of 0 or -1 is none, unless the fields say beside it that there is one."""
    kinds = fields.get("layer_types")
    listed = isinstance(kinds, list) and "sliding_attention" in kinds and fields.get("use_sliding_window") is not False
    if off and (listed or fields.get("use_sliding_window") is True):
        name, where = next(iter(off)), "layer_types" if listed else "use_sliding_window"
        raise RooflensError(f"config field {name} is {fields[name]}, and {where} says that there is a window")


def _is_pair(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2


def _pairs(fields: Mapping[str, Any]) -> Iterator[str]:
    """What is left out of fields that state a value for text and one for images."""
    for name in BY_MODALITY:
        if _is_pair(fields.get(name)):
            yield f"config field {name} has a value for another modality, whose experts are not counted"


def _unread(config: Mapping[str, Any], fields: Mapping[str, Any]) -> Iterator[str]:
    """What the fields say and nothing here reads, a sentence each."""
    stated = next((config[key] for key in NESTED if isinstance(config.get(key), dict)), config)
    yield from unknown_fields(fields)
    yield from _pairs(_deeper(stated))
    width, hidden = stated_width(fields), required(fields, "hidden_size")
    if width is not None and width != hidden:
        yield f"the embedding is {width} wide and the layers {hidden}: it is counted as wide as the layers"
    if has_encoder(config) and not crosses(config):
        yield "the decoder's attention reads the encoder's output too, which is not counted"
    for name in ("attention_gate_type", "swa_attention_gate_type"):
        if fields.get(name) is not None:
            yield f"config field {name!r} says a gate on the output of attention, which is not counted"
    if fields.get("model_type") == "jetmoe":
        yield "attention is chosen among experts too: it is counted once for each layer"
    for name, value in config.items():
        if isinstance(name, str) and isinstance(value, dict) and _is_other_part(name, value):
            yield f"config field {name[:60]} describes a part that is not counted"


def _unused(fields: Mapping[str, Any], decoder: Stack) -> Iterator[str]:
    """An indexer that the fields describe and that no layer has: attention would be counted over everything."""
    chosen = any(getattr(layer.mixer, "indexer", None) is not None for layer in decoder.layers)
    for name in ("index_topk", "indexer_budget", "index_topk_blocks"):
        if fields.get(name) is not None and not chosen:
            yield f"config field {name} says that attention reads chosen tokens, and it is counted over all of them"


def _refuse_loops(fields: Mapping[str, Any]) -> None:
    """HRM runs two stacks of layers several times a pass: weights are read once, and its depth counts the runs."""
    for name in ("num_layers_per_stack", "H_cycles"):
        if fields.get(name) is not None:
            raise RooflensError(
                f"config field {name} says that layers run several times a pass, which is not modelled yet"
            )


def stated_width(fields: Mapping[str, Any]) -> int | None:
    """The width of an embedding that has one of its own (OPT 350M)."""
    return stated(fields, "word_embed_proj_dim", "input_embedding_size", "embedding_size")


def _is_other_part(name: str, value: Mapping[str, Any]) -> bool:
    """A nested model that is neither the language model nor a tower known here."""
    sized = any(key in value for key in ("hidden_size", "num_hidden_layers", "d_model", "num_layers"))
    return name.endswith("_config") and sized and name not in (*NESTED, *TOWERS, *UNCOUNTED)


def _assumptions(fields: Mapping[str, Any], tie_assumed: str | None) -> Iterator[str]:
    """What the fields leave open and was taken for granted, each one sentence."""
    kind = fields.get("model_type")
    if kind is not None and kind not in TIED_BY_DEFAULT and kind not in UNTIED_BY_DEFAULT:
        yield f"model_type {shown(kind)} is not known here: taken as its fields describe it"
    gating = assumed_gated(fields)
    if gating is not None:
        yield gating
    if tie_assumed is not None:
        yield tie_assumed
    newer, older = (fields.get(name) for name in DTYPES)
    if newer is not None and older is not None and newer != older:
        yield f"config fields say dtype {shown(newer)} and torch_dtype {shown(older)}: the first is taken"


def activation_format(fields: Mapping[str, Any]) -> str:
    """What activations and unquantised tensors use; bf16 where no field says it."""
    name = next((name for name in DTYPES if fields.get(name) is not None), None)
    if name is None:
        return "bf16"
    stated = fields[name]
    found = normalise(stated) if isinstance(stated, str) else ""
    if found not in PLAIN:
        raise RooflensError(f"config field {name} is {shown(stated)}: not one of bfloat16, float16, float32")
    return found
