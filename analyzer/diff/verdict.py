"""From differences and their intervals to words: worse, better, same, or that it cannot be told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from rooflens.analyzer.diff.noise import DRAWS
from rooflens.analyzer.diff.result import Change, TermChange, Verdict

MATTERS = 0.01  # a difference of less than 1 % of a step is nobody's upgrade or regression
MARGIN = 0.10  # "same" needs an interval that lies within this of no change: the verdict says how much may hide
SLOW_MATTERS = 0.03  # of a step: slow steps that cost by less more or less are said, but decide nothing
# Standard deviation between runs of what slow steps cost, the machine's own work; where others disturb even the calmer
# side beyond what the engine's own spread makes, what they take differs by half of itself.
SLOW_FLOOR, SLOW_PART, USUAL_SLOW = 0.01, 0.5, 0.04
ENOUGH_RUNS = 3  # a side, to tell pauses of the engine from neighbours
RUN_FLOOR = 0.01  # standard deviation between starts of one engine that no look into one run can see
# The same of an engine on a CPU, whose cores, caches and memory others share: of ten pairs of runs, ten seconds each on
# two cores, the root of the mean square is 11 % where the engine was the same, and 9 % about the 5 % by which one was
# slowed (benchmarks/results/prove_diff.json).
CPU_RUN_FLOOR = 0.08
# How far others that share the machine shift even the quiet steps from one run to the next, set on 71 recordings of one
# engine on two cores beside other work (docs/decisions/0013): with the square of how far the mean step lies above the
# quiet one, and with how far that lies above the quickest stretches, beyond what it does on an idle machine.
DISTURBED_SQUARE = 1.0
UNREST_PART, USUAL_UNREST = 1.5, 0.05
# Beyond these the quiet steps are none, and the whole is not judged; what is stamped apart from the work still is.
MOST_DISTURBED, MOST_UNREST = 0.4, 0.08
LEAST_MATCHED = 0.2  # of either side's time in common regimes: below it the sides did different work
MEASURED = ("host, between steps", "host, beside the device")  # terms that are read off the stamps, not fitted
SLOW = "slow steps"
MOVED = (Verdict.WORSE, Verdict.BETTER)


@dataclass(frozen=True, slots=True)
class Thresholds:
    """What is judged by, as parts of the time of a step; ``draws`` are those of the bootstrap."""

    matters: float = MATTERS
    margin: float = MARGIN
    run_floor: float = RUN_FLOOR
    least_matched: float = LEAST_MATCHED
    draws: int = DRAWS

    def as_data(self) -> dict[str, float]:
        """Plain values."""
        return asdict(self)


def run_floor(limits: Thresholds, disturbed: float, unrest: float) -> float:
    """The least standard deviation between two runs of one engine on a machine as disturbed as this."""
    return max(limits.run_floor, DISTURBED_SQUARE * disturbed**2, UNREST_PART * (unrest - USUAL_UNREST))


def slow_floor(calmer: float) -> float:
    """The least standard deviation between two runs of what slow steps cost, where they cost the calmer side this."""
    return max(SLOW_FLOOR, SLOW_PART * (calmer - USUAL_SLOW))


def judged(change: Change | None, limits: Thresholds) -> Verdict:
    """Worse or better where the interval leaves 0 out and the difference matters; same where all is in the margin."""
    if change is None:
        return Verdict.CANNOT_TELL
    if change.low_ratio > 0 and change.ratio >= limits.matters:
        return Verdict.WORSE
    if change.high_ratio < 0 and change.ratio <= -limits.matters:
        return Verdict.BETTER
    most = max(abs(change.low_ratio), abs(change.high_ratio))
    return Verdict.SAME if most <= limits.margin else Verdict.CANNOT_TELL


def restlessness(disturbed: float, unrest: float) -> str | None:
    """Why the whole cannot be judged on a machine as disturbed as this; None where it can."""
    if disturbed > MOST_DISTURBED:
        return f"others disturbed the engine: the mean step lies {disturbed:.0%} above the quiet one"
    if unrest > MOST_UNREST:
        return f"others disturbed the engine: even its quiet steps lie {unrest:.0%} above its quickest"
    return None


@dataclass(frozen=True, slots=True)
class Seen:
    """What is decided on: the change of the quiet step, of the mean one, and the parts', the least part of a side's
    time that is matched, why the whole cannot be judged, and the runs of the side with fewer."""

    change: Change
    mean: Change
    terms: Sequence[TermChange]
    matched: float
    restless: str | None
    runs: int

    def term(self, name: str) -> TermChange | None:
        """One of the parts."""
        return next((term for term in self.terms if term.name == name), None)

    @property
    def within(self) -> float:
        """The most that the quiet step, or the mean one, may have changed by."""
        return max(abs(end) for each in (self.change, self.mean) for end in (each.low_ratio, each.high_ratio))


def decide(seen: Seen, limits: Thresholds) -> tuple[Verdict, str, str | None]:
    """The verdict of the whole, why, and the term that decided it where the quiet step lies within its noise.

    A part that is measured by itself, and whose own noise is far smaller, decides where the rest of the step shows no
    difference that could make up for it. Slow steps decide where enough runs a side measure what neighbours do.
    """
    change, restless = seen.change, seen.restless
    if seen.matched < limits.least_matched:
        return Verdict.CANNOT_TELL, f"only {seen.matched:.0%} of one side's time is in regimes both sides have", None
    whole = Verdict.CANNOT_TELL if restless else judged(change, limits)
    slow = seen.term(SLOW)
    moved = slow is not None and slow.verdict in MOVED
    if whole in MOVED:
        why = f"the same steps take {_more(change.ratio)}"
        if slow is not None and moved and slow.verdict is not whole:
            return Verdict.CANNOT_TELL, f"{why} while nothing disturbs them, but {_slow(slow)}", None
        return whole, why, None
    if (term := _measured(seen)) is not None and term.change is not None:
        more = "more" if term.change.ratio > 0 else "less"
        why = f"{term.name}: {abs(term.change.ratio):.1%} of a step {more}"
        return term.verdict, f"{why}; the rest shows no difference beyond its noise", term.name
    if slow is not None and moved and seen.runs >= ENOUGH_RUNS:
        return slow.verdict, _slow(slow), SLOW
    if restless:
        return whole, restless, None
    if slow is not None and moved:
        return Verdict.CANNOT_TELL, f"{_slow(slow)}: the engine's pauses, or others on the machine", None
    if whole is Verdict.CANNOT_TELL or seen.within > limits.margin:
        most = f"{seen.within:.0%}" if seen.within < 1 else "more than 100%"
        return Verdict.CANNOT_TELL, f"a change of up to {most} may hide here, more than {limits.margin:.0%}", None
    return whole, f"no difference beyond the noise floor of {change.noise_ratio:.1%}", None


def _measured(seen: Seen) -> TermChange | None:
    """The one part read off the stamps that moved, where the rest does not speak against it."""
    moved = [term for term in seen.terms if term.name in MEASURED and term.verdict in MOVED]
    rest = seen.term("work")
    if len(moved) == 1 and rest is not None and (seen.restless or rest.verdict not in _other(moved[0])):
        return moved[0]
    return None


def _slow(slow: TermChange) -> str:
    ratio = 0.0 if slow.change is None else slow.change.ratio
    return f"slow steps cost {abs(ratio):.1%} of a step {'more' if ratio > 0 else 'less'}"


def _other(term: TermChange) -> tuple[Verdict, ...]:
    """The verdicts of the rest that speak against the term."""
    return (Verdict.BETTER,) if term.verdict is Verdict.WORSE else (Verdict.WORSE,)


def _more(ratio: float) -> str:
    return f"{abs(ratio):.1%} {'longer' if ratio > 0 else 'less'}"
