"""Two sides with known differences: found, found absent, or not told, at the stated rates."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from made_runs import HOST_S, made_run, made_steps

from rooflens.analyzer.diff.compare import compare
from rooflens.analyzer.diff.facts import differing, other_work
from rooflens.analyzer.diff.result import Change, Comparison, Verdict
from rooflens.analyzer.diff.steps import LEAST_STEPS, Run, regime_name, relative, run_of
from rooflens.analyzer.diff.verdict import RUN_FLOOR, Thresholds, judged
from rooflens.records import EngineInfo, StepKind, StepTable

QUICK = Thresholds(draws=80)


def term(found: Comparison, name: str) -> Verdict:
    return next(each.verdict for each in found.terms if each.name == name)


def test_the_interval_covers_the_true_change_as_often_as_it_says() -> None:
    """95 % intervals; the runs differ by as much as the floor says that runs do. The standard error of 120 is 2 %."""
    covered, worse = 0, 0
    for seed in range(120):
        a = made_run(2 * seed, steps=160, run_sd=RUN_FLOOR)
        b = made_run(2 * seed + 1, steps=160, run_sd=RUN_FLOOR, slower=0.05)
        found = compare([a], [b], Thresholds(draws=60))
        assert found.change is not None
        covered += found.change.low_ratio <= 0.05 * (1 - HOST_S / 0.012) <= found.change.high_ratio
        worse += found.verdict is Verdict.WORSE
    assert covered >= 108
    assert worse >= 84  # what 160 steps allow


@pytest.mark.parametrize("seed", range(6))
def test_another_mix_of_traffic_is_no_change_of_the_engine(seed: int) -> None:
    """Larger batches and longer contexts within the same regimes: the plain mean is 3 % longer, the engine the same."""
    a = made_run(seed, steps=600, batch=(4, 7), context=(256, 700))
    b = made_run(seed + 100, steps=600, batch=(6, 8), context=(500, 1000), prefill=0.3)
    found = compare([a], [b], QUICK)
    assert found.verdict is Verdict.SAME
    assert found.change is not None
    assert abs(found.change.ratio) < 0.02
    decode = found.regimes[0]
    assert decode.mean_b_s > 1.03 * decode.mean_a_s


def test_host_time_between_steps_is_found_where_the_whole_lies_in_the_noise() -> None:
    a = made_run(1, jitter=0.05, correlation=0.9, run_sd=0.0)
    b = made_run(2, jitter=0.05, correlation=0.9, run_sd=0.0, slower=-0.02, host_s=HOST_S + 0.0005)
    found = compare([a], [b], replace(QUICK, run_floor=0.03))
    assert (found.verdict, found.decided_by) == (Verdict.WORSE, "host, between steps")
    moved = found.terms[0].change
    assert moved is not None
    assert 0.028 < moved.ratio < 0.045


def test_slower_kv_reads_are_named() -> None:
    """A third more for each token in the cache, of which there are many; nothing else moved."""
    settings = {"steps": 1500, "context": (300, 4000), "jitter": 0.01}
    found = compare([made_run(3, **settings)], [made_run(4, kv=0.3, **settings)], QUICK)
    assert found.verdict is Verdict.WORSE
    assert term(found, "KV") is Verdict.WORSE
    assert term(found, "compute") is not Verdict.WORSE
    assert term(found, "host, between steps") is Verdict.SAME


def test_several_runs_a_side_measure_how_far_runs_differ() -> None:
    """Runs that differ by 6 % make the floor of 1 % a wrong guess, which their spread corrects."""
    sides = [[made_run(10 * side + at, steps=200, run_sd=0.06) for at in range(5)] for side in (1, 2)]
    several, alone = compare(*sides, QUICK), compare(sides[0][:1], sides[1][:1], QUICK)
    assert several.change is not None
    assert alone.change is not None
    alike = compare(*[[made_run(10 * s + at, steps=200) for at in range(5)] for s in (1, 2)], QUICK)
    assert alike.change is not None
    assert several.change.noise_ratio > 1.5 * alike.change.noise_ratio
    assert alike.change.noise_ratio < alone.change.noise_ratio


def test_what_runs_differ_by_is_not_hidden_by_the_guess() -> None:
    """Starts that differ by 3 %: three runs a side cover the truth, which they did in 67 % beside a guess of 1 %."""
    covered = 0
    for seed in range(40):
        sides = [[made_run(1000 * seed + 500 * side + at, steps=80, run_sd=0.03) for at in range(3)] for side in (0, 1)]
        change = compare(*sides, Thresholds(draws=30)).change
        assert change is not None
        covered += change.low_ratio <= 0 <= change.high_ratio
    assert covered >= 34  # of 40: 95 % less two standard errors


def test_a_run_that_drifts_tells_of_what_the_next_may_be() -> None:
    """Each run moves by some 8 % from its start to its end, and they start alike: no change of the engine."""

    def drifting(seed: int) -> Run:
        table = made_steps(seed, steps=300)
        end = np.random.default_rng(seed).normal(0, 0.08)
        observed = table["observed_s"] * np.exp(np.linspace(0, end, len(table)))
        run = run_of("drifting", StepTable({**table.columns, "observed_s": observed}))
        assert run is not None
        return run

    verdicts = [compare([drifting(2 * n)], [drifting(2 * n + 1)], QUICK).verdict for n in range(12)]
    assert sum(each in (Verdict.WORSE, Verdict.BETTER) for each in verdicts) <= 1


def stalling(seed: int, part: float, times: float) -> Run:
    """``part`` of the steps take so many ``times`` as long."""
    table = made_steps(seed, steps=600)
    stalled = np.random.default_rng(seed + 999).random(len(table)) < part
    run = run_of("x", StepTable({**table.columns, "observed_s": table["observed_s"] * np.where(stalled, times, 1.0)}))
    assert run is not None
    return run


@pytest.mark.parametrize(("part", "times"), [(0.05, 3.0), (0.2, 1.5), (0.1, 2.0), (0.02, 8.0)])
def test_pauses_are_never_the_same(part: float, times: float) -> None:
    """The mean step is 10 % longer and more; one run cannot say whose pauses they are, three a side can."""
    one = compare([stalling(1, 0, 1)], [stalling(2, part, times)], QUICK)
    assert one.verdict is Verdict.CANNOT_TELL
    sides = [stalling(n, 0, 1) for n in range(3)], [stalling(10 + n, part, times) for n in range(3)]
    several = compare(*sides, QUICK)
    assert (several.verdict, several.decided_by) == (Verdict.WORSE, "slow steps")
    assert several.deciding is next(each.change for each in several.terms if each.name == "slow steps")


def test_runs_of_another_pace_are_no_slow_steps() -> None:
    sides = [[made_run(10 * side + at, steps=200, run_sd=0.04) for at in range(3)] for side in (1, 2)]
    assert term(compare(*sides, QUICK), "slow steps") is Verdict.SAME


def test_the_same_lies_within_the_margin_and_says_so() -> None:
    found = compare([made_run(1, steps=800)], [made_run(2, steps=800, slower=0.02)], QUICK)
    assert found.verdict is Verdict.SAME
    assert found.change is not None
    assert found.mean_change is not None
    assert found.within_ratio == max(found.change.high_ratio, found.mean_change.high_ratio)
    for ratio, half in ((0.1, 0.14), (0.0, 0.101), (-0.09, 0.095)):
        assert judged(Change(ratio, ratio - half, ratio + half), QUICK) is Verdict.CANNOT_TELL
    assert judged(Change(0.01, -0.07, 0.09), QUICK) is Verdict.SAME


@pytest.mark.parametrize(("slower", "expected"), [(0.0, Verdict.SAME), (0.08, Verdict.WORSE)])
def test_contexts_that_hardly_overlap_are_compared_by_a_shared_slope(slower: float, expected: Verdict) -> None:
    found = compare([made_run(1)], [made_run(2, context=(600, 2500), slower=slower)], QUICK)
    assert found.verdict is expected
    assert found.regimes[0].name.endswith("any context")
    far = compare([made_run(1)], [made_run(2, context=(6000, 25000))], QUICK)
    assert far.verdict is Verdict.CANNOT_TELL


def test_the_sides_are_alike() -> None:
    """To swap them turns the change around."""
    a, b = made_run(5), made_run(6, slower=0.08)
    there, back = compare([a], [b], QUICK), compare([b], [a], QUICK)
    assert there.change is not None
    assert back.change is not None
    assert (there.verdict, back.verdict) == (Verdict.WORSE, Verdict.BETTER)
    assert (1 + there.change.ratio) * (1 + back.change.ratio) == pytest.approx(1, abs=0.01)


def test_a_machine_that_others_use_is_not_judged() -> None:
    """Half of the steps take two to four times as long: an engine's own fault or its neighbours', nobody can say."""
    table = made_steps(7)
    random = np.random.default_rng(0)
    slow = np.where(random.random(len(table)) < 0.5, random.uniform(2, 4, len(table)), 1.0)
    run = run_of("disturbed", StepTable({**table.columns, "observed_s": table["observed_s"] * slow}))
    assert run is not None
    found = compare([made_run(8)], [run], QUICK)
    assert found.verdict is Verdict.CANNOT_TELL
    assert "disturbed" in found.why


def test_the_same_recording_twice_is_said_to_be_that() -> None:
    found = compare([made_run(9)], [made_run(9)])
    assert found.verdict is Verdict.SAME
    assert found.identical
    assert found.change is not None
    assert found.change.ratio == found.change.noise_ratio == 0


def test_too_few_steps_cannot_be_told() -> None:
    found = compare([made_run(1)], [made_run(2, steps=LEAST_STEPS - 1)])
    assert found.verdict is Verdict.CANNOT_TELL
    assert found.change is None
    assert found.why.startswith("B has no run")


def test_no_regime_in_common_cannot_be_told() -> None:
    found = compare([made_run(1, prefill=0)], [made_run(2, batch=(40, 60), prefill=0)])
    assert found.verdict is Verdict.CANNOT_TELL
    assert "no regime in common" in found.why


def test_little_in_common_cannot_be_told() -> None:
    """A tenth of B's steps have batches that A has; the others have not."""
    parts = made_steps(1, steps=60, prefill=0), made_steps(2, steps=540, batch=(40, 60), prefill=0)
    b = StepTable({name: np.concatenate([part[name] for part in parts]) for name in parts[0].columns})
    run = run_of("b", b)
    assert run is not None
    found = compare([made_run(3, prefill=0)], [run], QUICK)
    assert found.verdict is Verdict.CANNOT_TELL
    assert "in regimes" in found.why


