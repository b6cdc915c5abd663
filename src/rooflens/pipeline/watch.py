"""Everything that is watched, turn by turn: sources in, one snapshot out."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from rooflens import __version__
from rooflens import catalogue as metrics
from rooflens.collector.tables import empty_table
from rooflens.live_records import EngineView, Snapshot, SourceHealth, SourceKind, State
from rooflens.metric_records import Sample
from rooflens.pipeline.beside import Aside, set_aside
from rooflens.pipeline.beside_feeds import Known, aside_of, lesser
from rooflens.pipeline.device_watch import DeviceWatch
from rooflens.pipeline.devices import Devices
from rooflens.pipeline.engine import WatchedEngine
from rooflens.pipeline.feeds import Feeds, FeedTold
from rooflens.pipeline.follow import Follower
from rooflens.pipeline.gauges import gauges, group_gauges, source_samples
from rooflens.pipeline.group_members import members_of
from rooflens.pipeline.groups import Groups
from rooflens.pipeline.labels import Key, Labels
from rooflens.pipeline.memory import Memory
from rooflens.pipeline.page_runs import Once, Told, read_pages
from rooflens.pipeline.pages import Pages, is_loopback, with_model
from rooflens.pipeline.ring_reader import RingReader, said
from rooflens.pipeline.totals import Totals
from rooflens.pipeline.tracing import Tracing
from rooflens.pipeline.watch_settings import WatchSettings
from rooflens.protocols import Batch
from rooflens.records import EngineInfo, RooflensError, StepTable

GONE_KEPT_S = 600.0  # an engine that ended or died stays in sight for so long
# Of these, the last; each keeps its recent steps, and labels that change at every read would fill memory and pages.
MOST_GONE = 64
LEFT_OUT = f"more than {MOST_GONE} engines ended within {GONE_KEPT_S / 60:.0f} minutes: the last {MOST_GONE} are shown"
MOST_PROBLEMS = 32  # lines; a folder full of damaged rings must not fill a page


class Watch:
    """Reads all sources once a turn and publishes what it knows; belongs to one thread, ``snapshot`` to all."""

    def __init__(self, settings: WatchSettings) -> None:
        """RooflensError in one line for an address that is none."""
        self.settings = settings
        self._started_unix_s = time.time()
        folders = settings.folders if settings.use_rings else ()
        self._follower = Follower(folders, settings.from_start, settings.wanted)
        self._devices = Devices(folders)
        self._pages = Pages(settings.scrape_urls, settings.scrape_s, settings.discover, settings.scrape_token)
        self._feeds = Feeds(settings.feeds)
        self.counters = DeviceWatch(settings.probes, settings.windows, settings.hardware)  # last: it starts threads
        self._labels, self._totals, self._groups = Labels(), Totals(), Groups()
        self._once, self._memory, self._trace = Once(), Memory(settings.state), Tracing(settings)
        self.counters.tap = self._trace.sampled
        self._engines: dict[str, WatchedEngine] = {}
        self._pages_of: dict[str, str] = {}  # the page of each run that is read from one
        self._gone: dict[Key, tuple[EngineView, float]] = {}  # with when it was over, monotonic seconds
        self._left_out_s: float | None = None  # when the last one of these was left out
        self._read_out: dict[Key, SourceHealth] = {}  # the rings of those
        self._standby: frozenset[str] = frozenset()
        self._aside = Aside()
        self._faults: list[str] = []  # of this turn
        self._told: dict[str, str] = {}  # by other parts of the sidecar
        self._failures = dict.fromkeys(SourceKind, 0)
        self._spent_s = 0.0
        self.snapshot = Snapshot(0, self._started_unix_s, self._started_unix_s, 0.0, __version__)

    def turn(self) -> Snapshot:
        """Read every source once; a fault of a source or an engine is a line in the snapshot, never an exception."""
        started_s, cpu_s, begun_s = time.perf_counter(), time.thread_time(), time.monotonic()
        self._faults = []
        self._guarded("device times", self._devices.read)
        self._guarded("counters", self.counters.look, self._engines)
        self._guarded("rings", self._read_rings)
        self._guarded("feeds", self._read_feeds)
        self._guarded("pages", self._read_pages)
        self._guarded("state", self._memory.look)
        views = {run: engine.view() for run, engine in self._engines.items()}
        self._guarded("groups", self._look_at_groups, views, begun_s)
        self._guarded("trace", self._trace.turn, views, self._follower.passed())
        now_s = time.monotonic()
        self._gone = {key: gone for key, gone in self._gone.items() if now_s - gone[1] < GONE_KEPT_S}
        self._read_out = {key: health for key, health in self._read_out.items() if key in self._gone}
        self._spent_s += time.thread_time() - cpu_s
        self.snapshot = self._published([*views.values()], time.time(), time.perf_counter() - started_s)
        return self.snapshot

    def spent(self, cpu_s: float) -> None:
        """Add what publishing cost, to be told with the next snapshot."""
        self._spent_s += cpu_s

    def problem(self, name: str, line: str | None) -> None:
        """Say what hinders a part of the sidecar, None that nothing does any more."""
        if line is None:
            self._told.pop(name, None)
        else:
            self._told[name] = line

    def close(self) -> None:
        """Let go of every source."""
        self._trace.close()  # before what it still asks for device times
        for part in (self._follower, self._devices, self._feeds, self._pages, self.counters, self._memory):
            part.close()

    def _guarded(self, name: str, act: Callable[..., None], *arguments: Any) -> None:
        """Run one part of a turn; what it raises is a fault of this part alone."""
        try:
            act(*arguments)
        except Exception as error:
            why = str(error) if isinstance(error, RooflensError) else f"{type(error).__name__}: {error}"
            self._faults.append(f"{name}: {' '.join(why.split())}")

    def _read_rings(self) -> None:
        for ring in self._follower.readers():
            self._guarded(ring.path.name, self._read_ring, ring)

    def _read_ring(self, ring: RingReader) -> None:
        now_s = time.monotonic()
        try:
            batch = ring.read()
        except Exception as error:
            self._failures[SourceKind.RING] += 1
            ring.fail(said(error, ring.path))
            self._end(ring.run, ring.state, ring.problem)
            self._follower.drop(ring)
            return
        info = with_model(batch.info, self.settings.model_config)
        try:
            if ring.run not in self._engines:
                self._engine(ring.run, SourceKind.RING, info, ring.rank, ring.watched_from_s, ring.before)
                engine, header = self._engines[ring.run], ring.header
                engine.join, engine.pid = partial(self._devices.join, header), ring.pid
                engine.worker_uuids, engine.run = partial(self._devices.uuids, header), ring.lasting_name
                self._trace.begin(ring.run, engine, ring, partial(self._devices.timed, header))
            self._take(ring.run, batch, info, now_s, ring.state)
        finally:
            if ring.state is not State.LIVE:
                key = self._engines[ring.run].key if ring.run in self._engines else None
                self._end(ring.run, ring.state)
                self._follower.drop(ring)
                if key is not None:
                    self._read_out[key] = ring.health()

    def _read_pages(self) -> None:
        live_rings = [e for e in self._engines.values() if e.source is SourceKind.RING]
        nothing_else = not self.settings.scrape_urls and not live_rings
        self._pages.look(nothing_else)
        pages = self._pages.all()
        told = read_pages(pages)
        self._aside = set_aside(told, [engine.info for engine in live_rings])
        aside = self._aside.runs
        self._standby = frozenset(each.url for each in told if each.run in aside)
        read = self._once.of([each for each in told if each.run not in aside], self._pages_of)
        for each in read:
            self._guarded(each.page.name, self._read_page, each)
        for run in self._pages_of.keys() - {each.run for each in read}:
            answering = State.STANDBY if run in aside else State.ENDED
            self._end(run, answering if self._pages_of[run] in dict(pages) else State.UNREACHABLE)  # it was given up

    def _read_page(self, told: Told) -> None:
        """One engine of a page; a page names each of its engines at every read, one that is over a last time."""
        run, batch = told.run, told.batch
        if run not in self._engines and not len(batch.steps) and told.over:
            return
        info = with_model(batch.info, self.settings.model_config)
        now_s = time.monotonic() - self.settings.scrape_s  # what is known of now is as old as the last fetch
        self._pages_of[run] = told.url
        self._engine(run, SourceKind.METRICS, info, info.rank if info else 0, time.monotonic(), empty_table())
        self._engines[run].here = is_loopback(told.url)
        self._take(run, batch, info, now_s, told.page.state)
        if told.over:
            self._end(run, State.ENDED)

    def _read_feeds(self) -> None:
        heard = list(self._feeds.read(self._guarded))
        aside = aside_of(heard, self._known())
        self._feeds.stand_aside(aside)
        for told in heard:
            if told.run in aside:
                self._end(told.run, State.STANDBY)
                continue
            self._guarded(told.name, self._read_feed, told)
        for run in self._feeds.left():
            self._end(run, State.UNREACHABLE)

    def _read_feed(self, told: FeedTold) -> None:
        """One engine of a feed; one that is over is told of a last time."""
        run, batch = told.run, told.batch
        now_s = time.monotonic() if batch.known_until_monotonic_s is None else batch.known_until_monotonic_s
        if run not in self._engines and not len(batch.steps) and told.over:
            return
        info = with_model(batch.info, self.settings.model_config)
        watched_from_s = told.from_monotonic_s or now_s
        self._engine(run, told.feed.kind, info, info.rank if info else 0, watched_from_s, empty_table())
        self._engines[run].here = told.feed.here if batch.here is None else batch.here
        self._take(run, batch, info, now_s, told.state)
        if told.over:
            self._end(run, told.state)

    def _engine(
        self, run: str, source: SourceKind, info: EngineInfo | None, rank: int, from_s: float, before: StepTable
    ) -> None:
        """See that the run is watched under a label."""
        if run in self._engines:
            return
        self._make_way(run, source, info)
        now_unix_s = time.time()
        key = self._labels.take(run, info, rank)
        totals = self._totals.of(key, now_unix_s)
        totals.begin_run(source, from_s, before, now_unix_s)
        settings = self.settings
        roofs = settings.hardware, settings.windows, before, settings.calibrations
        self._engines[run] = WatchedEngine(key, source, totals, *roofs, self._memory.of_engine())
        self.counters.attach(run, self._engines[run])
        self._trace.begin(run, self._engines[run])
        self._gone.pop(key, None)

    def _known(self) -> list[Known]:
        return [Known(run, engine.source, engine.info, engine.here) for run, engine in self._engines.items()]

    def _make_way(self, new: str, source: SourceKind, info: EngineInfo | None) -> None:
        """Worse sources of this host that tell of the same engine stand aside before a better one takes its label."""
        here = source is not SourceKind.METRICS or is_loopback(self._pages_of[new])
        for run in lesser(source, info, here, self._known()):
            self._end(run, State.STANDBY)

    def _take(self, run: str, batch: Batch, info: EngineInfo | None, now_s: float, state: State) -> None:
        engine = self._engines[run]
        engine.state = state
        engine.take(batch, info, now_s)

    def _end(self, run: str, state: State, problem: str | None = None) -> None:
        """The run is over: its label is free, its view stays for a while unless another source tells of it."""
        engine = self._engines.pop(run, None)
        self._pages_of.pop(run, None)
        self._labels.give_back(run)
        if engine is None:
            return
        engine.problem = problem
        engine.end(state, time.monotonic())
        view = engine.view()
        self._trace.end(run, view.findings)
        if state is not State.STANDBY:
            self._gone.pop(engine.key, None)
            self._gone[engine.key] = (view, time.monotonic())  # the newest last
            if len(self._gone) > MOST_GONE:
                del self._gone[next(iter(self._gone))]
                self._left_out_s = time.monotonic()

    def _look_at_groups(self, views: Mapping[str, EngineView], begun_s: float) -> None:
        members = members_of(self._engines, views, self.snapshot.devices, (self._pages_of.get, self._feeds.place))
        self._groups.look([*members], begun_s, time.time())

    def _published(self, live: Sequence[EngineView], now_unix_s: float, loop_s: float) -> Snapshot:
        views = [*live, *(view for view, _ in self._gone.values())]
        views.sort(key=lambda view: (view.model_name, view.engine))
        pages = self._pages.health(
            self._standby, Counter(self._pages_of.values()), self._once.doubles, self._aside.unsure
        )
        sources = (*self._follower.health(), *self._read_out.values(), *self._feeds.health(), *pages)
        devices = self.counters.views(views)
        return Snapshot(
            number=self.snapshot.number + 1,
            created_unix_s=now_unix_s,
            started_unix_s=self._started_unix_s,
            loop_s=loop_s,
            version=__version__,
            engines=tuple(views),
            sources=sources,
            samples=(*self._samples(views, sources), *self.counters.samples(devices)),
            problems=self._problems(),
            devices=devices,
            groups=self._groups.views,
        )

    def _samples(self, views: Sequence[EngineView], sources: Sequence[SourceHealth]) -> list[Sample]:
        keys = [(view.model_name, view.engine) for view in views]
        found = self._totals.samples(keys)
        found += [sample for view in views for sample in gauges(view, time.time())]
        found += [sample for group in self._groups.views for sample in group_gauges(group)]
        failures = Counter(self._failures)
        failures.update(self._feeds.failures)
        failures.update({SourceKind.RING: self._follower.failures, SourceKind.METRICS: self._pages.failures})
        found += [*source_samples(sources, failures, self._started_unix_s), *self._trace.samples()]
        found.append(Sample(metrics.LOOP_SECONDS, (), self._spent_s + self.counters.spent_s, self._started_unix_s))
        return [*found, Sample(metrics.SIDECAR_INFO, (__version__,), 1.0)]

    def _problems(self) -> tuple[str, ...]:
        own = (line for engine in self._engines.values() for line in engine.problems)
        others = (*self.counters.problems(self._engines), *self._memory.problems, *self._trace.problems)
        sources = (*self._follower.problems, *self._devices.problems, *self._pages.problems, *others)
        recently = self._left_out_s is not None and time.monotonic() - self._left_out_s < GONE_KEPT_S
        lines = dict.fromkeys((*self._told.values(), *self._faults, *((LEFT_OUT,) if recently else ()), *own, *sources))
        return tuple(lines)[:MOST_PROBLEMS]
