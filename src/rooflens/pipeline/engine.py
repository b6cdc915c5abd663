"""One engine that is watched: its steps into totals, windows, findings and a view."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from rooflens.analyzer.ceilings import ceilings_of
from rooflens.analyzer.peers import Peers
from rooflens.analyzer.regimes import regime_figures, times_of, with_usual
from rooflens.analyzer.roofline import Roofline
from rooflens.analyzer.rules import EVERY_TURN, RULES
from rooflens.analyzer.rules.case import Case
from rooflens.analyzer.verdicts import Verdicts
from rooflens.analyzer.window_figures import window_figures
from rooflens.calibration_records import Calibration, Ceiling
from rooflens.collector.windows import Stretch, WindowBuilder, WindowSettings
from rooflens.findings import Code, Finding, Status
from rooflens.info_fields import unread_text
from rooflens.live_records import Derived, EngineView, Progress, SourceKind, State, Window, WindowFigures
from rooflens.model_records import HardwareSpec, StepAnalysis
from rooflens.pipeline.engine_beside import Beside
from rooflens.pipeline.engine_calibration import calibration_of_engine
from rooflens.pipeline.engine_roof import NO_HARDWARE, NO_INFO, NOT_ITS_HARDWARE, analysed, devices_of, roofline_of
from rooflens.pipeline.labels import Key
from rooflens.pipeline.memory import EngineMemory
from rooflens.pipeline.recent import RecentSteps
from rooflens.pipeline.totals import EngineTotals
from rooflens.pipeline.window_counters import CountedWindows
from rooflens.protocols import Batch
from rooflens.records import EngineInfo, StepTable

KEPT_WINDOWS = 6
RECENT_STEPS = 512
STAMP_S = 0.05  # an engine stamps a step within microseconds of handing it over; this much if it is held up
NEWEST_ONLY = "bounds are kept of the newest window only"  # half the memory, and no rule looks at older ones
Tap = Callable[[Batch, StepAnalysis | None], None]
Clocks = tuple[float | None, ...]  # SM and highest SM in Hz, memory as a part of its highest


class WatchedEngine:
    """One run of an engine under one label. ``state`` is how it was at the last read.

    ``join`` adds to the steps of a window what other sources tell of them, ``tap`` gets what is new with its bounds;
    ``counted`` joins counters to its windows, ``beside`` what is known of the engines of its group.
    ``pid`` is its process as this host numbers it, ``run`` what every sidecar calls the ring that numbers its steps,
    None for one without. ``worker_uuids`` asks which devices its workers name, and ``here`` is False where it may run
    on another machine. ``device_uuids`` are the devices it is known to run on.
    """

    def __init__(
        self,
        key: Key,
        source: SourceKind,
        totals: EngineTotals,
        hardware: HardwareSpec | None,
        windows: WindowSettings,
        before: StepTable,
        calibrations: Sequence[Calibration] = (),
        memory: EngineMemory | None = None,
    ) -> None:
        self.key, self.source, self.state = key, source, State.LIVE
        self.problem: str | None = None  # of its source, beside what hinders its roofline
        self.info: EngineInfo | None = None
        self.join: Callable[[StepTable], StepTable] = lambda steps: steps
        self.tap: Tap = lambda batch, analysis: None
        self.counted = CountedWindows(KEPT_WINDOWS)
        self.beside = Beside(KEPT_WINDOWS)
        self.pid: int | None = None
        self.run: str | None = None
        self.worker_uuids: Callable[[], tuple[str, ...]] = tuple
        self.here = True
        self.device_uuids: tuple[str, ...] = ()
        self._clocks: Clocks | None = None
        self._ceilings: tuple[Ceiling, ...] = ()
        self._totals, self._hardware, self._calibrations = totals, hardware, calibrations
        self._calibration: Calibration | None = None
        self._roofline: Roofline | None = None
        self._no_roofline: str | None = NO_HARDWARE if hardware is None else NO_INFO
        self._builder = WindowBuilder(windows)
        self._windows: tuple[Window, ...] = ()
        self._figures: tuple[WindowFigures, ...] = ()
        self._verdicts = Verdicts()
        self._findings: tuple[Finding, ...] = ()
        self.rule_failures = 0
        self._rule_problems: dict[Code, str] = {}
        self._progress: Progress | None = None
        self._derived: dict[str, Derived] = {}
        self._recent = RecentSteps(before, RECENT_STEPS)
        self._memory = memory or EngineMemory()  # what windows of such an engine taught
        self._rested_s = 0.0  # of a page, since the last window closed
        self._first_seen_unix_s = time.time()
        self._last_step_unix_s: float | None = _last_unix_s(self._recent.steps)
        self.at_clocks(None, None, None)

    def take(self, batch: Batch, info: EngineInfo | None, now_monotonic_s: float) -> None:
        """What one read brought, with the engine's facts; ``now_monotonic_s`` is a moment before it was read."""
        self._know(info)
        steps = batch.steps
        self._progress = batch.progress
        self._derived |= {value.name: value for value in batch.derived}
        analysis = self._remembered(steps)
        self._totals.add(batch, analysis, time.time())
        self.tap(batch, analysis)
        self._rest(batch, now_monotonic_s)
        for stretch in (*self._builder.add(batch), *self._builder.advance(now_monotonic_s)):
            self._close(stretch)
        if self.state is State.LIVE:
            for finding in self._judge(EVERY_TURN):
                if finding.status is Status.FIRING and finding.price is not None:
                    self._totals.stands(str(finding.code), finding.price.saved_s, now_monotonic_s)

    def _remembered(self, steps: StepTable) -> StepAnalysis | None:
        """Put new steps behind the recent ones; the analysis of the new ones."""
        if not len(steps):
            return None
        self._last_step_unix_s = _last_unix_s(steps) or self._last_step_unix_s
        roofline = self._roofline
        return self._recent.add(steps, self._analysed, lambda rows: roofline is not None and roofline.stand_alone(rows))

    def _rest(self, batch: Batch, now_monotonic_s: float) -> None:
        """Idle time is counted by the clock: an engine without requests tells of it only once it has one."""
        progress = batch.progress
        if progress is None or progress.state is not State.LIVE:
            return
        if self.source.single_steps and progress.open_age_s is None:
            # Short of now: a step that began this very moment may not have left its stamp yet.
            self._totals.rest_until(now_monotonic_s - STAMP_S, sure=False)
        elif not self.source.single_steps and progress.idle_s and progress.load is not None:
            self._rested_s += self._totals.rest_until(progress.load.monotonic_s, sure=True)

    def end(self, state: State, now_monotonic_s: float) -> None:
        """The engine is gone: what is open is closed, and nothing fires any more."""
        self.state = state
        if self._progress is not None:
            self._progress = replace(self._progress, state=state)
        for stretch in self._builder.flush():
            self._close(stretch)
        self._findings = tuple(_over(finding, time.time()) for finding in self._findings)
        self._totals.end_run(now_monotonic_s)

    def at_clocks(self, *clocks: float | None) -> None:
        """The ceilings at these clocks of its devices: see ``Clocks``."""
        if self._hardware is not None and clocks != self._clocks:
            self._clocks = clocks
            self._ceilings = ceilings_of(self._hardware, self._calibration, *clocks)

    def spend(self, role: str, cpu_s: float) -> None:
        """Count processor time of its processes."""
        self._totals.spend(role, cpu_s)

    @property
    def problems(self) -> tuple[str, ...]:
        """What hinders the sidecar itself at this engine, one line each."""
        uncounted = self._totals.problem
        odd = unread_text(self.info.unread) if self.info else None
        problems = (*self._rule_problems.values(), *(line for line in (uncounted, odd) if line))
        return tuple(f"{'/'.join(self.key)}: {problem}" for problem in problems)

    @property
    def roof(self) -> tuple[HardwareSpec | None, int, str | None]:
        """The hardware of its bounds, how many devices it has, and why there are no bounds where there are none."""
        hardware = None if self._no_roofline == NOT_ITS_HARDWARE else self._hardware
        return hardware, devices_of(self.info), self._no_roofline

    def view(self) -> EngineView:
        """The engine as views see it."""
        return EngineView(
            model_name=self.key[0],
            engine=self.key[1],
            source=self.source,
            state=self.state,
            info=self.info,
            hardware=self._hardware,
            first_seen_unix_s=self._first_seen_unix_s,
            last_step_unix_s=self._last_step_unix_s,
            windows=self._figures,
            findings=self._findings,
            recent=self._recent.steps,
            recent_analysis=self._recent.analysis,
            problem=self.problem or self._no_roofline,
            progress=self._progress,
            derived=tuple(self._derived.values()),
            regimes=regime_figures(self._memory.correction),
            ceilings=() if self._no_roofline == NOT_ITS_HARDWARE else self._ceilings,
            device_uuids=self.device_uuids,
            recent_dram_bytes=self.counted.apportioned(self._recent.steps, self._recent.analysis),
        )

    def _know(self, info: EngineInfo | None) -> None:
        """Take facts and devices that are new or have changed: the roofline is compiled for them, once."""
        if not self._calibrate(info) and (info is None or info is self.info or info == self.info):
            return
        info = info or self.info
        self.info = info
        self._memory.know(info, self._hardware, self._calibration, self.here)
        self._roofline, self._no_roofline = roofline_of(info, self._hardware, self._calibration)
        self._recent.analyse_anew(self._analysed)

    def _calibrate(self, info: EngineInfo | None) -> bool:
        """Take the calibration of its devices; whether that is another one than before."""
        uuids = self.device_uuids or (info.device_uuids if info else ())
        before, self._calibration = self._calibration, calibration_of_engine(self._calibrations, uuids, self.here)
        if changed := self._calibration is not before:
            clocks, self._clocks = self._clocks or (), None
            self.at_clocks(*clocks)
        return changed

    def _analysed(self, steps: StepTable) -> StepAnalysis | None:
        if self._roofline is None or not len(steps):
            return None
        name = self.info.engine if self.info else "the engine"
        analysis, self._no_roofline = analysed(self._roofline, steps, name, self.source)
        return analysis

    def _close(self, stretch: Stretch) -> None:
        """A window is complete: its figures, and every rule's verdict."""
        steps = self.join(stretch.steps)
        offset_s = float(steps["unix_s"][-1] - steps["output_monotonic_s"][-1]) if "unix_s" in steps.columns else None
        if offset_s is None:
            offset_s = time.time() - time.monotonic()
        analysis = self._analysed(steps)
        self._windows, self._figures = self.counted.again(self._windows, self._figures)
        window = Window(
            info=self.info,
            source=self.source,
            start_unix_s=stretch.start_monotonic_s + offset_s,
            end_unix_s=stretch.end_monotonic_s + offset_s,
            start_monotonic_s=stretch.start_monotonic_s,
            end_monotonic_s=stretch.end_monotonic_s,
            steps=steps,
            analysis=analysis,
            problem=self._no_roofline if analysis is None else None,
            events=stretch.events,
            lost_steps=stretch.lost_steps,
            torn_steps=stretch.torn_steps,
            derived=stretch.derived,
            complaints=stretch.complaints,
            whole=stretch.whole,
            rested_s=self._rested_s,
            counters=self.counted.counters(stretch.start_monotonic_s, stretch.end_monotonic_s, steps, analysis),
        )
        self._rested_s = 0.0
        past = (replace(w, analysis=None, problem=NEWEST_ONLY) if w.analysis is not None else w for w in self._windows)
        self._windows = (*past, window)[-KEPT_WINDOWS:]
        times = times_of(steps, analysis)
        figures = replace(with_usual(window_figures(window), times, self._memory.correction), counters=window.counters)
        self._figures = (*self._figures, figures)[-KEPT_WINDOWS:]
        if window.whole:
            self._memory.learn(steps, times, window.end_unix_s, self.run)
        self.beside.closed(window)
        judged = self._judge(frozenset(RULES) - EVERY_TURN)
        firing = {finding.code for finding in self._findings if finding.status is Status.FIRING}
        self._totals.judged(finding for finding in judged if finding.code in firing)

    def _judge(self, codes: frozenset[Code]) -> list[Finding]:
        """The verdicts of these rules; one that fails is a problem of the sidecar and takes no other with it."""
        peers = self.beside.peers() if codes != EVERY_TURN else Peers()
        case = Case(
            self._windows, self._figures, self._roofline, self._hardware, self._progress, self._recent.steps, peers
        )
        verdicts: list[Finding] = []
        failed: dict[Code, str] = {}
        for code, rule in RULES.items():
            if code in codes:
                try:
                    verdicts.append(rule(case))
                except Exception as error:
                    self.rule_failures += 1
                    failed[code] = f"the rule {code} failed ({type(error).__name__}: {error}): please report it"
        self._rule_problems = {c: p for c, p in self._rule_problems.items() if c not in codes} | failed
        self._verdicts, self._findings, raised = self._verdicts.judged(verdicts, time.time())
        self._totals.raised(raised)
        return verdicts


def _over(finding: Finding, now_unix_s: float) -> Finding:
    if finding.status is not Status.FIRING:
        return finding
    return replace(finding, status=Status.CLEARED, until_unix_s=now_unix_s)


def _last_unix_s(steps: StepTable) -> float | None:
    known = len(steps) and "unix_s" in steps.columns and bool(steps.where("unix_s")[-1])
    return float(steps["unix_s"][-1]) if known else None
