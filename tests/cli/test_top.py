"""`rooflens top` against a real sidecar's server, real rings and a real metrics page."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cli.frames import engine as made_engine
from cli.frames import snapshot_of
from cli.pages import served
from cli.test_find_servers import closed_port

from rooflens.adapters.embedded.shape import SMALL
from rooflens.adapters.recorder import Recorder
from rooflens.cli import find_servers, main, top
from rooflens.cli.top_feeds import SidecarFeed
from rooflens.exporters.http_app import LiveServer
from rooflens.records import RooflensError

PAGES = Path(__file__).parents[1] / "data" / "metrics_pages"


@pytest.fixture(autouse=True)
def surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No sidecar, ring or server of this machine is seen."""
    for name in ("ROOFLENS_DISABLE", "VLLM_PLUGINS", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ROOFLENS_URL", f"http://127.0.0.1:{closed_port()}")
    monkeypatch.setenv("ROOFLENS_DIR", str(tmp_path / "nobody"))
    monkeypatch.setattr(top, "find_servers", list)


@pytest.fixture
def sidecar() -> Iterator[LiveServer]:
    server = LiveServer("127.0.0.1", 0)
    server.start()
    server.export(snapshot_of([made_engine()]))
    yield server
    server.close()


def recorded(folder: Path, steps: int = 120) -> Recorder:
    """A ring with more than a window of steps, made in no time: its clock is made up."""
    recorder = Recorder("my-engine", folder=folder, strict=True, model_config=SMALL.config(128),
                        weight_dtype="float32", block_tokens=16, kv_blocks=400, model_name="small")  # fmt: skip
    now_ns = time.monotonic_ns() - steps * 200_000_000
    ticks = iter(range(now_ns, now_ns + (4 * steps + 8) * 50_000_000, 50_000_000))
    recorder.clock_ns = lambda: next(ticks)  # type: ignore[method-assign]
    for _ in range(steps):
        with recorder.step(contexts=[64] * 6, running=6, waiting=0, deferred=0, kv_blocks_used=100) as step:
            step.generated_tokens = 6
    return recorder


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["top", "--once", *words]) == 0
    told = capsys.readouterr()
    assert told.err == ""
    return told.out


