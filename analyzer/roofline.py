"""The roofline of many steps at once: features @ coefficients, then a maximum."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from rooflens.analyzer.analysis_rows import AnalysisRows
from rooflens.analyzer.arch import arch_from_config
from rooflens.analyzer.calibrated import efficiency_from
from rooflens.analyzer.compiled_rows import Sides, features_of
from rooflens.analyzer.features import Features
from rooflens.analyzer.nearest_model import model_unknown
from rooflens.analyzer.operators import (
    CACHE_NOTE_RATIO,
    ONE_DEVICE,
    cache_note,
    check_link,
    distinct_stages,
    link_notes,
    stage_works,
    unknown_rate,
    works,
)
from rooflens.analyzer.precision import Precision, precision_of
from rooflens.analyzer.products import Matrix
from rooflens.analyzer.reachable_steps import ReachableSteps
from rooflens.analyzer.shared_blocks import stand_alone
from rooflens.analyzer.step_rows import of_modelled_kind
from rooflens.analyzer.work import Work
from rooflens.arch_records import Deployment, ModelArch
from rooflens.calibration_records import Calibration
from rooflens.model_records import Bound, Bounds, Efficiency, HardwareSpec, StepAnalysis
from rooflens.records import EngineInfo, RooflensError, StepTable

BETWEEN_RANKS = ("expert_exchange", "token_gather")  # operators that send tokens to other data-parallel ranks
EAGER_MODES = ("NONE", "EAGER")
LEAST_S = 0.5e-9  # clocks count nanoseconds: less than half of one was not observed
NO_CONFIG = "the engine did not state its model's config: give --model NAME or config.json"
EXPECTED_NOTE = "the floor reads the fewest experts that a pass can; uniform routing reads more"


class Roofline:
    """One model in its formats on its devices, compiled once: analysing a table is then a few matrix products.

    ``arch``, ``hardware``, ``precision``, ``deployment`` and ``block_tokens`` are what it was made for, ``stages`` the
    operators of one device of each pipeline stage, equal stages once, ``rows`` all of these, ``names`` the features
    that they are said in.
    """

    def __init__(
        self,
        arch: ModelArch,
        hardware: HardwareSpec,
        precision: Precision,
        deployment: Deployment = ONE_DEVICE,
        block_tokens: int | None = None,
        longest_tokens: int | None = None,
        kv_groups: int = 1,
        graph_sizes: tuple[int, ...] = (),
        eager: bool = False,
        efficiency: Efficiency | None = None,
    ) -> None:
        """``block_tokens`` is the size of a KV block; with it, prefixes shared between sequences count once.

        ``longest_tokens`` is the longest context that the engine takes, as the model says where None; ``kv_groups``
        how many groups of layers have blocks of their own. What is reachable also depends on ``graph_sizes``, the
        numbers of tokens that graphs were captured for, on whether the engine is ``eager``, without any, and on
        ``efficiency``, what kernels reach on this hardware: by default what was published of it.
        Raises RooflensError for a model that cannot be divided so, or several devices without a link.
        """
        self.arch, self.hardware, self.precision = arch, hardware, precision
        self.deployment, self.block_tokens, self.kv_groups = deployment, block_tokens, kv_groups
        self.longest_tokens = longest_tokens or arch.max_context_tokens
        self.graph_sizes, self.eager = () if eager else graph_sizes, eager
        self.efficiency = efficiency or efficiency_from(None, hardware)
        self.stages = distinct_stages(stage_works(arch, precision, deployment))
        self.rows = tuple(row for stage in self.stages for row in stage)
        self._spread = _linked_devices(self.rows, deployment)
        check_link(hardware, self._spread)
        whole = works(arch, precision, replace(deployment, pipeline=1))
        self.names = features_of((*self.rows, *whole))
        self.sides = Sides(self.stages, self.names, hardware, deployment.tensor)
        self._features = self.features_called(self.names)
        self._analysis = AnalysisRows(self.stages, whole, self.names, hardware, deployment)
        self._unknown = unknown_rate(hardware, self.rows)
        self._notes = self._all_notes()

    @classmethod
    def of(cls, info: EngineInfo, hardware: HardwareSpec, calibration: Calibration | None = None) -> Roofline:
        """The roofline of an engine with model, formats and parallelism as it stated them.

        What is reachable follows from ``calibration`` where it is of such hardware. Raises RooflensError for an engine
        that did not state its model's config, or one that cannot be run so.
        """
        if info.model_config is None:
            raise RooflensError(model_unknown((info.base_model_name, info.model_name)) or NO_CONFIG)
        arch = arch_from_config(dict(info.model_config), info.model_name or "model")
        if arch.activation_assumed and not info.weight_dtype:
            arch = replace(arch, assumptions=(*arch.assumptions, "no dtype is stated: bf16 is assumed"))
        precision, deployment = precision_of(info, arch), deployment_of(info)
        groups = max(1, len(info.kv_groups))
        blocks = info.block_tokens, info.max_context_tokens, groups
        launched = info.graph_sizes, is_eager(info), efficiency_from(calibration, hardware)
        return cls(arch, hardware, precision, deployment, *blocks, *launched)

    def on(self, hardware: HardwareSpec) -> Roofline:
        """The same model, spread in the same way, on other hardware; raises what Roofline raises."""
        own = self.precision, self.deployment, self.block_tokens, self.longest_tokens, self.kv_groups
        kept = self.efficiency if hardware.id == self.hardware.id else None
        return Roofline(self.arch, hardware, *own, self.graph_sizes, self.eager, kept)

    @cached_property
    def reached(self) -> ReachableSteps | None:
        """What is reachable for these steps, compiled at the first use; None where nobody knows what kernels reach."""
        return ReachableSteps(self, self.efficiency, eager=self.eager) if self.efficiency else None

    def features_called(self, names: Sequence[str]) -> Features:
        """Features of this engine's steps; RooflensError for a name that is none."""
        return Features(names, self.block_tokens, self.longest_tokens, self.kv_groups, self.graph_sizes)

    def chunks(
        self, table: StepTable, source: Features | None = None
    ) -> Iterator[tuple[slice, Matrix, NDArray[np.bool_]]]:
        """The steps of ``table`` in order, some thousands at a time: which, their features, which are modelled.

        Features have the shape (names, steps) and are NaN where a step is not modelled; ``source`` may give more of
        them than this roofline's own. Raises what analyse raises.
        """
        for place, features, known in (source or self._features).chunks(table):
            known &= of_modelled_kind(table, place)
            if not known.all():
                features[:, ~known] = np.nan
            yield place, features, known

    def bounds(self, table: StepTable) -> Bounds:
        """The bounds alone of every step of ``table``, for many steps; raises what analyse raises."""
        count = len(table)
        columns, modelled = np.empty((5, count)), np.empty(count, dtype=bool)
        bound = np.empty(count, dtype=np.int8)
        for place, features, known in self.chunks(table):
            self._bound(features, columns[:, place], bound[place])
            modelled[place] = known
        floor_s, expected_s, memory_s, compute_s, link_floor_s = columns
        return Bounds(modelled, bound, floor_s, expected_s, memory_s, compute_s, link_floor_s)

    def _bound(self, features: Matrix, columns: Matrix, bound: NDArray[np.int8]) -> None:
        """Fill ``columns``, (floor, expected, memory, compute, link; steps) in seconds, and ``bound``."""
        sides = self.sides.of(features)
        floor_s, expected_s = columns[0], columns[1]
        columns[2:] = sides[:3]
        np.maximum(sides[0], sides[1], out=floor_s)
        np.greater(sides[1], sides[0], out=bound, casting="unsafe")  # Bound.COMPUTE over Bound.MEMORY
        if self.sides.linked:
            bound[sides[2] > floor_s] = Bound.LINK
            np.maximum(floor_s, sides[2], out=floor_s)
        if self.sides.expects:
            np.maximum(np.maximum(sides[3], sides[4]), floor_s, out=expected_s)
        else:
            expected_s[:] = floor_s

    def analyse(self, table: StepTable) -> StepAnalysis:
        """The bounds of every step of ``table`` beside its observed time; definitions are those of StepAnalysis.

        A row that stands for several steps gets the sum of their bounds. Steps of a kind other than prefill, decode,
        mixed and verify, and steps of which a needed column is not known, come back with ``modelled`` False. A rate
        that the device does not state leaves a floor of memory and link. Raises RooflensError for a column missing
        altogether.
        """
        return self._analysed(table, None)

    def analyse_all(self, table: StepTable) -> StepAnalysis:
        """What analyse gives, with what is reachable beside it where that is known."""
        return self._analysed(table, self.reached)

    def _analysed(self, table: StepTable, reached: ReachableSteps | None) -> StepAnalysis:
        count = len(table)
        columns, modelled = np.empty((5, count)), np.empty(count, dtype=bool)
        bound, reachable_s = np.empty(count, dtype=np.int8), np.empty(count)
        rest = self._analysis.empty(count)
        for place, features, known in self.chunks(table, reached.features if reached else None):
            own = features[: len(self.names)]
            self._bound(own, columns[:, place], bound[place])
            modelled[place] = known
            self._analysis.fill(own, self.sides, rest[:, place])
            if reached:
                reachable_s[place] = reached.seconds(features)
        floor_s, expected_s, memory_s, compute_s, link_floor_s = columns
        observed_s, compared = _observed(table, modelled)
        found = self._analysis.named(rest)
        return StepAnalysis(
            hardware=self.hardware.id,
            model=self.arch.name,
            devices=self.deployment.devices,
            modelled=modelled,
            compared=compared,
            below_floor=compared & (observed_s < floor_s),
            bound=bound,
            floor_s=floor_s,
            expected_s=expected_s,
            memory_s=memory_s,
            compute_s=compute_s,
            link_floor_s=link_floor_s,
            observed_s=observed_s,
            mbu=memory_s / observed_s,
            mfu=found.at_peak_s / observed_s,
            serial_floor_s=found.serial_floor_s,
            link_s=found.link_s,
            weight_bytes=found.weight_bytes,
            kv_read_bytes=found.kv_read_bytes,
            kv_write_bytes=found.kv_write_bytes,
            flops=found.flops,
            group_s=found.group_s,
            group_bytes=found.group_bytes,
            group_flops=found.group_flops,
            notes=(*self._notes, *self._features.notes(table)),
            compute_known=self._unknown is None,
            reachable_s=np.maximum(reachable_s, expected_s) if reached else None,
            efficiency=reached.efficiency if reached else None,
        )

    def stand_alone(self, table: StepTable) -> bool:
        """Whether the analysis of these steps is the same whatever steps stand before and behind them."""
        return stand_alone(table, self.block_tokens)

    def bounds_of_many(self, tables: Iterable[StepTable]) -> Iterator[Bounds]:
        """The bounds of tables that follow each other, one at a time: memory does not grow with their number."""
        return (self.bounds(table) for table in tables)

    def _all_notes(self) -> tuple[str, ...]:
        """What a reader of the bounds should know, each one sentence."""
        found, hardware = [*self.arch.assumptions, *self.precision.notes], self.hardware
        cache_bytes = float(hardware.cache_bytes or 0)
        a_pass = float((self.sides.of_stage @ self.sides.bytes[:, self.names.index("passes")]).max())
        if cache_bytes > CACHE_NOTE_RATIO * a_pass:
            devices = self.deployment.devices
            found.append(cache_note(devices * min(cache_bytes, a_pass), whole=cache_bytes >= a_pass))
        if self.sides.expects:
            found.append(EXPECTED_NOTE)
        unknown = (self._unknown,) if self._unknown else ()
        return (*found, *link_notes(hardware, self._spread), *unknown, *hardware.flags)


