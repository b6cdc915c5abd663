"""Deployments that no engine could run, refused in one line."""

from __future__ import annotations

from collections.abc import Iterator

from rooflens.arch_records import Attention, Deployment, Layer, MixtureOfExperts, ModelArch
from rooflens.records import RooflensError


def check_deployment(arch: ModelArch, deployment: Deployment) -> None:
    """RooflensError where ``arch`` cannot be spread as ``deployment`` says, as an engine would refuse too."""
    for name in ("pipeline", "data", "context"):
        if getattr(deployment, name) < 1:
            raise RooflensError(f"{name} parallel {getattr(deployment, name)} must be at least 1")
    layers = (*arch.layers, *arch.encoder)
    for layer in layers:
        _check_heads(layer, deployment.tensor)
        _check_experts(layer, deployment)
    if deployment.tensor < 1:
        raise RooflensError(f"tensor parallel {deployment.tensor} must be at least 1")
    if deployment.tensor % deployment.context:
        raise RooflensError(
            f"context parallel {deployment.context} does not divide tensor parallel {deployment.tensor}, whose devices "
            "share the cache"
        )
    depth = sum(layer.count for layer in arch.layers)
    if deployment.pipeline > depth:
        raise RooflensError(f"pipeline parallel {deployment.pipeline} has more stages than the model's {depth} layers")


def _heads(layer: Layer) -> Iterator[tuple[int, int | None]]:
    """(query heads, KV heads) of each thing that tensor parallelism divides; None where nothing is cached by head."""
    for part in (layer.mixer, layer.cross):
        if part is not None:
            yield part.heads, getattr(part, "kv_heads", None)


def _check_heads(layer: Layer, devices: int) -> None:
    kind = "attention" if isinstance(layer.mixer, Attention) or layer.cross else "mixer"
    for heads, kv in _heads(layer):
        if devices < 1 or heads % devices:
            raise RooflensError(f"tensor parallel {devices} does not divide {heads} {kind} heads")
        groups = getattr(layer.mixer, "output_groups", devices)
        if groups % devices:
            raise RooflensError(f"tensor parallel {devices} does not divide {groups} groups of output heads")
        if kv is not None and kv % devices and devices % kv:
            raise RooflensError(f"tensor parallel {devices} neither divides nor is a multiple of {kv} KV heads")


def _check_experts(layer: Layer, deployment: Deployment) -> None:
    devices = deployment.expert_devices
    if deployment.expert and isinstance(layer.mlp, MixtureOfExperts) and layer.mlp.experts % devices:
        raise RooflensError(
            f"expert parallel over {devices} devices (tensor x data) does not divide {layer.mlp.experts} experts"
        )
