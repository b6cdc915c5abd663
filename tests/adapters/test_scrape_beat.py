"""The moments at which pages are read: the same for all of a period, never quite regular."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rooflens.adapters.scrape.beat import JITTER_RATIO, next_beat_s


@given(st.floats(0.05, 3600.0), st.floats(0.0, 1e7))
def test_a_beat_is_later_and_within_a_period_and_its_jitter(period_s: float, after_s: float) -> None:
    at_s = next_beat_s(period_s, after_s)
    assert after_s < at_s <= after_s + period_s * (1 + JITTER_RATIO) + 1e-6 * after_s


def test_pages_that_ask_at_different_moments_meet() -> None:
    assert len({next_beat_s(5.0, 1000.0 + part) for part in (0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5)}) <= 2
    assert next_beat_s(5.0, 1234.5) == next_beat_s(5.0, 1234.5)


def test_no_two_pauses_are_the_same() -> None:
    beats = [1000.0]
    for _ in range(50):
        beats.append(next_beat_s(1.0, beats[-1]))
    pauses = [after - before for before, after in pairwise(beats[1:])]
    assert len({round(pause, 9) for pause in pauses}) == len(pauses)
    assert sum(pauses) / len(pauses) == pytest.approx(1.0, abs=0.01)
