"""A/A says same, 5 % of host time is found, another traffic mix says same: `rooflens diff` on ten pairs of real runs.

Records the embedded engine ten times over: twice as it is, once with 5 % of host time before each step and once under
another mix of requests, each in a process of its own, one after the other, so that the recordings of a pair were made
at different times as a user's are. Then judges each pair as the verb judges single runs of an engine on a CPU, and
three recordings a side. Writes benchmarks/results/prove_diff.json with the verdicts, the intervals and how busy the
machine was, and prints it last.
Exit code 1 if an A/A pair or another mix is called anything but the same, or fewer than nine in ten of the slowed are
found. Nine minutes, on a machine with nothing else to do: on a busy one A/A is "cannot tell".
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rooflens.analyzer.diff.compare import compare
from rooflens.analyzer.diff.result import Change, Comparison, Verdict
from rooflens.analyzer.diff.steps import Run, run_of
from rooflens.analyzer.diff.verdict import CPU_RUN_FLOOR, Thresholds
from rooflens.cli.embedded import carry_out
from rooflens.pipeline import read_ring

HERE = Path(__file__).parent
PAIRS, MINUTES, SLOWED = 10, 8.0, 0.05
LEAST_S, MOST_S, TRIAL_S = 6.0, 25.0, 2.0  # of a recording
AS_IT_IS, AGAIN, SLOW, OTHER = "a", "b", "slow", "other mix"
# Weights beyond the caches of one core, and steps short enough that most are over before another process gets the core.
MODEL = {"cache_bytes": 4 << 20, "memory_bytes": 1 << 28}
SETTINGS = {"kv_blocks": 160, "block_tokens": 16, "max_sequences": 8, "max_batched_tokens": 32}
SHORT = {"prompt_tokens": [16, 24], "output_tokens": [32, 96]}
LONG = {"long_prompt_tokens": 96, "long_every_steps": 24, "long_output_tokens": 8}
FEW = {"prompt_tokens": [48, 80], "output_tokens": [16, 48]}
USUAL = ({**SHORT, "name": "single", "concurrency": 1, "part": 0.25},
         {**SHORT, **LONG, "name": "batch", "concurrency": 6, "part": 0.75})  # fmt: skip
MIXED = ({**FEW, "name": "four", "concurrency": 4, "part": 0.5},
         {**SHORT, "name": "seven", "concurrency": 7, "part": 0.25},
         {**FEW, "name": "single", "concurrency": 1, "part": 0.25})  # fmt: skip
SINGLE = Thresholds(run_floor=CPU_RUN_FLOOR)
JUDGED = (("A/A", AS_IT_IS, AGAIN), ("5 % slower", AS_IT_IS, SLOW), ("another mix", AS_IT_IS, OTHER))


def record(
    place: Path, phases: Sequence[Mapping[str, Any]], host_delay_steps: float, seed: int, seconds: float
) -> None:
    """One run of the embedded engine, its ring at ``place``; nothing where that is there already."""
    if place.exists():
        return
    with tempfile.TemporaryDirectory(dir=place.parent) as folder:
        timed = [
            {name: value for name, value in phase.items() if name != "part"} | {"seconds": seconds * phase["part"]}
            for phase in phases
        ]
        order = {
            **MODEL, "folder": folder, "settings": SETTINGS | {"seed": seed}, "phases": timed,
            "faults": {"host_delay_steps": host_delay_steps},
        }  # fmt: skip
        shutil.move(carry_out(order, 1, lambda _line: None, lambda _line: None).ring, place)


def affordable(folder: Path, pairs: int, minutes: float) -> float:
    """How long each recording may be, by what the start and the end of one take beside its own time."""
    began = time.monotonic()
    record(folder / "trial.ring", USUAL, 0.0, 1, TRIAL_S)
    beside_s = time.monotonic() - began - TRIAL_S
    (folder / "trial.ring").unlink()
    found = round(min(MOST_S, max(LEAST_S, minutes * 60 / (4 * pairs) - beside_s)), 1)
    say(began, f"a recording takes {beside_s:.1f} s beside its own time: {4 * pairs} of {found} s each")
    return found


def recorded(folder: Path, pairs: int, seconds: float) -> dict[str, float]:
    """All runs of all pairs, and the load of the machine at the end of each."""
    loads, began = {}, time.monotonic()
    for number in range(pairs):
        for at, (name, phases, slowed) in enumerate(
            ((AS_IT_IS, USUAL, 0.0), (SLOW, USUAL, SLOWED), (AGAIN, USUAL, 0.0), (OTHER, MIXED, 0.0))
        ):
            record(folder / f"{name} {number}.ring", phases, slowed, 10 * number + at, seconds)
            loads[f"{name} {number}"] = round(os.getloadavg()[0], 2)
            say(began, f"recorded {name} {number}, load {loads[f'{name} {number}']}")
    return loads


def say(began_s: float, words: str) -> None:
    """A line of progress on standard error, with the seconds since the start."""
    print(f"{time.monotonic() - began_s:5.0f} s  {words}", file=sys.stderr, flush=True)


def run_at(folder: Path, name: str) -> Run:
    """The recorded run, as the verb reads it."""
    run = run_of(name, read_ring(folder / f"{name}.ring").steps)
    assert run is not None
    return run


def told(found: Comparison) -> dict[str, Any]:
    """The verdict with its figures."""
    return {
        "verdict": found.verdict,
        "why": found.why,
        "decided_by": found.decided_by,
        "within_ratio": None if found.within_ratio is None else round(found.within_ratio, 4),
        "change": interval(found.change),
        "mean_change": interval(found.mean_change),
        "terms": {term.name: interval(term.change) for term in found.terms},
        "steps": [found.a.steps, found.b.steps],
        "disturbed_ratio": [found.a.disturbed_ratio, found.b.disturbed_ratio],
        "unrest_ratio": [found.a.unrest_ratio, found.b.unrest_ratio],
    }


def interval(change: Change | None) -> list[float] | None:
    """(low, estimate, high), as ratios."""
    return None if change is None else [round(v, 4) for v in (change.low_ratio, change.ratio, change.high_ratio)]


def judge(folder: Path, pairs: int) -> dict[str, Any]:
    """Every pair, then disjoint groups of three recordings a side."""
    found: dict[str, Any] = {}
    began = time.monotonic()
    for what, left, right in JUDGED:
        rows = [
            told(compare([run_at(folder, f"{left} {n}")], [run_at(folder, f"{right} {n}")], SINGLE))
            for n in range(pairs)
        ]
        groups = [range(n, n + 3) for n in range(0, pairs - 2, 3)]
        many = [
            told(compare(*([run_at(folder, f"{side} {n}") for n in group] for side in (left, right))))
            for group in groups
        ]
        found[what] = {"pairs": rows, "counts": counted(rows), "three a side": many, "counts of three": counted(many)}
        say(began, f"judged {what}: {counted(rows)}, three a side {counted(many)}")
        errors = [abs(row["change"][1]) for row in rows if row["change"]]
        found[what]["difference_median"] = round(float(np.median(errors)), 4) if errors else None
    return found


def counted(rows: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """How often each verdict."""
    return {str(verdict): sum(row["verdict"] == verdict for row in rows) for verdict in Verdict}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=PAIRS)
    parser.add_argument("--minutes", type=float, default=MINUTES, help="for all recordings together")
    parser.add_argument("--seconds", type=float, help="of each recording, instead")
    parser.add_argument("--recordings", type=Path, help="keep them here; those that are there are not made again")
    parser.add_argument("--json", type=Path, default=HERE / "results" / "prove_diff.json")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as kept:
        folder = args.recordings or Path(kept)
        folder.mkdir(parents=True, exist_ok=True)
        seconds = args.seconds or affordable(folder, args.pairs, args.minutes)
        loads = recorded(folder, args.pairs, seconds)
        found = judge(folder, args.pairs)
    result = {
        "machine": platform.machine(), "cores": len(os.sched_getaffinity(0)), "python": platform.python_version(),
        "pairs": args.pairs, "seconds": seconds, "slowed": SLOWED,
        "load": loads, "judged": found,
    }  # fmt: skip
    args.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=1))
    same = all(found[what]["counts"]["same"] == args.pairs for what in ("A/A", "another mix"))
    return int(not same or found["5 % slower"]["counts"]["worse"] < 0.9 * args.pairs)


if __name__ == "__main__":
    sys.exit(main())
