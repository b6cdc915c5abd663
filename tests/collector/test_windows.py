"""Windows: every step in exactly one, closed when they should be, the same however the steps were read."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rooflens.collector.tables import concatenated, empty_table
from rooflens.collector.windows import Stretch, WindowBuilder, WindowSettings, last_rows
from rooflens.live_records import Derived
from rooflens.protocols import Batch
from rooflens.records import RingEvent, StepTable

LIMITS = WindowSettings(window_s=10.0, least_steps=5, most_window_s=60.0, most_steps=20)


def table(outputs: list[float], sizes: list[int] | None = None, first: int = 1) -> StepTable:
    """Steps of 0.1 s each, numbered from ``first``."""
    output = np.array(outputs, dtype=np.float64)
    return StepTable(
        {
            "sequence": np.arange(first, first + len(output)),
            "submit_monotonic_s": output - 0.1,
            "output_monotonic_s": output,
            "resolution_steps": np.array(sizes or [1] * len(output), dtype=np.int64),
        }
    )


def cut(parts: list[StepTable], limits: WindowSettings = LIMITS) -> list[Stretch]:
    builder = WindowBuilder(limits)
    closed = [stretch for part in parts for stretch in builder.add(Batch(None, part))]
    return closed + builder.flush()


def shape(stretches: list[Stretch]) -> list[tuple[list[int], float, float, bool]]:
    return [(s.steps["sequence"].tolist(), s.start_monotonic_s, s.end_monotonic_s, s.whole) for s in stretches]


def test_a_window_needs_both_its_time_and_its_steps() -> None:
    steps = table([2.0 * n for n in range(1, 16)])
    stretches = cut([steps])
    # The first begins with its first step at 1.9 and is 10 s long with the sixth, the next at 12 + 10.
    assert [len(s.steps) for s in stretches] == [5 + 1, 5, 4]
    assert [s.whole for s in stretches] == [True, True, False]
    assert stretches[1].start_monotonic_s == stretches[0].end_monotonic_s == 12.0


def test_few_steps_wait_for_more_until_the_window_is_too_long() -> None:
    stretches = cut([table([0.1, 25.0, 50.0, 75.0, 100.0])])
    assert [(len(s.steps), s.end_monotonic_s, s.whole) for s in stretches] == [(3, 60.0, False), (2, 100.0, False)]


def test_many_steps_close_a_window_early() -> None:
    stretches = cut([table([0.1 * n for n in range(1, 51)])])
    assert [(len(s.steps), s.whole) for s in stretches] == [(20, True), (20, True), (10, False)]


def test_a_row_that_stands_for_many_steps_counts_as_many() -> None:
    stretches = cut([table([5.0, 10.0, 15.0, 20.0], sizes=[3, 3, 3, 19])])
    assert [len(s.steps) for s in stretches] == [3, 1]
    assert [s.whole for s in stretches] == [True, False]


def test_an_idle_engine_closes_its_window_by_the_clock() -> None:
    builder = WindowBuilder(LIMITS)
    assert builder.add(Batch(None, table([0.1, 1.0]))) == []
    assert builder.advance(59.9) == []
    (stretch,) = builder.advance(61.0)
    assert (stretch.end_monotonic_s, stretch.whole, len(stretch.steps)) == (60.0, False, 2)
    assert builder.advance(1000.0) == []
    assert builder.flush() == []


def test_after_a_long_pause_a_window_begins_with_its_first_step() -> None:
    near = cut([table([0.1 * n for n in range(1, 21)]), table([30.0])])
    far = cut([table([0.1 * n for n in range(1, 21)]), table([300.0])])
    assert near[1].start_monotonic_s == 2.0
    assert far[1].start_monotonic_s == pytest.approx(299.9)


def test_a_step_longer_than_any_window_is_one_by_itself() -> None:
    steps = table([100.0, 100.1])
    steps.columns["submit_monotonic_s"][0] = 0.0
    assert [(len(s.steps), s.whole) for s in cut([steps])] == [(1, False), (1, False)]


def test_what_comes_beside_the_steps_goes_into_one_window() -> None:
    builder = WindowBuilder(LIMITS)
    early, late = RingEvent(1, 1.0, "sleep"), RingEvent(9, 14.5, "wake_up")
    old, new = (Derived("context", value, "", "by the pool") for value in (1.0, 2.0))
    builder.add(Batch(None, empty_table(), (early, late), 3, 1, (old,), ("twice",)))
    (stretch,) = builder.add(Batch(None, table([2.0 * n for n in range(1, 7)]), (), 1, 0, (new,), ("twice", "down")))
    assert (stretch.events, stretch.lost_steps, stretch.torn_steps) == ((early,), 4, 1)
    assert (stretch.derived, stretch.complaints) == ((new,), ("twice", "down"))
    builder.add(Batch(None, table([15.0])))
    (rest,) = builder.flush()
    assert (rest.events, rest.lost_steps, rest.derived, rest.complaints) == ((late,), 0, (), ())


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.floats(0.1, 80.0), st.integers(1, 8)), min_size=1, max_size=60),
    st.lists(st.integers(0, 60), max_size=8),
    st.booleans(),
)
def test_any_way_of_reading_gives_the_same_windows(
    rows: list[tuple[float, int]], places: list[int], clocked: bool
) -> None:
    outputs = np.cumsum([gap for gap, _ in rows]).tolist()
    steps = table(outputs, [size for _, size in rows])
    whole = cut([steps])
    builder, pieces = WindowBuilder(LIMITS), []
    edges = sorted({0, len(steps), *(min(place, len(steps)) for place in places)})
    for start, end in pairwise(edges):
        pieces += builder.add(Batch(None, steps.take(np.arange(start, end))))
        if clocked:  # at the latest just before the next step
            pieces += builder.advance(outputs[end] - 0.05 if end < len(outputs) else outputs[-1])
    pieces += builder.flush()
    assert shape(pieces) == shape(whole)
    assert [n for s in whole for n in s.steps["sequence"].tolist()] == list(range(1, len(rows) + 1))


def test_tables_with_different_columns_keep_what_is_not_known_apart() -> None:
    one = StepTable({"sequence": np.array([1, 2]), "wait_s": np.array([0.5, 9.0])}, {"wait_s": np.array([True, False])})
    other = StepTable({"sequence": np.array([3]), "waiting": np.array([4])})
    both = concatenated([one, empty_table(), other])
    assert both["sequence"].tolist() == [1, 2, 3]
    assert both.where("sequence").all()
    assert both.where("wait_s").tolist() == [True, False, False]
    assert both.where("waiting").tolist() == [False, False, True]
    assert both["waiting"][2] == 4
    assert both["waiting"].dtype == np.int64


def test_the_last_rows_of_many_tables() -> None:
    parts = [table([1.0, 2.0]), table([3.0], first=3), table([4.0, 5.0, 6.0], first=4)]
    assert last_rows(parts, 4)["sequence"].tolist() == [3, 4, 5, 6]
    assert last_rows(parts, 40)["sequence"].tolist() == [1, 2, 3, 4, 5, 6]
    assert len(last_rows([], 4)) == 0
