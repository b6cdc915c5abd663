"""The C++ client: built with g++, run against a real sidecar, and the figures that come out."""

from __future__ import annotations

import json
import socket
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest
from cli.test_sidecar import PATIENCE_S, Running, sidecar, wait_for
from pushing import TOKEN

SOURCE = Path(__file__).resolve().parents[2] / "examples" / "push_client" / "main.cpp"
NAMES = 'model_name="made-up-8b",engine="0"'
REQUESTS, TOKENS, PROMPTS = 8, 200, 8 * 100 + 10 * 28
BANDWIDTH = 3350e9  # of h100-sxm5-80


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    built = tmp_path_factory.mktemp("push_client") / "push_engine"
    command = ["g++", "-std=c++17", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread", str(SOURCE), "-o", str(built)]
    subprocess.run(command, check=True, timeout=PATIENCE_S * 4)
    return built


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    return file


def watching(token_file: Path, folder: Path) -> Any:
    """A sidecar that takes in what is pushed, and judges windows of a second."""
    folder.mkdir(mode=0o700, exist_ok=True)
    given = ("--push-token-file", str(token_file), "--hardware", "h100-sxm5-80", "--window", "1", "--no-counters")
    return sidecar(str(folder), *given)


def port(run: Running) -> str:
    return run.address.rsplit(":", 1)[1]


def engine(program: Path, *arguments: str) -> tuple[int, dict[str, Any], str]:
    ran = subprocess.run([str(program), *arguments], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    return ran.returncode, json.loads(ran.stdout), ran.stderr


def test_a_client_in_another_language_is_watched_like_a_hooked_engine(
    program: Path, token_file: Path, tmp_path: Path
) -> None:
    with watching(token_file, tmp_path / "rings") as run:
        assert "push      /api/v1/push" in run.said
        code, did, error = engine(program, "127.0.0.1", port(run), str(token_file), str(REQUESTS), str(TOKENS), "10")
        assert (code, error) == (0, "")
        # One step prefills all, each of the others decodes one token of every request.
        contexts = sum(PROMPTS + REQUESTS * step for step in range(TOKENS - 1))
        assert (did["steps"], did["taken"], did["dropped"], did["prefilled"]) == (TOKENS, TOKENS, 0, PROMPTS)
        assert (did["contexts"], did["generated"]) == (contexts, REQUESTS * TOKENS)
        assert run.line("live").endswith("made-up-8b/0  live: push-example 0.1, read from its pushed records")
        wait_for(run, f'rooflens_steps_total{{{NAMES},kind="decode"}}', TOKENS - 1)
        for series, value in {
            f'rooflens_steps_total{{{NAMES},kind="prefill"}}': 1,
            f'rooflens_tokens_total{{{NAMES},kind="prefill"}}': PROMPTS,
            f'rooflens_tokens_total{{{NAMES},kind="generated"}}': REQUESTS * TOKENS,
            f"rooflens_step_context_tokens_total{{{NAMES}}}": contexts,
            f"rooflens_step_requests_total{{{NAMES}}}": REQUESTS * TOKENS,
            f"rooflens_lost_steps_total{{{NAMES}}}": 0,
        }.items():
            assert run.sample(series) == value, series
        assert run.line("ended").endswith("made-up-8b/0  ended: push-example 0.1, read from its pushed records")
        steps = json.loads(run.get("/api/v1/steps?last=50"))["columns"]
        (shown,) = json.loads(run.get("/api/v1/engines"))["engines"]
        findings = json.loads(run.get("/api/v1/findings"))["findings"]
        assert TOKEN not in run.get("/api/v1/engines") + run.get("/metrics") + "".join(run.said)
        run.process.terminate()
        assert run.process.wait(PATIENCE_S) == 0
    # 8.03 billion parameters less the embedding's table, two bytes each, and the KV cache, over what HBM brings.
    weights = 2 * (8_030_000_000 - 128256 * 4096)
    for place in (0, -1):
        kv = steps["context_tokens"][place] * 32 * 2 * 8 * 128 * 2
        assert steps["mbu"][place] * steps["observed_s"][place] * BANDWIDTH == pytest.approx(weights + kv, rel=0.02)
    assert min(steps["observed_s"]) >= 0.01
    assert shown["source"] == "push"
    assert shown["windows"]
    assert {entry["code"] for entry in findings} >= {"memory_bound_waste", "host_overhead", "missed_batching"}


def test_what_does_not_fit_is_dropped_and_counted_and_the_engine_never_waits(
    program: Path, token_file: Path, tmp_path: Path
) -> None:
    with watching(token_file, tmp_path / "rings") as run:
        # Five hundred steps a second, a queue of fifty, a body every half second.
        code, did, _ = engine(program, "127.0.0.1", port(run), str(token_file), "2", "1000", "2", "50")
        assert (code, did["steps"]) == (1, 1000)
        assert did["dropped"] > 0
        assert did["taken"] + did["dropped"] == 1000
        run.line("ended")
        # Those before the first body have no gap before them: nobody knows that there were any.
        lost = run.sample(f"rooflens_lost_steps_total{{{NAMES}}}")
        kinds = [run.sample(f'rooflens_steps_total{{{NAMES},kind="{kind}"}}') or 0 for kind in ("prefill", "decode")]
        assert sum(kinds) == did["taken"]
        assert 0 < (lost or 0) <= did["dropped"]


def test_nobody_there_a_wrong_token_and_one_that_never_answers_cost_the_engine_nothing(
    program: Path, token_file: Path, tmp_path: Path
) -> None:
    code, did, error = engine(program, "127.0.0.1", "9", str(token_file), "2", "50", "1")
    assert (code, did["steps"], did["taken"]) == (1, 50, 0)
    assert "refused" in error.lower()
    wrong = tmp_path / "wrong"
    wrong.write_text("another-token-than-that-one\n")
    with watching(token_file, tmp_path / "rings") as run:
        code, did, error = engine(program, "127.0.0.1", port(run), str(wrong), "2", "50", "1")
    assert (code, did["steps"], did["taken"]) == (1, 50, 0)
    assert error.startswith("push_engine: 403 ")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        code, did, error = engine(program, "127.0.0.1", str(silent.getsockname()[1]), str(token_file), "2", "50", "1")
    assert (code, did["steps"], did["taken"]) == (1, 50, 0)
    assert "no answer" in error


def test_an_answer_that_is_lost_counts_nothing_twice(program: Path, token_file: Path, tmp_path: Path) -> None:
    """A relay passes each body on and swallows the first answers."""
    with watching(token_file, tmp_path / "rings") as run, socket.create_server(("127.0.0.1", 0)) as relay:
        swallowed: list[bytes] = []

        def pass_on() -> None:
            while True:
                try:
                    client, _ = relay.accept()
                except OSError:
                    return
                with client, socket.create_connection(("127.0.0.1", int(port(run)))) as server:
                    data = b""
                    while b"\r\n\r\n" not in data:
                        data += client.recv(65536)
                    size = int(data.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
                    while len(data.split(b"\r\n\r\n", 1)[1]) < size:
                        data += client.recv(65536)
                    server.sendall(data)
                    answer = b""
                    while part := server.recv(65536):
                        answer += part
                    if len(swallowed) < 2:
                        swallowed.append(answer)
                    else:
                        client.sendall(answer)

        threading.Thread(target=pass_on, daemon=True).start()
        code, did, error = engine(program, "127.0.0.1", str(relay.getsockname()[1]), str(token_file), "4", "600", "5")
        assert (code, error, did["taken"], did["failed"]) == (0, "", 600, 2)
        assert all(b" 200 " in answer for answer in swallowed)
        run.line("ended")
        assert run.sample(f'rooflens_steps_total{{{NAMES},kind="decode"}}') == 599
        assert run.sample(f"rooflens_lost_steps_total{{{NAMES}}}") == 0
