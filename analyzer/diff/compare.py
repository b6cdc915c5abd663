"""Two sides against each other: regimes matched, the same contents compared, every difference beside its noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import hypot

import numpy as np

from rooflens.analyzer.diff.channels import Channel, Ground, channel, mean_channel
from rooflens.analyzer.diff.fit import QUIET, Fit, expected, tilts
from rooflens.analyzer.diff.matching import LEAST_CELL_STEPS, across_contexts, matching
from rooflens.analyzer.diff.noise import draws_of
from rooflens.analyzer.diff.result import Change, Comparison, RegimeChange, SideFigures, TermChange, Verdict
from rooflens.analyzer.diff.steps import LEAST_STEPS, Index, Run, joined, regime_name, thinned
from rooflens.analyzer.diff.terms import parts_of, slow_steps, terms
from rooflens.analyzer.diff.verdict import (
    ENOUGH_RUNS,
    Seen,
    Thresholds,
    decide,
    judged,
    restlessness,
    run_floor,
    slow_floor,
)

MOST_ROWS = 200_000  # of a side: more steps make no interval narrower, only the wait longer
STRETCH = 3  # steps
QUICKEST = 0.02  # the quantile of the quickest stretches


@dataclass(frozen=True, slots=True)
class Both:
    """The rows of both sides end to end, and what a step of each row's contents is expected to take."""

    rows: Run
    side: Index
    ground: Ground
    fit: Fit
    parts: tuple[float, float]  # of the time of either side that is in regimes of both


def compare(a: Sequence[Run], b: Sequence[Run], thresholds: Thresholds | None = None) -> Comparison:
    """Whether B's engine takes longer for the same steps than A's; each a list of runs of one side.

    Never raises for data: too few steps or no regime in common is the verdict that it cannot be told.
    """
    limits = thresholds or Thresholds()
    one, two = _usable(a), _usable(b)
    if not one or not two:
        lacking = " and ".join(name for name, side in (("A", one), ("B", two)) if not side)
        return _nothing(a, b, f"{lacking} has no run with {LEAST_STEPS} steps of known time and batch", limits)
    if same_steps(one, two):
        return _identical(one, two, limits)
    both = _laid_together(one, two, limits.draws)
    if both is None:
        why = (
            f"they have no regime in common with {LEAST_CELL_STEPS} steps on either side: record the same kind of load"
        )
        return _nothing(one, two, why, limits)
    return _compared(both, one, two, limits)


