"""One recorded run as what a comparison needs: the time of each step, what was in it, its regime and its block."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from rooflens.analyzer.sums import filled, steps_of
from rooflens.records import StepKind, StepTable

Column = NDArray[np.float64]
Index = NDArray[np.int64]

# What the time of a step is explained by inside a regime, besides a constant: each is linear in the bytes or flops.
COVARIATES = ("requests", "query_tokens", "context_tokens", "causal_pairs")
NEEDED = ("kind", "requests", "observed_s")
NO_WORK = (StepKind.DUMMY,)
MOST_BLOCKS, LEAST_BLOCK_STEPS = 32, 16  # of a run: blocks long enough that their levels hardly depend on each other
LEAST_STEPS = 40  # of a run; one with fewer says nothing of itself
KIND, BATCH = 10_000, 100  # place values of a regime's code: kind, log2 of the batch, log4 of the mean context
ANY_CONTEXT = 99  # in the place of the context: a regime across all


@dataclass(frozen=True, slots=True)
class Run:
    """The comparable steps of one run in order of time, arrays of shape (steps,), times in seconds a step.

    ``step_s`` is the time from the output before, or from the submit after a rest, to the step's own output;
    ``between_s`` the part of it before the submit. ``device_s`` and
    ``reachable_s`` are NaN where not known. ``amounts`` are the COVARIATES,
    shape (steps, 4). ``regime`` is a code of kind, batch and context; ``block`` numbers stretches of equal busy time.
    ``weight`` is how many engine steps a row stands for. ``left_out`` rows could not be compared.
    """

    label: str
    step_s: Column
    between_s: Column
    device_s: Column
    reachable_s: Column
    amounts: NDArray[np.float64]
    regime: Index
    block: Index
    weight: Column
    left_out: int
    told: tuple[str, ...]
    timed_between: bool

    def __len__(self) -> int:
        return len(self.step_s)

    @property
    def blocks(self) -> int:
        """How many blocks the run is cut into."""
        return int(self.block[-1]) + 1 if len(self) else 0

    @property
    def busy_s(self) -> float:
        """The time of all its comparable steps."""
        return float((self.step_s * self.weight).sum())


def run_of(label: str, table: StepTable, reachable_s: Column | None = None) -> Run | None:
    """The steps of ``table``, of one run, that can be compared; None where kind, batch or time is not known at all.

    ``reachable_s`` (rows,) is what is reachable for each row, NaN for not known.
    """
    if not len(table) or not all(name in table.columns for name in NEEDED):
        return None
    steps = steps_of(table)
    between, told = _between(table, steps)
    step_s = filled(table, "observed_s") / steps + between
    good = np.isfinite(step_s) & (filled(table, "observed_s") > 0) & (filled(table, "requests") > 0)
    for name in NEEDED:
        good &= table.where(name)
    for kind in NO_WORK:
        good &= filled(table, "kind", -1) != kind
    amounts = np.stack([filled(table, name) / steps for name in COVARIATES], axis=1)
    known = tuple(name for name in COVARIATES if table.where(name)[good].all() and name in table.columns)
    for at, name in enumerate(COVARIATES):
        if name not in known:
            amounts[:, at] = 0.0
    device = np.where(table.where("device_s"), filled(table, "device_s") / steps, np.nan)
    run = Run(
        label=label,
        step_s=step_s[good],
        between_s=between[good],
        device_s=np.where(device > 0, device, np.nan)[good],
        reachable_s=(np.full(len(table), np.nan) if reachable_s is None else reachable_s / steps)[good],
        amounts=amounts[good],
        regime=regimes_of(table, steps)[good],
        block=np.zeros(int(good.sum()), dtype=np.int64),
        weight=steps[good],
        left_out=int((~good).sum()),
        told=known,
        timed_between=told,
    )
    return replace(run, block=_blocks(run))


def _between(table: StepTable, steps: Column) -> tuple[Column, bool]:
    """Seconds between the output before and the submit while requests were there, and whether that is known.

    0 after a step that left no request behind, and after lost steps, whose time it may be.
    """
    rows = len(table)
    stamps = ("submit_monotonic_s", "output_monotonic_s")
    if not all(table.has(name) for name in stamps) or bool((steps != 1).any()):
        return np.zeros(rows), False
    submit, output = (table[name].astype(np.float64) for name in stamps)
    gap = np.concatenate((np.zeros(1), np.maximum(submit[1:] - output[:-1], 0.0)))
    if table.has("sequence"):
        gap[1:] = np.where(np.diff(table["sequence"]) == 1, gap[1:], 0.0)
    queue = [name for name in ("running", "waiting", "deferred") if table.has(name)]
    if "running" not in queue:  # an engine that does not tell its queue may have rested
        return np.zeros(rows), False
    empty = np.logical_and.reduce([table[name] == 0 for name in queue])
    gap[1:] = np.where(empty[:-1], 0.0, gap[1:])
    return gap, True


def regimes_of(table: StepTable, steps: Column) -> Index:
    """The code of each row's regime: kind, power of two of the batch, power of four of the mean context."""
    requests = filled(table, "requests")
    batch = np.log2(np.maximum(requests / steps, 1.0)).astype(np.int64)
    mean = filled(table, "context_tokens") / np.maximum(requests, 1.0)
    context = (np.log2(np.maximum(mean, 1.0)) / 2).astype(np.int64)
    return filled(table, "kind").astype(np.int64) * KIND + batch * BATCH + context


