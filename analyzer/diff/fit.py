"""The time that a step of given contents takes while nothing disturbs it: a low expectile, slopes of both sides."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rooflens.analyzer.diff.steps import KIND, Column, Index

QUIET = (
    0.2  # the quantile that is judged: low, since others only ever make a step slower; not so low that few steps say
)
ROUNDS = 25
SPIKE = 1.5  # a step of more than so many times what is expected says little of slopes
RIDGE = 1e-6  # as a part of the mean diagonal element: collinear columns share a slope instead of exploding
LEAST_PART = 0.2  # of the usual time: what a step is expected to take at the least, however odd its contents


@dataclass(frozen=True, slots=True)
class Slopes:
    """What the fit of one kind leaves for the bootstrap; its slopes are of amounts in parts of the largest.

    ``rows`` (n,) index the table; ``amounts`` (n, covariates) are such parts, ``centred`` the same less their cell's
    mean, ``weight`` and ``rest`` (n,), the rest in seconds.
    """

    rows: Index
    amounts: NDArray[np.float64]
    centred: NDArray[np.float64]
    weight: Column
    rest: Column


@dataclass(frozen=True, slots=True)
class Fit:
    """``expected_s`` (steps,) is what a step of such contents takes, in the middle of both sides' paces."""

    expected_s: Column
    slopes: tuple[Slopes, ...]


def expected(seconds: Column, amounts: Column, regime: Index, side: Index, weight: Column) -> Fit:
    """Fit ``seconds`` (steps,): of each kind of step a slope on each amount, of each regime and side a constant.

    The slopes are those that hold within the sides, so that another mix of traffic moves nothing; the expected time has
    one constant for both sides, so that what differs between them is the effect.
    """
    found = np.empty_like(seconds)
    scale = np.maximum(np.abs(amounts).max(axis=0, initial=0.0), 1e-300)
    slopes = []
    for kind in np.unique(regime // KIND):
        rows = np.flatnonzero(regime // KIND == kind)
        found[rows], its = _of_kind(rows, seconds[rows], amounts[rows] / scale, regime[rows], side[rows], weight[rows])
        slopes.append(its)
    return Fit(found, tuple(slopes))


def _of_kind(
    rows: Index, seconds: Column, x: NDArray[np.float64], regime: Index, side: Index, weight: Column
) -> tuple[Column, Slopes]:
    cells, cell = np.unique(regime * 2 + side, return_inverse=True)
    usual = np.array([np.quantile(seconds[cell == at], QUIET) for at in range(len(cells))])
    fitted, slope, dx = usual[cell], np.zeros(x.shape[1]), x
    w = weight
    for _ in range(ROUNDS):
        w = weight * quiet_weight(seconds, fitted) / usual[cell] ** 2
        total = np.bincount(cell, w)
        means = np.stack([np.bincount(cell, w * column) / total for column in x.T], axis=1)
        level = np.bincount(cell, w * seconds) / total
        dx = x - means[cell]
        before, slope = slope, solved((dx * w[:, None]).T @ dx, (dx * w[:, None]).T @ (seconds - level[cell]))
        fitted = np.maximum(level[cell] + dx @ slope, LEAST_PART * usual[cell])
        if float(np.abs(slope - before).max(initial=0.0)) <= 1e-6 * float(usual.mean()):
            break
    its = Slopes(rows, x, dx, w, seconds - fitted)
    constant = np.array([float(np.mean((fitted - x @ slope)[cell == at])) for at in range(len(cells))])
    level = np.array([constant[cells // 2 == code // 2].mean() for code in cells])
    return np.maximum(level[cell] + x @ slope, LEAST_PART * usual[cell]), its


def quiet_weight(seconds: Column, fitted: Column) -> Column:
    """Of the expectile: a step slower than fitted counts little, a spike next to nothing."""
    ratio = seconds / np.maximum(fitted, 1e-12)
    found: Column = np.where(ratio < 1, 1 - QUIET, QUIET) * (SPIKE / np.maximum(ratio, SPIKE)) ** 2
    return found


def solved(gram: NDArray[np.float64], right: NDArray[np.float64]) -> NDArray[np.float64]:
    """The solution of one or many sets of normal equations, (..., p, p) and (..., p), a little towards zero."""
    size = gram.shape[-1]
    ridge = RIDGE * np.trace(gram, axis1=-2, axis2=-1)[..., None, None] / size + 1e-300
    return np.asarray(np.linalg.solve(gram + ridge * np.eye(size), right[..., None])[..., 0])


def by_block(block: Index, blocks: int, x: NDArray[np.float64], w: Column, y: Column) -> tuple[Column, Column]:
    """Normal equations of each block: (blocks, p, p) and (blocks, p)."""
    size = x.shape[1]
    gram, right = np.zeros((blocks, size, size)), np.zeros((blocks, size))
    for i in range(size):
        right[:, i] = np.bincount(block, w * x[:, i] * y, blocks)
        for j in range(i + 1):
            gram[:, i, j] = gram[:, j, i] = np.bincount(block, w * x[:, i] * x[:, j], blocks)
    return gram, right


def tilts(fit: Fit, regime: Index, side: Index, block: Index, counts: Column, matched: tuple[int, ...]) -> Column:
    """What an error of the slopes adds to each matched regime's difference in each draw, (draws, matched).

    It is nothing where both sides have the same amounts in a regime, and grows with how far these lie apart.
    """
    found = np.zeros((len(counts), len(matched)))
    for its in fit.slopes:
        gram, right = by_block(block[its.rows], counts.shape[1], its.centred, its.weight, its.rest)
        drawn = solved(np.tensordot(counts, gram, 1), counts @ right)
        for at, code in enumerate(matched):
            sides = [np.flatnonzero((regime[its.rows] == code) & (side[its.rows] == of)) for of in (0, 1)]
            if all(map(len, sides)):
                apart = its.amounts[sides[1]].mean(axis=0) - its.amounts[sides[0]].mean(axis=0)
                found[:, at] = drawn @ apart / float(np.median(fit.expected_s[its.rows[sides[0]]]))
    return found
