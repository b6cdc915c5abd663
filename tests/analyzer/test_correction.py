"""Learned corrections: bounded, by regime, ready or not; and the fit of two parameters."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_windows import merged, steps

from rooflens.analyzer.correction import (
    KEPT_WINDOWS,
    READY_WINDOWS,
    Correction,
    Fit,
    Point,
    Regime,
    as_data,
    fit,
    fit_pair,
    from_data,
    regime_of,
    window_times,
)
from rooflens.records import RooflensError

DECODE = regime_of("decode", 32, 1000)


def taught(*ratios: float) -> Correction:
    found = Correction()
    for ratio in ratios:
        found = found.learned({DECODE: (ratio, 1.0)})
    return found


def test_regimes_are_powers_of_two_and_four() -> None:
    assert regime_of("decode", 32, 1024) == Regime("decode", 5, 5)
    assert regime_of("decode", 63.9, 4095) == Regime("decode", 5, 5)
    assert regime_of("decode", 64, 4096) == Regime("decode", 6, 6)
    assert regime_of("prefill", 0.2, 0) == Regime("prefill", 0, 0)
    assert str(regime_of("decode", 40, 1024)) == "decode batch 32-63 context 1024+"


def test_a_correction_is_the_median_and_not_before_it_is_ready() -> None:
    ratios = (1.0, 1.2, 1.3, 1.1, 1.25)
    assert not taught(*ratios).ready(DECODE)
    assert taught(*ratios).factor(DECODE) is None
    ready = taught(*ratios, 9.0)
    assert ready.ready(DECODE)
    assert ready.factor(DECODE) == pytest.approx(1.225)  # of 1, 1.1, 1.2, 1.25, 1.3 and 9, clipped to 2
    # |r / 1.225 - 1|: 0.184, 0.102, 0.020, 0.020, 0.061, 0.633; their median (0.061 + 0.102) / 2.
    assert ready.error_ratio(DECODE) == pytest.approx(0.0816, abs=1e-3)
    assert ready.factor(regime_of("decode", 64, 1000)) is None


def test_one_odd_window_moves_it_no_further_than_its_clip() -> None:
    assert taught(*[1e9] * READY_WINDOWS).factor(DECODE) == 2.0
    assert taught(*[1e-9] * READY_WINDOWS).factor(DECODE) == 0.5
    assert taught(1, 1, 1, 1, 1, 1e9).factor(DECODE) == 1.0


def test_a_change_is_learned_and_old_windows_make_way() -> None:
    found = taught(*[1.0] * 1000)
    assert len(found.ratios[DECODE]) == KEPT_WINDOWS
    for _ in range(KEPT_WINDOWS // 2 + 1):
        found = found.learned({DECODE: (1.5, 1.0)})
    assert found.factor(DECODE) == 1.5


def test_learning_changes_no_value_that_was_handed_in() -> None:
    before = taught(1.0, 1.1)
    after = before.learned({DECODE: (1.3, 1.0)})
    assert before.ratios[DECODE] == (1.0, 1.1)
    assert after.ratios[DECODE] == (1.0, 1.1, 1.3)
    assert before.learned({DECODE: (0.0, 1.0)}) == before == before.learned({DECODE: (1.0, 0.0)})


@given(st.lists(st.floats(1e-6, 1e6), min_size=READY_WINDOWS, max_size=80))
def test_it_is_always_bounded_and_survives_a_file(ratios: list[float]) -> None:
    found = taught(*ratios)
    factor = found.factor(DECODE)
    assert factor is not None
    assert 0.5 <= factor <= 2
    assert from_data(json.loads(json.dumps(as_data(found)))) == found


@pytest.mark.parametrize(
    "data",
    [
        {},
        [{}],
        [{"phase": "decode", "batch": "x", "context": 1, "ratios": []}],
        [{"phase": "decode", "batch": 1, "context": 1, "ratios": [7.0]}],
        [{"phase": "decode", "batch": 1, "context": 1, "ratios": [math.nan]}],
        [{"phase": "decode", "batch": 1, "context": 1, "ratios": 3}],
        ["decode"],
    ],
)
def test_a_damaged_file_is_one_line(data: object) -> None:
    with pytest.raises(RooflensError, match="remove the file to learn anew") as caught:
        from_data(data)
    assert "\n" not in str(caught.value)


def test_the_times_of_a_window_by_regime() -> None:
    table = steps(6, [1, 1, 32, 32, 0, 4], [1000, 1000, 1000, 5000, 0, 10], [0, 0, 0, 0, 100, 0])
    observed_s, reachable_s = np.array([1.0, 2, 4, 8, 16, np.nan]), np.full(6, 1.0)
    assert window_times(table, observed_s, reachable_s) == {
        Regime("decode", 0, 4): (3.0, 2.0),  # 4^4 = 256 up to 1023 tokens
        Regime("decode", 5, 4): (4.0, 1.0),
        Regime("decode", 5, 6): (8.0, 1.0),
        Regime("prefill", 0, 0): (16.0, 1.0),
    }


def test_steps_of_which_nothing_is_reachable_do_not_count() -> None:
    table = steps(4, [32, 32, 32, 32], [1000, 1000, 1000, 1000])
    observed_s, reachable_s = np.array([1.0, 2, 4, 8]), np.array([1.0, 0.0, np.nan, 2.0])
    assert window_times(table, observed_s, reachable_s) == {Regime("decode", 5, 4): (9.0, 3.0)}


def test_a_row_of_several_steps_counts_by_its_means() -> None:
    table = merged(steps(100, 32, 1000), 10)
    found = window_times(table, np.full(10, 2.0), np.full(10, 1.0))
    assert found == {Regime("decode", 5, 4): (20.0, 10.0)}


POINTS = [Point(1.1 * r + 40e-6 * layers, r, layers) for r in (2e-3, 5e-3, 9e-3, 20e-3) for layers in (32, 64, 80)]


def test_a_fit_finds_what_points_were_made_of() -> None:
    found = fit(POINTS)
    assert found.scale == pytest.approx(1.1, rel=1e-4)
    assert found.per_layer_s == pytest.approx(40e-6, rel=1e-3)
    assert found.seconds(10e-3, 50) == pytest.approx(13e-3, rel=1e-3)  # 1.1 x 10 ms + 50 x 40 us


def test_three_points_are_enough_for_both() -> None:
    found = fit([POINTS[0], POINTS[4], POINTS[11]])
    assert (found.scale, found.per_layer_s) == (pytest.approx(1.1, rel=1e-3), pytest.approx(40e-6, rel=1e-2))


def test_a_few_wild_points_hardly_move_it() -> None:
    wild = [*POINTS, Point(0.3, 2e-3, 32), Point(1e-4, 20e-3, 80)]
    assert fit(wild).seconds(5e-3, 64) == pytest.approx(fit(POINTS).seconds(5e-3, 64), rel=0.06)


def test_points_faster_than_reachable_have_no_layers_that_give_time_back() -> None:
    found = fit([Point(r - 10e-6 * layers, r, layers) for r in (2e-3, 5e-3, 9e-3) for layers in (32, 64)])
    assert found.per_layer_s == 0
    assert 0.7 < found.scale < 1


def test_few_points_give_a_scale_alone() -> None:
    assert fit([Point(3e-3, 2e-3, 32)]) == Fit(pytest.approx(1.5), 0.0)
    assert fit([Point(2e-3, 2e-3, 32), Point(8e-3, 2e-3, 80)]) == Fit(pytest.approx(2.0), 0.0)  # sqrt(1 x 4)


@pytest.mark.parametrize(
    "points", [[], [Point(0.0, 1.0, 1)], [Point(math.inf, 1.0, 1)], [Point(1.0, math.nan, 1)], [Point(1.0, 1.0, -3)]]
)
def test_what_cannot_be_fitted_is_one_line(points: list[Point]) -> None:
    with pytest.raises(RooflensError, match=r"^(no points|a point) to fit"):
        fit(points)


@settings(max_examples=60, deadline=None)
@given(
    scale=st.floats(0.5, 3),
    layer_us=st.floats(0, 200),
    noise=st.lists(st.floats(-0.05, 0.05), min_size=12, max_size=12),
    factor=st.floats(0.01, 100),
)
def test_fits_stay_near_their_points_and_follow_the_unit(
    scale: float, layer_us: float, noise: list[float], factor: float
) -> None:
    made = [
        Point((scale * p.reachable_s + layer_us * 1e-6 * p.layers) * math.exp(each), p.reachable_s, p.layers)
        for p, each in zip(POINTS, noise, strict=True)
    ]
    found = fit(made)
    assert found.scale >= 0
    assert found.per_layer_s >= 0
    missed = sorted(abs(math.log(found.seconds(p.reachable_s, p.layers) / p.observed_s)) for p in made)
    assert missed[len(missed) // 2] < 0.06
    other = fit([Point(factor * p.observed_s, factor * p.reachable_s, p.layers) for p in made])
    assert other.seconds(factor * 5e-3, 64) == pytest.approx(factor * found.seconds(5e-3, 64), rel=1e-3)


def test_a_pair_is_scaled_by_its_models_and_half_way_with_as_many_as_the_prior() -> None:
    # Models whose steps take 1.2 and 1.5 times what is reachable: the mean logarithm is that of sqrt(1.2 x 1.5). With
    # two of no correction beside them it counts for 2 of 4: (1.2 x 1.5) ^ (1 / 4) = 1.158.
    found = {"a": [Point(1.2, 1.0, 32), Point(2.4, 2.0, 32)], "b": [Point(3.0, 2.0, 80)]}
    assert fit_pair(found, 0) == Fit(pytest.approx(math.sqrt(1.8)), 0.0)
    assert fit_pair(found, 2) == Fit(pytest.approx(1.8 ** (1 / 4)), 0.0)
    assert fit_pair(found).scale == pytest.approx(1.8 ** (1 / 5))  # three by default


def test_a_model_with_many_points_weighs_as_much_as_one_with_one() -> None:
    few = {"a": [Point(2.0, 1.0, 1)], "b": [Point(0.5, 1.0, 1)]}
    many = {"a": [Point(2.0, 1.0, 1)] * 50 + [Point(80.0, 1.0, 1)], "b": [Point(0.5, 1.0, 1)]}
    assert fit_pair(few, 1) == fit_pair(many, 1) == Fit(pytest.approx(1.0), 0.0)


def test_a_pair_of_which_nothing_was_measured_is_not_corrected() -> None:
    assert fit_pair({}) == Fit(1.0, 0.0)
    with pytest.raises(RooflensError, match="no points to fit"):
        fit_pair({"a": []})
    with pytest.raises(RooflensError, match="positive"):
        fit_pair({"a": [Point(0.0, 1.0, 1)]})


@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=6), st.floats(0.1, 20))
def test_a_pair_is_never_scaled_further_than_its_own_models(ratios: list[float], prior: float) -> None:
    scale = fit_pair({str(n): [Point(ratio, 1.0, 1)] for n, ratio in enumerate(ratios)}, prior).scale
    assert min(1.0, *ratios) * (1 - 1e-9) <= scale <= max(1.0, *ratios) * (1 + 1e-9)
