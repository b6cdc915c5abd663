"""The roof for a given number of bytes: what is disturbed does not count, and a real product stays below it."""

from __future__ import annotations

import itertools
import random
from time import perf_counter

import numpy as np
import pytest

from rooflens.collector.step_roof import LEAST_BYTES, measure_step_roof

MIB = 1 << 20


class Clock:
    """A clock on which everything takes a millisecond, and now and then much longer, as beside a neighbour."""

    def __init__(self, disturbed: float) -> None:
        self.now_s, self._disturbed, self._random = 0.0, disturbed, random.Random(1)

    def __call__(self) -> float:
        self.now_s += 0.05 if self._random.random() < self._disturbed else 0.001
        return self.now_s


@pytest.mark.parametrize("disturbed", [0.0, 0.3])
def test_a_piece_counts_at_its_fastest_pass(disturbed: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rooflens.collector.step_roof.PIECE_BYTES", 1 * MIB)
    monkeypatch.setattr("rooflens.collector.step_roof.GEMM_SIZES", (32, 64))
    spec = measure_step_roof(4 * MIB, 10.0, Clock(disturbed))
    assert spec.memory_bandwidth_bytes_per_s == pytest.approx(MIB / 0.001)
    assert spec.peak_flops_per_s["fp32"] == pytest.approx(2 * 64**3 / 0.001)


def test_what_it_says_of_itself() -> None:
    spec = measure_step_roof(3 * MIB + 5, 0.2)
    assert (spec.id, spec.origin, spec.cache_bytes) == ("this-cpu", "measured", None)
    assert [size for size, _ in spec.read_curve] == [3 * MIB]
    assert "what caches keep from pass to pass counts as read" in spec.flags[0]
    assert measure_step_roof(1, 0.05).read_curve[0][0] == LEAST_BYTES


def test_a_product_that_reads_as_much_stays_below_the_roof() -> None:
    # The same bytes, over and over, by another kernel at the same time of day; once in a few tries, since others may
    # have been there while the roof was measured and not after.
    assert any(_fastest_in_roofs() < 1.2 for _attempt in range(5))


def _fastest_in_roofs() -> float:
    matrix, vector = np.ones((2048, 1024), dtype=np.float32), np.ones(1024, dtype=np.float32)
    spec = measure_step_roof(matrix.nbytes, 0.4)
    times = []
    for _ in itertools.repeat(None, 20):
        started_s = perf_counter()
        matrix @ vector
        times.append(perf_counter() - started_s)
    return matrix.nbytes / min(times) / spec.memory_bandwidth_bytes_per_s
