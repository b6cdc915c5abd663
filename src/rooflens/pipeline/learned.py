"""What is kept of one configuration, and how a window is added to it: each of an engine's steps teaches once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from rooflens.analyzer import baseline as baselines
from rooflens.analyzer import correction as corrections
from rooflens.analyzer.baseline import Baseline
from rooflens.analyzer.correction import Correction
from rooflens.records import RooflensError
from rooflens.trace_records import RUN_DIGITS

# Regimes of one configuration: with 64 windows each its file stays below half of what a file of state may hold.
MOST_REGIMES = 128
MOST_RUNS = 64  # of engines whose last taught step is known
MOST_SEQUENCE = 1 << 63


class Span(NamedTuple):
    """Steps ``first`` to ``last`` of one run of an engine, which every sidecar names alike."""

    run: str
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Learned:
    """What is kept of one key. A value, never changed. ``until`` is the last step of each run that has taught."""

    correction: Correction = field(default_factory=Correction)
    baseline: Baseline = field(default_factory=Baseline)
    until: Mapping[str, int] = field(default_factory=dict)

    def followed_by(self, later: Learned) -> Learned:
        """Both as one; beyond MOST_REGIMES those that were seen longest ago make way."""
        correction = self.correction.followed_by(later.correction)
        baseline = self.baseline.followed_by(later.baseline)
        if len(baseline.regimes) > MOST_REGIMES:
            newest = sorted(baseline.regimes, key=lambda regime: baseline.regimes[regime].last_unix_s)[-MOST_REGIMES:]
            baseline = Baseline({regime: baseline.regimes[regime] for regime in newest})
        kept = {regime: ratios for regime, ratios in correction.ratios.items() if regime in baseline.regimes}
        until = {run: last for run, last in self.until.items() if run not in later.until}
        until |= {run: max(last, self.until.get(run, 0)) for run, last in later.until.items()}
        return Learned(Correction(kept), baseline, dict(list(until.items())[-MOST_RUNS:]))

    def taught(self, window: Learned, span: Span | None) -> Learned:
        """With one window more, unless another sidecar taught some of its steps; without a span it always counts."""
        if span is None:
            return self.followed_by(window)
        if span.first <= self.until.get(span.run, 0):
            return self
        return self.followed_by(replace(window, until={span.run: span.last}))

    def taught_all(self, windows: Iterable[tuple[Learned, Span | None]]) -> Learned:
        """With each of these windows, in order."""
        found = self
        for window, span in windows:
            found = found.taught(window, span)
        return found


def learned_data(learned: Learned) -> Mapping[str, Any]:
    """What was learned as it stands in a file."""
    return {
        "corrections": corrections.as_data(learned.correction),
        "baseline": baselines.as_data(learned.baseline),
        "taught": [{"run": run, "sequence": last} for run, last in learned.until.items()],
    }


def learned_from_data(data: Mapping[str, Any]) -> Learned:
    """The inverse; RooflensError for anything else. A file of before has no ``taught``."""
    correction, baseline = corrections.from_data(data.get("corrections")), baselines.from_data(data.get("baseline"))
    if max(len(correction.ratios), len(baseline.regimes)) > MOST_REGIMES:
        raise RooflensError(f"it holds more than {MOST_REGIMES} regimes")
    return Learned(correction, baseline, _until_from(data.get("taught", [])))


def _until_from(rows: object) -> Mapping[str, int]:
    try:
        found = {str(row["run"]): row["sequence"] for row in rows}  # type: ignore[attr-defined]
    except (KeyError, TypeError) as error:
        raise RooflensError(f"what it was taught of is damaged ({error}): remove the file to learn anew") from error
    if len(found) > MOST_RUNS or not all(len(run) == RUN_DIGITS and _is_step(at) for run, at in found.items()):
        raise RooflensError("what it was taught of are no steps of runs: remove the file to learn anew")
    return found


def _is_step(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MOST_SEQUENCE
