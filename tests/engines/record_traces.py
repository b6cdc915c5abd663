"""Records the rings of tests/data/traces: a real vLLM on the CPU under one load, twice, and the embedded engine.

    PYTHONPATH=tests PYTHON-OF-VLLM tests/engines/record_traces.py vllm FOLDER
    PYTHONPATH=tests python tests/engines/record_traces.py embedded FOLDER

Each run leaves one ring, cut and stripped by tests/cut_ring.py.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from cut_ring import cut
from live_harness import Load, Stream
from server_harness import CONFIG, running

from rooflens.cli.embedded import carry_out

# Steps of some 40 ms on two cores: few enough for a small file, each long enough to be timed.
MODEL = {"hidden_size": 1536, "intermediate_size": 4096, "num_attention_heads": 24, "num_key_value_heads": 8,
         "num_hidden_layers": 8}  # fmt: skip
# A pool that six long prompts do not fit into, and chunks so that one of them takes five steps.
FLAGS = ("--block-size", "32", "--max-num-seqs", "8", "--max-num-batched-tokens", "256", "--max-model-len", "2048",
         "--num-gpu-blocks-override", "160", "--no-enable-prefix-caching")  # fmt: skip
IDLE_S = 2.0
# The load of the served runs: the streams of each phase run beside each other, with a pause after each phase.
PHASES: tuple[tuple[Stream, ...], ...] = (
    (Stream(64, 80),),
    tuple(Stream(96, 100) for _ in range(4)),
    (*(Stream(1200, 12) for _ in range(6)), *(Stream(48, 80) for _ in range(2))),
    (Stream(256, 40), Stream(256, 40, rounds=2, pause_s=0.5)),
)
EMBEDDED_S = 16.0
SLOW_STEPS = 0.12  # host time before each step, in durations of the step before: more than the noise of a busy machine


def served(folder: Path, name: str) -> Path:
    """A server under the load; its ring."""
    CONFIG.update(MODEL)
    with running(folder / name, *FLAGS) as server:
        for streams in PHASES:
            time.sleep(IDLE_S)
            Load(server, streams).wait(120)
        time.sleep(IDLE_S)
        (ring,) = server.rings.glob("*.ring")
    return ring


def embedded(folder: Path, host_delay_steps: float) -> Path:
    """The embedded engine: one sequence, then a batch with long prompts now and then."""
    short = {"prompt_tokens": [16, 24], "output_tokens": [32, 96]}
    long = {"long_prompt_tokens": 96, "long_every_steps": 24, "long_output_tokens": 8}
    order = {
        "cache_bytes": 32 << 20, "memory_bytes": 1 << 30, "folder": str(folder),
        "settings": {"kv_blocks": 80, "block_tokens": 16, "max_sequences": 8, "max_batched_tokens": 32},
        "faults": {"host_delay_steps": host_delay_steps},
        "phases": [
            {**short, "name": "single", "concurrency": 1, "seconds": EMBEDDED_S / 4},
            {**short, **long, "name": "batch", "concurrency": 6, "seconds": EMBEDDED_S * 3 / 4},
        ],
    }  # fmt: skip
    return carry_out(order, 1, print, lambda _line: None).ring


def main(what: str, place: str) -> None:
    """Record and cut all the runs of one kind."""
    folder = Path(place)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if what == "vllm":
        rings = {name: served(folder, name) for name in ("vllm-a", "vllm-b")}
    else:
        rings = {"embedded": embedded(folder, 0.0), "embedded-slow": embedded(folder, SLOW_STEPS)}
    for name, ring in rings.items():
        target = folder / f"{name}.ring.gz"
        cut(ring, target)
        print(f"{target}: {target.stat().st_size:,} bytes")


if __name__ == "__main__":
    main(*sys.argv[1:])
