"""vLLM's real schedulers under random settings, the ring against the engine's own books: how often do they differ?

Runs in the environment of the engine tests (ROOFLENS_VLLM_VENV, or .venv-vllm) for ``--seconds``; the seeds make
every run repeatable. Writes benchmarks/results/prove_random_schedulers.json: runs, differences by kind, and how many of
them had a prefix-cache reset or aborts in them.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULT = ROOT / "benchmarks" / "results" / "prove_random_schedulers.json"


def settings(seed: int) -> dict[str, Any]:
    """The settings of one run; what vLLM itself does not combine is left out."""
    rng = random.Random(seed)
    asynchronous = rng.random() < 0.5
    pipeline = rng.choice([1, 1, 1, 2, 3, 4])
    drafts = rng.choice([0, 0, 1, 3, 5])
    return {
        "asynchronous": asynchronous, "pipeline": pipeline, "depth": max(pipeline, 1 + asynchronous), "seed": seed,
        "blocks": rng.choice([20000, 400, 260, 160]), "requests": rng.choice([1, 5, 20, 40]),
        "stop": rng.choice([None, 9]), "abort_every": rng.choice([0, 0, 1, 3, 7]), "v2": rng.random() < 0.4,
        "budget": rng.choice([64, 128, 512, 2048]), "arrival": rng.choice([0.2, 0.6, 1.0]),
        "sequences": rng.choice([2, 8, 32, 60]), "longest_output": rng.choice([3, 20, 80]),
        "longest_prompt": rng.choice([2, 30, 300, 600]), "spec": 0 if pipeline > 1 and not asynchronous else drafts,
        "shared_prefix": rng.choice([0, 0, 16, 200]), "prefix_caching": rng.random() < 0.7,
        "chunk": rng.choice([0, 0, 16, 48]), "reset_at": rng.choice([0, 0, 0, 5, 20]),
    }  # fmt: skip


def prove(seconds: float, first: int) -> dict[str, Any]:
    """Run for ``seconds`` from seed ``first``; inside the engine's environment."""
    sys.path.insert(0, str(ROOT / "tests" / "engines"))
    folder = os.environ["ROOFLENS_DIR"] = tempfile.mkdtemp()
    from compare import differences
    from scenarios import Scenario, drive
    from witness import identity_gap

    from rooflens.adapters.vllm import patch, register

    register()
    count: Counter[str] = Counter()
    shown: list[str] = []
    deadline, seed = time.monotonic() + seconds, first
    while time.monotonic() < deadline:
        given = settings(seed)
        seed += 1
        count["runs"] += 1
        shutil.rmtree(folder, ignore_errors=True)
        try:
            witness = drive(Scenario(str(seed), **given))
        except AssertionError:
            count["vllm_or_the_witness_gave_up"] += 1
            for capture in list(patch.captures):
                patch.detach(capture.scheduler)
            continue
        terms = witness.close()
        count["hook_failures"] += getattr(witness.scheduler, patch.CAPTURE).failures
        patch.detach(witness.scheduler)
        found = differences(witness, next(Path(folder).glob("*.ring")))
        for name in {line.split(":")[0] for line in found if not line.startswith("step")}:
            count[f"differs: {name}"] += 1
        count["lengths differ"] += any(line.startswith(("step", "lost")) for line in found)
        if found or identity_gap(terms):
            count["ring_differs" if found else "books_of_the_engine_do_not_close"] += 1
            count["of these with a prefix-cache reset"] += given["reset_at"] > 0
            shown += [f"seed {given['seed']}: {line}" for line in found[:1]]
    return {"first_seed": first, "seconds": seconds, "count": dict(sorted(count.items())), "differences": shown[:40]}


def main() -> None:
    """In the development environment: go on in the engine's; there: run, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=1800)
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        print(json.dumps(prove(options.seconds, options.first_seed)))
        return
    python = Path(os.environ.get("ROOFLENS_VLLM_VENV", ROOT / ".venv-vllm")) / "bin" / "python"
    command = [str(python), str(Path(__file__)), "--inside"]
    command += ["--seconds", str(options.seconds), "--first-seed", str(options.first_seed)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    result = {"commit": commit.strip(), **json.loads(done.stdout.splitlines()[-1])}
    RESULT.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result["count"], indent=1))


if __name__ == "__main__":
    main()
