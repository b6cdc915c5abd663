"""The exact bytes of each group of tensors, from the headers of safetensors or GGUF files; no weight is read."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from rooflens.analyzer.gguf_header import gguf_header
from rooflens.analyzer.group_formats import tensor_formats
from rooflens.analyzer.precision import GROUPS, PLAIN, Precision, choose_precision
from rooflens.analyzer.safetensors_header import MOST_TENSORS, header_bytes, safetensors_header
from rooflens.analyzer.stored_modules import INTEGERS, stored_modules
from rooflens.analyzer.tensor_check import check_layers, compare_bytes, differences
from rooflens.analyzer.tensor_format import TensorFormat
from rooflens.analyzer.tensor_groups import OTHER, VISION, group_of
from rooflens.analyzer.tensor_table import Tensor, json_file, named
from rooflens.arch_records import ModelArch
from rooflens.records import RooflensError

INDEX = "model.safetensors.index.json"
MOST_FILES = 4096
MOST_HEADERS_BYTES = 128_000_000  # of all files of a model
LISTED_BYTES = 16  # what an element of a list in a GGUF file counts for
SHARD = re.compile(r"(.+-)(\d{5})-of-(\d{5})(\.(?:gguf|safetensors))")


@dataclass(frozen=True, slots=True)
class GroupBytes:
    """What one group takes in the files: ``formats`` name -> (elements, bytes with scales)."""

    formats: Mapping[str, tuple[float, float]]

    @property
    def size_bytes(self) -> float:
        """Bytes of all formats."""
        return sum(size for _, size in self.formats.values())

    @property
    def elements(self) -> float:
        """Weights of all formats."""
        return sum(elements for elements, _ in self.formats.values())


def weight_files(path: Path) -> tuple[Path, ...]:
    """The weight files of ``path``, a folder or one of its files; () where a folder has none, only their index.

    Shards that an index or a file's own name calls for must be there: RooflensError names the first that is not.
    """
    try:
        if path.is_dir():
            return _folder_files(path)
        if path.name.endswith(".index.json"):
            return _indexed(path)
    except (OSError, ValueError) as error:
        raise RooflensError(f"{named(path)}: cannot be read: {(str(error).splitlines() or ['?'])[0][:200]}") from error
    shard = SHARD.fullmatch(path.name)
    return _siblings(path, shard) if shard else (path,)


def read_tensors(path: Path) -> tuple[Tensor, ...]:
    """Every tensor of the weight files of ``path``; RooflensError where there are none or a header lies."""
    files = weight_files(path)
    if not files:
        raise RooflensError(f"{named(path)}: no .safetensors or .gguf files in this folder")
    found: dict[str, Tensor] = {}
    cost = 0
    for file in files:
        if file.suffix == ".gguf":
            header = gguf_header(file)
            tensors, cost = header.tensors, cost + sum(header.lengths.values()) * LISTED_BYTES
        else:
            cost += header_bytes(file)
            if cost > MOST_HEADERS_BYTES:
                raise _too_much(path)
            tensors = safetensors_header(file)
        held = len(found)
        found |= {tensor.name: tensor for tensor in tensors}
        if len(found) != held + len(tensors):
            raise RooflensError(f"{named(path)}: its files hold a tensor of the same name twice")
        if len(found) > MOST_TENSORS or cost > MOST_HEADERS_BYTES:
            raise _too_much(path)
    return tuple(found.values())


def _too_much(path: Path) -> RooflensError:
    return RooflensError(
        f"{named(path)}: the headers of its files list more than {MOST_TENSORS} tensors, or take more than "
        f"{MOST_HEADERS_BYTES // 1_000_000} MB: say --weights"
    )


def group_bytes(tensors: Iterable[Tensor], arch: ModelArch | None = None) -> Mapping[str, GroupBytes]:
    """Group -> what it takes; beside GROUPS, "other" (norms, biases) and "vision" (towers).

    ``arch`` tells the layers of multi-token prediction apart, and how its files spell the formats.
    """
    layers = sum(layer.count for layer in arch.layers) if arch else None
    names = _spellings(arch)
    totals: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(lambda: [0.0, 0.0]))
    bits = {name: bits for bits, name in INTEGERS.items()}.get(_integers(names) or "")
    for module in stored_modules(tensors, bits):
        group = OTHER if module.small else group_of(module.name, layers)
        sums = totals[group][names.get(module.format, module.format)]
        sums[0] += module.elements
        sums[1] += module.size_bytes
    return {
        group: GroupBytes({name: (sums[0], sums[1]) for name, sums in formats.items()})
        for group, formats in totals.items()
    }


def precision_from_files(arch: ModelArch, path: Path, kv: str | None = None) -> Precision:
    """The formats of ``arch`` as the weight files of ``path`` hold them: a folder, one of its files, or a .gguf file.

    ``kv`` as in choose_precision. Raises RooflensError in one line for files that lie, lack layers or are another
    model's; where they differ in less than that, ``notes`` say so and ``exact_weights`` is False.
    """
    tensors = read_tensors(path)
    found = group_bytes(tensors, arch)
    _check_model(arch, found, path)
    elements = {name: part.elements for name, part in found.items()}
    files = weight_files(path)
    check_layers(arch, tensors, elements, files[0] if len(files) == 1 else path)
    groups = {name: _formats(part) for name, part in found.items() if name in GROUPS and part.elements}
    if arch.tied_head and "embedding" in groups:
        groups.setdefault("head", groups["embedding"])
    stated = choose_precision(arch, None, kv)
    head = groups["head"][0].name if "head" in groups else stated.head
    weights = _largest(found) or stated.weights
    precision = replace(stated, weights=weights, head=head, groups={**stated.groups, **groups})
    exact, bytes_notes = compare_bytes(arch, tensors, precision)
    notes = () if exact else differences(arch, elements)  # where all bytes agree, a module only goes by another name
    return replace(precision, exact_weights=exact, notes=notes or bytes_notes)


def _formats(part: GroupBytes) -> tuple[TensorFormat, ...]:
    return tensor_formats({name: list(sums) for name, sums in part.formats.items()})


def _largest(found: Mapping[str, GroupBytes]) -> str | None:
    """The format that takes most of the linear layers' elements."""
    totals: dict[str, float] = defaultdict(float)
    for group, part in found.items():
        if group not in (OTHER, VISION, "embedding", "head"):
            for name, (elements, _) in part.formats.items():
                totals[name] += elements
    return max(totals, key=lambda name: totals[name], default=None)


