"""Totals: every second in one part, every step in one bucket, and a bounded number of engines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_engine import CONFIG

from rooflens import catalogue as metrics
from rooflens.analyzer.hardware import find_hardware
from rooflens.analyzer.roofline import Roofline
from rooflens.catalogue import CATALOGUE
from rooflens.collector.tables import empty_table
from rooflens.findings import Code, Finding, Price, Severity, Status
from rooflens.live_records import SourceKind
from rooflens.metric_records import HistogramValue, Metric
from rooflens.model_records import StepAnalysis
from rooflens.pipeline.time_parts import TimeParts
from rooflens.pipeline.totals import EngineTotals, Totals
from rooflens.protocols import Batch
from rooflens.records import COLUMN_KINDS, EngineInfo, RingEvent, StepKind, StepTable

START_S = 1000.0
KEY = ("llama", "0")
ROOFLINE = Roofline.of(
    EngineInfo("x", "made-up", model_config=CONFIG, model_name="llama"), find_hardware("h100-sxm5-80")
)


def table(
    steps: Sequence[tuple[float, float, int, bool, int]], start_s: float = START_S, several: int = 1
) -> StepTable:
    """Steps as (pause before, busy, requests left behind, whether the busy time is known, kind)."""
    count = len(steps)
    pause, busy = (np.array([step[i] for step in steps], dtype=np.float64) for i in (0, 1))
    output = start_s + np.cumsum(pause + busy)
    known = np.array([step[3] for step in steps], dtype=bool)
    columns = {
        "kind": np.array([step[4] for step in steps], dtype=np.int64),
        "unix_s": output,
        "submit_monotonic_s": output - busy,
        "output_monotonic_s": output,
        "observed_s": busy,
        "running": np.array([step[2] for step in steps], dtype=np.int64),
        "resolution_steps": np.full(count, several, dtype=np.int64),
    }
    counts = {"requests": 2, "query_tokens": 2, "prefill_tokens": 0, "sampled_rows": 2, "context_tokens": 300}
    counts |= {"causal_pairs": 302, "prefill_pairs": 0, "context_blocks": 20, "waiting": 0, "deferred": 0}
    counts |= {"generated_tokens": 2, "prefill_requests": 0}
    return StepTable(columns | {n: np.full(count, v * several) for n, v in counts.items()}, {"observed_s": known})


STEP = st.tuples(
    st.floats(0.0, 3.0), st.floats(1e-5, 0.2), st.integers(0, 2), st.booleans(), st.sampled_from([0, 1, 2, 6])
)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(STEP, min_size=1, max_size=12), min_size=1, max_size=5),
    st.floats(0.0, 2.0),
    st.booleans(),
    st.lists(st.floats(0.0, 1.0), min_size=5, max_size=5),
    st.booleans(),
)
def test_the_parts_of_the_time_add_up_to_the_time_watched(
    reads: list[list[tuple[float, float, int, bool, int]]],
    late_s: float,
    modelled: bool,
    rests: list[float],
    several: bool,
) -> None:
    """However the steps come, begun before we watched or after a rest that was counted as idle already."""
    times = TimeParts(START_S + late_s, empty_table())
    sums = dict.fromkeys(metrics.TIME_PARTS, 0.0)
    start_s, last_s = START_S, START_S + late_s
    for steps, rest_s in zip(reads, rests, strict=False):
        part = table(steps, start_s, several=3 if several else 1)
        analysis = ROOFLINE.analyse(part) if modelled else None
        outputs = part["output_monotonic_s"]
        start_s = float(outputs[-1])
        for found in (times.add(part, analysis), times.rest_until(start_s + rest_s)):
            assert all(seconds >= -1e-9 for seconds in found.values())
            sums = {name: sums[name] + found.get(name, 0.0) for name in sums}
        last_s = max(last_s, start_s)
        assert times.until_s >= last_s
    sums["idle"] += sum(times.end_at(times.until_s + 1.0).values())
    assert sum(sums.values()) == pytest.approx(times.until_s - START_S - late_s, abs=1e-6)
    assert modelled or not any(sums[part] for part in ("memory", "compute", "link", "beyond_floor"))


def test_where_each_part_comes_from() -> None:
    times = TimeParts(START_S, empty_table())
    decode = int(StepKind.DECODE)
    steps = table(
        [
            (1.0, 0.1, 1, True, decode),
            (2.0, 0.1, 0, True, decode),
            (4.0, 0.1, 1, True, decode),
            (0, 8.0, 1, False, decode),
        ]
    )
    analysis = ROOFLINE.analyse(steps)
    floor_s = float(analysis.floor_s[0])
    found = times.add(steps, analysis)
    assert found["idle"] == pytest.approx(1.0 + 4.0), "before the first step, and after the one that left nothing"
    assert found["between_steps"] == pytest.approx(2.0)
    assert found["not_recorded"] == pytest.approx(8.0)
    assert found["memory"] == pytest.approx(3 * floor_s)
    assert found["beyond_floor"] == pytest.approx(0.3 - 3 * floor_s)
    assert found["not_modelled"] == 0


def test_an_engine_with_requests_is_not_idle_by_the_clock() -> None:
    times = TimeParts(START_S, empty_table())
    times.add(table([(0.0, 0.1, 1, True, 1)]), None)
    assert times.rest_until(START_S + 5.0) == {}
    assert times.end_at(START_S + 5.0) == {"not_recorded": pytest.approx(4.9)}


def totals_of(batch: Batch, analysis: StepAnalysis | None = None, source: SourceKind = SourceKind.RING) -> EngineTotals:
    totals = EngineTotals(KEY, 50.0)
    totals.begin_run(source, START_S, empty_table(), 50.0)
    totals.add(batch, analysis, 60.0)
    return totals


def read(totals: EngineTotals, metric: Metric, *labels: str) -> float | HistogramValue:
    (found,) = [s.value for s in totals.samples() if s.metric is metric and s.labels == (*KEY, *labels)]
    return found


def test_what_a_read_brings_is_counted_once() -> None:
    steps = table(
        [(0.0, 0.0009, 1, True, 1), (0.0, 0.003, 1, True, 1), (0.0, 0.25, 1, False, 1), (0.0, 0.003, 1, True, 0)]
    )
    ended = RingEvent(9, 1.0, "requests_ended", {"finished_requests": 3})
    totals = totals_of(Batch(None, steps, (ended,), lost_steps=2, torn_steps=1), ROOFLINE.analyse(steps))
    assert read(totals, metrics.STEPS, "decode") == 3
    assert read(totals, metrics.STEPS, "prefill") == 1
    assert read(totals, metrics.TOKENS, "generated") == 8
    assert read(totals, metrics.BATCH_SUM) == 8
    assert read(totals, metrics.CONTEXT_SUM) == 1200
    assert read(totals, metrics.FINISHED) == 3
    assert read(totals, metrics.LOST) == 3
    histogram = read(totals, metrics.STEP_SECONDS, "decode")
    assert isinstance(histogram, HistogramValue)
    assert sum(histogram.counts) == 2, "the step whose time is not known is in no bucket"
    assert histogram.counts[0] == 1, "all below the first bound"
    assert histogram.total == pytest.approx(0.0039)
    assert read(totals, metrics.COMPARED) == pytest.approx(0.0069)
    created = {s.metric.name: s.created_unix_s for s in totals.samples()}
    assert (created[metrics.STEPS.name], created[metrics.FLOOR.name]) == (50.0, 60.0)


def test_a_bound_belongs_to_its_bucket() -> None:
    bound = metrics.STEP_BUCKETS_S[4]
    totals = totals_of(Batch(None, table([(0.0, bound, 1, True, 1), (0.0, 1e9, 1, True, 1)])))
    histogram = read(totals, metrics.STEP_SECONDS, "decode")
    assert isinstance(histogram, HistogramValue)
    assert (histogram.counts[4], histogram.counts[-1]) == (1, 1)


@pytest.mark.parametrize("several", [20, 1])
def test_a_page_tells_how_many_steps_and_not_how_their_times_spread(several: int) -> None:
    rows = table([(0.0, 0.1, 1, True, 1)], several=several)
    totals = totals_of(Batch(None, rows), source=SourceKind.METRICS)
    assert read(totals, metrics.STEPS, "decode") == several
    assert {metrics.STEP_SECONDS.name, metrics.HOOK.name}.isdisjoint(s.metric.name for s in totals.samples())
    totals.begin_run(SourceKind.RING, START_S, empty_table(), 70.0)
    totals.add(Batch(None, table([(0.0, 0.1, 1, True, 1)])), None, 71.0)
    histogram = read(totals, metrics.STEP_SECONDS, "decode")
    assert isinstance(histogram, HistogramValue)
    assert sum(histogram.counts) == 1


def test_what_a_page_does_not_tell_lies_between_no_steps() -> None:
    """Five seconds with a second of steps: idle where nothing ran at both ends, else not known what."""
    for running, part, other in ((0, "idle", "not_recorded"), (3, "not_recorded", "idle")):
        for several in (20, 1):
            rows = table([(0.0, 1.0, running, True, 1)], start_s=START_S + 4.0, several=several)
            rows.columns["submit_monotonic_s"][:] = START_S
            found = TimeParts(START_S, empty_table(), intervals=True).add(rows, None)
            assert (found["not_modelled"], found[part], found[other]) == (1.0, 4.0, 0.0)
            assert found.get("between_steps", 0.0) == 0
    unknown = StepTable({n: c for n, c in rows.columns.items() if n not in ("running", "waiting")})
    assert TimeParts(START_S, empty_table(), intervals=True).add(unknown, None)["not_recorded"] == 4.0


def test_a_sum_begins_when_it_is_known_and_a_zero_says_that_there_was_none() -> None:
    def labels(totals: EngineTotals, metric: Metric) -> set[str]:
        return {s.labels[-1] for s in totals.samples() if s.metric is metric}

    full = table([(0.0, 0.1, 1, True, 1)])
    hidden = ("running", "context_tokens", "prefill_tokens")
    bare = StepTable({n: c for n, c in full.columns.items() if n not in hidden}, full.known)
    totals = totals_of(Batch(None, bare))
    assert labels(totals, metrics.TOKENS) == {"generated"}
    assert labels(totals, metrics.TIME) == {"not_modelled", "not_recorded", "between_steps"}
    assert metrics.CONTEXT_SUM not in {s.metric for s in totals.samples()}
    later = table([(0.0, 0.1, 1, True, 1)], start_s=START_S + 1)
    totals.add(Batch(None, later), ROOFLINE.analyse(later), 61.0)
    assert labels(totals, metrics.TOKENS) == {"generated", "prefill"}
    assert read(totals, metrics.TOKENS, "prefill") == 0
    assert labels(totals, metrics.TIME) == {*metrics.TIME_PARTS}
    assert read(totals, metrics.CONTEXT_SUM) == 300
    no_rate = replace(ROOFLINE.analyse(later), compute_known=False)
    assert "compute" not in labels(totals_of(Batch(None, later), no_rate), metrics.TIME)


def test_what_was_told_before_we_watched_begins_at_zero() -> None:
    totals = EngineTotals(KEY, 50.0)
    totals.begin_run(SourceKind.RING, START_S, table([(0.0, 0.1, 1, True, 1)]), 50.0)
    assert read(totals, metrics.TOKENS, "generated") == 0
    assert read(totals, metrics.BATCH_SUM) == 0


def test_every_sample_fits_the_catalogue() -> None:
    steps = table([(0.0, 0.1, 1, True, kind) for kind in range(7)])
    for sample in totals_of(Batch(None, steps), ROOFLINE.analyse(steps)).samples():
        assert sample.metric in CATALOGUE
        assert len(sample.labels) == len(sample.metric.labels)
        for name, label in zip(sample.metric.labels, sample.labels, strict=True):
            assert label in sample.metric.values.get(name, (label,))
        assert (sample.created_unix_s is None) == (sample.metric.kind not in ("counter", "histogram"))


def test_a_finding_costs_while_it_fires() -> None:
    totals = totals_of(Batch(None, empty_table()))
    finding = Finding(
        Code.KV_PRESSURE, Severity.WARNING, Status.FIRING, "x", price=Price(2.5, 10.0, 1.0, 3.0, "made up")
    )
    totals.judged([finding, replace(finding, status=Status.CLEARED), replace(finding, price=None)])
    totals.judged([finding])
    totals.raised([Code.KV_PRESSURE])
    assert read(totals, metrics.FINDING_COST, "kv_pressure") == 5.0
    assert read(totals, metrics.FINDINGS_RAISED, "kv_pressure") == 1


def test_another_source_of_the_same_engine_is_no_restart() -> None:
    totals = totals_of(Batch(None, empty_table()))
    totals.begin_run(SourceKind.METRICS, START_S, empty_table(), 70.0)
    assert read(totals, metrics.RESTARTS) == 0
    totals.begin_run(SourceKind.METRICS, START_S, empty_table(), 80.0)
    assert read(totals, metrics.RESTARTS) == 1


def test_the_one_dead_for_the_longest_makes_room() -> None:
    totals = Totals(most_engines=3)
    for name in "abc":
        totals.of((name, "0"), 1.0).end_run(1.0)
    totals.of(("a", "0"), 2.0).begin_run(SourceKind.RING, 2.0, empty_table(), 2.0)  # it comes back
    totals.of(("d", "0"), 3.0)
    keys = [(name, "0") for name in "abcd"]
    assert {sample.labels[0] for sample in totals.samples(keys)} == {"a", "c", "d"}


WHOLE = st.sampled_from([-(2**63), -5, -1, 0, 1, 7, 2**32 - 1, 2**62, 2**63 - 1])
REAL = st.sampled_from([float("nan"), float("inf"), float("-inf"), -1e308, -1.0, 0.0, 1e-3, 2.0, 1e308])


@st.composite
def hostile(draw: st.DrawFn) -> StepTable:
    """A table of any column with anything in it, some of it not known."""
    rows = draw(st.integers(1, 4))
    names = {*draw(st.sets(st.sampled_from(sorted(COLUMN_KINDS)))), "output_monotonic_s", "submit_monotonic_s"}
    columns, known = {}, {}
    for name in sorted(names):
        whole = COLUMN_KINDS[name] == "i"
        values = draw(st.lists(WHOLE if whole else REAL, min_size=rows, max_size=rows))
        columns[name] = np.array(values, dtype=np.int64 if whole else np.float64)
        known[name] = np.array(draw(st.lists(st.booleans(), min_size=rows, max_size=rows)))
    return StepTable(columns, known)


def rising(totals: EngineTotals) -> dict[tuple[str, ...], float]:
    found: dict[tuple[str, ...], float] = {}
    for sample in totals.samples():
        if isinstance(sample.value, HistogramValue):
            found[(sample.metric.name, *sample.labels, "sum")] = sample.value.total
            found |= {(sample.metric.name, *sample.labels, str(i)): n for i, n in enumerate(sample.value.counts)}
        else:
            found[(sample.metric.name, *sample.labels)] = sample.value
    return found


@settings(max_examples=60, deadline=None)
@given(st.lists(hostile(), min_size=1, max_size=4), st.sampled_from(list(SourceKind)))
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of NumPy, for numbers that are none
def test_a_counter_never_falls(tables: list[StepTable], source: SourceKind) -> None:
    totals = EngineTotals(KEY, 50.0)
    totals.begin_run(source, START_S, empty_table(), 50.0)
    before = rising(totals)
    for number, steps in enumerate(tables):
        totals.add(Batch(None, steps), None, 60.0 + number)
        after = rising(totals)
        assert {key: value for key, value in before.items() if not after[key] >= value} == {}
        assert [key for key, value in after.items() if not np.isfinite(value)] == []
        before = after


def test_what_cannot_be_counted_is_left_out_and_said() -> None:
    steps = table([(0.0, 0.1, 1, True, 1)] * 3)
    columns = {**steps.columns, "generated_tokens": np.array([2, -50, 3]), "hook_s": np.array([1.0, np.nan, 2.0])}
    totals = totals_of(Batch(None, StepTable(columns, steps.known)))
    assert read(totals, metrics.TOKENS, "generated") == 5
    assert read(totals, metrics.HOOK) == 3.0
    assert totals.problem is not None
    assert metrics.TOKENS.name in totals.problem
    assert "(2 so far)" in totals.problem
    totals.begin_run(SourceKind.RING, START_S, empty_table(), 70.0)
    assert totals.problem is None, "of this run"


class AsOfMany(TimeParts):
    """Splits one interval as it splits many."""

    def _add_one(self, steps: StepTable, analysis: StepAnalysis | None) -> None:
        return None


INTERVAL = st.tuples(
    st.floats(-1.0, 3.0),
    st.floats(-0.5, 2.0),
    st.integers(0, 2),
    st.booleans(),
    st.sampled_from([0, 1, 2, 6]),
    st.sets(st.sampled_from(["observed_s", "submit_monotonic_s", "running", "waiting", "deferred"])),
    st.booleans(),
    st.sampled_from([0, 3]),
)


@settings(max_examples=80, deadline=None)
@given(st.lists(INTERVAL, min_size=1, max_size=6), st.floats(0.0, 2.0))
def test_one_interval_is_split_as_many_are(
    intervals: list[tuple[float, float, int, bool, int, set[str], bool, int]], late_s: float
) -> None:
    one, many = (kind(START_S + late_s, empty_table(), intervals=True) for kind in (TimeParts, AsOfMany))
    start_s = START_S
    for pause, busy, running, timed, kind, missing, modelled, waiting in intervals:
        row = table([(pause, busy, running, timed, kind)], start_s, several=40)
        columns = {name: column for name, column in row.columns.items() if name not in missing}
        if "waiting" in columns:
            columns["waiting"] = np.array([waiting])
        row = StepTable(columns, {name: mask for name, mask in row.known.items() if name in columns})
        analysis = ROOFLINE.analyse(row) if modelled else None
        start_s = float(row["output_monotonic_s"][-1])
        assert one.add(row, analysis) == pytest.approx(many.add(row, analysis), abs=1e-9)
        assert one.until_s == many.until_s
        assert one.rest_until(start_s + 0.5) == many.rest_until(start_s + 0.5)


def test_an_interval_with_odd_figures_is_split_as_many_are() -> None:
    row = table([(0.5, 0.5, 1, True, 1)], several=40)
    odd = StepTable({**row.columns, "observed_s": np.array([np.inf])}, row.known)
    one, many = (kind(START_S, empty_table(), intervals=True) for kind in (TimeParts, AsOfMany))
    assert one.add(odd, None) == many.add(odd, None)
