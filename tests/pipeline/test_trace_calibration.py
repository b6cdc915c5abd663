"""Steps that a trace takes from a ring have the bounds that the same engine's steps of now have: by its own devices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_calibrations import H100_IDENTITY, MIB, h100_calibration, measured
from made_engine import made_engine
from pipeline.made_probes import MadeProbe, facts, sampled, wait_for
from pipeline.made_trace import MadeWriter

from rooflens.pipeline import engine_devices
from rooflens.pipeline.tracing import TraceTo
from rooflens.pipeline.watch import Watch
from rooflens.ring_folder import DEVICE_SUFFIX, create_ring
from rooflens.ring_writer import RingWriter

FAST = h100_calibration(identity=replace(H100_IDENTITY, device_uuid="GPU-fast"))
SLOW = h100_calibration(
    identity=replace(H100_IDENTITY, device_uuid="GPU-slow"), reads=((64 * MIB, measured(1e12)),)
)  # fmt: skip
STEPS = 20


def reachable(make: Callable[..., Watch], folder: Path, name: str, **settings: Any) -> np.ndarray[Any, Any]:
    """Seconds of the steps that were in the ring before this watch began."""
    writer = MadeWriter()
    it = make(trace=TraceTo(writer, "/trace"), state=folder / name, **settings)
    try:
        wait_for(lambda: it.turn() and len(writer.steps) >= STEPS, "the steps of the ring")
    finally:
        it.close()
    found = [rows.analysis.reachable_s for rows in writer.rows if rows.analysis is not None]
    assert all(each is not None for each in found)
    return np.concatenate([each for each in found if each is not None])


def worker_ring(folder: Path, engine_pid: int, uuid: str) -> RingWriter:
    ring, _ = create_ring(folder, 0, ((256, 1 << 16),), DEVICE_SUFFIX)
    facts_told = {"instance": "w", "engine": "vllm", "kind": "device", "parent_pid": engine_pid, "device_uuids": [uuid]}
    ring.set_info(facts_told)
    return ring


@pytest.mark.parametrize("dead", [False, True])
def test_by_the_device_that_a_worker_names(watch: Callable[..., Watch], folder: Path, dead: bool) -> None:
    with made_engine(folder, device="cuda", device_uuids=[]) as engine:
        worker = worker_ring(folder, engine.process.pid, "GPU-fast")
        engine.steps(STEPS)
        if dead:
            engine.kill()
            worker.close()
        probes = {"probes": (sampled(MadeProbe(facts("GPU-fast"), facts("GPU-slow"))),)}
        both = reachable(watch, folder, "both", calibrations=(SLOW, FAST), **probes)
        np.testing.assert_allclose(both, reachable(watch, folder, "fast", calibrations=(FAST,)))
        worker.close()


def test_by_the_device_that_a_driver_names_a_little_later(
    watch: Callable[..., Watch], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_devices, "INITIAL_PID_NAMESPACE", engine_devices.pid_namespace_here())
    with made_engine(folder, device="cuda", device_uuids=[]) as engine:
        engine.steps(STEPS)
        probe = MadeProbe(facts("GPU-fast", pids=(engine.process.pid,)), facts("GPU-slow", pids=()))
        both = reachable(watch, folder, "both", calibrations=(SLOW, FAST), probes=(sampled(probe),))
        np.testing.assert_allclose(both, reachable(watch, folder, "fast", calibrations=(FAST,)))
