"""What a model has once: embedding, head, gathered tables, towers, and weights that belong to no operator."""

from __future__ import annotations

from collections.abc import Iterator

from rooflens.analyzer.operators.shard import Shard
from rooflens.analyzer.work import Work


def first_rows(shard: Shard) -> Iterator[Work]:
    """What stands before the first layer."""
    arch, devices = shard.arch, shard.devices
    yield _table(shard, "embedding", arch.vocab_size * arch.hidden_size, arch.hidden_size)
    if arch.gathered_elements:
        yield _table(shard, "gathered_tables", arch.gathered_elements, arch.gathered_row_elements)
    if arch.vision_elements:
        size_bytes = arch.vision_elements * shard.precision.activation_bytes / devices
        yield Work("vision", "vision", resident_bytes=size_bytes, elements=arch.vision_elements)


def _table(shard: Shard, operator: str, elements: int, row_elements: int) -> Work:
    """A gather of one row for each token, split over the devices; the table itself is resident, not read."""
    element_bytes = shard.mean_bytes("embedding") / shard.devices
    return Work(
        operator,
        "embedding",
        (),
        calls=1,
        gather_bytes={"query_tokens": row_elements * element_bytes},
        resident_bytes=elements * element_bytes,
        elements=elements,
    )


def head_rows(shard: Shard, own: bool, held: bool) -> Iterator[Work]:
    """The language-model head: read once in a pass that samples, multiplied for sampled rows only.

    ``own`` is whether its matrix is one of its own, not the embedding's or another head's; ``held`` whether the device
    keeps it for the head alone.
    """
    whole = shard.arch.vocab_size * shard.arch.hidden_size
    for part in shard.parts("head"):
        elements = part.share * whole / shard.devices
        size_bytes = elements * part.bytes_per_element
        logits = shard.arch.vocab_size / shard.devices + shard.hidden
        yield Work(
            "head",
            "head",
            part.compute,
            calls=part.share,
            flops={"sampled_rows": 2 * elements},
            weight_bytes={"head_passes": size_bytes},
            activation_bytes={"sampled_rows": part.share * logits * shard.precision.activation_bytes},
            resident_bytes=size_bytes if held else 0.0,
            elements=part.share * whole if own else 0.0,
        )


def other_row(shard: Shard, operator: str, elements: float) -> Iterator[Work]:
    """Norms, biases and the like: read each pass, no product that counts; at least an equal share of each device."""
    if elements:
        size_bytes = elements * shard.precision.activation_bytes / shard.devices
        yield Work(
            operator, "linear", weight_bytes={"passes": size_bytes}, resident_bytes=size_bytes, elements=elements
        )
