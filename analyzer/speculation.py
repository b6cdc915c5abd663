"""Whether speculation pays: the gain at every batch, the batch at which it stops, the best depth.

A verify step computes depth + 1 tokens of each sequence and reads weights and KV cache once, as a plain step does, so
it is nearly free while memory is the bound: at batch 1. Its flops are depth + 1 times a plain step's, so where
arithmetic is the bound it costs that much and yields less: at batch 256. With experts it also reads more of them, for
the tokens of one sequence do not choose the same ones. Sampling, rejection and what is recomputed of the draft's cache
are taken as free.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from rooflens.analyzer.acceptance import Acceptance, check_acceptance, expected_tokens
from rooflens.analyzer.capacity import device_bytes, held_sequences
from rooflens.analyzer.drafting import METHODS, Draft, Drafter, drafter, trained_depth
from rooflens.analyzer.plan import LARGEST, Plan
from rooflens.analyzer.precision import Precision
from rooflens.analyzer.step_time import Compiled
from rooflens.arch_records import ModelArch
from rooflens.model_records import Efficiency, HardwareSpec
from rooflens.records import RooflensError

DEEPEST = 16  # drafted tokens that are worth a look: at 95 % acceptance the 17th arrives in 42 of 100 steps
LARGEST_BATCH = 1 << 17  # sequences for each rank beyond which a break-even is no longer looked for

__all__ = ["DEEPEST", "METHODS", "BreakEven", "Draft", "Gain", "Speculator"]


@dataclass(frozen=True, slots=True)
class Gain:
    """Speculation of one depth against none, at one batch and context; every field is of the whole deployment.

    A step of ``verify_s`` + ``draft_s`` seconds yields ``expected_tokens`` a sequence, a plain one of ``plain_s`` one;
    ``gain`` is the ratio of their tokens/s. ``basis`` is what the seconds stand for (REACHABLE or EXPECTED of
    step_time.py). ``verify_ratio`` is verify_s / plain_s; ``bound`` is what sets the verify step's floor,
    ``plain_bound`` a plain step's.
    """

    depth: int
    batch: int
    context_tokens: int
    expected_tokens: float
    plain_s: float
    verify_s: float
    draft_s: float
    tokens_per_s: float
    plain_tokens_per_s: float
    gain: float
    verify_ratio: float
    bound: str | None
    plain_bound: str | None
    basis: str


@dataclass(frozen=True, slots=True)
class BreakEven:
    """``batch`` is the largest at which speculation gains; None where it always or never does, as ``reason`` says.

    ``always`` is whether it gains at every batch that was tried, or at the largest of them after a dip.
    """

    batch: int | None
    reason: str
    always: bool = False


@dataclass(frozen=True, slots=True)
class Speculator:
    """A model and its draft on one deployment, compiled once; ``plan`` is the operating point to go by."""

    target: Compiled
    draft: Drafter
    plan: Plan
    acceptance: Acceptance
    deepest: int

    @classmethod
    def of(
        cls,
        arch: ModelArch,
        hardware: HardwareSpec,
        precision: Precision,
        plan: Plan,
        draft: Draft,
        acceptance: Acceptance,
        efficiency: Efficiency | None = None,
    ) -> Speculator:
        """Depths that are looked through end at the deepest that is worth a look and that the draft was trained for.

        Raises RooflensError for a draft, an acceptance or a plan that makes no sense.
        """
        check_acceptance(acceptance)
        if plan.prefill:
            raise RooflensError("speculation speeds up decode only: leave --phase prefill out")
        if plan.distinct_experts is not None:
            raise RooflensError("measured experts are those of one step: a verify step touches others, leave them out")
        plan = replace(plan, query_tokens=1)
        deepest = min(DEEPEST, len(acceptance)) if isinstance(acceptance, tuple) else DEEPEST
        deepest = min(deepest, trained_depth(draft.method, arch) or deepest)
        target = Compiled.of(arch, hardware, precision, plan, efficiency)
        return cls(target, drafter(draft, target, precision, plan, deepest), plan, acceptance, deepest)

    def gain(self, depth: int, batch: int | None = None, context_tokens: int | None = None) -> Gain:
        """Speculation of ``depth`` tokens at this batch and context, by default the plan's."""
        plan = replace(
            self.plan,
            batch=self.plan.batch if batch is None else batch,
            context_tokens=self.plan.context_tokens if context_tokens is None else context_tokens,
        )
        tokens = expected_tokens(self.acceptance, depth)
        plain = self.target.time(plan)
        verify = self.target.time(replace(plan, query_tokens=depth + 1))
        draft_s = self.draft.seconds(plan, depth, verify.micro_batches)
        step_s = verify.seconds + draft_s
        if not plain.seconds or not step_s:
            raise RooflensError("all of a step may come from the last-level cache: what speculation gains is not known")
        return Gain(
            depth=depth,
            batch=plan.batch,
            context_tokens=plan.context_tokens,
            expected_tokens=tokens,
            plain_s=plain.seconds,
            verify_s=verify.seconds,
            draft_s=draft_s,
            tokens_per_s=plan.batch * tokens / step_s,
            plain_tokens_per_s=plan.batch / plain.seconds,
            gain=tokens * plain.seconds / step_s,
            verify_ratio=verify.seconds / plain.seconds,
            bound=verify.bound,
            plain_bound=plain.bound,
            basis=plain.basis,
        )

    def depths(self, batch: int | None = None, context_tokens: int | None = None) -> tuple[Gain, ...]:
        """Every depth from none to the deepest that the acceptance is known for."""
        return tuple(self.gain(depth, batch, context_tokens) for depth in range(self.deepest + 1))

    def best(self, batch: int | None = None, context_tokens: int | None = None) -> Gain:
        """The depth that yields the most tokens/s; 0 where none pays. A tie goes to the shallower."""
        return max(self.depths(batch, context_tokens), key=lambda found: (found.gain, -found.depth))

    def batches(self, depth: int, batches: Iterable[int]) -> tuple[Gain, ...]:
        """One depth at each of ``batches``."""
        return tuple(self.gain(depth, batch) for batch in batches)

    def break_even(self, depth: int) -> BreakEven:
        """The largest batch at which ``depth`` gains, of those that fit in memory; where none does, of all.

        With experts the gain may fall and rise again, so the batches are looked through by doubling, and between the
        last that gains and the next halved.
        """
        tried, limit = self._tried()
        gains = [self.gain(depth, batch) for batch in tried]
        gaining = [at.batch for at in gains if at.gain > 1.0]
        if not gaining:
            best = max(gains, key=lambda at: at.gain)
            return BreakEven(None, f"never: at best, at batch {best.batch:,}, the gain is {best.gain:.3g}")
        losing = [at.batch for at in gains if at.gain <= 1.0 and at.batch < gaining[-1]]
        but = f", but for batches about {losing[0]:,} to {losing[-1]:,}" if losing else ""
        if gaining[-1] == tried[-1]:
            reason = f"always{but}: at batch {tried[-1]:,}, {limit}, the gain is {gains[-1].gain:.3g}"
            return BreakEven(None, reason, always=True)
        low, high = gaining[-1], tried[tried.index(gaining[-1]) + 1]
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.gain(depth, middle).gain > 1.0 else (low, middle)
        bound = self.gain(depth, high).bound
        return BreakEven(low, f"at batch {high:,} it gains nothing: a verify step is bound by {bound}{but}")

    def _tried(self) -> tuple[list[int], str]:
        """Batches from one sequence for each rank on, doubling, to the last worth a look, and what that one is."""
        ranks = self.plan.ranks
        memory = device_bytes(self.target.hardware, self.plan)
        fits = ranks * held_sequences(self.target.stages, self.plan, memory)
        largest = min(LARGEST, LARGEST_BATCH * ranks, fits or LARGEST)
        limit = "the largest that fits" if largest == fits else "the largest looked at"
        doubled = [ranks << power for power in range((largest // ranks).bit_length())]
        return [*doubled, *([largest] if largest > doubled[-1] else [])], limit
