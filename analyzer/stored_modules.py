"""Tensors of files joined to modules: weights with their scales, and how many elements packed ones hold."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from rooflens.analyzer.number_formats import WEIGHT_FORMATS
from rooflens.analyzer.tensor_table import Tensor

FLOATS: Mapping[str, str] = {
    "F64": "fp32", "F32": "fp32", "BF16": "bf16", "F16": "fp16", "F8_E4M3": "fp8", "F8_E5M2": "fp8",
    "F8_E4M3FNUZ": "fp8", "F8_E5M2FNUZ": "fp8", "f64": "fp32",
}  # fmt: skip
INTEGERS = {2: "int2", 3: "int3", 4: "int4", 6: "int6", 8: "int8-weights"}
MAIN = ("weight", "qweight", "weight_packed", "blocks", "Wq_packed", "W_q")
SIDE = re.compile(
    r"(?:weight_)?(?:scale|scales|scale_inv|scale_2|global_scale|zero_point|zeros|shape|g_idx|zero|bias_scale)|"
    r"input_scale|input_global_scale|qzeros|g_idx|scales|absmax|quant_map|nested_absmax|nested_quant_map|SCB|"
    r"weight_format|quant_state\.\w+|[kvq]_scale|output_scale|perm"
)
FUSED = re.compile(r"(.+)_(blocks|scales|bias|scale_inv|scale)$")  # experts in one tensor: gate_up_proj_blocks
PACKED = re.compile(r"(.+?)\.(weight\.)?(" + SIDE.pattern + r")$")
Shapes = Mapping[str, Tensor]


@dataclass(frozen=True, slots=True)
class StoredModule:
    """One module's weights: ``elements`` unpacked, ``size_bytes`` with scales, ``format`` a key of WEIGHT_FORMATS.

    ``small`` are biases and other vectors.
    """

    name: str
    format: str
    elements: float
    size_bytes: int
    small: bool = False


def stored_modules(tensors: Iterable[Tensor], bits: int | None = None) -> Iterator[StoredModule]:
    """The modules of one model; a scale counts with the weights that it scales.

    ``bits`` is what the config says of integers, for words whose shapes leave it open.
    """
    joined: dict[str, dict[str, Tensor]] = defaultdict(dict)
    for tensor in tensors:
        base, leaf = _base(tensor.name)
        joined[base][leaf] = tensor
    for base, parts in joined.items():
        yield from _modules(base, parts, bits)


def _base(name: str) -> tuple[str, str]:
    """The module that a tensor belongs to, and what it is there."""
    side = PACKED.match(name)
    if side:
        return side[1], side[3]
    base, _, leaf = name.rpartition(".")
    if leaf in (*MAIN, "bias"):
        return base, leaf
    fused = FUSED.match(name)
    if fused and fused[2] != "bias":
        return fused[1], fused[2]
    return (fused[1], "bias") if fused else (name, "weight")


def _modules(base: str, parts: Shapes, bits: int | None) -> Iterator[StoredModule]:
    main = next((leaf for leaf in MAIN if leaf in parts), None)
    sides = {leaf: tensor for leaf, tensor in parts.items() if leaf not in (main, "bias")}
    if "bias" in parts:
        bias = parts["bias"]
        yield StoredModule(base, FLOATS.get(bias.dtype, "bf16"), bias.elements, bias.size_bytes, small=True)
    size = sum(tensor.size_bytes for tensor in sides.values())
    if main is None:
        if sides:
            yield StoredModule(base, "fp32", sum(t.elements for t in sides.values()), size, small=True)
        return
    weights = parts[main]
    name, elements = _unpacked(weights, sides, bits)
    small = len(weights.shape) < 2 and not sides
    yield StoredModule(base, name, elements, weights.size_bytes + size, small)


def _unpacked(weights: Tensor, sides: Shapes, bits: int | None) -> tuple[str, float]:
    """The format and the elements of a weight tensor, beside its scales."""
    if weights.dtype in WEIGHT_FORMATS:  # a GGUF type
        return weights.dtype, weights.elements
    if weights.dtype in FLOATS:
        return FLOATS[weights.dtype], weights.elements
    if weights.dtype in ("I32", "U32", "I64"):
        return _packed_words(weights, sides, bits)
    scale = next((sides[leaf] for leaf in ("weight_scale", "scales", "scale", "weight_scale_inv", "absmax", "scale_inv")
                  if leaf in sides), None)  # fmt: skip
    if weights.dtype in ("F4", "U8", "I8") and scale is not None and scale.elements:
        elements = weights.elements * (1 if weights.dtype == "F4" else 2)
        name = _four_bit(elements / scale.elements, scale.dtype, "absmax" in sides)
        if name:
            return name, elements
    return ("nvfp4", weights.elements) if weights.dtype == "F4" else ("int8", weights.elements)


def _four_bit(ratio: float, scale: str, normal_float: bool) -> str | None:
    """The format of two elements a byte with one scale for ``ratio`` of them; None for what is a byte each."""
    if normal_float:
        return "nf4"
    if math.isclose(ratio, 16) and scale in ("F8_E4M3", "U8"):
        return "nvfp4"
    if math.isclose(ratio, 32) and scale in ("F8_E8M0", "U8"):
        return "mxfp4"
    return None


def _packed_words(weights: Tensor, sides: Shapes, said: int | None) -> tuple[str, float]:
    """Integers in 32-bit words: AWQ packs the outputs, GPTQ and compressed-tensors the inputs."""
    word = 64 if weights.dtype == "I64" else 32
    scale = sides.get("scales") or sides.get("weight_scale")
    order = sides.get("g_idx") or sides.get("weight_g_idx")
    bits = said or 4
    if len(weights.shape) == 2 and scale is not None and len(scale.shape) == 2:
        if order is not None and order.elements:  # GPTQ: one index for each input
            bits = round(word * weights.shape[0] / order.elements)
        elif "scales" in sides and scale.shape[1] and scale.shape[1] != weights.shape[1]:
            bits = round(word * weights.shape[1] / scale.shape[1])
        elif "weight_scale" in sides and said is None:
            bits = _by_group(weights.shape[1] * word, scale.shape[1])
    name = INTEGERS.get(bits, "int4")
    return name, weights.elements * word / (bits if bits in INTEGERS else 4)


def _by_group(row_bits: int, scales: int) -> int:
    """compressed-tensors keeps the shape among the data: 4 bit where its groups come out at a usual size, else 8."""
    for bits in (4, 8):
        if scales <= 1 or row_bits // bits // scales in (32, 64, 128):
            return bits
    return 4
