"""The one loop of a sidecar: a turn, its snapshot to every exporter, and a rest."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from rooflens.pipeline.watch import Watch
from rooflens.protocols import Exporter


def run_loop(watch: Watch, exporters: Sequence[Exporter], stop: threading.Event) -> None:
    """Turn until ``stop`` is set. An exporter that fails is a line in the next snapshot and is tried again.

    A turn begins every ``tick_s`` seconds, or at once after one that took longer.
    """
    names = [f"{type(exporter).__name__} {number}" for number, exporter in enumerate(exporters, start=1)]
    due_s = time.monotonic()
    while not stop.is_set():
        snapshot = watch.turn()
        cpu_s = time.thread_time()
        for name, exporter in zip(names, exporters, strict=True):
            try:
                exporter.export(snapshot)
                watch.problem(name, None)
            except Exception as error:
                why = f"{type(error).__name__}: {error}"
                watch.problem(name, f"{type(exporter).__name__} could not publish: {' '.join(why.split())}")
        watch.spent(time.thread_time() - cpu_s)
        due_s = max(due_s + watch.settings.tick_s, time.monotonic())
        stop.wait(due_s - time.monotonic())
