"""Which step a device span belongs to: never the wrong one, and each one where nothing was lost."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rooflens.collector.device_spans import join_device
from rooflens.records import DeviceSpan, StepKind, StepTable


@dataclass
class Run:
    """A made-up engine and its worker: steps handed over ``depth`` ahead, the worker's host ahead of its device."""

    shapes: list[tuple[int, int]]
    depth: int
    lag: float = 0.1
    first_ordinal: int = 1
    submit: list[float] = field(default_factory=list)
    output: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        for at in range(len(self.shapes)):
            free = self.output[at - self.depth] if at >= self.depth else 0.0
            self.submit.append(max(free, self.submit[-1] if self.submit else 0.0) + 0.05)
            ready = max(self.output[-1] if self.output else 0.0, self.submit[-1])
            self.output.append(ready + 1.0)

    def span(self, at: int) -> DeviceSpan:
        """The worker's calls begin soon after the submit, or once the calls before have returned."""
        start = self.submit[at] + self.lag
        tokens, requests = self.shapes[at]
        return DeviceSpan(self.first_ordinal + at, start, start + 0.2, 1.0 + at, 0.0, tokens, requests)

    def table(self, kept: list[int] | None = None, dummies: tuple[int, ...] = ()) -> StepTable:
        """The steps, some lost, some after a dummy step."""
        kept = list(range(len(self.shapes))) if kept is None else kept
        rows: list[tuple[int, float, float, int, int, bool]] = []
        before = -1
        for at in kept:
            follows = at == before + 1
            if at in dummies:
                rows.append((StepKind.DUMMY, self.submit[at], self.submit[at], 0, 0, follows))
                follows = True
            rows.append((StepKind.DECODE, self.submit[at], self.output[at], *self.shapes[at], follows))
            before = at
        kind, submit, output, tokens, requests, sure = (list(column) for column in zip(*rows, strict=True))
        columns = {
            "kind": np.array(kind), "query_tokens": np.array(tokens), "requests": np.array(requests),
            "submit_monotonic_s": np.array(submit), "output_monotonic_s": np.array(output),
            "observed_s": np.ones(len(rows)),
        }  # fmt: skip
        return StepTable(columns, {"observed_s": np.array(sure)})


def joined(table: StepTable, run: Run) -> list[int | None]:
    """For each real step the number of the pass whose time it was given, None where it has none."""
    real = table["kind"] != StepKind.DUMMY
    assert not table.where("device_s")[~real].any()
    times, known = table["device_s"][real], table.where("device_s")[real]
    return [round(time) - 1 if there else None for time, there in zip(times, known, strict=True)]


VARIED = [(512, 1), (300, 2), (2, 2), (2, 2), (3, 3), (3, 3), (3, 3), (260, 4), (4, 4), (4, 4)]
STEADY = [(64, 64)] * 12


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("first_ordinal", [1, 40])
def test_every_step_of_a_whole_recording_is_joined(depth: int, first_ordinal: int) -> None:
    """Also when the worker's count began before the engine's: passes that looked like steps while it warmed up."""
    run = Run(VARIED, depth, first_ordinal=first_ordinal)
    spans = [run.span(at) for at in range(len(VARIED))]
    assert joined(join_device(run.table(dummies=(0, 4)), spans), run) == list(range(len(VARIED)))


def test_skipped_passes_leave_their_steps_unknown() -> None:
    run = Run(VARIED, 2)
    spans = [run.span(at) for at in range(len(VARIED)) if at not in (0, 3, 9)]
    expected: list[int | None] = list(range(len(VARIED)))
    expected[0] = expected[3] = expected[9] = None
    assert joined(join_device(run.table(), spans), run) == expected


def test_passes_without_a_step_are_left_out() -> None:
    """The engine's ring came round, the worker's did not; and a pass of the warm-up."""
    run = Run(VARIED, 2)
    spans = [DeviceSpan(0, 0.0, 0.01, 9.0, 0.0, 512, 1), *(run.span(at) for at in range(len(VARIED)))]
    kept = list(range(4, len(VARIED)))
    assert joined(join_device(run.table(kept), spans), run) == kept


def test_steady_decode_far_ahead_of_the_device_is_not_guessed() -> None:
    """Every step looks like the one before and the worker is a step ahead: two distances fit."""
    run = Run(STEADY, 3)
    spans = [run.span(at) for at in range(3, 9)]
    table = run.table(list(range(1, 12)))
    assert joined(join_device(table, spans), run) == [None] * 11


def test_the_engines_first_step_decides_what_is_steady() -> None:
    run = Run(STEADY, 3)
    spans = [run.span(at) for at in range(3, 9)]
    expected: list[int | None] = [None] * 3 + list(range(3, 9)) + [None] * 3
    assert joined(join_device(run.table(), spans, from_first_step=True), run) == expected
    moved = [DeviceSpan(s.ordinal + 7, *(getattr(s, n) for n in s.__slots__[1:])) for s in spans]
    assert joined(join_device(run.table(), moved, from_first_step=True), run) == [None] * 12


def test_the_slowest_of_several_workers_counts_and_all_must_be_known() -> None:
    run = Run(VARIED, 1)
    first = [run.span(at) for at in range(len(VARIED))]
    slower = [DeviceSpan(s.ordinal, s.start_monotonic_s, s.end_monotonic_s, 50.0, 0.0, s.query_tokens, s.requests)
              for s in first[4:5]]  # fmt: skip
    both = join_device(join_device(run.table(), first), slower)
    assert both.where("device_s").tolist() == [at == 4 for at in range(len(VARIED))]
    assert both["device_s"][4] == 50.0


def test_nothing_to_join() -> None:
    run = Run(VARIED, 1)
    assert joined(join_device(run.table(), []), run) == [None] * len(VARIED)
    empty = run.table().take(np.zeros(len(VARIED), dtype=bool))
    assert len(join_device(empty, [run.span(0)])["device_s"]) == 0


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_no_step_is_ever_given_another_steps_time(data: st.DataObject) -> None:
    """Shapes that repeat, pipelines of any depth, passes not timed, and a recording that lost some steps."""
    shapes = data.draw(st.lists(st.sampled_from([(1, 1), (2, 2), (2, 1), (300, 2)]), min_size=1, max_size=30))
    run = Run(shapes, data.draw(st.integers(1, 4)), data.draw(st.sampled_from([0.01, 0.1, 0.6])))
    timed = data.draw(st.lists(st.booleans(), min_size=len(shapes), max_size=len(shapes)))
    spans = [run.span(at) for at in range(len(shapes)) if timed[at]]
    lost = data.draw(st.sets(st.integers(0, len(shapes) - 1), max_size=len(shapes) - 1))
    dummies = tuple(data.draw(st.sets(st.integers(0, len(shapes) - 1), max_size=3)))
    kept = [at for at in range(len(shapes)) if at not in lost]
    table = run.table(kept, dummies)
    for step, given_pass in zip(kept, joined(join_device(table, spans, 0 in kept), run), strict=True):
        assert given_pass in (None, step)
    if not lost:
        whole = joined(join_device(table, spans, from_first_step=True), run)
        assert [at for at in whole if at is not None] == [at for at in range(len(shapes)) if timed[at]]
