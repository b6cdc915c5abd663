"""A hundred million steps of a hundred engines are summed in the memory of ten million. Run by ``make prove``.

    python benchmarks/prove_trace_scale.py [--folder FOLDER] [--steps 100000000]

Makes the trace (some 4 GB of disk, looked at first; a quarter of an hour), sums it in a process of its own, sums a
tenth of its hosts' hours beside it, and writes both times and peaks to benchmarks/results/prove_trace_scale.json. The
trace is deleted unless ``--folder`` was named. Exit code 1 where the peak grew by more than a half, or passed 2 GiB.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from made_fleet import write_fleet
from trace_scale import ENGINES, GOAL_BYTES, measured

RESULT = Path(__file__).parent / "results" / "prove_trace_scale.json"
STEPS, PART = 100_000_000, 10
BYTES_PER_STEP = 60  # on disk; 36 were seen
GROWTH = 1.5


def room(folder: Path, steps: int) -> None:
    """Exit in one line where the trace would not fit twice."""
    free, need = shutil.disk_usage(folder).free, 2 * BYTES_PER_STEP * steps
    if free < need:
        sys.exit(
            f"error: {need / 1e9:.0f} GB of free disk are needed for {steps:,} steps, {free / 1e9:.0f} GB are left"
        )


def made(folder: Path, steps: int) -> float:
    """Seconds that it took to make the trace."""
    started, told = time.monotonic(), 0

    def tell(rows: int) -> None:
        nonlocal told
        if rows - told >= steps // 20:
            told = rows
            print(f"  {rows:,} steps written, {time.monotonic() - started:.0f} s", flush=True)

    write_fleet(folder, ENGINES, steps, progress=tell)
    return time.monotonic() - started


def proved(folder: Path, steps: int) -> dict[str, Any]:
    """Both measurements."""
    small = folder / "small"
    made(small, steps // PART)
    few = measured("cells", small)
    shutil.rmtree(small)
    many_folder = folder / "whole"
    seconds = made(many_folder, steps)
    size = sum(path.stat().st_size for path in many_folder.rglob("*.parquet"))
    many = measured("cells", many_folder)
    assert many["rows"] >= steps, "steps were lost"
    growth = many["peak_bytes"] / few["peak_bytes"]
    return {
        "engines": ENGINES,
        "made_s": round(seconds),
        "bytes_per_step": round(size / many["rows"], 1),
        "few": few,
        "many": many,
        "peak_growth": round(growth, 2),
        "holds": growth <= GROWTH and many["peak_bytes"] <= GOAL_BYTES,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--json", type=Path, default=RESULT)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = asked.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        room(folder, asked.steps)
        found = proved(folder, asked.steps)
    asked.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(found, indent=2))
    return 0 if found["holds"] else 1


if __name__ == "__main__":
    sys.exit(main())
