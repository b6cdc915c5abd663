"""What the vLLM hook costs the engine loop, beside vLLM's own estimators on the same SchedulerOutput.

Run by ``make bench`` in an environment with vLLM. Every figure of a row is taken in turn within one run, so that
the ratios hold on a noisy machine. ``--json FILE`` writes the figures; a table goes to standard output.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "engines"))
os.environ["ROOFLENS_DIR"] = tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None)

from scheduler_harness import AsyncScheduler, Model, Scheduler, make_request, make_scheduler
from vllm.v1.metrics.perf import ModelMetrics
from vllm.v1.utils import compute_iteration_details

from rooflens.adapters.vllm import patch, register

RUNNING = (1, 16, 64, 256, 1024)
ROUNDS = 60
CALLS = 40


def steady(running: int) -> tuple[Any, Any, Any]:
    """A scheduler with ``running`` decoding requests, one decode step's output, and the model's result."""
    rng = random.Random(running)
    scheduler = make_scheduler(Scheduler, blocks=40000, seqs=1024, budget=8192)
    model = Model(scheduler, 1)
    for number in range(running):
        scheduler.add_request(make_request(number, [rng.randrange(10, 30000) for _ in range(200)], 3000))
    output = None
    for _ in range(40):
        output = scheduler.schedule()
        model.scheduled(output)
        result = model.run(output)
        scheduler.update_from_output(output, result)
    assert output is not None
    assert output.total_num_scheduled_tokens == running, "not all requests decode yet"
    return scheduler, output, result


def per_call_us(function: Callable[[], Any]) -> float:
    """The mean of CALLS calls, in microseconds."""
    start = time.perf_counter_ns()
    for _ in range(CALLS):
        function()
    return (time.perf_counter_ns() - start) / CALLS / 1e3


def hook_alone(running: int) -> dict[str, float]:
    """Medians over ROUNDS, in microseconds a step: the whole hook around calls that do nothing, and vLLM's own."""
    scheduler, output, result = steady(running)
    capture = getattr(scheduler, patch.CAPTURE)
    capture.requests.pending.clear()
    schedule, update = patch._schedule(lambda self: output), patch._update(lambda self, out, res: {})

    def bare() -> None:
        (lambda self: output)(scheduler)
        (lambda self, out, res: {})(scheduler, output, result)

    def repeat() -> None:
        schedule(scheduler)
        update(scheduler, output, result)

    def full() -> None:
        capture.streams.latest.keyed_ns = 0
        schedule(scheduler)
        update(scheduler, output, result)

    metrics = ModelMetrics(scheduler.vllm_config)
    functions = {
        "bare": bare,
        "unchanged": repeat,
        "keyframe": full,
        "vllm_estimator": lambda: metrics.get_step_perf_stats_per_gpu(output),
        "vllm_iteration_details": lambda: compute_iteration_details(output),
    }
    seen: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(ROUNDS):
        for name, function in functions.items():
            seen[name].append(per_call_us(function))
    patch.detach(scheduler)
    medians = {name: statistics.median(values) for name, values in seen.items()}
    bare_us = medians.pop("bare")
    for name in ("unchanged", "keyframe"):
        medians[name] -= bare_us
    return medians


def timed(method: Callable[..., Any], spent_ns: list[int]) -> Callable[..., Any]:
    """``method``, adding its own duration to ``spent_ns[0]``."""

    def call(self: Any, *args: Any) -> Any:
        start = time.perf_counter_ns()
        value = method(self, *args)
        spent_ns[0] += time.perf_counter_ns() - start
        return value

    return call


def in_place(running: int, steps: int) -> dict[str, float]:
    """The hook's share of the real schedule() + update_from_output() while requests come and go."""
    rng = random.Random(running)
    scheduler = make_scheduler(AsyncScheduler, blocks=60000, seqs=max(running, 2), budget=8192)
    capture = getattr(scheduler, patch.CAPTURE)
    model = Model(scheduler, 1)
    inner_ns = [0]

    owner = type(scheduler)
    schedule = patch._schedule(timed(owner.schedule.__wrapped__, inner_ns))
    update = patch._update(timed(owner.update_from_output.__wrapped__, inner_ns))
    number, queue = 0, []
    shares: list[float] = []
    hook_us: list[float] = []
    for step in range(steps):
        while len(scheduler.running) + len(scheduler.waiting) < running + 1:
            number += 1
            prompt = [rng.randrange(10, 30000) for _ in range(rng.randrange(20, 300))]
            scheduler.add_request(make_request(number, prompt, rng.randrange(20, 400)))
        inner_ns[0] = 0
        start = time.perf_counter_ns()
        queue.append(schedule(scheduler))
        spent = time.perf_counter_ns() - start
        model.scheduled(queue[-1])
        if len(queue) < 2:
            continue
        done = queue.pop(0)
        result = model.run(done)
        start = time.perf_counter_ns()
        update(scheduler, done, result)
        spent += time.perf_counter_ns() - start - inner_ns[0]
        if step > steps // 4:
            shares.append(spent / inner_ns[0])
            hook_us.append(spent / 1e3)
    assert capture.failures == 0
    patch.detach(scheduler)
    hundredths = statistics.quantiles(shares, n=100)
    return {
        "in_place_p50_percent": 100 * hundredths[49],
        "in_place_p99_percent": 100 * hundredths[98],
        "in_place_p50_us": statistics.median(hook_us),
        "in_place_mean_percent": 100 * statistics.fmean(shares),
    }


def main() -> None:
    """Measure, print a table, and write JSON if asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="write the figures here")
    parser.add_argument("--steps", type=int, default=1500, help="steps of the in-place run at each size")
    options = parser.parse_args()
    register()
    rows = []
    for running in RUNNING:
        row: dict[str, float] = {"running": running, **hook_alone(running), **in_place(running, options.steps)}
        row["estimator_over_unchanged"] = row["vllm_estimator"] / row["unchanged"]
        row["estimator_over_keyframe"] = row["vllm_estimator"] / row["keyframe"]
        row["details_over_unchanged"] = row["vllm_iteration_details"] / row["unchanged"]
        rows.append(row)
        print(f"measured at {running} running", file=sys.stderr)
    names = list(rows[0])
    print("us a step (median) and ratios within one run; in place = share of schedule() + update_from_output()")
    for name in names:
        print(f"{name:28s}" + "".join(f"{row[name]:12.2f}" for row in rows))
    if options.json:
        import vllm

        about = {"vllm": vllm.__version__, "python": platform.python_version(), "machine": platform.machine()}
        options.json.write_text(json.dumps({"about": about, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
