"""Weight files beside the config that lies with them: do they hold what the architecture counts, and all of it?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

from rooflens.analyzer.counting import parameters
from rooflens.analyzer.group_formats import placed_modules
from rooflens.analyzer.operators import works
from rooflens.analyzer.precision import Precision
from rooflens.analyzer.tensor_groups import MTP, VISION, decoder_layer, group_of, stands_apart
from rooflens.analyzer.tensor_table import Tensor, named
from rooflens.analyzer.work import resident_bytes
from rooflens.arch_records import ModelArch
from rooflens.records import RooflensError

SAID_RATIO = 0.01  # of a group's elements: more than norms and biases are, and a difference is said
GROSS_RATIO = 5.0  # files with so many times more or fewer elements are another model's, or of an adapter
SAME_RATIO = 1e-3  # of all bytes: less than that are norms and biases kept wider than they are counted


def check_layers(arch: ModelArch, tensors: Iterable[Tensor], elements: Mapping[str, float], path: Path) -> None:
    """RooflensError for files that lack layers or are grossly more or less than the model; one line with a remedy.

    ``elements`` are what each group holds, of tensor_files.group_bytes.
    """
    counted = parameters(arch).total
    held = sum(size for group, size in elements.items() if group not in (VISION, MTP))
    layers = sum(layer.count for layer in arch.layers)
    numbers = {number for tensor in tensors if (number := decoder_layer(tensor.name)) is not None and number < layers}
    if len(numbers) < layers and held < (1 - SAID_RATIO) * counted:
        raise RooflensError(
            f"{named(path)}: holds {len(numbers)} of {layers} layers: fetch the other files of the model, or say "
            "--weights"
        )
    if not counted / GROSS_RATIO <= held <= GROSS_RATIO * counted:
        raise RooflensError(
            f"{named(path)}: holds {held:,.0f} weights where the config counts {counted:,.0f}: not the files of "
            "this model, or only an adapter: name those of the model, or say --weights"
        )


def differences(arch: ModelArch, elements: Mapping[str, float]) -> tuple[str, ...]:
    """One note where groups hold other numbers of weights than the architecture counts; () where none does."""
    counted: dict[str, float] = defaultdict(float)
    for module, place in placed_modules(arch):
        if place.mtp is None and not (module.group == "head" and arch.tied_head):
            counted[module.group] += module.elements
    found = [
        f"{group} {elements.get(group, 0.0):,.0f} of {size:,.0f}"
        for group, size in counted.items()
        if abs(elements.get(group, 0.0) - size) > SAID_RATIO * size
    ]
    if not found:
        return ()
    return (
        f"the files hold other numbers of weights than the config counts ({', '.join(found)}): the counted ones are "
        "taken, in the formats of those that are there",
    )


def compare_bytes(arch: ModelArch, tensors: Iterable[Tensor], precision: Precision) -> tuple[bool, tuple[str, ...]]:
    """Whether what is resident takes the bytes of the tensors, up to small ones, and a note on any difference.

    Left out on both sides: layers of prediction, a head beside an embedding that it shares, towers of unknown size.
    """
    layers = sum(layer.count for layer in arch.layers)
    held = 0
    for tensor in tensors:
        apart = stands_apart(tensor.name, layers)
        tower = apart == VISION and arch.vision_elements
        shared = arch.tied_head and group_of(tensor.name, layers) == "head"
        held += tensor.size_bytes if tower or (apart is None and not shared) else 0
    counted = resident_bytes(works(arch, precision))
    if abs(held - counted) < 1:
        return True, ()
    exact = abs(held - counted) <= SAME_RATIO * held
    why = "norms, biases and what else is small differ" if exact else "these are not the bytes of the files"
    return exact, (f"the files hold {held:,} B of weights, {counted:,.0f} B are counted: {why}",)
