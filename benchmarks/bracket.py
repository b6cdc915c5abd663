"""Whether floor and reachable of the embedded engine at batch 1 bracket its step on this machine, by a calibration.

    python benchmarks/bracket.py --runs 10

Each run is a process of its own with one thread for matrix products. It calibrates this CPU, serves one sequence after
the other, and calibrates again: a shared machine is not the same a few seconds later, so the floor is that of the
faster of both calibrations and the slow end that of the slower. Figures are medians over all decode steps.
``--json FILE`` writes them down.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

THREAD_VARIABLES = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
CALIBRATION_S = 8.0
STEPS = 300
PROMPT_TOKENS, OUTPUT_TOKENS = 16, 64
CACHE_BYTES = 12 << 20  # of eight times as much are the weights: 107 MB, a step of some 10 ms
MEMORY_BYTES = 1 << 40


@dataclass(frozen=True, slots=True)
class Bracket:
    """Seconds of the median decode step at batch 1 and of its bounds, by the calibrations before and after.

    ``floor_s`` and ``fast_s`` are those of the faster calibration, ``slow_s`` that of the slower, ``reachable_s`` the
    mean of both; None where the runs of either lie too far apart to tell. ``read_bytes`` are those of a pass,
    ``disturbed`` whether others used the machine.
    """

    read_bytes: int
    steps: int
    floor_s: float
    fast_s: float | None
    reachable_s: float | None
    slow_s: float | None
    observed_s: float
    disturbed: bool

    @property
    def holds(self) -> bool:
        """Whether the step lies above its floor and not beyond the slow end of what is reachable, where it is known."""
        return self.floor_s <= self.observed_s <= (self.slow_s or float("inf"))


def serve(folder: Path, steps: int) -> tuple[Path, int]:
    """The ring of an engine that made so many steps of one sequence, and the bytes of weights that a pass read."""
    from rooflens.adapters.embedded.engine import Engine, Settings, recorder_for
    from rooflens.adapters.embedded.scheduler import Request
    from rooflens.adapters.embedded.shape import shape_for

    shape, settings = shape_for(CACHE_BYTES, MEMORY_BYTES)[0], Settings()
    with recorder_for(shape, settings, PROMPT_TOKENS + OUTPUT_TOKENS, strict=True, folder=folder) as recorder:
        engine = Engine(shape, settings, recorder)
        while engine.steps < steps:
            if not engine.busy:
                engine.add(Request(list(range(PROMPT_TOKENS)), OUTPUT_TOKENS))
            engine.step()
    assert recorder.path is not None
    return recorder.path, 4 * shape.read_elements


def measure(folder: Path, seconds: float, steps: int) -> Bracket:
    """One run in this process; NumPy has the threads that it was told of before it was loaded."""
    import numpy as np

    from rooflens.analyzer.calibrated import hardware_of
    from rooflens.analyzer.reachable_steps import reachable
    from rooflens.analyzer.roofline import Roofline
    from rooflens.collector.calibrate import calibrate
    from rooflens.pipeline import read_ring

    before = calibrate("cpu", seconds, force=True)
    ring, read_bytes = serve(folder, steps)
    recording = read_ring(ring)
    assert recording.info is not None
    found: list[list[float]] = []
    floors, observed_s, number, disturbed = [], 0.0, 0, False
    for calibration in (before, calibrate("cpu", seconds, force=True)):
        roofline = Roofline.of(recording.info, hardware_of(calibration, read_bytes), calibration)
        analysis = roofline.analyse_all(recording.steps)
        rows = analysis.compared & (recording.steps["query_tokens"] == 1)
        ends = reachable(roofline, recording.steps, analysis)
        columns = () if ends is None else (ends.fast_s, ends.reachable_s, ends.slow_s)
        floors.append(float(np.median(analysis.floor_s[rows])))
        found.append([float(np.median(column[rows])) for column in columns])
        observed_s, number = float(np.median(analysis.observed_s[rows])), int(rows.sum())
        disturbed = disturbed or roofline.hardware.disturbed
    fast = usual = slow = None
    if all(found):
        fasts, usuals, slows = zip(*found, strict=True)
        fast, usual, slow = min(fasts), sum(usuals) / len(usuals), max(slows)
    return Bracket(read_bytes, number, min(floors), fast, usual, slow, observed_s, disturbed)


def run_apart(seconds: float, steps: int) -> Bracket:
    """One run in a process of its own, with one thread."""
    environment = {**os.environ, **dict.fromkeys(THREAD_VARIABLES, "1")}
    command = [sys.executable, __file__, "--here", "--seconds", str(seconds), "--steps", str(steps)]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return Bracket(**json.loads(done.stdout))


def said(one: Bracket) -> str:
    """One run as a line, in milliseconds."""
    times = (one.floor_s, one.fast_s, one.reachable_s, one.slow_s, one.observed_s)
    shown = "  ".join(f"{1e3 * each:9.2f}" if each is not None else f"{'-':>9}" for each in times)
    share = "-" if one.reachable_s is None else f"{one.observed_s / one.reachable_s:.2f}"
    return f"{shown}  {share:>11}  {'yes' if one.holds else 'NO':>5}  {'yes' if one.disturbed else 'no'}"


def main() -> int:
    """Exit code 1 where a run does not hold."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=CALIBRATION_S, help="of each calibration")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--here", action="store_true", help="one run in this process, as JSON")
    args = parser.parse_args()
    if args.here:
        with tempfile.TemporaryDirectory() as folder:
            print(json.dumps(asdict(measure(Path(folder), args.seconds, args.steps))))
        return 0
    print("ms:   floor       fast  reachable       slow   observed  of reachable  holds  disturbed", flush=True)
    runs = []
    for _ in range(args.runs):
        runs.append(run_apart(args.seconds, args.steps))
        print(said(runs[-1]), flush=True)
    held = sum(one.holds for one in runs)
    told = sum(one.slow_s is not None for one in runs)
    print(f"{held} of {len(runs)} runs hold: floor <= observed <= slow, which {told} of the calibrations told")
    if args.json:
        result: dict[str, Any] = {"machine": platform.processor() or platform.machine(), "cores": os.cpu_count()}
        result |= {"held": held, "runs": [asdict(one) for one in runs]}
        args.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return int(held < len(runs))


if __name__ == "__main__":
    sys.exit(main())
