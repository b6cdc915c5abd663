"""`rooflens analyze` of traces, and of rings over time: the text as a whole, the JSON, the options and their faults."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from recorded_rings import HARDWARE, unpacked
from recorded_trace import GOLDEN, OPTIONS, golden, made_trace

from rooflens.cli import main


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_trace(tmp_path_factory.mktemp("traces"))


@pytest.fixture(scope="module")
def reports() -> dict[str, str]:
    return golden()


def analysed(capsys: pytest.CaptureFixture[str], *words: str) -> list[dict[str, Any]]:
    assert main(["analyze", *words, "--json"]) == 0
    out = capsys.readouterr().out
    assert not re.search(r"\b(NaN|Infinity)\b", out)
    found: list[dict[str, Any]] = json.loads(out)
    return found


def fault(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["analyze", *words]) == 2
    told = capsys.readouterr()
    assert told.err.count("\n") == 1
    return told.err


@pytest.mark.parametrize("name", OPTIONS)
def test_the_text_is_the_golden_one(name: str, reports: dict[str, str]) -> None:
    """Renew with `python tests/recorded_trace.py` and read the diff."""
    assert reports[name] == (GOLDEN / f"{name}.txt").read_text(encoding="utf-8")


def test_lines_of_the_sections_fit_a_terminal(reports: dict[str, str]) -> None:
    below = reports["trace"].split("time line")[1].split("worst windows")[0]
    assert max(map(len, below.splitlines())) <= 100
    assert not re.search(r"\bnan\b|\binf\b", "".join(reports.values()), re.IGNORECASE)


def test_the_json_is_one_object_over_all_engines(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (found,) = analysed(capsys, str(trace))
    history = found["history"]
    assert (found["format"], found["files"], found["problems"]) == ("trace", 4, [])
    assert history["totals"]["steps"] == 371 + 371 + 426 + 367
    assert sorted(engine["engine"] for engine in history["engines"]) == [
        "embedded",
        "embedded-slow",
        "vllm-a",
        "vllm-b",
    ]
    wasted = [engine["wasted_device_s"] for engine in history["engines"]]
    assert wasted == sorted(wasted, reverse=True)
    assert history["lost_steps"] == 12
    (finding,) = history["findings"]
    assert (finding["code"], finding["until_unix_s"] - finding["unix_s"]) == ("kv_pressure", pytest.approx(5))
    assert history["cost"]["held_device_s"] == pytest.approx(sum(e["held_device_s"] for e in history["engines"]))
    assert history["change_points"] == []


def test_one_engine_of_a_trace_is_the_ring_it_came_from(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (part,) = analysed(capsys, str(trace), "--engine", "vllm-b", "--window", "1s")
    (ring,) = analysed(capsys, str(unpacked("vllm-b", tmp_path)), "--hardware", str(HARDWARE), "--window", "1s")
    assert part["history"]["totals"] == ring["history"]["totals"]
    assert part["history"]["time_line"] == ring["history"]["time_line"]
    kinds = {phase["name"]: phase for phase in ring["phases"]}
    for phase in part["history"]["phases"][:-1]:
        assert phase["seconds"] == pytest.approx(kinds[phase["name"]]["seconds"], rel=1e-9)
        assert phase["floor"]["reachable_s"] == pytest.approx(kinds[phase["name"]]["floor"]["reachable_s"], rel=1e-9)
        assert phase["step_s"]["p50"] == pytest.approx(kinds[phase["name"]]["step_s"]["p50"], rel=0.04)


def test_a_ring_has_the_same_period_and_condition(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ring = str(unpacked("vllm-a", tmp_path))
    (whole,) = analysed(capsys, ring)
    end = whole["history"]["to_unix_s"]
    (late,) = analysed(capsys, ring, "--from", "-10s")
    assert 0 < late["steps"] == late["history"]["totals"]["steps"] < whole["steps"]
    assert late["history"]["totals"]["first_unix_s"] >= end - 10
    (decode,) = analysed(capsys, ring, "--where", "kind = 1 AND requests > 1", "--hardware", str(HARDWARE))
    assert decode["history"]["phases"][0]["name"] == "decode"
    assert decode["history"]["totals"]["steps"] == decode["steps"] < 335
    assert decode["history"]["basis"] == "reachable"


def test_bounds_are_worked_out_again_for_hardware_that_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bare = made_trace(tmp_path, bounds=False)
    (without,) = analysed(capsys, str(bare), "--window", "1s")
    assert (without["history"]["basis"], without["history"]["totals"]["mbu"]) == (None, None)
    assert main(["analyze", str(bare)]) == 0
    assert "wasted: not known, for no step has bounds (the hardware is not known" in capsys.readouterr().out
    (found,) = analysed(capsys, str(bare), "--window", "1s", "--hardware", str(HARDWARE))
    (stored,) = analysed(capsys, str(made_trace(tmp_path / "other")), "--window", "1s")
    assert found["history"]["totals"] == pytest.approx(stored["history"]["totals"])


def test_where_and_engine_and_period_together(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--engine", "m/embedded@*", "--from", "10:00", "--to", "11:00", "--where", "kind = 0")
    (found,) = analysed(capsys, str(trace), *words)
    assert found["history"]["totals"]["steps"] == 3
    assert found["history"]["chosen"]["where"] == "kind = 0"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--from", "12:00"), "no steps in the period from"),
        (("--from", "10:09", "--to", "10:08"), "--from 10:09 is not before --to 10:08"),
        (("--engine", "nobody"), "nobody"),
        (("--where", "batch > 3"), "no column 'batch'"),
        (("--where", "1=1; drop table steps"), "--where"),
        (("--from", "yesterday"), "'yesterday' is no time: write 2026-11-30T14:32"),
        (("--to", "-99999999999999999d"), "is no time: at most 100 years before the end"),
        (("--window", "0s"), "must be above 0"),
        (("--top", "0"), "--top must be at least 1"),
        (("--set", "context=4k"), "--set knows no 'context': it knows weights, kv, tp, batch, hardware, model"),
        (("--set", "hardware=h900"), "--set hardware=h900: "),
        (("--hardware", "this-cpu"), "--hardware this-cpu is for rings"),
        (("--dask", "tcp://127.0.0.1:1", "--hardware", "h100-sxm5-80"), "leave out --hardware and --model"),
    ],
)
def test_a_fault_is_one_line(
    trace: Path, words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert message in fault(capsys, str(trace), *words)


def test_a_log_is_told_what_does_not_apply(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "vllm.log"
    log.write_text(
        "INFO 06-23 10:30:28 [loggers.py:257] Engine 000: Avg prompt throughput: 10.0 tokens/s, "
        "Avg generation throughput: 5.0 tokens/s, Running: 2 reqs, Waiting: 0 reqs, GPU KV cache usage: 1.0%, "
        "Prefix cache hit rate: 0.0%\n"
    )
    assert main(["analyze", str(log), "--set", "kv=fp8", "--from", "-1m"]) == 0
    told = capsys.readouterr()
    assert "--from, --set apply to recordings of steps (rings, traces), not to log" in told.err
    assert told.err.count("\n") == 1


def test_a_trace_beside_a_ring_and_a_damaged_file(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ring = unpacked("vllm-b", tmp_path)
    bad = tmp_path / "cut.parquet"
    bad.write_bytes(b"PAR1")
    found = analysed(capsys, str(trace), str(bad), str(ring))
    assert [each.get("format", "ring") for each in found] == ["trace", "ring"]
    (problem,) = found[0]["problems"]
    assert str(bad) in problem
    assert main(["analyze", str(bad), str(ring)]) == 2
    told = capsys.readouterr()
    assert str(bad) in told.err
    assert "engine    vllm" in told.out


def test_a_what_if_on_captured_steps(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--set", "weights=fp8", "--set", "tp=3", "--set", "batch=1000", "--price", "3.6", "--engine", "vllm-a")
    (found,) = analysed(capsys, str(trace), *words)
    lighter, divided, larger = found["history"]["what_ifs"]
    total = lighter["total"]
    assert total["steps"] == 371
    assert total["reachable_then_s"] < total["reachable_now_s"] < total["observed_s"]
    assert total["new_low_s"] < total["new_high_s"] < total["observed_s"]
    assert lighter["saved_device_s"] == pytest.approx(
        [total["observed_s"] - total["new_high_s"], total["observed_s"] - total["new_low_s"]]
    )
    assert lighter["saved_money"] == pytest.approx([each / 1000 for each in lighter["saved_device_s"]])
    assert (lighter["fits"], lighter["skipped_steps"]) == (True, 0)
    assert divided["total"] is None
    assert divided["problems"][0].startswith("m/vllm-a@host-a: ")
    assert larger["fits"] is False
    decode = larger["kinds"][0]
    assert decode["name"] == "decode"
    assert decode["tokens_per_s_low"] > decode["tokens_per_s_now"]
    assert any("needs as many requests" in note for note in larger["notes"])


def test_without_trace_extra_a_ring_is_reported_as_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from rooflens.cli.analysis import ring as module

    ring = str(unpacked("vllm-b", tmp_path))
    monkeypatch.setattr(module, "find_spec", lambda _name: None)
    assert main(["analyze", ring]) == 0
    assert capsys.readouterr().out.rstrip().endswith("pip install 'rooflens[trace]'")
    (found,) = analysed(capsys, ring)
    assert (found["history"], found["steps"]) == (None, 371)
    assert "--set need" in fault(capsys, ring, "--set", "kv=fp8")
