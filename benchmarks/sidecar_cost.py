"""What a sidecar costs beside engines of 200 steps a second while its metrics are read every five seconds.

Each engine is a process that records made-up decode steps of a batch of 32 with churn: in one step of eight a request
ends and another joins. The sidecar is the real process with a roofline and all rules. Its share of a core is its own
CPU time over the wall time, all threads, start-up left out; memory is its resident set at the end and its peak.
``--json FILE`` writes the figures down.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

import psutil

STEPS_PER_S = 200.0
BATCH = 32
CHURN_EVERY = 8
SCRAPE_S = 5.0
SETTLE_S = 15.0  # imports, the first windows, caches of the page
GOALS = {"core_percent": 3.0, "rss_mb": 100.0}
ROOFLENS = [sys.executable, "-P", "-c", "import sys; from rooflens.cli import main; sys.exit(main())"]


def write(folder: Path, rank: int) -> None:
    """Record steps at their pace until killed."""
    from rooflens.adapters.recorder import Recorder
    from rooflens.analyzer.arch import known_models

    chance = random.Random(rank)
    facts = {"model_name": "bench", "model_config": dict(known_models()[0]["config"]), "kv_blocks": 20_000}
    contexts = [chance.randrange(100, 4000) for _ in range(BATCH)]
    due_s, number = time.monotonic(), 0
    with Recorder("bench", folder=folder, rank=rank, strict=True, block_tokens=16, **facts) as recorder:
        while True:
            number += 1
            queries = None
            given: dict[str, int] = {"running": BATCH, "waiting": 1, "deferred": 0, "kv_blocks_used": 9000}
            if number % CHURN_EVERY == 0:
                contexts.pop(chance.randrange(BATCH))
                contexts.append(0)
                queries = [1] * (BATCH - 1) + [chance.randrange(50, 500)]
                given |= {"finished_requests": 1, "new_requests": 1, "prompt_tokens": queries[-1]}
            with recorder.step(contexts=contexts, queries=queries, **given):
                due_s += 1 / STEPS_PER_S
                time.sleep(max(0.0, due_s - time.monotonic()))
            contexts = [c + (queries[row] if queries else 1) for row, c in enumerate(contexts)]


def read(url: str) -> tuple[bytes, float]:
    """A page, and the seconds that it took."""
    began_s = time.perf_counter()
    with urllib.request.urlopen(url, timeout=30) as answer:
        body: bytes = answer.read()
    return body, time.perf_counter() - began_s


def start_sidecar(folder: Path) -> tuple[subprocess.Popen[str], str]:
    """The process, and its address."""
    command = [*ROOFLENS, "sidecar", str(folder), "--listen", "127.0.0.1:0", "--hardware", "h100-sxm5-80"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for line in process.stdout:
        if found := re.match(r"metrics +(http://\S+)/metrics", line):
            return process, found[1]
    raise SystemExit("the sidecar did not start")


def watch(process: subprocess.Popen[str], address: str, seconds: float) -> dict[str, Any]:
    """Scrape as Prometheus does and look at the process."""
    time.sleep(SETTLE_S)
    its = psutil.Process(process.pid)
    began_s, cpu = time.monotonic(), its.cpu_times()
    scrapes_s, turns_s, page = [], [], b""
    while time.monotonic() - began_s < seconds:
        page, taken_s = read(f"{address}/metrics")
        scrapes_s.append(taken_s)
        turns_s.append(json.loads(read(f"{address}/api/v1/findings")[0])["snapshot"]["loop_s"])
        time.sleep(SCRAPE_S)
    used, wall_s = its.cpu_times(), time.monotonic() - began_s
    spent_s = used.user + used.system - cpu.user - cpu.system
    status = Path(f"/proc/{process.pid}/status").read_text()
    peak_kb = int(re.search(r"VmHWM:\s+(\d+)", status)[1])  # type: ignore[index]
    steps = sum(float(v) for v in re.findall(rb"^rooflens_steps_total\{.*\} (\S+)$", page, re.MULTILINE))
    return {
        "core_percent": 100 * spent_s / wall_s,
        "rss_mb": its.memory_info().rss / 1e6,
        "peak_rss_mb": peak_kb * 1024 / 1e6,
        "turn_median_ms": 1e3 * statistics.median(turns_s),
        "turn_max_ms": 1e3 * max(turns_s),
        "scrape_median_ms": 1e3 * statistics.median(scrapes_s),
        "page_bytes": len(page),
        "steps_counted": steps,
        "threads": its.num_threads(),
        "seconds": wall_s,
    }


def measure(engines: int, seconds: float) -> dict[str, Any]:
    """The figures of one run."""
    shared = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shared if shared.is_dir() else None) as name:
        writers = [
            subprocess.Popen([sys.executable, __file__, "--write", name, "--rank", str(rank)])
            for rank in range(engines)
        ]
        process, address = start_sidecar(Path(name))
        try:
            return {"engines": engines, **watch(process, address, seconds)}
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(30)
            for writer in writers:
                writer.kill()
                writer.wait()


def main() -> None:
    """Measure once and print the figures beside the goals."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engines", type=int, default=1, help="how many engines (default: 1)")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long to measure (default: 60)")
    parser.add_argument("--json", type=Path, help="write the figures here")
    parser.add_argument("--write", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--rank", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.write is not None:
        write(options.write, options.rank)
    figures = measure(options.engines, options.seconds)
    for name, value in figures.items():
        goal = f"   (goal: below {GOALS[name]:g})" if name in GOALS else ""
        print(f"{name:18} {value:12,.2f}{goal}")
    if options.json:
        about = {
            "python": platform.python_version(), "machine": platform.machine(), "cores": os.cpu_count(),
            "steps_per_s": STEPS_PER_S, "batch": BATCH, "scrape_every_s": SCRAPE_S, "load_1m": os.getloadavg()[0],
        }  # fmt: skip
        options.json.write_text(json.dumps({"about": about, "goals": GOALS, **figures}, indent=1) + "\n")


if __name__ == "__main__":
    main()
