"""`rooflens diff` on recorded runs: the verdict first, its JSON, its exit codes, and one line for what is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_runs import made_steps
from recorded_rings import unpacked

from rooflens.analyzer.diff.result import Change, Comparison, SideFigures, Verdict
from rooflens.cli import main
from rooflens.cli.diff import exit_of
from rooflens.cli.diff_period import placed
from rooflens.collector.trace.file import write_file
from rooflens.collector.trace.schema import to_arrow
from rooflens.live_records import SourceKind
from rooflens.records import EngineInfo, RooflensError
from rooflens.trace_records import TraceFacts, TraceRows

Capture = pytest.CaptureFixture[str]


def told(capsys: Capture, *words: str) -> tuple[int, dict[str, Any], str]:
    code = main(["diff", *words, "--json"])
    out, err = capsys.readouterr()
    return code, json.loads(out) if out else {}, err


def trace(folder: Path, seed: int, run: str, version: str = "1", **settings: Any) -> str:
    """A trace of one made run in two files."""
    steps = made_steps(seed, **settings)
    info = EngineInfo(run, "made", version, model_name="m")
    facts = TraceFacts(run, "host-1", "m", "0", SourceKind.RING, info)
    half = len(steps) // 2
    for at, rows in enumerate((range(half), range(half, len(steps)))):
        part = TraceRows(facts, steps.take(np.array(rows)))
        write_file(folder / "steps" / f"{run}-{at}.parquet", to_arrow(part), [facts])
    return str(folder)


def test_two_runs_of_a_real_vllm_are_the_same(tmp_path: Path, capsys: Capture) -> None:
    a, b = (str(unpacked(name, tmp_path)) for name in ("vllm-a", "vllm-b"))
    code, data, _ = told(capsys, a, b, "--run-spread", "1%")
    assert (code, data["verdict"]) == (0, "same")
    assert data["noise_ratio"] < data["within_ratio"] <= data["thresholds"]["margin"]
    assert data["noise_ratio"] < data["least_detectable_ratio"]
    assert data["facts"] == []
    assert main(["diff", a, b, "--run-spread", "1%"]) == 0
    assert capsys.readouterr().out.startswith(f"same within {100 * data['within_ratio']:.1f} %: ")


def test_one_run_a_side_of_an_engine_on_a_cpu_does_not_show_how_far_its_runs_lie_apart(
    tmp_path: Path, capsys: Capture
) -> None:
    a, b = (str(unpacked(name, tmp_path)) for name in ("vllm-a", "vllm-b"))
    _, wide, _ = told(capsys, a, b)
    _, narrow, _ = told(capsys, a, b, "--run-spread", "1%")
    assert wide["verdict"] == "cannot tell"
    assert wide["change"]["ratio"] == narrow["change"]["ratio"]
    assert wide["thresholds"]["run_floor"] >= 0.08 > narrow["thresholds"]["run_floor"]
    assert any("by 8% or so is assumed" in note for note in wide["notes"])


def test_a_slowed_engine_is_worse_and_its_host_is_named(tmp_path: Path, capsys: Capture) -> None:
    a, b = (str(unpacked(name, tmp_path)) for name in ("embedded", "embedded-slow"))
    assert main(["diff", a, b, "--fail-if-worse", "3%"]) == 1
    out = capsys.readouterr().out
    assert out.startswith("worse: ")
    assert "host, between steps" in out
    code, data, _ = told(capsys, a, b)
    assert (code, data["verdict"]) == (0, "worse")
    (host,) = (term for term in data["terms"] if term["name"] == "host, between steps")
    assert host["change"]["low_ratio"] > 0.08  # 0.12 of the step before were injected
    assert told(capsys, a, b, "--fail-if-worse", "90%")[0] == 0


def test_the_same_file_twice(tmp_path: Path, capsys: Capture) -> None:
    a = str(unpacked("embedded", tmp_path))
    code, data, _ = told(capsys, a, a)
    assert (code, data["verdict"], data["identical"], data["noise_ratio"]) == (0, "same", True, 0)


def test_other_work_is_said_first_and_not_told_is_three_where_strict(tmp_path: Path, capsys: Capture) -> None:
    a, b = (str(unpacked(name, tmp_path)) for name in ("embedded", "vllm-a"))
    code, data, err = told(capsys, a, b, "--strict")
    assert code in (0, 3)
    assert data["notes"][0].startswith("another model")
    assert (code == 3) == err.startswith("rooflens: cannot tell")
    assert {fact["name"] for fact in data["facts"]} >= {"model", "engine", "weights"}


def test_other_hardware_is_compared_by_what_each_reaches(tmp_path: Path, capsys: Capture) -> None:
    """The same recording on a device that could be faster is further from what that reaches."""
    a, b = (str(unpacked(name, tmp_path)) for name in ("embedded", "embedded-slow"))
    places = ("--hardware-a", "h200-sxm-141", "--hardware-b", "h100-sxm5-80")
    code, data, _ = told(capsys, a, b, *places)
    assert (code, data["relative"], data["notes"][0][:16]) == (0, True, "another hardware")
    _, plain, _ = told(capsys, a, b)
    assert data["change"]["ratio"] < plain["change"]["ratio"]  # less can be reached on the device of B
    assert data["a"]["busy_s"] == plain["a"]["busy_s"]


def test_traces_several_a_side_with_periods_and_engines(tmp_path: Path, capsys: Capture) -> None:
    a = [trace(tmp_path / f"a{n}", n, f"a{n}") for n in range(2)]
    b = [trace(tmp_path / f"b{n}", 10 + n, f"b{n}", "2", slower=0.2) for n in range(2)]
    code, data, _ = told(capsys, "--a", *a, "--b", *b, "--fail-if-worse", "5%")
    assert (code, data["verdict"], data["a"]["runs"], data["b"]["runs"]) == (1, "worse", 2, 2)
    assert [(fact["name"], fact["a"], fact["b"]) for fact in data["facts"]] == [("version", "1", "2")]
    _, late, _ = told(capsys, f"{a[0]}@-2s..", f"{b[0]}@-2s..")
    assert 0 < late["a"]["steps"] < data["a"]["steps"] / 2
    _, same, _ = told(capsys, a[0], b[0], "--from", "-2s")
    assert same["a"]["steps"] == late["a"]["steps"]
    code, _, err = told(capsys, *a, "--engine", "other*")
    assert code == 2
    assert "other*" in err


def test_noise_beyond_the_limit_is_warned_of(tmp_path: Path, capsys: Capture) -> None:
    a, b = trace(tmp_path / "a", 1, "a"), trace(tmp_path / "b", 2, "b")
    code, data, err = told(capsys, a, b, "--fail-if-worse", "0.1%")
    assert (code, data["verdict"]) == (0, "same")
    assert "beyond --fail-if-worse" in err
    assert told(capsys, a, b, "--fail-if-worse", "0.1%", "--strict")[0] == 3


@pytest.mark.parametrize(
    ("low", "high", "strict_code", "warned"),
    [(0.017, 0.082, 3, True), (0.031, 0.08, 1, False), (0.012, 0.028, 0, False)],
)
def test_a_slow_down_perhaps_beyond_the_limit_is_warned_of(
    low: float, high: float, strict_code: int, warned: bool
) -> None:
    side = SideFigures(1, 1, 0, 1.0, 1.0, 0.0, 0.0)
    found = Comparison(Verdict.WORSE, "", Change((low + high) / 2, low, high), None, side, side)
    code, warning = exit_of(found, 0.03, True)
    assert (code, warning is not None) == (strict_code, warned)
    assert exit_of(found, 0.03, False)[0] == (0 if warned else strict_code)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["one"], "two sides"),
        (["a", "b", "c"], "two sides"),
        (["--a", "x"], "two sides"),
        (["nowhere.ring", "nothing.ring"], "nowhere.ring"),
        (["a", "b", "--fail-if-worse", "x"], "ratio"),
        (["a", "b", "--fail-if-worse", "300%"], "part of a step"),
        (["a", "b", "--hardware", "h99"], "h99"),
    ],
)
def test_what_is_wrong_is_one_line(words: list[str], said: str, capsys: Capture) -> None:
    assert main(["diff", *words]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1


def test_a_period_without_steps_says_what_there_is(tmp_path: Path, capsys: Capture) -> None:
    a = str(unpacked("embedded", tmp_path))
    assert main(["diff", f"{a}@2020-01-01..2020-01-02", a]) == 2
    err = capsys.readouterr().err
    assert "no step in the period" in err
    assert "2026-11-30" in err
    assert err.count("\n") == 1


def test_a_period_is_of_the_recording_that_it_stands_behind() -> None:
    """The recording ends at 2026-11-30 23:59:59 UTC."""
    end = 1796083199.0
    assert placed("x@14:32..-15m")[1].between(end) == (1796049120.0, end - 900)
    assert placed("x@..14:32")[1].between(end) == (float("-inf"), 1796049120.0)
    for words, why in (("x@15:00..14:00", "is empty"), ("x@yesterday..", "is no time")):
        with pytest.raises(RooflensError, match=why):
            placed(words)[1].between(end)


def test_an_at_sign_in_a_name_is_no_period() -> None:
    assert placed("me@host.ring")[0] == "me@host.ring"
    assert placed("s3://a@b/../c")[0] == "s3://a@b/../c"
    place, period = placed("x.ring@14:00..")
    assert (place, period.begin, period.end) == ("x.ring", "14:00", None)
