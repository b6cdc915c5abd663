"""One run of vLLM seen in five ways at once: by the hook, by its page twice, by its periodic and by its iteration log.

The page is read once as the sidecar asks for it and once as a client does that negotiates OpenMetrics, through a proxy
that asks so. The server's log is split in two: one without its lines for each iteration, one without the periodic
ones. Five sidecars with their usual settings watch the run, each by one way alone. Needs vLLM with rooflens installed:
ROOFLENS_VLLM_VENV, else .venv-vllm. Some minutes. Writes benchmarks/results/five_ways.json and the table in
docs/accuracy.md.
"""

from __future__ import annotations

import http.client
import http.server
import json
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "engines"))
sys.path.insert(0, str(Path(__file__).parent))

from agreement import Follower, Step
from live_harness import Load, Sidecar, Stream, sidecar
from prove_accuracy import FLAGS, LONGEST_S, PYTHON, Case, about, compact, decode, write_roof
from server_harness import Server, running

from rooflens.collector.cpu_roof import measure_cpu

ROOT = Path(__file__).parents[1]
RESULT, PAGE = ROOT / "benchmarks" / "results" / "five_ways.json", ROOT / "docs" / "accuracy.md"
BEGIN, END = "<!-- table: begin (written by benchmarks/prove_five_ways.py) -->", "<!-- table: five ways end -->"
LOGGED = "--enable-logging-iteration-details"
OPEN_METRICS = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"
ITERATION, PERIODIC = "Iteration(", "Avg prompt throughput"
WAYS = ("hook", "page", "page, OpenMetrics", "periodic log", "iteration log")
FIGURES = ("batch", "context_tokens", "step_s", "kv_blocks", "mbu")
SETTLE_S, SPLIT_S = 22.0, 0.1  # two lines of the periodic log; far below one


CASES = (
    decode(1, 64),
    decode(8, 64),
    decode(8, 2500),
    Case("requests come and go", tuple(Stream(100 + 20 * n, 80 + 15 * n, rounds=14 - n) for n in range(8))),
)


