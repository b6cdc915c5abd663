"""Device time asked for where there is no GPU: the real model runner of the CPU is left alone, with one line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from server_harness import CONFIG

pytestmark = pytest.mark.engine
LOOP = Path(__file__).parent / "device_loop.py"


@dataclass
class Seen:
    """One run of the engine: what it said at the end, its log, the files in the ring folder."""

    said: dict[str, Any]
    log: str
    rings: list[str]


def run(folder: Path, **environment: str) -> Seen:
    (folder / "model").mkdir(parents=True)
    small = CONFIG | {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2, "vocab_size": 512}
    small |= {"num_attention_heads": 2, "num_key_value_heads": 1}
    (folder / "model" / "config.json").write_text(json.dumps(small))
    rings = folder / "rings"
    env = {
        **os.environ, "VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "VLLM_HOST_IP": "127.0.0.1", "OMP_NUM_THREADS": "2",
        "VLLM_LOOPBACK_IP": "127.0.0.1", "ROOFLENS_DIR": str(rings), "VLLM_LOGGING_LEVEL": "INFO",
        **environment,
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, str(LOOP), str(folder / "model")], env=env, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-2000:]
    lines = done.stdout.splitlines()
    return Seen(json.loads(lines[-1]), "\n".join(lines[:-1]) + done.stderr, sorted(p.suffix for p in rings.iterdir()))


def test_on_a_cpu_it_stays_off_and_the_engine_does_the_same(tmp_path: Path) -> None:
    plain, asked = run(tmp_path / "plain"), run(tmp_path / "asked", ROOFLENS_DEVICE_TIME="1")
    assert asked.said["generated"] == plain.said["generated"]
    assert [len(tokens) for tokens in asked.said["generated"]] == [12, 12, 12]
    assert asked.said["runner"] == plain.said["runner"] == "CPUModelRunner"
    # Not asked for: nothing of a worker is touched, nothing is even loaded. Asked for: the runner is not.
    assert (plain.said["loaded"], plain.said["wrapped"]) == (False, [])
    assert asked.said["loaded"]
    assert asked.said["wrapped"] == ["WorkerBase.__init__", "init_device"]
    told = [line for line in asked.log.splitlines() if "rooflens" in line and "device time" in line]
    assert len(told) == 1, told
    assert "INFO" in told[0]
    assert "stays off, this worker runs on cpu" in told[0]
    assert "device time" not in plain.log
    assert plain.rings == asked.rings == [".ring"]
