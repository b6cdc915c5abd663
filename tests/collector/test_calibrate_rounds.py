"""Rounds of samples: interleaved, within their time on an injected clock, and what is left out is said."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from rooflens.collector.calibrate.rounds import (
    LEAST_ROUNDS,
    Lazy,
    Quantity,
    Race,
    Rounds,
    Sampled,
    Timed,
    measured,
    wall_timer,
)


class Clock:
    """A clock that only work moves."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def costing(clock: Clock, seconds: float, log: list[str], name: str, value: float = 2.0) -> Quantity:
    """A quantity whose every sample takes so long."""

    def sample() -> Sampled:
        clock.now_s += seconds
        log.append(name)
        return Sampled(value, value)

    return Quantity("products", name, sample)


def silent(_words: str) -> None:
    """Nobody listens."""


def test_every_round_samples_everything_once() -> None:
    clock, log = Clock(), []  # type: tuple[Clock, list[str]]
    found = Rounds(clock, silent).run([costing(clock, 0.1, log, name) for name in "abc"], 10.0)
    assert {value.count for value in found.measured["products"].values()} == {32, 33}
    rounds = [log[start : start + 3] for start in range(3, len(log) - 3, 3)]  # the first three warm up
    assert all(sorted(one) == ["a", "b", "c"] for one in rounds)
    assert len({tuple(one) for one in rounds}) > 1  # in another order, so that nothing periodic hits always the same
    assert found.problems == []


@pytest.mark.parametrize("seed", range(20))
def test_the_time_is_kept_to_within_one_sample(seed: int) -> None:
    chance, clock, log = random.Random(seed), Clock(), []  # type: tuple[random.Random, Clock, list[str]]
    costs = [chance.choice((0.001, 0.1, 0.7, 3.0)) for _ in range(12)]
    deadline_s = chance.choice((1.0, 5.0, 30.0))
    found = Rounds(clock, silent).run([costing(clock, cost, log, str(n)) for n, cost in enumerate(costs)], deadline_s)
    assert clock.now_s <= deadline_s + max(costs)
    known = found.measured.get("products", {})
    assert len(known) + len(found.problems) == len(costs)
    assert all("takes too long for the time given" in problem for problem in found.problems)


def test_the_most_expensive_ones_are_left_out_and_the_needed_ones_last() -> None:
    clock, log = Clock(), []  # type: tuple[Clock, list[str]]
    cheap, dear, needed = (costing(clock, cost, log, name) for name, cost in (("a", 0.01), ("b", 1.0), ("c", 1.0)))
    needed = Quantity(needed.field, needed.key, needed.sample, needed=True)
    found = Rounds(clock, silent).run([needed, cheap, dear], 8.0)
    assert sorted(map(str, found.measured["products"])) == ["a", "c"]
    assert found.measured["products"]["c"].count >= LEAST_ROUNDS
    assert found.problems == ["products in b are not known: that takes too long for the time given"]


def test_finer_sizes_are_left_out_before_dearer_ones() -> None:
    clock, log = Clock(), []  # type: tuple[Clock, list[str]]
    dear, finer = costing(clock, 1.0, log, "a"), replace(costing(clock, 0.5, log, "b"), finer=True)
    found = Rounds(clock, silent).run([dear, finer], 6.5)
    assert list(found.measured["products"]) == ["a"]


@pytest.mark.parametrize(
    ("field", "key", "words"),
    [
        ("reads", 799014912, "reads of weights of 762 MiB"),
        ("copies", 64 << 10, "plain reads of 64 KiB"),
        ("attention", 1 << 31, "keys and values of 2,048 MiB"),
        ("products", "fp32", "products in fp32"),
        ("launch_s", None, "launches"),
    ],
)
def test_a_quantity_is_called_as_a_table_calls_it(field: str, key: int | str | None, words: str) -> None:
    assert Quantity(field, key, lambda: Sampled(1.0, 1.0)).words == words


