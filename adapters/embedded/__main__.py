"""The embedded engine as a process: a JSON object as its only argument, JSON lines on its standard output.

SIGTERM and SIGINT end it in order after the step that it is in.
"""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from rooflens.adapters.embedded.engine import Engine, Settings, recorder_for
from rooflens.adapters.embedded.faults import Faults, noisy_neighbours
from rooflens.adapters.embedded.load import Load, Phase
from rooflens.adapters.embedded.shape import SMALL, Shape, shape_for
from rooflens.records import RooflensError

DRAIN_S = 3.0
ENDING = (signal.SIGTERM, signal.SIGINT)


def _say(**fields: Any) -> None:
    print(json.dumps(fields), flush=True)


def _report(engine: Engine, phase: Phase, gone_s: float) -> None:
    _say(phase=phase.name, gone_s=gone_s, steps=engine.steps)


def run(order: Mapping[str, Any], stopped: Callable[[], bool] = lambda: False) -> None:
    """Build the engine, drive it through the phases until ``stopped``, and say where it stands."""
    phases = [Phase.from_json(phase) for phase in order["phases"]]
    settings, faults = Settings(**order.get("settings", {})), Faults(**order.get("faults", {}))
    shape: Shape = SMALL
    why_smaller: str | None = "a small model was asked for"
    if not order.get("small"):
        shape, why_smaller = shape_for(int(order["cache_bytes"]), int(order["memory_bytes"]))
    longest = max((phase.longest_tokens for phase in phases), default=1)
    folder = Path(order["folder"]) if "folder" in order else None
    with recorder_for(shape, settings, longest, strict=True, folder=folder) as recorder:
        if recorder.path is None:
            raise RooflensError("ROOFLENS_DISABLE is set, so nothing would be recorded: unset it")
        engine = Engine(shape, settings, recorder, faults)
        weight_bytes = 4 * shape.read_elements
        _say(ring=str(recorder.path), weight_bytes=weight_bytes, why_smaller=why_smaller)
        load = Load(engine, settings.seed, stopped=stopped)
        with noisy_neighbours(faults.neighbours):
            for phase in phases:
                recorder.event(f"load_{phase.name}", concurrency=phase.concurrency)
                load.run(phase, partial(_report, engine, phase))
            load.drain(DRAIN_S)
        recorder.event("load_ended")
        _say(steps=engine.steps, done=True)


def main() -> int:
    """Exit code 2 and one line on standard error for an order that cannot be carried out."""
    asked: list[int] = []  # a handler may interrupt another one, so it takes no lock
    for number in ENDING:
        signal.signal(number, lambda number, _frame: asked.append(number))
    try:
        run(json.loads(sys.argv[1]), lambda: bool(asked))
    except RooflensError as error:
        print(error, file=sys.stderr)
        return 2
    finally:
        for number in ENDING:  # it ends by itself; Python gives handlers back before its last step, and one would kill
            signal.signal(number, signal.SIG_IGN)
    return 0


if __name__ == "__main__":
    sys.exit(main())
