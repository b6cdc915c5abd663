"""The history of a recording: figures by hand, relations between histories, and what is not known."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest
from made_cells import PREFILL, made_cells, made_facts, whole_cell

from rooflens.analyzer.history.joined import joined
from rooflens.analyzer.history.overview import Beside, history_of
from rooflens.analyzer.history.records import History
from rooflens.records import RooflensError
from rooflens.trace_records import Cells

ONE = made_facts("0", devices=2, kv_blocks=100)
TWO = made_facts("1", devices=1, kv_blocks=200)


def numbers(data: Any) -> list[float]:
    """Every float in a nested value."""
    if isinstance(data, float):
        return [data]
    if isinstance(data, dict):
        return [each for value in data.values() for each in numbers(value)]
    if isinstance(data, list | tuple):
        return [each for value in data for each in numbers(value)]
    return []


def test_one_engine_by_hand() -> None:
    """Two windows of ten decode steps of 30 ms each, reachable in 20 ms, on two devices."""
    found = history_of(made_cells([whole_cell(0, 0), whole_cell(0, 1)], [ONE]), price_per_device_hour=3.6)
    total, (engine,) = found.totals, found.engines
    assert (total.steps, total.generated_tokens, total.requests_mean, total.context_mean_tokens) == (20, 80, 4, 100)
    assert (total.span_s, total.first_unix_s, total.last_unix_s) == (19.03, 0.0, 19.0)
    assert total.observed_s == pytest.approx(0.6, rel=1e-12)
    assert (total.x_reachable, total.x_floor) == pytest.approx((1.5, 3.0))
    assert (total.mbu, total.mfu) == pytest.approx((1 / 3, 0.1))
    assert (total.kv_used_ratio, total.kv_used_max_ratio) == pytest.approx((0.3, 0.5))
    assert total.waste_basis == "reachable"
    # 10 ms of each of 20 steps on two devices; held: 19.03 s on two devices, at 3.6 an hour 0.001 a second.
    assert engine.wasted_device_s == pytest.approx(0.4, rel=1e-12)
    assert (engine.busy_device_s, engine.held_device_s) == pytest.approx((1.2, 38.06))
    assert (found.cost.money, found.cost.wasted_money) == pytest.approx((0.03806, 0.0004))
    assert found.cost.device_s_per_million_tokens == pytest.approx(38.06e6 / 80)
    first, second = found.time_line
    assert (first.start_unix_s, first.seconds, first.steps_per_s) == (0.0, 10.0, 1.0)
    assert (second.seconds, second.steps_per_s, second.tokens_per_s) == (
        9.0,
        pytest.approx(10 / 9),
        pytest.approx(40 / 9),
    )
    assert (second.step_mean_s, second.step_max_s, second.slowdown) == pytest.approx((0.03, 0.05, 1.5))
    assert [phase.name for phase in found.phases] == ["decode", "not in a step (idle, or between steps)"]
    assert found.phases[1].seconds == pytest.approx(18.43)


def test_waste_is_against_the_expected_floor_where_nothing_is_known_to_be_reachable() -> None:
    cell = whole_cell(0, 0) | dict.fromkeys(("reached_steps", "reached_observed_s", "reachable_s"), math.nan)
    found = history_of(made_cells([cell, whole_cell(1, 0)], [ONE, TWO]))
    by_label = {engine.label: engine for engine in found.engines}
    assert by_label[ONE.label].amounts.waste_basis == "expected"
    assert by_label[ONE.label].wasted_device_s == pytest.approx(0.4)  # 20 ms of ten steps on two devices
    assert by_label[TWO.label].wasted_device_s == pytest.approx(0.1)
    assert (found.basis, found.engines[0].label) == ("mixed", ONE.label)


def summed(histories: list[History], name: str) -> float:
    return float(sum(getattr(each.totals, name) for each in histories))


SUMS = ("steps", "observed_s", "generated_tokens", "query_tokens", "compared_s", "floor_s", "reachable_s", "wasted_s")


def test_two_engines_are_the_sum_of_both() -> None:
    mine = [whole_cell(0, window, steps=10 + window) for window in range(4)]
    other = [whole_cell(0, window, kind=PREFILL, steps=7) for window in range(2, 6)]
    alone = [history_of(made_cells(mine, [ONE])), history_of(made_cells(other, [TWO]))]
    both = history_of(made_cells([*mine, *({**cell, "engine": 1} for cell in other)], [ONE, TWO]))
    for name in SUMS:
        assert getattr(both.totals, name) == pytest.approx(summed(alone, name), rel=1e-12), name
    assert both.cost.held_device_s == sum(each.cost.held_device_s for each in alone)
    assert both.cost.wasted_device_s == pytest.approx(sum(each.cost.wasted_device_s or 0 for each in alone))
    assert [window.steps for window in both.time_line] == [10, 11, 19, 20, 7, 7]
    assert [window.engines for window in both.time_line] == [1, 1, 2, 2, 1, 1]


def test_windows_of_half_the_width_keep_every_total() -> None:
    whole = [whole_cell(0, window, steps=20) for window in range(3)]
    halves = [whole_cell(0, 2 * window + half, first_unix_s=10.0 * window, last_unix_s=10.0 * window + 9)
              for window in range(3) for half in (0, 1)]  # fmt: skip
    wide, narrow = history_of(made_cells(whole, [ONE])), history_of(made_cells(halves, [ONE], width_s=5.0))
    assert asdict(wide.totals) == pytest.approx(asdict(narrow.totals))
    assert sum(each.steps for each in narrow.time_line) == sum(each.steps for each in wide.time_line) == 60


def test_pieces_joined_are_the_cells_of_all() -> None:
    rows = [whole_cell(0, window, steps=5 + window) for window in range(3)]
    piece = made_cells(rows, [ONE], histogram=[(0, 1, 400, 18)])
    other = made_cells(rows, [TWO], histogram=[(0, 1, 410, 18)])
    both = joined([piece, other, piece])
    assert both.engines == (ONE.label, TWO.label)
    assert len(both.columns["engine"]) == 6
    assert both.columns["steps"].tolist() == [10, 12, 14, 5, 6, 7]
    assert both.columns["observed_max_s"].tolist() == [0.05] * 6
    assert both.histogram["steps"].tolist() == [36, 18]
    assert history_of(both).totals.observed_s == pytest.approx(3 * (history_of(piece).totals.observed_s or 0))


def unknown(rows: int = 2) -> Cells:
    """Cells of which only that there were steps is known."""
    known = {"rows": 3.0, "steps": 3.0, "first_unix_s": 1.0, "last_unix_s": 2.0}
    return made_cells([{"engine": 0, "window": number, "kind": 1, **known} for number in range(rows)], [ONE])


@pytest.mark.parametrize("cells", [unknown(), made_cells([whole_cell(0, 3, steps=1)], [ONE])], ids=["unknown", "one"])
def test_what_is_not_known_is_none_and_never_nan(cells: Cells) -> None:
    found = asdict(history_of(cells))
    assert all(math.isfinite(value) for value in numbers(found))
    json.dumps(found, allow_nan=False)


def test_all_unknown_is_said() -> None:
    found = history_of(unknown())
    assert found.totals.steps == 6
    assert (found.totals.observed_s, found.totals.mbu, found.totals.waste_basis, found.basis) == (None,) * 4
    assert (found.worst_windows, found.change_points) == ((), ())
    assert (found.time_line[0].tokens_per_s, found.time_line[0].slowdown) == (None, None)


def test_one_step_has_the_rate_of_its_own_length() -> None:
    cell = whole_cell(0, 3, steps=1) | {"begun_unix_s": 32.97, "first_unix_s": 33.0, "last_unix_s": 33.0}
    found = history_of(made_cells([cell], [ONE]))
    assert found.totals.span_s == pytest.approx(0.03)
    assert (found.time_line[0].seconds, found.time_line[0].steps_per_s) == pytest.approx((0.03, 1 / 0.03))


def test_no_step_at_all_is_one_line() -> None:
    with pytest.raises(RooflensError, match="no step lies in what was asked for"):
        history_of(made_cells([], [ONE]))


def test_the_worst_window_is_named_with_its_term() -> None:
    rows = [whole_cell(0, window) for window in range(30)]
    rows[4] |= {"observed_s": 5.0, "compared_observed_s": 5.0, "reached_observed_s": 5.0, "observed_max_s": 4.7}
    rows[9] |= {"observed_s": 2.0, "compared_observed_s": 2.0, "reached_observed_s": 2.0, "device_s": 0.3,
        "device_observed_s": 2.0}  # fmt: skip
    rows[12] |= {"observed_s": 1.0, "compared_observed_s": 1.0, "reached_observed_s": 1.0}
    first, second, third = history_of(made_cells(rows, [ONE]), most=3).worst_windows
    assert (first.start_unix_s, first.term, first.wasted_device_s) == pytest.approx((40.0, "one step", 9.6))
    assert (second.start_unix_s, second.term) == (90.0, "host")
    assert (third.start_unix_s, third.term, third.slowdown) == pytest.approx((120.0, "memory", 5.0))
    assert (third.usual, third.phase) == pytest.approx((1.5, "decode"))


def test_engine_windows_are_columns_in_the_order_of_the_engines() -> None:
    slow = [whole_cell(1, window, reachable_s=0.0) for window in (2, 5)]
    found = history_of(made_cells([whole_cell(0, 2), *slow], [replace(ONE, devices=1), TWO]))
    assert [engine.label for engine in found.engines] == [TWO.label, ONE.label]
    windows = found.engine_windows
    assert (windows["engine"], windows["window"]) == ([0, 0, 1], [2, 5, 2])
    assert windows["wasted_device_s"] == pytest.approx([0.3, 0.3, 0.1])


def test_energy_and_events_are_passed_on() -> None:
    beside = Beside(lost_steps=7, energy_j=100.0, energy_ratio=1.0)
    found = history_of(made_cells([whole_cell(0, 0)], [ONE]), beside)
    assert (found.lost_steps, found.cost.energy_j_per_million_tokens) == pytest.approx((7, 100e6 / 40))
    assert np.isfinite(found.cost.held_device_s)


@pytest.mark.parametrize(("ratio", "each"), [(None, 600e6 / 80), (1.0, 600e6 / 80), (0.25, None)])
def test_energy_of_some_devices_says_nothing_of_all_tokens(ratio: float | None, each: float | None) -> None:
    found = history_of(made_cells([whole_cell(0, 0), whole_cell(0, 1)], [ONE]), Beside((), (), 0, 600.0, ratio))
    assert found.cost.energy_j == 600.0
    assert found.cost.energy_j_per_million_tokens == (each and pytest.approx(each))
