"""What a sidecar learned outlives it, and nothing crosses a change of machine, engine, version or configuration."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_engine import CONFIG, MadeEngine, made_engine

from rooflens.analyzer.baseline import Baseline
from rooflens.analyzer.correction import KEPT_WINDOWS, READY_WINDOWS, Correction, Regime
from rooflens.analyzer.hardware import find_hardware
from rooflens.collector.state.key import DECISIVE, StateKey, key_of, machine_key
from rooflens.pipeline import memory as memory_module
from rooflens.pipeline.engine import WatchedEngine
from rooflens.pipeline.learned import MOST_REGIMES, MOST_RUNS, Learned, Span, learned_data, learned_from_data
from rooflens.pipeline.memory import SAVE_EVERY_S, Memory, learned_files
from rooflens.pipeline.watch import Watch
from rooflens.records import EngineInfo, KVGroup, RooflensError

MakeWatch = Callable[..., Watch]
HARDWARE = find_hardware("h100-sxm5-80")
REGIME = Regime("decode", 1, 3)
KEY = StateKey("machine", "made-up", "1.0", "0123456789abcdef")
INFO = EngineInfo("i", "made-up", engine_version="1.0", model_config=CONFIG, host="h", pod="p", start_unix_s=1.0)


def window(end_unix_s: float = 1000.0, step_s: float = 0.02, regime: Regime = REGIME) -> Learned:
    """What one window of 100 steps teaches, of which 1.0 s is reachable."""
    times = {regime: (100 * step_s, 1.0)}
    return Learned(Correction().learned(times), Baseline().learned(end_unix_s, {regime: step_s}, times))


def engine_of(watch: Watch) -> WatchedEngine:
    (found,) = watch._engines.values()
    return found


def watch_windows(watch: Watch, engine: MadeEngine, count: int) -> None:
    """Turns over so many stretches of 100 steps of 100 ms each."""
    watch.turn()
    for _ in range(count):
        engine.steps(101, step_s=0.1)
        watch.turn()


def test_a_restart_keeps_what_was_learned(watch: MakeWatch, folder: Path) -> None:
    """Of the sidecar and of the engine: the first window of the second run is judged by what the first run taught."""
    state = folder / "state"
    facts = {"max_sequences": 8}
    with made_engine(folder / "rings", **facts) as engine:
        first = watch(folders=(folder / "rings",), state=state)
        watch_windows(first, engine, READY_WINDOWS + 2)
        (taught,) = first.snapshot.engines[0].regimes
        assert taught.ready
        assert first.snapshot.problems == ()
        first.close()
    with made_engine(folder / "rings", **facts) as engine:
        second = watch(folders=(folder / "rings",), state=state)
        second.turn()
        (view,) = [view for view in second.snapshot.engines if view.state == "live"]
        assert view.regimes == (taught,)
        engine.steps(101, step_s=0.1)
        (view,) = [view for view in second.turn().engines if view.state == "live"]
        assert view.windows[-1].kinds["decode"].usual_s == pytest.approx(
            (taught.ratio or 0.0) * (view.windows[-1].kinds["decode"].reachable_s or 0.0)
        )
        (usual,) = engine_of(second)._memory.baseline.regimes.values()
        assert usual.windows == view.regimes[0].windows > taught.windows
        assert usual.step_s == pytest.approx(0.1, rel=0.01)
        second.close()
    with made_engine(folder / "rings", **facts) as engine:
        engine.steps(10)
        assert watch(folders=(folder / "rings",)).turn().engines[0].regimes == (), "without a folder nothing is kept"


def test_another_configuration_begins_anew(watch: MakeWatch, folder: Path) -> None:
    state = folder / "state"
    with made_engine(folder / "a", max_sequences=8) as engine:
        first = watch(folders=(folder / "a",), state=state)
        watch_windows(first, engine, 3)
        first.close()
    with made_engine(folder / "b", max_sequences=16) as engine:
        engine.steps(10)
        second = watch(folders=(folder / "b",), state=state)
        assert second.turn().engines[0].regimes == ()
    (path,) = (state / "learned").glob("*.json")
    text = path.read_text()
    assert "llama" not in text, "neither a name nor a path of a model"
    assert set(json.loads(text)) == {"schema", "key", "corrections", "baseline", "taught"}


def test_what_decides_the_speed_is_the_key_and_nothing_else() -> None:
    first = key_of(INFO, "m", "h100", None)
    same = replace(
        INFO, instance="j", host="g", pod="q", start_unix_s=2.0, rank=3, kv_blocks=7, device_uuids=("GPU-1",)
    )
    assert key_of(replace(same, model_name="a", base_model_name="b"), "m", "h100", None) == first
    others: dict[str, Any] = dict.fromkeys(DECISIVE, "x")
    others |= {"kv_groups": (KVGroup("mamba", 1, 1),), "graph_sizes": (1, 2), "model_config": {"hidden_size": 1}}
    changed = {key_of(replace(INFO, **{name: value}), "m", "h100", None) for name, value in others.items()}
    changed |= {key_of(replace(INFO, engine_version="1.1"), "m", "h100", None), key_of(INFO, "n", "h100", None)}
    changed |= {key_of(INFO, "m", None, None), key_of(INFO, "m", "h100", 5.0)}
    changed |= {key_of(replace(INFO, model_config=None, model_name=name), "m", "h100", None) for name in "ab"}
    assert len(changed | {first}) == len(DECISIVE) + 7
    upgraded = key_of(replace(INFO, engine_version="1.1"), "m", "h100", None)
    assert (upgraded.lineage, upgraded.file_name == first.file_name) == (first.lineage, False)
    assert set(DECISIVE) <= set(EngineInfo.__dataclass_fields__)


def test_a_machine_without_an_id_is_known_by_its_processor(tmp_path: Path) -> None:
    assert machine_key(tmp_path) == machine_key(tmp_path)
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "machine-id").write_text("0123456789abcdef0123456789abcdef\n")
    assert "0123456789abcdef" not in machine_key(tmp_path) != machine_key(tmp_path / "none")


def test_an_upgrade_can_be_compared_with_the_version_before(tmp_path: Path) -> None:
    memory = Memory(tmp_path)
    for version, step_s in (("1.0", 0.02), ("1.1", 0.03)):
        engine = memory.of_engine()
        engine.know(replace(INFO, engine_version=version), HARDWARE, None, here=True)
        assert engine.correction == Correction()
        assert engine.key is not None
        memory.add(engine.key, window(step_s=step_s))
        memory.close()
    found = engine.other_versions()
    assert {version: baseline.regimes[REGIME].step_s for version, baseline in found.items()} == {"1.0": 0.02}
    engine.know(INFO, HARDWARE, None, here=False)
    assert (engine.other_versions(), engine.correction) == ({}, Correction()), "another machine may be another speed"


def test_it_is_saved_once_a_minute_and_at_the_end(tmp_path: Path) -> None:
    now_s = [50.0]
    memory, files = Memory(tmp_path, clock=lambda: now_s[0]), learned_files(tmp_path)

    def windows_kept(expected: int) -> bool:
        for _ in range(1000):
            memory.look()
            if memory._writer is None:
                break
            time.sleep(0.005)
        value = files.file(KEY).read().value
        return (0 if value is None else value.baseline.regimes[REGIME].windows) == expected

    memory.add(KEY, window())
    now_s[0] += SAVE_EVERY_S - 1
    assert windows_kept(0)
    now_s[0] += 1
    assert windows_kept(1)
    memory.add(KEY, window())
    assert windows_kept(1)
    now_s[0] += SAVE_EVERY_S
    assert windows_kept(2)
    memory.add(KEY, window())
    memory.close()
    assert windows_kept(3)


def test_two_sidecars_both_teach(tmp_path: Path) -> None:
    one, two = Memory(tmp_path), Memory(tmp_path)
    for _ in range(3):
        one.add(KEY, window(step_s=0.01))
        two.add(KEY, window(step_s=0.01))
        one.close()
        two.close()
    usual = Memory(tmp_path).learned(KEY).baseline.regimes[REGIME]
    assert (usual.windows, usual.steps_s) == (6, (0.01,) * 6)
    assert Memory(tmp_path).learned(KEY).correction.ready(REGIME)


RUN = "0123456789abcdef"


@pytest.mark.parametrize("shift", [0, 37])
def test_two_sidecars_on_one_engine_teach_each_step_once(tmp_path: Path, shift: int) -> None:
    """Their windows need not begin together; each file is written every third window, in turns."""
    one, two = Memory(tmp_path), Memory(tmp_path)
    for number in range(12):
        at = 100 * number
        one.add(KEY, window(), Span(RUN, at + 1, at + 100))
        two.add(KEY, window(), Span(RUN, at + 1 + shift, at + 100 + shift))
        if number % 3 == 2:
            one.close()
            two.close()
    learned = Memory(tmp_path).learned(KEY)
    assert 8 <= learned.baseline.regimes[REGIME].windows <= 12
    assert len(learned.correction.ratios[REGIME]) == learned.baseline.regimes[REGIME].windows
    if not shift:
        assert learned.baseline.regimes[REGIME].windows == 12
        assert learned.until == {RUN: 1200}


def test_two_watches_of_one_engine_learn_what_one_would(watch: MakeWatch, folder: Path) -> None:
    state = folder / "state"
    with made_engine(folder / "rings", max_sequences=8) as engine:
        both = [watch(folders=(folder / "rings",), state=state) for _ in range(2)]
        for it in both:
            it.turn()
        for _ in range(3):
            engine.steps(101, step_s=0.1)
            for it in both:
                it.turn()
        (alone,) = engine_of(both[0])._memory.baseline.regimes.values()
        for it in both:
            it.close()
        (kept,) = (each for _, each in learned_files(state).everything())
        assert kept.value is not None
        (usual,) = kept.value.baseline.regimes.values()
        assert usual.windows == alone.windows >= 2


def test_another_run_and_a_source_without_numbers_always_teach() -> None:
    learned = Learned().taught(window(), Span(RUN, 1, 100)).taught(window(), Span(RUN, 50, 150))
    assert learned.baseline.regimes[REGIME].windows == 1
    learned = learned.taught(window(), Span("f" * 16, 1, 100)).taught(window(), None).taught(window(), None)
    assert learned.baseline.regimes[REGIME].windows == 4
    for number in range(MOST_RUNS + 5):
        learned = learned.taught(window(), Span(f"{number:016}", 1, 2))
    assert len(learned.until) == MOST_RUNS
    assert learned_from_data(json.loads(json.dumps(learned_data(learned)))) == learned
    before = {name: rows for name, rows in learned_data(learned).items() if name != "taught"}
    assert learned_from_data(before) == replace(learned, until={}), "a file of a version before"


@pytest.mark.parametrize(
    "rows", [5, [5], [{}], [{"run": "x", "sequence": 1}], [{"run": RUN, "sequence": -1}], [{"run": RUN}],
             [{"run": RUN, "sequence": True}], [{"run": RUN, "sequence": 1e300}], "ab"],
)  # fmt: skip
def test_what_is_no_step_of_a_run_is_refused(rows: Any) -> None:
    with pytest.raises(RooflensError, match="remove the file to learn anew"):
        learned_from_data({**learned_data(window()), "taught": rows})


def test_two_replicas_of_one_sidecar_begin_with_what_the_first_taught() -> None:
    memory = Memory(None)
    first = memory.of_engine()
    first.know(INFO, HARDWARE, None, here=True)
    assert first.key is not None
    memory.add(first.key, window())
    second = memory.of_engine()
    second.know(replace(INFO, instance="another"), HARDWARE, None, here=True)
    assert second.baseline == window().baseline
    memory.close()


def test_what_cannot_be_written_is_said_and_kept_for_later(tmp_path: Path) -> None:
    path = tmp_path / "state"
    path.write_text("a file where a folder belongs")
    memory = Memory(path)
    assert "no folder is in its place; give --state a folder of your own, or --no-state" in memory.problems[0]
    memory.add(KEY, window())
    memory.close()
    assert len(memory.problems) == 1
    path.unlink()
    memory.add(KEY, window())
    memory.close()
    assert memory.problems == ()
    assert Memory(path).learned(KEY).baseline.regimes[REGIME].windows == 2


def test_a_damaged_file_is_said_and_begun_anew(tmp_path: Path) -> None:
    memory = Memory(tmp_path)
    memory.add(KEY, window())
    memory.close()
    path = learned_files(tmp_path).file(KEY).path
    data = json.loads(path.read_text())
    data["corrections"][0]["ratios"] = [7.0]
    path.write_text(json.dumps(data))
    memory = Memory(tmp_path)
    assert memory.learned(KEY) == Learned()
    assert "a learned correction has a ratio out of 0.5 to 2" in memory.problems[0]
    memory.add(KEY, window())
    memory.close()
    assert memory.problems == () or "set aside as" in memory.problems[0]
    assert Memory(tmp_path).learned(KEY).baseline.regimes[REGIME].windows == 1


def test_a_clock_that_is_set_back_widens_the_span_only(tmp_path: Path) -> None:
    memory = Memory(tmp_path)
    for end_unix_s in (5000.0, 2000.0, 4000.0):
        memory.add(KEY, window(end_unix_s))
        memory.close()
    usual = Memory(tmp_path).learned(KEY).baseline.regimes[REGIME]
    assert (usual.first_unix_s, usual.last_unix_s, usual.windows) == (2000.0, 5000.0, 3)


def test_old_windows_and_old_regimes_make_way() -> None:
    learned = Learned()
    for number in range(KEPT_WINDOWS + 6):
        learned = learned.followed_by(window(step_s=0.01 + number / 1e6))
    usual = learned.baseline.regimes[REGIME]
    assert (usual.windows, len(usual.steps_s), usual.steps_s[0]) == (KEPT_WINDOWS + 6, KEPT_WINDOWS, 0.01 + 6 / 1e6)
    for number in range(MOST_REGIMES):
        learned = learned.followed_by(window(2000.0, regime=Regime("mixed", number // 60, number % 60)))
    assert REGIME not in learned.baseline.regimes
    assert len(learned.correction.ratios) == len(learned.baseline.regimes) == MOST_REGIMES
    assert learned_from_data(json.loads(json.dumps(learned_data(learned)))) == learned


@pytest.mark.parametrize("kept", [True, False])
def test_memory_holds_not_more_keys_than_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: bool) -> None:
    monkeypatch.setattr(memory_module, "MOST_KEYS", 3)
    memory = Memory(tmp_path if kept else None)
    memory.add(KEY, window())
    for number in range(9):
        memory.learned(replace(KEY, configuration=f"{number}"))
    assert len(memory._known) == 3
    assert memory.learned(KEY) == (window() if kept else Learned()), "what is not written yet is let go last"
    for number in range(9):
        memory.add(replace(KEY, configuration=f"{number}"), window())
    assert len(memory._known) == (6 if kept else 3)


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
ROW = learned_data(window())["baseline"][0]
CORRECTED = learned_data(window())["corrections"][0]


@given(st.sampled_from(sorted(ROW)), JSON, st.sampled_from(sorted(CORRECTED)), JSON, st.booleans())
def test_no_row_that_was_changed_does_harm(name: str, value: Any, other: str, changed: Any, both: bool) -> None:
    """It is refused, or it is as good as one that was written: finite, bounded and the same again."""
    corrections = [{**CORRECTED, other: changed}] if both else [CORRECTED]
    try:
        learned = learned_from_data({"baseline": [{**ROW, name: value}], "corrections": corrections})
    except RooflensError:
        return
    again = json.loads(json.dumps(learned_data(learned), allow_nan=False))
    assert learned_from_data(again) == learned
    for regime, usual in learned.baseline.regimes.items():
        assert 0 < usual.step_s < 1e6
        assert len(str(regime)) < 120
