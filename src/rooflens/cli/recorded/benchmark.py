"""Results of benchmarks: what was run, the latencies, and the step beside the roofline.

vLLM, SGLang, aiperf and genai-perf, llama-bench, trtllm-bench, guidellm, inference-perf: text, tables, JSON, JSON
lines, CSV and SQL. docs/benchmarks.md says what is taken from each and what is not.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from rooflens.adapters.bench.reading import looks_like, read_results
from rooflens.cli.recorded import Asked
from rooflens.cli.recorded.bench_roof import Beside, Roofs
from rooflens.cli.recorded.bench_text import result_text, table_text
from rooflens.observation_records import Observation

FORMAT = "benchmark"
__all__ = ["is_mine", "report"]


def is_mine(head: str) -> bool:
    """Whether the file is of results that a known benchmark wrote."""
    return looks_like(head)


def report(path: Path, asked: Asked) -> tuple[dict[str, Any], str]:
    """Every result in the file, with its points beside the roofline where model and hardware are known."""
    found = read_results(path)
    roofs = Roofs(asked)
    laid = [(seen, *roofs.beside(seen)) for seen in found.observations]
    data = {
        "format": FORMAT,
        "file": str(path),
        "origin": found.observations[0].origin,
        "observations": [as_json(*one) for one in laid],
        "complaints": list(found.complaints),
    }
    told = result_text(*laid[0]) if len(laid) == 1 else table_text(laid)
    complaints = [f"warning   {line}" for line in found.complaints]
    return data, "\n".join([f"file      {path}", *told, *complaints])


def as_json(seen: Observation, points: tuple[Beside, ...], problem: str | None) -> dict[str, Any]:
    """One result: every field of the observation, null where not known, and its points."""
    return {**asdict(seen), "points": [one.to_json() for one in points], "problem": problem}
