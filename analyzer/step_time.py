"""One model on one deployment, compiled once: how long steps of many operating points take."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from rooflens.analyzer.operators import Lora, check_link, stage_works
from rooflens.analyzer.plan import Plan, check_plan
from rooflens.analyzer.point import UniformBatch, point_features
from rooflens.analyzer.precision import Precision
from rooflens.analyzer.sides import Sides, batch_of, micro_batch, names_of, sides_of
from rooflens.analyzer.work import Work
from rooflens.arch_records import Deployment, ModelArch
from rooflens.model_records import Bound, HardwareSpec

REACHABLE, EXPECTED = "reachable", "expected floor"  # what a duration stands for


@dataclass(frozen=True, slots=True)
class Cycle:
    """One step of all sequences through a pipeline: ``micro_batches`` passes, the ``sides`` that set its time.

    They are those of ``rows``, ``passes`` times: of one device of the slowest stage in all passes, or of one device of
    each stage in one pass. ``batch`` are the sequences of one pass.
    """

    micro_batches: int
    sides: Sides
    rows: tuple[Work, ...]
    batch: UniformBatch
    passes: int

    @property
    def bound(self) -> str | None:
        """The side that sets the floor, in lower case; None where the floor is 0."""
        sides = self.sides
        if not sides.floor_s:
            return None
        return Bound((sides.memory_s, sides.compute_s, sides.link_floor_s).index(sides.floor_s)).name.lower()


@dataclass(frozen=True, slots=True)
class StepTime:
    """``seconds`` of one step and what they stand for (``basis``): REACHABLE where it is known, else EXPECTED.

    ``floor_s`` is the strict bound and ``bound`` the side that sets it, None where the floor is 0.
    """

    seconds: float
    basis: str
    floor_s: float
    bound: str | None
    micro_batches: int


@dataclass(frozen=True, slots=True)
class Compiled:
    """``stages`` are the operators of one device of each pipeline stage, equal ones once, ``whole`` those of all."""

    arch: ModelArch
    hardware: HardwareSpec
    deployment: Deployment
    stages: tuple[tuple[Work, ...], ...]
    whole: tuple[Work, ...]

    @classmethod
    def of(
        cls,
        arch: ModelArch,
        hardware: HardwareSpec,
        precision: Precision,
        deployment: Deployment,
        lora: Lora | None = None,
    ) -> Compiled:
        """RooflensError where the model cannot be spread that way, or several devices have no link."""
        check_link(hardware, deployment.devices * deployment.data)
        stages = stage_works(arch, precision, deployment, lora)
        return cls(arch, hardware, deployment, _distinct(stages), tuple(row for stage in stages for row in stage))

    @classmethod
    def single(
        cls, arch: ModelArch, hardware: HardwareSpec, deployment: Deployment, rows: tuple[Work, ...]
    ) -> Compiled:
        """A part of a model, by its rows, without a pipeline."""
        check_link(hardware, deployment.devices * deployment.data)
        return cls(arch, hardware, deployment, (rows,), rows)

    def cycle(self, plan: Plan) -> Cycle:
        """The least time in which every sequence of the busiest rank gets through all stages.

        With m micro-batches a stage works m times, and a sequence waits for one pass of each stage: the cycle is at
        least the larger of the two, and the m that makes it least is the bound. More micro-batches than stages only
        read the weights more often. A prompt can be cut anywhere, so of a prefill the slowest stage is the bound.
        """
        batch = batch_of(self.arch, plan, math.ceil(plan.batch / plan.ranks))
        most = 1 if plan.prefill else max(1, min(self.deployment.pipeline, int(batch.sequences)))
        names = names_of(self.whole)
        return min((self._slowest(batch, names, count) for count in range(1, most + 1)), key=_floor_s)

    def time(self, plan: Plan) -> StepTime:
        """How long one step of ``plan`` takes, whose deployment is this one's."""
        check_plan(plan)
        cycle = self.cycle(plan)
        return StepTime(
            seconds=cycle.sides.expected_floor_s,
            basis=EXPECTED,
            floor_s=cycle.sides.floor_s,
            bound=cycle.bound,
            micro_batches=cycle.micro_batches,
        )

    def _slowest(self, batch: UniformBatch, names: set[str], count: int) -> Cycle:
        """What takes longest with ``count`` micro-batches."""
        part, hardware, spread = micro_batch(batch, count), self.hardware, self.deployment
        features = point_features(part, names)
        sides = [sides_of(rows, features, hardware, spread.tensor).times(count) for rows in self.stages]
        found = [Cycle(count, each, rows, part, count) for each, rows in zip(sides, self.stages, strict=True)]
        if spread.pipeline > 1 and not batch.prefill:
            through = sides_of(self.whole, features, hardware, spread.tensor, spread.pipeline)
            found.append(Cycle(count, through, self.whole, part, 1))
        return max(found, key=_floor_s)


def _floor_s(cycle: Cycle) -> float:
    return cycle.sides.floor_s


def _distinct(stages: Iterable[tuple[Work, ...]]) -> tuple[tuple[Work, ...], ...]:
    found: list[tuple[Work, ...]] = []
    for rows in stages:
        if rows not in found:
            found.append(rows)
    return tuple(found)


def lora_of(plan: Plan) -> Lora | None:
    """The adapters of a plan as operators take them; None for none."""
    return None if plan.lora_rank is None else Lora(plan.lora_rank, adapters=plan.lora_adapters)
