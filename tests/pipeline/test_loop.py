"""The loop: it goes on whatever fails, says so, and tells what it costs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from made_engine import made_engine

from rooflens import catalogue as metrics
from rooflens.live_records import Snapshot
from rooflens.pipeline.loop import run_loop
from rooflens.pipeline.watch import Watch


class Collecting:
    """Keeps snapshots and stops the loop after some."""

    def __init__(self, stop: threading.Event, most: int) -> None:
        self.snapshots: list[Snapshot] = []
        self._stop, self._most = stop, most

    def export(self, snapshot: Snapshot) -> None:
        self.snapshots.append(snapshot)
        if len(self.snapshots) >= self._most:
            self._stop.set()


class Failing:
    """Fails at its first two snapshots."""

    def __init__(self) -> None:
        self.calls = 0

    def export(self, snapshot: Snapshot) -> None:
        self.calls += 1
        if self.calls <= 2:
            raise OSError("disk\nfull")


def test_an_exporter_that_fails_is_a_line_until_it_works_again(watch: Callable[..., Watch], folder: Path) -> None:
    stop, failing = threading.Event(), Failing()
    collecting = Collecting(stop, 4)
    with made_engine(folder) as engine:
        engine.steps(10)
        run_loop(watch(tick_s=0.001), (failing, collecting), stop)
    problems = [snapshot.problems for snapshot in collecting.snapshots]
    line = ("Failing could not publish: OSError: disk full",)
    assert problems == [(), line, line, ()]
    assert [snapshot.number for snapshot in collecting.snapshots] == [1, 2, 3, 4]
    assert failing.calls == 4


def test_the_loop_tells_what_it_costs(watch: Callable[..., Watch]) -> None:
    stop = threading.Event()
    collecting = Collecting(stop, 3)
    run_loop(watch(tick_s=0.001), (collecting,), stop)
    spent = [s.value for snapshot in collecting.snapshots for s in snapshot.samples if s.metric is metrics.LOOP_SECONDS]
    assert all(isinstance(value, float) and value > 0 for value in spent)
    assert spent == sorted(spent, key=float)  # type: ignore[arg-type]
    assert all(snapshot.loop_s > 0 for snapshot in collecting.snapshots)


def test_a_part_of_the_watch_that_breaks_does_not_end_it(watch: Callable[..., Watch], folder: Path) -> None:
    it = watch()

    def broken() -> None:
        raise RuntimeError("a fault of ours")

    it._read_pages = broken  # type: ignore[method-assign]
    with made_engine(folder) as engine:
        engine.steps(10)
        snapshot = it.turn()
    assert snapshot.problems == ("pages: RuntimeError: a fault of ours",)
    assert len(snapshot.engines) == 1
