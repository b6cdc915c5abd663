"""The formats of each group of tensors of a model, from what its files say of single modules."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace

from rooflens.analyzer.module_rules import Place, RuleBook
from rooflens.analyzer.modules import Module, joining_modules, layer_modules, whole_modules
from rooflens.analyzer.number_formats import WEIGHT_FORMATS
from rooflens.analyzer.tensor_format import TensorFormat
from rooflens.arch_records import Layer, ModelArch, Quantization, StoredFormat

MTP_GROUP = "mtp"
ENCODER_GROUP = "encoder"


def group_formats(arch: ModelArch, quantization: Quantization) -> Mapping[str, tuple[TensorFormat, ...]]:
    """Group -> its formats by falling share of elements; groups that the model does not have are missing.

    Shares and bytes weigh each linear layer by its elements; the layers of MTP are one group of their own.
    """
    book = RuleBook(quantization.rules)
    totals: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(lambda: [0.0, 0.0]))
    for module, place in placed_modules(arch):
        stored = _stored(module, place, book, quantization.default, arch)
        group = MTP_GROUP if place.mtp is not None else module.group
        sums = totals[group][stored.name]
        sums[0] += module.elements
        sums[1] += module.count * _matrix_bytes(module, stored)
    return {group: tensor_formats(formats) for group, formats in totals.items()}


def tensor_formats(formats: Mapping[str, list[float]]) -> tuple[TensorFormat, ...]:
    """Format name -> [elements, bytes] of one group, as shares by falling size."""
    whole = sum(elements for elements, _ in formats.values())
    rows = [
        TensorFormat(elements / whole, name, size / elements) for name, (elements, size) in formats.items() if elements
    ]
    return tuple(sorted(rows, key=lambda row: (-row.share, row.name)))


def placed_modules(arch: ModelArch) -> Iterator[tuple[Module, Place]]:
    """Every linear layer of the model with where it stands."""
    kinds = [layer_modules(layer, arch.hidden_size) for layer in arch.layers]
    order = arch.order or tuple(i for i, layer in enumerate(arch.layers) for _ in range(layer.count))
    for depth, kind in enumerate(order):
        for module in kinds[kind]:
            yield module, Place(depth)
    for depth, layer in enumerate(_each(arch.encoder)):
        for module in layer_modules(layer, arch.hidden_size):
            yield replace(module, group=ENCODER_GROUP), Place(depth)
    for ahead, layer in enumerate(_each(arch.mtp)):
        for module in layer_modules(layer, arch.hidden_size):
            yield module, Place(len(order) + ahead, ahead)
    for module in joining_modules(arch):
        yield module, Place(len(order), 0)
    for module in whole_modules(arch):
        yield module, Place(None)


def _each(layers: tuple[Layer, ...]) -> Iterator[Layer]:
    for layer in layers:
        for _ in range(layer.count):
            yield layer


def _stored(
    module: Module, place: Place, book: RuleBook, default: StoredFormat | None, arch: ModelArch
) -> StoredFormat:
    rule = book.rule_for(module, place)
    stored = rule.stored if rule else None if module.plain else default
    if stored is not None:
        return stored
    plain = "bf16" if arch.activation_format == "fp32" else arch.activation_format
    return StoredFormat(plain, WEIGHT_FORMATS[plain].bytes_per_element)


def _matrix_bytes(module: Module, stored: StoredFormat) -> float:
    elements = module.rows * module.columns
    return elements * stored.bytes_per_element + module.rows * stored.row_bytes + module.columns * stored.column_bytes
