"""Which part of the step moved: the host's parts as the stamps tell them, the rest by its slopes on what it handles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from rooflens.analyzer.diff.channels import Ground, change_of, channel, slow_channel
from rooflens.analyzer.diff.fit import Fit, by_block, quiet_weight, solved
from rooflens.analyzer.diff.noise import PRIOR_RUNS
from rooflens.analyzer.diff.result import TermChange, Verdict
from rooflens.analyzer.diff.steps import COVARIATES, Column, Index, Run
from rooflens.analyzer.diff.verdict import SLOW, SLOW_MATTERS, Thresholds, judged, slow_floor
from rooflens.analyzer.sums import Mask

Matrix = NDArray[np.float64]
BETWEEN, BESIDE, WORK = "host, between steps", "host, beside the device", "work"
HOST_FLOOR, HOST_SHARE = 0.001, 0.15  # between runs the host's part of a step differs by this much, and this part of it
FITTED = 0.02  # a term of the fit must move by so much of a step to be named: its model is a straight line
SIZES = {  # of the amounts that slopes are on
    "query_tokens": "compute",
    "context_tokens": "KV",
    "requests": "sequences",
    "causal_pairs": "attention compute",
}
WORDS = {
    "compute": "slope on the tokens computed",
    "KV": "slope on the tokens in the KV cache",
    "sequences": "slope on the sequences: sampling, or host work for each",
    "attention compute": "slope on the pairs of queries and keys",
    "constant": "what every step takes: weights or launches, which only device time or counters tell apart",
}
ALIKE = 0.9  # of the squared correlation with the amounts before it: beyond it two slopes cannot be told apart
ROUNDS = 12


@dataclass(frozen=True, slots=True)
class Parts:
    """The seconds of each step (steps,) that pass between steps, beside the device and at work; None where not told."""

    between_s: Column | None
    beside_s: Column | None
    work_s: Column


def parts_of(rows: Run) -> Parts:
    """How far the time of each step can be divided by what was stamped."""
    known = np.isfinite(rows.device_s)
    inside = rows.step_s - rows.between_s
    beside = np.maximum(inside - rows.device_s, 0.0) if known.all() and len(rows) else None
    return Parts(rows.between_s if rows.timed_between else None, beside, inside if beside is None else inside - beside)


def terms(
    ground: Ground, fit: Fit, rows: Run, parts: Parts, tilt: Sequence[Column], limits: Thresholds
) -> tuple[TermChange, ...]:
    """Every part of the step with its change as a part of the whole step, what was measured first."""
    found = []
    for name, seconds in ((BETWEEN, parts.between_s), (BESIDE, parts.beside_s)):
        if seconds is None:
            found.append(TermChange(name, None, Verdict.CANNOT_TELL, UNTOLD[name]))
            continue
        ratio = seconds / fit.expected_s
        floor = HOST_FLOOR + HOST_SHARE * float(np.median(ratio))
        change = channel(ground, ratio, False, floor, [np.zeros_like(each) for each in tilt]).change(log=False)
        found.append(TermChange(name, change, judged(change, limits), TOLD[name]))
    work = channel(ground, parts.work_s / fit.expected_s, True, limits.run_floor, tilt)
    change = work.change(log=True)
    words = "the rest of the step" if parts.beside_s is None else "the device's own time"
    found.append(TermChange(WORK, change, judged(change, limits), words))
    moved = found[-1].verdict
    found += [_supported(term, moved) for term in _slopes(ground, fit, rows, parts.work_s, work.variance, limits)]
    return tuple(found)


def slow_steps(ground: Ground, fit: Fit, rows: Run, calmer: float) -> TermChange:
    """How far the mean step lies above the quiet one; ``calmer`` is that of the side where it does so less."""
    change = slow_channel(ground, rows.step_s / fit.expected_s, slow_floor(calmer)).change(log=False)
    words = "how far the mean step lies above the quiet one: pauses, or others on the machine"
    return TermChange(SLOW, change, judged(change, Thresholds(matters=SLOW_MATTERS)), words)


def _supported(term: TermChange, work: Verdict) -> TermChange:
    """A slope that moved is believed only where the work as a whole moved that way: else two slopes trade places."""
    if term.verdict in (Verdict.WORSE, Verdict.BETTER) and term.verdict is not work:
        return replace(term, verdict=Verdict.CANNOT_TELL)
    return term


TOLD = {
    BETWEEN: "from an output to the next submit while requests were there",
    BESIDE: "observed time beyond the device's own",
}
UNTOLD = {
    BETWEEN: "the recordings do not tell submits, outputs and the queue of single steps",
    BESIDE: "no device time was recorded (ROOFLENS_DEVICE_TIME=1), so a host that overlaps or waits is not told apart",
}


def _slopes(
    ground: Ground, fit: Fit, rows: Run, work_s: Column, variance: float, limits: Thresholds
) -> list[TermChange]:
    """The work divided by its slopes, each side fitted by itself over the matched regimes."""
    inside = np.isin(rows.regime, ground.matched)
    names = _apart(rows.amounts[inside], rows)
    if not names:
        return [TermChange("weights, KV, compute", None, Verdict.CANNOT_TELL, "the steps are too alike for slopes")]
    columns = [COVARIATES.index(name) for name in names]
    x = np.column_stack([np.ones(int(inside.sum())), rows.amounts[inside][:, columns]])
    scale = np.abs(x).max(axis=0)
    x /= scale
    amounts, whole = _common(ground, x, fit.expected_s[inside], ground.regime[inside])
    sides = []
    for side in (0, 1):
        of = ground.side[inside] == side
        sides.append(_side(x[of], work_s[inside][of], fit.expected_s[inside][of], ground, inside, of))
    moved = (sides[1][0] - sides[0][0]) * amounts / whole
    spread = ((sides[1][1] - sides[0][1]) * amounts / whole).var(axis=0, ddof=1)
    part = (sides[0][0] * amounts / whole) ** 2
    found = []
    for at, name in enumerate(("constant", *(SIZES[each] for each in names))):
        change = change_of(float(moved[at]), float(spread[at] + part[at] * variance), PRIOR_RUNS, log=False)
        told = judged(change, replace(limits, matters=FITTED))
        found.append(TermChange(name, change, told, WORDS[name]))
    return found


def _side(x: Matrix, y: Column, expected_s: Column, ground: Ground, inside: Mask, of: Mask) -> tuple[Column, Matrix]:
    """The slopes of one side, and of each draw, by the same low expectile as the fit."""
    counts = ground.counts[0]
    block, weight = ground.block[inside][of], ground.weight[inside][of]
    fitted = expected_s
    for _ in range(ROUNDS):
        w = weight * quiet_weight(y, fitted) / expected_s**2
        gram, right = by_block(block, counts.shape[1], x, w, y)
        slopes = solved(gram.sum(axis=0), right.sum(axis=0))
        fitted = np.maximum(x @ slopes, 0.2 * expected_s)
    return slopes, solved(np.tensordot(counts, gram, 1), counts @ right)


def _common(ground: Ground, x: Matrix, expected_s: Column, regime: Index) -> tuple[Column, float]:
    """The mean amounts and expected seconds of a step of the common mix: regimes by their shares."""
    amounts, whole = np.zeros(x.shape[1]), 0.0
    for code, share in zip(ground.matched, ground.shares, strict=True):
        rows = regime == code
        amounts += share * x[rows].mean(axis=0) / expected_s[rows].mean()
        whole += share
    return amounts, whole


def _apart(amounts: Matrix, rows: Run) -> list[str]:
    """The amounts whose slopes can be told apart from the constant and from those before them."""
    found: list[str] = []
    for name in ("query_tokens", "context_tokens", "requests", "causal_pairs"):
        column = amounts[:, COVARIATES.index(name)]
        if name not in rows.told or column.std() <= 0.05 * max(float(np.abs(column).mean()), 1e-12):
            continue
        beside = np.column_stack([np.ones(len(column)), *(amounts[:, COVARIATES.index(each)] for each in found)])
        rest = column - beside @ np.linalg.lstsq(beside, column, rcond=None)[0]
        if float(rest.var()) > (1 - ALIKE) * float(column.var()):
            found.append(name)
    return found