def test_it_attaches_to_a_sidecar_that_runs(
    sidecar: LiveServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = shown(capsys, "--url", sidecar.url)
    assert text.splitlines()[0].startswith(f"rooflens 0.1.0   {sidecar.url}   12:00:00 UTC   1 engine")
    assert "WARNING kv_pressure" in text
    assert "remedy: --gpu-memory-utilization" in text
    monkeypatch.setenv("ROOFLENS_URL", sidecar.url)
    assert shown(capsys) == text
    found = json.loads(shown(capsys, "--json"))
    assert found["engines"][0]["windows"][0]["steps"] == 1000
    assert {finding["code"] for finding in found["findings"]} >= {"kv_pressure", "host_overhead"}
    assert "\x1b" not in text


def test_a_single_frame_waits_for_figures_of_a_sidecar(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[float] = []

    def waits(seconds: float) -> None:
        reads.append(seconds)
        server.export(snapshot_of([made_engine()] if len(reads) >= 3 else [made_engine(windows=())]))

    monkeypatch.setattr(time, "sleep", waits)
    server = LiveServer("127.0.0.1", 0)
    server.start()
    try:
        server.export(snapshot_of([made_engine(windows=())]))
        text = shown(capsys, "--url", server.url)
        assert (len(reads), "no window yet" in text) == (3, False)
        monkeypatch.setattr(SidecarFeed, "patience_s", 0.0)
        server.export(snapshot_of([made_engine(windows=())]))
        assert main(["top", "--once", "--url", server.url]) == 1
        assert "no window yet" in capsys.readouterr().out
    finally:
        server.close()


def test_a_sidecar_that_goes_away_leaves_its_last_words(sidecar: LiveServer) -> None:
    feed = SidecarFeed(sidecar.url)
    assert feed.read()["problems"] == []
    sidecar.close()
    for _ in range(2):
        (problem,) = feed.read()["problems"]
        assert "nobody listens there" in problem
        assert problem.count("what is shown was said") == 1
    assert feed.read()["engines"]


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{", b'{"engines": 7}', b'{"engines": [7]}', b'{"engines": [{"windows": [7]}]}', b"[" * 9999]
)
def test_a_server_that_answers_otherwise_is_one_line(body: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    with served({"/api/v1/engines": body, "/api/v1/findings": b'{"findings": []}'}) as port:
        assert main(["top", "--once", "--url", f"http://127.0.0.1:{port}"]) == 2
    told = capsys.readouterr()
    assert (told.out, told.err.count("\n")) == ("", 1)
    assert told.err.startswith("rooflens: ")


def test_rings_are_read_from_their_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "rings"
    recorder = recorded(folder)
    text = shown(capsys, str(folder), "--hardware", "h100-sxm5-80")
    assert "small  engine 0  live  by ring  my-engine  h100-sxm5-80" in text
    assert "batch 6 " in text
    assert "x floor   bound by" in text
    monkeypatch.setenv("ROOFLENS_DIR", str(folder))
    assert "no floor: the hardware is not known" in shown(capsys)
    recorder.close()
    assert "small  engine 0  ended" in shown(capsys)


class Replayed(dict[str, bytes]):
    """A page that is another one from the third time on: the search and the first scrape see the same."""

    asked = 0

    def get(self, path: str, default: object = None) -> Any:
        del default
        self.asked += 1
        return (
            (PAGES / f"vllm-0.32-single-decode{1 + (self.asked > 2)}.txt").read_bytes() if path == "/metrics" else None
        )


def test_a_metrics_page_is_scraped_twice(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(top, "ONCE_SCRAPE_S", 0.3)
    with served(Replayed()) as port:
        monkeypatch.setattr(top, "find_servers", lambda: find_servers.find_servers(ports=[port]))
        text = shown(capsys)
    assert "engine 0  live  by metrics  vllm" in text
    assert "steps/s" in text


def test_nothing_at_all_is_one_line_with_the_next_step(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top"]) == 2
    told = capsys.readouterr().err
    assert told.startswith("rooflens: no sidecar, no ring in ")
    assert told.count("\n") == 1
    assert "and no engine on the usual ports: " in told


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--period", "0"], "--period 0 is not from 0.2"),
        (["--period", "nan"], "--period nan is not from"),
        (["/nowhere/at/all"], "/nowhere/at/all is no folder"),
        ([__file__], "for a single ring: rooflens analyze"),
        (["--url", "ftp://x"], "only http and https"),
        (["--hardware", "h999", "--url", "http://127.0.0.1:1"], "is refused: nobody listens there"),
        (["--model", "no-such-model", "/tmp"], "unknown model 'no-such-model'"),
        (["--hardware", "h999", "/tmp"], "unknown hardware 'h999'"),
    ],
)
def test_faults_of_use_are_one_line(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", *words]) == 2
    told = capsys.readouterr()
    assert said in told.err
    assert (told.out, told.err.count("\n")) == ("", 1)


def test_own_settings_are_not_for_a_sidecar(sidecar: LiveServer, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", "--once", "--url", sidecar.url, "--hardware", "h100-sxm5-80"]) == 2
    assert "is a sidecar: give --hardware to it, not to top" in capsys.readouterr().err
    assert main(["top", "--url", sidecar.url, "--model", "qwen2.5-7b"]) == 2
    assert "is a sidecar: give --model to it, not to top" in capsys.readouterr().err


def test_json_without_end_is_one_object_a_line(
    sidecar: LiveServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    turns: list[float] = []

    def sleep(seconds: float) -> None:
        turns.append(seconds)
        if len(turns) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(top.time, "sleep", sleep)
    assert main(["top", "--json", "--url", sidecar.url, "--period", "0.5"]) == 130
    lines = capsys.readouterr().out.splitlines()
    assert [json.loads(line)["snapshot"]["number"] for line in lines] == [7, 7, 7]
    assert turns == [0.5] * 3


def test_a_sidecar_without_a_word_yet_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    server = LiveServer("127.0.0.1", 0)
    server.start()
    try:
        with pytest.raises(RooflensError, match="not ready"):
            SidecarFeed(server.url)
    finally:
        server.close()
