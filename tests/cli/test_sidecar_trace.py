"""The real `rooflens sidecar --trace`: what was seen is in files, each step once, whatever ends the sidecar."""

from __future__ import annotations

import itertools
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from cli.pages import served
from cli.test_sidecar import ROOFLENS
from cli.test_sidecar_counters import DEVICE, UUID
from made_engine import made_engine
from nvml_fixture import DoubleError, build
from pipeline.made_pages import SERIES
from trace_files import are_those_of, kept, once, rows

from rooflens.cli import main
from rooflens.cli.doctor_checks import Machine, Standing
from rooflens.cli.doctor_trace import check_trace
from rooflens.config import sidecar_settings
from rooflens.pipeline.recording import read_ring
from rooflens.records import RooflensError

PATIENCE_S = 40.0
HARDWARE = ("--hardware", "h100-sxm5-80")


@contextmanager
def tracing(trace: Path, *arguments: str, **environment: str) -> Iterator[Callable[[str], None]]:
    """A sidecar that only keeps a trace; waits for a line with a pattern. It is killed unless the test ended it."""
    command = [*ROOFLENS, "sidecar", "--no-serve", "--trace", str(trace), "--trace-period", "1", *arguments]
    env = {**os.environ, "ROOFLENS_STATE": str(trace.parent / "state"), "ROOFLENS_KEEP_STATE": "1", **environment}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env) as process:
        said: list[str] = []
        assert process.stdout is not None
        threading.Thread(target=lambda: [said.append(line) for line in process.stdout or ()], daemon=True).start()

        def line(pattern: str) -> None:
            wait_for(lambda: re.search(pattern, "".join(said)), f"no {pattern!r} in {said}")

        line.process = process  # type: ignore[attr-defined]
        try:
            yield line
        finally:
            process.kill()


def ended(line: Any) -> None:
    """It ends in order when it is told to."""
    line.process.send_signal(signal.SIGTERM)
    assert line.process.wait(PATIENCE_S) == 0
    assert line.process.stderr.read() == ""


def wait_for(holds: Callable[[], Any], what: str) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline_s, what
        time.sleep(0.05)


@pytest.fixture
def rings(tmp_path: Path) -> Path:
    folder = tmp_path / "rings"
    folder.mkdir(mode=0o700)
    return folder


