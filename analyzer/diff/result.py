"""What a comparison of two sides found; frozen, ratios of the time of a step unless the unit says otherwise."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class Verdict(StrEnum):
    """What became of the time of a step from side A to side B."""

    WORSE = "worse"
    BETTER = "better"
    SAME = "same"
    CANNOT_TELL = "cannot tell"


@dataclass(frozen=True, slots=True)
class Change:
    """``ratio`` is how much longer a step of B takes than the same step of A, 0.05 for 5 %; low and high its interval.

    ``noise_ratio`` is half the width of the interval: what two recordings of the same engine differ by.
    """

    ratio: float
    low_ratio: float
    high_ratio: float

    @property
    def noise_ratio(self) -> float:
        """Half the width of the interval."""
        return (self.high_ratio - self.low_ratio) / 2


@dataclass(frozen=True, slots=True)
class RegimeChange:
    """One regime that both sides have: ``weight`` is its part in the whole; seconds are those of a quiet step.

    ``a_s`` is what a step of A takes, ``b_s`` what the same step takes in B: the amounts of the regime are those of
    both sides together. ``mean_a_s`` and ``mean_b_s`` are plain means of what was seen, disturbances and mix included.
    """

    name: str
    steps_a: int
    steps_b: int
    weight: float
    a_s: float
    b_s: float
    mean_a_s: float
    mean_b_s: float
    change: Change
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class TermChange:
    """One part of the time of a step; ``change`` is a part of the whole step, None where nothing can be said.

    ``words`` say what the part is and how it was told apart, or why it cannot be.
    """

    name: str
    change: Change | None
    verdict: Verdict
    words: str


@dataclass(frozen=True, slots=True)
class FactChange:
    """A fact of the engines that differs, as each side states it; None for not stated."""

    name: str
    a: str | None
    b: str | None


@dataclass(frozen=True, slots=True)
class SideFigures:
    """What was compared of one side; ``matched_ratio`` is the part of its time in regimes that both sides have.

    ``disturbed_ratio`` is how far the mean step lies above the quiet one, ``unrest_ratio`` how far that lies above the
    quickest stretches.
    """

    runs: int
    steps: int
    left_out: int
    busy_s: float
    matched_ratio: float
    disturbed_ratio: float | None
    unrest_ratio: float | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """The whole of it. ``decided_by`` is the term that decided where the whole alone could not; ``notes`` are lines.

    ``relative`` is whether times are parts of what is reachable and no seconds. ``within_ratio`` is the most that a
    change of the quiet or of the mean step may be where the verdict is "same": what could hide in it. ``mean_change``
    is that of the mean step, disturbances included.
    """

    verdict: Verdict
    why: str
    change: Change | None
    decided_by: str | None
    a: SideFigures
    b: SideFigures
    regimes: tuple[RegimeChange, ...] = ()
    terms: tuple[TermChange, ...] = ()
    facts: tuple[FactChange, ...] = ()
    notes: tuple[str, ...] = ()
    identical: bool = False
    relative: bool = False
    within_ratio: float | None = None
    mean_change: Change | None = None

    @property
    def deciding(self) -> Change | None:
        """The change that the verdict is of: that of the term that decided, else of the quiet step."""
        term = next((term for term in self.terms if term.name == self.decided_by), None)
        return self.change if term is None else term.change

    thresholds: dict[str, float] = field(default_factory=dict)
