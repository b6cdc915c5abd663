from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from rooflens.analyzer.figures import SlowStep
from rooflens.analyzer.summary import WINDOW_STEPS, summarise
from rooflens.model_records import StepAnalysis
from rooflens.records import RingEvent, StepKind, StepTable


def table(observed_s: list[float], gap_s: float = 0.5, kind: StepKind = StepKind.DECODE, **columns: Any) -> StepTable:
    """Steps of the given lengths, ``gap_s`` apart."""
    count = len(observed_s)
    output = np.cumsum(np.array(observed_s) + gap_s)
    given: dict[str, Any] = {
        "kind": np.full(count, int(kind)),
        "submit_monotonic_s": output - np.array(observed_s),
        "output_monotonic_s": output,
        "observed_s": np.array(observed_s),
        "requests": np.ones(count, dtype=np.int64),
        "query_tokens": np.ones(count, dtype=np.int64),
        "generated_tokens": np.ones(count, dtype=np.int64),
    }
    return StepTable(given | {name: np.array(values) for name, values in columns.items()})


def analysis(observed_s: Any, floor_s: Any) -> StepAnalysis:
    observed, floor = np.asarray(observed_s, float), np.asarray(floor_s, float)
    count = len(observed)
    every, nothing = np.ones(count, dtype=bool), np.zeros(count)
    return StepAnalysis(
        hardware="h", model="m", devices=1, modelled=every, compared=every, below_floor=observed < floor,
        bound=np.zeros(count, int), floor_s=floor, memory_s=floor, compute_s=nothing, link_floor_s=nothing,
        expected_s=floor, serial_floor_s=floor, link_s=nothing, observed_s=observed, weight_bytes=nothing,
        kv_read_bytes=nothing, kv_write_bytes=nothing, flops=nothing, mbu=floor / observed, mfu=nothing,
    )  # fmt: skip


def test_the_span_is_steps_and_what_lies_between() -> None:
    found = summarise(table([1.0, 2.0, 3.0]))
    decode, between = found.phases
    assert (decode.seconds, between.seconds, found.span_s) == (6.0, 1.0, 7.0)
    assert decode.step_s is not None
    assert (decode.step_s.p50, decode.step_s.max) == (2.0, 3.0)
    assert decode.share_ratio + between.share_ratio == pytest.approx(1)


def test_time_around_lost_steps_is_not_recorded_rather_than_idle() -> None:
    steps = table([1.0, 1.0, 1.0])
    gapped = StepTable(steps.columns, {"observed_s": np.array([True, False, True])})
    found = {phase.name: phase.seconds for phase in summarise(gapped).phases}
    assert found == {"decode": 2.0, "between steps": 0.5, "not recorded": 1.5}


def test_no_time_is_negative_whatever_the_clock_said() -> None:
    found = summarise(table([1.0, -4.0, 2.0]))
    assert all(phase.seconds >= 0 for phase in found.phases)
    assert math.isfinite(found.span_s)


def test_jumps_of_the_wall_clock_are_kept_apart_from_an_engines_own_events() -> None:
    events = (RingEvent(1, 0.0, "clock_jump", {"jump_s": -60.0}), RingEvent(2, 0.0, "clock_jump", {}))
    found = summarise(table([1.0]), events)
    assert found.clock_jumps_s == (-60.0,)
    assert found.events == {"clock_jump": 2}


def test_decode_is_split_by_batch() -> None:
    found = summarise(table([1.0] * 6, requests=[1, 2, 3, 8, 15, 16]))
    assert {p.name: p.steps for p in found.decode_by_batch} == {
        "batch 1": 1, "batch 2 to 3": 2, "batch 8 to 15": 2, "batch 16 to 31": 1,
    }  # fmt: skip


def test_a_step_below_the_floor_is_not_yet_an_invalid_measurement() -> None:
    observed = np.full(2 * WINDOW_STEPS, 2.0)
    observed[5] = 0.5
    found = summarise(table(observed.tolist()), analysis=analysis(observed, np.ones(len(observed))))
    assert (found.below_floor_steps, found.windows, found.invalid_windows) == (1, 2, 0)
    assert not found.measurement_invalid


def test_a_window_below_the_floor_is() -> None:
    observed = np.full(2 * WINDOW_STEPS + 7, 2.0)
    observed[WINDOW_STEPS : 2 * WINDOW_STEPS] = 0.9
    found = summarise(table(observed.tolist()), analysis=analysis(observed, np.ones(len(observed))))
    assert (found.windows, found.invalid_windows) == (2, 1)
    assert found.measurement_invalid


