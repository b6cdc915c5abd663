"""How long /metrics takes over loopback for 64 engines while a snapshot is published every second.

A server in a process of its own publishes made-up snapshots; this process asks for the page as fast as it gets it, one
format after the other. Rendering is timed beside the client library's own exposition, in the same run. ``--json FILE``
writes it down. Run by hand on a quiet machine.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import platform
import select
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

ENGINES = 64
PUBLISH_S = 1.0
ROUNDS = 5
ACCEPT = {"text": "text/plain", "openmetrics": "application/openmetrics-text"}


def serve(engines: int) -> None:
    """The other process: publish until told to stop, then say how much memory that took."""
    from made_snapshot import made_snapshot

    from rooflens.exporters.http_app import LiveServer

    snapshots = [made_snapshot(engines, number) for number in range(1, 4)]
    server = LiveServer("127.0.0.1", 0)
    server.start()
    server.export(snapshots[0])
    print(server.url, flush=True)
    number = 0
    while not select.select([sys.stdin], [], [], PUBLISH_S)[0]:
        number += 1
        server.export(snapshots[number % len(snapshots)])
    server.close()
    lines = Path("/proc/self/status").read_text().splitlines()
    print(next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM")), flush=True)


def latencies(address: str, accept: str, seconds: float) -> tuple[list[float], int]:
    """Seconds of each request in ``seconds``, connection included, and the page's size in bytes."""
    found, size, end_s = [], 0, time.perf_counter() + seconds
    while time.perf_counter() < end_s:
        start_s = time.perf_counter()
        connection = http.client.HTTPConnection(address, timeout=30)
        connection.request("GET", "/metrics", headers={"accept": accept})
        response = connection.getresponse()
        size = len(response.read())
        connection.close()
        found.append(time.perf_counter() - start_s)
        assert response.status == 200
    return found, size


def best_s(call: Callable[[], Any]) -> float:
    """Seconds of the fastest of ROUNDS calls."""
    seconds = []
    for _ in range(ROUNDS):
        start_s = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start_s)
    return min(seconds)


class _AsFamilies:
    """The same page handed to the client library as families that are ready to be written."""

    def __init__(self, page: bytes) -> None:
        from prometheus_client.openmetrics.parser import text_string_to_metric_families

        self._families = list(text_string_to_metric_families(page.decode()))

    def collect(self) -> Iterator[Any]:
        """All families."""
        return iter(self._families)


def render_seconds(engines: int) -> dict[str, float]:
    """Rendering by rooflens and by the client library, in seconds."""
    from made_snapshot import made_snapshot
    from prometheus_client import generate_latest
    from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics

    from rooflens.exporters.prometheus import render

    snapshot = made_snapshot(engines)
    families: Any = _AsFamilies(render(snapshot, openmetrics=True))
    seconds = {
        "text_render_s": best_s(lambda: render(snapshot)),
        "openmetrics_render_s": best_s(lambda: render(snapshot, openmetrics=True)),
        "text_library_s": best_s(lambda: generate_latest(families)),
        "openmetrics_library_s": best_s(lambda: generate_openmetrics(families)),
    }
    ratio = seconds["openmetrics_library_s"] / seconds["openmetrics_render_s"]
    return {**seconds, "library_over_render_ratio": ratio}


def main() -> None:
    """Measure both formats, print a line each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="write the figures here")
    parser.add_argument("--engines", type=int, default=ENGINES)
    parser.add_argument("--seconds", type=float, default=20.0, help="for each format")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.engines)
        return
    command = [sys.executable, __file__, "--serve", "--engines", str(options.engines)]
    rows = []
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        assert server.stdin is not None
        address = server.stdout.readline().strip().removeprefix("http://")
        for name, accept in ACCEPT.items():
            seconds, size = latencies(address, accept, options.seconds)
            cuts = statistics.quantiles(seconds, n=100)
            row = {"format": name, "requests": len(seconds), "page_bytes": size, "p50_s": cuts[49], "p99_s": cuts[98]}
            rows.append({**row, "max_s": max(seconds)})
            print(f"{name}: {size:,} bytes, p50 {cuts[49] * 1e3:.1f} ms, p99 {cuts[98] * 1e3:.1f} ms", flush=True)
        server.stdin.write("stop\n")
        server.stdin.flush()
        peak_bytes = int(server.stdout.readline())
    rendering = render_seconds(options.engines)
    ratio = rendering["library_over_render_ratio"]
    print(f"server: {peak_bytes / 1e6:.0f} MB at most; the library takes {ratio:.0f} times as long to render")
    if options.json:
        about = {"python": platform.python_version(), "machine": platform.machine(), "engines": options.engines}
        about |= {"cores": len(os.sched_getaffinity(0)), "load": os.getloadavg()[0]}
        result = {"about": about, "rows": rows, "rendering": rendering, "server_peak_bytes": peak_bytes}
        options.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