def deployment_of(info: EngineInfo) -> Deployment:
    """How an engine says that it is spread over devices."""
    return Deployment(
        tensor=info.tensor_parallel,
        pipeline=info.pipeline_parallel,
        data=info.data_parallel,
        context=info.context_parallel,
        expert=info.expert_parallel,
    )


def is_eager(info: EngineInfo) -> bool:
    """Whether an engine says that it replays no captured graphs."""
    return (info.graph_mode or "").upper() in EAGER_MODES


def analyse(
    table: StepTable,
    arch: ModelArch,
    hardware: HardwareSpec,
    precision: Precision,
    deployment: Deployment = ONE_DEVICE,
    block_tokens: int | None = None,
) -> StepAnalysis:
    """The bounds of one table, as Roofline.analyse gives them; raises what Roofline and its analyse raise."""
    return Roofline(arch, hardware, precision, deployment, block_tokens).analyse(table)


def analyse_engine(
    table: StepTable, info: EngineInfo, hardware: HardwareSpec, calibration: Calibration | None = None
) -> StepAnalysis:
    """The bounds of one table of an engine as it states itself, and what is reachable where that is known.

    Raises what Roofline.of and its analyse raise.
    """
    return Roofline.of(info, hardware, calibration).analyse_all(table)


def _linked_devices(rows: Iterable[Work], deployment: Deployment) -> int:
    """Devices that exchange data within a layer: those of one rank, and of all ranks where their experts are shared."""
    shared = any(row.link_bytes and row.operator in BETWEEN_RANKS for row in rows)
    return deployment.expert_devices if shared else deployment.tensor


def _observed(table: StepTable, modelled: NDArray[np.bool_]) -> tuple[Matrix, NDArray[np.bool_]]:
    """Observed seconds, NaN where not known, and the mask of steps that can be compared with their bounds."""
    if "observed_s" not in table.columns:
        return np.full(len(table), np.nan), np.zeros(len(table), dtype=bool)
    seconds = table["observed_s"].astype(np.float64)
    known = table.where("observed_s") & (seconds > LEAST_S)
    return np.where(known, seconds, np.nan), known & modelled
