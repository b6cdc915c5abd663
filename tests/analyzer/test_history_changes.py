"""Change points: none in recordings of engines that did not change, found where a step was put in, few false alarms."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from made_cells import made_cells, made_facts, whole_cell
from numpy.typing import NDArray
from recorded_rings import HARDWARE, unpacked

from rooflens.analyzer.hardware import find_hardware
from rooflens.analyzer.history.change_points import change_points
from rooflens.analyzer.history.overview import history_of
from rooflens.analyzer.history.records import ChangePoint
from rooflens.analyzer.history.steps_in_series import levels
from rooflens.analyzer.history.sums import LARGEST, SMALLEST, sums_by_key, table_of
from rooflens.collector.trace.cells import cells_of_table, chosen_width
from rooflens.collector.trace.schema import to_arrow
from rooflens.pipeline import lay_beside, read_ring
from rooflens.trace_records import CELL_KEYS, Cells, TraceFilter, TraceRows

FACTS = made_facts("0")
FINE_S = 0.1  # the width of the windows that wider ones are made of
SPENT = ("observed_s", "compared_observed_s", "reached_observed_s")
Columns = Mapping[str, NDArray[Any]]


@cache
def recorded(name: str) -> Columns:
    """The steps of a recorded ring with their bounds, by windows of FINE_S that begin at 0."""
    with TemporaryDirectory() as folder:
        recording = read_ring(unpacked(name, Path(folder)))
    _, analysis, problem = lay_beside(recording, find_hardware(str(HARDWARE)))
    assert problem is None
    table = to_arrow(TraceRows(FACTS, recording.steps, analysis))
    columns = cells_of_table(table, FACTS, TraceFilter(), FINE_S).columns
    return {**columns, "window": columns["window"] - columns["window"].min()}


@cache
def long_run(*names: str) -> Columns:
    """Recordings one after another, as one engine that does the same over and over."""
    parts, start = [], 0
    for name in names:
        part = recorded(name)
        parts.append({**part, "window": part["window"] + start})
        start += int(part["window"].max()) + 2
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def slower(columns: Columns, factor: float) -> tuple[Columns, float]:
    """The steps of the second half ``factor`` times as long; and when that half begins."""
    middle = int(columns["window"].max()) // 20 * 10  # a whole second
    by = np.where(columns["window"] >= middle, factor, 1.0)
    return {**columns, **{name: columns[name] * by for name in SPENT}}, middle * FINE_S


def changes(columns: Columns, width_s: float | None = None) -> tuple[ChangePoint, ...]:
    """Those that are found in windows of this width, by default the one that a report chooses."""
    width_s = width_s or chosen_width(float(columns["window"].max() + 1) * FINE_S, 1)
    wider = {**columns, "window": columns["window"] // round(width_s / FINE_S)}
    keys = tuple(name for name, _ in CELL_KEYS)
    summed = sums_by_key(wider, keys, SMALLEST, LARGEST)
    histogram = {name: np.empty(0, np.int64) for name in ("engine", "kind", "bin", "steps")}
    return change_points(table_of(Cells(width_s, ("0",), (FACTS,), summed, histogram)), width_s, ("0",))


@pytest.mark.parametrize("name", ["vllm-a", "vllm-b", "embedded", "embedded-slow"])
@pytest.mark.parametrize("width_s", [None, 0.2, 0.5, 1.0])
def test_a_real_engine_that_did_not_change(name: str, width_s: float | None) -> None:
    assert changes(recorded(name), width_s) == ()


@pytest.mark.parametrize("width_s", [0.2, 0.5, 1.0])
def test_the_same_engine_started_again_is_no_change(width_s: float) -> None:
    assert changes(long_run("vllm-a", "vllm-b", "vllm-a", "vllm-b"), width_s) == ()


@pytest.mark.parametrize("factor", [1.08, 1.1, 1 / 1.1])
@pytest.mark.parametrize(("names", "width_s"), [(("vllm-a", "vllm-b"), 1.0), (("embedded",) * 2, 0.5)])
def test_a_step_put_into_real_steps_is_found_within_two_windows(
    names: tuple[str, str], width_s: float, factor: float
) -> None:
    columns, middle = slower(long_run(*names * 3), factor)
    (found,) = changes(columns, width_s)
    assert found.kind == "step"
    assert abs(found.at_unix_s - middle) <= 2 * width_s + 1e-6
    assert found.from_unix_s <= found.at_unix_s <= found.to_unix_s
    assert found.factor_low < found.factor < found.factor_high
    assert (found.factor > 1) == (factor > 1)
    assert abs(math.log(found.factor / factor)) < 0.035
    assert found.confidence > 0.95
    assert (found.cost_device_s or 0) > 0 if factor > 1 else (found.cost_device_s or 0) < 0


def by_hand(ratio: NDArray[np.float64], batch: NDArray[np.float64]) -> tuple[ChangePoint, ...]:
    """Windows of ten steps in one regime, whose time over what is reachable is ``ratio`` at this batch."""
    rows = []
    for window, (each, requests) in enumerate(zip(ratio.tolist(), batch.tolist(), strict=True)):
        spent = dict.fromkeys(SPENT, 0.2 * each)
        rows.append(whole_cell(0, window, batch_log2=3, requests=10 * requests, query_tokens=10 * requests,
                               context_tokens=1000 * requests, **spent))  # fmt: skip
    return history_of(made_cells(rows, [FACTS])).change_points


def test_traffic_that_changes_inside_a_regime_is_no_change_of_the_engine() -> None:
    """Half a millisecond of host a sequence, and 8 sequences become 15: no engine changed."""
    noise = np.exp(np.random.default_rng(7).normal(0, 0.004, 80))
    batch = np.repeat([8.0, 15.0], 40)
    (found,) = by_hand((1.3 + 0.025 * batch) * noise, batch)
    assert (found.kind, found.cost_device_s, found.at_unix_s) == ("mix", None, 400.0)
    assert "the mix moved (batch +87%)" in found.text
    assert "that the engine changed is not shown" in found.text


def test_a_change_of_the_engine_is_found_beside_moving_traffic_and_the_traffic_is_taken_off() -> None:
    rng = np.random.default_rng(8)
    batch = rng.uniform(8, 12, 120) + np.repeat([0.0, 3.0], 60)  # by itself 6 % more time beside the bound
    ratio = (1.3 + 0.025 * batch) * np.exp(rng.normal(0, 0.004, 120))
    assert [found.kind for found in by_hand(ratio, batch)] in ([], ["mix"])
    (found,) = by_hand(ratio * np.repeat([1.0, 1.1], 60), batch)
    assert found.kind == "step"
    assert found.factor == pytest.approx(1.1, abs=0.012)
    assert found.factor_low < 1.1 < found.factor_high


def test_a_change_is_found_that_moving_traffic_hides() -> None:
    """The mix moves the values five times as much as noise does: what it explains is taken off before the search."""
    rng = np.random.default_rng(11)
    found = 0
    for _ in range(10):
        mix = np.column_stack([rng.normal(0, 0.15, 120), rng.normal(0, 0.3, 120)])
        values = rng.normal(0, 0.02, 120) + mix @ [0.4, -0.3]
        assert levels(values, 0.05, 0.02, mix=mix) == []
        values[60:] += 0.1
        found += [abs(level.at - 60) <= 2 for level in levels(values, 0.05, 0.02, mix=mix)] == [True]
    assert found >= 9


def test_a_slow_drift_is_told_as_one() -> None:
    noise = np.random.default_rng(9).normal(0, 0.01, 200)
    (found,) = by_hand(1.5 * np.exp(noise + np.linspace(0, 0.05, 200)), np.full(200, 8.0))
    assert found.kind == "drift"
    assert found.factor == pytest.approx(1.051, abs=0.01)
    assert (found.from_unix_s, found.to_unix_s) == (0.0, 2000.0)
    assert found.text.startswith("steps drifted from 00:00:00 to 00:33:20 and take ")
    assert found.cost_device_s == pytest.approx(200 * 0.3 * 0.025, rel=0.2)


@pytest.mark.parametrize("shape", ["line", "warm-up", "wave"])
def test_what_moves_slowly_is_no_step(shape: str) -> None:
    """Of ten series each at most one; a scan that looks for steps alone names one in nearly all of them."""
    rng, at = np.random.default_rng(10), np.arange(400)
    slow = {"line": at / 4000, "warm-up": -0.1 * np.exp(-at / 80), "wave": 0.1 * np.sin(at / 32)}[shape]
    assert sum(bool(levels(rng.normal(0, 0.03, 400) + slow, 0.05, 0.02)) for _ in range(10)) <= 1


def test_a_step_by_hand_costs_what_it_costs() -> None:
    """Thirty windows of ten steps of 30 ms, then thirty of 33 ms: 10 % more, 0.03 s a window."""
    rng = np.random.default_rng(3)
    rows = []
    for window in range(60):
        observed = 0.3 * (1.1 if window >= 30 else 1.0) * (1 + rng.normal(0, 0.004))
        rows.append(
            whole_cell(0, window, observed_s=observed, compared_observed_s=observed, reached_observed_s=observed)
        )
    (found,) = history_of(made_cells(rows, [FACTS])).change_points
    assert found.at_unix_s == 300.0
    assert found.regimes == ("decode batch 4-7 context 64+",)
    assert found.factor == pytest.approx(1.1, abs=0.005)
    assert found.cost_device_s == pytest.approx(0.9, abs=0.06)


def test_a_ramp_and_a_single_odd_window_are_no_change() -> None:
    rng = np.random.default_rng(4)
    noise = rng.normal(0, 0.01, 120)
    spike = noise.copy()
    spike[60] += 1.0
    assert levels(noise + np.linspace(0, 0.2, 120), 0.05, 0.02) == []
    assert levels(spike, 0.05, 0.02) == []


@pytest.mark.parametrize("alike", [0.0, 0.5])
@pytest.mark.parametrize("count", [20, 60, 150])
def test_false_alarms_are_as_rare_as_said(alike: float, count: int) -> None:
    """Of noise with that correlation of neighbours at most one series in twenty, and its share of chance."""
    rng = np.random.default_rng(5)
    alarms = 0
    for _ in range(60):
        values = np.zeros(count + 20)
        for at, each in enumerate(rng.normal(0, 0.03, count + 20)):
            values[at] = alike * values[at - 1] + each
        alarms += bool(levels(values[20:], 0.05, 0.02))
    assert alarms <= 6


def test_two_steps_are_both_found() -> None:
    values = np.random.default_rng(6).normal(0, 0.02, 150)
    values[50:100] += 0.1
    up, down = levels(values, 0.05, 0.02)
    assert (abs(up.at - 50) <= 1, abs(down.at - 100) <= 1) == (True, True)
    assert (up.move > 0.08, down.move < -0.08) == (True, True)


@pytest.mark.parametrize("count", [0, 1, 15])
def test_too_few_windows_tell_nothing(count: int) -> None:
    assert levels(np.repeat([0.0, 1.0], [count // 2, count - count // 2]), 0.05, 0.02) == []
