"""What a trace costs the loop of a sidecar: turns with and without it, alternately, of one process.

Two watches read the same rings of made-up engines, one with a trace. Each round the engines record what they do in a
second and both watches turn, in an order that changes; what the processor did for each turn is compared. The writer's
own thread is counted apart, by benchmarks/trace_writer.py.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from counted_calls import calls_of
from made_engine import made_engine

from rooflens.analyzer.hardware import find_hardware
from rooflens.collector.trace.writer import TraceWriter
from rooflens.pipeline.tracing import TraceTo
from rooflens.pipeline.watch import Watch
from rooflens.pipeline.watch_settings import WatchSettings

ENGINES, STEPS, ROUNDS = 4, 200, 60
CONTEXTS = tuple(range(500, 500 + 32 * 37, 37))  # of 32 sequences


def measured(rounds: int) -> dict[str, float]:
    """Milliseconds of processor time a turn, the medians of both, and the calls of functions."""
    with tempfile.TemporaryDirectory() as place, ExitStack() as ends:
        rings = Path(place) / "rings"
        engines = [ends.enter_context(made_engine(rings, rank=rank)) for rank in range(ENGINES)]
        hardware = find_hardware("h100-sxm5-80")
        trace = TraceTo(TraceWriter(str(Path(place) / "trace")), place)
        plain = Watch(WatchSettings(folders=(rings,), hardware=hardware))
        kept = Watch(WatchSettings(folders=(rings,), hardware=hardware, trace=trace))
        spent: dict[Watch, list[float]] = {plain: [], kept: []}
        calls = {}
        for number in range(rounds + 2):
            for engine in engines:
                engine.steps(STEPS, contexts=CONTEXTS)
            for watch in (plain, kept) if number % 2 else (kept, plain):
                if number == rounds + 1:
                    calls[watch] = calls_of(watch.turn)
                    continue
                started_s = time.thread_time()
                watch.turn()
                spent[watch].append(time.thread_time() - started_s)
        for watch in (plain, kept):
            watch.close()
    without, with_trace = (statistics.median(times[1:]) * 1e3 for times in (spent[plain], spent[kept]))
    return {
        "turn_ms": round(without, 3),
        "turn_with_trace_ms": round(with_trace, 3),
        "tap_ms": round(
            statistics.median(a - b for a, b in zip(spent[kept][1:], spent[plain][1:], strict=True)) * 1e3, 3
        ),
        "calls": calls[plain],
        "calls_with_trace": calls[kept],
    }


def main() -> None:
    """Measure and print JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--json", type=Path, help="also write the figures there")
    args = parser.parse_args()
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    figures = {"engines": ENGINES, "steps_per_s": ENGINES * STEPS, "rounds": args.rounds, **measured(args.rounds)}
    text = json.dumps(figures, indent=1) + "\n"
    print(text, end="")
    if args.json:
        args.json.write_text(text)


if __name__ == "__main__":
    main()
