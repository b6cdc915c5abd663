"""What windows teach about regimes: bounded, ready or not, and never part of what rules compare."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_windows import H100, INFO, ROOFLINE, steps, window

from rooflens.analyzer.correction import READY_WINDOWS, Correction, Regime
from rooflens.analyzer.regimes import Times, learned_from, regime_figures, times_of, with_usual
from rooflens.analyzer.roofline import Roofline
from rooflens.analyzer.window_figures import window_figures
from rooflens.live_records import WindowFigures
from rooflens.records import StepTable

DECODE = Regime("decode", 5, 4)  # 32 to 63 sequences of 256 to 1023 tokens


def learned(ratio: float, windows: int, regime: Regime = DECODE) -> Correction:
    correction = Correction()
    for _ in range(windows):
        correction = correction.learned({regime: (ratio, 1.0)})
    return correction


def judged(table: StepTable) -> tuple[WindowFigures, Times]:
    analysis = ROOFLINE.analyse_all(table)
    return window_figures(replace(window(table), analysis=analysis)), times_of(table, analysis)


def test_times_are_those_of_the_compared_steps() -> None:
    table = steps(100, 32, 1000, np.where(np.arange(100) % 10 == 0, 64, 0))
    analysis = ROOFLINE.analyse_all(table)
    assert analysis.reachable_s is not None
    decode = table["prefill_tokens"] == 0
    found = times_of(table, analysis)
    assert found[DECODE] == pytest.approx((table["observed_s"][decode].sum(), analysis.reachable_s[decode].sum()))
    assert [regime.phase for regime in found] == ["decode", "mixed"]
    half = replace(analysis, compared=np.arange(100) >= 50)
    assert sum(seconds[0] for seconds in times_of(table, half).values()) == pytest.approx(
        table["observed_s"][50:].sum()
    )


def test_what_is_wrong_or_not_known_teaches_nothing() -> None:
    table = steps(100)
    assert times_of(table, None) == {}
    assert times_of(table, ROOFLINE.analyse(table)) == {}, "what is reachable was not asked for"
    measured = Roofline.of(INFO, replace(H100, origin="measured"))
    assert times_of(table, measured.analyse_all(table)) == {}
    faster = steps(100, factor=0.99)
    assert times_of(faster, ROOFLINE.analyse_all(faster)) == {}
    assert learned_from(table, measured.analyse_all(table)) == Correction()
    bare = StepTable({name: column for name, column in table.columns.items() if name != "kind"})
    assert times_of(bare, ROOFLINE.analyse_all(bare)) == {}


def test_a_recording_teaches_as_many_windows_as_it_holds() -> None:
    table = steps(349, 32, 1000, factor=1.4)
    (found,) = regime_figures(learned_from(table, ROOFLINE.analyse_all(table)))
    assert (found.windows, found.ready) == (6, True), "the last 49 steps are no window"
    assert (found.phase, found.batch_from, found.batch_to) == ("decode", 32, 63)
    assert (found.context_from, found.context_to) == (256, 1023)
    reachable_s = ROOFLINE.analyse_all(table).reachable_s
    assert reachable_s is not None
    assert found.ratio == pytest.approx(table["observed_s"].sum() / reachable_s.sum())
    assert found.error_ratio == pytest.approx(0.0, abs=1e-9)
    (short,) = regime_figures(learned_from(steps(299), ROOFLINE.analyse_all(steps(299))))
    assert (short.windows, short.ready, short.ratio, short.error_ratio) == (5, False, None, None)


def test_the_first_regime_begins_without_a_context() -> None:
    (found,) = regime_figures(learned(1.0, 1, Regime("prefill", 0, 0)))
    assert (found.batch_from, found.batch_to, found.context_from, found.context_to) == (1, 1, 0, 3)


def test_what_is_usual_is_reachable_times_the_ratio_of_the_regime() -> None:
    figures, times = judged(steps(100, 32, 1000))
    kind = figures.kinds["decode"]
    assert kind.reachable_s is not None
    usual = with_usual(figures, times, learned(1.25, READY_WINDOWS))
    assert usual.kinds["decode"].usual_s == pytest.approx(1.25 * kind.reachable_s)
    assert replace(usual.kinds["decode"], usual_s=None) == kind, "nothing else is corrected"
    assert usual.reachable_s == figures.reachable_s
    for unready in (learned(1.25, READY_WINDOWS - 1), learned(1.25, 60, Regime("decode", 4, 4)), Correction()):
        assert with_usual(figures, times, unready).kinds["decode"].usual_s is None


def test_a_kind_with_steps_of_no_known_regime_has_nothing_usual() -> None:
    table = steps(100, 32, 1000)
    figures, _ = judged(table)
    half = StepTable(table.columns, {"requests": np.arange(100) < 50})
    times = times_of(half, ROOFLINE.analyse_all(table))
    assert with_usual(figures, times, learned(1.25, READY_WINDOWS)).kinds["decode"].usual_s is None


@settings(max_examples=30, deadline=None)
@given(factor=st.floats(1.0, 50.0), batch=st.integers(1, 300), context=st.integers(0, 20_000))
def test_what_is_usual_is_at_most_twice_and_at_least_half_of_what_is_reachable(
    factor: float, batch: int, context: int
) -> None:
    table = steps(300, batch, context, factor=factor)
    figures, times = judged(table)
    usual = with_usual(figures, times, learned_from(table, ROOFLINE.analyse_all(table))).kinds["decode"]
    assert usual.usual_s is not None
    assert usual.reachable_s is not None
    assert 0.5 * usual.reachable_s <= usual.usual_s * (1 + 1e-9)
    assert usual.usual_s <= 2 * usual.reachable_s * (1 + 1e-9)
