"""A mixture of experts: the router, the routed experts, the shared one, and what may stand beside them.

Strict: a pass reads top_k experts of a layer, since each of its tokens could choose the same; group-limited routing
changes which, not how few. With zero experts beside them (LongCat) a token may use none that has weights. What uniform
independent routing reads beyond that is ``expert_bytes``. With whole experts on each device (expert parallelism) the
busiest one reads ceil(top_k / devices) at least, and all of its own at most; between the two the bytes follow the
spread. Otherwise every expert is cut over all the devices.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from rooflens.analyzer.operators.mlp import mlp_rows
from rooflens.analyzer.operators.shard import Shard
from rooflens.analyzer.work import Coefficients, Work
from rooflens.arch_records import MixtureOfExperts
from rooflens.spans import spanned


def expert_elements(hidden: int, moe: MixtureOfExperts) -> int:
    """Weights of one routed expert, without its biases."""
    return (3 if moe.gated else 2) * (moe.latent_size or hidden) * moe.intermediate_size


def expert_rows(shard: Shard, count: int, moe: MixtureOfExperts) -> Iterator[Work]:
    """The rows of ``count`` layers."""
    hidden, latent = shard.hidden, moe.latent_size
    routed = moe.experts + moe.zero_experts
    yield from shard.matrix("router", "router", count, hidden, routed, hidden * routed, group="experts")
    if latent:
        yield from shard.matrix("latent_in_projection", "experts", count, hidden, latent, hidden * latent)
    yield from _experts(shard, count, moe)
    if latent:
        yield from shard.matrix("latent_out_projection", "experts", count, latent, hidden, hidden * latent)
    if moe.shared_intermediate_size:
        yield from _shared(shard, count, moe)
    if moe.dense:
        yield from mlp_rows(shard, count, moe.dense)


def _experts(shard: Shard, count: int, moe: MixtureOfExperts) -> Iterator[Work]:
    """The routed experts of this device, for the tokens of all data-parallel ranks that reach it."""
    devices, data = shard.deployment.expert_devices, shard.deployment.data
    own, strict = moe.experts / devices, fewest_experts(moe)
    fewest = strict / devices
    if shard.deployment.expert:
        fewest = math.ceil(fewest)
    matrices = count * expert_elements(shard.hidden, moe)
    each = matrices + count * moe.expert_bias_elements
    width = 2 * (moe.latent_size or shard.hidden) + (3 if moe.gated else 2) * moe.intermediate_size
    tokens = f"rank_tokens@{data}" if data > 1 else "query_tokens"
    for part in shard.parts("experts"):
        size_bytes = part.share * each * part.bytes_per_element
        passed = count * part.share * width * shard.precision.activation_bytes
        yield Work(
            "experts",
            "experts",
            part.compute,
            calls=2 * count * part.share,
            flops={tokens: 2 * part.share * matrices * strict / devices},
            weight_bytes={"passes": fewest * size_bytes},
            expert_bytes=_expected(moe, own, fewest, data, size_bytes),
            activation_bytes={tokens: passed * strict / devices},
            resident_bytes=own * size_bytes,
            elements=moe.experts * each * part.share,
        )


def fewest_experts(moe: MixtureOfExperts) -> int:
    """Experts with weights that a token uses at least."""
    return max(0, moe.top_k - moe.zero_experts)


def _expected(moe: MixtureOfExperts, own: float, fewest: float, data: int, size_bytes: float) -> Coefficients:
    """Bytes of the ``own`` experts of a device that uniform routing reads beyond the ``fewest``.

    Of E + Z experts it reaches top_k and the spread, of which the share E / (E + Z) have weights.
    """
    routed = moe.experts + moe.zero_experts
    spread = spanned("expert_spread", f"{routed}:{moe.top_k}:{data}")
    if moe.zero_experts:
        each = size_bytes * own / routed
        return {spread: each, "passes": each * moe.top_k - fewest * size_bytes}
    span = moe.experts - moe.top_k
    return {spread: (own - fewest) / span * size_bytes if span else 0.0}


def _shared(shard: Shard, count: int, moe: MixtureOfExperts) -> Iterator[Work]:
    """The shared expert as one row of two kernels, in and out, and the column that weighs it."""
    hidden, wide = shard.hidden, moe.shared_intermediate_size
    matrices = 3 if moe.gated else 2
    columns, whole = matrices * wide / shard.devices, matrices * hidden * wide
    for row in shard.matrix("shared_expert", "shared_experts", count, hidden, columns, whole, group="experts"):
        yield replace(row, calls=2 * row.calls, activation_bytes=shard.passed(row.calls, 2 * hidden + columns))
    if moe.shared_gate:
        yield from shard.matrix("shared_expert_gate", "router", count, hidden, 1, hidden, group="experts")
