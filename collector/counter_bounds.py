"""Counter bytes over model bytes of one stretch, with bounds that hold however its ends really lay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rooflens.collector.covered import Joined
from rooflens.collector.device_tracks import Floats
from rooflens.collector.step_traffic import StepTraffic

CELLS = 20  # into which the slack of an end is cut: within one, counter and model are bounded apart
ROUNDS = 50  # of the search for a bound, which converges in three or four
ROUNDING_RATIO = 1e-9  # what sums of floats may be off


@dataclass(frozen=True, slots=True)
class Counted:
    """The counter bytes of all devices, at one bandwidth for each: ``inner`` is what lies between the ends.

    ``fixed_low`` and ``fixed_high`` bound what does not depend on where the ends are; ``rate`` is what one more second
    at an end, ``at_s`` with ``slack_s``, adds; ``right`` tells ends from beginnings. Those arrays have one row for each
    end of each gap-free run of each device.
    """

    inner: float
    fixed_low: float
    fixed_high: float
    at_s: Floats
    slack_s: Floats
    rate: Floats
    right: NDArray[np.bool_]

    @property
    def low(self) -> float:
        """The least bytes of the stretch, its ends shifted by their slack at the rate beside them."""
        return max(0.0, self.fixed_low - float((self.rate * self.slack_s).sum()))

    @property
    def high(self) -> float:
        """The most bytes of the stretch, as ``low``."""
        return self.fixed_high + float((self.rate * self.slack_s).sum())


def counted(parts: Sequence[Joined], dram_ratios: Sequence[Floats], bandwidths: Sequence[float]) -> Counted:
    """What was counted, ``bandwidths`` being 100 % of each device in bytes/s.

    Two samples that follow each other share an end: if it was a little later, the first saw more and the second less,
    so only the difference of their rates counts there. What a sample that is cut holds inside the cut is bounded by
    all that it counted, and by what the bandwidth allows there.
    """
    inner = low = high = 0.0
    rows: list[NDArray[np.float64]] = []
    for part, ratio, bandwidth in zip(parts, dram_ratios, bandwidths, strict=True):
        rate, slack, weight = bandwidth * ratio, part.track.slack_s, part.weight_s
        inner += float((rate * weight).sum())
        follows = part.follows()
        shared = float((np.maximum(slack[1:], slack[:-1]) * np.abs(np.diff(rate)))[follows].sum())
        less, more = _cut(part, rate, bandwidth)
        low, high = low - shared + less, high + shared + more
        before, after = part.cut_s()
        left, right = np.concatenate(([True], ~follows)), np.concatenate((~follows, [True]))
        for side, chosen, at, cut in ((0.0, left, part.begin_s, before), (1.0, right, part.end_s, after)):
            whole = cut[chosen] == 0
            moved = np.where(whole, [slack[chosen], rate[chosen]], 0.0)
            rows.append(np.stack((at[chosen], *moved, np.full(len(whole), side))))
    at_s, slack_s, rates, sides = np.concatenate(rows, axis=1)
    return Counted(inner, inner + low, inner + high, at_s, slack_s, rates, sides > 0)


def _cut(part: Joined, rate: Floats, bandwidth: float) -> tuple[float, float]:
    """How many bytes less and more than in proportion to time the parts of cut samples may hold, 0 without any."""
    before, after = part.cut_s()
    sides = (before > 0).astype(np.float64) + (after > 0)
    rows = sides > 0
    if not rows.any():
        return 0.0, 0.0
    cuts, own, inside = sides[rows], rate[rows], part.weight_s[rows]
    outside, slack = (before + after)[rows], part.track.slack_s[rows]
    peak, ends = np.maximum(bandwidth, own), 2.0 - cuts  # an end that is not cut shifts by its slack elsewhere
    total = own * (inside + outside + cuts * slack)
    most = np.minimum(total, peak * inside + ends * slack * (peak - own))
    least = np.maximum(-ends * slack * own, total - peak * (outside + cuts * slack))
    likely = own * inside
    return float((least - likely).sum()), float((most - likely).sum())


def model_bytes(found: Counted, traffic: StepTraffic, devices: int) -> float:
    """The model's bytes of the counted stretch, over all devices together.

    Where the ends differ between devices, each is taken to move an equal part of a step's bytes.
    """
    likely = traffic.likely_bytes(found.at_s)
    return float(np.where(found.right, likely, -likely).sum()) / devices


def model_bounds(found: Counted, traffic: StepTraffic, devices: int) -> tuple[float, float]:
    """The least and most model bytes of the stretch: every step across an end all out, and all in."""
    ends, starts = found.at_s[found.right], found.at_s[~found.right]
    least = traffic.ended_bytes(ends, most=False).sum() - traffic.begun_bytes(starts, most=False).sum()
    most = traffic.begun_bytes(ends, most=True).sum() - traffic.ended_bytes(starts, most=True).sum()
    return max(0.0, float(least) / devices), float(most) / devices


def ratio_low(found: Counted, traffic: StepTraffic, devices: int) -> float | None:
    """The least that counter over model bytes can be, wherever in their slack the ends lay; None without a bound."""
    at_s, shift_s = _grid(found)
    begun, ended = traffic.begun_bytes(at_s, most=True), traffic.ended_bytes(at_s, most=True)
    right = found.right[:, None]
    model = np.where(right, begun[:, 1:], -ended[:, :-1]) / devices
    moved = found.rate[:, None] * np.where(right, shift_s[:, :-1], -shift_s[:, 1:])
    bound = _extreme(-found.fixed_low, -moved, model)
    return None if bound is None else max(0.0, -bound * (1 - ROUNDING_RATIO))


def ratio_high(found: Counted, traffic: StepTraffic, devices: int) -> float | None:
    """The most that counter over model bytes can be; None without a bound: perhaps no step lies in it as a whole."""
    at_s, shift_s = _grid(found)
    begun, ended = traffic.begun_bytes(at_s, most=False), traffic.ended_bytes(at_s, most=False)
    right = found.right[:, None]
    model = np.where(right, ended[:, :-1], -begun[:, 1:]) / devices
    moved = found.rate[:, None] * np.where(right, shift_s[:, 1:], -shift_s[:, :-1])
    bound = _extreme(found.fixed_high, moved, model)
    return None if bound is None else bound * (1 + ROUNDING_RATIO)


def _grid(found: Counted) -> tuple[Floats, Floats]:
    """The moments that cut the slack of each end into cells, and how far they are from the end; (ends, CELLS + 1)."""
    shift_s = found.slack_s[:, None] * np.linspace(-1.0, 1.0, CELLS + 1)
    return found.at_s[:, None] + shift_s, shift_s


def _extreme(fixed: float, moved: Floats, model: Floats) -> float | None:
    """The most of (fixed + sum of moved) / (sum of model), one cell of each row chosen; None where it has no bound.

    Counter and model bytes go together: a window that began earlier saw more of both. So cells are not chosen for each
    of the sums but for their quotient, as W. Dinkelbach does (Management Science 13, 1967): choose the cells where
    moved - k x model is largest, take their quotient as the new k, until it stays.
    """
    if not len(model) or float(model.min(axis=1).sum()) <= 0:
        return None
    rows = np.arange(len(model))
    chosen = np.full(len(model), model.shape[1] // 2)
    best = -np.inf
    for _ in range(ROUNDS):
        found = (fixed + float(moved[rows, chosen].sum())) / float(model[rows, chosen].sum())
        if found <= best:
            break
        best = found
        chosen = np.argmax(moved - best * model, axis=1)
    return best
