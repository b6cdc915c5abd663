"""Which regimes both sides have, and coarser ones, across contexts, where the fine ones hardly overlap."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from rooflens.analyzer.diff.steps import ANY_CONTEXT, BATCH, COVARIATES, Column, Index, Run

LEAST_CELL_STEPS = 20  # of a regime on either side
ENOUGH = 0.5  # of either side's time in common regimes: below it contexts are laid together, if that covers more
FURTHEST = 4.0  # times the mean context of the other side: what the slope on context is asked to reach across


@dataclass(frozen=True, slots=True)
class Matching:
    """``codes`` of the regimes that both sides have, ``shares`` the smaller part of time of each, adding up to 1, and
    ``parts``, what of the time of either side is in them."""

    codes: tuple[int, ...]
    shares: Column
    parts: tuple[float, float]


def matching(rows: Run, side: Index) -> Matching:
    """The regimes with LEAST_CELL_STEPS on either side."""
    time_s = np.minimum(rows.step_s, 10 * np.median(rows.step_s)) * rows.weight
    totals = [float(time_s[side == at].sum()) for at in (0, 1)]
    found, parts = [], []
    for code in np.unique(rows.regime):
        of_side = [(rows.regime == code) & (side == at) for at in (0, 1)]
        if min(int(each.sum()) for each in of_side) >= LEAST_CELL_STEPS and _near(rows, int(code), of_side):
            found.append(int(code))
            parts.append([float(time_s[each].sum()) / totals[at] for at, each in enumerate(of_side)])
    if not found:
        return Matching((), np.zeros(0), (0.0, 0.0))
    table = np.array(parts)
    least = table.min(axis=1)
    return Matching(tuple(found), least / least.sum(), (float(table[:, 0].sum()), float(table[:, 1].sum())))


def across_contexts(rows: Run, side: Index, fine: Matching) -> tuple[Run, Matching]:
    """The same rows in regimes that leave the context out, where that covers more of what ``fine`` leaves.

    Time is linear in the tokens in the cache, so that a slope that both sides share takes the contexts off; its own
    error widens the interval by how far they lie apart. Batches are not laid together: time is not linear in them.
    """
    if min(fine.parts) >= ENOUGH or "context_tokens" not in rows.told:
        return rows, fine
    coarse = replace(rows, regime=rows.regime // BATCH * BATCH + ANY_CONTEXT)
    found = matching(coarse, side)
    return (coarse, found) if min(found.parts) > min(fine.parts) else (rows, fine)


def _near(rows: Run, code: int, of_side: list[np.ndarray]) -> bool:
    if code % BATCH != ANY_CONTEXT:
        return True
    held = rows.amounts[:, COVARIATES.index("context_tokens")]
    means = sorted(float(held[each].mean()) for each in of_side)
    return means[1] <= FURTHEST * max(means[0], 1.0)
