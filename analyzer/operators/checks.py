"""Deployments that no engine could run, refused in one line."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from rooflens.arch_records import Attention, Deployment, Layer, MixtureOfExperts, ModelArch
from rooflens.records import RooflensError

MOST_NAMED = 12  # sizes that a message lists


def check_deployment(arch: ModelArch, deployment: Deployment) -> None:
    """RooflensError where ``arch`` cannot be spread as ``deployment`` says, as an engine would refuse too."""
    for name in ("pipeline", "data", "context"):
        if getattr(deployment, name) < 1:
            raise RooflensError(f"{name} parallel {getattr(deployment, name)} must be at least 1")
    layers = (*arch.layers, *arch.encoder)
    for layer in layers:
        fault = _heads_fault(layer, deployment.tensor)
        if fault:
            raise RooflensError(f"{fault}; {_fitting(layers)} (--tp of predict)")
        _check_experts(layer, deployment)
    if deployment.tensor < 1:
        raise RooflensError(f"tensor parallel {deployment.tensor} must be at least 1")
    if deployment.tensor % deployment.context:
        raise RooflensError(
            f"context parallel {deployment.context} does not divide tensor parallel {deployment.tensor}, whose devices "
            f"share the cache; {_sizes(_divisors(deployment.tensor))} (--cp of predict)"
        )
    depth = sum(layer.count for layer in arch.layers)
    if deployment.pipeline > depth:
        raise RooflensError(
            f"pipeline parallel {deployment.pipeline} has more stages than the model's {depth} layers; any up to "
            f"{depth} is possible (--pp of predict)"
        )


def _fitting(layers: tuple[Layer, ...]) -> str:
    """The tensor-parallel sizes that suit every layer."""
    shared = math.gcd(*(heads for layer in layers for heads, _ in _heads(layer)))
    return _sizes(n for n in _divisors(shared) if not any(_heads_fault(layer, n) for layer in layers))


def _divisors(number: int) -> Iterator[int]:
    return (n for n in range(1, number + 1) if number % n == 0)


def _sizes(fitting: Iterable[int]) -> str:
    found = list(fitting)
    return f"{', '.join(map(str, found[:MOST_NAMED]))}{', ...' if found[MOST_NAMED:] else ''} would"


def _heads(layer: Layer) -> Iterator[tuple[int, int | None]]:
    """(query heads, KV heads) of each thing that tensor parallelism divides; None where nothing is cached by head."""
    for part in (layer.mixer, layer.cross):
        if part is not None:
            yield part.heads, getattr(part, "kv_heads", None)


def _heads_fault(layer: Layer, devices: int) -> str | None:
    """Why ``devices`` cannot share the heads of a layer, None where they can."""
    kind = "attention" if isinstance(layer.mixer, Attention) or layer.cross else "mixer"
    for heads, kv in _heads(layer):
        if devices < 1 or heads % devices:
            return f"tensor parallel {devices} does not divide {heads} {kind} heads"
        groups = getattr(layer.mixer, "output_groups", devices)
        if groups % devices:
            return f"tensor parallel {devices} does not divide {groups} groups of output heads"
        if kv is not None and kv % devices and devices % kv:
            return f"tensor parallel {devices} neither divides nor is a multiple of {kv} KV heads"
    return None


def _check_experts(layer: Layer, deployment: Deployment) -> None:
    devices = deployment.expert_devices
    if deployment.expert and isinstance(layer.mlp, MixtureOfExperts) and layer.mlp.experts % devices:
        raise RooflensError(
            f"expert parallel over {devices} devices (tensor x data) does not divide {layer.mlp.experts} experts; "
            f"{_sizes(_divisors(layer.mlp.experts))} (--tp x --dp of predict)"
        )