def _spellings(arch: ModelArch | None) -> Mapping[str, str]:
    """How the config calls a stored format whose activations it knows: fp8 is fp8-weights where they are 16 bit."""
    if arch is None or arch.quantization is None:
        return {}
    said = [arch.quantization.default, *(rule.stored for rule in arch.quantization.rules)]
    names = [stored.name for stored in said if stored]
    return {name.split("-")[0]: name for name in reversed(names) if name not in PLAIN}


def _integers(names: Mapping[str, str]) -> str | None:
    """The one format of integers that the config calls for, None where it has several or none."""
    said = [base for base in names if base.startswith("int")]
    return {"int8": "int8-weights"}.get(said[0], said[0]) if len(said) == 1 else None


def _check_model(arch: ModelArch, found: Mapping[str, GroupBytes], path: Path) -> None:
    """The embedding is in every file and never packed: its elements show whether the files are this model's."""
    held = found.get("embedding")
    least = arch.hidden_size * min(arch.vocab_size, 1000)
    if (
        held is not None
        and not least <= held.elements <= 4 * arch.hidden_size * arch.vocab_size + arch.gathered_elements
    ):
        raise RooflensError(
            f"{named(path)}: its embedding has {held.elements:.0f} elements, the config says "
            f"{arch.vocab_size} x {arch.hidden_size}: another model's files"
        )


def _folder_files(folder: Path) -> tuple[Path, ...]:
    if (folder / INDEX).exists():
        return _indexed(folder / INDEX)
    for suffix in (".safetensors", ".gguf"):
        files = sorted(p for p in folder.iterdir() if p.suffix == suffix and not p.name.startswith("mmproj"))
        if len(files) > MOST_FILES:
            raise RooflensError(f"{named(folder)}: more than {MOST_FILES} weight files")
        shard = SHARD.fullmatch(files[0].name) if files else None
        if shard:
            return _siblings(files[0], shard)
        if suffix == ".gguf" and len(files) > 1:
            raise RooflensError(
                f"{named(folder)}: several .gguf files, name one: {files[0].name}, {files[1].name}, ..."
            )
        if files:
            whole = folder / "model.safetensors"
            return (whole,) if whole in files else tuple(files)
    return ()


def _indexed(index: Path) -> tuple[Path, ...]:
    said = json_file(index)
    listed = said.get("weight_map") if isinstance(said, dict) else None
    if not isinstance(listed, dict) or not listed:
        raise RooflensError(f"{named(index)}: has no weight_map")
    names = sorted({name for name in listed.values() if isinstance(name, str)})
    if not names or len(names) > MOST_FILES or any("/" in name or "\0" in name or name in ("", "..") for name in names):
        raise RooflensError(f"{named(index)}: its weight_map names no proper files")
    files = [index.with_name(name) for name in names]
    return _all_there(index, files) if any(file.exists() for file in files) else ()


def _siblings(path: Path, shard: re.Match[str]) -> tuple[Path, ...]:
    count = int(shard[3])
    if not 1 <= count <= MOST_FILES:
        raise RooflensError(f"{named(path)}: says it is one of {count} files")
    names = [f"{shard[1]}{number:05d}-of-{shard[3]}{shard[4]}" for number in range(1, count + 1)]
    return _all_there(path, [path.with_name(name) for name in names])


def _all_there(path: Path, files: list[Path]) -> tuple[Path, ...]:
    missing = [file.name for file in files if not file.exists()]
    if missing:
        raise RooflensError(
            f"{named(path)}: {len(missing)} of {len(files)} weight files are missing, the first {missing[0][:80]}: "
            "fetch them, or say --weights"
        )
    return tuple(files)