@pytest.mark.parametrize(("below", "invalid"), [(0, False), (2, False), (3, True)])
def test_of_a_synchronous_engine_a_few_steps_suffice(below: int, invalid: bool) -> None:
    observed = np.full(2 * WINDOW_STEPS, 2.0)
    observed[:below] = 0.9
    bounds = analysis(observed, np.ones(len(observed)))
    assert summarise(table(observed.tolist()), analysis=bounds, synchronous=True).measurement_invalid is invalid
    assert not summarise(table(observed.tolist()), analysis=bounds).measurement_invalid


def test_unknown_columns_stay_unknown() -> None:
    found = summarise(table([1.0]))
    assert found.totals["prompt_tokens"] is None
    assert found.ratios["draft_acceptance"] is None
    assert "waiting" not in found.spreads
    known = summarise(table([1.0], drafted_tokens=[0], accepted_tokens=[0]))
    assert known.ratios["draft_acceptance"] is None


def queue(running: list[int], waiting: list[int] | None = None, **more: Any) -> dict[str, Any]:
    return {"running": running, "waiting": waiting or [0] * len(running), "deferred": [0] * len(running)} | more


def test_time_without_any_request_is_idle_and_in_no_share() -> None:
    found = summarise(table([1.0] * 4, gap_s=0.5, **queue([1, 0, 0, 0], [0, 0, 2, 0])))
    assert {phase.name: phase.seconds for phase in found.phases} == {
        "decode": 4.0, "between steps": 1.0, "idle (no request)": 0.5,
    }  # fmt: skip
    assert found.phases[-1].share_ratio is None
    assert (found.idle_s, found.active_s, found.span_s) == (0.5, 5.0, 5.5)
    assert sum(phase.share_ratio or 0.0 for phase in found.phases) == pytest.approx(1)
    assert found.ratios["generated_tokens_per_s"] == pytest.approx(4 / 5)


def test_idle_time_is_not_known_without_the_queue() -> None:
    found = summarise(table([1.0] * 3, running=[0, 0, 0], waiting=[0, 0, 0]))
    assert (found.idle_s, found.active_s) == (None, found.span_s)
    steps = table([1.0] * 3, **queue([0, 0, 0]))
    some = StepTable(steps.columns, {"deferred": np.array([True, False, True])})
    assert summarise(some).idle_s == 0.5


def test_the_wait_of_an_empty_queue_does_not_stand_for_that_of_a_full_one() -> None:
    steps = table([1.0] * 3, **queue([1, 1, 1], [0, 4, 5], oldest_wait_s=[0.0, 9.0, 9.0]))
    none = StepTable(steps.columns, {"oldest_wait_s": np.array([True, False, False])})
    assert summarise(none).spreads["oldest_wait_s"] is None
    one = StepTable(steps.columns, {"oldest_wait_s": np.array([False, False, True])})
    known = summarise(one).spreads["oldest_wait_s"]
    assert known is not None
    assert (known.p50, known.max) == (9.0, 9.0)
    empty = summarise(table([1.0], **queue([1], oldest_wait_s=[0.0]))).spreads["oldest_wait_s"]
    assert empty is not None
    assert empty.max == 0.0


def test_host_time_that_was_never_told_is_not_known() -> None:
    steps = table([1.0, 1.0], schedule_s=[0.0, 0.0], update_s=[0.25, 0.0])
    found = summarise(StepTable(steps.columns, {"schedule_s": np.zeros(2, bool), "update_s": np.array([True, False])}))
    assert found.host_s == {"schedule_s": None, "update_s": 0.25}


def test_the_slowest_step_is_named() -> None:
    steps = table([1.0, 5.0, 2.0], sequence=[2, 3, 5], unix_s=[100.0, 105.0, 110.0])
    events = (RingEvent(1, 0.0, "load", {}), RingEvent(2, 0.0, "clock_jump", {}), RingEvent(4, 0.0, "sleep", {}))
    found = summarise(steps, events).slowest_step
    assert found == SlowStep(sequence=3, number=2, kind="decode", seconds=5.0, start_unix_s=100.0)
    lost = summarise(steps, events[1:]).slowest_step
    assert lost is not None
    assert lost.number is None
