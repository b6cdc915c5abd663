"""How the libraries that describe each tensor write their formats down: torchao and AMD Quark."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rooflens.analyzer.number_formats import normalise
from rooflens.analyzer.quantization_schemes import (
    CHANNEL_SCALE_BYTES,
    INT8_CHANNEL,
    Read,
    four_bit_float,
    group_size,
    integer,
    integers,
    refused,
    text,
)
from rooflens.arch_records import FormatRule, StoredFormat


def torchao(stated: Mapping[str, Any], fields: Mapping[str, Any]) -> Read:
    """torchao: one configuration for all linear layers, or one for each module that it names."""
    kind = stated.get("quant_type")
    kind = kind.get("default", kind) if isinstance(kind, dict) else kind
    data = kind.get("_data") if isinstance(kind, dict) else stated.get("quant_type_kwargs")
    data = data if isinstance(data, dict) else {}
    by_name = data.get("module_fqn_to_config")
    if isinstance(by_name, dict):
        rules = tuple(FormatRule(str(n), _ao_format(p)) for n, p in by_name.items() if n != "_default")
        return Read(_ao_format(by_name.get("_default")), rules)
    return Read(_ao_format(kind if isinstance(kind, dict) else {"_type": kind, "_data": data}))


def _ao_format(part: Any) -> StoredFormat | None:
    """One torchao configuration by the words in its name."""
    if part is None:
        return None
    name = re.sub(r"[^a-z0-9]", "", text(part, "_type").lower()) if isinstance(part, dict) else ""
    data = part.get("_data") if isinstance(part, dict) else None
    group = integer(data if isinstance(data, dict) else {}, "group_size")
    if "int4weight" in name:
        narrow = "fp8" if "float8dynamic" in name else "int8" if "int8dynamic" in name else ""
        return integers(4, group or 128, zeros=False, nested=4.0, activations=narrow)
    if "float8" in name:
        return StoredFormat("fp8-weights" if "dynamic" not in name and "static" not in name else "fp8", 1.0)
    if "int8dynamicactivationint8weight" in name:
        return StoredFormat("int8", 1.0, row_bytes=CHANNEL_SCALE_BYTES)
    if "int8weight" in name:
        return INT8_CHANNEL
    if "nvfp4" in name:
        return four_bit_float(16, "fp4", "quant_type")
    if ("mx" in name and "float4" in name) or "mxfp4" in name:
        return four_bit_float(32, "fp4", "quant_type")
    raise refused("quant_type", name or type(part).__name__)


def quark(stated: Mapping[str, Any], fields: Mapping[str, Any]) -> Read:
    """AMD Quark: a global configuration, and others for modules by glob."""
    whole = stated.get("global_quant_config")
    if not isinstance(whole, dict):
        raise refused("global_quant_config", type(whole).__name__)
    by_name = stated.get("layer_quant_config")
    rules = [FormatRule(str(n), _quark_format(p)) for n, p in by_name.items()] if isinstance(by_name, dict) else []
    return Read(_quark_format(whole), tuple(rules))


def _quark_format(part: Any) -> StoredFormat | None:
    weight = part.get("weight") if isinstance(part, dict) else None
    if weight is None:
        return None
    if isinstance(weight, list):  # scales quantised once more: the first is that of the elements
        weight = weight[-1] if weight else None
    inputs = part.get("input_tensors")
    inputs = inputs[-1] if isinstance(inputs, list) and inputs else inputs
    if not isinstance(weight, dict):
        raise refused("global_quant_config", type(weight).__name__)
    narrow = _quark_kind(inputs) if isinstance(inputs, dict) else ""
    kind, group = _quark_kind(weight), group_size(weight, "group_size")
    grouped = "group" in text(weight, "qscheme")
    if kind == "fp4":
        return four_bit_float(group or 32, narrow, "global_quant_config")
    if kind == "fp8":
        row_bytes = CHANNEL_SCALE_BYTES if "channel" in text(weight, "qscheme") else 0
        return StoredFormat("fp8" if narrow else "fp8-weights", 1.0, row_bytes=row_bytes)
    if kind == "fp6":
        return StoredFormat("mxfp6", 0.75 + 1 / 32)
    if kind in ("int4", "int8"):
        zeros = weight.get("symmetric", True) is False
        return integers(int(kind[3:]), group if grouped else None, zeros, narrow)
    raise refused("global_quant_config", text(weight, "dtype"))


def _quark_kind(tensor: Mapping[str, Any]) -> str:
    name = normalise(text(tensor, "dtype"))
    kinds = (("fp8", "fp8"), ("fp4", "fp4"), ("nvfp4", "fp4"), ("fp6", "fp6"), ("int8", "int8"), ("int4", "int4"),
             ("uint4", "int4"))  # fmt: skip
    return next((kind for start, kind in kinds if name.startswith(start)), "")