@contextmanager
def negotiating(port: int) -> Iterator[int]:
    """A proxy whose page is the server's as OpenMetrics, whatever the client asked for; its port."""

    class Proxy(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            there = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
            there.request("GET", self.path, headers={"Accept": OPEN_METRICS})
            answer = there.getresponse()
            body = answer.read()
            self.send_response(answer.status)
            for name in ("Content-Type", "Date"):
                self.send_header(name, answer.getheader(name) or "")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            there.close()

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def split(log: Path, iterations: Path, others: Path) -> Iterator[None]:
    """Copy ``log`` into two files as it comes, one without the periodic lines, one without those of iterations."""
    over = threading.Event()

    def copy() -> None:
        with log.open() as source, iterations.open("w", 1) as one, others.open("w", 1) as two:
            rest = ""
            while not over.is_set() or rest:
                rest += source.read()
                *lines, rest = rest.split("\n")
                for line in lines:  # what the engine says of itself when it starts is in both
                    if PERIODIC not in line:
                        one.write(line + "\n")
                    if ITERATION not in line:
                        two.write(line + "\n")
                if over.is_set():
                    return
                over.wait(SPLIT_S)

    thread = threading.Thread(target=copy, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(10)


def figures(rows: Sequence[Step]) -> dict[str, float | None]:
    """Means over rows that weigh as many steps as they stand for; None for what is not known of any of them."""

    def total(name: str, *beside: str) -> tuple[float | None, Sequence[Step]]:
        known = [row for row in rows if all(row[each] is not None for each in (name, *beside))]
        return (float(sum(row[name] for row in known)) if known else None), known

    rows = [row for row in rows if row["resolution_steps"] is not None]  # of others it is not known how many they are
    steps = sum(row["resolution_steps"] for row in rows)
    found: dict[str, float | None] = {"steps": float(steps)}
    for name, column, per in (
        ("batch", "requests", None), ("context_tokens", "context_tokens", "requests"), ("step_s", "observed_s", None),
        ("mbu", "memory_s", "observed_s"),
    ):  # fmt: skip
        value, known = total(column, *([per] if per else []))
        over = sum(row[per] for row in known) if per else sum(row["resolution_steps"] for row in known)
        found[name] = value / over if value is not None and over else None
    held = [row for row in rows if row["kv_blocks_used"] is not None]
    weights = sum(row["resolution_steps"] for row in held)
    blocks = sum(row["kv_blocks_used"] * row["resolution_steps"] for row in held)
    found["kv_blocks"] = blocks / weights if weights else None
    return found


def apply(case: Case, server: Server, sidecars: dict[str, Sidecar]) -> dict[str, Any]:
    """Put the load on, and lay what each way saw of it beside the hook's steps of the same time."""
    followers = {way: Follower(one) for way, one in sidecars.items()}
    began_s = time.monotonic()
    load = Load(server, case.streams)
    load.wait(LONGEST_S)
    ended_s = time.monotonic()
    time.sleep(SETTLE_S)
    seen = {way: follower.end() for way, follower in followers.items()}
    steps = [row for row in seen["hook"] if began_s < row["output_monotonic_s"] <= ended_s]
    result: dict[str, Any] = {"name": case.name, "seconds": ended_s - began_s, "ways": {}}
    for way in WAYS[1:]:
        rows = [row for row in seen[way] if within(case, row, began_s, ended_s)]
        spans = [(row["submit_monotonic_s"], row["output_monotonic_s"]) for row in rows]
        beside = steps if way == "iteration log" else [s for s in steps if inside(s["output_monotonic_s"], spans)]
        beside = [step for step in beside if case.steady in (None, step["requests"])]
        mine, its = figures(beside), figures(rows)
        off = {n: its[n] / mine[n] - 1 if its[n] is not None and mine[n] else None for n in FIGURES}
        result["ways"][way] = {"rows": len(rows), "hook_steps": len(beside), "hook": mine, "it": its, "off_by": off}
        print(f"{case.name:<36} {way:<18} {len(rows):>5} rows  " + cells(off), file=sys.stderr, flush=True)
    result["hook"] = figures([step for step in steps if case.steady in (None, step["requests"])])
    return result


def inside(moment_s: float, spans: Sequence[tuple[float, float]]) -> bool:
    """Whether a moment lies within one of the stretches."""
    return any(begin < moment_s <= end for begin, end in spans)


def within(case: Case, row: Step, began_s: float, ended_s: float) -> bool:
    """Whether the row is of this load alone, and of a steady one at its batch and without a prompt."""
    begin, end = row["submit_monotonic_s"], row["output_monotonic_s"]
    if begin is None or end is None or not began_s < begin < end < ended_s:
        return False
    if case.steady is None:
        return True
    steps = row["resolution_steps"] or 1
    return (
        not row["prefill_tokens"] and row["requests"] is not None and abs(row["requests"] / steps - case.steady) < 0.05
    )


def cells(off: dict[str, float | None]) -> str:
    """How far each figure is off, in one line."""
    return "  ".join(f"{name} {'?' if value is None else f'{value:+.1%}'}" for name, value in off.items())


def table(cases: Sequence[dict[str, Any]]) -> str:
    """The results as Markdown: what the hook says, then each way's difference."""
    lines = ["| load | seen by | batch | context | step | KV blocks | MBU |", "|---|---|---|---|---|---|---|"]
    for case in cases:
        hook = case["hook"]
        shown = (
            f"{hook['batch']:.2f}", f"{hook['context_tokens']:,.0f}", f"{hook['step_s'] * 1e3:.1f} ms",
            f"{hook['kv_blocks']:,.0f}", f"{hook['mbu']:.1%}",
        )  # fmt: skip
        lines.append(f"| {case['name']} | hook | {' | '.join(shown)} |")
        for way, its in case["ways"].items():
            off = ["not told" if value is None else f"{value:+.1%}" for value in its["off_by"].values()]
            lines.append(f"| | {way} | {' | '.join(off)} |")
    return "\n".join(lines)


def medians(cases: Sequence[dict[str, Any]]) -> dict[str, dict[str, float | None]]:
    """By way the middle of how far off each figure is, signs left out."""
    found: dict[str, dict[str, float | None]] = {}
    for way in WAYS[1:]:
        known = {n: [abs(o) for c in cases if (o := c["ways"][way]["off_by"][n]) is not None] for n in FIGURES}
        found[way] = {name: statistics.median(values) if values else None for name, values in known.items()}
    return found


def main() -> None:
    """Start a server and five sidecars, apply every load, write down."""
    hardware = measure_cpu()
    result = about(hardware)
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        write_roof(hardware, folder / "roof.toml")
        server = stack.enter_context(running(folder, *FLAGS, LOGGED, python=str(PYTHON)))
        iterations, others = folder / "iterations.log", folder / "others.log"
        stack.enter_context(split(server.log, iterations, others))
        proxy = stack.enter_context(negotiating(server.port))
        time.sleep(1.0)
        roof = ("--hardware", str(folder / "roof.toml"), "--model", str(folder / "model" / "config.json"))
        page = ("--scrape", f"http://127.0.0.1:{server.port}/metrics")
        flags = (
            page,
            ("--scrape", f"http://127.0.0.1:{proxy}/metrics"),
            ("--log", str(others)),
            ("--log", str(iterations)),
        )
        sidecars = {"hook": stack.enter_context(sidecar(folder, "hook", *roof, rings=server.rings))}
        for way, given in zip(WAYS[1:], flags, strict=True):
            one = sidecar(folder, way.replace(", ", "-").replace(" ", "-"), *roof, *given)
            sidecars[way] = stack.enter_context(one)
        cases = [apply(case, server, sidecars) for case in CASES]
    result |= {"cases": cases, "off_by_median": medians(cases)}
    RESULT.write_text(compact(json.loads(json.dumps(result))) + "\n")
    text = PAGE.read_text(encoding="utf-8")
    head, rest = text.split(BEGIN)
    PAGE.write_text(f"{head}{BEGIN}\n{table(cases)}\n{END}{rest.split(END)[1]}", encoding="utf-8")


if __name__ == "__main__":
    main()
