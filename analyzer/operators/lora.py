"""LoRA adapters: two narrow matrices beside each adapted one, read for each distinct adapter of a pass."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rooflens.analyzer.operators.shard import Shard
from rooflens.analyzer.precision import WEIGHT_FORMATS
from rooflens.analyzer.work import Work
from rooflens.arch_records import (
    Attention,
    CompressedAttention,
    DenseMLP,
    LatentAttention,
    Layer,
    Mixer,
    MixtureOfExperts,
)

Shape = tuple[int, int]  # rows and columns of a matrix that has an adapter of its own


@dataclass(frozen=True, slots=True)
class Lora:
    """Adapters of rank ``rank`` on the projections of attention and of MLPs; ``adapters`` of them stay in memory.

    Routed experts have none; a shared expert counts as an MLP.
    """

    rank: int
    attention: bool = True
    mlp: bool = True
    adapters: int = 1


def lora_rows(shard: Shard, layer: Layer, lora: Lora) -> Iterator[Work]:
    """One row for ``layer.count`` layers: rank x (rows + columns) elements a matrix, cut over the devices."""
    shapes = [*_attention(shard.hidden, layer.mixer)] if lora.attention else []
    if lora.mlp:
        shapes += _mlp(shard.hidden, layer.mlp)
    whole = layer.count * lora.rank * sum(rows + columns for rows, columns in shapes)
    if not whole:
        return
    size_bytes = whole * shard.precision.activation_bytes / shard.devices
    yield Work(
        "lora",
        "lora",
        WEIGHT_FORMATS[shard.precision.activations].compute,
        calls=2 * layer.count * len(shapes),
        flops={"lora_rows": 2 * whole / shard.devices},
        weight_bytes={"lora_adapters": size_bytes},
        resident_bytes=lora.adapters * size_bytes,
    )


def _attention(hidden: int, mixer: Mixer | None) -> Iterator[Shape]:
    if isinstance(mixer, Attention):
        yield hidden, mixer.heads * mixer.head_dim * (2 if mixer.output_gate else 1)
        if not mixer.kv_shared:
            yield hidden, mixer.kv_heads * mixer.head_dim
        if not mixer.kv_shared and not mixer.keys_are_values:
            yield hidden, mixer.kv_heads * mixer.value_head_dim
        yield mixer.heads * mixer.value_head_dim, hidden
    elif isinstance(mixer, LatentAttention):
        yield from _latent(hidden, mixer)
    elif isinstance(mixer, CompressedAttention):
        yield hidden, mixer.q_rank
        yield mixer.q_rank, mixer.heads * mixer.head_dim
        yield hidden, mixer.head_dim
        yield mixer.output_groups * mixer.output_rank, hidden
    elif mixer is not None:
        yield hidden, mixer.in_columns
        yield mixer.out_rows, hidden


def _latent(hidden: int, mixer: LatentAttention) -> Iterator[Shape]:
    if mixer.q_rank is not None:
        yield hidden, mixer.q_rank
    yield mixer.q_rank or hidden, mixer.heads * (mixer.nope_dim + mixer.rope_dim)
    yield hidden, mixer.kv_rank + mixer.rope_dim
    yield mixer.kv_rank, mixer.heads * (mixer.nope_dim + mixer.value_dim)
    yield mixer.heads * mixer.value_dim, hidden


def _mlp(hidden: int, mlp: DenseMLP | MixtureOfExperts | None) -> Iterator[Shape]:
    wide = 0
    if isinstance(mlp, DenseMLP):
        wide = mlp.intermediate_size
    elif mlp is not None:
        wide = mlp.shared_intermediate_size
        yield from _mlp(hidden, mlp.dense)
    if mlp is not None and wide:
        yield from [(hidden, wide)] * (2 if mlp.gated else 1)
        yield wide, hidden
