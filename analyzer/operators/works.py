"""What each operator of a forward pass costs one device, as coefficients over the features; one operator, one row.

Lower bounds throughout: activations never leave the chip, K and V of new tokens are written and not read back, rotary
and sampling are free, the embedding is a gather of rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace

from rooflens.analyzer.operators.checks import check_deployment
from rooflens.analyzer.operators.compressed import compressed_rows
from rooflens.analyzer.operators.cross import cross_rows
from rooflens.analyzer.operators.experts import expert_rows
from rooflens.analyzer.operators.latent import latent_rows
from rooflens.analyzer.operators.links import layer_links, stage_link
from rooflens.analyzer.operators.lora import Lora, lora_rows
from rooflens.analyzer.operators.mlp import mlp_rows
from rooflens.analyzer.operators.shard import Shard
from rooflens.analyzer.operators.softmax import softmax_rows
from rooflens.analyzer.operators.state import state_rows
from rooflens.analyzer.operators.whole import first_rows, head_rows, other_row
from rooflens.analyzer.precision import Precision
from rooflens.analyzer.work import Work, dot
from rooflens.arch_records import (
    Attention,
    CompressedAttention,
    DenseMLP,
    Deployment,
    LatentAttention,
    Layer,
    ModelArch,
)

ONE_DEVICE = Deployment()
ONE_PASS = {"passes": 1.0, "head_passes": 1.0}


def works(
    arch: ModelArch, precision: Precision, deployment: Deployment = ONE_DEVICE, lora: Lora | None = None
) -> tuple[Work, ...]:
    """Every operator's cost on one device of ``deployment``: with a pipeline, of the stage that reads most weights.

    A step takes at least as long as its slowest stage. Raises RooflensError where the model cannot be divided that
    way, as an engine would refuse too.
    """
    return max(stage_works(arch, precision, deployment, lora), key=_read_bytes)


def stage_works(
    arch: ModelArch, precision: Precision, deployment: Deployment = ONE_DEVICE, lora: Lora | None = None
) -> tuple[tuple[Work, ...], ...]:
    """The rows of one device of each pipeline stage, first to last; raises what works raises."""
    check_deployment(arch, deployment)
    shard = Shard(arch, precision, deployment)
    stages = _stages(arch, deployment.pipeline)
    return tuple(tuple(_stage_rows(shard, number, layers, lora)) for number, layers in enumerate(stages))


def distinct_stages(stages: Iterable[tuple[Work, ...]]) -> tuple[tuple[Work, ...], ...]:
    """The stages that differ, in their order: equal ones take equally long."""
    found: list[tuple[Work, ...]] = []
    for rows in stages:
        if rows not in found:
            found.append(rows)
    return tuple(found)


def mtp_works(arch: ModelArch, precision: Precision, deployment: Deployment = ONE_DEVICE) -> tuple[Work, ...]:
    """One pass of the multi-token prediction layers: themselves, what joins their inputs, and the model's own head.

    () for a model that has none. They run on the devices of one stage; embedding and head are the model's.
    """
    if not arch.mtp:
        return ()
    check_deployment(replace(arch, layers=arch.mtp, encoder=()), replace(deployment, pipeline=1))
    shard = Shard(arch, precision, replace(deployment, pipeline=1), tensors="mtp")
    rows = [row for layer in arch.mtp for row in _layer_rows(shard, layer)]
    if arch.mtp_elements:
        joined = 2 * arch.hidden_size  # hidden state and embedding, one beside the other
        columns = arch.mtp_elements / joined
        rows += shard.matrix("mtp_projection", "mtp", 1, joined, columns, arch.mtp_elements)
    return (*rows, *head_rows(replace(shard, tensors=""), own=False, held=False))


def _stage_rows(shard: Shard, number: int, layers: tuple[Layer, ...], lora: Lora | None) -> Iterator[Work]:
    arch, stages = shard.arch, shard.deployment.pipeline
    for layer in layers:
        yield from _layer_rows(shard, layer)
        if lora is not None:
            yield from lora_rows(shard, layer, lora)
    if number == 0:
        yield from first_rows(shard)
        yield from _encoder_rows(replace(shard, tensors="encoder"))
    yield from other_row(shard, "residual", arch.residual_elements / stages)
    if number == stages - 1:
        yield from head_rows(shard, own=not arch.tied_head, held=not arch.tied_head or stages > 1)
    else:
        yield from stage_link(shard)


def _layer_rows(shard: Shard, layer: Layer) -> Iterator[Work]:
    """The rows of ``layer.count`` layers in the order in which they run."""
    mixer, mlp, count = layer.mixer, layer.mlp, layer.count
    if isinstance(mixer, Attention):
        yield from softmax_rows(shard, count, mixer)
    elif isinstance(mixer, LatentAttention):
        yield from latent_rows(shard, count, mixer)
    elif isinstance(mixer, CompressedAttention):
        yield from compressed_rows(shard, count, mixer)
    elif mixer is not None:
        yield from state_rows(shard, count, mixer)
    if layer.cross is not None:
        yield from cross_rows(shard, count, layer.cross)
    if isinstance(mlp, DenseMLP):
        yield from mlp_rows(shard, count, mlp)
    elif mlp is not None:
        yield from expert_rows(shard, count, mlp)
    yield from other_row(shard, "norms", count * layer.other_elements)
    yield from layer_links(shard, layer)


def _encoder_rows(shard: Shard) -> Iterator[Work]:
    """An encoder's weights stay in memory; no pass of the decoder reads them."""
    rows = [row for layer in shard.arch.encoder for row in _layer_rows(shard, layer)]
    if rows:
        held = sum(row.resident_bytes for row in rows)
        yield Work("encoder", "encoder", resident_bytes=held, elements=sum(row.elements for row in rows))


def _stages(arch: ModelArch, pipeline: int) -> tuple[tuple[Layer, ...], ...]:
    """The layers of each stage: equal numbers in their order, what is left over to the stages before the last."""
    if pipeline == 1:
        return (arch.layers,)
    depth = sum(layer.count for layer in arch.layers)
    listed = tuple(index for index, layer in enumerate(arch.layers) for _ in range(layer.count))
    order = arch.order if len(arch.order) == depth else listed
    equal, left = divmod(depth, pipeline)
    sizes = [equal + (pipeline - 1 - left <= stage < pipeline - 1) for stage in range(pipeline)]
    stages, start = [], 0
    for size in sizes:
        counts = Counter(order[start : start + size])
        stages.append(tuple(replace(arch.layers[index], count=counts[index]) for index in sorted(counts)))
        start += size
    return tuple(stages)


def _read_bytes(rows: tuple[Work, ...]) -> float:
    known = [{name: each for name, each in row.weight_bytes.items() if name in ONE_PASS} for row in rows]
    return sum(dot(weights, ONE_PASS) for weights in known)
