"""Quantiles from counted bins are those of the times themselves, off by at most one bin."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_cells import bin_of

from rooflens.analyzer.histogram import quantile
from rooflens.trace_records import HISTOGRAM_BASE

PARTS = st.floats(0, 1)
TIMES = st.lists(st.floats(1e-6, 1e4), min_size=1, max_size=200)


def test_a_worked_histogram() -> None:
    """1.02 ** 349 us is 1.0039 ms: three steps there, one at twice the time; the middle of a bin is half a bin up."""
    bins, counts = np.array([384, 349]), np.array([1, 3])
    low, high = (1e-6 * 1.02 ** (number + 0.5) for number in (349, 384))
    assert quantile(bins, counts, 0.0) == quantile(bins, counts, 0.75) == pytest.approx(low)
    assert quantile(bins, counts, 0.76) == quantile(bins, counts, 1.0) == pytest.approx(high)
    assert quantile(np.array([]), np.array([]), 0.5) is None
    assert quantile(bins, np.array([0, 0]), 0.5) is None
    with pytest.raises(ValueError, match="0 to 1"):
        quantile(bins, counts, 1.5)


@pytest.mark.parametrize("part", [0.0, 0.5, 1.0])
def test_one_step_is_every_quantile(part: float) -> None:
    assert quantile(bin_of(np.array([0.025])), np.array([1]), part) == pytest.approx(0.025, rel=0.01)


@given(TIMES, PARTS)
def test_a_quantile_is_off_by_at_most_one_bin(times: list[float], part: float) -> None:
    bins, counts = np.unique(bin_of(np.array(times)), return_counts=True)
    exact = float(np.quantile(times, part, method="inverted_cdf"))
    found = quantile(bins, counts, part)
    assert found is not None
    assert 1 / HISTOGRAM_BASE < found / exact < HISTOGRAM_BASE


@given(TIMES)
def test_order_and_repeated_bins_change_nothing(times: list[float]) -> None:
    bins = bin_of(np.array(times))
    several = quantile(bins, np.ones(len(bins)), 0.9)
    assert several == quantile(*np.unique(bins, return_counts=True), 0.9)
