"""How many steps a second one core lays under the roofline. Run by ``make bench``; ``--json FILE`` writes it down.

Steps are made up: decode batches of 1 to 256 sequences, every tenth with a chunk of a prompt beside them. ``bounds``
is the floor with its three sides, what binds it and the step with expected experts; ``reachable`` what usual kernels
take; ``analysis`` all columns of StepAnalysis, with groups of operators. What counts is the processor time from the
columns of a table to those of the result, best of five: one thread that waits for nothing, whoever else uses the
machine. Memory is the peak of the process while it follows 8 million steps, less that of 1 million.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # one core is what is measured

import argparse
import json
import platform
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rooflens.analyzer.arch import find_model
from rooflens.analyzer.efficiency import efficiency_of
from rooflens.analyzer.hardware import find_hardware
from rooflens.analyzer.precision import choose_precision
from rooflens.analyzer.reachable_steps import ReachableSteps
from rooflens.analyzer.roofline import Roofline
from rooflens.analyzer.spans import pairs_within, spans_of, within
from rooflens.arch_records import Deployment
from rooflens.records import StepKind, StepTable

TABLE_STEPS = 1 << 16
ROUNDS = 5
FEW, MANY = 1_000_000, 8_000_000
BLOCK_TOKENS = 16
PROMPT_TOKENS = 1024


@dataclass(frozen=True, slots=True)
class Case:
    """A model on its devices; ``goal`` is how many steps a second bounds and reachable together are to reach."""

    model: str
    hardware: str
    deployment: Deployment
    goal: float


CASES = (
    Case("meta-llama-3.1-8b", "h100-sxm5-80", Deployment(), 2e6),
    Case("meta-llama-3.1-70b", "h100-sxm5-80", Deployment(tensor=4), 2e6),
    Case("deepseek-v3", "h200-sxm-141", Deployment(tensor=8, expert=True), 1e6),
    Case("deepseek-v4-pro", "b200-sxm", Deployment(tensor=8, data=2, expert=True), 1e6),
)


def made_steps(count: int, spans: tuple[str, ...], seed: int) -> StepTable:
    """``count`` steps as a ring gives them."""
    chance = np.random.default_rng(seed)
    batch, context = chance.integers(1, 257, count), chance.integers(64, 16_384, count)
    prompts = (chance.random(count) < 0.1).astype(np.int64)
    columns = {
        "kind": np.where(prompts > 0, StepKind.MIXED, StepKind.DECODE),
        "requests": batch + prompts,
        "sampled_rows": batch + prompts,
        "query_tokens": batch + prompts * PROMPT_TOKENS,
        "prefill_tokens": prompts * PROMPT_TOKENS,
        "context_tokens": batch * context,
        "kv_blocks_used": batch * (context // BLOCK_TOKENS + 1) + prompts * (PROMPT_TOKENS // BLOCK_TOKENS),
        "padded_tokens": -(-batch // 8) * 8 + prompts * PROMPT_TOKENS,
        "finished_requests": (chance.random(count) < 0.05).astype(np.int64),
        "preempted": np.zeros(count, np.int64),
        "observed_s": chance.uniform(0.01, 0.1, count),
    }
    for span in ("", *spans):
        mark = f"@{span}" if span else ""
        prompt = prompts * pairs_within(0, PROMPT_TOKENS, span)
        columns[f"context_tokens{mark}"] = batch * within(context, span)
        columns[f"prefill_pairs{mark}"] = prompt
        columns[f"causal_pairs{mark}"] = batch * pairs_within(context, np.ones_like(context), span) + prompt
    return StepTable(columns)


def best_s(call: Callable[[], Any]) -> float:
    """The shortest of ROUNDS, in seconds of processor time."""
    found = []
    for _ in range(ROUNDS):
        start = time.process_time()
        call()
        found.append(time.process_time() - start)
    return min(found)


def tables(source: StepTable, steps: int) -> Iterator[StepTable]:
    """``steps`` steps a table at a time, as a reader that follows an engine gets them."""
    for start in range(0, steps, TABLE_STEPS):
        size = min(TABLE_STEPS, steps - start)
        yield StepTable({name: column[:size].copy() for name, column in source.columns.items()})


def reached(steps: ReachableSteps, roofline: Roofline, table: StepTable) -> float:
    """The sum of what usual kernels take, so that nothing is left out."""
    features = roofline.features_called(steps.names)
    return sum(float(steps.seconds(matrix).sum()) for _, matrix, _ in features.chunks(table))


def followed(roofline: Roofline, usual: ReachableSteps, spans: tuple[str, ...], steps: int) -> None:
    """Bounds of ``steps`` steps, a table at a time."""
    for part in tables(made_steps(TABLE_STEPS, spans, seed=2), steps):
        roofline.bounds(part)
        reached(usual, roofline, part)


def peak_bytes(call: Callable[[], Any]) -> int:
    """The most memory that this process has while ``call`` runs."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # proc(5): resets the peak
    call()
    (line,) = [line for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines() if "VmHWM" in line]
    return int(line.split()[1]) * 1024


def measured(case: Case, count: int) -> dict[str, Any]:
    """The speeds of one model over ``count`` steps, and how memory grows from FEW to MANY."""
    arch, hardware = find_model(case.model), find_hardware(case.hardware)
    roofline = Roofline(arch, hardware, choose_precision(arch), case.deployment, BLOCK_TOKENS)
    efficiency = efficiency_of(hardware)
    assert efficiency is not None
    usual = ReachableSteps(roofline, efficiency)
    few, many = (peak_bytes(lambda n=n: followed(roofline, usual, spans_of(arch), n)) for n in (FEW, MANY))
    table = made_steps(count, spans_of(arch), seed=1)
    bounds_s = best_s(lambda: roofline.bounds(table))
    reachable_s = best_s(lambda: reached(usual, roofline, table))
    analysis_s = best_s(lambda: roofline.analyse(table))
    assert roofline.bounds(table).modelled.all()
    return {
        "model": case.model,
        "hardware": case.hardware,
        "operators": len(roofline.rows),
        "features": len(roofline.names),
        "steps": count,
        "bounds_steps_per_s": count / bounds_s,
        "reachable_steps_per_s": count / reachable_s,
        "both_steps_per_s": count / (bounds_s + reachable_s),
        "analysis_steps_per_s": count / analysis_s,
        "goal_steps_per_s": case.goal,
        "more_bytes_at_8_million": many - few,
    }


def main() -> None:
    """Measure each model on one core, print a line each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="write the figures here")
    parser.add_argument("--steps", type=int, default=4_000_000, help="steps a model")
    options = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    rows = []
    for case in CASES:
        row = measured(case, options.steps)
        rows.append(row)
        print(
            f"{row['model']:20} million steps a second on one core: bounds {row['bounds_steps_per_s'] / 1e6:5.1f}, "
            f"reachable {row['reachable_steps_per_s'] / 1e6:5.1f}, both {row['both_steps_per_s'] / 1e6:5.1f} "
            f"(goal {row['goal_steps_per_s'] / 1e6:.0f}), full analysis {row['analysis_steps_per_s'] / 1e6:5.1f}; "
            f"{row['more_bytes_at_8_million'] / 1e6:.1f} MB more at 8 million steps than at 1 million"
        )
    if options.json:
        about = {"python": platform.python_version(), "machine": platform.machine(), "numpy": np.__version__}
        options.json.write_text(json.dumps({"about": about, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
