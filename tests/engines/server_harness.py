"""Starts vLLM's real API server on the CPU with random weights, and talks to it."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 512, "intermediate_size": 1408,
    "num_hidden_layers": 6, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 64, "vocab_size": 16000,
    "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "tie_word_embeddings": False,
    "torch_dtype": "bfloat16", "hidden_act": "silu", "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
START_LIMIT_S = 300


@dataclass
class Server:
    """A running server: its port, process, log file and ring folder."""

    port: int
    process: subprocess.Popen[bytes]
    log: Path
    rings: Path

    def request(self, method: str, path: str, body: Any = None, timeout: float = 120) -> tuple[int, str]:
        """One HTTP exchange; (status, text)."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        headers = {"Content-Type": "application/json"} if body is not None else {}
        connection.request(method, path, json.dumps(body) if body is not None else None, headers)
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        return answer.status, text

    def complete(self, prompt: list[int], most: int, **options: Any) -> dict[str, Any]:
        """One completion; the usage that the server reports."""
        body = {"model": "m", "prompt": prompt, "max_tokens": most, "ignore_eos": True, "temperature": 0.0}
        status, text = self.request("POST", "/v1/completions", body | {"return_token_ids": True} | options)
        assert status == 200, text
        usage: dict[str, Any] = json.loads(text)["usage"]
        return usage

    def abandon(self, prompt: list[int], most: int, after_s: float) -> None:
        """Begin a streamed completion and hang up on it."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        body = {"model": "m", "prompt": prompt, "max_tokens": most, "ignore_eos": True, "stream": True}
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        time.sleep(after_s)
        connection.close()

    def metrics(self) -> dict[str, float]:
        """Every sample of /metrics, summed over labels, by name; prefixed ``vllm:``."""
        _, text = self.request("GET", "/metrics")
        found: dict[str, float] = {}
        for line in text.splitlines():
            match = re.match(r"^([a-zA-Z_:][\w:]*)(\{.*\})?\s+(\S+)$", line)
            if match and not line.startswith("#"):
                found[match[1]] = found.get(match[1], 0.0) + float(match[3])
        return found

    def engine_pids(self) -> list[int]:
        """The engine core processes below the server."""
        listing = subprocess.run(["ps", "-eo", "pid,pgid,args"], capture_output=True, text=True, check=True).stdout
        group = os.getpgid(self.process.pid)
        rows = [line.split(None, 2) for line in listing.splitlines()[1:]]
        return [int(pid) for pid, pgid, args in rows if int(pgid) == group and "EngineCore" in args]


def free_port() -> int:
    """A port nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def running(
    folder: Path, *flags: str, python: str = sys.executable, environment: dict[str, str] | None = None
) -> Iterator[Server]:
    """A server with these flags, up; it and all its processes are gone afterwards."""
    model, rings, log = folder / "model", folder / "rings", folder / "server.log"
    model.mkdir(parents=True, exist_ok=True)
    (model / "config.json").write_text(json.dumps(CONFIG))
    port = free_port()
    command = [
        python, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model), "--served-model-name", "m",
        "--load-format", "dummy", "--skip-tokenizer-init", "--dtype", "bfloat16", "--enforce-eager", "--host",
        "127.0.0.1", "--port", str(port), "--max-model-len", "2048", *flags,
    ]  # fmt: skip
    given = {
        "VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1", "ROOFLENS_DIR": str(rings), "VLLM_NO_USAGE_STATS": "1",
        "VLLM_LOGGING_LEVEL": "INFO",
        "DO_NOT_TRACK": "1", "VLLM_HOST_IP": "127.0.0.1", "VLLM_LOOPBACK_IP": "127.0.0.1", "OMP_NUM_THREADS": "2",
    }  # fmt: skip
    env = {**os.environ, **given, **(environment or {})}
    with log.open("wb") as sink:
        process = subprocess.Popen(command, stdout=sink, stderr=subprocess.STDOUT, env=env, start_new_session=True)
    server = Server(port, process, log, rings)
    try:
        _wait_until_up(server)
        yield server
    finally:
        try:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(20)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            pass
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(20)


def _wait_until_up(server: Server) -> None:
    deadline = time.monotonic() + START_LIMIT_S
    while time.monotonic() < deadline:
        if server.process.poll() is not None:
            break
        try:
            if server.request("GET", "/health", timeout=2)[0] == 200:
                return
        except OSError:
            pass
        time.sleep(0.5)
    raise AssertionError("the server did not come up:\n" + server.log.read_text()[-4000:])