@pytest.mark.parametrize("missing", ["kind", "requests", "observed_s"])
def test_a_recording_without_kind_batch_or_time_is_no_run(missing: str) -> None:
    table = made_steps(1)
    assert run_of("x", StepTable({name: column for name, column in table.columns.items() if name != missing})) is None


def test_unknown_cells_are_left_out_and_counted() -> None:
    table = made_steps(1)
    known = np.arange(len(table)) % 10 != 0
    observed = np.where(known, table["observed_s"], np.nan)
    run = run_of("x", StepTable({**table.columns, "observed_s": observed}, {"observed_s": known}))
    assert run is not None
    assert (len(run), run.left_out) == (360, 40)
    assert np.isfinite(run.step_s).all()
    found = compare([made_run(2)], [run], QUICK)
    assert found.verdict is Verdict.SAME


def test_without_contents_and_stamps_the_regimes_alone_are_compared() -> None:
    bare = ("kind", "requests", "observed_s", "context_tokens")
    runs = [
        run_of(str(seed), StepTable({name: made_steps(seed, slower=slower)[name] for name in bare}))
        for seed, slower in ((1, 0.0), (2, 0.2))
    ]
    assert runs[0] is not None
    assert runs[1] is not None
    found = compare([runs[0]], [runs[1]], QUICK)
    assert found.verdict is Verdict.WORSE
    assert term(found, "host, between steps") is Verdict.CANNOT_TELL


