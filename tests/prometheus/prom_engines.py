"""Engines that keep a beat, run as a process of their own: they record steps and tell a log how many there are.

`prom_engines.py FOLDER LOG MODEL ENGINES RATE`: all engines have rank 0 and step RATE times a second until SIGTERM.
Each runs on the devices that DEVICES gives to its model, if any.
The log has a line for each beat, written after the steps were committed: unix seconds, and for each engine the steps,
generated tokens and context tokens so far.
"""

from __future__ import annotations

import signal
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from rooflens.adapters.recorder import Recorder

BATCH = 8
KV_BLOCKS, BLOCK_TOKENS = 8192, 16
DEVICES = {"reborn-model": ["GPU-00000000-0000-0000-0000-000000000001"]}
FIRST_CONTEXT, CONTEXTS = 512, 1000  # tokens of a sequence: it grows by one a step, and begins anew
CONFIG = {
    "model_type": "llama", "hidden_size": 1024, "num_hidden_layers": 16, "num_attention_heads": 16,
    "num_key_value_heads": 4, "intermediate_size": 2816, "vocab_size": 32000, "hidden_act": "silu",
}  # fmt: skip


@dataclass(frozen=True)
class Beat:
    """What each engine has done by then."""

    unix_s: float
    steps: int
    context_tokens: int

    @property
    def tokens(self) -> int:
        """Generated tokens."""
        return self.steps * BATCH


def beats(log: Path) -> list[Beat]:
    """What the log says, whole lines only."""
    if not log.exists():
        return []
    whole = log.read_text().rpartition("\n")[0]
    rows = (line.split() for line in whole.splitlines())
    return [Beat(float(at), int(steps), int(contexts)) for at, steps, contexts in rows]


def recorders(stack: ExitStack, folder: Path, model: str, engines: int) -> list[Recorder]:
    facts = {
        "engine_version": "1.0", "model_name": model, "model_config": CONFIG, "weight_dtype": "bfloat16",
        "kv_dtype": "bfloat16", "kv_blocks": KV_BLOCKS, "block_tokens": BLOCK_TOKENS, "max_sequences": 16,
        "device": "cuda", "device_uuids": DEVICES.get(model, []),
    }  # fmt: skip
    return [stack.enter_context(Recorder("beat-engine", folder=folder, strict=True, **facts)) for _ in range(engines)]


def main(folder: Path, log: Path, model: str, engines: int, rate: float) -> None:
    stopping = False

    def stop(*_: object) -> None:
        nonlocal stopping
        stopping = True

    signal.signal(signal.SIGTERM, stop)
    with ExitStack() as stack, log.open("w", buffering=1) as out:
        rings = recorders(stack, folder, model, engines)
        steps = context_tokens = 0
        next_s = time.monotonic()
        while not stopping:
            next_s += 1 / rate
            contexts = [FIRST_CONTEXT + steps % CONTEXTS] * BATCH
            used = BATCH * -(-(contexts[0] + 1) // BLOCK_TOKENS)
            with ExitStack() as open_steps:
                for ring in rings:
                    step = ring.step(contexts, kv_blocks_used=used, running=BATCH, waiting=0, deferred=0)
                    open_steps.enter_context(step).generated_tokens = BATCH
                time.sleep(max(0.0, next_s - time.monotonic()))
            steps, context_tokens = steps + 1, context_tokens + sum(contexts)
            out.write(f"{time.time()} {steps} {context_tokens}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]), float(sys.argv[5]))
