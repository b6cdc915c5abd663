"""The floor of a pass between measured sizes: strict for every law of a cache, tight beyond it."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from rooflens.analyzer.pass_floor import falling, pass_rate

MIB = 1 << 20
CACHE = 100 * MIB
FAST, SLOW = 80e9, 8e9
GRID = tuple(MIB << power for power in range(11))  # to 1 GiB
COARSE = tuple(MIB << power for power in range(0, 11, 2))
WANTED = [round(MIB * 1.13**step) for step in range(62)]  # to beyond the largest size

Law = Callable[[float], float]


def keeps_its_size(size: float) -> float:
    """As many bytes as the cache holds come from it in each pass, whatever the pass is."""
    return min(size, CACHE) / FAST + max(0.0, size - CACHE) / SLOW


def keeps_at_random(size: float) -> float:
    """Random replacement: what is read again survived each miss meanwhile with a chance of one less one in CACHE."""
    hit = 0.0 if size > CACHE else 1.0
    for _ in range(2000 if size > CACHE else 0):
        hit = math.exp(-size * (1 - hit) / CACHE)
    return size * (hit / FAST + (1 - hit) / SLOW)


def keeps_nothing_beyond(size: float) -> float:
    """Least recently used: of a cycle longer than itself it keeps nothing."""
    return size / (FAST if size <= CACHE else SLOW)


def two_levels(size: float) -> float:
    """A second cache before it, of a tenth."""
    return (
        min(size, CACHE / 10) / (4 * FAST)
        + max(0.0, min(size, CACHE) - CACHE / 10) / FAST
        + (max(0.0, size - CACHE) / SLOW)
    )


def points(law: Law, sizes: tuple[int, ...] = GRID) -> list[tuple[int, float]]:
    return [(size, size / law(size)) for size in sizes]


@pytest.mark.parametrize("sizes", [GRID, COARSE, GRID[4:9], GRID[6:], GRID[:3], GRID[7:8]])
@pytest.mark.parametrize("law", [keeps_its_size, keeps_at_random, keeps_nothing_beyond, two_levels])
def test_no_pass_is_faster(law: Law, sizes: tuple[int, ...]) -> None:
    for wanted in WANTED:
        if wanted >= sizes[0]:  # what is smaller than all that was measured may be faster
            assert wanted / pass_rate(points(law, sizes), wanted) <= law(wanted) * (1 + 1e-9)


def test_beyond_the_cache_it_is_the_time_itself() -> None:
    for wanted in (150 * MIB, 203 * MIB, 300 * MIB, 500 * MIB):
        assert wanted / pass_rate(points(keeps_its_size), wanted) == pytest.approx(keeps_its_size(wanted))
    # The next smaller size alone, 128 MiB, would allow 2.9 times the rate at twice its bytes less one.
    wanted = 256 * MIB - 1
    alone = dict(points(keeps_its_size))[128 * MIB]
    assert alone > 2.0 * wanted / keeps_its_size(wanted)


def test_beside_the_edge_of_the_cache_it_is_near() -> None:
    for wanted in (100 * MIB, 110 * MIB, 120 * MIB):
        assert wanted / pass_rate(points(keeps_its_size), wanted) > 0.6 * keeps_its_size(wanted)


def test_a_disturbed_size_counts_as_fast_as_any_larger_one() -> None:
    seen = [*points(keeps_its_size), (256 * MIB, 1e9)]
    seen = [(size, rate / 5 if size == 64 * MIB else rate) for size, rate in seen]
    assert falling(seen)[6] == (64 * MIB, dict(points(keeps_its_size))[128 * MIB])
    assert [size for size, _ in falling(seen)] == list(GRID)
    assert pass_rate(seen, 64 * MIB) == pytest.approx(128 * MIB / keeps_its_size(128 * MIB))


def test_a_little_noise_makes_it_looser_and_not_false() -> None:
    for sign in (1, -1):
        seen = [(size, rate * (1 + sign * 0.01 * (-1) ** n)) for n, (size, rate) in enumerate(points(keeps_its_size))]
        for wanted in (150 * MIB, 203 * MIB, 300 * MIB):
            found = wanted / pass_rate(seen, wanted)
            assert 0.7 * keeps_its_size(wanted) < found < 1.05 * keeps_its_size(wanted)
