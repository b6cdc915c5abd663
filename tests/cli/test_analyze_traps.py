"""`rooflens analyze` of traces in which a figure could be wrong: it is right, or a line says that it is not told."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_traces import CONFIG

from rooflens.analyzer.hardware import find_hardware
from rooflens.analyzer.roofline import analyse_engine
from rooflens.cli import main
from rooflens.cli.analysis import trace as module
from rooflens.cli.analysis.clocks import of_ring
from rooflens.collector.trace.file import write_file
from rooflens.collector.trace.schema import to_arrow
from rooflens.live_records import SourceKind
from rooflens.records import EngineInfo, StepTable
from rooflens.trace_records import TraceFacts, TraceRows

START_UNIX_S = 1_796_040_000.0  # 2026-11-30T12:00Z
H100 = find_hardware("h100-sxm5-80")
Analysed = Callable[..., dict[str, Any]]


def facts_of(engine: str, run: str | None = None, bounds: bool = True, tensor: int = 1) -> TraceFacts:
    info = EngineInfo("a", "vllm", "0.32.0", model_config=CONFIG, weight_dtype="bfloat16", kv_dtype="bfloat16",
                      tensor_parallel=tensor)  # fmt: skip
    hardware = H100 if bounds else None
    return TraceFacts(run or f"{engine:0>16}", "h", "m", engine, SourceKind.RING, info, hardware, devices=tensor)


def decode(unix_s: Any, observed_s: Any = 0.02, requests: int = 8) -> StepTable:
    """Decode steps with outputs at these seconds after START_UNIX_S; they end by the host's clock as by the wall's."""
    times = np.asarray(unix_s, np.float64)
    count = len(times)
    columns = {
        "sequence": np.arange(1, count + 1),
        "kind": np.ones(count, np.int64),
        "unix_s": START_UNIX_S + times,
        "output_monotonic_s": 1000 + times,
        "observed_s": np.broadcast_to(np.asarray(observed_s, np.float64), count).copy(),
        "prefill_tokens": np.zeros(count, np.int64),
    }
    of_batch = ("requests", "query_tokens", "sampled_rows", "generated_tokens")
    columns |= {name: np.full(count, requests) for name in of_batch}
    columns |= {name: np.full(count, 1000 * requests) for name in ("context_tokens", "causal_pairs")}
    return StepTable(columns | {"context_blocks": np.full(count, 63 * requests)})


@pytest.fixture
def analysed(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Analysed:
    """The report's object over files with the steps of these engines; ``text`` is what a terminal shows."""

    report = module.report

    def analyse(*parts: tuple[TraceFacts, StepTable], options: tuple[str, ...] = ()) -> dict[str, Any]:
        for number, (facts, steps) in enumerate(parts):
            bounds = analyse_engine(steps, facts.info, facts.hardware) if facts.info and facts.hardware else None
            place = tmp_path / "steps" / "host=h" / "date=2026-11-30" / "hour=12" / f"{number}.parquet"
            write_file(place, to_arrow(TraceRows(facts, steps, bounds)), [facts])
        told: list[str] = []

        def both(*asked: Any) -> tuple[dict[str, Any], str]:
            found, text = report(*asked)
            told.append(text)
            return found, text

        monkeypatch.setattr(module, "report", both)
        assert main(["analyze", str(tmp_path), "--json", *options]) == 0
        (found,) = json.loads(capsys.readouterr().out)
        return {**found["history"], "text": " ".join(told[0].split())}

    return analyse


EVERY = np.arange(1, 1001) * 0.02


def test_an_engine_faster_than_possible_pays_for_no_other(analysed: Analysed) -> None:
    """Steps of 2 ms where the weights alone take 4.8 ms, beside an engine that takes 20 ms."""
    fast, slow = (facts_of("fast"), decode(EVERY, 0.002)), (facts_of("slow"), decode(EVERY))
    alone = analysed(slow)
    found = analysed(fast, slow, options=("--set", "kv=fp8"))
    engines = {engine["engine"]: engine for engine in found["engines"]}
    assert (engines["fast"]["measurement_invalid"], engines["slow"]["measurement_invalid"]) == (True, False)
    assert engines["fast"]["wasted_device_s"] is None
    assert (engines["fast"]["amounts"]["mbu"], engines["fast"]["amounts"]["x_reachable"]) == (None, None)
    assert engines["fast"]["amounts"]["below_floor_steps"] == 1000
    assert found["cost"]["wasted_device_s"] == pytest.approx(alone["cost"]["wasted_device_s"])
    assert found["totals"]["mbu"] == pytest.approx(alone["totals"]["mbu"])
    assert all(window["slowdown"] == pytest.approx(alone["totals"]["x_reachable"]) for window in found["time_line"])
    assert "m/fast@h: measurement_invalid: 1,000 of 1,000 steps were faster than the floor allows" in found["text"]
    (answer,) = found["what_ifs"]
    assert (answer["total"]["steps"], answer["skipped_steps"]) == (1000, 1000)
    assert answer["problems"][0].startswith("m/fast@h: measurement_invalid")


