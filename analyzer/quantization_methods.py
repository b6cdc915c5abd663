"""How each quantisation method writes its formats down: one reader a method."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rooflens.analyzer.quantization_schemes import (
    CHANNEL_SCALE_BYTES,
    FP8_CHANNEL,
    INT8_CHANNEL,
    Read,
    Reader,
    block_fp8,
    four_bit_float,
    group_size,
    integer,
    integers,
    refused,
    scheme,
    text,
    width,
)
from rooflens.analyzer.quantization_vendors import quark, torchao
from rooflens.arch_records import FormatRule, StoredFormat
from rooflens.records import RooflensError

ACTIVATIONS = ("input_activations", "output_activations")  # a group may quantise these alone


def schemes(stated: Mapping[str, Any], fields: Mapping[str, Any]) -> Read:
    """compressed-tensors, and modelopt where it writes the same words: groups of targets, each with a scheme."""
    described = stated.get("config_groups")
    parts: dict[str, Any] = described if isinstance(described, dict) else {"weights": _flat(stated)}
    if not isinstance(described, dict) and not isinstance(stated.get("weights"), dict):
        raise refused("config_groups", described)
    found: dict[str, StoredFormat | None] = {}
    for name, part in parts.items():
        if not isinstance(part, dict):
            raise refused("config_groups", type(part).__name__)
        stored = _group(str(name), part)
        targets = part.get("targets", ["Linear"])
        for target in targets if isinstance(targets, list) and targets else [targets]:
            if not isinstance(target, str):
                raise refused(f"config_groups targets of {str(name)[:40]!r}", target)
            if found.setdefault(target, stored) != stored:
                raise refused("config_groups", f"two formats for {target}")
    if not parts:
        raise refused("config_groups", "no group at all")
    mixed = modelopt(stated, fields).rules if isinstance(stated.get("quantized_layers"), dict) else ()
    rules = tuple(FormatRule(target, stored) for target, stored in found.items() if target != "Linear")
    return Read(found.get("Linear"), (*mixed, *rules))


def _group(name: str, part: Mapping[str, Any]) -> StoredFormat | None:
    """How one group stores its weights, None where only its activations are quantised."""
    weights = part.get("weights")
    if "weights" not in part and not any(isinstance(part.get(key), dict) for key in ACTIVATIONS):
        raise RooflensError(
            f"quantization_config.config_groups says nothing of the weights of {name[:40]!r}, as where a "
            "recording cut it off: say --weights"
        )
    return scheme(weights, part.get("input_activations")) if isinstance(weights, dict) else None


def _flat(stated: Mapping[str, Any]) -> dict[str, Any]:
    """One scheme without a group; modelopt's activations are as narrow as its weights unless it says otherwise."""
    weights = stated.get("weights")
    same = weights if text(stated, "quant_method").startswith("modelopt") else None
    return {"weights": weights, "input_activations": stated.get("input_activations", same)}


def modelopt(stated: Mapping[str, Any], fields: Mapping[str, Any]) -> Read:
    """hf_quant_config.json: one algorithm for all linear layers, or one for each layer that it lists."""
    algorithm = text(stated, "quant_algo").upper()
    listed = stated.get("quantized_layers")
    rules = []
    for name, part in listed.items() if isinstance(listed, dict) else ():
        if not isinstance(part, dict):
            raise refused("quantized_layers", part)
        rules.append(FormatRule(_all_experts(str(name)), _algorithm(text(part, "quant_algo").upper(), part)))
    if algorithm in ("MIXED_PRECISION", "") and rules:
        return Read(None, tuple(dict.fromkeys(rules)))
    if not algorithm and "quant_algo" not in stated:
        raise refused("quant_algo", "nothing")
    if algorithm in ("", "NO_QUANT", "NONE"):
        return Read(None)
    return Read(_algorithm(algorithm, stated), tuple(dict.fromkeys(rules)))


def _all_experts(name: str) -> str:
    """Where experts are listed one by one, the first stands for all of them."""
    return re.sub(r"(experts)\.\d+(?=\.|$)", r"\1.0", name)


