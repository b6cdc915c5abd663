"""A cursor never passes over a step that is not in a file; and what one engine hands to a trace, piece by piece."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pipeline.made_trace import MadeWriter

from rooflens.collector.state.cursors import Cursors
from rooflens.live_records import SourceKind
from rooflens.pipeline import engine_trace
from rooflens.pipeline.engine_trace import EngineTrace
from rooflens.pipeline.trace_cursors import TraceCursors
from rooflens.protocols import Batch
from rooflens.records import StepTable


class Kept:
    """Cursors in memory."""

    problem = None

    def __init__(self) -> None:
        self.at: dict[str, int] = {}
        self.get = self.at.get

    def set(self, ring_id: str, sequence: int) -> None:
        self.at[ring_id] = max(sequence, self.at.get(ring_id, 0))

    def flush(self) -> None:
        pass


@given(st.lists(st.sampled_from(["now", "old", "write"]), max_size=30), st.integers(1, 4))
def test_a_cursor_stands_for_all_steps_before_it(acts: list[str], pieces: int) -> None:
    """Old steps 1 to 10 x pieces come in pieces, steps of now beside them; the writer writes all that it was handed."""
    kept = Kept()
    cursors = TraceCursors(kept, "place")  # type: ignore[arg-type]
    cursors.older("run")
    attached = 10 * pieces
    old, now = 0, attached
    handed: set[int] = set()
    written: set[int] = set()
    for act in [*acts, *["old"] * pieces, "now", "write"]:
        if act == "old" and old < attached:
            handed |= {*range(old + 1, old + 11)}
            old += 10
            if old == attached:
                cursors.older_taken("run", attached)
        elif act == "now":
            handed |= {*range(now + 1, now + 6)}
            now += 5
            cursors.put("run", now)
        elif act == "write" and handed:
            written |= handed
            cursors.written({"run": max(written)})
        cursor = cursors.get("run") or 0
        assert {*range(1, cursor + 1)} <= written
    assert cursors.get("run") == now


def test_each_place_has_cursors_of_its_own_and_they_outlive_it(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    first = TraceCursors(Cursors(tmp_path / "state"), "/one")
    first.follow("run")
    first.written({"run": 7, "another's": 9})
    assert [TraceCursors(Cursors(tmp_path / "state"), place).get("run") for place in ("/one", "/two")] == [7, None]
    assert TraceCursors(Cursors(tmp_path / "state"), "/one").get("another's") is None


def tap(writer: MadeWriter, **more: Any) -> EngineTrace:
    engine: Any = SimpleNamespace(
        key=("m", "0"), info=None, roof=(None, 1, "no hardware"), source=SourceKind.PUSH, join=_with_device_time
    )
    return EngineTrace(engine, "run", "host", writer, **more)


def _with_device_time(steps: StepTable) -> StepTable:
    return StepTable({**steps.columns, "device_s": np.full(len(steps), 0.5)}, steps.known)


def batch(**columns: list[float]) -> Batch:
    return Batch(None, StepTable({name: np.array(values) for name, values in columns.items()}))


def test_steps_without_a_number_or_a_time_get_one() -> None:
    writer = MadeWriter()
    it = tap(writer)
    it.take(batch(sequence=[4, 5], output_monotonic_s=[1.0, 2.0], unix_s=[101.0, 102.0]), None)
    it.take(batch(sequence=[1, 2], output_monotonic_s=[3.0, 4.0]), None)  # its publisher began anew
    it.take(batch(output_monotonic_s=[5.0]), None)
    assert writer.steps["sequence"].tolist() == [4, 5, 6, 7, 8]
    assert writer.steps.has("unix_s")
    assert writer.steps["unix_s"][0] == 101.0
    assert len({id(rows.facts) for rows in writer.rows}) == 1, "made once, not every turn"


def test_steps_wait_for_their_device_time(monkeypatch: pytest.MonkeyPatch) -> None:
    writer, now_s = MadeWriter(), [100.0]
    monkeypatch.setattr(engine_trace.time, "monotonic", lambda: now_s[0])
    it = tap(writer, timed=lambda: True)
    it.take(batch(sequence=[1], output_monotonic_s=[1.0]), None)
    it.look(())
    assert writer.items == []
    now_s[0] += engine_trace.HELD_S
    it.take(batch(sequence=[2], output_monotonic_s=[2.0]), None)
    it.look(())
    assert writer.steps["sequence"].tolist() == [1]
    it.end(None)
    assert writer.steps["sequence"].tolist() == [1, 2]
    assert writer.steps["device_s"].tolist() == [0.5, 0.5]
