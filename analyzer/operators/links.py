"""What devices send each other: one row a collective, of what one device sends."""

from __future__ import annotations

import math
from collections.abc import Iterator

from rooflens.analyzer.operators.shard import Shard
from rooflens.analyzer.work import Coefficients, Work
from rooflens.arch_records import Attention, CompressedAttention, LatentAttention, Layer, Mixer, MixtureOfExperts
from rooflens.model_records import HardwareSpec

ALL_REDUCE, ALL_TO_ALL, ALL_GATHER, SEND = "all_reduce", "all_to_all", "all_gather", "p2p"


def layer_links(shard: Shard, layer: Layer) -> Iterator[Work]:
    """The collectives of ``layer.count`` layers."""
    yield _all_reduce(shard, layer)
    if isinstance(layer.mlp, MixtureOfExperts) and shard.deployment.data > 1:
        yield (_exchange if shard.deployment.expert else _gather_tokens)(shard, layer.count, layer.mlp)
    if shard.deployment.context > 1 and layer.mixer is not None:
        yield from _gather_context(shard, layer.count, layer.mixer)


def _all_reduce(shard: Shard, layer: Layer) -> Work:
    """A ring or two-shot all-reduce sends 2 (n - 1) / n of the activations over each device's link."""
    share = 2 * (shard.devices - 1) / shard.devices
    times = layer.count * _reduces(shard, layer)
    sent = times * share * shard.hidden * shard.precision.activation_bytes
    calls = times if sent else 0
    return Work(
        "all_reduce", "link", calls=calls, link_bytes={"query_tokens": sent} if sent else {}, collective=ALL_REDUCE
    )


def _reduces(shard: Shard, layer: Layer) -> int:
    """One after each output projection (Megatron-LM, 2019), but for experts that exchange tokens instead."""
    exchanged = isinstance(layer.mlp, MixtureOfExperts) and shard.deployment.expert and shard.deployment.data > 1
    return sum((layer.mixer is not None, layer.cross is not None, layer.mlp is not None and not exchanged))


def _exchange(shard: Shard, count: int, moe: MixtureOfExperts) -> Work:
    """Tokens to the devices of their experts and back, each to a device once: what uniform routing sends.

    A device holds E / n experts, none of which a token chooses with the chance C(E - E / n, k) / C(E, k); one device
    of n is the token's own. The tensor-parallel devices of a rank divide its tokens.
    """
    devices = shard.deployment.expert_devices
    elsewhere = moe.experts - moe.experts // devices
    none = math.comb(elsewhere, moe.top_k) / math.comb(moe.experts, moe.top_k)
    copies = (devices - 1) * (1 - none) / shard.devices
    width = moe.latent_size or shard.hidden
    sent = 2 * count * copies * width * shard.precision.activation_bytes
    return Work("expert_exchange", "link", calls=2 * count, link_bytes={"query_tokens": sent}, collective=ALL_TO_ALL)


def _gather_tokens(shard: Shard, count: int, moe: MixtureOfExperts) -> Work:
    """Experts cut over all ranks need every rank's tokens: a gather before, a scattered sum after, both in a ring."""
    sent = 2 * count * (shard.deployment.data - 1) * shard.hidden * shard.precision.activation_bytes / shard.devices
    return Work("token_gather", "link", calls=2 * count, link_bytes={"query_tokens": sent}, collective=ALL_GATHER)


def _gather_context(shard: Shard, count: int, mixer: Mixer) -> Iterator[Work]:
    """Queries to the devices that hold other parts of the context, and their parts of the outputs back."""
    if isinstance(mixer, Attention):
        width = mixer.head_dim + mixer.value_head_dim
    elif isinstance(mixer, LatentAttention):
        width = 2 * mixer.kv_rank + mixer.rope_dim
    elif isinstance(mixer, CompressedAttention):
        width = 2 * mixer.head_dim
    else:
        return
    others = shard.deployment.context - 1
    sent = count * others * mixer.heads // shard.devices * width * shard.precision.activation_bytes
    yield Work("context_gather", "link", calls=2 * count, link_bytes={"query_tokens": sent}, collective=ALL_GATHER)


def stage_link(shard: Shard) -> Iterator[Work]:
    """Every pipeline stage but the last hands on the hidden states, each of its devices a share."""
    if shard.deployment.pipeline > 1:
        sent = shard.hidden * shard.precision.activation_bytes / shard.devices
        yield Work("stage_send", "link", calls=1, link_bytes={"query_tokens": sent}, collective=SEND)


def strict_link_share(hardware: HardwareSpec, devices: int) -> float:
    """The part of an all-reduce's ring traffic that no implementation can avoid, a ratio.

    A switch that adds in the network moves each byte once over a device's link instead of 2 (n - 1) / n times.
    """
    return devices / (2 * (devices - 1)) if hardware.link_reduces and devices > 1 else 1.0


def strict_link_bytes(hardware: HardwareSpec, row: Work, devices: int) -> Coefficients:
    """What of a row's link bytes belongs to the floor; ``devices`` are the tensor-parallel ones.

    An all-reduce by its strict share, and what stages hand on. Routing may keep every token where it is, and engines
    differ in what they gather: neither is a bound.
    """
    share = {ALL_REDUCE: strict_link_share(hardware, devices), SEND: 1.0}.get(row.collective, 0.0)
    return {name: share * sent for name, sent in row.link_bytes.items() if share}
