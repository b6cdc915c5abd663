"""How an engine launches its steps, as far as it matters to what is reachable: captured sizes, or no graphs at all."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_windows import H100, INFO, ROOFLINE, info_with, merged, steps

from rooflens.analyzer.efficiency import efficiency_of
from rooflens.analyzer.features import Features
from rooflens.analyzer.point import UniformBatch, point_features
from rooflens.analyzer.reachable_steps import reachable
from rooflens.analyzer.roofline import Roofline, analyse_engine, is_eager
from rooflens.records import EngineInfo, GraphMode, StepTable

SIZES = (8, 1, 2, 4, 16)
Floats = np.ndarray[Any, np.dtype[np.float64]]


def padded(table: StepTable, sizes: tuple[int, ...] = SIZES) -> list[float]:
    ((_, features, _),) = Features(("padded_tokens",), graph_sizes=sizes).chunks(table)
    found: list[float] = features[0].tolist()
    return found


def reached(info: EngineInfo, table: StepTable) -> Floats:
    found = Roofline.of(info, H100).analyse_all(table).reachable_s
    assert found is not None
    return found


def test_a_step_is_padded_to_the_next_size_that_was_captured() -> None:
    table = steps(6, decode=[1, 3, 8, 9, 16, 17], context=10)
    assert padded(table) == [1, 4, 8, 16, 16, 17], "beyond the largest nothing is padded"
    assert padded(table, ()) == [1, 3, 8, 9, 16, 17]
    assert padded(merged(steps(10, decode=3, context=10), 5)) == [20, 20], "five steps of four tokens each"


def test_what_a_step_tells_of_its_padding_stands() -> None:
    told = steps(4, decode=3, context=10, padded_tokens=[3, 6, 0, 0], graph_mode=[0, 0, 0, int(GraphMode.EAGER)])
    assert padded(told) == [3, 6, 0, 0]
    partly = replace(told, known={"padded_tokens": np.array([True, True, False, False])})
    assert padded(partly) == [3, 6, 4, 3], "a step without a graph is not padded"


@given(tokens=st.integers(1, 40), sizes=st.sets(st.integers(1, 32), max_size=6))
def test_a_step_is_padded_as_a_planned_one_is(tokens: int, sizes: set[int]) -> None:
    batch = UniformBatch(sequences=tokens, query_tokens=1, cached_tokens=10, graph_sizes=tuple(sizes))
    expected = point_features(batch, ("padded_tokens",))["padded_tokens"]
    assert padded(steps(1, decode=tokens, context=10), tuple(sizes)) == [expected]


def test_padding_takes_arithmetic_and_never_less_time() -> None:
    table = steps(3, decode=[300, 400, 512], context=10)
    bare, sized = reached(INFO, table), reached(info_with(graph_sizes=(512,)), table)
    assert (sized[:2] > bare[:2]).all()
    assert sized[2] == bare[2]
    floors = [analyse_engine(table, info, H100).floor_s for info in (INFO, info_with(graph_sizes=(512,)))]
    assert floors[0].tolist() == floors[1].tolist(), "the floor knows no padding"


@pytest.mark.parametrize(
    ("mode", "eager"),
    [("NONE", True), ("none", True), ("EAGER", True), ("FULL", False), ("PIECEWISE", False), (None, False)],
)
def test_an_engine_without_graphs_launches_every_kernel_itself(mode: str | None, eager: bool) -> None:
    info = info_with(graph_mode=mode, graph_sizes=(512,))
    assert is_eager(info) is eager
    table = steps(1, decode=32, context=10)
    efficiency = efficiency_of(H100)
    assert efficiency is not None
    kernels = sum(row.calls for row in ROOFLINE.rows if not row.link_bytes)
    added_s = kernels * (efficiency.eager_launch_s - efficiency.launch_s)
    if eager:
        assert reached(info, table)[0] == pytest.approx(reached(INFO, table)[0] + added_s)
    else:
        assert reached(info, table)[0] >= reached(INFO, table)[0]
    again = Roofline.of(info, H100).on(H100)
    assert (again.eager, again.graph_sizes) == (eager, () if eager else (512,))


@settings(max_examples=25, deadline=None)
@given(decode=st.integers(0, 300), context=st.integers(0, 9000), prefill=st.integers(1, 5000))
def test_all_agrees_with_the_middle_of_the_interval(decode: int, context: int, prefill: int) -> None:
    table = steps(3, decode, context, prefill)
    analysis = ROOFLINE.analyse_all(table)
    found = reachable(ROOFLINE, table, analysis)
    assert found is not None
    assert analysis.reachable_s is not None
    np.testing.assert_array_equal(analysis.reachable_s, found.reachable_s)
    assert (analysis.reachable_s >= analysis.floor_s).all()
    assert analysis.efficiency == efficiency_of(H100)


def test_nothing_is_reachable_where_it_is_not_known() -> None:
    table = steps(3)
    measured = analyse_engine(table, INFO, replace(H100, origin="measured"))
    assert (measured.reachable_s, measured.efficiency) == (None, None)
    unknown = StepTable(table.columns, {"context_tokens": np.array([True, False, True])})
    analysis = analyse_engine(unknown, INFO, H100)
    assert analysis.reachable_s is not None
    assert np.isnan(analysis.reachable_s).tolist() == [False, True, False]
