"""A sidecar that is ended before it took what rings held from before says so, and its next start takes it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from made_engine import made_engine
from pipeline.made_trace import MadeWriter

from rooflens.cli.trace_named import check_written
from rooflens.pipeline import trace_resume
from rooflens.pipeline.tracing import TraceTo
from rooflens.pipeline.watch import Watch
from rooflens.records import RooflensError


def numbers(writer: MadeWriter) -> list[int]:
    return sorted(int(number) for rows in writer.rows for number in rows.steps["sequence"])


def test_ended_before_old_steps_were_taken_it_says_so_and_the_next_start_takes_them(
    watch: Callable[..., Watch], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = threading.Event()
    take = trace_resume.Resume._take

    def slow(self: trace_resume.Resume, old: trace_resume.Old) -> None:
        go_on.wait(20.0)
        if not self._stop.is_set():
            take(self, old)

    monkeypatch.setattr(trace_resume.Resume, "_take", slow)
    monkeypatch.setattr(trace_resume.Resume.close, "__defaults__", (0.05,))
    settings: dict[str, Any] = {"state": folder / "state"}
    with made_engine(folder) as engine:
        engine.steps(40)
        first = TraceTo(MadeWriter(), "/trace")
        it = watch(trace=first, **settings)
        it.turn()
        it.close()
        go_on.set()
        with pytest.raises(RooflensError, match="not all taken from their rings before it ended: the next start"):
            check_written(first)
        monkeypatch.undo()
        second = MadeWriter()
        again = TraceTo(second, "/trace")
        it = watch(trace=again, **settings)
        it.turn()
        it.close()
        check_written(again)
    assert numbers(second) == list(range(1, 41))
