"""The roofline of many steps at once: features @ coefficients, then a maximum."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from rooflens.analyzer.arch import arch_from_config
from rooflens.analyzer.features import feature_matrix
from rooflens.analyzer.operators import (
    CACHE_NOTE_RATIO,
    cache_note,
    check_link,
    link_notes,
    rate_flops_per_s,
    strict_link_share,
    unknown_rate,
    works,
)
from rooflens.analyzer.precision import Precision, precision_of
from rooflens.analyzer.work import Coefficients, Work
from rooflens.arch_records import Deployment, ModelArch
from rooflens.model_records import Bound, HardwareSpec, StepAnalysis
from rooflens.records import EngineInfo, RooflensError, StepKind, StepTable

Matrix = NDArray[np.float64]
MODELLED_KINDS = (StepKind.PREFILL, StepKind.DECODE, StepKind.MIXED, StepKind.VERIFY)
NEUTRAL = (("pipeline_parallel", 1), ("context_parallel", 1), ("expert_parallel", False))


class Roofline:
    """One model in its formats on its devices, compiled once: analysing a table is then a few matrix products.

    ``arch``, ``hardware``, ``precision``, ``tensor_parallel`` and ``block_tokens`` are what it was made for.
    """

    def __init__(
        self,
        arch: ModelArch,
        hardware: HardwareSpec,
        precision: Precision,
        tensor_parallel: int = 1,
        block_tokens: int | None = None,
    ) -> None:
        """``block_tokens`` is the size of a KV block; with it, prefixes shared between sequences count once.

        Raises RooflensError for heads that cannot be divided, or several devices without a link.
        """
        self.arch, self.hardware, self.precision = arch, hardware, precision
        self.tensor_parallel, self.block_tokens = tensor_parallel, block_tokens
        rows = works(arch, precision, Deployment(tensor=tensor_parallel))
        check_link(hardware, tensor_parallel)
        used = {n for row in rows for part in (row.flops, row.link_bytes, *row.memory_parts()) for n in part}
        self._names = tuple(sorted(used | {"passes"}))
        self._rows = rows
        self._compile()

    def _compile(self) -> None:
        """Every coefficient over (features, operators), or summed to (features,) where no operator is asked for."""
        hardware, rows, devices = self.hardware, self._rows, self.tensor_parallel
        unknown = unknown_rate(hardware, rows)
        self._byte = self._coefficients(Work.memory_parts)
        self._flop = self._coefficients(lambda row: (row.flops,))
        link = self._coefficients(lambda row: (row.link_bytes,)) / (hardware.link_bandwidth_bytes_per_s or np.inf)
        self._memory_bytes = self._byte.sum(axis=1)
        self._operator_compute_s = self._flop / self._rates(hardware.ceiling_flops_per_s, unknown)
        self._operator_memory_s = self._byte / hardware.memory_bandwidth_bytes_per_s
        self._at_peak_s = (self._flop / self._rates(hardware.peak_flops_per_s, unknown)).sum(axis=1)
        self._link_s = link.sum(axis=1)
        self._link_share = strict_link_share(hardware, devices)
        self._cache_bytes = float(hardware.cache_bytes or 0)
        names = dict.fromkeys(row.group for row in rows)
        self._groups = {group: np.array([float(row.group == group) for row in rows]) for group in names}
        self._group_link_s = {group: link @ member for group, member in self._groups.items()}
        self._group_bytes = {group: devices * self._byte @ member for group, member in self._groups.items()}
        self._group_flops = {group: devices * self._flop @ member for group, member in self._groups.items()}
        self._weight_bytes = self._summed(lambda row: (row.weight_bytes,))
        self._kv_read_bytes = self._summed(lambda row: (row.kv_read_bytes,))
        self._kv_write_bytes = self._summed(lambda row: (row.kv_write_bytes,))
        self._flops = self._summed(lambda row: (row.flops,))
        self._compute_known = unknown is None
        self._notes = self._all_notes(unknown)

    @classmethod
    def of(cls, info: EngineInfo, hardware: HardwareSpec) -> Roofline:
        """The roofline of an engine with model, formats and parallelism as it stated them.

        Raises RooflensError where it did not state its model's config, or runs in a way not modelled yet.
        """
        if info.model_config is None:
            raise RooflensError("the engine did not state its model's config: give --model NAME or config.json")
        for name, neutral in NEUTRAL:
            if (value := getattr(info, name)) != neutral:
                raise RooflensError(f"engine runs with {name} {value}, which is not modelled yet")
        arch = arch_from_config(dict(info.model_config), info.model_name or "model")
        if arch.activation_assumed and not info.weight_dtype:
            arch = replace(arch, assumptions=(*arch.assumptions, "no dtype is stated: bf16 is assumed"))
        return cls(arch, hardware, precision_of(info, arch), info.tensor_parallel, info.block_tokens)

    def analyse(self, table: StepTable) -> StepAnalysis:
        """The bounds of every step of ``table`` beside its observed time; definitions are those of StepAnalysis.

        A row that stands for several steps gets the sum of their bounds. Steps of a kind other than prefill, decode,
        mixed and verify, and steps of which a needed column is not known, come back with ``modelled`` False. A rate
        that the device does not state leaves a floor of memory and link. Raises RooflensError for a column missing
        altogether.
        """
        features, known = feature_matrix(table, self._names, self.block_tokens)
        modelled = known & _of_modelled_kind(table)
        features[~modelled] = np.nan
        cached = features[:, self._names.index("passes")] * self._cache_bytes
        memory_s = np.maximum(features @ self._memory_bytes - cached, 0.0) / self.hardware.memory_bandwidth_bytes_per_s
        operator_compute_s = features @ self._operator_compute_s
        compute_s = operator_compute_s.sum(axis=1)
        operator_s = np.maximum(operator_compute_s, features @ self._operator_memory_s)
        link_s = features @ self._link_s
        sides = np.stack([memory_s, compute_s, link_s * self._link_share], axis=1)
        floor_s = sides.max(axis=1)
        observed_s, compared = _observed(table, modelled)
        return StepAnalysis(
            hardware=self.hardware.id,
            model=self.arch.name,
            tensor_parallel=self.tensor_parallel,
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
            weight_bytes=features @ self._weight_bytes,
            kv_read_bytes=features @ self._kv_read_bytes,
            kv_write_bytes=features @ self._kv_write_bytes,
            flops=features @ self._flops,
            mbu=memory_s / observed_s,
            mfu=features @ self._at_peak_s / observed_s,
            group_s={n: operator_s @ member + features @ self._group_link_s[n] for n, member in self._groups.items()},
            group_bytes={name: features @ column for name, column in self._group_bytes.items()},
            group_flops={name: features @ column for name, column in self._group_flops.items()},
            notes=self._notes,
            compute_known=self._compute_known,
        )

    def _coefficients(self, parts: Callable[[Work], Sequence[Coefficients]]) -> Matrix:
        """The matrix (features, operators) of one kind of work of one device."""
        return np.array([[sum(p.get(n, 0.0) for p in parts(row)) for row in self._rows] for n in self._names])

    def _summed(self, parts: Callable[[Work], Sequence[Coefficients]]) -> Matrix:
        """The vector (features,) of one kind of work of all devices."""
        total: Matrix = self.tensor_parallel * self._coefficients(parts).sum(axis=1)
        return total

    def _rates(self, table: Mapping[str, float], unknown: str | None) -> Matrix:
        """The flop/s (operators,) at which each operator can run; infinite for no flops, for all if one is unknown."""
        if unknown:
            return np.full(len(self._rows), np.inf)
        return np.array([rate_flops_per_s(table, self.hardware, row) for row in self._rows])

    def _all_notes(self, unknown: str | None) -> tuple[str, ...]:
        """What a reader of the bounds should know, each one sentence."""
        found, devices = list(self.arch.assumptions), self.tensor_parallel
        a_pass = float(self._byte[self._names.index("passes")].sum())
        if self._cache_bytes > CACHE_NOTE_RATIO * a_pass:
            found.append(cache_note(devices * min(self._cache_bytes, a_pass), whole=self._cache_bytes >= a_pass))
        found += link_notes(self.hardware, devices)
        return (*found, *((unknown,) if unknown else ()), *self.hardware.flags)


def analyse(
    table: StepTable,
    arch: ModelArch,
    hardware: HardwareSpec,
    precision: Precision,
    tensor_parallel: int = 1,
    block_tokens: int | None = None,
) -> StepAnalysis:
    """The bounds of one table, as Roofline.analyse gives them; raises what Roofline and its analyse raise."""
    return Roofline(arch, hardware, precision, tensor_parallel, block_tokens).analyse(table)


def analyse_engine(table: StepTable, info: EngineInfo, hardware: HardwareSpec) -> StepAnalysis:
    """The bounds of one table of an engine as it states itself; raises what Roofline.of and its analyse raise."""
    return Roofline.of(info, hardware).analyse(table)


def _of_modelled_kind(table: StepTable) -> NDArray[np.bool_]:
    if "kind" not in table.columns:
        return np.ones(len(table), dtype=bool)
    mask: NDArray[np.bool_] = np.isin(table["kind"], MODELLED_KINDS) & table.where("kind")
    return mask


def _observed(table: StepTable, modelled: NDArray[np.bool_]) -> tuple[Matrix, NDArray[np.bool_]]:
    """Observed seconds, NaN where not known, and the mask of steps that can be compared with their bounds."""
    if "observed_s" not in table.columns:
        return np.full(len(table), np.nan), np.zeros(len(table), dtype=bool)
    seconds = table["observed_s"].astype(np.float64)
    known = table.where("observed_s") & (seconds > 0)
    return np.where(known, seconds, np.nan), known & modelled
