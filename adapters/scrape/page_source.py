"""A metrics page as a source of batches: a thread fetches it, read() hands over what came and never waits."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from rooflens.adapters.logs.trtllm_stats import ENGINE
from rooflens.adapters.scrape.address import address_of
from rooflens.adapters.scrape.asked import Asked
from rooflens.adapters.scrape.beat import JITTER_RATIO, next_beat_s
from rooflens.adapters.scrape.fetch import Limits, Page, StatusError, fetch
from rooflens.adapters.scrape.follow import Follower, Given
from rooflens.adapters.scrape.iterations import IterationPage, iterations_on
from rooflens.adapters.scrape.lines import Lines
from rooflens.adapters.scrape.lives import Lives
from rooflens.adapters.scrape.readings import Key, PageReading
from rooflens.adapters.scrape.recognised import SPOKEN, Recognised, read_page
from rooflens.adapters.scrape.without_metrics import WITHOUT_METRICS, WithoutMetrics
from rooflens.live_records import NOT_READ_YET, Progress, State
from rooflens.log_records import LogRecord
from rooflens.protocols import Batch
from rooflens.records import RooflensError

# After failures the pause doubles up to this: a server that comes back is seen within a minute.
LONGEST_PAUSE_S = 60.0
SHORTEST_PERIOD_S = 0.05
FRONTEND = (
    "{} is a frontend's page: it tells of requests to all of its workers together; for steps name the page of each "
    "worker (DYN_SYSTEM_PORT)"
)
NOT_THERE = 404  # what SGLang answers where its metrics are off
# A fetch that hangs ends by itself; whoever closes the page does not wait for it.
CLOSING_S = 1.0


class MetricsPage:
    """The engines of one /metrics page.

    ``state`` is LIVE while the page answers with the engine's metrics and UNREACHABLE otherwise; ``problem`` is one
    line with the next step, None while all is well; ``failures`` counts the fetches that failed. ``name`` has no
    credentials. Ages are told by ``taken_monotonic_s``, when the last page came: ``last_read_unix_s`` jumps with the
    wall clock. Raises RooflensError for a url that cannot be fetched, or a token that cannot be sent.
    """

    def __init__(
        self,
        url: str,
        period_s: float = 5.0,
        model_config: Mapping[str, Any] | None = None,
        *,
        weight_dtype: str | None = None,
        quantization: str | None = None,
        kv_dtype: str | None = None,
        tensor_parallel: int = 1,
        engine_version: str | None = None,
        token: str | None = None,
        limits: Limits | None = None,
    ) -> None:
        self._address = address_of(url, token)
        self._period_s, self._limits = max(period_s, SHORTEST_PERIOD_S), limits or Limits()
        self._given = Given(model_config, weight_dtype, quantization, kv_dtype, tensor_parallel, engine_version)
        self._lives, self._asked, self._lines = Lives(), Asked(self._address), Lines()
        self._followers: dict[Key, Follower] = {}
        self._without = WithoutMetrics(self._address)
        self._iterations = IterationPage(self._address.name, self._given)
        self._gone: list[Batch] = []
        self._place, self._ended = self._address.name, 0  # where it is, and how many engines it tells of no more
        self._lock, self._stop = threading.Lock(), threading.Event()
        self._thread: threading.Thread | None = None
        self._engine: str | None = None
        self.name = self._address.name
        self.state = State.UNREACHABLE
        self.problem: str | None = NOT_READ_YET
        self.failures = 0
        self.last_read_unix_s: float | None = None
        self.taken_monotonic_s: float | None = None
        self.read_s: float | None = None

    def start(self) -> None:
        """Begin to fetch; a second call does nothing."""
        if self._thread is None and not self._stop.is_set():
            self._thread = threading.Thread(target=self._run, name=f"scrape {self.name}", daemon=True)
            self._thread.start()

    def read(self) -> list[Batch]:
        """What came since the last call, one batch for each engine on the page; never waits for the network."""
        with self._lock:
            found, self._gone = self._gone, []
            found += self._iterations.drain(self.state)
            for follower in self._followers.values():
                found += follower.drain()
        return [self._as_of_now(batch) for batch in found] if self.state is State.UNREACHABLE else found

    def _as_of_now(self, batch: Batch) -> Batch:
        """A batch of a page that does not answer now: what it last said of its progress no longer holds."""
        if batch.progress is None or batch.progress.state is not State.LIVE:
            return batch
        return replace(batch, progress=Progress(State.UNREACHABLE, asleep=batch.progress.asleep))

    def close(self) -> None:
        """Stop fetching; a fetch under way is left to its deadline."""
        self._stop.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(CLOSING_S)

    def _run(self) -> None:
        in_a_row = 0
        while not self._stop.is_set():
            began_s = time.monotonic()
            in_a_row = 0 if self.fetch_once() else in_a_row + 1
            if in_a_row:
                pause_s = min(self._period_s * 2.0 ** min(in_a_row, 16), max(LONGEST_PAUSE_S, self._period_s))
                pause_s *= 1 + random.uniform(-JITTER_RATIO, JITTER_RATIO)
                self._stop.wait(max(pause_s - (time.monotonic() - began_s), SHORTEST_PERIOD_S))
            else:  # a read that took longer than to the next beat waits for the one after it
                now_s = time.monotonic()
                self._stop.wait(next_beat_s(self._period_s, max(began_s + self._period_s / 2, now_s)) - now_s)

    def fetch_once(self) -> bool:
        """Fetch and take in the page now, in the calling thread; whether it answered. Never raises for its faults."""
        began_s = time.monotonic()
        try:
            page = self._fetched()
            if page is None:
                self._ask()
                return True
            # It was written at some moment since it was asked for: the middle is wrong by the half of that at most.
            late_s = (time.monotonic() - began_s) / 2
            self.take(page, time.time() - late_s, time.monotonic() - late_s, asking=True)
            self._ask()
        except RooflensError as error:
            self.failures += 1
            self.problem, self.state = str(error), State.UNREACHABLE
            return False
        except Exception as error:  # a page must not end the thread that would read the next one
            self.failures += 1
            self.problem = f"{self.name} could not be understood ({type(error).__name__}): please report it"
            self.state = State.UNREACHABLE
            return False
        self.read_s = time.monotonic() - began_s
        self.last_read_unix_s = time.time()
        return True

    def _fetched(self) -> Page | None:
        """The page; None where a server that keeps its metrics off was taken in as far as it tells of itself."""
        try:
            return fetch(self._address, self._limits)
        except StatusError as error:
            found = self._without.ask() if error.status == NOT_THERE else None
            if found is None:
                raise
        self._take_reading(found, None, found.unix_s, found.monotonic_s, asking=True)
        self.problem = f"{self.name} {WITHOUT_METRICS}"
        self.last_read_unix_s = time.time()
        return None

    def _ask(self) -> None:
        """Ask the server what it says of itself where that is due; until then its new runs are not told of."""
        sources: list[Follower | IterationPage] = [*self._followers.values(), self._iterations]
        runs = frozenset(run for source in sources if (run := source.run) is not None)
        engine, facts = self._engine, None
        try:
            if engine is not None and self._asked.due(engine, runs, time.monotonic()):
                facts = self._asked.ask(engine, runs)
        finally:
            only_model = len({model for model, _ in self._followers}) < 2
            with self._lock:
                for source in sources:
                    source.waits = False
                    if facts:
                        source.learn(facts, only_model)

    def take(self, page: Page, unix_s: float, monotonic_s: float, *, asking: bool = False) -> None:
        """Take in one page that was written at this moment; ``asking`` is whether new runs wait for _ask."""
        self._place = page.place or self._place
        records = iterations_on(page.text)
        if records is not None:
            self._take_iterations(records, unix_s, monotonic_s, asking)
            return
        found = read_page(page.text, unix_s, monotonic_s, self._lines)
        self._take_reading(found, page.clock_unix_s, unix_s, monotonic_s, asking=asking)

    def _take_reading(
        self, found: Recognised, clock: float | None, unix_s: float, monotonic_s: float, *, asking: bool
    ) -> None:
        """Take in what a page says; ``clock`` is that of the server, where it tells."""
        reading, self._engine = found.reading, found.engine
        clock_unix_s = unix_s if clock is None else clock
        life = self._lives.judge(reading.process_started_unix_s, clock_unix_s)
        with self._lock:
            self._iterations.end()
            for key, engine in reading.engines.items():
                follower = self._followers.get(key)
                if follower is None:
                    follower = self._followers[key] = Follower(self._place, self._given, self._ended)
                before = follower.run
                follower.take(engine, life, reading.process_started_unix_s)
                follower.waits = asking and follower.run != before
                follower.complain(reading.complaints)
            for key in [key for key in self._followers if key not in reading.engines]:
                self._gone += self._followers.pop(key).ended()
                self._ended += 1
        self.taken_monotonic_s = monotonic_s
        self.problem = self._nothing_said(reading)
        # Whatever else answers at this address is no source, however well it does.
        self.state = State.UNREACHABLE if self._engine is None else State.LIVE

    def _take_iterations(self, records: Sequence[LogRecord], unix_s: float, monotonic_s: float, asking: bool) -> None:
        """Take in the steps of TensorRT-LLM since the last page, which told of them once and for all."""
        with self._lock:
            for key in [*self._followers]:
                self._gone += self._followers.pop(key).ended()
            before = self._iterations.run
            self.problem = self._iterations.take(records, unix_s, monotonic_s, self._place)
            self._iterations.waits = asking and self._iterations.run != before
        self._engine, self.taken_monotonic_s, self.state = ENGINE, monotonic_s, State.LIVE

    def _nothing_said(self, reading: PageReading) -> str | None:
        if reading.engines:
            return FRONTEND.format(self.name) if self._engine == "dynamo" else None
        if self._engine is None:
            return (
                f"{self.name} answers, but not with the metrics of an engine that is known: is it the engine's own "
                "port, and are its metrics on? vLLM is to be started without --disable-log-stats, SGLang with "
                "--enable-metrics, llama.cpp with --metrics"
            )
        name = SPOKEN[self._engine]
        if reading.complaints:
            return f"{self.name} has {name}'s metrics, and none that can be read: {reading.complaints[0]}"
        return f"{self.name} names {name}'s metrics and has no value yet: send it a request"