def _algorithm(name: str, part: Mapping[str, Any]) -> StoredFormat | None:
    """One of modelopt's and TensorRT-LLM's algorithms."""
    group = integer(part, "group_size") or 128
    if name in ("", "NO_QUANT", "NONE"):
        return None
    if name in ("NVFP4", "NVFP4_AWQ", "W4A4_NVFP4"):
        return four_bit_float(16, "fp4", "quant_algo")
    if name.startswith(("FP8_BLOCK", "FP8_PB")):
        return block_fp8([128, 128], "", "fp8-weights" if name.endswith("_WO") else "fp8")
    if name.startswith("FP8"):
        return FP8_CHANNEL if "PER_CHANNEL" in name else StoredFormat("fp8", 1.0)
    if name == "MXFP8":
        return StoredFormat("mxfp8", 1.0 + 1 / 32)
    if "FP4" in name:
        activations = "" if name.startswith("W4A16") else "fp8" if name.startswith("W4A8") else "fp4"
        return four_bit_float(32 if "MXFP4" in name else 16, activations, "quant_algo")
    if name.startswith(("W4A16", "INT4")):
        return integers(4, group, zeros=False)
    if name.startswith("W4A8"):
        return integers(4, group, zeros=False, activations="int8" if "QSERVE" in name else "fp8")
    if name.startswith("W8A16"):
        return INT8_CHANNEL
    if name.startswith(("W8A8_SQ", "INT8")):
        return StoredFormat("int8", 1.0, row_bytes=CHANNEL_SCALE_BYTES)
    raise refused("quant_algo", name)


def _fp8(stated: Mapping[str, Any], fields: Mapping[str, Any]) -> Read:
    return Read(block_fp8(stated.get("weight_block_size"), text(stated, "scale_fmt")))


def _awq(stated: Mapping[str, Any], fields: Mapping[str, Any]) -> Read:
    zeros = stated.get("zero_point", True) is not False
    return Read(integers(width(stated, "bits", "w_bit"), group_size(stated, "group_size", "q_group_size"), zeros))


def _gptq(stated: Mapping[str, Any], fields: Mapping[str, Any]) -> Read:
    """GPTQ and GPTQModel: ``dynamic`` names modules by ``-:`` (left alone) and ``+:`` (in another format)."""
    zeros = stated.get("sym", True) is False
    bits, group = width(stated, "bits", "w_bit"), group_size(stated, "group_size")
    stored = integers(bits, group, zeros)
    if stated.get("desc_act") is True:  # the order of the inputs, an int32 each
        stored = StoredFormat(stored.name, stored.bytes_per_element, stored.row_bytes, 4.0)
    rules = [FormatRule("lm_head", stored)] if stated.get("lm_head") is True else []
    dynamic = stated.get("dynamic")
    for pattern, part in dynamic.items() if isinstance(dynamic, dict) else ():
        name = str(pattern)
        if name.startswith("-:"):
            rules.append(FormatRule("re:" + name[2:], None))
        elif isinstance(part, dict):
            own = integers(integer(part, "bits") or bits, group_size(part, "group_size") or group, zeros)
            rules.append(FormatRule("re:" + name.removeprefix("+:"), own))
    return Read(stored, tuple(rules))


def _auto_round(stated: Mapping[str, Any], fields: Mapping[str, Any]) -> Read:
    """AutoRound: ``extra_config`` gives single modules other bits; 16 and more are left alone."""
    if text(stated, "data_type").lower().startswith(("nv_fp", "mx_fp", "fp")):
        return Read(_rounded(stated), _extra(stated))
    return Read(_auto_integers(stated, stated), _extra(stated))


def _extra(stated: Mapping[str, Any]) -> tuple[FormatRule, ...]:
    extra = stated.get("extra_config")
    rules = []
    for name, part in extra.items() if isinstance(extra, dict) else ():
        if isinstance(part, dict):
            bits = integer(part, "bits")
            rules.append(FormatRule(str(name), None if bits and bits >= 16 else _auto_integers(part, stated)))
    return tuple(rules)


def _auto_integers(part: Mapping[str, Any], stated: Mapping[str, Any]) -> StoredFormat:
    both = {**stated, **part}
    return integers(width(both, "bits"), group_size(both, "group_size"), both.get("sym", True) is False)


