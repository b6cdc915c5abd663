"""Counters beside the engines that are watched: whose devices they are of, kept, counted, and joined to windows."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rooflens import device_metrics as metrics
from rooflens.collector.clock_watch import ClockWatch
from rooflens.collector.counter_join import apportioned_bytes, join_counters
from rooflens.collector.windows import WindowSettings
from rooflens.device_records import (
    ClockJump,
    DeviceFacts,
    DeviceSample,
    DeviceView,
    ProcessSample,
    WindowCounters,
)
from rooflens.live_records import EngineView, SourceKind
from rooflens.metric_records import Sample
from rooflens.model_records import HardwareSpec, StepAnalysis
from rooflens.pipeline.device_here import device_here
from rooflens.pipeline.device_history import DeviceHistory
from rooflens.pipeline.device_totals import DeviceTotals
from rooflens.pipeline.engine_devices import Claimant, EngineDevices, engine_devices, parent_here
from rooflens.pipeline.probes import Probes, Sampled
from rooflens.pipeline.window_counters import Apportioned, step_bytes
from rooflens.records import StepTable

if TYPE_CHECKING:
    from rooflens.pipeline.engine import WatchedEngine

AROUND_S = 2.0  # samples this far outside a window still help to bound what moved at its ends
KEPT_BEYOND_S = 60.0  # the longest window that is still open, and those before it that later samples complete
MOST_JUMPS = 64
HOST = "host"
NO_PSUTIL = "no processes of engines (psutil is not installed: pip install 'rooflens[sidecar]')"


class DeviceWatch:
    """All counters of a sidecar; belongs to the thread of its loop. Without probes it does nothing and says nothing."""

    def __init__(self, sampled: Sequence[Sampled], windows: WindowSettings, hardware: HardwareSpec | None) -> None:
        self._sampled = tuple(sampled)
        self._started_unix_s = time.time()
        slowest_s = max((each.period_s for each in sampled), default=0.0)
        printed = hardware is not None and hardware.origin == "datasheet"
        self._datasheet = hardware.memory_bandwidth_bytes_per_s if hardware is not None and printed else None
        self._history = DeviceHistory(windows.most_window_s + KEPT_BEYOND_S + 2 * slowest_s)
        self._totals = DeviceTotals(self._datasheet)
        self._clocks = ClockWatch()
        self._jumps: deque[ClockJump] = deque(maxlen=MOST_JUMPS)
        self._found: dict[str, EngineDevices] = {}
        self._asked: dict[int, frozenset[Any]] = {}  # what each probe was last told to watch
        self._claims: tuple[Any, ...] = ()
        self._wanted = False  # an engine is here that runs on a device, or may
        self.tap: Callable[[DeviceSample, DeviceFacts | None], None] = lambda sample, facts: None
        self._probes = Probes(sampled)

    def look(self, engines: Mapping[str, WatchedEngine]) -> None:
        """Take in what the probes brought, and see which devices the engines run on."""
        if not self._sampled:
            return
        self._jumps.extend(self._clocks.look())
        by_pid = {engine.pid: engine for engine in engines.values() if engine.pid is not None}
        claimed = {uuid.casefold() for found in self._found.values() for uuid in found.uuids}
        now_unix_s = time.time()
        self._history.claim(frozenset(claimed))
        for place, sampled, probed in self._probes.drain():
            for sample in self._history.take(place, sampled, probed):
                if sample.uuid.casefold() in claimed:
                    facts = self._history.facts_of((sample.uuid,)).get(sample.uuid)
                    self._totals.add(sample, facts, now_unix_s)
                    self.tap(sample, facts)
            for process in probed.processes:
                _spend(by_pid.get(process.engine_pid), process)
        self._find(engines)
        self._ask(engines)

    def attach(self, run: str, engine: WatchedEngine) -> None:
        """Join counters to the windows of this engine from now on."""
        if self._sampled:
            engine.counted.counters_of = partial(self._counters, run, engine)
            engine.counted.apportioned_of = partial(self._apportioned, run)

    def views(self, engines: Sequence[EngineView]) -> tuple[DeviceView, ...]:
        """The devices of these engines as they are now."""
        now_s = time.monotonic()
        uuids = sorted({uuid for engine in engines for uuid in engine.device_uuids})
        return tuple(view for uuid in uuids if (view := self._view(uuid, now_s)) is not None)

    def samples(self, views: Sequence[DeviceView]) -> Iterator[Sample]:
        """The series of these devices, and how the probes do."""
        yield from self._totals.samples(views)
        for source, failures in self._probes.failures().items():
            yield Sample(metrics.PROBE_FAILURES, (source,), float(failures), self._started_unix_s)

    def problems(self, engines: Mapping[str, WatchedEngine]) -> Iterator[str]:
        """What hinders the counters, one line each; a host without devices, or without engines on any, has none."""
        if not self._sampled:
            return
        now_s = time.monotonic()
        yield from self._probes.problems(self._wanted, lambda place, uuid: self._history.elsewhere(place, uuid, now_s))
        yield from self._history.problems(now_s)
        for run, engine in engines.items():
            found = self._found.get(run)
            if found is not None and found.problem is not None:
                yield f"{'/'.join(engine.key)}: {found.problem}"

    @property
    def spent_s(self) -> float:
        """Processor time that sampling cost beside the loop."""
        return self._probes.spent_s

    def said(self, patience_s: float) -> str:
        """In one line which counters are read, or why not; asks the probes for no longer than ``patience_s``."""
        self._probes.wait(patience_s)
        self.look({})
        devices = self._history.facts()
        words = []
        silent = []
        for place, (sampled, answered) in enumerate(self._probes.answered()):
            count = self._history.count(place)
            if sampled.source == HOST:
                words.append("processes of engines" if find_spec("psutil") else NO_PSUTIL)
            elif count:
                words.append(f"{sampled.name} every {sampled.period_s:g} s ({count} device{'s' if count > 1 else ''})")
            elif sampled.asked_for or not answered:
                words.append(
                    f"{sampled.name} every {sampled.period_s:g} s ({'no device yet' if answered else 'no answer yet'})"
                )
            else:
                silent.append(sampled.name)
        without = f"; no device by {' or '.join(silent)}" if silent and not devices else ""
        return f"{', '.join(words) or 'none'}{without}"

    def close(self) -> None:
        """Let go of the probes."""
        self._probes.close()

    def _find(self, engines: Mapping[str, WatchedEngine]) -> None:
        """Resolve anew where a fact changed; devices that were known stay so while nothing better is."""
        claimants = [
            Claimant(run, engine.info, engine.pid, engine.worker_uuids(), engine.here)
            for run, engine in engines.items()
        ]
        self._wanted = any(
            c.here and c.info is not None and c.info.device not in (None, "cpu") and _runs_here(engines[c.run])
            for c in claimants
        )
        devices = self._history.facts()
        claims = (tuple(claimants), tuple(devices))
        if claims != self._claims:
            self._claims = claims
            before, self._found = self._found, engine_devices(claimants, devices, parent_here)
            for run, found in self._found.items():
                if not found.uuids and run in before and before[run].uuids:
                    self._found[run] = replace(before[run], shared=None)
        now_s = time.monotonic()
        for run, engine in engines.items():
            engine.device_uuids = self._found[run].uuids
            views = [view for uuid in engine.device_uuids if (view := self._view(uuid, now_s)) is not None]
            engine.at_clocks(*_clocks(views))

    def _ask(self, engines: Mapping[str, WatchedEngine]) -> None:
        """Tell each probe that can be told what to look at; a driver would look in vain for another one's devices."""
        uuids = frozenset(uuid for engine in engines.values() for uuid in engine.device_uuids)
        pids = frozenset(engine.pid for engine in engines.values() if engine.pid is not None)
        for place, sampled in enumerate(self._sampled):
            watch: Any = getattr(sampled.probe, "watch", None)
            own = frozenset(uuid for uuid in uuids if self._history.tells(sampled.source, uuid))
            wanted: frozenset[Any] = pids if sampled.source == HOST else own
            if watch is not None and self._asked.get(place) != wanted:
                self._asked[place] = wanted
                watch(wanted)

    def _view(self, uuid: str, now_s: float) -> DeviceView | None:
        return self._history.view(uuid, now_s)

    def _counters(
        self, run: str, engine: WatchedEngine, start_s: float, end_s: float, steps: StepTable, moved: NDArray[Any]
    ) -> WindowCounters | None:
        found = self._found.get(run, EngineDevices())
        processes = self._history.processes(engine.pid, start_s, end_s) if engine.pid is not None else []
        if not found.uuids and not processes:
            return None
        samples = self._history.samples(found.uuids, start_s - AROUND_S, end_s + AROUND_S)
        facts = self._history.facts_of(found.uuids)
        shared = self._shared(run, found)
        joined = join_counters(
            start_s, end_s, steps, None if shared else moved, samples, facts, found.expected, self._datasheet,
            tuple(self._jumps), processes,
        )  # fmt: skip
        return replace(joined, shared=shared if joined.devices else None)

    def _shared(self, run: str, found: EngineDevices) -> bool | None:
        """Whether what the devices count is not this engine's alone; None where it cannot be told."""
        others = {uuid for other, theirs in self._found.items() if other != run for uuid in theirs.uuids}
        return True if others & set(found.uuids) else found.shared

    def _apportioned(self, run: str, steps: StepTable, analysis: StepAnalysis | None) -> Apportioned | None:
        """How to work out the counted bytes of each step, which costs as much as a turn and is seldom asked for."""
        found = self._found.get(run)
        if found is None or len(found.uuids) < max(found.expected, 1) or not len(steps) or self._shared(run, found):
            return None
        start_s, end_s = float(steps["output_monotonic_s"][0]), float(steps["output_monotonic_s"][-1])
        samples = self._history.samples(found.uuids, start_s - AROUND_S, end_s)
        if not all(samples.values()):
            return None
        return partial(_shares, steps, analysis, samples, self._history.facts_of(found.uuids), self._datasheet)


