"""What the hook of transformers' continuous batching costs, beside the engine's own scheduling in the same run.

Run in an environment with transformers 5.9 or newer and torch. The forward pass is left out: a steady batch of
decoding requests goes through the real scheduler, batch preparation and update, with the hook and without in turn.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "engines"))
os.environ["ROOFLENS_DIR"] = tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None)

import transformers
from continuous_harness import engine, greedy, prompts, small_llama

import rooflens.adapters.transformers as hook

RUNNING = (1, 16, 64, 256)
ROUNDS, STEPS = 12, 20


def processor(running: int) -> Any:
    """A batch processor whose requests all decode; the model runs for their prompts only."""
    model = small_llama(num_hidden_layers=1, hidden_size=64, intermediate_size=64)
    settings = engine(running * 80, 2048, max_requests_per_batch=running)
    manager = model.init_continuous_batching(greedy(5000), settings)
    for one in prompts(running, 16, 48):
        manager.add_request(one)
    found = manager._create_batch_processor()
    while len(found.scheduler.active_requests) < running or found.scheduler.waiting_requests:
        assert found.prepare_next_batch()
        found._generation_step(model)
        found.update_batch()
    found.made_by = manager
    return found


def step_us(one: Any) -> float:
    """Mean time of a step without its forward pass, in microseconds."""
    began = time.perf_counter_ns()
    for _ in range(STEPS):
        one.prepare_next_batch()
        one.update_batch()
    return (time.perf_counter_ns() - began) / STEPS / 1e3


def hooked_us(one: Any) -> float:
    """A step with the hook, its ring open; the hook is off again afterwards."""
    hook.install()
    one.prepare_next_batch()
    one.update_batch()
    found = step_us(one)
    hook.uninstall()
    return found


def cost(running: int) -> dict[str, float]:
    """Medians over ROUNDS, in microseconds a step.

    Contexts grow by a token a step and the engine's own work with them, so each round goes without, with, with and
    without the hook, and what the hook adds is the mean of the inner two less that of the outer two.
    """
    one = processor(running)
    bare, added = [], []
    for _ in range(ROUNDS):
        first, second, third, fourth = step_us(one), hooked_us(one), hooked_us(one), step_us(one)
        bare.append((first + fourth) / 2)
        added.append((second + third) / 2 - bare[-1])
    engine_us, hook_us = statistics.median(bare), statistics.median(added)
    return {"engine_us": round(engine_us, 1), "hook_us": round(hook_us, 1), "ratio": round(hook_us / engine_us, 4)}


def main() -> None:
    """A row for each number of running requests."""
    rows = {running: cost(running) for running in RUNNING}
    print(json.dumps({"transformers": transformers.__version__, "machine": platform.machine(), "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
