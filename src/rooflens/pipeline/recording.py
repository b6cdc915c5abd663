"""From a source to figures: the wiring that reads a ring, lays the roofline beside it, and says what was lost."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rooflens.analyzer.figures import Summary
from rooflens.analyzer.roofline import analyse_engine
from rooflens.analyzer.spans import spans_of_engine
from rooflens.analyzer.summary import summarise
from rooflens.calibration_records import Calibration
from rooflens.collector.ring_file import InFlight
from rooflens.collector.ring_source import RingSource
from rooflens.model_records import HardwareSpec, StepAnalysis
from rooflens.records import EngineInfo, RingEvent, RooflensError, StepTable
from rooflens.trace_records import run_of_ring

LIVE, ENDED, DIED = "live", "ended", "died"


@dataclass(frozen=True, slots=True)
class Recording:
    """All that a ring held at one moment.

    ``ending`` is live (the writer still holds it), ended (closed in order) or died. ``in_flight`` is the oldest
    step that was handed over and whose output was never seen; ``in_flight_s`` its age where the engine lives.
    ``pid`` is the writer's, in its own namespace; ``last_step_age_s`` is by the wall clock; ``run`` names the ring as
    a trace names it.
    """

    path: Path
    info: EngineInfo | None
    steps: StepTable
    events: tuple[RingEvent, ...]
    lost_steps: int
    torn_steps: int
    doubted_frames: int
    hook_failures: int
    dropped_payloads: int
    ending: str
    in_flight: InFlight | None
    in_flight_s: float | None
    start_unix_s: float
    last_step_age_s: float | None
    pid: int
    rank: int
    run: str


def read_ring(path: Path) -> Recording:
    """Everything in the ring at ``path``; RooflensError in one line if it is no ring that can be read."""
    source = RingSource(path, spans_of=spans_of_engine)
    try:
        stamps = source.file.in_flight()  # before the steps, so that none that ends meanwhile is taken for open
        batch = source.read()
        state = source.file.state()
        ending = LIVE if source.file.live() else ENDED if state.closed else DIED
        failed_s = [event.monotonic_s for event in batch.events if event.name == "step_failed"]
        last_s = max((*failed_s, *batch.steps["submit_monotonic_s"][-1:].tolist()), default=0.0)
        in_flight = None if ending == ENDED else open_step(stamps, last_s)
    finally:
        source.close()
    header, unix_s = source.file.header, batch.steps["unix_s"][-1:].tolist()
    started_s = batch.info.start_unix_s if batch.info else None
    return Recording(
        path=path,
        info=batch.info,
        steps=batch.steps,
        events=batch.events,
        lost_steps=batch.lost_steps,
        torn_steps=batch.torn_steps,
        doubted_frames=source.doubted_frames,
        hook_failures=state.hook_failures,
        dropped_payloads=state.dropped_payloads,
        ending=ending,
        in_flight=in_flight,
        in_flight_s=time.monotonic() - in_flight.submit_monotonic_s if in_flight and ending == LIVE else None,
        start_unix_s=started_s or header.created_unix_ns / 1e9,
        last_step_age_s=max(0.0, time.time() - unix_s[0]) if unix_s else None,
        pid=header.pid,
        rank=header.rank,
        run=run_of_ring(path.name, header.created_unix_ns),
    )


def open_step(stamps: Sequence[InFlight], last_submit_s: float) -> InFlight | None:
    """The oldest stamped step that was handed over after the last committed one; None if there is none."""
    still_open = [stamp for stamp in stamps if stamp.submit_monotonic_s > last_submit_s]
    return min(still_open, key=lambda stamp: stamp.submit_monotonic_s, default=None)


def lay_beside(
    recording: Recording, hardware: HardwareSpec | None, calibration: Calibration | None = None
) -> tuple[Summary, StepAnalysis | None, str | None]:
    """The figures, the bounds of each step, and in one line why there are no bounds where there are none."""
    analysis, problem = None, None
    if hardware is None:
        problem = "the hardware is not known: give --hardware ID"
    elif recording.info is None:
        problem = "the engine's facts are missing from the ring"
    else:
        try:
            analysis = analyse_engine(recording.steps, recording.info, hardware, calibration)
        except RooflensError as error:
            problem = str(error)
    info = recording.info
    blocks = info.kv_blocks if info else None
    synchronous = info is not None and info.async_scheduling is False and info.concurrent_batches == 1
    return summarise(recording.steps, recording.events, analysis, blocks, synchronous), analysis, problem
