"""What each operator of a forward pass costs one device, as coefficients over the features; one operator, one row.

Lower bounds throughout: activations never leave the chip, K and V of new tokens are written and not read back,
norms, biases, rotary and sampling are free, the embedding is a gather of rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from rooflens.analyzer.hardware import fastest
from rooflens.analyzer.precision import KV_FORMATS, WEIGHT_FORMATS, Precision
from rooflens.analyzer.work import Work
from rooflens.arch_records import Attention, DenseMLP, Deployment, Layer, ModelArch
from rooflens.model_records import HardwareSpec
from rooflens.records import RooflensError

CACHE_NOTE_RATIO = 0.01  # of the bytes of a step, from which what the cache may keep is worth a word
USUAL_LINK_DOMAIN = 8  # devices on one NVLink switch of a usual server
ALL_REDUCES_PER_LAYER = 2  # after the attention's and after the MLP's output projection (Megatron-LM, 2019)


@dataclass(frozen=True, slots=True)
class Shard:
    """One device's part of a model: sizes divided by ``devices``, KV heads replicated where there are too few."""

    arch: ModelArch
    precision: Precision
    devices: int

    def linear(self, operator: str, layer: Layer, rows: float, columns: float) -> Work:
        """A weight matrix (rows x columns on this device) in each of the layers, read once a pass."""
        weight = WEIGHT_FORMATS[self.precision.weights]
        elements = layer.count * rows * columns
        size_bytes = elements * weight.bytes_per_element
        return Work(
            operator,
            "linear",
            weight.compute,
            flops={"query_tokens": 2 * elements},
            weight_bytes={"passes": size_bytes},
            resident_bytes=size_bytes,
        )

    def kv_heads(self, layer: Layer) -> int:
        """KV heads that this device holds: an equal share, at least one."""
        return max(1, _mixer(layer).kv_heads // self.devices)


def _mixer(layer: Layer) -> Attention:
    if not isinstance(layer.mixer, Attention):
        raise RooflensError(f"a layer with {type(layer.mixer).__name__} is not modelled yet")
    return layer.mixer


def _mlp(layer: Layer) -> DenseMLP:
    if not isinstance(layer.mlp, DenseMLP):
        raise RooflensError(f"a layer with {type(layer.mlp).__name__} is not modelled yet")
    return layer.mlp


def _qkv_projection(shard: Shard, layer: Layer) -> Work:
    columns = (_mixer(layer).heads // shard.devices + 2 * shard.kv_heads(layer)) * _mixer(layer).head_dim
    return shard.linear("qkv_projection", layer, shard.arch.hidden_size, columns)


def _attention(shard: Shard, layer: Layer) -> Work:
    """QK^T and PV: 2 x 2 flops x head_dim for each head and query-key pair under the causal mask.

    K and V of the tokens in the cache are read once, those of new tokens written once; the KV heads of a group
    are read once for all its query heads.
    """
    kv = KV_FORMATS[shard.precision.kv]
    pair_flops = 4 * layer.count * (_mixer(layer).heads // shard.devices) * _mixer(layer).head_dim
    token_bytes = 2 * layer.count * shard.kv_heads(layer) * _mixer(layer).head_dim * kv.bytes_per_element
    return Work(
        "attention",
        "attention",
        kv.compute,
        flops={"causal_pairs": pair_flops},
        kv_read_bytes={"context_tokens": token_bytes},
        kv_write_bytes={"query_tokens": token_bytes},
    )


def _output_projection(shard: Shard, layer: Layer) -> Work:
    rows = _mixer(layer).heads // shard.devices * _mixer(layer).head_dim
    return shard.linear("output_projection", layer, rows, shard.arch.hidden_size)


def _mlp_in(shard: Shard, layer: Layer) -> Work:
    matrices = 2 if _mlp(layer).gated else 1
    columns = matrices * _mlp(layer).intermediate_size / shard.devices
    return shard.linear("mlp_in_projection", layer, shard.arch.hidden_size, columns)


def _mlp_out(shard: Shard, layer: Layer) -> Work:
    rows = _mlp(layer).intermediate_size / shard.devices
    return shard.linear("mlp_out_projection", layer, rows, shard.arch.hidden_size)


def _all_reduce(shard: Shard, layer: Layer) -> Work:
    """A ring or two-shot all-reduce sends 2 (n - 1) / n of the activations over each device's link."""
    share = 2 * (shard.devices - 1) / shard.devices
    size_bytes = shard.arch.hidden_size * shard.precision.activation_bytes
    sent = ALL_REDUCES_PER_LAYER * layer.count * share * size_bytes
    return Work("all_reduce", "link", (), link_bytes={"query_tokens": sent} if sent else {})


def _embedding(shard: Shard) -> Work:
    """A gather of one row for each token, split over the devices; the table itself is resident, not read."""
    element_bytes = WEIGHT_FORMATS[shard.precision.head].bytes_per_element
    row_bytes = shard.arch.hidden_size * element_bytes / shard.devices
    return Work(
        "embedding",
        "embedding",
        (),
        gather_bytes={"query_tokens": row_bytes},
        resident_bytes=shard.arch.vocab_size * row_bytes,
    )


def _head(shard: Shard) -> Work:
    """The language-model head: read once in a pass that samples, multiplied for sampled rows only."""
    head = WEIGHT_FORMATS[shard.precision.head]
    elements = shard.arch.vocab_size * shard.arch.hidden_size / shard.devices
    size_bytes = elements * head.bytes_per_element
    return Work(
        "head",
        "head",
        head.compute,
        flops={"sampled_rows": 2 * elements},
        weight_bytes={"head_passes": size_bytes},
        resident_bytes=0.0 if shard.arch.tied_head else size_bytes,
    )


LAYER_OPERATORS: tuple[Callable[[Shard, Layer], Work], ...] = (
    _qkv_projection,
    _attention,
    _output_projection,
    _mlp_in,
    _mlp_out,
    _all_reduce,
)
MODEL_OPERATORS: tuple[Callable[[Shard], Work], ...] = (_embedding, _head)


ONE_DEVICE = Deployment()


def works(arch: ModelArch, precision: Precision, deployment: Deployment = ONE_DEVICE) -> tuple[Work, ...]:
    """Every operator's cost on one device of ``deployment``.

    Raises RooflensError where the heads cannot be divided that way, as an engine would refuse too.
    """
    for layer in arch.layers:
        _check_division(layer, deployment.tensor)
    shard = Shard(arch, precision, deployment.tensor)
    return tuple(_all_rows(shard))


def _all_rows(shard: Shard) -> Iterator[Work]:
    for layer in shard.arch.layers:
        for row in LAYER_OPERATORS:
            yield row(shard, layer)
    for whole in MODEL_OPERATORS:
        yield whole(shard)


def _check_division(layer: Layer, devices: int) -> None:
    heads = _mixer(layer).kv_heads
    if devices < 1 or _mixer(layer).heads % devices:
        raise RooflensError(f"tensor parallel {devices} does not divide {_mixer(layer).heads} attention heads")
    if heads % devices and devices % heads:
        raise RooflensError(f"tensor parallel {devices} neither divides nor is a multiple of {heads} KV heads")


def check_link(hardware: HardwareSpec, devices: int) -> None:
    """RooflensError where several devices are to work together and no link between them is known."""
    if devices > 1 and hardware.link_bandwidth_bytes_per_s is None:
        raise RooflensError(f"{hardware.id} states no link between devices: tensor parallel {devices} has no roofline")


def strict_link_share(hardware: HardwareSpec, devices: int) -> float:
    """The part of an all-reduce's ring traffic that no implementation can avoid, a ratio.

    A switch that adds in the network moves each byte once over a device's link instead of 2 (n - 1) / n times.
    """
    return devices / (2 * (devices - 1)) if hardware.link_reduces and devices > 1 else 1.0


def unknown_rate(hardware: HardwareSpec, rows: tuple[Work, ...]) -> str | None:
    """In one sentence why the compute side of ``rows`` is not known; None where the device states every rate."""
    for row in rows:
        if row.flops and fastest(hardware, row.compute) is None:
            return (
                f"{hardware.id} states no rate for {' or '.join(row.compute)} (it knows "
                f"{', '.join(hardware.ceiling_flops_per_s)}): compute time and MFU are not known, and the floor is "
                "that of memory and link alone"
            )
    return None


def link_notes(hardware: HardwareSpec, devices: int) -> tuple[str, ...]:
    """What the link term of a tensor-parallel group takes for granted."""
    if devices <= 1:
        return ()
    notes = ["the link term counts bytes only, no latency"]
    if devices > USUAL_LINK_DOMAIN and (hardware.link_kind or "").startswith("NVLink"):
        notes.append(f"one NVLink domain of {devices} devices is assumed")
    return tuple(notes)


def cache_note(cached_bytes: float, whole: bool) -> str:
    """What the last-level cache takes off the memory term; ``whole`` where that is all of it."""
    size = f"{cached_bytes / 1e6:.3g} MB" if cached_bytes < 999.5e6 else f"{cached_bytes / 1e9:.3g} GB"
    note = f"{size} may stay in the last-level cache from step to step and are not counted"
    return f"{note}: all of it, so the memory floor says nothing here" if whole else note


def rate_flops_per_s(table: Mapping[str, float], hardware: HardwareSpec, row: Work) -> float:
    """What ``table``, peaks or ceilings of ``hardware``, gives for the flops of ``row``; infinite without one."""
    chosen = fastest(hardware, row.compute) if row.flops else None
    return math.inf if chosen is None else table[chosen]


def kv_bytes_per_token(rows: tuple[Work, ...]) -> float:
    """Bytes that one token's K and V take on one device, over all layers."""
    return sum(row.kv_write_bytes.get("query_tokens", 0.0) for row in rows)
