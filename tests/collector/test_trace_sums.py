"""Figures of made traces whose truth is known: restarts, long steps, rows of several steps, values not known."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_traces import START_UNIX_S, facts_of, place_of

from rooflens.analyzer.history.overview import history_of
from rooflens.analyzer.history.records import History
from rooflens.analyzer.roofline import analyse_engine
from rooflens.collector.trace.cells import cells_of, cells_of_table, chosen_width
from rooflens.collector.trace.file import write_file
from rooflens.collector.trace.files import find_trace
from rooflens.collector.trace.schema import to_arrow
from rooflens.records import StepTable
from rooflens.trace_records import TraceFacts, TraceFilter, TraceRows

ALL = TraceFilter()
POOL = 10_000


def made(ends_s: Any, observed_s: Any, unknown: dict[str, Any] | None = None, **more: Any) -> StepTable:
    """Decode steps of 8 sequences with 1000 tokens each that end at ``ends_s``; ``unknown`` masks are not known."""
    count = len(ends_s)
    given = dict.fromkeys(("requests", "query_tokens", "sampled_rows", "generated_tokens"), 8) | {"kind": 1}
    given |= {"context_tokens": 8000, "causal_pairs": 8000, "context_blocks": 508, "prefill_tokens": 0} | more
    columns: dict[str, Any] = {
        name: np.broadcast_to(np.asarray(value), (count,)).copy() for name, value in given.items()
    }
    columns |= {
        "sequence": np.arange(1, count + 1),
        "unix_s": START_UNIX_S + np.asarray(ends_s, float),
        "observed_s": np.broadcast_to(np.asarray(observed_s, float), (count,)).copy(),
    }
    return StepTable(columns, {name: ~np.asarray(mask) for name, mask in (unknown or {}).items()})


def run_of(run: int, devices: int = 1, pool: int = POOL, engine: str = "0") -> TraceFacts:
    facts = facts_of(engine, run=f"{run:016x}")
    assert facts.info is not None
    info = replace(facts.info, kv_blocks=pool, block_tokens=16)
    return replace(facts, info=info, devices=devices)


def kept(folder: Path, *runs: tuple[TraceFacts, StepTable], bounds: bool = True) -> Path:
    for number, (facts, steps) in enumerate(runs):
        assert facts.info is not None
        assert facts.hardware is not None
        analysis = analyse_engine(steps, facts.info, facts.hardware) if bounds else None
        write_file(place_of(folder, f"{number:02}-a"), to_arrow(TraceRows(facts, steps, analysis)), [facts])
    return folder


def told(folder: Path, width_s: float | None = None) -> History:
    return history_of(cells_of(find_trace([str(folder)], ALL), ALL, width_s))


def of_table(steps: StepTable, width_s: float | None = None) -> History:
    facts = run_of(1)
    assert facts.info is not None
    assert facts.hardware is not None
    table = to_arrow(TraceRows(facts, steps, analyse_engine(steps, facts.info, facts.hardware)))
    return history_of(cells_of_table(table, facts, ALL, width_s))


@pytest.mark.parametrize("order", [(1, 4), (4, 1)])
def test_a_restart_on_other_devices_leaves_the_past_as_it_was(order: tuple[int, int], tmp_path: Path) -> None:
    runs = []
    for number, devices in enumerate(order):
        ends = np.arange(100) * 0.2 + 100.0 * number
        used = 2250 * devices
        steps = made(ends, 0.1, kv_blocks_used=used)
        runs.append((run_of(number + 1, devices, pool=2500 * devices), steps))
    history = told(kept(tmp_path, *runs))
    (engine,) = history.engines
    assert engine.busy_device_s == pytest.approx(10.0 * 1 + 10.0 * 4)
    assert engine.amounts.kv_used_ratio == pytest.approx(0.9)
    assert engine.amounts.kv_used_max_ratio == pytest.approx(0.9)
    alone = [told(kept(tmp_path / str(at), run)).cost.wasted_device_s or 0.0 for at, run in enumerate(runs)]
    assert history.cost.wasted_device_s == pytest.approx(alone[0] + alone[1])
    assert max(alone) == pytest.approx(4 * min(alone))
    assert sum(window.wasted_device_s or 0.0 for window in history.time_line) == pytest.approx(alone[0] + alone[1])


def test_long_steps_back_to_back_are_no_silence_and_windows_hold_several(tmp_path: Path) -> None:
    steps = made(3.0 * np.arange(1, 21), 2.99, kind=0, prefill_tokens=8)
    for history in (of_table(steps), told(kept(tmp_path, (run_of(1), steps)))):
        assert history.window_s == 10.0
        assert history.silent_s == 0.0
        inner = history.time_line[1:-1]
        assert [window.steps_per_s for window in inner] == pytest.approx([1 / 3] * len(inner), rel=0.25)
    assert of_table(steps, width_s=0.2).silent_s == 0.0


def test_silence_is_what_no_step_touches() -> None:
    ends = np.concatenate([np.arange(1, 11), [40.5], np.arange(41, 51)]).astype(float)
    times = np.where(ends == 40.5, 20.0, 0.9)
    assert of_table(made(ends, times), width_s=1.0).silent_s == 9.0  # from 11 to 20: the long one began at 20.5


def test_one_odd_step_does_not_widen_the_windows() -> None:
    ends, times = np.cumsum(np.full(3000, 0.02)), np.full(3000, 0.019)
    times[1500] = 2.0
    ends[1500:] += 2.0
    assert of_table(made(ends, times)).window_s == chosen_width(62.0, 1) == 0.2
    assert chosen_width(62.0, 1, 0.5) == 2.0


def test_rows_of_intervals_make_windows_of_several_and_no_longest_step(tmp_path: Path) -> None:
    steps = made(10.0 * np.arange(1, 19), 9.0, resolution_steps=500, requests=4000, query_tokens=4000,
                 generated_tokens=4000, context_tokens=4_000_000)  # fmt: skip
    history = told(kept(tmp_path, (run_of(1), steps), bounds=False))
    assert history.window_s == 30.0
    assert history.silent_s == 0.0
    full = history.time_line[1:-1]
    assert [window.tokens_per_s for window in full] == pytest.approx([400.0] * len(full))
    assert [window.steps_per_s for window in full] == pytest.approx([50.0] * len(full))
    assert (history.totals.step_max_s, history.totals.step_p90_s) == (None, None)
    assert history.totals.step_p50_s == pytest.approx(0.018, rel=0.02)
    assert history.time_line[0].step_max_s is None
    assert history.phases[0].step_s is None


@pytest.mark.parametrize("name", ["requests", "context_tokens", "generated_tokens"])
def test_what_half_of_the_rows_do_not_know_is_not_divided_by_all(name: str) -> None:
    ends = np.arange(1, 401) * 0.05
    whole = of_table(made(ends, 0.04), width_s=5.0)
    half = of_table(made(ends, 0.04, {name: np.arange(400) % 2 == 0}), width_s=5.0)
    assert half.totals.requests_mean == whole.totals.requests_mean == 8.0
    assert half.totals.context_mean_tokens == whole.totals.context_mean_tokens == 1000.0
    assert half.time_line[1].batch == 8.0
    tokens = half.time_line[1].tokens_per_s
    assert tokens == (None if name == "generated_tokens" else whole.time_line[1].tokens_per_s)
    assert half.cost.device_s_per_million_tokens == (
        None if name == "generated_tokens" else whole.cost.device_s_per_million_tokens
    )


def test_mfu_is_of_the_steps_that_know_it(tmp_path: Path) -> None:
    facts, steps = run_of(1), made(np.arange(1, 101) * 0.05, 0.04)
    assert facts.info is not None
    assert facts.hardware is not None
    table = to_arrow(TraceRows(facts, steps, analyse_engine(steps, facts.info, facts.hardware)))
    at = table.column_names.index("mfu")
    values = [value if row % 2 else None for row, value in enumerate(table.column("mfu").to_pylist())]
    half = table.set_column(at, table.schema.field("mfu"), [values])
    found = [history_of(cells_of_table(each, facts, ALL, 5.0)) for each in (table, half)]
    assert found[1].totals.mfu == pytest.approx(found[0].totals.mfu)
    assert found[1].time_line[0].mfu == pytest.approx(found[0].time_line[0].mfu)
    assert found[0].phases[0].floor is not None
    assert found[1].phases[0].floor is not None
    assert found[1].phases[0].floor.mfu == pytest.approx(found[0].phases[0].floor.mfu)


def test_a_decode_step_of_unknown_batch_is_named() -> None:
    unknown = {"requests": np.arange(20) == 7, "sampled_rows": np.arange(20) == 7}
    history = of_table(made(np.arange(1, 21) * 0.1, 0.05, unknown))
    assert [phase.name for phase in history.decode_by_batch] == ["batch not known", "batch 8 to 15"]


def test_half_known_device_time_does_not_blame_the_host() -> None:
    ends = np.arange(400) * 0.05 + 0.01
    for known, idle_s, term in (
        (1.0, 0.0, "memory"),
        (0.6, 0.0, "memory"),
        (0.6, 0.035, "host"),
        (0.3, 0.035, "memory"),
    ):
        unknown = {"device_s": np.arange(400) % 10 >= 10 * known}
        history = of_table(made(ends, 0.04, unknown, device_s=0.04 - idle_s), width_s=5.0)
        assert {window.term for window in history.worst_windows} == {term}, (known, idle_s)


def test_a_state_counts_for_as_long_as_it_lasts(tmp_path: Path) -> None:
    slow, fast = np.arange(1, 6).astype(float), 5.0 + np.arange(1, 501) * 0.01
    times = np.concatenate([np.ones(5), np.full(500, 0.01)])
    queued = np.concatenate([np.full(5, 100), np.zeros(500, int)])
    steps = made(np.concatenate([slow, fast]), times, waiting=queued, kv_blocks_used=queued * POOL // 100)
    totals = of_table(steps, width_s=5.0).totals
    assert (totals.waiting_mean, totals.queued_ratio, totals.kv_used_ratio) == pytest.approx((50.0, 0.5, 0.5))
    jammed = made(np.arange(1, 11).astype(float), 0.9, waiting=100)
    idle = made(np.arange(1, 1001) * 0.01, 0.009, waiting=0)
    both = told(kept(tmp_path, (run_of(1), jammed), (run_of(2, engine="1"), idle)), width_s=5.0)
    assert both.totals.waiting_mean == pytest.approx(100.0)
    assert both.time_line[0].waiting == pytest.approx(100.0)


def test_states_of_rows_without_times_are_means_over_rows() -> None:
    steps = made(np.arange(1, 11).astype(float), 0.5, {"observed_s": np.ones(10, bool)}, waiting=np.arange(10))
    assert of_table(steps, width_s=5.0).totals.waiting_mean == pytest.approx(4.5)


def test_what_a_change_cost_counts_the_devices_of_its_time(tmp_path: Path) -> None:
    jitter = 1 + 0.01 * np.sin(np.arange(600) * 1.7)
    slower = np.where(np.arange(600) < 300, 0.04, 0.05) * jitter
    runs = ((run_of(1, 4), made(np.arange(600) * 0.1, slower)), (run_of(2, 1), made(100.0 + np.arange(20), 0.05)))
    (change,) = (one for one in told(kept(tmp_path, *runs), width_s=1.0).change_points if one.regimes != ())
    assert change.cost_device_s == pytest.approx(300 * 0.01 * 4 + 20 * 0.01, rel=0.05)
