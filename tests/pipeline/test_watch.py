"""A Watch over real rings: engines come, go, die, restart; what was before the sidecar is never counted."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from made_engine import MadeEngine, made_engine

from rooflens import catalogue as metrics
from rooflens.analyzer.hardware import find_hardware
from rooflens.analyzer.roofline import Roofline
from rooflens.findings import Code, Finding, Severity, Status
from rooflens.live_records import EngineView, Snapshot, State
from rooflens.metric_records import HistogramValue, Kind, Metric
from rooflens.pipeline import watch as watch_module
from rooflens.pipeline.watch import Watch
from rooflens.records import RooflensError

MakeWatch = Callable[..., Watch]


def value(snapshot: Snapshot, metric: Metric, *labels: str) -> float:
    """The one sample of a metric whose last labels are these."""
    (found,) = [
        s.value
        for s in snapshot.samples
        if s.metric.name == metric.name and s.labels[len(s.labels) - len(labels) :] == labels
    ]
    assert isinstance(found, float)
    return found


def steps_seen(snapshot: Snapshot) -> float:
    return sum(s.value for s in snapshot.samples if s.metric.name == metrics.STEPS.name and isinstance(s.value, float))


def one(snapshot: Snapshot) -> EngineView:
    (view,) = snapshot.engines
    return view


def test_nothing_there_is_a_snapshot_of_nothing(watch: MakeWatch) -> None:
    snapshot = watch().turn()
    assert (snapshot.number, snapshot.engines, snapshot.problems) == (1, (), ())
    assert value(snapshot, metrics.SOURCES_UP, "ring") == 0


def test_a_missing_folder_may_appear_later(watch: MakeWatch, folder: Path) -> None:
    later = folder / "later"
    it = watch(folders=(later,))
    assert it.turn().problems == ()
    with made_engine(later) as engine:
        engine.steps(10)
        assert steps_seen(it.turn()) == 10


def test_an_unfit_folder_is_one_line_and_the_other_is_read(watch: MakeWatch, folder: Path) -> None:
    open_to_all, good = folder / "open", folder / "good"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    it = watch(folders=(open_to_all, good))
    with made_engine(good) as engine:
        engine.steps(10)
        snapshot = it.turn()
        assert steps_seen(snapshot) == 10
        assert len(snapshot.problems) == 1
        assert "can be written by other users" in snapshot.problems[0]


def test_engines_come_and_go(watch: MakeWatch, folder: Path) -> None:
    it = watch()
    with made_engine(folder) as first, made_engine(folder, rank=1) as second:
        first.steps(10)
        second.steps(20)
        snapshot = it.turn()
        assert [(v.engine, v.state) for v in snapshot.engines] == [("0", State.LIVE), ("1", State.LIVE)]
        assert [value(snapshot, metrics.STEPS, "llama", rank, "decode") for rank in "01"] == [10, 20]
        first.steps(5)
        first.end()
        second.kill()
        snapshot = it.turn()
        assert [(v.engine, v.state) for v in snapshot.engines] == [("0", State.ENDED), ("1", State.DIED)]
        assert value(snapshot, metrics.STEPS, "llama", "0", "decode") == 15, "what it did last is read"
        assert value(snapshot, metrics.ENGINE_UP, "llama", "0") == 0
        assert value(snapshot, metrics.SOURCES_UP, "ring") == 0
        assert it.turn().engines == snapshot.engines, "a dead engine stays in sight and changes no more"


def test_the_dead_go_out_of_sight(watch: MakeWatch, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    it = watch()
    with made_engine(folder) as engine:
        engine.steps(10)
        it.turn()
        engine.kill()
        it.turn()
    monkeypatch.setattr(watch_module, "GONE_KEPT_S", -1.0)
    assert it.turn().engines == ()


def test_what_was_recorded_before_is_shown_and_not_counted(watch: MakeWatch, folder: Path) -> None:
    with made_engine(folder) as dead:
        dead.steps(10)
        dead.kill()
    with made_engine(folder) as engine:
        engine.steps(300)
        it = watch()
        snapshot = it.turn()
        assert steps_seen(snapshot) == 0
        assert one(snapshot).state is State.LIVE
        assert len(one(snapshot).recent) == 300
        assert value(snapshot, metrics.LOST, "llama", "0") == 0
        engine.steps(7)
        snapshot = it.turn()
        assert steps_seen(snapshot) == 7
        assert value(snapshot, metrics.CONTEXT_SUM, "llama", "0") == 7 * 300
        assert value(snapshot, metrics.FLOOR, "llama", "0") > 0, "their lengths are known from what was before"


def test_all_of_it_counts_where_that_is_asked_for(watch: MakeWatch, folder: Path) -> None:
    with made_engine(folder) as engine:
        engine.steps(300)
        assert steps_seen(watch(from_start=True).turn()) == 300


def counters(snapshot: Snapshot) -> dict[tuple[str, tuple[str, ...]], tuple[float, float | None]]:
    """Every counter and every sum and count of a histogram, with the moment it began."""
    found = {}
    for s in snapshot.samples:
        if s.metric.kind is Kind.COUNTER:
            assert isinstance(s.value, float)
            found[s.metric.name, s.labels] = (s.value, s.created_unix_s)
        elif isinstance(s.value, HistogramValue):
            found[s.metric.name + "_sum", s.labels] = (s.value.total, s.created_unix_s)
            found[s.metric.name + "_count", s.labels] = (float(sum(s.value.counts)), s.created_unix_s)
    return found


def test_no_counter_falls_over_a_restart_of_the_engine(watch: MakeWatch, folder: Path) -> None:
    it = watch()
    snapshots = []
    with made_engine(folder) as first:
        first.steps(30)
        snapshots.append(it.turn())
        first.kill()
        snapshots.append(it.turn())
    with made_engine(folder) as second:
        snapshots.append(it.turn())
        second.steps(5)
        snapshots.append(it.turn())
        assert [(v.engine, v.state) for v in snapshots[-1].engines] == [("0", State.LIVE)]
        assert value(snapshots[-1], metrics.STEPS, "llama", "0", "decode") == 35
        assert value(snapshots[-1], metrics.RESTARTS, "llama", "0") == 1
    series = [counters(snapshot) for snapshot in snapshots]
    for before, after in pairwise(series):
        assert set(before) <= set(after)
        assert [name for name in before if after[name][0] < before[name][0] or after[name][1] != before[name][1]] == []


def test_a_restart_before_the_old_ring_was_seen_dead(watch: MakeWatch, folder: Path) -> None:
    it = watch()
    with made_engine(folder) as first:
        first.steps(30)
        it.turn()
        first.kill()
    with made_engine(folder) as second:
        second.steps(5)
        snapshot = it.turn()  # sees the end of the one and the beginning of the other
        assert [(v.engine, v.state) for v in snapshot.engines] == [("0", State.LIVE)]
        assert value(snapshot, metrics.STEPS, "llama", "0", "decode") == 35


def test_two_of_one_rank_have_labels_of_their_own(watch: MakeWatch, folder: Path) -> None:
    it = watch()
    with made_engine(folder) as first, made_engine(folder) as second:
        first.steps(1)
        second.steps(2)
        snapshot = it.turn()
        assert [v.engine for v in snapshot.engines] == ["0", "0.1"]
        assert value(snapshot, metrics.STEPS, "llama", "0.1", "decode") == 2
        assert value(snapshot, metrics.RESTARTS, "llama", "0") == 0


def test_two_sidecars_read_the_same_ring(watch: MakeWatch, folder: Path) -> None:
    one_sidecar, other = watch(), watch()
    with made_engine(folder) as engine:
        engine.steps(10)
        assert steps_seen(one_sidecar.turn()) == steps_seen(other.turn()) == 10
        other.close()
        engine.steps(10)
        snapshot = one_sidecar.turn()
        assert steps_seen(snapshot) == 20
        assert one(snapshot).state is State.LIVE


def test_a_damaged_ring_is_one_line_until_it_is_whole(watch: MakeWatch, folder: Path) -> None:
    it = watch()
    with made_engine(folder) as engine:
        engine.steps(10)
        bad = folder / "bad-00000000-0.ring"
        bad.write_bytes(b"nothing of ours")
        snapshot = it.turn()
        assert steps_seen(snapshot) == 10
        assert snapshot.problems == (f"{bad} is not a rooflens ring: it does not begin like one",)
        assert value(snapshot, metrics.SOURCE_FAILURES, "ring") == 1
        assert value(it.turn(), metrics.SOURCE_FAILURES, "ring") == 1, "it is not opened again while it stays as it is"
        with bad.open("ab") as file:
            file.write(b"and more")
        assert value(it.turn(), metrics.SOURCE_FAILURES, "ring") == 2
        bad.unlink()
        assert it.turn().problems == ()


def test_a_ring_cut_short_while_it_is_read_takes_no_other_with_it(watch: MakeWatch, folder: Path) -> None:
    it = watch()
    with made_engine(folder) as first, made_engine(folder, rank=1) as second:
        first.steps(10)
        second.steps(10)
        it.turn()
        second.steps(10)
        os.truncate(first.path, 300)
        snapshot = it.turn()
        assert [(v.engine, v.state) for v in snapshot.engines] == [("0", State.DIED), ("1", State.LIVE)]
        assert value(snapshot, metrics.STEPS, "llama", "1", "decode") == 20
        assert len(snapshot.problems) == 1
        assert str(first.path) in snapshot.problems[0]


def test_an_unlinked_ring_is_read_for_as_long_as_its_engine_lives(watch: MakeWatch, folder: Path) -> None:
    it = watch()
    with made_engine(folder) as engine:
        engine.steps(10)
        it.turn()
        engine.path.unlink()
        engine.steps(10)
        assert steps_seen(it.turn()) == 20
        engine.end()
        assert one(it.turn()).state is State.ENDED


def test_a_copy_of_an_old_ring_is_not_counted(
    watch: MakeWatch, folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere", numbered=True)
    elsewhere.chmod(0o700)
    with made_engine(elsewhere) as engine:
        engine.steps(10)
        it = watch()
        shutil.copy(engine.path, folder / "copy-00000000-0.ring")
        snapshot = it.turn()
        assert (snapshot.engines, snapshot.problems) == ((), ())


def test_progress_tells_a_step_that_hangs_and_an_engine_that_sleeps(watch: MakeWatch, folder: Path) -> None:
    it = watch()
    with made_engine(folder) as engine:
        engine.steps(10)
        progress = one(it.turn()).progress
        assert progress is not None
        assert (progress.open_age_s, progress.asleep) == (None, False)
        engine.begin((1, 2, 3))
        progress = one(it.turn()).progress
        assert progress is not None
        assert progress.open_age_s is not None
        assert (progress.open_requests, progress.open_tokens) == (3, 3)
        engine.event("sleep")
        progress = one(it.turn()).progress
        assert progress is not None
        assert progress.asleep
        engine.steps(1, step_s=1e-6)
        progress = one(it.turn()).progress
        assert progress is not None
        assert (progress.open_age_s, progress.asleep) == (None, False)


def test_a_sidecar_that_comes_late_knows_that_the_engine_sleeps(watch: MakeWatch, folder: Path) -> None:
    with made_engine(folder) as engine:
        engine.steps(10)
        engine.event("sleep")
        progress = one(watch().turn()).progress
        assert progress is not None
        assert progress.asleep


def windows_of(engine: MadeEngine, it: Watch, count: int) -> Snapshot:
    for _ in range(count):
        engine.steps(30, step_s=0.02)
        snapshot = it.turn()
    return snapshot


def fires(code: Code) -> Finding:
    return Finding(code, Severity.WARNING, Status.FIRING, "made up")


def test_a_rule_that_raises_is_a_line_and_the_others_go_on(
    watch: MakeWatch, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(case: object) -> Finding:
        raise ZeroDivisionError("no floor")

    rules = {Code.KV_PRESSURE: broken, Code.HOST_OVERHEAD: lambda case: fires(Code.HOST_OVERHEAD)}
    monkeypatch.setattr("rooflens.pipeline.engine.RULES", rules)
    it = watch()
    with made_engine(folder) as engine:
        snapshot = windows_of(engine, it, 4)
        assert len(one(snapshot).windows) >= 2
        assert [finding.code for finding in one(snapshot).findings] == [Code.HOST_OVERHEAD]
        assert snapshot.problems == (
            "llama/0: the rule kv_pressure failed (ZeroDivisionError: no floor): please report it",
        )
        assert value(snapshot, metrics.FINDINGS_RAISED, "llama", "0", "host_overhead") == 1
        assert value(snapshot, metrics.FINDING_ACTIVE, "llama", "0", "host_overhead", "warning") == 1
        engine.kill()
        snapshot = it.turn()
        (finding,) = one(snapshot).findings
        assert finding.status is Status.CLEARED, "of a dead engine nothing fires"
        assert finding.until_unix_s is not None


def test_an_engine_whose_roofline_breaks_is_still_counted(watch: MakeWatch, folder: Path) -> None:
    it = watch()
    with made_engine(folder, model_config={"hidden_size": 7}) as engine, made_engine(folder, rank=1) as other:
        engine.steps(10)
        other.steps(10)
        snapshot = it.turn()
        first, second = snapshot.engines
        assert first.problem is not None
        assert (first.recent_analysis, second.problem) == (None, None)
        assert value(snapshot, metrics.TIME, "llama", "0", "not_modelled") == pytest.approx(0.05, rel=1e-6)
        assert steps_seen(snapshot) == 20


def test_without_hardware_the_engine_is_watched_and_says_what_is_missing(watch: MakeWatch, folder: Path) -> None:
    it = watch(hardware=None)
    with made_engine(folder) as engine:
        engine.steps(10)
        view = one(it.turn())
        assert view.problem == "the hardware is not known: give --hardware ID"
        assert view.recent_analysis is None


def test_a_model_that_the_engine_does_not_state_is_taken_from_the_settings(watch: MakeWatch, folder: Path) -> None:
    from made_engine import CONFIG

    with made_engine(folder, model_config=None) as engine:
        it, told = watch(), watch(model_config=CONFIG)
        engine.steps(10)
        unknown = "the model 'llama' is not known by exactly this name: give --model NAME or config.json"
        assert one(it.turn()).problem == unknown
        assert one(told.turn()).problem is None


def test_an_address_that_is_none_is_said_at_once(watch: MakeWatch) -> None:
    with pytest.raises(RooflensError):
        watch(scrape_urls=("ftp://nowhere",))


def test_recent_steps_have_their_own_bounds_beside_them(watch: MakeWatch, folder: Path) -> None:
    """However many steps a turn brings: fewer than are shown, or more."""
    it = watch()
    with made_engine(folder) as engine:
        for count in (7, 300, 800, 3):
            for number in range(3):
                engine.steps(count // 3, contexts=(10 * count + number, 5))
            view = one(it.turn())
            assert view.recent_analysis is not None
            assert len(view.recent) == len(view.recent_analysis.modelled) <= 512
            own = Roofline.of(view.info, view.hardware).analyse(view.recent)  # type: ignore[arg-type]
            assert view.recent_analysis.floor_s.tolist() == pytest.approx(own.floor_s.tolist(), nan_ok=True)
            assert set(view.recent_analysis.group_s) == set(own.group_s)
            for name, column in own.group_bytes.items():
                found = view.recent_analysis.group_bytes[name].tolist()
                assert found == pytest.approx(column.tolist(), nan_ok=True)


def test_expected_and_reachable_seconds_are_counted_beside_the_floor(watch: MakeWatch, folder: Path) -> None:
    it = watch()
    with made_engine(folder) as engine:
        engine.steps(100)
        snapshot = it.turn()
        analysis = one(snapshot).recent_analysis
        assert analysis is not None
        assert analysis.reachable_s is not None
        floor_s, expected_s, reachable_s = (
            value(snapshot, metric) for metric in (metrics.FLOOR, metrics.EXPECTED, metrics.REACHABLE)
        )
        assert floor_s == expected_s == pytest.approx(analysis.floor_s.sum())
        assert reachable_s == pytest.approx(analysis.reachable_s.sum())
        assert floor_s < reachable_s


def test_on_a_roof_that_was_measured_nothing_is_said_to_be_reachable(watch: MakeWatch, folder: Path) -> None:
    it = watch(hardware=replace(find_hardware("h100-sxm5-80"), origin="measured"))
    with made_engine(folder) as engine:
        snapshot = windows_of(engine, it, 1)
        assert not [sample for sample in snapshot.samples if sample.metric is metrics.REACHABLE]
        assert value(snapshot, metrics.EXPECTED) > 0
        assert (one(snapshot).windows[-1].reachable_s, one(snapshot).regimes) == (None, ())


def test_the_windows_teach_what_a_regime_usually_takes(watch: MakeWatch, folder: Path) -> None:
    it = watch()
    with made_engine(folder) as engine:
        usual = one(windows_of(engine, it, 1)).recent_analysis
        assert usual is not None
        assert usual.reachable_s is not None
        reachable_s = float(usual.reachable_s[0])
        assert one(it.snapshot).regimes == (), "a step of 20 ms is below the floor: that teaches nothing"
        for step_s, ready in ((1.25 * reachable_s, False), (1.25 * reachable_s, True)):
            before = one(it.snapshot).windows
            while not one(it.snapshot).regimes or ready > one(it.snapshot).regimes[0].ready:
                engine.steps(25, step_s=step_s)
                it.turn()
            (regime,) = one(it.snapshot).regimes
            assert regime.ready is ready
            assert one(it.snapshot).windows != before
        engine.steps(50, step_s=1.25 * reachable_s)
        window = one(it.turn()).windows[-1]
        decode = window.kinds["decode"]
        assert regime.ratio == pytest.approx(1.25, rel=0.01)
        assert decode.usual_s == pytest.approx(decode.compared_s, rel=0.01)
        assert window.reachable_s == pytest.approx((window.compared_s or 0.0) / 1.25, rel=0.01), "it stays as it is"