def regime_name(code: int) -> str:
    """How a person reads it: decode, batch 4-7, context 64-255."""
    kind, batch, context = code // KIND, code % KIND // BATCH, code % BATCH
    sizes = f"{1 << batch}" if batch == 0 else f"{1 << batch}-{(2 << batch) - 1}"
    if context == ANY_CONTEXT:
        return f"{StepKind(kind).name.lower()}, batch {sizes}, any context"
    lengths = f"{4**context if context else 0:,}-{4 ** (context + 1) - 1:,}"
    return f"{StepKind(kind).name.lower()}, batch {sizes}, context {lengths}"


def _blocks(run: Run) -> Index:
    """Stretches of equal busy time, in order, renumbered so that none is empty."""
    if not len(run):
        return run.block
    wanted = int(min(MOST_BLOCKS, max(2, len(run) // LEAST_BLOCK_STEPS)))
    time_s = np.cumsum(np.minimum(run.step_s, 10 * np.median(run.step_s)) * run.weight)
    cut = np.minimum((time_s / time_s[-1] * wanted).astype(np.int64), wanted - 1)
    return np.unique(cut, return_inverse=True)[1].astype(np.int64)


def rows_of(run: Run, rows: NDArray[np.int64] | NDArray[np.bool_]) -> Run:
    """Some of its steps; the blocks are those that they had."""
    return replace(
        run,
        step_s=run.step_s[rows],
        between_s=run.between_s[rows],
        device_s=run.device_s[rows],
        reachable_s=run.reachable_s[rows],
        amounts=run.amounts[rows],
        regime=run.regime[rows],
        block=np.unique(run.block[rows], return_inverse=True)[1].astype(np.int64),
        weight=run.weight[rows],
    )


def thinned(run: Run, most: int) -> Run:
    """At most ``most`` of its steps, evenly from all of it."""
    return run if len(run) <= most else rows_of(run, np.linspace(0, len(run) - 1, most).astype(np.int64))


def relative(run: Run) -> Run | None:
    """The same in parts of what is reachable for each step, so that other work is comparable; None where unknown."""
    known = np.isfinite(run.reachable_s) & (run.reachable_s > 0)
    if int(known.sum()) < LEAST_STEPS:
        return None
    kept = rows_of(run, known)
    unit = kept.reachable_s
    return replace(
        kept,
        step_s=kept.step_s / unit,
        between_s=kept.between_s / unit,
        device_s=kept.device_s / unit,
        amounts=np.zeros_like(kept.amounts),
        told=(),
    )


def joined(runs: Sequence[Run]) -> tuple[Run, Index]:
    """Several runs end to end with blocks numbered on, and which run each row is of."""
    shift = np.cumsum([0, *(run.blocks for run in runs)])
    of_run = np.concatenate([np.full(len(run), at, dtype=np.int64) for at, run in enumerate(runs)])
    first = runs[0]
    whole = replace(
        first,
        step_s=np.concatenate([run.step_s for run in runs]),
        between_s=np.concatenate([run.between_s for run in runs]),
        device_s=np.concatenate([run.device_s for run in runs]),
        reachable_s=np.concatenate([run.reachable_s for run in runs]),
        amounts=np.concatenate([run.amounts for run in runs]),
        regime=np.concatenate([run.regime for run in runs]),
        block=np.concatenate([run.block + shift[at] for at, run in enumerate(runs)]),
        weight=np.concatenate([run.weight for run in runs]),
        left_out=sum(run.left_out for run in runs),
        timed_between=all(run.timed_between for run in runs),
    )
    return whole, of_run
