"""A failure of the hook, as its ring tells it: nothing that was lost sight of looks like a step that hangs."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from rooflens.adapters.vllm.patch import CAPTURE, MOST_FAILURES, failed
from rooflens.pipeline.recording import read_ring
from rooflens.ring_folder import create_ring


def test_what_was_in_flight_does_not_stay_so(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    ring, path = create_ring(tmp_path, 0, ((8, 4096),))
    scheduler = SimpleNamespace()
    capture: Any = SimpleNamespace(ring=ring, scheduler=scheduler, failures=0, off=False, lose_track=lambda: None)
    setattr(scheduler, CAPTURE, capture)
    for ordinal in (1, 2):
        ring.stamp(ordinal, ordinal * 10**9, 3, 3)
    assert read_ring(path).in_flight is not None
    failed(capture, "a test")
    recording = read_ring(path)
    assert (recording.in_flight, recording.hook_failures) == (None, 1)
    assert [event.name for event in recording.events] == ["hook_failed"]
    for _ in range(MOST_FAILURES - 1):
        failed(capture, "a test")
    recording = read_ring(path)
    assert (recording.hook_failures, getattr(scheduler, CAPTURE)) == (MOST_FAILURES, None)
    assert recording.events[-1].name == "hook_off"
    ring.close()
