"""The header of a GGUF file: metadata, then each tensor's name, shape, type and place.

Source of the format: docs/gguf.md of ggml-org/ggml, versions 2 and 3, little-endian.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from rooflens.analyzer.ggml_types import GGML_TYPES, REMOVED
from rooflens.analyzer.tensor_table import Tensor, fault, open_regular, refuse_overlap

MOST_TENSORS = 1 << 18  # the largest known file has some thousand
MOST_PAIRS = 1 << 16
MOST_NAME = 1024  # letters of a key or of a tensor's name
MOST_DIMENSIONS = 8
MOST_DEPTH = 4  # arrays in arrays
MOST_LISTED = 1 << 21  # strings and lists in the lists of one file; a tokenizer has a million tokens and merges
MOST_ELEMENTS = 1 << 62
STRING, ARRAY = 8, 9
SCALARS: Mapping[int, str] = {
    0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d",
}  # fmt: skip
Value = int | float | str | bool


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """``metadata`` are the single values (no lists); ``lengths`` are how long each list is."""

    version: int
    metadata: Mapping[str, Value]
    tensors: tuple[Tensor, ...]
    lengths: Mapping[str, int] = field(default_factory=dict)


def gguf_header(path: Path) -> GgufHeader:
    """The header of one file; RooflensError in one line for one that lies or is cut short."""
    file, size = open_regular(path)
    with file:
        return _Reader(path, file, size).header()


class _Reader:
    """Reads forward, never past the end of the file."""

    def __init__(self, path: Path, file: BinaryIO, size: int) -> None:
        self.path, self.file, self.size, self.at, self.listed = path, file, size, 0, 0

    def header(self) -> GgufHeader:
        """All of it, checked."""
        if self.bytes(4, "its first bytes") != b"GGUF":
            raise fault(self.path, "no GGUF file: it does not begin with GGUF")
        version = self.number("<I")
        if version not in (2, 3):
            big = int.from_bytes(int(version).to_bytes(4, "little"), "big") in (2, 3)
            raise fault(self.path, "big-endian GGUF is not read" if big else f"GGUF version {version} is not known")
        tensors, pairs = self.number("<Q"), self.number("<Q")
        if tensors > MOST_TENSORS or pairs > MOST_PAIRS:
            raise fault(self.path, f"the header lies: {tensors} tensors and {pairs} metadata entries")
        metadata: dict[str, Value] = {}
        lengths: dict[str, int] = {}
        for _ in range(int(pairs)):
            key = self.text(MOST_NAME)
            value = self.value(int(self.number("<I")), 0)
            if isinstance(value, list):
                lengths[key] = value[0]
            else:
                metadata[key] = value
        listed = [self.tensor() for _ in range(int(tensors))]
        self.check_places(listed, metadata.get("general.alignment", 32))
        return GgufHeader(int(version), metadata, tuple(tensor for tensor, _ in listed), lengths)

    def bytes(self, count: int, what: str) -> bytes:
        """The next ``count`` bytes."""
        if count > self.size - self.at:
            raise fault(
                self.path, f"cut short, or the header lies: {what} would end behind the file's {self.size} bytes"
            )
        raw = self.file.read(count)
        if len(raw) != count:
            raise fault(self.path, "cut short while it was read")
        self.at += count
        return raw

    def skip(self, count: int, what: str) -> None:
        """Go over the next ``count`` bytes."""
        if count > self.size - self.at:
            raise fault(
                self.path, f"cut short, or the header lies: {what} would end behind the file's {self.size} bytes"
            )
        self.file.seek(count, 1)
        self.at += count

    def number(self, form: str) -> int | float:
        """One number in struct's ``form``."""
        found: int | float = struct.unpack(form, self.bytes(struct.calcsize(form), "a number"))[0]
        return found

    def text(self, most: int) -> str:
        """A string: eight bytes of length, then UTF-8."""
        length = int(self.number("<Q"))
        if length > most:
            raise fault(self.path, f"the header lies: a name of {length} bytes")
        return self.bytes(length, "a name").decode("utf-8", "replace")

    def value(self, kind: int, depth: int) -> Value | list[int]:
        """A value of metadata; a list is only its length, in a list."""
        if kind in SCALARS:
            return self.number(SCALARS[kind])
        if kind == STRING:
            length = int(self.number("<Q"))
            if length > MOST_NAME:  # a chat template: not needed
                self.skip(length, "a string")
                return ""
            return self.bytes(length, "a string").decode("utf-8", "replace")
        if kind == ARRAY and depth < MOST_DEPTH:
            return self.array(depth)
        raise fault(self.path, f"the header lies: metadata of type {kind}")

    def array(self, depth: int) -> list[int]:
        """Go over a list; its length."""
        kind, count = int(self.number("<I")), int(self.number("<Q"))
        if kind in SCALARS:
            self.skip(count * struct.calcsize(SCALARS[kind]), "a list")
            return [count]
        if count > (self.size - self.at) // 8:  # a string or a list in it takes eight bytes or more
            raise fault(self.path, f"cut short, or the header lies: a list of {count} in a file of {self.size} bytes")
        self.listed += count
        if self.listed > MOST_LISTED:
            raise fault(self.path, f"the header lies: its lists hold more than {MOST_LISTED} strings")
        for _ in range(count):
            if kind == STRING:
                self.skip(int(self.number("<Q")), "a string")
            else:
                self.value(kind, depth + 1)
        return [count]

    def tensor(self) -> tuple[Tensor, int]:
        """One tensor and the offset of its data."""
        name = self.text(MOST_NAME)
        dimensions = int(self.number("<I"))
        if dimensions > MOST_DIMENSIONS:
            raise fault(self.path, f"the header lies: tensor {name[:60]!r} has {dimensions} dimensions")
        shape = [int(self.number("<Q")) for _ in range(dimensions)]
        kind, offset = int(self.number("<I")), int(self.number("<Q"))
        if kind not in GGML_TYPES:
            known = REMOVED.get(kind)
            named = f"{known} (removed from ggml)" if known else f"number {kind}"
            raise fault(self.path, f"tensor {name[:60]!r} has the type {named}, which is not known")
        block, elements = GGML_TYPES[kind], 1
        for length in shape:
            elements *= length
            if elements > MOST_ELEMENTS:
                raise fault(self.path, f"the header lies: tensor {name[:60]!r} has more elements than a file can hold")
        if (shape[0] if shape else 1) % block.block_elements:
            raise fault(self.path, f"the header lies: rows of tensor {name[:60]!r} are no whole blocks of {block.name}")
        size = elements // block.block_elements * block.block_bytes
        return Tensor(name, block.name, tuple(reversed(shape)), size), offset

    def check_places(self, listed: list[tuple[Tensor, int]], alignment: Value) -> None:
        """Data begins at the next multiple of the alignment; each tensor lies in the file and shares no byte."""
        if type(alignment) is not int or not 1 <= alignment <= 1 << 20:
            raise fault(self.path, f"the header lies: an alignment of {str(alignment)[:20]}")
        start = -(-self.at // alignment) * alignment
        for tensor, offset in listed:
            if start + offset + tensor.size_bytes > self.size:
                raise fault(
                    self.path, f"cut short: tensor {tensor.name[:60]!r} ends behind the file's {self.size} bytes"
                )
        refuse_overlap(self.path, ((offset, offset + t.size_bytes, t.name) for t, offset in listed))