def test_killed_and_begun_anew_the_trace_is_the_ring(rings: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    with made_engine(rings) as engine:
        engine.steps(400, contexts=(100, 2000, 30))
        with tracing(trace, str(rings), "--no-counters", *HARDWARE) as line:
            line("/0  live")
            engine.steps(50)
            wait_for(lambda: len(rows(trace)) >= 450, "450 steps in files")
            engine.steps(60)
        engine.steps(70)  # nobody looks
        with tracing(trace, str(rings), "--no-counters", *HARDWARE) as line:
            line("/0  live")
            engine.steps(80, waiting=3)
            engine.event("load_ended")
            ended(line)
        recording = read_ring(engine.path)
    found, ring = rows(trace), recording.steps
    steps = once(found)
    assert set(found.column("run").to_pylist()) == {recording.run}, "a ring and its trace are joined by their run"
    assert len(found) - len(steps) <= 60, "only what was written just before it was killed is there twice"
    are_those_of(steps, ring)
    assert found.column("floor_s").null_count == 0
    assert found.column("keyframe_contexts").drop_null()
    assert "load_ended" in rows(trace, "events").column("name").to_pylist()


def test_a_page_and_findings_are_kept_too(rings: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    began_s = time.time() - 1000.0
    pages: dict[str, bytes] = {}

    def tell(steps: int) -> None:
        lines = [f"process_start_time_seconds {began_s!r}"]
        lines += [f'vllm:{name}{{engine="0",model_name="m"}} {float(of(steps))!r}' for name, of in SERIES.items()]
        pages["/metrics"] = ("\n".join(lines) + "\n").encode()

    tell(0)
    with served(pages) as port, made_engine(rings) as engine:
        sources = ("--scrape", f"http://127.0.0.1:{port}/metrics", "--scrape-period", "0.5")
        with tracing(trace, str(rings), *sources, "--no-counters", "--window", "1", *HARDWARE) as line:
            line("m/0  live")
            line("live: made-up, read from its ring")
            engine.steps(60)
            engine.begin()  # a step that never comes back: the engine is stalled
            steps = itertools.count(100, 100)

            def page_kept() -> bool:
                tell(next(steps))
                time.sleep(0.3)
                return "metrics" in {str(facts.source) for facts in kept(trace)}

            wait_for(page_kept, "steps of a page")
            line("llama/0 .* engine_stalled")
            engine.kill()
            line("llama/0  died")
            ended(line)
    findings = [row for row in rows(trace, "events").to_pylist() if row["class"] == "finding"]
    (ring,) = {facts.run for facts in kept(trace) if str(facts.source) == "ring"}
    stalled = [row["status"] for row in findings if row["name"] == "engine_stalled" and row["run"] == ring]
    assert stalled == ["firing", "cleared"]


def test_counters_of_a_device_are_kept(rings: Path, tmp_path: Path) -> None:
    try:
        library = build(tmp_path)
    except DoubleError as error:
        pytest.skip(str(error))
    profile, trace = tmp_path / "profile", tmp_path / "trace"
    profile.write_text(DEVICE)
    played = {"LD_LIBRARY_PATH": str(library.parent), "NVMLSIM_PROFILE": str(profile)}
    with (
        made_engine(rings, device="cuda", device_uuids=[UUID]) as engine,
        tracing(trace, str(rings), "--counter-period", "0.25", *HARDWARE, **played) as line,
    ):
        line("/0  live")
        engine.steps(10)
        wait_for(lambda: len(rows(trace, "counters")) >= 3, "samples in files")
        ended(line)
    found = rows(trace, "counters").to_pylist()
    assert {row["uuid"] for row in found} == {UUID}
    assert {row["power_w"] for row in found} == {430.0}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--no-serve"], "--no-serve alone does nothing: say with --trace DIR where to keep what is seen"),
        (
            ["--no-serve", "--trace", "t", "--listen", "127.0.0.1:0"],
            "--no-serve and --listen or --allow-host contradict",
        ),
        (["--trace", "t", "--trace-max-age", "soon"], "--trace-max-age soon: 'soon' is no age: write 14d, 36h, 90m"),
        (["--trace", "t", "--trace-max-bytes", "1kB"], "--trace-max-bytes 1kB: it should be at least 1MB, or none"),
        (["--trace", "t", "--trace-period", "0"], "--trace-period 0.0: it should be greater than or equal to 1"),
        (["--trace", "file"], "trace folder file: it is no folder; give --trace another place"),
    ],
)
def test_a_wrong_setting_is_one_line(
    arguments: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    listen = [] if "--no-serve" in arguments else ["--listen", "127.0.0.1:0"]
    assert main(["sidecar", *arguments, *listen]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("rooflens: ")
    assert said in captured.err
    assert captured.err.count("\n") == 1


def test_how_long_a_trace_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    assert sidecar_settings({}).trace_limits == (10 * 2**30, 14 * 86_400)
    monkeypatch.setenv("ROOFLENS_TRACE_MAX_BYTES", "500MB")
    monkeypatch.setenv("ROOFLENS_TRACE_MAX_AGE", "none")
    assert sidecar_settings({}).trace_limits == (5e8, None)
    assert sidecar_settings({"trace_max_age": "36h"}).trace_limits == (5e8, 36 * 3600)
    monkeypatch.setenv("ROOFLENS_TRACE_MAX_AGE", "1s")
    with pytest.raises(RooflensError, match=r"^ROOFLENS_TRACE_MAX_AGE 1s: it should be at least 10m, or none"):
        sidecar_settings({})
    monkeypatch.delenv("ROOFLENS_TRACE_MAX_AGE")
    monkeypatch.setenv("ROOFLENS_PUSH_TOKEN", "0123456789abcdef")
    assert main(["sidecar", "--no-serve", "--trace", "t"]) == 2


def test_the_doctor_says_where_the_trace_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ROOFLENS_TRACE", raising=False)
    assert list(check_trace(Machine())) == []
    monkeypatch.setenv("ROOFLENS_TRACE", str(tmp_path / "trace"))
    (check,) = check_trace(Machine())
    assert check.standing is Standing.NOTE
    assert check.found == f"{tmp_path / 'trace'} is not there yet: a sidecar makes it"
    place = tmp_path / "trace" / "steps" / "host=h" / "date=2026-11-30" / "hour=14"
    place.mkdir(parents=True)
    (place / "00-a-000001.parquet").write_bytes(bytes(2048))
    (check,) = check_trace(Machine())
    assert check.standing is Standing.OK
    assert check.found == f"{tmp_path / 'trace'}: 1 file, 2 KiB, 2026-11-30 14:00 to 15:00 UTC"
    monkeypatch.setenv("ROOFLENS_TRACE", str(place / "00-a-000001.parquet"))
    (check,) = check_trace(Machine())
    assert check.standing is Standing.BROKEN
    monkeypatch.setenv("ROOFLENS_TRACE", "s3://user:secret@bucket/prefix")
    (check,) = check_trace(Machine())
    assert check.standing is Standing.NOTE
    assert check.found == "s3://bucket/prefix: an object store is not looked into from here"
