"""The report's lines: what tells rings apart, what is unknown, what is odd."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from made_engine import made_engine
from made_windows import MIXTURE

from rooflens.adapters.embedded.shape import SMALL
from rooflens.adapters.recorder import Recorder
from rooflens.analyzer.figures import Floor, Phase, Spread, Summary
from rooflens.analyzer.hardware import find_hardware
from rooflens.cli import main
from rooflens.cli.report import phase_table, text, time_text
from rooflens.cli.units import age_text, factor_text, seconds_text
from rooflens.pipeline import lay_beside, read_ring
from rooflens.ring_folder import host_name


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "rings"


def reported(capsys: pytest.CaptureFixture[str], recorder: Recorder, *words: str) -> tuple[str, dict[str, Any]]:
    """The text and the JSON object of one ring."""
    assert main(["analyze", str(recorder.path), *words]) == 0
    text = capsys.readouterr().out
    assert main(["analyze", str(recorder.path), *words, "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    return text, found


def made(folder: Path, **facts: Any) -> Recorder:
    """An engine with a warm-up step of 40 ms, a fast one, then 20 ms without a request, then another fast one."""
    recorder = Recorder("e", folder=folder, strict=True, model_config=SMALL.config(128), weight_dtype="bfloat16",
                        block_tokens=16, **facts)  # fmt: skip
    recorder.event("load")
    for number, seconds in enumerate((0.04, 0.001)):
        with recorder.step(contexts=[number], running=0, waiting=3 * (1 - number), deferred=0):
            time.sleep(seconds)
    time.sleep(0.02)
    with recorder.step(contexts=[2], running=1, waiting=0, deferred=0):
        pass
    return recorder


def test_what_is_unknown_is_said_and_what_is_idle_has_no_share(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, found = reported(capsys, made(folder))
    assert found["spreads"]["oldest_wait_s"] is None
    assert [line.split() for line in text.splitlines() if line.startswith("oldest wait")] == [
        ["oldest", "wait", "unknown", "unknown", "unknown"]
    ]
    assert (found["host_s"]["schedule_s"], found["host_s"]["update_s"]) == (None, None)
    assert "schedule unknown, update unknown, hook" in text
    idle = found["phases"][-1]
    assert (idle["name"], idle["share_ratio"]) == ("idle (no request)", None)
    assert found["idle_s"] == idle["seconds"] >= 0.02
    assert found["active_s"] == pytest.approx(found["span_s"] - found["idle_s"])
    (row,) = [line for line in text.splitlines() if line.startswith("idle (no request)")]
    assert "%" not in row


def test_the_slowest_step_and_the_longest_of_each_kind(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, found = reported(capsys, made(folder))
    slowest = found["slowest_step"]
    assert (slowest["number"], slowest["sequence"], slowest["kind"]) == (1, 2, "decode")
    assert 0.04 <= slowest["seconds"] < 20
    assert abs(slowest["start_unix_s"] - time.time()) < 600
    assert f"began {time_text(slowest['start_unix_s'])}, decode" in text
    assert "slowest step: number 1, " in text
    (heading,) = [line for line in text.splitlines() if line.startswith("where the time went")]
    assert heading.split()[-3:] == ["p50", "p90", "max"]


def test_rings_can_be_told_apart(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recorder = made(folder, start_unix_s=1.7e9)
    text, found = reported(capsys, recorder)
    assert (found["pid"], found["rank"], found["start_unix_s"]) == (os.getpid(), 0, 1.7e9)
    assert 0 <= found["last_step_age_s"] < 600
    assert "started   2023-11-14 22:13:20 UTC, last step " in text
    assert f" ago; process {os.getpid()}, rank 0, host {host_name()}" in text
    young = Recorder("young", folder=folder, strict=True)
    assert f"; process {os.getpid()}" in reported(capsys, young)[0]


@pytest.mark.parametrize(("device", "warned"), [("cpu", "this engine ran on a CPU"), ("cuda", None), (None, None)])
def test_a_gpus_floor_for_an_engine_on_a_cpu_is_one_warning(
    folder: Path, capsys: pytest.CaptureFixture[str], device: str | None, warned: str | None
) -> None:
    text, found = reported(capsys, made(folder, device=device), "--hardware", "h100-sxm5-80")
    assert text.count("\nwarning   ") == (1 if warned else 0)
    assert (found["hardware_warning"] or "").startswith(warned or "")
    assert (found["hardware_warning"] is None) == (warned is None)


def test_a_curators_notes_are_for_json_only(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, found = reported(capsys, made(folder), "--hardware", "h100-sxm5-80")
    assert "TechPowerUp" not in text
    assert "TechPowerUp" in str(found["hardware"]["flags"])


@pytest.mark.parametrize(
    ("value", "text"),
    [(1.0712, "1.07"), (12.34, "12.3"), (999.6, "1,000"), (123.4, "123"), (1234567.8, "1,230,000"), (0.012, "0.01")],
)
def test_factors_have_three_digits(value: float, text: str) -> None:
    assert factor_text(value) == text


def test_what_is_lost_has_the_digits_of_what_is_gained() -> None:
    assert [seconds_text(each) for each in (9140.0, -9140.0, -0.743)] == ["9,140 s", "-9,140 s", "-743 ms"]


def test_ages_have_the_unit_that_fits() -> None:
    assert [age_text(s) for s in (3.2, 119, 600, 7300, 3e5)] == ["3 s", "119 s", "10 min", "2 h", "3 days"]


def report_of(capsys: pytest.CaptureFixture[str], path: Path, *words: str) -> tuple[list[str], dict[str, Any]]:
    """The lines of the text, and the JSON object, of one ring."""
    assert main(["analyze", str(path), *words]) == 0
    text = capsys.readouterr().out
    assert main(["analyze", str(path), *words, "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    return text.splitlines(), found


def test_reachable_stands_beside_the_floor_with_whose_kernels_are_meant(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with made_engine(folder) as engine:
        engine.steps(320, step_s=0.2)
        lines, found = report_of(capsys, engine.path, "--hardware", "h100-sxm5-80")
        heading, decode = (next(line for line in lines if line.startswith(name)) for name in ("where", "decode"))
        assert heading.split("max ")[1].split() == [
            "floor", "reachable", "x", "floor", "MBU", "MFU", "bound", "by",
        ]  # fmt: skip
        assert max(len(line) for line in lines if not line.startswith("ring ")) <= 120
        floor = found["phases"][0]["floor"]
        assert floor["floor_s"] == floor["expected_s"] < floor["reachable_s"] < floor["observed_s"]
        assert seconds_text(floor["reachable_s"]) in decode
        assert any(line.startswith("reachable published: kernel tables of ") for line in lines)
        assert found["efficiency"]["origin"] == "published"
        (regime,) = found["regimes"]
        assert (regime["windows"], regime["ready"]) == (6, True)
        assert regime["ratio"] == pytest.approx(min(2.0, floor["observed_s"] / floor["reachable_s"]), rel=0.01)
        lines, found = report_of(capsys, engine.path, "--hardware", "rtx-3090")
        assert any(line.startswith("reachable assumed: the fractions of l40s stand in for rtx-3090") for line in lines)
        lines, found = report_of(capsys, engine.path)
        assert (found["efficiency"], found["regimes"]) == (None, [])


def test_of_a_mixture_the_strict_and_the_expected_floor_are_shown(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with made_engine(folder, model_config=MIXTURE, weight_dtype="bfloat16") as engine:
        engine.steps(60, step_s=0.2, contexts=tuple(range(100, 132)))
        lines, found = report_of(capsys, engine.path, "--hardware", "h100-sxm5-80")
        heading = next(line for line in lines if line.startswith("where"))
        assert heading.split("max ")[1].split()[:3] == ["floor", "expected", "reachable"]
        floor = found["phases"][0]["floor"]
        # 32 tokens touch 128 x (1 - (1 - 1/16)^32) = 112 of the 128 experts, where one token takes 8.
        assert 4 * floor["floor_s"] < floor["expected_s"] < floor["reachable_s"] < floor["observed_s"]


def test_a_measured_roof_says_why_it_is_not_known_what_is_reachable(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with made_engine(folder) as engine:
        engine.steps(60, step_s=0.2)
        recording = read_ring(engine.path)
        hardware = replace(find_hardware("h100-sxm5-80"), id="mine", origin="measured")
        summary, _, problem = lay_beside(recording, hardware)
        lines = text(recording, summary, hardware, problem).splitlines()
    (told,) = (line for line in lines if line.startswith("reachable "))
    assert "not known on mine: its bandwidth and arithmetic were measured, none of its kernels" in told
    assert "'rooflens calibrate'" in told
    assert "reachable" not in next(line for line in lines if line.startswith("where"))


def floor_of(serial_floor_s: float = 0.7, **bound_steps: int) -> Floor:
    return Floor(100, 3.567, 0.687, serial_floor_s, 0.0, 0.2, 0.1, bound_steps, 0.687, 0.998)


def test_the_table_of_phases_names_what_binds_most_and_keeps_its_width() -> None:
    wide = Phase("decode", 431, 23.24, 0.854, step_s=Spread(0.0614, 0.0996, 0.151),
                 floor=floor_of(memory=3, compute=97))  # fmt: skip
    heading, row = phase_table(cast(Summary, SimpleNamespace(phases=[wide], decode_by_batch=())))
    assert row.split()[-2:] == ["compute", "97%"]
    assert "serial" not in heading
    assert max(len(heading), len(row)) <= 120
    both = replace(wide, floor=floor_of(1.1, memory=100))
    heading, row = phase_table(cast(Summary, SimpleNamespace(phases=[both], decode_by_batch=())))
    assert "serial" in heading
    assert row.split()[-1] == "memory"
