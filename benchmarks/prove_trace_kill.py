"""A process that writes a trace is killed at fifty random moments: what is under a final name is whole, and the rest is
in the ring.

The process records 5,000 steps a second into a ring, reads them back as the sidecar does and puts them into a
trace with a file every 50 ms. After SIGKILL every file must be readable; the trace must hold the steps up to some one,
each once and as the ring has it; and the ring must hold all that come after. Writes
benchmarks/results/prove_trace_kill.json; exit code 1 for a failure.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from rooflens.adapters.recorder import Recorder
from rooflens.collector.ring_source import RingSource
from rooflens.collector.trace.file import read_footer
from rooflens.collector.trace.writer import TraceWriter
from rooflens.live_records import SourceKind
from rooflens.trace_records import TraceFacts, TraceRows
from rooflens.trace_tables import TraceLimits

RESULT = Path(__file__).parent / "results" / "prove_trace_kill.json"
KILLS, AT_ONCE = 50, 2
STEPS_PER_S, BLOCK = 5000, 50
PERIOD_S = 0.05
LATEST_S = 1.5  # after the first step: the ring then still holds all of them


def write(folder: Path) -> None:
    """Record, read and write until killed; one line once it has begun."""
    recorder = Recorder("killed", folder=folder, strict=True)
    assert recorder.path is not None
    source = RingSource(recorder.path)
    facts = TraceFacts("00000000000000aa", "host-a", "model", "0", SourceKind.RING)
    writer = TraceWriter(str(folder / "trace"), TraceLimits(period_s=PERIOD_S))
    contexts, due_s = [100] * 8, time.monotonic()
    print("begun", flush=True)
    while True:
        for _ in range(BLOCK):
            with recorder.step(contexts=contexts) as step:
                step.done()
            contexts = [length + 1 for length in contexts]
        writer.put(TraceRows(facts, source.read().steps))
        due_s += BLOCK / STEPS_PER_S
        time.sleep(max(0.0, due_s - time.monotonic()))


def killed(folder: Path, after_s: float) -> None:
    """Run the process for ``after_s`` from its first step on, then kill it."""
    process = subprocess.Popen([sys.executable, __file__, "--write", str(folder)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(after_s)
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()


def judged(folder: Path) -> dict[str, Any]:
    """What the process left: steps in the ring, in the trace, files, and what is wrong with them, in words."""
    (ring,) = folder.glob("*.ring")
    source = RingSource(ring)
    steps = source.read().steps
    source.close()
    recorded = steps["sequence"].tolist()
    times = dict(zip(recorded, np.round(steps["output_monotonic_s"] * 1e9).astype(np.int64).tolist(), strict=True))
    found: list[int] = []
    wrong: list[str] = []
    files = sorted((folder / "trace").glob("steps/*/*/*/*.parquet"))
    for path in files:
        try:
            footer = read_footer(str(path))
            table = pq.ParquetFile(path).read(["sequence", "output_monotonic_s"])
        except Exception as error:
            wrong.append(f"{path.name}: {type(error).__name__}")
            continue
        sequences = table.column("sequence").to_pylist()
        found += sequences
        moments = np.round(table.column("output_monotonic_s").to_numpy() * 1e9).astype(np.int64).tolist()
        wrong += [] if footer.rows == len(sequences) else [f"{path.name}: its footer miscounts"]
        wrong += [] if moments == [times.get(each) for each in sequences] else [f"{path.name}: not what the ring has"]
    found.sort()
    wrong += [] if found == recorded[: len(found)] else ["the trace has gaps, or steps twice"]
    leftovers = len(list((folder / "trace").rglob("*.writing")))
    rest = recorded[len(found) :]
    return {"steps": len(recorded), "in_trace": len(found), "only_in_ring": len(rest), "files": len(files),
            "left_aside": leftovers, "wrong": wrong}  # fmt: skip


def one(after_s: float) -> dict[str, Any]:
    """One process, killed after so long, and what it left."""
    with tempfile.TemporaryDirectory() as folder:
        killed(Path(folder), after_s)
        return {"after_s": round(after_s, 4), **judged(Path(folder))}


def prove(kills: int, at_once: int, seed: int) -> list[dict[str, Any]]:
    """So many kills at moments of chance."""
    chance = random.Random(seed)
    with ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(one, [chance.uniform(0.0, LATEST_S) for _ in range(kills)]))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=KILLS, metavar="N", help="how many (%(default)s)")
    parser.add_argument("--seed", type=int, default=7, metavar="N", help="of the moments (%(default)s)")
    parser.add_argument("--write", type=Path, metavar="FOLDER", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.write is not None:
        write(arguments.write)
    runs = prove(arguments.kills, AT_ONCE, arguments.seed)
    wrong = [f"killed after {run['after_s']} s: {line}" for run in runs for line in run["wrong"]]
    result = {
        "kills": len(runs),
        "steps": sum(run["steps"] for run in runs),
        "in_trace": sum(run["in_trace"] for run in runs),
        "only_in_ring": sum(run["only_in_ring"] for run in runs),
        "files": sum(run["files"] for run in runs),
        "left_aside": sum(run["left_aside"] for run in runs),
        "wrong": wrong,
        "runs": runs,
    }
    print(json.dumps({name: value for name, value in result.items() if name != "runs"}, indent=2))
    if arguments.kills >= KILLS:
        RESULT.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
