"""Sums: what one amount does and what many do, and the sample of one that does not move."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rooflens import catalogue as metrics
from rooflens.pipeline.counters import Sum

AMOUNTS = st.floats(allow_nan=True, allow_infinity=True)


def made() -> Sum:
    return Sum(metrics.FLOPS, ("m", "0"), 1.0, value=2.0)


@given(AMOUNTS)
def test_one_amount_is_taken_or_left_out_as_one_of_many_is(amount: float) -> None:
    alone, beside = made(), made()
    alone.grow_by_all(np.array([amount]))
    beside.grow_by_all(np.array([amount, 0.0]))
    assert (alone.value, alone.refused) == (beside.value, beside.refused)
    assert alone.refused == (not (math.isfinite(amount) and amount >= 0))


def test_a_series_that_does_not_move_is_the_same_sample() -> None:
    series = made()
    first = series.sample()
    series.grow(0.0)
    assert series.sample() is first
    series.grow(0.5)
    assert (first.value, series.sample().value) == (2.0, 2.5)
    assert series.sample().labels == first.labels