def _usable(runs: Sequence[Run]) -> list[Run]:
    long = [run for run in runs if len(run) >= LEAST_STEPS]
    return [thinned(run, max(LEAST_STEPS, MOST_ROWS // len(long))) for run in long]


def same_steps(a: Sequence[Run], b: Sequence[Run]) -> bool:
    """Whether both sides are the same recording: as many steps, of the same times."""
    if sum(map(len, a)) != sum(map(len, b)):
        return False
    left, right = (np.concatenate([run.step_s for run in side]) for side in (a, b))
    return bool(np.array_equal(left, right))


def _laid_together(a: Sequence[Run], b: Sequence[Run], draws: int) -> Both | None:
    rows, run = joined([*a, *b])
    side = (run >= len(a)).astype(np.int64)
    rows, match = across_contexts(rows, side, matching(rows, side))
    if not match.codes:
        return None
    blocks = [np.unique(rows.block[run == number]) for number in range(len(a) + len(b))]
    ground = Ground(
        regime=rows.regime,
        side=side,
        run=run,
        block=rows.block,
        weight=rows.weight,
        counts=draws_of(blocks, draws),
        runs=(tuple(range(len(a))), tuple(range(len(a), len(a) + len(b)))),
        matched=match.codes,
        shares=match.shares,
    )
    fit = expected(rows.step_s - rows.between_s, rows.amounts, rows.regime, side, rows.weight)
    return Both(rows, side, ground, fit, match.parts)


def _compared(both: Both, a: Sequence[Run], b: Sequence[Run], limits: Thresholds) -> Comparison:
    rows, ground = both.rows, both.ground
    tilt = [tilts(both.fit, rows.regime, both.side, rows.block, each, ground.matched) for each in ground.counts]
    figures = [_figures(runs, both.parts[at], both, at) for at, runs in enumerate((a, b))]
    disturbed = max(side.disturbed_ratio or 0.0 for side in figures)
    unrest = max(side.unrest_ratio or 0.0 for side in figures)
    assumed = limits.run_floor
    limits = replace(limits, run_floor=run_floor(limits, disturbed, unrest))
    whole = channel(ground, rows.step_s / both.fit.expected_s, True, limits.run_floor, tilt)
    calmer = min(side.disturbed_ratio or 0.0 for side in figures)
    slow = slow_steps(ground, both.fit, rows, calmer)
    floor = hypot(limits.run_floor, slow_floor(calmer))
    mean = mean_channel(ground, rows.step_s / both.fit.expected_s, floor, tilt).change(log=True)
    found = (*terms(ground, both.fit, rows, parts_of(rows), tilt, limits), slow)
    change = whole.change(log=True)
    seen = Seen(change, mean, found, min(both.parts), restlessness(disturbed, unrest), min(len(a), len(b)))
    verdict, why, by = decide(seen, limits)
    return Comparison(
        verdict=verdict,
        why=why,
        change=change,
        mean_change=mean,
        decided_by=by,
        a=figures[0],
        b=figures[1],
        regimes=tuple(_regime(both, whole, int(at), limits) for at in np.argsort(-ground.shares)),
        terms=found,
        notes=tuple(_notes(figures, slow, assumed)),
        within_ratio=seen.within if verdict is Verdict.SAME else None,
        thresholds=limits.as_data(),
    )


def _regime(both: Both, whole: Channel, at: int, limits: Thresholds) -> RegimeChange:
    code, ground, step_s = both.ground.matched[at], both.ground, both.rows.step_s
    sides = [(ground.regime == code) & (both.side == side) for side in (0, 1)]
    usual = float(np.average(both.fit.expected_s[sides[0] | sides[1]], weights=ground.weight[sides[0] | sides[1]]))
    change = whole.regime_change(at, log=True)
    means = [float(np.average(step_s[rows], weights=ground.weight[rows])) for rows in sides]
    return RegimeChange(
        name=regime_name(code),
        steps_a=int(ground.weight[sides[0]].sum()),
        steps_b=int(ground.weight[sides[1]].sum()),
        weight=float(ground.shares[at]),
        a_s=usual * whole.levels[at][0].value,
        b_s=usual * whole.levels[at][1].value,
        mean_a_s=means[0],
        mean_b_s=means[1],
        change=change,
        verdict=judged(change, limits),
    )


def _figures(runs: Sequence[Run], matched: float, both: Both | None, at: int) -> SideFigures:
    disturbed = unrest = None
    if both is not None:
        disturbed, unrest = _unrest(both, at)
    return SideFigures(
        runs=len(runs),
        steps=int(sum(run.weight.sum() for run in runs)),
        left_out=sum(run.left_out for run in runs),
        busy_s=sum(run.busy_s for run in runs),
        matched_ratio=matched,
        disturbed_ratio=disturbed,
        unrest_ratio=unrest,
    )


def _unrest(both: Both, side: int) -> tuple[float, float]:
    """How far the mean step of a regime lies above its quiet one, and the quiet one above the quickest stretches.

    Stretches are means of STRETCH steps in a row, each in parts of its regime's quiet step, so that an output that
    comes late and shortens the next step is no unrest. On a machine of its own an engine is hardly ever quicker than
    in its quiet steps; where it waits for a core, or for memory that others read, it is.
    """
    ratio = both.rows.step_s / both.fit.expected_s
    above, calm = 0.0, np.full(len(ratio), np.nan)
    for code, share in zip(both.ground.matched, both.ground.shares, strict=True):
        rows = (both.ground.regime == code) & (both.side == side)
        quiet = float(np.quantile(ratio[rows], QUIET))
        above += float(share) * (float(ratio[rows].mean()) / quiet - 1)
        calm[rows] = ratio[rows] / quiet
    means = []
    for number in both.ground.runs[side]:
        its = calm[(both.ground.run == number) & np.isfinite(calm)]
        means.append(its[: len(its) // STRETCH * STRETCH].reshape(-1, STRETCH).mean(axis=1))
    stretches = np.concatenate(means)
    if not len(stretches):
        return above, 0.0
    quick, quiet = np.quantile(stretches, (QUICKEST, QUIET))
    return above, float(quiet / quick - 1)


def _notes(figures: Sequence[SideFigures], slow: TermChange, floor: float) -> list[str]:
    found = []
    runs = min(side.runs for side in figures)
    if slow.verdict in (Verdict.WORSE, Verdict.BETTER) and runs < ENOUGH_RUNS:
        found.append(
            f"the mean step lies {figures[0].disturbed_ratio or 0.0:.0%} above the quiet one in A and "
            f"{figures[1].disturbed_ratio or 0.0:.0%} in B: pauses of the engine and others on the machine look alike; "
            f"{ENOUGH_RUNS} recordings a side, in turn, tell them apart"
        )
    if runs == 1:
        found.append(
            f"one run a side: that runs of one engine differ by {floor:.0%} or so is assumed, and how each run "
            f"drifts is added; {ENOUGH_RUNS} or more a side measure it"
        )
    return found


def _nothing(a: Sequence[Run], b: Sequence[Run], why: str, limits: Thresholds) -> Comparison:
    left, right = (_figures(runs, 0.0, None, at) for at, runs in enumerate((a, b)))
    return Comparison(Verdict.CANNOT_TELL, why, None, None, left, right, thresholds=limits.as_data())


def _identical(a: Sequence[Run], b: Sequence[Run], limits: Thresholds) -> Comparison:
    left, right = (_figures(runs, 1.0, None, at) for at, runs in enumerate((a, b)))
    why, none = "both sides are the same recording, step for step", Change(0.0, 0.0, 0.0)
    return Comparison(Verdict.SAME, why, none, None, left, right, identical=True, thresholds=limits.as_data())
