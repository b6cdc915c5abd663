"""The roofline of many steps at once: features @ coefficients, then a maximum."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from rooflens.analyzer.arch import arch_from_config
from rooflens.analyzer.features import feature_matrix
from rooflens.analyzer.operators import (
    CACHE_NOTE_RATIO,
    Coefficients,
    Work,
    cache_note,
    check_link,
    link_notes,
    rate_flops_per_s,
    strict_link_share,
    unknown_rate,
    works,
)
from rooflens.analyzer.precision import Precision, precision_of
from rooflens.model_records import Bound, HardwareSpec, ModelArch, StepAnalysis
from rooflens.records import EngineInfo, RooflensError, StepKind, StepTable

Matrix = NDArray[np.float64]
MODELLED_KINDS = (StepKind.PREFILL, StepKind.DECODE, StepKind.MIXED, StepKind.VERIFY)


@dataclass(frozen=True, slots=True)
class _Setting:
    """What the steps ran on, with the operators of one device and the features that they need."""

    arch: ModelArch
    hardware: HardwareSpec
    devices: int
    rows: tuple[Work, ...]
    names: tuple[str, ...]

    def coefficients(self, parts: Callable[[Work], Sequence[Coefficients]]) -> Matrix:
        """The matrix (features, operators) of one kind of work of one device."""
        return np.array([[sum(p.get(n, 0.0) for p in parts(row)) for row in self.rows] for n in self.names])

    def groups(self) -> Mapping[str, Matrix]:
        """For each operator group the 0/1 vector (operators,) of its members."""
        names = dict.fromkeys(row.group for row in self.rows)
        return {group: np.array([float(row.group == group) for row in self.rows]) for group in names}

    def rates(self, table: Mapping[str, float]) -> Matrix:
        """The flop/s (operators,) at which each operator can run; infinite for no flops, for all if one is unknown."""
        if unknown_rate(self.hardware, self.rows):
            return np.full(len(self.rows), np.inf)
        return np.array([rate_flops_per_s(table, self.hardware, row) for row in self.rows])

    def notes(self, flags: tuple[str, ...], byte: Matrix) -> tuple[str, ...]:
        """What a reader of the bounds should know, each one sentence."""
        unknown, found = unknown_rate(self.hardware, self.rows), list(self.arch.assumptions)
        a_pass, kept = float(byte[self.names.index("passes")].sum()), float(self.hardware.cache_bytes or 0)
        if kept > CACHE_NOTE_RATIO * a_pass:
            found.append(cache_note(self.devices * min(kept, a_pass), whole=kept >= a_pass))
        found += link_notes(self.hardware, self.devices)
        return (*found, *((unknown,) if unknown else ()), *flags)


def analyse(
    table: StepTable,
    arch: ModelArch,
    hardware: HardwareSpec,
    precision: Precision,
    tensor_parallel: int = 1,
    block_tokens: int | None = None,
) -> StepAnalysis:
    """The bounds of every step of ``table`` beside its observed time; definitions are those of StepAnalysis.

    ``block_tokens`` is the size of a KV block; with it, prefixes shared between sequences count once. Steps of a
    kind other than prefill, decode, mixed and verify, and steps of which a needed column is not known, come back
    with ``modelled`` False. A rate that the device does not state leaves a floor of memory and link. Raises
    RooflensError for a column missing altogether, heads that cannot be divided, or several devices without a link.
    """
    rows = works(arch, precision, tensor_parallel)
    check_link(hardware, tensor_parallel)
    used = {n for row in rows for part in (row.flops, row.link_bytes, *row.memory_parts()) for n in part}
    setting = _Setting(arch, hardware, tensor_parallel, rows, tuple(sorted(used | {"passes"})))
    features, known = feature_matrix(table, setting.names, block_tokens)
    modelled = known & _of_modelled_kind(table)
    features[~modelled] = np.nan
    return _bounds(table, setting, features, modelled)


def analyse_engine(table: StepTable, info: EngineInfo, hardware: HardwareSpec) -> StepAnalysis:
    """As analyse, with model, formats and parallelism as the engine stated them.

    Raises RooflensError where the engine did not state its model's config, or runs in a way not modelled yet.
    """
    if info.model_config is None:
        raise RooflensError("the engine did not state its model's config: give --model NAME or config.json")
    for name, value, neutral in (
        ("pipeline_parallel", info.pipeline_parallel, 1),
        ("context_parallel", info.context_parallel, 1),
        ("expert_parallel", info.expert_parallel, False),
    ):
        if value != neutral:
            raise RooflensError(f"engine runs with {name} {value}, which is not modelled yet")
    arch = arch_from_config(dict(info.model_config), info.model_name or "model")
    if arch.activation_assumed and not info.weight_dtype:
        arch = replace(arch, assumptions=(*arch.assumptions, "no dtype is stated: bf16 is assumed"))
    return analyse(table, arch, hardware, precision_of(info, arch), info.tensor_parallel, info.block_tokens)


def _of_modelled_kind(table: StepTable) -> NDArray[np.bool_]:
    if "kind" not in table.columns:
        return np.ones(len(table), dtype=bool)
    mask: NDArray[np.bool_] = np.isin(table["kind"], MODELLED_KINDS) & table.where("kind")
    return mask


def _bounds(table: StepTable, setting: _Setting, features: Matrix, modelled: NDArray[np.bool_]) -> StepAnalysis:
    hardware, devices = setting.hardware, setting.devices
    bandwidth = hardware.memory_bandwidth_bytes_per_s
    flop = setting.coefficients(lambda row: (row.flops,))
    byte = setting.coefficients(Work.memory_parts)
    link = setting.coefficients(lambda row: (row.link_bytes,)) / (hardware.link_bandwidth_bytes_per_s or np.inf)
    groups = setting.groups()

    cached = features[:, setting.names.index("passes")] * (hardware.cache_bytes or 0)
    memory_s = np.maximum(features @ byte.sum(axis=1) - cached, 0.0) / bandwidth
    operator_compute_s = features @ (flop / setting.rates(hardware.ceiling_flops_per_s))
    compute_s = operator_compute_s.sum(axis=1)
    operator_s = np.maximum(operator_compute_s, features @ (byte / bandwidth))
    link_s = features @ link.sum(axis=1)
    sides = np.stack([memory_s, compute_s, link_s * strict_link_share(hardware, devices)], axis=1)
    floor_s = sides.max(axis=1)
    observed_s, compared = _observed(table, modelled)

    def summed(parts: Callable[[Work], Sequence[Coefficients]]) -> Matrix:
        total: Matrix = features @ (devices * setting.coefficients(parts).sum(axis=1))
        return total

    return StepAnalysis(
        hardware=hardware.id,
        model=setting.arch.name,
        tensor_parallel=devices,
        modelled=modelled,
        compared=compared,
        below_floor=compared & (observed_s < floor_s),
        bound=np.where(modelled, np.argmax(np.nan_to_num(sides), axis=1), Bound.MEMORY),
        floor_s=floor_s,
        memory_s=memory_s,
        compute_s=compute_s,
        link_floor_s=sides[:, 2],
        serial_floor_s=operator_s.sum(axis=1),
        link_s=link_s,
        observed_s=observed_s,
        weight_bytes=summed(lambda row: (row.weight_bytes,)),
        kv_read_bytes=summed(lambda row: (row.kv_read_bytes,)),
        kv_write_bytes=summed(lambda row: (row.kv_write_bytes,)),
        flops=summed(lambda row: (row.flops,)),
        mbu=memory_s / observed_s,
        mfu=features @ (flop / setting.rates(hardware.peak_flops_per_s)).sum(axis=1) / observed_s,
        group_s={name: operator_s @ member + features @ (link @ member) for name, member in groups.items()},
        group_bytes={name: features @ (devices * byte @ member) for name, member in groups.items()},
        group_flops={name: features @ (devices * flop @ member) for name, member in groups.items()},
        notes=setting.notes(hardware.flags, byte),
        compute_known=unknown_rate(hardware, setting.rows) is None,
    )


def _observed(table: StepTable, modelled: NDArray[np.bool_]) -> tuple[Matrix, NDArray[np.bool_]]:
    """Observed seconds, NaN where not known, and the mask of steps that can be compared with their bounds."""
    if "observed_s" not in table.columns:
        return np.full(len(table), np.nan), np.zeros(len(table), dtype=bool)
    seconds = table["observed_s"].astype(np.float64)
    known = table.where("observed_s") & (seconds > 0)
    return np.where(known, seconds, np.nan), known & modelled
