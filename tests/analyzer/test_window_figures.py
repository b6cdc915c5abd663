"""A window in figures: the same from single steps and from rows of several, and unknown where it is not known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from made_windows import INFO, ROOFLINE, info_with, merged, steps, window

from rooflens.analyzer.window_figures import weighted_median, window_figures
from rooflens.records import StepKind, StepTable


def test_figures_of_single_steps() -> None:
    table = steps(100, decode=10, context=159, prefill=np.where(np.arange(100) % 10 == 0, 64, 0), gap_ratio=0.1)
    found = window_figures(window(table))
    decode, mixed = found.kinds["decode"], found.kinds["mixed"]
    assert (found.steps, decode.steps, mixed.steps, list(found.kinds)) == (100, 90, 10, ["decode", "mixed"])
    assert found.busy_s == pytest.approx(table["observed_s"].sum())
    assert found.between_s == pytest.approx(0.1 * table["observed_s"][1:].sum())
    assert found.span_s == pytest.approx(found.busy_s + found.between_s)
    assert found.idle_s == 0.0
    assert (found.generated_tokens, found.prefill_tokens, found.preempted) == (1010, 640, 0)
    assert (found.batch_mean, found.batch_max, decode.batch_mean) == (10.1, 11, 10.0)
    assert found.context_tokens_mean == pytest.approx(159 * 1000 / 1010)
    assert decode.context_tokens_mean == 159.0
    assert found.kv_used_max == 104 / 20_000
    assert decode.step_p50_s == pytest.approx(float(np.median(table["observed_s"][table["kind"] == StepKind.DECODE])))
    assert mixed.step_max_s == pytest.approx(table["observed_s"].max())
    assert found.compared_s is not None
    assert found.floor_s is not None
    assert found.compared_s / found.floor_s == pytest.approx(1.4)
    assert sum(found.bound_s.values()) == pytest.approx(found.floor_s)
    assert found.mbu is not None
    assert 0.5 < found.mbu <= 1 / 1.4  # what they read bounds all of these steps


def test_rows_of_several_steps_give_the_same_sums_and_means() -> None:
    table = steps(200, decode=np.arange(200) % 7 + 1, waiting=np.arange(200) // 10 % 2, gap_ratio=0.0)
    single, many = window_figures(window(table)), window_figures(window(merged(table, 10)))
    for name in ("steps", "generated_tokens", "batch_mean", "running_mean", "waiting_mean", "waiting_share",
                 "context_tokens_mean", "kv_used_mean", "busy_s", "floor_s", "weight_bytes", "kv_bytes", "flops",
                 "mbu", "mfu"):  # fmt: skip
        assert getattr(many, name) == pytest.approx(getattr(single, name)), name
    decode = many.kinds["decode"]
    assert (decode.steps, decode.step_p99_s, decode.step_max_s) == (200, None, None)
    assert decode.step_p50_s == pytest.approx(single.busy_s / 200, rel=0.05)
    assert (many.between_s, many.idle_s) == (None, 0.0), "a page does not tell what lies between steps"
    assert many.not_recorded_s == pytest.approx(0.0, abs=1e-9)


def test_the_rest_of_an_interval_is_idle_only_where_nothing_ran_at_its_ends() -> None:
    table = merged(steps(200, gap_ratio=0.0), 50)
    rows = np.arange(4)
    columns = table.columns | {
        "running": np.where(rows == 2, 0, 32),
        "output_monotonic_s": table["output_monotonic_s"] + 3.0 + 5.0 * rows,  # three seconds longer than their steps
        "submit_monotonic_s": table["submit_monotonic_s"] + 5.0 * rows,  # and two seconds apart
    }
    whole = window(StepTable(columns))
    found = window_figures(replace(whole, rested_s=5.0))
    assert found.between_s is None
    assert found.idle_s == pytest.approx(3.0 + 5.0)
    assert found.not_recorded_s == pytest.approx(9.0 + 1.0)
    assert found.busy_s + found.idle_s + found.not_recorded_s == pytest.approx(found.span_s)
    assert window_figures(replace(whole, rested_s=99.0)).idle_s == pytest.approx(3.0 + 6.0), "no more than there was"


def test_time_without_requests_is_idle_and_time_with_them_is_not() -> None:
    table = steps(50, running=np.where(np.arange(50) == 20, 0, 32), gap_ratio=np.where(np.arange(50) == 21, 100.0, 0.0))
    table.columns["submit_monotonic_s"][21:] += 3.0
    table.columns["output_monotonic_s"][21:] += 3.0
    found = window_figures(window(table))
    assert found.idle_s is not None
    assert found.idle_s >= 3.0
    assert found.between_s == pytest.approx(0.0, abs=1e-9)


def test_what_is_not_known_is_none() -> None:
    table = steps(30)
    bare = StepTable({n: table[n] for n in ("kind", "requests", "query_tokens", "observed_s")})
    found = window_figures(replace(window(table), steps=bare, analysis=None, info=None))
    for name in ("generated_tokens", "kv_used_mean", "waiting_share", "running_max", "floor_s", "mbu", "mfu",
                 "context_tokens_mean", "idle_s", "oldest_wait_max_s"):  # fmt: skip
        assert getattr(found, name) is None, name
    assert found.bound_s == {}
    assert window_figures(window(table, replace(INFO, kv_blocks=None))).kv_used_max is None
    assert window_figures(window(table, info_with(kv_blocks=40_000))).kv_used_max == pytest.approx(32 * 63 / 40_000)


def test_the_wait_of_a_queue_is_unknown_where_only_that_of_an_empty_one_is_known() -> None:
    table = steps(30, waiting=2, oldest_wait_s=0.5)
    assert window_figures(window(table)).oldest_wait_max_s == 0.5
    unknown = StepTable(table.columns, {"oldest_wait_s": np.zeros(30, dtype=bool)})
    assert window_figures(window(unknown)).oldest_wait_max_s is None


def test_a_window_without_a_step_has_figures() -> None:
    table = steps(30)
    for empty in (table.take(np.zeros(30, dtype=bool)), StepTable({})):
        found = window_figures(replace(window(table), steps=empty, analysis=None))
        assert (found.steps, found.busy_s, found.batch_mean, dict(found.kinds)) == (0, 0.0, None, {})


def test_steps_around_a_loss_have_no_time_of_their_own() -> None:
    table = steps(30)
    known = np.ones(30, dtype=bool)
    known[7] = False
    found = window_figures(window(StepTable(table.columns, {"observed_s": known})))
    assert found.busy_s == pytest.approx(table["observed_s"].sum() - table["observed_s"][7])
    assert found.kinds["decode"].steps == 30


def test_the_median_goes_by_weight() -> None:
    assert weighted_median(np.array([1.0, 2.0, 9.0]), np.ones(3)) == 2.0
    assert weighted_median(np.array([9.0, 1.0, 2.0]), np.array([90.0, 5.0, 5.0])) == 9.0
    assert weighted_median(np.array([]), np.array([])) is None


def test_expected_and_reachable_stand_beside_the_floor() -> None:
    table = steps(100, decode=10, context=159, prefill=np.where(np.arange(100) % 10 == 0, 64, 0))
    both = window(table)
    analysis = ROOFLINE.analyse_all(table)
    assert analysis.reachable_s is not None
    found = window_figures(replace(both, analysis=replace(analysis, compared=np.arange(100) >= 20)))
    for name in ("floor_s", "expected_s", "reachable_s", "compared_s"):
        kinds = [getattr(kind, name) for kind in found.kinds.values()]
        assert sum(kinds) == pytest.approx(getattr(found, name)), name
    assert found.expected_s == found.floor_s, "there are no experts"
    assert found.reachable_s == pytest.approx(analysis.reachable_s[20:].sum())
    assert [kind.compared_steps for kind in found.kinds.values()] == [72, 8]
    many = window_figures(replace(window(merged(table, 10)), analysis=ROOFLINE.analyse_all(merged(table, 10))))
    assert many.kinds["mixed"].compared_steps == 100
    bare = window_figures(both)
    assert (bare.reachable_s, bare.kinds["decode"].reachable_s) == (None, None)
    assert bare.expected_s == bare.floor_s
    unbound = window_figures(replace(both, analysis=None))
    assert (unbound.expected_s, unbound.kinds["decode"].compared_steps) == (None, None)
