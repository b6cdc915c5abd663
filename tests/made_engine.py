"""Engines for tests: each a process that records made-up steps when it is told to."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rooflens.analyzer.arch import known_models

CONFIG: dict[str, Any] = dict(known_models()[0]["config"])

# Reads one JSON list a line, does it, and answers with one line. The clock is its own: a step is as long as it is
# told, without a wait, and the last one ends now.
ENGINE = """
import json, sys, time
from pathlib import Path
from rooflens.adapters.recorder import Recorder

class Clock:
    now_ns = time.monotonic_ns()
    def __call__(self):
        return self.now_ns

def steps(count, step_s, contexts, queries=None, gap_s=0.0, **facts):
    clock = Clock()
    span_ns = round(count * (step_s + gap_s) * 1e9)
    clock.now_ns = max(time.monotonic_ns() - span_ns, recorder.last_ns)
    recorder.clock_ns = clock
    for _ in range(count):
        with recorder.step(contexts=contexts, queries=queries, **facts) as step:
            clock.now_ns += round(step_s * 1e9)
            step.done()
        clock.now_ns += round(gap_s * 1e9)
    recorder.last_ns = clock.now_ns
    recorder.clock_ns = time.monotonic_ns

settings = json.loads(sys.argv[1])
recorder = Recorder("made-up", strict=True, **{**settings, "folder": Path(settings["folder"])})
recorder.last_ns = 0
print(recorder.path, flush=True)
for line in sys.stdin:
    what, *rest = json.loads(line)
    if what == "steps":
        steps(*rest[0], **rest[1])
    elif what == "event":
        recorder.event(rest[0])
    elif what == "begin":
        recorder.step(contexts=rest[0]).__enter__()
    elif what == "close":
        recorder.close()
    print("done", flush=True)
"""


class MadeEngine:
    """An engine in a process of its own; ``path`` is its ring."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        assert process.stdout is not None
        self.path = Path(process.stdout.readline().strip())

    def _do(self, *order: Any) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "done\n"

    def steps(
        self, count: int, step_s: float = 0.005, contexts: tuple[int, ...] = (100, 200), **facts: Any
    ) -> MadeEngine:
        """Record ``count`` steps of this length; by its clock the last one ends now, or later if time ran out."""
        queue = {"running": len(contexts), "waiting": 0, "deferred": 0, "kv_blocks_used": 10}
        self._do("steps", [count, step_s, contexts], {**queue, **facts})
        return self

    def begin(self, contexts: tuple[int, ...] = (100, 200)) -> None:
        """Hand a step over that never comes back."""
        self._do("begin", contexts)

    def event(self, name: str) -> None:
        """Record an event."""
        self._do("event", name)

    def end(self) -> None:
        """End in order."""
        self._do("close")
        self.kill()

    def kill(self) -> None:
        """Die on the spot."""
        self.process.kill()
        self.process.wait()


@contextmanager
def made_engine(folder: Path, **facts: Any) -> Iterator[MadeEngine]:
    """An engine that records in ``folder``; by default of the model "llama", whose shape is known."""
    settings = {"folder": str(folder), "model_name": "llama", "model_config": CONFIG, "kv_blocks": 100, **facts}
    settings.setdefault("block_tokens", 16)
    command = [sys.executable, "-c", ENGINE, json.dumps(settings)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield MadeEngine(process)
        finally:
            process.kill()
