"""An hour of processor time of wrong input for every parser: no exception, no hang, bounded memory.

Each parser gets its real samples, mangled; what may come out is a result or, where its contract says so, a
RooflensError. Writes benchmarks/results/prove_parsers.json: inputs tried, processor time, the slowest input, the most
memory that one input took, by parser. Exit code 1 for a failure, whose input lies in build/fuzz/.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import subprocess
import sys
import time
import tracemalloc
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))
RESULT = ROOT / "benchmarks" / "results" / "prove_parsers.json"
FAILED = ROOT / "build" / "fuzz"
SLOWEST_S = 2.0  # processor time of one input of at most 256 kB
MOST_BYTES = 256 << 20
MEASURED_EVERY = 50  # inputs: tracing what is allocated takes several times as long


def tried(parser: Any, data: bytes, measure: bool) -> tuple[float, int]:
    """Processor seconds and, where it is measured, the most bytes of Python objects that one input took."""
    if measure:
        tracemalloc.start()
    began_s = time.process_time()
    with suppress(parser.allowed):
        parser.parse(data)
    spent_s = time.process_time() - began_s
    peak = tracemalloc.get_traced_memory()[1] if measure else 0
    tracemalloc.stop()
    return spent_s, peak


def prove(parser: Any, budget_s: float, seed: int) -> dict[str, Any]:
    """Feed one parser for ``budget_s`` seconds of processor time."""
    from mangled import mangled

    rng, samples = random.Random(f"{parser.name} {seed}"), parser.samples()
    count, spent_s, slowest_s, most, failures = 0, 0.0, 0.0, 0, []
    began_s = time.process_time()
    while time.process_time() - began_s < budget_s and len(failures) < 10:
        data = mangled(rng.choice(samples), samples, rng)
        count += 1
        measure = count % MEASURED_EVERY == 0
        try:
            took_s, peak = tried(parser, data, measure)
        except Exception as error:  # which is what is looked for
            failures.append(_kept(parser.name, data, f"{type(error).__name__}: {error}"[:300]))
            continue
        spent_s += took_s
        slowest_s, most = max(slowest_s, 0.0 if measure else took_s), max(most, peak)
        if (took_s > SLOWEST_S and not measure) or peak > MOST_BYTES:
            failures.append(_kept(parser.name, data, f"{took_s:.2f} s, {peak / 1e6:.0f} MB"))
    return {
        "parser": parser.name, "inputs": count, "cpu_s": round(time.process_time() - began_s, 1),
        "in_parser_s": round(spent_s, 1), "slowest_s": round(slowest_s, 4), "most_bytes": most, "failures": failures,
    }  # fmt: skip


def prove_named(asked: tuple[str, float, int]) -> dict[str, Any]:
    """Prove the parser of this name, in a process of its own."""
    from parsers import PARSERS

    name, budget_s, seed = asked
    return prove(next(each for each in PARSERS if each.name == name), budget_s, seed)


def _kept(name: str, data: bytes, why: str) -> dict[str, str]:
    FAILED.mkdir(parents=True, exist_ok=True)
    place = FAILED / f"{name}-{abs(hash(data)):x}.bin"
    place.write_bytes(data)
    print(f"  FAILED {name}: {why} ({place.relative_to(ROOT)})", flush=True)
    return {"why": why, "input": place.name}


def main() -> int:
    """Prove all, or those that are named."""
    from parsers import PARSERS

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3600.0, help="processor time for all together")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="*", help="names of parsers")
    parser.add_argument("--json", type=Path, default=RESULT)
    parser.add_argument("--jobs", type=int, default=1, help="parsers at a time, each in a process")
    args = parser.parse_args()
    chosen = [each.name for each in PARSERS if not args.only or each.name in args.only]
    asked = [(name, args.seconds / len(chosen), args.seed) for name in chosen]
    with ProcessPoolExecutor(args.jobs, max_tasks_per_child=1) as pool:
        found = []
        for one in pool.map(prove_named, asked):
            found.append(one)
            print({k: v for k, v in one.items() if k != "failures"}, flush=True)
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False).stdout
    whole = {
        "commit": commit.strip(),
        "seed": args.seed,
        "cpu_s": sum(each["cpu_s"] for each in found),
        "most_resident_bytes": peak,
    }
    whole |= {"python": sys.version.split()[0], "parsers": found}
    args.json.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
    return int(any(each["failures"] for each in found))


if __name__ == "__main__":
    sys.exit(main())
