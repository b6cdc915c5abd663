"""The JSON of a Snapshot: plain, complete, null where nothing is known, and figures that follow from the columns."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_snapshot import (
    STARTED_UNIX_S,
    made_bare_engine,
    made_engine,
    made_findings,
    made_group,
    made_info,
    made_snapshot,
    made_steps,
    made_window,
)

from rooflens.calibration_records import Ceiling, CeilingOrigin
from rooflens.device_records import CounterSource, DeviceFacts, DeviceSample, DeviceView, Throttle, WindowCounters
from rooflens.exporters.json_view import FACTS, engines_json, findings_json, roofline_json, steps_json
from rooflens.findings import Code, Finding, Status
from rooflens.group_records import GroupKind
from rooflens.live_records import EngineView, Snapshot, SourceHealth, SourceKind, State
from rooflens.records import EngineInfo, RooflensError, StepTable

ALL = {"engines": engines_json, "findings": findings_json, "roofline": roofline_json}


def snapshot_of(*engines: EngineView) -> Snapshot:
    return dataclasses.replace(made_snapshot(0), engines=engines)


def as_json(content: Any) -> Any:
    """There and back; fails on what JSON does not have, a NaN among it."""
    return json.loads(json.dumps(content, allow_nan=False))


def same(content: Any, copy: Any) -> bool:
    return type(content) is type(copy) and content == copy


@pytest.mark.parametrize("name", ALL)
def test_it_is_plain_json(name: str) -> None:
    for snapshot in (made_snapshot(2), made_snapshot(0), snapshot_of()):
        content = ALL[name](snapshot)
        assert same(content, as_json(content))
        assert content["snapshot"]["number"] == 1


def test_of_many_sources_those_without_a_problem_are_told_first() -> None:
    bad = [SourceHealth(f"{n}", SourceKind.RING, State.UNREACHABLE, problem="damaged") for n in range(3000)]
    good = SourceHealth("good", SourceKind.METRICS, State.LIVE)
    content = engines_json(dataclasses.replace(made_snapshot(0), sources=(*bad, good)))
    assert [source["name"] for source in content["sources"][:2]] == ["good", "0"]
    assert (len(content["sources"]), content["sources_left_out"]) == (256, 2745)
    assert (len(content["problems"]), content["problems"][-1]) == (65, "and 2,937 more")
    assert engines_json(made_snapshot(1))["sources_left_out"] == 0


def test_an_engine_is_told_whole_and_without_paths_or_ids() -> None:
    info = dataclasses.replace(made_info(), host="node-1", pod="pod-1", device_uuids=("GPU-9",))
    view = dataclasses.replace(made_engine(1, "m", "0"), info=info)
    (engine,) = engines_json(snapshot_of(view))["engines"]
    assert (engine["model_name"], engine["engine"], engine["state"], engine["source"]) == ("m", "0", "live", "ring")
    assert engine["hardware"] == "h100-sxm5-80"
    assert engine["facts"]["max_sequences"] == 256
    assert engine["facts"]["quantization"] is None
    assert engine["findings_firing"] == ["missed_batching"]
    assert [window["end_unix_s"] for window in engine["windows"]] == sorted(w.end_unix_s for w in view.windows)
    assert engine["windows"][-1]["kinds"]["decode"]["steps"] == 900
    assert engine["progress"]["open_age_s"] == 0.004
    assert engine["derived"][0]["low"] == 3000.0
    assert not any(word in json.dumps(engine) for word in ("pod-1", "GPU-9", "node-1", "made-0", "hidden_size"))
    assert engine["device_uuids"] == list(view.device_uuids), "what the sidecar found, not what the ring says"
    assert set(FACTS) <= {field.name for field in dataclasses.fields(EngineInfo)}


def test_a_device_is_told_without_processes_and_without_our_clock() -> None:
    facts = DeviceFacts("GPU-1", CounterSource.NVML, name="NVIDIA H100", pids=(4242,))
    sample = DeviceSample(
        "GPU-1", CounterSource.NVML, 777.0, 778.5, dram_ratio=0.7, throttled_s={Throttle.THERMAL: 0.5}
    )
    views = (DeviceView(facts, CounterSource.NVML, sample), DeviceView(facts, CounterSource.DCGM, None, "not read now"))
    snapshot = dataclasses.replace(made_snapshot(0), devices=views)
    known, lost = engines_json(snapshot)["devices"]
    assert (known["uuid"], known["source"], known["name"]) == ("GPU-1", "nvml", "NVIDIA H100")
    assert (known["sample"]["span_s"], known["sample"]["dram_ratio"], known["sample"]["tensor_ratio"]) == (
        1.5,
        0.7,
        None,
    )
    assert known["sample"]["throttled_s"] == {"thermal": 0.5}
    assert (lost["source"], lost["sample"], lost["problem"]) == ("dcgm", None, "not read now")
    assert not any(word in json.dumps([known, lost]) for word in ("4242", "777", "monotonic", "pids"))


def test_counters_and_ceilings_of_an_engine_are_told() -> None:
    counters = WindowCounters(CounterSource.NVML, 1, 1, 0.9, ratio=1.01, throttled_ratio={Throttle.POWER_CAP: 0.2})
    view = dataclasses.replace(
        made_engine(1, "m", "0"),
        windows=tuple(dataclasses.replace(made_window(1.0), counters=each) for each in (counters, None)),
        ceilings=(Ceiling(CeilingOrigin.CALIBRATED, 3e12, None, ("reachable",)),), device_uuids=("GPU-1",),
        recent_dram_bytes=lambda: np.array([np.nan] * 511 + [1.5e9]),
    )  # fmt: skip
    (engine,) = engines_json(snapshot_of(view))["engines"]
    assert engine["windows"][0]["counters"]["throttled_ratio"] == {"power_cap": 0.2}
    assert engine["windows"][1]["counters"] is None
    assert engine["ceilings"][0] == {
        "origin": "calibrated", "per_s": 3e12, "number_format": None, "used_for": ["reachable"], "note": "",
    }  # fmt: skip
    assert engine["device_uuids"] == ["GPU-1"]
    steps = steps_json(snapshot_of(view), None, None, last=2)
    assert steps["columns"]["apportioned_dram_bytes"] == [None, 1.5e9]
    untold = dataclasses.replace(view, recent_dram_bytes=None)
    assert "apportioned_dram_bytes" not in steps_json(snapshot_of(untold), None, None)["columns"]


def test_what_is_not_known_is_null() -> None:
    (engine,) = engines_json(snapshot_of(made_bare_engine()))["engines"]
    assert [engine[name] for name in ("facts", "hardware", "last_step_unix_s", "progress")] == [None] * 4
    assert (engine["windows"], engine["state"]) == ([], "unreachable")
    assert "--hardware" in engine["problem"]
    (roofline,) = roofline_json(snapshot_of(made_bare_engine()))["engines"]
    assert (roofline["roofs"], roofline["points"]) == (None, [])


def test_numbers_that_are_none_become_null() -> None:
    window = dataclasses.replace(made_window(1.0), mbu=math.nan, mfu=np.float64("inf"), batch_mean=np.float64(2.0))
    (engine,) = engines_json(snapshot_of(dataclasses.replace(made_engine(1, "m", "0"), windows=(window,))))["engines"]
    assert [engine["windows"][0][name] for name in ("mbu", "mfu", "batch_mean")] == [None, None, 2.0]


def test_long_texts_of_others_are_cut() -> None:
    view = dataclasses.replace(made_bare_engine("x" * 100_000), problem="y" * 100_000)
    for render in ALL.values():
        assert len(json.dumps(render(snapshot_of(view)))) < 5000


def test_findings_are_those_asked_for() -> None:
    snapshot = made_snapshot(2)
    everything = findings_json(snapshot)["findings"]
    assert [(f["engine"], f["status"]) for f in everything] == [
        (engine, status) for engine in "01" for status in ("firing", "cleared", "cannot_tell")
    ]
    assert {f["code"] for f in findings_json(snapshot, status=Status.FIRING)["findings"]} == {"missed_batching"}
    assert {f["status"] for f in findings_json(snapshot, code=Code.KV_PRESSURE)["findings"]} == {"cleared"}
    assert findings_json(snapshot, Status.FIRING, Code.KV_PRESSURE)["findings"] == []


def test_a_finding_comes_back_from_its_json() -> None:
    told = as_json(findings_json(snapshot_of(made_engine(1, "m", "0"))))["findings"]
    assert tuple(map(Finding.from_json, told)) == made_findings(STARTED_UNIX_S + 1)
    assert told[0]["runbook"] == "docs/findings.md#missed_batching"
    assert told[0]["title"]


def test_steps_are_columns_of_equal_length() -> None:
    view = made_engine(1, "m", "0")
    told = steps_json(snapshot_of(view), "m", "0", 100)
    assert same(told, as_json(told))
    assert told["steps"] == 100
    assert {len(values) for values in told["columns"].values()} == {100}
    columns = told["columns"]
    assert columns["sequence"] == list(range(413, 513))
    assert set(columns["kind"]) == {"decode", "mixed"}
    assert set(columns["graph_mode"]) == {"full"}
    assert columns["oldest_wait_s"][:2] == [1.5, None]
    assert "device_s" not in columns
    analysis = view.recent_analysis
    assert analysis is not None
    assert columns["floor_s"] == analysis.floor_s[-100:].tolist()
    assert analysis.reachable_s is not None
    assert columns["reachable_s"] == analysis.reachable_s[-100:].tolist()
    assert columns["expected_s"] == columns["floor_s"], "there are no experts"
    assert dict(zip(columns["kind"], columns["bound"], strict=True)) == {"decode": "memory", "mixed": "compute"}
    for floor_s, observed_s, mbu in zip(columns["memory_s"], columns["observed_s"], columns["mbu"], strict=True):
        assert mbu == pytest.approx(floor_s / observed_s)


def test_bounds_are_null_where_a_step_has_none() -> None:
    view = made_engine(1, "m", "0")
    analysis = view.recent_analysis
    assert analysis is not None
    mask = np.arange(512) % 2 == 0
    partly = dataclasses.replace(analysis, modelled=mask, compared=mask & (np.arange(512) < 511), compute_known=False)
    columns = steps_json(snapshot_of(dataclasses.replace(view, recent_analysis=partly)), "m", "0", 4)["columns"]
    for name in ("floor_s", "expected_s", "reachable_s", "bound", "mbu"):
        assert [value is None for value in columns[name]] == [False, True, False, True]
    assert columns["mfu"] == columns["compute_s"] == [None] * 4


@pytest.mark.parametrize(("last", "count"), [(1, 1), (0, 1), (-5, 1), (10**9, 512)])
def test_the_number_of_steps_is_bounded(last: int, count: int) -> None:
    assert steps_json(made_snapshot(1), None, "0", last)["steps"] == count


def test_the_engine_is_named_as_far_as_needed() -> None:
    engines = [dataclasses.replace(made_bare_engine(), model_name=model, engine=label) for model, label in
               (("a", "0"), ("a", "1"), ("b", "0"))]  # fmt: skip
    snapshot = snapshot_of(*engines)
    assert steps_json(snapshot, "b", None)["model_name"] == "b"
    assert steps_json(snapshot, None, "1")["engine"] == "1"
    for model, label, words in (
        (None, "0", "several"),
        ("a", None, "several"),
        ("b", "1", "no engine"),
        ("", "", "no"),
    ):
        with pytest.raises(RooflensError, match=words):
            steps_json(snapshot, model, label)
    assert steps_json(snapshot_of(made_bare_engine()), None, None) | {"snapshot": None} == {
        "version": "0.1.0", "snapshot": None, "model_name": "unknown", "engine": "1", "source": "metrics", "steps": 0,
        "columns": {},
    }  # fmt: skip


def test_the_roofline_follows_from_the_steps() -> None:
    view = made_engine(1, "m", "0", batch=33)
    (told,) = roofline_json(snapshot_of(view))["engines"]
    roofs, analysis = told["roofs"], view.recent_analysis
    assert analysis is not None
    assert roofs["ridge_flop_per_byte"]["bf16"] == pytest.approx(989.4e12 / 3.35e12)
    steps = [point for point in told["points"] if point["of"] == "steps"]
    assert [(p["kind"], p["batch_from"], p["batch_to"], p["steps"], p["bound"]) for p in steps] == [
        ("decode", 32, 63, 504, "memory"), ("mixed", 32, 63, 8, "compute"),
    ]  # fmt: skip
    decode = view.recent["kind"] == 1
    moved = (analysis.weight_bytes + analysis.kv_read_bytes + analysis.kv_write_bytes)[decode].sum()
    seconds, flops = view.recent["observed_s"][decode].sum(), analysis.flops[decode].sum()
    assert steps[0]["achieved_bytes_per_s"] == pytest.approx(moved / seconds)
    assert steps[0]["achieved_flops_per_s"] == pytest.approx(flops / seconds)
    assert steps[0]["intensity_flop_per_byte"] == pytest.approx(flops / moved)
    assert analysis.reachable_s is not None
    bounds = {"floor_s": analysis.floor_s, "expected_s": analysis.expected_s, "reachable_s": analysis.reachable_s}
    for name, column in bounds.items():
        assert steps[0][name] == pytest.approx(column[decode].sum()), name
    for point in steps:
        assert point["achieved_bytes_per_s"] <= roofs["bandwidth_bytes_per_s"]
        assert point["achieved_flops_per_s"] <= roofs["peak_flops_per_s"]["bf16"]
    windows = [point for point in told["points"] if point["of"] == "window"]
    assert len(windows) == 6
    assert windows[0]["achieved_bytes_per_s"] == pytest.approx(2.0e13 / 9.72)
    assert [windows[0][name] for name in ("floor_s", "expected_s", "reachable_s")] == [6.6, 6.6, 7.6]


def test_an_engine_says_whose_kernels_are_meant_and_what_its_regimes_take() -> None:
    view = made_engine(1, "m", "0")
    (told,) = engines_json(snapshot_of(view))["engines"]
    assert told["efficiency"]["origin"] == "published"
    assert "kernel tables" in told["efficiency"]["source"]
    assert [(r["phase"], r["ready"], r["ratio"], r["windows"]) for r in told["regimes"]] == [
        ("decode", True, 1.28, 12), ("mixed", False, None, 3),
    ]  # fmt: skip
    assert told["windows"][-1]["kinds"]["decode"]["usual_s"] == 9.1
    (bare,) = engines_json(snapshot_of(made_bare_engine()))["engines"]
    assert (bare["efficiency"], bare["regimes"]) == (None, [])
    assert view.recent_analysis is not None
    unknown = dataclasses.replace(view.recent_analysis, reachable_s=None, efficiency=None)
    view = dataclasses.replace(view, recent_analysis=unknown)
    assert engines_json(snapshot_of(view))["engines"][0]["efficiency"] is None
    assert "reachable_s" not in steps_json(snapshot_of(view), "m", "0")["columns"]
    points = roofline_json(snapshot_of(view))["engines"][0]["points"]
    assert {point["reachable_s"] for point in points if point["of"] == "steps"} == {None}


def test_devices_together_have_higher_roofs() -> None:
    info = dataclasses.replace(made_info(), tensor_parallel=4)
    view = dataclasses.replace(made_engine(1, "m", "0"), info=info, recent_analysis=None)
    (told,) = roofline_json(snapshot_of(view))["engines"]
    assert told["roofs"]["devices"] == 4
    assert told["roofs"]["bandwidth_bytes_per_s"] == 4 * 3.35e12
    assert {point["of"] for point in told["points"]} == {"window"}


def test_rows_that_stand_for_several_steps_count_as_several() -> None:
    steps = made_steps(8, batch=32)
    columns = {**steps.columns, "requests": steps["requests"] * 10, "resolution_steps": np.full(8, 10)}
    view = made_engine(1, "m", "0")
    analysis = view.recent_analysis
    assert analysis is not None
    cut = {
        field.name: getattr(analysis, field.name)[:8]
        for field in dataclasses.fields(analysis)
        if isinstance(getattr(analysis, field.name), np.ndarray)
    }
    view = dataclasses.replace(
        view, recent=StepTable(columns), recent_analysis=dataclasses.replace(analysis, **cut), windows=()
    )
    (point,) = roofline_json(snapshot_of(view))["engines"][0]["points"]
    assert (point["steps"], point["batch_from"]) == (80, 32)


def test_what_is_wrong_with_a_source_is_a_problem_that_names_it_once() -> None:
    def page(name: str, problem: str | None) -> SourceHealth:
        return SourceHealth(name, SourceKind.METRICS, State.UNREACHABLE, problem=problem)

    bad = "/run/x.ring is not a rooflens ring"
    sources = (
        page("http://a:1", "http://a:1 asks for credentials (401)"), page("http://b:1", "it says nothing"),
        page("http://c:1", None), page("http://d:1", "not read yet"), page("x.ring", bad),
    )  # fmt: skip
    snapshot = dataclasses.replace(made_snapshot(0), sources=sources, problems=("it turns slowly", bad))
    expected = ["it turns slowly", bad, "http://a:1 asks for credentials (401)", "http://b:1: it says nothing"]
    assert engines_json(snapshot)["problems"] == expected


def names_in(content: Any) -> set[str]:
    if isinstance(content, dict):
        return set(content).union(*map(names_in, content.values()))
    return set().union(*map(names_in, content)) if isinstance(content, list) else set()


def test_a_group_is_each_and_together() -> None:
    (group,) = engines_json(made_snapshot(2))["groups"]
    assert group["kind"] == "data_parallel"
    assert [member["role"] for member in group["members"]] == ["both", "both"]
    assert [figures["waiting"] for figures in group["figures"]] == [117.0, 0.0]
    assert group["together"]["waiting"] == 117.0
    assert group["together"]["kv_used_ratio"] == pytest.approx(420 / 640)
    assert (group["worst"], group["balance"]["to_engine"]) == ("0", "1")


def test_the_page_of_the_api_speaks_of_what_there_is() -> None:
    snapshot = dataclasses.replace(snapshot_of(made_engine(1, "m", "0")), groups=(made_group(),))
    there = names_in([render(snapshot) for render in ALL.values()]) | names_in(steps_json(snapshot, "m", "0"))
    page = (Path(__file__).parents[2] / "docs" / "api.md").read_text(encoding="utf-8")
    spoken_of = set(re.findall(r"`([a-z]+(?:_[a-z0-9]+)+)`", page))
    endings = {"cannot_tell", *map(str, GroupKind)}
    assert spoken_of - there - endings == set()
    told = {"resolution_steps", "not_recorded_s", "between_s", "idle_s", "still_s", "load", "steps_made"}
    assert {name for name in told if f"`{name}`" not in page} == set()
