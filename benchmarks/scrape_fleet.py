"""What a sidecar costs that reads the metrics pages of 32 engines every second, one server each.

The servers run in another process (fleet_pages.py): vLLM, SGLang, TensorRT-LLM, llama.cpp, TGI and workers of Dynamo,
with counters that move and pages as long as real ones. The sidecar is the real process with a roofline and all rules,
its own page read every five seconds as Prometheus does. Its share of a core is its CPU time in /proc over the wall
time, all threads, start-up left out: the middle of several runs in a row is told, and each of them.
``--json FILE`` writes the figures down.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import signal
import statistics
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any

GOAL_PERCENT = 10.0
PERIOD_S = 1.0
READ_S = 5.0
SETTLE_S = 20.0  # imports, the first windows
ROOFLENS = [sys.executable, "-P", "-c", "import sys; from rooflens.cli import main; sys.exit(main())"]
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def start_fleet() -> tuple[subprocess.Popen[str], list[dict[str, str]]]:
    """The process of the servers, and their engines and addresses."""
    command = [sys.executable, str(Path(__file__).with_name("fleet_pages.py"))]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, json.loads(process.stdout.readline())


def start_sidecar(urls: list[str]) -> tuple[subprocess.Popen[str], str]:
    """The process, and its address."""
    command = [*ROOFLENS, "sidecar", "--no-rings", "--listen", "127.0.0.1:0", "--hardware", "h100-sxm5-80",
               "--scrape-period", f"{PERIOD_S:g}", "--model", "meta-llama-3.1-8b"]  # fmt: skip
    process = subprocess.Popen(
        [*command, *(word for url in urls for word in ("--scrape", url))], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    for line in process.stdout:
        if found := re.match(r"metrics +(http://\S+)/metrics", line):
            return process, found[1]
    raise SystemExit("the sidecar did not start")


def cpu_s(pid: int) -> float:
    """CPU seconds of a process so far, user and system, all threads, as the kernel counts them."""
    after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(after_name[11]) + int(after_name[12])) / TICKS_PER_S


def read(url: str) -> bytes:
    """A page."""
    with urllib.request.urlopen(url, timeout=30) as answer:
        body: bytes = answer.read()
    return body


def one_run(pid: int, address: str, seconds: float) -> tuple[float, dict[str, Any]]:
    """The share of a core in percent over ``seconds``, and what the sidecar's page said at the end."""
    began_s, used_s = time.monotonic(), cpu_s(pid)
    page = b""
    while time.monotonic() - began_s < seconds:
        page = read(f"{address}/metrics")
        time.sleep(READ_S)
    share = 100 * (cpu_s(pid) - used_s) / (time.monotonic() - began_s)
    failures = re.search(rb'^rooflens_source_failures_total\{[^}]*"metrics"\} (\S+)$', page, re.MULTILINE)
    return share, {"page_bytes": len(page), "failed_reads": float(failures[1]) if failures else None}


def measure(runs: int, seconds: float) -> dict[str, Any]:
    """The figures of ``runs`` stretches of one sidecar."""
    fleet, engines = start_fleet()
    try:
        bytes_s = sum(len(read(each["url"])) for each in engines) / PERIOD_S
        process, address = start_sidecar([each["url"] for each in engines])
        try:
            time.sleep(SETTLE_S)
            stretches = [one_run(process.pid, address, seconds) for _ in range(runs)]
            views = json.loads(read(f"{address}/api/v1/engines"))["engines"]
            status = Path(f"/proc/{process.pid}/status").read_text()
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(30)
    finally:
        fleet.kill()
        fleet.wait()
    shares = [share for share, _ in stretches]
    peak = re.search(r"VmHWM:\s+(\d+)", status)
    return {
        "pages": len(engines),
        "engines_seen": dict(Counter(str((view.get("info") or {}).get("engine")) for view in views)),
        "core_percent": round(statistics.median(shares), 2),
        "goal_percent": GOAL_PERCENT,
        "of_goal": round(statistics.median(shares) / GOAL_PERCENT, 3),
        "each_run_percent": [round(share, 2) for share in shares],
        "seconds_a_run": seconds,
        "read_bytes_per_s": round(bytes_s),
        "peak_rss_mb": round(int(peak[1]) * 1024 / 1e6, 1) if peak else None,
        **stretches[-1][1],
    }


def main() -> None:
    """Measure, print the figures beside the goal, and write them down if asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3, help="how many stretches (default: 3)")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long each is (default: 60)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there as well")
    options = parser.parse_args()
    figures = measure(options.runs, options.seconds)
    for name, value in figures.items():
        print(f"{name:18} {value}")
    if options.json:
        about = {
            "python": platform.python_version(), "machine": platform.machine(), "cores": os.cpu_count(),
            "period_s": PERIOD_S, "page_read_every_s": READ_S, "load_1m": os.getloadavg()[0],
        }  # fmt: skip
        options.json.write_text(json.dumps({"about": about, **figures}, indent=1) + "\n")


if __name__ == "__main__":
    main()
