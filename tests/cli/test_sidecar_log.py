"""The real `rooflens sidecar --log`: follows a log that is written, renamed, truncated, and counts each line once."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest
from cli.test_sidecar import ROOFLENS, sidecar, wait_for
from logs.log_lines import CONFIG, FITS, POOL, vllm

from rooflens.adapters.logs.follow import OVER
from rooflens.config import sidecar_settings

TOKENS = 'rooflens_tokens_total{model_name="Meta-Llama-3-8B-Instruct",engine="0",kind="generated"}'
RUNNING = 'rooflens_requests_running{model_name="Meta-Llama-3-8B-Instruct",engine="0"}'
BASE = ("--no-rings", "--no-counters", "--hardware", "h100-sxm5-80", "--model", "meta-llama-3-8b")


class Writer:
    """An engine that writes a line every ten seconds of its own clock."""

    def __init__(self, path: Path) -> None:
        self.path, self.at_s = path, time.time() - 600.0

    def line(self, rate: float, running: int = 8) -> None:
        self.at_s += 10.0
        head, _, rest = vllm(0, rate, running).partition("INFO ")
        when = time.strftime("%m-%d %H:%M:%S", time.localtime(self.at_s))
        with self.path.open("a") as file:
            file.write(f"{head}INFO {when}{rest[14:]}\n")


def test_it_follows_a_log_through_rotation(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    writer = Writer(path)
    with sidecar("--log", str(path), *BASE) as run:
        assert "not there yet" in run.line("problem .*server.log")
        path.write_text("\n".join([CONFIG, POOL, FITS, ""]))
        writer.line(50.0)  # of a time that nothing tells
        writer.line(100.0)
        assert run.line("live").endswith("Meta-Llama-3-8B-Instruct/0  live: vllm 0.32.0, read from its log")
        wait_for(run, TOKENS, 1000.0)
        path.rename(tmp_path / "server.log.1")
        writer.line(200.0)
        wait_for(run, TOKENS, 3000.0)
        with path.open("r+") as file:
            file.truncate(0)
        writer.line(300.0)
        wait_for(run, TOKENS, 6000.0)
        assert run.sample('rooflens_sources_up{source="log"}') == 1
        assert run.sample('rooflens_source_failures_total{source="log"}') == 0
        writer.line(0.0, running=0)
        wait_for(run, RUNNING, 0.0)


def test_standard_input_is_a_log(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    writer = Writer(path)
    path.write_text("\n".join([CONFIG, POOL, FITS, ""]))
    writer.line(50.0)
    writer.line(100.0)
    command = [*ROOFLENS, "sidecar", "--listen", "127.0.0.1:0", "--log", "-", *BASE]
    with path.open() as file, subprocess.Popen(command, stdin=file, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said: list[str] = []
        for line in process.stdout:
            said.append(line)
            if OVER in line or len(said) == 12:
                break
        process.kill()
    assert [line for line in said if "read from its log" in line]
    assert said[-1].endswith(f"problem  {OVER}\n")


def test_logs_are_settings_as_others_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOFLENS_LOG", "/var/log/a.log /var/log/b.log /var/log/a.log")
    assert sidecar_settings({}).log_paths == ("/var/log/a.log", "/var/log/b.log")
    assert sidecar_settings({"log": "-"}).log_paths == ("-",)