def test_one_that_fails_is_not_known_and_the_others_are() -> None:
    clock, log = Clock(), []  # type: tuple[Clock, list[str]]
    calls = iter(range(100))

    def fails_later() -> Sampled:
        if next(calls) > 3:
            raise RuntimeError("out of memory\nand a page of hints")
        return Sampled(1.0, 1.0)

    def never_built() -> Callable[[], Sampled]:
        raise ValueError

    quantities = [
        Quantity("products", "later", fails_later),
        Quantity("products", "never", Lazy(never_built)),
        costing(clock, 0.1, log, "fine"),
    ]
    found = Rounds(clock, silent).run(quantities, 5.0)
    assert list(found.measured["products"]) == ["fine"]
    assert sorted(found.problems) == [
        "products in later are not known: RuntimeError: out of memory",
        "products in never are not known: ValueError()",
    ]


def test_the_spread_is_that_of_the_rounds() -> None:
    found = measured([Sampled(float(value), value + 1.0) for value in range(1, 102)], less_is_better=False)
    assert (found.median, found.best, found.count) == (51.0, 102.0, 101)
    assert found.spread_ratio == pytest.approx((80 + 50) / 51)  # the tenths, and what the median moved by
    even = measured([Sampled(value, value) for value in (1.0, 2.0, 3.0) * 9], less_is_better=False)
    assert even.spread_ratio == 1.0  # nothing moved
    assert measured([Sampled(3.0, 2.0), Sampled(3.0, 1.0), Sampled(3.0, 2.5)], less_is_better=True).best == 1.0


def test_a_race_keeps_its_leader_and_still_tries_the_others() -> None:
    asked: list[int] = []

    def way(number: int) -> Callable[[], Sampled]:
        def sample() -> Sampled:
            asked.append(number)
            return Sampled(float(number % 3), number % 3 + 0.5)

        return sample

    race = Race([way(number) for number in range(4)])
    values = [race() for _ in range(12)]
    assert len(asked) == 24  # two a sample, however many ways there are
    assert asked[-2] == 2
    assert set(asked[12:]) == {0, 1, 2, 3}
    assert values[-1] == Sampled(2.0, 2.5)
    assert Race([way(1)])() == Sampled(1.0, 1.5)
    asked.clear()
    assert Race([way(1), way(2)], times=3)() == Sampled(2.0, 2.5)
    assert asked == [1, 2, 1, 1]


def test_a_short_call_is_repeated_until_it_can_be_timed() -> None:
    clock, calls = Clock(), []  # type: tuple[Clock, list[int]]

    def call() -> None:
        calls.append(1)
        clock.now_s += 0.00001

    found = Timed(call, 50.0, wall_timer(clock))()
    assert found.typical == pytest.approx(50.0 / 0.00001)
    assert len(calls) == 2 + 3 * 100
    seconds = Timed(call, None, wall_timer(clock))()
    assert (seconds.typical, seconds.best) == pytest.approx((0.00001, 0.00001))


def test_a_long_call_is_made_once_a_sample_and_its_best_is_its_fastest() -> None:
    clock, calls = Clock(), []  # type: tuple[Clock, list[int]]
    takes_s: Iterator[float] = iter([0.1, 0.1, 0.1, 0.3])

    def call() -> None:
        calls.append(1)
        clock.now_s += next(takes_s)

    timed = Timed(call, 1.0, wall_timer(clock))
    assert timed() == Sampled(pytest.approx(10.0), pytest.approx(10.0))
    assert timed() == Sampled(pytest.approx(1 / 0.3), pytest.approx(1 / 0.3))
    assert len(calls) == 4


def test_a_clock_that_stands_still_gives_no_infinite_rate() -> None:
    found = Timed(lambda: None, 1.0, lambda _call, _calls: 0.0)()
    assert 0 < found.typical < 1e16
