"""What an engine's regimes usually take: seconds a step and how they compare with what is reachable, over its windows.

A value that is passed in and out, like the correction that is learned beside it; what is kept of one version of an
engine can be compared with the next. Unlike a correction's, its ratios are not clipped.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median

import numpy as np

from rooflens.analyzer.correction import KEPT_WINDOWS, Regime, by_regime, regime_from
from rooflens.records import RooflensError, StepTable

LATEST_UNIX_S = 7258118400.0  # the year 2200
LONGEST_STEP_S = 86400.0


@dataclass(frozen=True, slots=True)
class Usual:
    """One regime: ``windows`` were seen in all, from ``first_unix_s`` to ``last_unix_s`` (where the last one ended).

    ``steps_s`` are the mean seconds a step of its last windows, oldest first, at most KEPT_WINDOWS, ``ratios`` of
    the same windows observed over reachable time, None where that was not known.
    """

    windows: int
    first_unix_s: float
    last_unix_s: float
    steps_s: tuple[float, ...]
    ratios: tuple[float | None, ...]

    @property
    def step_s(self) -> float:
        """The median seconds a step."""
        return median(self.steps_s)

    @property
    def ratio(self) -> float | None:
        """The median of observed over reachable time; None where no window knew it."""
        known = [ratio for ratio in self.ratios if ratio is not None]
        return median(known) if known else None

    def followed_by(self, later: Usual) -> Usual:
        """Both as one; a clock that was set back in between only widens the span."""
        return Usual(
            self.windows + later.windows,
            min(self.first_unix_s, later.first_unix_s),
            max(self.last_unix_s, later.last_unix_s),
            (*self.steps_s, *later.steps_s)[-KEPT_WINDOWS:],
            (*self.ratios, *later.ratios)[-KEPT_WINDOWS:],
        )


@dataclass(frozen=True, slots=True)
class Baseline:
    """What each regime usually takes. A value, never changed."""

    regimes: Mapping[Regime, Usual] = field(default_factory=dict)

    def learned(
        self, end_unix_s: float, steps_s: Mapping[Regime, float], times: Mapping[Regime, tuple[float, float]]
    ) -> Baseline:
        """The same with one more window that ended then: seconds a step of each of its regimes (see step_seconds).

        ``times`` are (observed, reachable) seconds of those regimes for which they are known.
        """
        found = {}
        for regime, step_s in steps_s.items():
            if 0 < step_s <= LONGEST_STEP_S:
                observed_s, reachable_s = times.get(regime, (0.0, 0.0))
                ratio = observed_s / reachable_s if observed_s > 0 and reachable_s > 0 else None
                found[regime] = Usual(1, end_unix_s, end_unix_s, (step_s,), (ratio,))
        return self.followed_by(Baseline(found))

    def followed_by(self, later: Baseline) -> Baseline:
        """Both as one, of windows that were seen by different observers or one after the other."""
        found = dict(self.regimes)
        for regime, usual in later.regimes.items():
            found[regime] = found[regime].followed_by(usual) if regime in found else usual
        return Baseline(found)


def step_seconds(table: StepTable) -> dict[Regime, float]:
    """Mean observed seconds a step of each regime in a window; a row that stands for several steps counts as many."""
    if not all(name in table.columns for name in ("observed_s", "kind", "requests", "context_tokens")):
        return {}
    steps = table["resolution_steps"] if table.has("resolution_steps") else np.ones(len(table))
    known = table.where("observed_s") & np.isfinite(table["observed_s"])
    return {
        regime: float(table["observed_s"][rows].sum() / max(1.0, steps[rows].sum()))
        for regime, rows in by_regime(table, known)
    }


def as_data(baseline: Baseline) -> list[dict[str, object]]:
    """The baseline as plain values for a file."""
    return [
        {
            "phase": regime.phase,
            "batch": regime.batch,
            "context": regime.context,
            "windows": usual.windows,
            "first_unix_s": usual.first_unix_s,
            "last_unix_s": usual.last_unix_s,
            "steps_s": list(usual.steps_s),
            "ratios": list(usual.ratios),
        }
        for regime, usual in sorted(baseline.regimes.items())
    ]


def from_data(data: object) -> Baseline:
    """The baseline that as_data wrote; RooflensError in one line for anything else."""
    if not isinstance(data, list):
        raise RooflensError("a baseline must be a list: remove the file to learn anew")
    found = {}
    for row in data:
        try:
            regime = regime_from(row)
            usual = Usual(
                int(row["windows"]),
                float(row["first_unix_s"]),
                float(row["last_unix_s"]),
                tuple(float(step_s) for step_s in row["steps_s"]),
                tuple(None if ratio is None else float(ratio) for ratio in row["ratios"]),
            )
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise RooflensError(f"a baseline is damaged ({error}): remove the file to learn anew") from error
        if not _possible(usual):
            raise RooflensError("a baseline holds what nothing can take: remove the file to learn anew")
        found[regime] = usual
    return Baseline(found)


def _possible(usual: Usual) -> bool:
    times = 0 <= usual.first_unix_s <= usual.last_unix_s <= LATEST_UNIX_S
    counts = 0 < len(usual.steps_s) == len(usual.ratios) <= min(KEPT_WINDOWS, usual.windows)
    ratios = all(ratio is None or 0 < ratio < math.inf for ratio in usual.ratios)
    return times and counts and ratios and all(0 < step_s <= LONGEST_STEP_S for step_s in usual.steps_s)
