"""How fast one core turns a ring of decode steps into columns. Run by ``make bench``; ``--json FILE`` writes it down.

Each ring holds plain decode steps as the vLLM hook writes them: one frame a step, a keyframe a second at the stated
step rate. The clock runs from opening the file to the finished StepTable, check sums included; best of five.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from rooflens.adapters.frames import Payload
from rooflens.collector.ring_source import RingSource
from rooflens.records import EngineInfo, StepKind
from rooflens.ring import COLD_FIELDS, KEY, REPEAT, UNKNOWN
from rooflens.ring_folder import create_ring
from rooflens.ring_writer import pack_cold

BATCHES = (1, 64, 256, 1024)
STEPS_PER_S = 200  # a keyframe every 200 steps
ROUNDS = 5


def _cold(rows: int, frame: int, sections: int) -> bytes:
    given = {"query_tokens": rows, "generated_tokens": rows, "kv_blocks_cached": UNKNOWN, "requests": rows}
    given |= {"running": rows, "padded_tokens": UNKNOWN, "frame": frame, "kind": int(StepKind.DECODE)}
    given |= {"base": 0 if frame == KEY else 1, "sections": sections}
    return pack_cold(*(given.get(name, 0) for name, _ in COLD_FIELDS))


def write_ring(folder: Path, steps: int, rows: int) -> Path:
    """A ring of ``steps`` decode steps of ``rows`` sequences each."""
    ring, path = create_ring(folder, 0, ((steps + 8, 64 << 20),))
    ring.set_info(EngineInfo(instance="bench", engine="bench", block_tokens=16).to_json())
    plain = _cold(rows, REPEAT, 0)
    contexts = [1000 + 3 * row for row in range(rows)]
    total = sum(contexts)
    now = time.monotonic_ns()
    for step in range(steps):
        now += 5_000_000
        cold, payload = plain, b""
        if step % STEPS_PER_S == 0:
            frame = Payload()
            frame.lengths([context + step for context in contexts])
            frame.anchor(time.time_ns(), now)
            cold, payload = _cold(rows, KEY, frame.sections), frame.tobytes()
        ring.commit(
            now - 4_000_000, now, total + rows * step, 90_000, 80_000, 40_000, 3_000_000, 5_000, 900, cold, payload
        )
    ring.close()
    return path


def seconds_to_read(path: Path) -> tuple[float, int]:
    """(best of ROUNDS, steps read)."""
    best, steps = float("inf"), 0
    for _ in range(ROUNDS):
        start = time.perf_counter()
        source = RingSource(path)
        batch = source.read()
        best = min(best, time.perf_counter() - start)
        source.close()
        steps = len(batch.steps)
        assert (batch.lost_steps, batch.torn_steps, source.doubted_frames) == (0, 0, 0)
        assert batch.steps.has("causal_pairs")
    return best, steps


def main() -> None:
    """Measure each batch size on one core, print a line each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="write the figures here")
    parser.add_argument("--steps", type=int, default=1_000_000, help="slots a ring")
    options = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    rows: list[dict[str, Any]] = []
    for batch in BATCHES:
        folder = Path(tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
        try:
            best, steps = seconds_to_read(write_ring(folder / "rings", options.steps, batch))
        finally:
            shutil.rmtree(folder)
        rows.append({"batch": batch, "slots": steps, "seconds": best, "slots_per_s": steps / best})
        print(f"batch {batch:5d}: {steps:,} slots in {best:.2f} s, {steps / best:,.0f} slots a second on one core")
    if options.json:
        about = {"python": platform.python_version(), "machine": platform.machine(), "keyframe_every": STEPS_PER_S}
        options.json.write_text(json.dumps({"about": about, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
