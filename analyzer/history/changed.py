"""The roofline of an engine under a change of its deployment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from rooflens.analyzer.precision import KV_FORMATS, Precision, choose_precision
from rooflens.analyzer.roofline import Roofline
from rooflens.arch_records import ModelArch
from rooflens.model_records import HardwareSpec
from rooflens.records import RooflensError

WEIGHTS_NOTE = "how good the answers of {} weights are is not judged: measure it on your own tasks"
KV_NOTE = "how good the answers with a {} KV cache are is not judged: measure it on your own tasks"
BATCH_NOTE = (
    "a batch of {} needs as many requests at a time: those captured had {} a decode step, and {} waited; prefill steps "
    "stay as they are, and each request takes longer for a token"
)
TP_NOTE = "what more devices exchange is counted at the datasheet's link and as published kernels reach it"
HARDWARE_NOTE = "the host's part of a step is taken to be the same beside {}"
MODEL_NOTE = "another model answers with other lengths; those captured are put through it as they are"
KERNELS_NOTE = "what is reachable under the change is {}"


@dataclass(frozen=True, slots=True)
class Change:
    """What a what-if changes; None leaves it as it was. ``text`` is how it was asked for.

    ``batch`` is of decode and verify steps, whose tokens stay the same in number.
    """

    text: str
    weights: str | None = None
    kv: str | None = None
    tensor: int | None = None
    batch: int | None = None
    hardware: HardwareSpec | None = None
    arch: ModelArch | None = None


def change_of(text: str, changes: Mapping[str, Any], hardware: HardwareSpec | None, arch: ModelArch | None) -> Change:
    """The change with what its names stand for."""
    return Change(
        text, changes.get("weights"), changes.get("kv"), changes.get("tp"), changes.get("batch"), hardware, arch
    )


def under(now: Roofline, change: Change) -> Roofline:
    """The roofline under ``change``; RooflensError in one line for one that cannot be run so."""
    arch = change.arch or now.arch
    hardware = change.hardware or now.hardware
    deployment = now.deployment if change.tensor is None else replace(now.deployment, tensor=change.tensor)
    same = hardware.id == now.hardware.id
    return Roofline(
        arch,
        hardware,
        _precision(now, change, arch),
        deployment,
        now.block_tokens,
        now.longest_tokens if change.arch is None else None,
        now.kv_groups,
        now.graph_sizes,
        now.eager,
        now.efficiency if same else None,
    )


def _precision(now: Roofline, change: Change, arch: ModelArch) -> Precision:
    found = now.precision
    if change.arch is not None:
        found = choose_precision(arch, change.weights, None)
    elif change.weights is not None:
        chosen = choose_precision(arch, change.weights, found.kv)
        found = replace(chosen, indexer_keys=found.indexer_keys, state=found.state)
    if change.kv is not None:
        if change.kv not in KV_FORMATS:
            raise RooflensError(f"--set kv: {change.kv!r} is no format of a KV cache")
        wide = KV_FORMATS[change.kv].bytes_per_element > 1
        found = replace(found, kv=change.kv, indexer_keys=found.indexer_keys if wide else None)
    return found


def notes_of(change: Change, then: Roofline | None, batch_now: float | None, waiting: float | None) -> tuple[str, ...]:
    """What would make the answer wrong, one sentence each."""
    found = []
    if change.weights is not None:
        found.append(WEIGHTS_NOTE.format(change.weights))
    if change.kv is not None:
        found.append(KV_NOTE.format(change.kv))
    if change.batch is not None:
        told = ["an unknown number" if value is None else f"{value:.3g}" for value in (batch_now, waiting)]
        found.append(BATCH_NOTE.format(change.batch, *told))
    if change.tensor is not None:
        found.append(TP_NOTE)
    if change.hardware is not None:
        found.append(HARDWARE_NOTE.format(change.hardware.id))
    if change.arch is not None:
        found.append(MODEL_NOTE)
    if then is not None and then.efficiency is not None and then.efficiency.origin == "assumed":
        found.append(KERNELS_NOTE.format(f"assumed: {then.efficiency.source.removeprefix('assumed: ')}"))
    elif then is not None and then.efficiency is None:
        found.append(KERNELS_NOTE.format("not known: the expected floor stands in for it on both sides"))
    return tuple(found)