def _runs_here(engine: WatchedEngine) -> bool:
    """Whether its devices are this machine's. A ring is; a log or a socket may be brought from another machine."""
    return engine.source is SourceKind.RING or device_here()


def _shares(
    steps: StepTable,
    analysis: StepAnalysis | None,
    samples: Mapping[str, Sequence[DeviceSample]],
    facts: Mapping[str, DeviceFacts],
    datasheet_bytes_per_s: float | None,
) -> NDArray[Any] | None:
    """NaN where a step's share is not known; None where that is all of them."""
    each, known = apportioned_bytes(steps, step_bytes(steps, analysis), samples, facts, datasheet_bytes_per_s)
    return np.where(known, each, np.nan) if known.any() else None


def _spend(engine: WatchedEngine | None, process: ProcessSample) -> None:
    span_s = process.end_monotonic_s - process.start_monotonic_s
    if engine is not None:
        engine.spend(str(process.role), process.cores * span_s)


def _clocks(views: Sequence[DeviceView]) -> tuple[float | None, float | None, float | None]:
    """The lowest SM clock among devices, its highest one, and the lowest memory clock as a part of its highest."""
    shares = [
        (view.sample.sm_clock_hz, view.facts.sm_clock_max_hz)
        for view in views
        if view.sample is not None and view.sample.sm_clock_hz is not None
    ]
    memory = [
        view.sample.memory_clock_hz / view.facts.memory_clock_max_hz
        for view in views
        if view.sample is not None and view.sample.memory_clock_hz is not None and view.facts.memory_clock_max_hz
    ]
    slowest = min(shares, key=lambda pair: pair[0], default=(None, None))
    return (*slowest, min(memory, default=None))