def test_devices_are_counted_without_a_roofline_and_with_one_made_anew(analysed: Analysed) -> None:
    bare = (TraceFacts(**{**_fields(facts_of("0", bounds=False, tensor=4)), "devices": 1}), decode(EVERY))
    found = analysed(bare, options=("--hardware", "h100-sxm5-80"))
    assert found["engines"][0]["devices"] == 4
    assert found["cost"]["busy_device_s"] == pytest.approx(20 * 4)


def _fields(facts: TraceFacts) -> dict[str, Any]:
    return {name: getattr(facts, name) for name in TraceFacts.__dataclass_fields__}


@pytest.mark.parametrize("moved", [-30.0, -7200.0, 45.0])
def test_a_clock_that_was_set_is_said_and_not_paid(moved: float, analysed: Analysed) -> None:
    steps = decode(EVERY)
    clock = np.where(np.arange(1000) < 500, 0.0, moved)
    jumped = StepTable({**steps.columns, "unix_s": steps["unix_s"] + clock})
    found = analysed((facts_of("0"), jumped), options=("--price", "3.6"))
    assert found["cost"]["held_device_s"] == pytest.approx(20.0)
    assert found["cost"]["money"] == pytest.approx(0.02)
    assert (found["span_s"], found["silent_s"]) == (pytest.approx(20.0), None)
    assert "its wall clock was set" in found["text"]
    assert f"by {moved:+,.1f} s" in found["text"]


def test_a_year_that_a_wrong_clock_made_is_not_paid(analysed: Analysed) -> None:
    """The first ten steps are stamped a year early, before the host had asked for the time."""
    steps = decode(EVERY)
    early = np.where(np.arange(1000) < 10, -31_536_000.0, 0.0)
    found = analysed((facts_of("0"), StepTable({**steps.columns, "unix_s": steps["unix_s"] + early})))
    assert found["cost"]["held_device_s"] == pytest.approx(19.8)
    assert (found["totals"]["steps"], found["silent_s"]) == (990, 0.0)
    assert "10 rows have no wall time, or one far from the hour of their file: left out" in found["text"]


def test_a_clock_that_was_not_set_costs_no_look_and_no_line(analysed: Analysed) -> None:
    found = analysed((facts_of("0"), decode(EVERY)))
    assert (found["notes"], found["silent_s"]) == ([], 0.0)


def test_of_chosen_steps_no_idle_time_is_told_or_paid(analysed: Analysed) -> None:
    found = analysed((facts_of("0"), decode(EVERY)), options=("--where", "sequence % 2 = 0", "--price", "2"))
    assert found["totals"]["steps"] == 500
    assert [phase["name"] for phase in found["phases"]] == ["decode"]
    assert (found["silent_s"], found["engines"][0]["tokens_per_s"]) == (None, None)
    cost = found["cost"]
    assert cost["busy_device_s"] == pytest.approx(10.0)
    assert [cost[name] for name in ("held_device_s", "money", "device_s_per_million_tokens")] == [None] * 3
    assert "time held is not told with --where" in found["text"]


def test_a_condition_is_on_the_bounds_that_are_shown(analysed: Analysed) -> None:
    """Without captured bounds none holds; with those worked out again for the hardware that is named all do."""
    bare = (facts_of("0", bounds=False), decode(EVERY))
    options = ("--hardware", "h100-sxm5-80", "--where", "observed_s > 1.2 * floor_s", "--set", "kv=fp8")
    found = analysed(bare, options=options)
    assert found["totals"]["steps"] == 1000
    assert found["what_ifs"][0]["total"]["steps"] == 1000
    none = ("--hardware", "h100-sxm5-80", "--where", "observed_s > 1.2 * floor_s AND sequence <= 7")
    assert analysed(bare, options=none)["totals"]["steps"] == 7


def test_one_label_from_two_sources_is_said(analysed: Analysed) -> None:
    found = analysed((facts_of("0", run="a" * 16), decode(EVERY)), (facts_of("0", run="b" * 16), decode(EVERY)))
    assert "m/0@h: busy for 40.0 s in 20.0 s: two sources" in found["text"]


