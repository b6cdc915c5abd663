"""Change points: none in recordings of engines that did not change, found where a step was put in, few false alarms."""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pytest
from made_cells import made_cells, made_facts, whole_cell
from recorded_rings import HARDWARE, unpacked

from rooflens.analyzer.hardware import find_hardware
from rooflens.analyzer.history.overview import history_of
from rooflens.analyzer.history.records import ChangePoint
from rooflens.analyzer.history.steps_in_series import levels
from rooflens.collector.trace.cells import cells_of_table
from rooflens.collector.trace.schema import to_arrow
from rooflens.pipeline import lay_beside, read_ring
from rooflens.trace_records import TraceFilter, TraceRows

FACTS = made_facts("0")


@cache
def recorded(name: str) -> pa.Table:
    """The steps of a recorded ring with their bounds."""
    with TemporaryDirectory() as folder:
        recording = read_ring(unpacked(name, Path(folder)))
    _, analysis, problem = lay_beside(recording, find_hardware(str(HARDWARE)))
    assert problem is None
    return to_arrow(TraceRows(FACTS, recording.steps, analysis))


def shifted(table: pa.Table, start_unix_s: float, first: int) -> pa.Table:
    """The same steps at another time, numbered from ``first`` on."""
    times = table.column("unix_s").to_numpy()
    moved = table.set_column(table.column_names.index("unix_s"), "unix_s", pa.array(times - times[0] + start_unix_s))
    numbers = pa.array(np.arange(first, first + len(table)))
    return moved.set_column(table.column_names.index("sequence"), "sequence", numbers)


@cache
def long_run(*names: str) -> pa.Table:
    """Recordings one after another, as one engine that does the same over and over."""
    parts, start = [], 1_800_000_000.0
    for number, name in enumerate(names):
        parts.append(shifted(recorded(name), start, number * 10_000))
        start = float(parts[-1].column("unix_s")[-1].as_py()) + 0.1
    return pa.concat_tables(parts)


def slower(table: pa.Table, factor: float) -> tuple[pa.Table, float]:
    """The steps of the second half ``factor`` times as long; and when that half begins."""
    times = table.column("unix_s").to_numpy()
    middle = (times[0] + times[-1]) / 2
    longer = table.column("observed_s").to_numpy() * np.where(times >= middle, factor, 1.0)
    return table.set_column(table.column_names.index("observed_s"), "observed_s", pa.array(longer)), middle


def changes(table: pa.Table, width_s: float | None = None) -> tuple[ChangePoint, ...]:
    return history_of(cells_of_table(table, FACTS, TraceFilter(), width_s)).change_points


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
    table, middle = slower(long_run(*names * 3), factor)
    (found,) = changes(table, width_s)
    assert abs(found.at_unix_s - middle) <= 2 * width_s + 1e-6
    assert found.from_unix_s <= found.at_unix_s <= found.to_unix_s
    assert found.factor_low < found.factor < found.factor_high
    assert (found.factor > 1) == (factor > 1)
    assert abs(math.log(found.factor / factor)) < 0.035
    assert found.confidence > 0.95
    assert (found.cost_device_s or 0) > 0 if factor > 1 else (found.cost_device_s or 0) < 0


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
@pytest.mark.parametrize("count", [20, 60, 200])
def test_false_alarms_are_as_rare_as_said(alike: float, count: int) -> None:
    """Of noise with that correlation of neighbours at most one series in twenty, and its share of chance."""
    rng = np.random.default_rng(5)
    alarms = 0
    for _ in range(100):
        values = np.zeros(count + 20)
        for at, each in enumerate(rng.normal(0, 0.03, count + 20)):
            values[at] = alike * values[at - 1] + each
        alarms += bool(levels(values[20:], 0.05, 0.02))
    assert alarms <= 9


def test_two_steps_are_both_found() -> None:
    values = np.random.default_rng(6).normal(0, 0.02, 150)
    values[50:100] += 0.1
    up, down = levels(values, 0.05, 0.02)
    assert (abs(up.at - 50) <= 1, abs(down.at - 100) <= 1) == (True, True)
    assert (up.move > 0.08, down.move < -0.08) == (True, True)


@pytest.mark.parametrize("count", [0, 1, 15])
def test_too_few_windows_tell_nothing(count: int) -> None:
    assert levels(np.repeat([0.0, 1.0], [count // 2, count - count // 2]), 0.05, 0.02) == []