def _rounded(stated: Mapping[str, Any]) -> StoredFormat:
    bits, kind = integer(stated, "bits"), text(stated, "data_type").lower()
    act = integer(stated, "act_bits") or 16
    if bits == 4:
        return four_bit_float(16 if kind.startswith("nv") else 32, {4: "fp4", 8: "fp8"}.get(act, ""), "data_type")
    if bits == 8 and kind.startswith("mx"):
        return StoredFormat("mxfp8", 1.0 + 1 / 32)
    if bits == 8:
        return StoredFormat("fp8" if act == 8 else "fp8-weights", 1.0)
    raise refused("data_type", kind)


def _bitsandbytes(stated: Mapping[str, Any], fields: Mapping[str, Any]) -> Read:
    """4 bit with an fp32 scale for 64, nested: 8 bit, and an fp32 one for 256 of those; 8 bit with one for each row."""
    if stated.get("load_in_4bit") is True or stated.get("_load_in_4bit") is True:
        nested = stated.get("bnb_4bit_use_double_quant") is True
        return Read(StoredFormat("nf4", 0.5 + ((1 + 4 / 256) if nested else 4) / 64))
    if stated.get("load_in_8bit") is True or stated.get("_load_in_8bit") is True:
        return Read(StoredFormat("int8", 1.0, row_bytes=CHANNEL_SCALE_BYTES))
    raise refused("load_in_4bit", "neither 4 nor 8 bit")


def _hqq(stated: Mapping[str, Any], fields: Mapping[str, Any]) -> Read:
    """A 16-bit scale and a 16-bit zero point for each group."""
    config = stated.get("quant_config")
    part = config.get("weight_quant_params") if isinstance(config, dict) else stated
    part = part if isinstance(part, dict) else stated
    return Read(integers(width(part, "nbits", "bits"), group_size(part, "group_size") or 64, zeros=False, nested=4.0))


def _words(stated: Mapping[str, Any], fields: Mapping[str, Any]) -> Read:
    """quanto and eetq say their format in one word."""
    word = text(stated, "weights") or "int8"
    if word in ("float8", "float8_e4m3fn", "fp8"):
        return Read(StoredFormat("fp8-weights", 1.0))
    if word in ("int8", "int4", "int2"):
        return Read(INT8_CHANNEL if word == "int8" else integers(int(word[3:]), 128, zeros=False))
    raise refused("weights", word)


def _fp_quant(stated: Mapping[str, Any], fields: Mapping[str, Any]) -> Read:
    name = text(stated, "forward_dtype").lower()
    if name not in ("nvfp4", "mxfp4"):
        raise refused("forward_dtype", name)
    return Read(four_bit_float(16 if name == "nvfp4" else 32, "fp4", "forward_dtype"))


def _by_file(stated: Mapping[str, Any], fields: Mapping[str, Any]) -> Read:
    raise RooflensError("quantization_config says gguf, whose formats are in the file itself: name the .gguf file")


def _always(stored: StoredFormat) -> Reader:
    return lambda stated, fields: Read(stored)


def _experts(stored: StoredFormat) -> Reader:
    return lambda stated, fields: Read(None, (FormatRule("experts", stored),))


METHODS: Mapping[str, Reader] = {
    "compressed-tensors": schemes,
    "modelopt": modelopt,
    "fp8": _fp8,
    "awq": _awq,
    "gptq": _gptq,
    "auto-round": _auto_round,
    "bitsandbytes": _bitsandbytes,
    "hqq": _hqq,
    "torchao": torchao,
    "quark": quark,
    "quanto": _words,
    "eetq": _words,
    "fp_quant": _fp_quant,
    "gguf": _by_file,
    "fbgemm_fp8": _always(FP8_CHANNEL),
    "ptpc_fp8": _always(FP8_CHANNEL),
    "mxfp8": _always(StoredFormat("mxfp8", 1.0 + 1 / 32)),
    "nvfp4": _always(StoredFormat("nvfp4", 0.5 + 1 / 16)),
    "bitnet": _always(StoredFormat("int2", 0.25)),
    "mxfp4": _experts(StoredFormat("mxfp4", 0.5 + 1 / 32)),  # gpt-oss: experts alone
    "experts_int8": _experts(INT8_CHANNEL),
}