def test_a_restart_with_other_devices_is_held_as_each_run_had_them(analysed: Analysed) -> None:
    one, four = facts_of("0", run="a" * 16), facts_of("0", run="b" * 16, tensor=4)
    found = analysed((one, decode(EVERY)), (four, decode(EVERY + 30.0)), options=("--set", "tp=8"))
    assert found["cost"]["held_device_s"] == pytest.approx(30 * 1 + 20 * 4)
    (answer,) = found["what_ifs"]
    assert (answer["devices_now"], answer["devices_then"]) == (4, 8)
    assert any("restarted with other devices" in note for note in answer["notes"])


def test_a_batch_below_the_present_one_says_that_nothing_is_changed(analysed: Analysed) -> None:
    found = analysed((facts_of("0"), decode(EVERY)), options=("--set", "batch=4"))
    assert any(note.startswith("nothing is changed: every decode step") for note in found["what_ifs"][0]["notes"])


def test_rates_of_windows_at_the_ends_are_over_what_was_recorded(analysed: Analysed) -> None:
    """400 tokens a second throughout; the first output is 1 ms before the end of its window."""
    times = 9.999 + np.arange(1500) * 0.02
    found = analysed((facts_of("0"), decode(times)), options=("--window", "10s"))
    rates = [window["tokens_per_s"] for window in found["time_line"]]
    assert rates[0] is None, "21 ms are no rate"
    assert rates[1:] == pytest.approx([400.0] * 3, rel=0.002)
    assert found["engine_windows"]["tokens_per_s"] == [None, *(pytest.approx(rate) for rate in rates[1:])]
    found = analysed((facts_of("0"), decode(np.arange(300) * 0.02 + 7.0)), options=("--window", "10s"))
    rates = [window["tokens_per_s"] for window in found["time_line"]]
    assert rates == pytest.approx([400.0] * 2, rel=0.01)
    assert found["engine_windows"]["tokens_per_s"] == pytest.approx(rates)


def test_a_curve_of_bursts_has_their_mean(analysed: Analysed) -> None:
    """One second of work, 400 tokens, each minute of an hour: a column is of 70 seconds, with one burst or two."""
    times = np.concatenate([minute * 60.0 + np.arange(1, 51) * 0.02 for minute in range(60)])
    text = analysed((facts_of("0"), decode(times)), options=("--window", "10s"))["text"]
    assert "a column is 70 s" in text
    least, most = text.split("tokens/s")[2].split()[1:3]
    assert (float(least), float(most)) == pytest.approx((400 / 70, 800 / 70), rel=0.01)


def test_of_a_period_it_is_said_what_held_means(analysed: Analysed) -> None:
    """An engine that makes two steps in the period is held for these: how long it was there is not recorded in it."""
    options = ("--from", f"{START_UNIX_S + 1.01}", "--to", f"{START_UNIX_S + 1.05}")
    found = analysed((facts_of("0"), decode(EVERY)), options=options)
    assert found["cost"]["held_device_s"] == pytest.approx(0.04)
    assert "of devices held from each engine's first step in the period to its last" in found["text"]
    assert "in the period" not in analysed((facts_of("0"), decode(EVERY)))["text"]


def test_a_ring_tells_its_clock_too() -> None:
    steps = decode(EVERY)
    moved = np.where(np.arange(1000) < 500, 0.0, -30.0)
    known = {"unix_s": np.arange(1000) != 3}
    clocks = of_ring(StepTable({**steps.columns, "unix_s": steps["unix_s"] + moved}, known), "m/0@h")
    assert clocks.spans_s == {"m/0@h": pytest.approx(20.0)}
    assert clocks.notes[0].startswith("m/0@h: its wall clock was set by -30.0 s at 2026-11-30 11:59:40 UTC")
    assert of_ring(steps, "m/0@h").notes == ()


def test_steps_quicker_than_reachable_say_that_the_interval_is_too_narrow(analysed: Analysed) -> None:
    """Above the floor, so nothing is invalid; kernels that beat what counts as reachable leave no waste to vary."""
    info = facts_of("0").info
    assert info is not None
    bounds = analyse_engine(decode(EVERY), info, H100)
    assert bounds.reachable_s is not None
    between = float(bounds.floor_s[0] + bounds.reachable_s[0]) / 2
    found = analysed((facts_of("0"), decode(EVERY, between)), options=("--set", "kv=fp8"))
    assert not found["engines"][0]["measurement_invalid"]
    (answer,) = found["what_ifs"]
    assert answer["saved_device_s"][0] == pytest.approx(answer["saved_device_s"][1])
    assert any("the interval is too narrow" in note for note in answer["notes"])