def test_a_rest_without_requests_and_lost_steps_are_no_host_time() -> None:
    table = made_steps(1, steps=100, host_s=0.001)
    columns = {name: column.copy() for name, column in table.columns.items()}
    for name in ("submit_monotonic_s", "output_monotonic_s"):
        columns[name][50:] += 100.0  # a rest before step 50, lost steps before step 70
        columns[name][70:] += 100.0
    columns["running"][49] = 0
    columns["sequence"][70:] += 500
    run = run_of("x", StepTable(columns))
    assert run is not None
    assert run.between_s[[50, 70]].tolist() == [0.0, 0.0]
    assert run.between_s[[49, 71]] == pytest.approx([0.001, 0.001])


def test_a_host_that_the_device_waits_for_is_told_by_device_time() -> None:
    def timed(seed: int, share: float) -> Run:
        table = made_steps(seed)
        run = run_of("x", StepTable({**table.columns, "device_s": share * table["observed_s"]}))
        assert run is not None
        return run

    found = compare([timed(1, 0.95)], [timed(2, 0.85)], QUICK)
    assert term(found, "host, beside the device") is Verdict.WORSE
    assert term(found, "work") is Verdict.BETTER


def test_relative_times_are_in_parts_of_what_is_reachable() -> None:
    table = made_steps(1)
    run = run_of("x", table, 0.5 * table["observed_s"])
    assert run is not None
    parts = relative(run)
    assert parts is not None
    assert parts.step_s - parts.between_s == pytest.approx(np.full(len(run), 2.0))
    assert relative(made_run(1)) is None


def test_regimes_read_as_a_person_says_them() -> None:
    assert regime_name(StepKind.DECODE * 10_000 + 2 * 100 + 3) == "decode, batch 4-7, context 64-255"
    assert regime_name(StepKind.PREFILL * 10_000) == "prefill, batch 1, context 0-3"


def test_facts_that_differ_are_candidates() -> None:
    a = EngineInfo("a", "vllm", "0.31.0", model_name="m", tensor_parallel=1, graph_mode="FULL")
    b = replace(a, instance="b", engine_version="0.32.0", tensor_parallel=2, graph_mode=None)
    found = differing([a], [b])
    assert [(each.name, each.a, each.b) for each in found] == [
        ("version", "0.31.0", "0.32.0"),
        ("tensor parallel", "1", "2"),
        ("graphs", "FULL", None),
    ]
    assert other_work(found) == []
    assert other_work(differing([a], [replace(a, model_name="n")], ("h100",), ("h200",))) == ["hardware", "model"]
    assert differing([a], []) == ()
