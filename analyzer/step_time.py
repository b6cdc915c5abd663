"""One model on one deployment, compiled once: how long steps of many operating points take."""

from __future__ import annotations

import math
from dataclasses import dataclass

from rooflens.analyzer.efficiency import efficiency_of
from rooflens.analyzer.operators import Lora, check_link, distinct_stages, stage_works
from rooflens.analyzer.plan import Plan, check_plan
from rooflens.analyzer.point import UniformBatch, point_features
from rooflens.analyzer.precision import Precision
from rooflens.analyzer.reachable import Terms, seconds_of, terms_of
from rooflens.analyzer.sides import Sides, batch_of, micro_batch, names_of, sides_of
from rooflens.analyzer.work import Work
from rooflens.arch_records import Deployment, ModelArch
from rooflens.model_records import Bound, Efficiency, HardwareSpec

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
class Least:
    """The least times of one step, each in the number of micro-batches that is best for it.

    ``cycle`` is that of the floor; ``expected`` and ``reachable`` are (seconds, micro-batches). In any number of
    micro-batches reachable counts as expected at least, so floor <= expected <= reachable. ``reachable`` is None where
    no kernels of such a device have been measured.
    """

    cycle: Cycle
    expected: tuple[float, int]
    reachable: tuple[float, int] | None


@dataclass(frozen=True, slots=True)
class StepTime:
    """``seconds`` of one step and what they stand for (``basis``): REACHABLE where it is known, else EXPECTED.

    ``floor_s`` is the strict bound and ``bound`` the side that sets it, None where the floor is 0. ``micro_batches``
    are those of ``seconds``.
    """

    seconds: float
    basis: str
    floor_s: float
    bound: str | None
    micro_batches: int


@dataclass(frozen=True, slots=True)
class Compiled:
    """``stages`` are the operators of one device of each pipeline stage, equal ones once, ``whole`` those of all.

    ``stage_terms`` and ``whole_terms`` are their seconds at ``efficiency``, which is None where no kernels of such a
    device have been measured.
    """

    arch: ModelArch
    hardware: HardwareSpec
    deployment: Deployment
    efficiency: Efficiency | None
    stages: tuple[tuple[Work, ...], ...]
    whole: tuple[Work, ...]
    stage_terms: tuple[Terms, ...]
    whole_terms: Terms | None
    names: frozenset[str]

    @classmethod
    def of(
        cls,
        arch: ModelArch,
        hardware: HardwareSpec,
        precision: Precision,
        plan: Plan,
        efficiency: Efficiency | None = None,
    ) -> Compiled:
        """For the deployment of ``plan``; without ``efficiency`` that which was published of the hardware.

        RooflensError where the model cannot be spread that way, or several devices have no link.
        """
        return cls.staged(
            arch, hardware, stage_works(arch, precision, plan.deployment, lora_of(plan)), plan, efficiency
        )

    @classmethod
    def staged(
        cls,
        arch: ModelArch,
        hardware: HardwareSpec,
        stages: tuple[tuple[Work, ...], ...],
        plan: Plan,
        efficiency: Efficiency | None = None,
    ) -> Compiled:
        """The same for the rows of one device of each stage; raises what ``of`` raises."""
        spread = plan.deployment
        check_link(hardware, spread.devices * spread.data)
        known = efficiency or efficiency_of(hardware)
        distinct, whole = distinct_stages(stages), tuple(row for stage in stages for row in stage)
        terms = [terms_of(r, hardware, known, spread, eager=plan.eager) for r in (*distinct, whole)] if known else []
        return cls(
            arch=arch,
            hardware=hardware,
            deployment=spread,
            efficiency=known,
            stages=distinct,
            whole=whole,
            stage_terms=tuple(terms[:-1]),
            whole_terms=terms[-1] if terms else None,
            names=frozenset(names_of(whole)).union(*(each.names for each in terms)),
        )

    def least(self, plan: Plan) -> Least:
        """The least times of one step in which every sequence of the busiest rank gets through all stages.

        With m micro-batches a stage works m times, and a sequence waits for one pass of each stage: the step takes at
        least the larger of the two, and the m that makes it least is the bound. More micro-batches than stages only
        read the weights more often. A prompt can be cut anywhere, so of a prefill the slowest stage is the bound.
        Which m is best differs between floor, expected and reachable: more of them read more experts.
        """
        batch = batch_of(self.arch, plan, math.ceil(plan.batch / plan.ranks))
        most = 1 if batch.prefill else min(self.deployment.pipeline, int(batch.sequences))
        tried = [self._tried(batch, count) for count in range(1, most + 1)]
        reached = [(each.reached_s, each.cycle.micro_batches) for each in tried if each.reached_s is not None]
        return Least(
            min((each.cycle for each in tried), key=_floor_s),
            min((each.expected_s, each.cycle.micro_batches) for each in tried),
            min(reached, default=None),
        )

    def time(self, plan: Plan) -> StepTime:
        """How long one step of ``plan`` takes, whose deployment is this one's."""
        check_plan(plan)
        least = self.least(plan)
        cycle, (seconds, parts) = least.cycle, least.reachable or least.expected
        basis = EXPECTED if least.reachable is None else REACHABLE
        return StepTime(seconds, basis, cycle.sides.floor_s, cycle.bound, parts)

    def _tried(self, batch: UniformBatch, count: int) -> _Tried:
        """What takes longest with ``count`` micro-batches, by the floor, as expected and at what kernels reach."""
        part, hardware, spread = micro_batch(batch, count), self.hardware, self.deployment
        features = point_features(part, self.names)
        sides = [sides_of(rows, features, hardware, spread.tensor).times(count) for rows in self.stages]
        found = [Cycle(count, each, rows, part, count) for each, rows in zip(sides, self.stages, strict=True)]
        reached = [count * seconds_of(terms, features) for terms in self.stage_terms]
        if spread.pipeline > 1 and not batch.prefill:
            through = sides_of(self.whole, features, hardware, spread.tensor, spread.pipeline)
            found.append(Cycle(count, through, self.whole, part, 1))
            reached += [seconds_of(self.whole_terms, features)] if self.whole_terms else []
        expected_s = max(cycle.sides.expected_floor_s for cycle in found)
        return _Tried(max(found, key=_floor_s), expected_s, max(expected_s, *reached) if reached else None)


@dataclass(frozen=True, slots=True)
class _Tried:
    """One number of micro-batches: the cycle by the floor and the seconds of the other two, each the larger."""

    cycle: Cycle
    expected_s: float
    reached_s: float | None


def _floor_s(cycle: Cycle) -> float:
    return cycle.sides.floor_s


def lora_of(plan: Plan) -> Lora | None:
    """The adapters of a plan as operators take them; None for none."""
    return None if plan.lora_rank is None else Lora(plan.lora_rank, adapters=plan.lora_adapters)
