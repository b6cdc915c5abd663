"""From differences and their intervals to words: worse, better, same, or that it cannot be told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from rooflens.analyzer.diff.noise import DRAWS
from rooflens.analyzer.diff.result import Change, TermChange, Verdict

MATTERS = 0.01  # a difference of less than 1 % of a step is nobody's upgrade or regression
MOST_NOISE = 0.15  # half an interval beyond which "no difference seen" says nothing
RUN_FLOOR = 0.01  # standard deviation between starts of one engine that no look into one run can see
# How far others that share the machine shift even the quiet steps from one run to the next, from 60 recordings of one
# engine on two cores beside other work (docs/decisions/0013): with the square of how far the mean step lies above the
# quiet one, and with how far that lies above the quickest stretches, beyond what it does on an idle machine.
DISTURBED_SQUARE = 1.0
UNREST_PART, USUAL_UNREST = 1.5, 0.05
# Beyond these the quiet steps are none, and the whole is not judged; what is stamped apart from the work still is.
MOST_DISTURBED, MOST_UNREST = 0.4, 0.08
LEAST_MATCHED = 0.2  # of either side's time in common regimes: below it the sides did different work
MEASURED = ("host, between steps", "host, beside the device")  # terms that are read off the stamps, not fitted


@dataclass(frozen=True, slots=True)
class Thresholds:
    """What is judged by, as parts of the time of a step; ``draws`` are those of the bootstrap."""

    matters: float = MATTERS
    most_noise: float = MOST_NOISE
    run_floor: float = RUN_FLOOR
    least_matched: float = LEAST_MATCHED
    draws: int = DRAWS

    def as_data(self) -> dict[str, float]:
        """Plain values."""
        return asdict(self)


def run_floor(limits: Thresholds, disturbed: float, unrest: float) -> float:
    """The least standard deviation between two runs of one engine on a machine as disturbed as this."""
    return max(limits.run_floor, DISTURBED_SQUARE * disturbed**2, UNREST_PART * (unrest - USUAL_UNREST))


def judged(change: Change | None, limits: Thresholds) -> Verdict:
    """Worse or better where the interval leaves 0 out and the difference matters; same where one would be seen."""
    if change is None:
        return Verdict.CANNOT_TELL
    if change.low_ratio > 0 and change.ratio >= limits.matters:
        return Verdict.WORSE
    if change.high_ratio < 0 and change.ratio <= -limits.matters:
        return Verdict.BETTER
    return Verdict.SAME if change.noise_ratio <= limits.most_noise else Verdict.CANNOT_TELL


def restlessness(disturbed: float, unrest: float) -> str | None:
    """Why the whole cannot be judged on a machine as disturbed as this; None where it can."""
    if disturbed > MOST_DISTURBED:
        return f"others disturbed the engine: the mean step lies {disturbed:.0%} above the quiet one"
    if unrest > MOST_UNREST:
        return f"others disturbed the engine: even its quiet steps lie {unrest:.0%} above its quickest"
    return None


def decide(
    change: Change, terms: Sequence[TermChange], matched: float, restless: str | None, limits: Thresholds
) -> tuple[Verdict, str, str | None]:
    """The verdict of the whole, why, and the term that decided it where the whole lies within its noise.

    A part that is measured by itself, and whose own noise is far smaller, decides where the rest of the step shows no
    difference that could make up for it.
    """
    if matched < limits.least_matched:
        return Verdict.CANNOT_TELL, f"only {matched:.0%} of one side's time is in regimes that both sides have", None
    whole = Verdict.CANNOT_TELL if restless else judged(change, limits)
    if whole in (Verdict.WORSE, Verdict.BETTER):
        return whole, f"the same steps take {_more(change.ratio)}", None
    moved = [term for term in terms if term.name in MEASURED and term.verdict in (Verdict.WORSE, Verdict.BETTER)]
    rest = next((term for term in terms if term.name == "work"), None)
    if (
        len(moved) == 1
        and moved[0].change is not None
        and rest is not None
        and (restless or rest.verdict not in _other(moved[0]))
    ):
        more = "more" if moved[0].change.ratio > 0 else "less"
        why = f"{moved[0].name}: {abs(moved[0].change.ratio):.1%} of a step {more}"
        return moved[0].verdict, f"{why}; the rest shows no difference beyond its noise", moved[0].name
    if restless:
        return whole, restless, None
    if whole is Verdict.CANNOT_TELL:
        return whole, f"two recordings of the same engine may differ by {change.noise_ratio:.0%} here", None
    return whole, f"no difference beyond the noise floor of {change.noise_ratio:.1%}", None


def _other(term: TermChange) -> tuple[Verdict, ...]:
    """The verdicts of the rest that speak against the term."""
    return (Verdict.BETTER,) if term.verdict is Verdict.WORSE else (Verdict.WORSE,)


def _more(ratio: float) -> str:
    return f"{abs(ratio):.1%} {'longer' if ratio > 0 else 'less'}"
