"""Many quantities measured in turns, so that whatever disturbs the machine disturbs all of them alike.

A round takes one sample of every quantity. Rounds follow each other until the time is over: what a quantity varies by
from round to round is what it varies by in time, and that is the spread that is told, with what it moved by meanwhile.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from rooflens.calibration_records import Measured

Clock = Callable[[], float]
Timer = Callable[[Callable[[], object], int], float]  # seconds that so many calls take, all together

WARM_SHARE = 0.4  # of the time; what was not reached by then takes too long, since five rounds must follow
LEAST_ROUNDS = 5  # expensive quantities are left out so that the others are measured this often
FEWEST = 3  # a spread of fewer values says nothing, so the quantity is not known
BATCH_S = 0.001  # a timing shorter than this is one of the clock and of the loop; longer ones meet more disturbances
BATCHES = 3
LONG_S = 0.01  # a single call of this length is sample enough
TOO_LONG = "that takes too long for the time given"
WORDS = {  # of each field, in the plural
    "reads": "reads of weights",
    "copies": "plain reads",
    "attention": "keys and values",
    "launch_s": "launches",
    "graph_launch_s": "launches in a graph",
}


@dataclass(frozen=True, slots=True)
class Sampled:
    """What one round found, typical and at best; rates, or seconds where less is better."""

    typical: float
    best: float


@dataclass(frozen=True, slots=True)
class Quantity:
    """One value to measure: ``field`` of Calibration, ``key`` in it (bytes, number format or None)."""

    field: str
    key: int | str | None
    sample: Callable[[], Sampled]
    less_is_better: bool = False
    needed: bool = False  # left out for want of time only after all that are not
    finer: bool = False  # left out for want of time before all that are not

    @property
    def words(self) -> str:
        """Which one it is, as a table of a calibration calls it."""
        words = WORDS.get(self.field, self.field)
        if self.key is None:
            return words
        return f"{words} of {size_text(self.key)}" if isinstance(self.key, int) else f"{words} in {self.key}"


def size_text(size: int) -> str:
    """Bytes in binary units: 64 KiB, 762 MiB."""
    unit, name = (1 << 20, "MiB") if size >= 1 << 20 else (1 << 10, "KiB")
    return f"{size / unit:.3g} {name}" if size < 1000 * unit else f"{size / unit:,.0f} {name}"


@dataclass(slots=True)
class Outcome:
    """What the rounds found, by field and key, and in ``problems`` what is not known and why."""

    measured: dict[str, dict[int | str | None, Measured]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


class Timed:
    """Samples one call, repeated until it can be timed; ``work`` is what one call does (bytes, flop), None for time."""

    def __init__(self, call: Callable[[], object], work: float | None, timer: Timer) -> None:
        self._call, self._work, self._timer, self._calls = call, work, timer, 0

    def __call__(self) -> Sampled:
        """One sample."""
        if not self._calls:
            self._call()
            once_s = max(self._timer(self._call, 1), 1e-9)
            self._calls = max(1, min(1_000_000, round(BATCH_S / once_s)))
        first_s = self._seconds()
        times = [first_s]
        if first_s * self._calls < LONG_S:
            times += [self._seconds() for _ in range(BATCHES - 1)]
        mean_s = sum(times) / len(times)
        if self._work is None:
            return Sampled(mean_s, min(times))
        return Sampled(self._work / mean_s, self._work / min(times))

    def _seconds(self) -> float:
        return max(self._timer(self._call, self._calls), 1e-9) / self._calls


class Lazy:
    """Builds what it samples when it is first sampled, so that what cannot be built fails, or takes its time, alone."""

    def __init__(self, build: Callable[[], Callable[[], Sampled]]) -> None:
        self._build = build
        self._built: Callable[[], Sampled] | None = None

    def build(self) -> Callable[[], Sampled]:
        """What is sampled."""
        if self._built is None:
            self._built = self._build()
        return self._built

    def __call__(self) -> Sampled:
        """One sample."""
        return self.build()()


class Race:
    """Several ways to do the same work, since a roof that one of them beats is none.

    Each sample takes the one that was the fastest so far, ``times`` over, and one of the others, in turn: what it
    takes does not grow with their number.
    """

    def __init__(self, ways: Sequence[Callable[[], Sampled]], times: int = 1) -> None:
        self._ways, self._leader, self._record, self._turn = list(ways), 0, 0.0, 0
        self._times = times

    def __call__(self) -> Sampled:
        """One sample: the faster of both."""
        numbers = [self._leader]
        others = [number for number in range(len(self._ways)) if number != self._leader]
        if others:
            numbers.append(others[self._turn % len(others)])
            self._turn += 1
        found = [self._ways[number]() for number in numbers]
        again = [found[0], *(self._ways[self._leader]() for _ in range(self._times - 1))]
        found[0] = Sampled(statistics.median(one.typical for one in again), max(one.best for one in again))
        for number, one in zip(numbers, found, strict=True):
            if one.best > self._record:
                self._leader, self._record = number, one.best
        return Sampled(max(one.typical for one in found), max(one.best for one in found))


def wall_timer(clock: Clock) -> Timer:
    """Seconds by the clock, for work that is done when the call returns."""

    def seconds(call: Callable[[], object], calls: int) -> float:
        start_s = clock()
        for _ in range(calls):
            call()
        return clock() - start_s

    return seconds


class Rounds:
    """Takes samples until a deadline; ``tell`` is called with words before each one, ``watch`` after each round."""

    def __init__(self, clock: Clock, tell: Callable[[str], None], watch: Callable[[], None] | None = None) -> None:
        self._clock, self._tell, self._watch = clock, tell, watch
        self._samples: dict[Quantity, list[Sampled]] = {}
        self._costs_s: dict[Quantity, float] = {}
        self._outcome = Outcome()

    def run(self, quantities: Sequence[Quantity], deadline_s: float) -> Outcome:
        """Measure them; a quantity that fails, or for which there is no time, is left out and said.

        They are begun in their order, the quickest ones first.
        """
        start_s = self._clock()
        warm_s = start_s + WARM_SHARE * (deadline_s - start_s)
        for quantity in quantities:
            if self._clock() >= warm_s:
                self._outcome.problems.append(f"{quantity.words} are not known: {TOO_LONG}")
            else:
                self._sample(quantity, "warming up")  # pages, threads, kernels and clocks; not counted
        order, chance = list(self._costs_s), random.Random(0)
        number = 0
        while self._fit(deadline_s, number) and self._clock() < deadline_s:
            number += 1
            chance.shuffle(order)
            for quantity in order:
                if quantity not in self._costs_s or self._clock() >= deadline_s:
                    continue
                found = self._sample(quantity, f"round {number}")
                if found is not None:
                    self._samples.setdefault(quantity, []).append(found)
            if self._watch is not None:
                self._watch()
        return self._ended(quantities)

    def _sample(self, quantity: Quantity, words: str) -> Sampled | None:
        self._tell(words)
        try:
            if isinstance(quantity.sample, Lazy):
                quantity.sample.build()
            start_s = self._clock()
            found = quantity.sample()
        except Exception as error:  # a format that the device has not, no memory, a driver's fault: said, not known
            self._costs_s.pop(quantity, None)
            self._samples.pop(quantity, None)
            self._outcome.problems.append(f"{quantity.words} are not known: {_cause(error)}")
            return None
        self._costs_s[quantity] = self._clock() - start_s
        return found

    def _fit(self, deadline_s: float, number: int) -> bool:
        """Leave out the most expensive ones until the rounds that are needed fit; whether there is any left."""
        # Before the first round only what warming up took is known, which is more than a round takes.
        needed = LEAST_ROUNDS - number if number else FEWEST
        left_s = deadline_s - self._clock()
        if number >= LEAST_ROUNDS:
            return bool(self._costs_s)
        while len(self._costs_s) > 1 and sum(self._costs_s.values()) * needed > left_s > 0:
            dearest = max(self._costs_s, key=lambda one: (one.finer, not one.needed, self._costs_s[one]))
            del self._costs_s[dearest]
            self._samples.pop(dearest, None)
            self._outcome.problems.append(f"{dearest.words} are not known: {TOO_LONG}")
        return bool(self._costs_s)

    def _ended(self, quantities: Sequence[Quantity]) -> Outcome:
        for quantity in quantities:
            samples = self._samples.get(quantity, [])
            if len(samples) >= FEWEST:
                found = measured(samples, quantity.less_is_better)
                self._outcome.measured.setdefault(quantity.field, {})[quantity.key] = found
            elif quantity in self._costs_s:
                self._outcome.problems.append(f"{quantity.words} are not known: {TOO_LONG}")
        return self._outcome


def measured(samples: Sequence[Sampled], less_is_better: bool) -> Measured:
    """The median of the rounds, the best of all, and how far apart they are.

    That is how far the 90th and 10th percentile lie apart, and on top how far the medians of the first and of the
    second half do: what moves within a run moves from one run to the next too.
    """
    typical, half = [one.typical for one in samples], (len(samples) + 1) // 2
    tenths = statistics.quantiles(typical, n=10, method="inclusive")
    median = statistics.median(typical)
    moved = abs(statistics.median(typical[:half]) - statistics.median(typical[-half:]))
    best = (min if less_is_better else max)(one.best for one in samples)
    return Measured(median, best, (tenths[-1] - tenths[0] + moved) / median, len(samples))


def _cause(error: Exception) -> str:
    """The first line of what a library said; CUDA's errors are pages."""
    return f"{type(error).__name__}: {str(error).strip().splitlines()[0][:120]}" if str(error).strip() else repr(error)
