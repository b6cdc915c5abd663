"""What a sidecar costs that reads the pages of 32 engines once a second, all that it does with them included.

The engines are HTTP servers in one other process (fleet_pages.py), the sidecar is the real one, asked for its own page
as Prometheus does. What counts is its processor time. That depends on the machine: work that begins after a second of
rest finds its caches cold and the processor asleep, and took 1.3 to 3 times as long here, the most on an idle virtual
machine. ``rest_factor`` is by how much, for work of a known size in this very run; beside it stands what the sidecar
would take at a factor of 1.
Run it: python benchmarks/scrape_fleet.py [--engines N] [--seconds S] [--json FILE]
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
from pathlib import Path
from typing import Any

from fleet_pages import FLEET, SEQUENCES, STEP_S

HERE = Path(__file__).resolve().parent
PERIOD_S, SCRAPE_S, SETTLE_S = 1.0, 5.0, 20.0
GOALS = {"core_percent": 10.0}
SIDECAR = [sys.executable, "-P", "-c", "import sys; from rooflens.cli import main; sys.exit(main())", "sidecar"]
OPTIONS = [
    "--no-rings", "--no-counters", "--listen", "127.0.0.1:0", "--hardware", "h100-sxm5-80",
    "--model", "meta-llama-3-8b", "--scrape-period", f"{PERIOD_S:g}",
]  # fmt: skip


def read(url: str) -> bytes:
    """What is there."""
    with urllib.request.urlopen(url, timeout=30) as answer:
        body: bytes = answer.read()
    return body


def yardstick() -> int:
    """Work as a sidecar does it: dicts, text and patterns, some milliseconds."""
    text = json.dumps({f"k{number}": [number, str(number)] for number in range(3000)})
    return len(json.loads(text)) + len(re.findall(r"k\d+", text))


def yardstick_s(times: int, rest_s: float) -> float:
    """Mean processor seconds of the yardstick, each time after so long a rest."""
    spent_s = 0.0
    for _ in range(times):
        time.sleep(rest_s)
        began_s = time.process_time()
        yardstick()
        spent_s += time.process_time() - began_s
    return spent_s / times


def cpu_s(pid: int) -> float:
    """Processor time that a process has used, user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_mb(pid: int, name: str) -> float:
    """A line of /proc/PID/status in MB."""
    found = re.search(rf"{name}:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) * 1024 / 1e6 if found else 0.0


def watch(process: subprocess.Popen[str], address: str, seconds: float) -> dict[str, Any]:
    """Let it settle, then look at the process and ask for its page as Prometheus does."""
    time.sleep(SETTLE_S)
    began_s, began_cpu_s, turns_s, page = time.monotonic(), cpu_s(process.pid), [], b""
    while time.monotonic() - began_s < seconds:
        page = read(f"{address}/metrics")
        turns_s.append(json.loads(read(f"{address}/api/v1/findings"))["snapshot"]["loop_s"])
        time.sleep(SCRAPE_S)
    spent_s, wall_s = cpu_s(process.pid) - began_cpu_s, time.monotonic() - began_s
    up = re.search(rb"^rooflens_sources_up\{[^}]*metrics[^}]*\} (\S+)$", page, re.MULTILINE)
    steps = re.findall(rb"^rooflens_steps_total\{(.*)\} [1-9]", page, re.MULTILINE)
    its = {tuple(word for word in labels.split(b",") if not word.startswith(b"kind=")) for labels in steps}
    return {
        "core_percent": round(100 * spent_s / wall_s, 2),
        "rss_mb": round(memory_mb(process.pid, "VmRSS"), 1),
        "peak_rss_mb": round(memory_mb(process.pid, "VmHWM"), 1),
        "turn_median_ms": round(1e3 * statistics.median(turns_s), 1),
        "page_bytes": len(page),
        "pages_up": float(up[1]) if up else None,
        "engines_with_steps": len(its),
        "seconds": round(wall_s, 1),
    }


def measure(engines: int, seconds: float) -> dict[str, Any]:
    """The figures of one run."""
    fleet = subprocess.Popen(
        [sys.executable, str(HERE / "fleet_pages.py"), str(engines)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert fleet.stdout is not None
    urls = json.loads(fleet.stdout.readline())
    command = [*SIDECAR, *OPTIONS, *(word for url in urls for word in ("--scrape", url))]
    sidecar = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert sidecar.stdout is not None
        for line in sidecar.stdout:
            if found := re.match(r"metrics +(http://\S+)/metrics", line):
                return {"engines": engines, **watch(sidecar, found[1], seconds)}
        raise SystemExit("the sidecar did not start")
    finally:
        sidecar.send_signal(signal.SIGTERM)
        sidecar.wait(30)
        fleet.kill()
        fleet.wait()


def main() -> None:
    """Measure one engine and the fleet, print the figures beside the goal."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engines", type=int, default=len(FLEET), help=f"how many engines (default: {len(FLEET)})")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long to measure (default: 60)")
    parser.add_argument("--runs", type=int, default=1, help="runs of the fleet (default: 1)")
    parser.add_argument("--json", type=Path, help="write the figures here")
    options = parser.parse_args()
    one = measure(1, options.seconds) if options.engines > 1 else None
    runs = [measure(options.engines, options.seconds) for _ in range(options.runs)]
    for figures in ([one] if one else []) + runs:
        print(json.dumps(figures))
    middle = statistics.median(run["core_percent"] for run in runs)
    factor = yardstick_s(15, PERIOD_S) / yardstick_s(100, 0.0)
    result: dict[str, Any] = {"core_percent": middle, "goal": GOALS, "rest_factor": round(factor, 2)}
    result |= {"core_percent_without_rest": round(middle / factor, 2), "runs": runs}
    if one:
        result |= {"one_engine": one, "ratio_to_one": round(middle / max(one["core_percent"], 0.01), 1)}
    print(f"{middle:.2f} % of a core (goal: below {GOALS['core_percent']:g}); work after rest takes {factor:.2f} times")
    if options.json:
        about = {
            "python": platform.python_version(), "machine": platform.machine(), "cores": os.cpu_count(),
            "period_s": PERIOD_S, "sequences": SEQUENCES, "step_s": STEP_S, "asked_every_s": SCRAPE_S,
            "load_1m": round(os.getloadavg()[0], 1),
            "fleet": {name: FLEET.count(name) for name in dict.fromkeys(FLEET)},
        }  # fmt: skip
        options.json.write_text(json.dumps({"about": about, **result}, indent=1) + "\n")


if __name__ == "__main__":
    main()
