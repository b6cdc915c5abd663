"""Device times of workers beside a live engine: in its windows, and never in the way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from made_engine import made_engine

from rooflens.collector.device_reader import KEPT_SPANS, DeviceReader
from rooflens.findings import Code, Finding, Severity, Status
from rooflens.pipeline.recording import read_ring
from rooflens.pipeline.watch import Watch
from rooflens.records import RooflensError, StepTable
from rooflens.ring import COLD_FIELDS, DEVICE_SPAN, EVENT
from rooflens.ring_folder import DEVICE_SUFFIX, create_ring
from rooflens.ring_writer import RingWriter, pack_cold


@contextmanager
def worker(folder: Path, parent_pid: int) -> Iterator[tuple[RingWriter, Path]]:
    """A worker's ring, written from here as if by a child of the engine."""
    writer, path = create_ring(folder, 0, ((KEPT_SPANS * 2, 4096),), DEVICE_SUFFIX)
    writer.set_info({"instance": path.stem, "engine": "made-up", "kind": "device", "parent_pid": parent_pid})
    try:
        yield writer, path
    finally:
        writer.close()


def time_steps(writer: RingWriter, engine_ring: Path, device_ns: int, after: int = 0) -> None:
    """One span for each step of the engine's ring behind the first ``after``, 100 us after its submit."""
    steps = read_ring(engine_ring).steps
    for at in range(after, len(steps)):
        given = {"query_tokens": int(steps["query_tokens"][at]), "requests": int(steps["requests"][at])}
        cold = pack_cold(*({**given, "frame": EVENT, "flags": DEVICE_SPAN}.get(n, 0) for n, _ in COLD_FIELDS))
        start_ns = round(steps["submit_monotonic_s"][at] * 1e9) + 100_000
        writer.commit(start_ns, start_ns + 50_000, device_ns, at + 1, 0, 0, 0, 0, 0, cold)


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> list[StepTable]:
    """The steps of each window that the rules were given."""
    seen: list[StepTable] = []

    def rule(case: object) -> Finding:
        seen.append(case.window.steps)  # type: ignore[attr-defined]
        return Finding(Code.HOST_OVERHEAD, Severity.INFO, Status.CLEARED, "nothing is wrong")

    monkeypatch.setattr("rooflens.pipeline.engine.RULES", {Code.HOST_OVERHEAD: rule})
    return seen


def test_the_slowest_worker_of_each_step_is_in_the_window(
    watch: Callable[..., Watch], folder: Path, judged: list[StepTable]
) -> None:
    it = watch()
    with made_engine(folder) as engine:
        pid = engine.process.pid
        with worker(folder, pid) as (fast, _), worker(folder, pid) as (slow, _), worker(folder, pid + 1) as (other, _):
            engine.steps(30, step_s=0.02)
            for writer, device_ns in ((fast, 3_000_000), (slow, 5_000_000), (other, 9_000_000)):
                time_steps(writer, engine.path, device_ns)
            timed = int(read_ring(engine.path).steps["sequence"].max())
            assert it.turn().problems == ()
            engine.steps(30, step_s=0.02)
            assert it.turn().problems == ()
        steps, untimed = judged
        assert len(steps) >= 20
        assert steps.has("device_s")
        assert set(steps["device_s"].tolist()) == {0.005}
        later = untimed["sequence"] > timed
        assert later.sum() >= 10
        assert not untimed.where("device_s")[later].any(), "nothing is made up for steps that no span tells of"


def test_a_damaged_ring_of_a_worker_is_one_line(
    watch: Callable[..., Watch], folder: Path, judged: list[StepTable]
) -> None:
    bad = folder / f"bad-00000000-0{DEVICE_SUFFIX}"
    bad.write_bytes(b"nothing of ours")
    it = watch()
    with made_engine(folder) as engine:
        engine.steps(30, step_s=0.02)
        assert it.turn().problems == (f"{bad} is not a rooflens ring: it does not begin like one",)
    assert len(judged) == 1
    bad.unlink()
    assert it.turn().problems == ()


def test_an_engines_ring_is_no_workers(folder: Path) -> None:
    with made_engine(folder) as engine, pytest.raises(RooflensError, match="no ring of device times"):
        DeviceReader(engine.path)
