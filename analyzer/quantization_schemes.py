"""One scheme of weights and activations as a stored format, and the fields of a quantization_config read with care."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rooflens.arch_records import FormatRule, StoredFormat
from rooflens.records import RooflensError

# The lists under which methods keep the modules that they leave alone.
IGNORED = ("ignore", "ignored_layers", "exclude_modules", "modules_to_not_convert", "llm_int8_skip_modules",
           "skip_modules", "exclude", "ignored_modules")  # fmt: skip
SCALE_BYTES = 2  # a scale beside integer weights: 16 bit in AWQ, GPTQ and compressed-tensors
CHANNEL_SCALE_BYTES = 4  # fp32, as fbgemm and the engines keep it
INTEGERS = {2: "int2", 3: "int3", 4: "int4", 6: "int6", 8: "int8-weights"}
GROUPED = {(4, 64): "int4-g64", (4, 32): "int4-g32"}
FP8_CHANNEL = StoredFormat("fp8", 1.0, row_bytes=CHANNEL_SCALE_BYTES)
INT8_CHANNEL = StoredFormat("int8-weights", 1.0, row_bytes=CHANNEL_SCALE_BYTES)


@dataclass(frozen=True, slots=True)
class Read:
    """What a method says: the format of linear layers, and of those that it names.

    ``keeps_ignored``: modules that it ignores keep the format of another method instead of 16 bit.
    """

    default: StoredFormat | None
    rules: tuple[FormatRule, ...] = ()
    keeps_ignored: bool = False


Reader = Callable[[Mapping[str, Any], Mapping[str, Any]], Read]  # quantization_config, the whole config


def text(part: Mapping[str, Any], name: str) -> str:
    """The string field ``name``, "" for anything else."""
    value = part.get(name)
    return value if isinstance(value, str) else ""


def integer(part: Mapping[str, Any], *keys: str) -> int | None:
    """The first of the fields that is a whole number within sense."""
    for name in keys:
        value = part.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= 1 << 20:
            return value
    return None


def width(part: Mapping[str, Any], *keys: str) -> int:
    """The bits of a weight that the first of the fields states; RooflensError that repeats what is no whole number."""
    found = integer(part, *keys)
    if found is None:
        raise refused(keys[0], next((part[key] for key in keys if part.get(key) is not None), None))
    return found


def group_size(part: Mapping[str, Any], *keys: str) -> int | None:
    """How many inputs share a scale, by the first of the fields that says so: -1 for all, None where none does.

    RooflensError for anything else, which no method gives a meaning.
    """
    name = next((key for key in keys if part.get(key) is not None), None)
    if name is None:
        return None
    value = part[name]
    if isinstance(value, bool) or not isinstance(value, int) or not (value == -1 or 1 <= value <= 1 << 20):
        raise refused(name, value)
    return value


def names(part: Mapping[str, Any], keys: tuple[str, ...]) -> list[str]:
    """All strings of the lists under ``keys``; RooflensError for what is no list of names."""
    found: list[str] = []
    for key in keys:
        listed = part.get(key) or []
        odd = next((name for name in listed if not isinstance(name, str)), ...) if isinstance(listed, list) else listed
        if odd is not ...:
            raise refused(key, "null among its names" if odd is None else odd)
        found += [name for name in listed if name]
    return found


def refused(field: str, what: object) -> RooflensError:
    """That a field of quantization_config says what is not understood; None is that it says nothing."""
    if what is None:
        return RooflensError(f"quantization_config.{field} is missing: say --weights and --kv")
    return RooflensError(f"quantization_config.{field} says {str(what)[:40]!r}, not understood: say --weights and --kv")


def integers(bits: int, group: int | None, zeros: bool, activations: str = "", nested: float = 0.0) -> StoredFormat:
    """Integer weights of ``bits`` with a 16-bit scale, and a zero point of ``bits`` if ``zeros``, for ``group`` inputs.

    No group, or one below 1, is a scale for each output row. ``activations``: "fp8" or "int8" where they are narrow
    too; ``nested``: other bytes of a scale.
    """
    name = INTEGERS.get(bits)
    if name is None:
        raise refused("bits", bits)
    scale = (nested or SCALE_BYTES) + (bits / 8 if zeros else 0.0)
    name = GROUPED.get((bits, group or 0), name)
    if activations:
        pair = {(4, "fp8"): "int4-fp8", (4, "int8"): "int4-int8", (8, "int8"): "int8"}
        name = pair.get((bits, activations), name)
    if group is None or group < 1:
        return StoredFormat(name, bits / 8, row_bytes=scale)
    return StoredFormat(name, bits / 8 + scale / group)


def block_fp8(block: Any, scale_format: str, name: str = "fp8") -> StoredFormat:
    """fp8 with an fp32 scale (one byte in ue8m0) for a block, [128, 128] in DeepSeek V3; None is one for a tensor."""
    if block is None:
        return StoredFormat(name, 1.0)
    if not isinstance(block, list) or len(block) != 2 or not all(_side(side) for side in block):
        raise refused("weight_block_size", block)
    scale = 1 if scale_format.lower() in ("ue8m0", "e8m0") else 4
    return StoredFormat(name, 1.0 + scale / (block[0] * block[1]))


def _side(side: Any) -> bool:
    return isinstance(side, int) and not isinstance(side, bool) and 1 <= side <= 1 << 20


def scheme(weights: Mapping[str, Any], activations: Any, field: str = "config_groups") -> StoredFormat:
    """One scheme in the words of compressed-tensors; ``activations`` None: weights alone are narrow."""
    bits, kind = width(weights, "num_bits", "bits"), (text(weights, "type") or "int").lower()
    group, strategy = group_size(weights, "group_size"), text(weights, "strategy").lower()
    narrow = _narrow(activations)
    if kind == "int":
        grouped = group if strategy in ("", "group", "tensor_group") else None
        return integers(bits, grouped, weights.get("symmetric", True) is False, narrow)
    if kind == "float" and bits == 8:
        return _float8(weights, group, strategy, "fp8" if narrow else "fp8-weights")
    if kind == "float" and bits == 4:
        return four_bit_float(16 if group is None else group, narrow, field)
    raise refused(field, f"{bits} bits of {kind}")


def four_bit_float(group: int, activations: str, field: str) -> StoredFormat:
    """NVFP4 (an fp8 scale for 16) or MXFP4 (an e8m0 one for 32) beside activations "fp4", "fp8" or "" (16 bit)."""
    if group not in (16, 32):
        raise refused(field, f"fp4 in groups of {group}")
    name = "nvfp4" if group == 16 else "mxfp4"
    ending = {"": "-weights", "fp8": "-fp8"}.get(activations, "")
    return StoredFormat(name + ending, 0.5 + 1 / group)


def _float8(weights: Mapping[str, Any], group: int | None, strategy: str, name: str) -> StoredFormat:
    if strategy == "block" or isinstance(weights.get("block_structure"), list):
        return block_fp8(weights.get("block_structure"), text(weights, "scale_dtype"), name)
    if strategy == "channel":
        return StoredFormat(name, 1.0, row_bytes=SCALE_BYTES)
    if group == 32:
        return StoredFormat("mxfp8", 1.0 + 1 / 32)
    return StoredFormat(name, 1.0 + (SCALE_BYTES / group if group and group > 0 else 0.0))


def _narrow(activations: Any) -> str:
    """ "fp8", "int8", "fp4" or "" for activations left at 16 bit."""
    if not isinstance(activations, dict):
        return ""
    bits, kind = integer(activations, "num_bits", "bits"), (text(activations, "type") or "float").lower()
    return {(8, "float"): "fp8", (8, "int"): "int8", (4, "float"): "fp4"}.get((bits or 0, kind), "")
