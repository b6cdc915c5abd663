"""What each operator of a forward pass costs one device, as coefficients over the features; one operator, one row.

Lower bounds throughout: activations never leave the chip, K and V of new tokens are written and not read back,
norms, biases, rotary and sampling are free, the embedding is a gather of rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from rooflens.analyzer.hardware import fastest
from rooflens.analyzer.precision import KV_FORMATS, WEIGHT_FORMATS, Precision
from rooflens.model_records import HardwareSpec, LayerSpec, ModelArch
from rooflens.records import RooflensError

Coefficients = Mapping[str, float]  # feature name -> flops or bytes for each unit of it
CACHE_NOTE_RATIO = 0.01  # of the bytes of a step, from which what the cache may keep is worth a word
USUAL_LINK_DOMAIN = 8  # devices on one NVLink switch of a usual server
ALL_REDUCES_PER_LAYER = 2  # after the attention's and after the MLP's output projection (Megatron-LM, 2019)


@dataclass(frozen=True, slots=True)
class Work:
    """One operator on one device: flops (2 for a multiply-add), bytes moved, bytes that must be resident.

    ``compute`` are the number formats whose units may run the flops; ``resident_bytes`` is what it keeps in
    memory for good, which for a table that is only gathered from is more than it reads.
    """

    operator: str
    group: str
    compute: tuple[str, ...]
    flops: Coefficients = field(default_factory=dict)
    weight_bytes: Coefficients = field(default_factory=dict)
    kv_read_bytes: Coefficients = field(default_factory=dict)
    kv_write_bytes: Coefficients = field(default_factory=dict)
    gather_bytes: Coefficients = field(default_factory=dict)
    link_bytes: Coefficients = field(default_factory=dict)
    resident_bytes: float = 0.0

    def memory_parts(self) -> tuple[Coefficients, ...]:
        """All coefficients that are bytes of this device's memory."""
        return (self.weight_bytes, self.kv_read_bytes, self.kv_write_bytes, self.gather_bytes)


@dataclass(frozen=True, slots=True)
class Shard:
    """One device's part of a model: sizes divided by ``devices``, KV heads replicated where there are too few."""

    arch: ModelArch
    precision: Precision
    devices: int

    def linear(self, operator: str, layer: LayerSpec, rows: float, columns: float) -> Work:
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

    def kv_heads(self, layer: LayerSpec) -> int:
        """KV heads that this device holds: an equal share, at least one."""
        return max(1, layer.kv_heads // self.devices)


def _qkv_projection(shard: Shard, layer: LayerSpec) -> Work:
    columns = (layer.heads // shard.devices + 2 * shard.kv_heads(layer)) * layer.head_dim
    return shard.linear("qkv_projection", layer, shard.arch.hidden_size, columns)


def _attention(shard: Shard, layer: LayerSpec) -> Work:
    """QK^T and PV: 2 x 2 flops x head_dim for each head and query-key pair under the causal mask.

    K and V of the tokens in the cache are read once, those of new tokens written once; the KV heads of a group
    are read once for all its query heads.
    """
    kv = KV_FORMATS[shard.precision.kv]
    pair_flops = 4 * layer.count * (layer.heads // shard.devices) * layer.head_dim
    token_bytes = 2 * layer.count * shard.kv_heads(layer) * layer.head_dim * kv.bytes_per_element
    return Work(
        "attention",
        "attention",
        kv.compute,
        flops={"causal_pairs": pair_flops},
        kv_read_bytes={"context_tokens": token_bytes},
        kv_write_bytes={"query_tokens": token_bytes},
    )


def _output_projection(shard: Shard, layer: LayerSpec) -> Work:
    rows = layer.heads // shard.devices * layer.head_dim
    return shard.linear("output_projection", layer, rows, shard.arch.hidden_size)


def _mlp_in(shard: Shard, layer: LayerSpec) -> Work:
    matrices = 2 if layer.gated else 1
    columns = matrices * layer.intermediate_size / shard.devices
    return shard.linear("mlp_in_projection", layer, shard.arch.hidden_size, columns)


def _mlp_out(shard: Shard, layer: LayerSpec) -> Work:
    rows = layer.intermediate_size / shard.devices
    return shard.linear("mlp_out_projection", layer, rows, shard.arch.hidden_size)


def _all_reduce(shard: Shard, layer: LayerSpec) -> Work:
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


LAYER_OPERATORS: tuple[Callable[[Shard, LayerSpec], Work], ...] = (
    _qkv_projection,
    _attention,
    _output_projection,
    _mlp_in,
    _mlp_out,
    _all_reduce,
)
MODEL_OPERATORS: tuple[Callable[[Shard], Work], ...] = (_embedding, _head)


def works(arch: ModelArch, precision: Precision, tensor_parallel: int = 1) -> tuple[Work, ...]:
    """Every operator's cost on one of ``tensor_parallel`` devices.

    Raises RooflensError where the heads cannot be divided that way, as an engine would refuse too.
    """
    for layer in arch.layers:
        _check_division(layer, tensor_parallel)
    shard = Shard(arch, precision, tensor_parallel)
    return tuple(_all_rows(shard))


def _all_rows(shard: Shard) -> Iterator[Work]:
    for layer in shard.arch.layers:
        for row in LAYER_OPERATORS:
            yield row(shard, layer)
    for whole in MODEL_OPERATORS:
        yield whole(shard)


def _check_division(layer: LayerSpec, devices: int) -> None:
    if devices < 1 or layer.heads % devices:
        raise RooflensError(f"tensor parallel {devices} does not divide {layer.heads} attention heads")
    if layer.kv_heads % devices and devices % layer.kv_heads:
        raise RooflensError(f"tensor parallel {devices} neither divides nor is a multiple of {layer.kv_heads} KV heads")


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


def dot(coefficients: Coefficients, values: Mapping[str, float]) -> float:
    """The linear form at one point: the sum of coefficient x feature."""
    return sum(c * values[name] for name, c in coefficients.items())


def kv_bytes_per_token(rows: tuple[Work, ...]) -> float:
    """Bytes that one token's K and V take on one device, over all layers."""
    return sum(row.kv_write_bytes.get("query_tokens", 0.0) for row in rows)


def resident_bytes(rows: tuple[Work, ...]) -> float:
    """Bytes of weights that one device keeps in memory; norms and biases are left out."""
    return sum(row.resident_bytes for row in rows)
