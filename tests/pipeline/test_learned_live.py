"""What an engine's windows teach is kept for as long as it stays what it is, and comes from whole windows alone."""

from __future__ import annotations

from typing import Any

import pytest
from made_windows import H100, INFO, info_with, steps

from rooflens.collector.tables import empty_table
from rooflens.collector.windows import WindowSettings
from rooflens.live_records import EngineView, Progress, SourceKind, State
from rooflens.pipeline.engine import WatchedEngine
from rooflens.pipeline.totals import EngineTotals
from rooflens.protocols import Batch
from rooflens.records import EngineInfo, StepTable

KEY = ("llama", "0")
HUNDRED = WindowSettings(window_s=0.1, least_steps=100, most_window_s=1000.0, most_steps=100)


def watched(table: StepTable, info: EngineInfo = INFO) -> WatchedEngine:
    """An engine whose windows hold a hundred steps, after these."""
    totals = EngineTotals(KEY, 0.0)
    totals.begin_run(SourceKind.RING, 0.0, empty_table(), 0.0)
    engine = WatchedEngine(KEY, SourceKind.RING, totals, H100, HUNDRED, empty_table())
    take(engine, table, info)
    return engine


def take(engine: WatchedEngine, table: StepTable, info: EngineInfo = INFO) -> EngineView:
    end_s = float(table["output_monotonic_s"][-1])
    engine.take(Batch(info=info, steps=table, progress=Progress(State.LIVE)), info, end_s)
    return engine.view()


def later(count: int, after: StepTable, **more: Any) -> StepTable:
    """Steps that follow others in time."""
    table, moved_s = steps(count, **more), float(after["output_monotonic_s"][-1])
    times = {name: table[name] + moved_s for name in ("submit_monotonic_s", "output_monotonic_s")}
    return StepTable({**table.columns, **times})


def test_a_window_is_judged_by_the_ones_before_it() -> None:
    first = steps(600, factor=1.5)
    engine = watched(first)
    view = engine.view()
    assert [window.kinds["decode"].usual_s for window in view.windows] == [None] * 6
    (regime,) = view.regimes
    assert (regime.windows, regime.ready) == (6, True)
    slow = take(engine, later(100, first, factor=3.0)).windows[-1].kinds["decode"]
    assert slow.usual_s == pytest.approx(slow.compared_s / 2 if slow.compared_s else None, rel=1e-6)


def test_a_window_cut_short_teaches_nothing() -> None:
    engine = watched(steps(650, factor=1.5))
    engine.end(State.ENDED, 1e9)
    (regime,) = engine.view().regimes
    assert (len(engine.view().windows), regime.windows) == (6, 6)
    assert engine.view().windows[-1].steps == 50


def test_an_engine_with_other_facts_begins_anew() -> None:
    table = steps(600, factor=1.5)
    engine = watched(table)
    assert [regime.windows for regime in take(engine, later(100, table, factor=1.5)).regimes] == [7]
    eager = info_with(graph_mode="NONE")
    changed = take(engine, later(100, later(100, table), factor=1.5), eager)
    assert [regime.windows for regime in changed.regimes] == [1], "what was learned was of other launches"
