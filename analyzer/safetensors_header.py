"""The header of a safetensors file: eight bytes of length, then JSON that lists each tensor's type, shape and place.

Source of the format: the README of huggingface/safetensors. Its own limit for a header is 100 MB; a model of 200,000
tensors in one file needs a third of that.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from rooflens.analyzer.tensor_table import Tensor, fault, open_regular, refuse_overlap

MOST_HEADER_BYTES = 64_000_000
MOST_TENSORS = 1 << 18
MOST_ELEMENTS = 1 << 62
MOST_NAME = 1024  # letters of a tensor's name
DTYPE_BITS: Mapping[str, int] = {
    "BOOL": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8,
    "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32,
    "C64": 64, "F64": 64, "I64": 64, "U64": 64,
}  # fmt: skip


def safetensors_header(path: Path) -> tuple[Tensor, ...]:
    """The tensors of one file; RooflensError in one line for a header that lies or a file cut short."""
    file, size = open_regular(path)
    with file:
        first = file.read(8)
        if len(first) < 8:
            raise fault(path, "no safetensors file: shorter than the 8 bytes of its header's length")
        length = int.from_bytes(first, "little")
        if not 2 <= length <= MOST_HEADER_BYTES or length > size - 8:
            raise fault(path, f"no safetensors file, or cut short: a header of {length} bytes in a file of {size}")
        raw = file.read(length)
    return _tensors(path, _entries(path, raw), size - 8 - length)


def header_bytes(path: Path) -> int:
    """How many bytes safetensors_header reads of a file at most."""
    file, size = open_regular(path)
    with file:
        return min(int.from_bytes(file.read(8), "little"), size, MOST_HEADER_BYTES)


def _entries(path: Path, raw: bytes) -> Mapping[str, Any]:
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise ValueError("a name is listed twice")
        return found

    def no_constant(name: str) -> NoReturn:
        raise ValueError(f"{name} is no number")

    if raw.count(b"{") > 2 * MOST_TENSORS or raw.count(b",") > 16 * MOST_TENSORS or raw.count(b"[") > 4 * MOST_TENSORS:
        raise fault(path, f"the header lies: it lists more than {MOST_TENSORS} tensors")
    try:
        entries = json.loads(raw.decode("utf-8"), object_pairs_hook=once, parse_constant=no_constant)
    except (ValueError, RecursionError) as error:
        raise fault(path, f"the header is no JSON: {str(error) or type(error).__name__}") from error
    if not isinstance(entries, dict):
        raise fault(path, "the header is no object of tensors")
    return entries


def _tensors(path: Path, entries: Mapping[str, Any], data_bytes: int) -> tuple[Tensor, ...]:
    found, ranges = [], []
    for name, entry in entries.items():
        if name == "__metadata__":
            continue
        if len(name) > MOST_NAME:
            raise fault(path, f"the header lies: a name of {len(name)} letters")
        tensor, begin, end = _tensor(path, name, entry)
        if end > data_bytes:
            raise fault(path, f"cut short: tensor {name[:60]!r} ends at byte {end} of {data_bytes}")
        found.append(tensor)
        ranges.append((begin, end, name))
    refuse_overlap(path, ranges)
    return tuple(found)


def _tensor(path: Path, name: str, entry: Any) -> tuple[Tensor, int, int]:
    lies = f"the header lies: tensor {name[:60]!r}"
    if not isinstance(entry, dict):
        raise fault(path, f"{lies} is no object")
    dtype, shape, offsets = entry.get("dtype"), _sizes(entry.get("shape")), _sizes(entry.get("data_offsets"))
    if not isinstance(dtype, str) or dtype not in DTYPE_BITS:
        raise fault(path, f"tensor {name[:60]!r} has the type {str(dtype)[:20]!r}, which is not known")
    if shape is None or offsets is None or len(offsets) != 2:
        raise fault(path, f"{lies} has no proper shape and data_offsets")
    elements = 1
    for length in shape:
        elements *= length
        if elements > MOST_ELEMENTS:
            raise fault(path, f"{lies} has more elements than a file can hold")
    begin, end = offsets
    if (end - begin) * 8 != elements * DTYPE_BITS[dtype]:
        raise fault(path, f"{lies} takes {end - begin} bytes, not those of {elements} x {dtype}")
    return Tensor(name, dtype, tuple(shape), end - begin), begin, end


def _sizes(value: Any) -> list[int] | None:
    """The list of sizes that ``value`` is; None for anything else."""
    if not isinstance(value, list) or len(value) > 32:
        return None
    return value if all(type(v) is int and 0 <= v <= MOST_ELEMENTS for v in value) else None
