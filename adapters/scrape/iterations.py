"""TensorRT-LLM's page at /metrics: the JSON of each step since somebody asked last, oldest first.

Read in trtllm-serve 0.18 to 1.3 (tensorrt_llm/serve/openai_server.py: get_iteration_stats). Each answer empties the
server's queue, which holds the last 1000 steps: what lies between two answers is told once, to whoever asks first, and
is lost where the queue ran over or another reader came before. A step is told by its number; a lower one is a restart.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from rooflens.adapters.logs.clock import STAMP_S, Clock, Moment
from rooflens.adapters.logs.rows import LogEngines
from rooflens.adapters.logs.trtllm_stats import stats_record
from rooflens.adapters.scrape.asked import with_facts
from rooflens.adapters.scrape.follow import Given
from rooflens.live_records import State
from rooflens.log_records import LogRecord
from rooflens.protocols import Batch

MOST_STEPS = 4096  # on one page; the server keeps 1000 by default
MOST_LOST = 1 << 32
HELD_S = 5.0  # the last step waits so long for the next one, which may tell its time on the device
SIGNS = ("iterLatencyMS", "inflightBatchingStats", "kvCacheStats", "numActiveRequests")
NOTHING_YET = (
    "answers with an empty list, as TensorRT-LLM does before its first step: send it a request; where it stays so, "
    "start it with enable_iter_perf_stats: true"
)
SHARED = "{count:,} steps are missing between two answers: another reader takes them, or the period is too long"


def iterations_on(text: str) -> list[LogRecord] | None:
    """The steps on a page; None for a page that is no JSON of steps. An empty list is one without any."""
    if text.lstrip()[:1] not in ("[", "{"):
        return None
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return None
    each = data if isinstance(data, list) else [data]
    if any(not isinstance(one, Mapping) or not any(sign in one for sign in SIGNS) for one in each):
        return None
    return [_named(stats_record(one)) for one in each[-MOST_STEPS:]]


def _named(record: LogRecord) -> LogRecord:
    """With requests as the rows call them: those that the engine took in, and those that wait to be."""
    values = dict(record.values)
    for name, told in (("running", "active_requests"), ("waiting", "queued_requests")):
        if told in values:
            values.setdefault(name, values[told])
    return replace(record, values=values)


class Drained(Clock):
    """Maps stamps that come in one answer: the newest of them is the least late, and its zone is not told."""

    def __init__(self) -> None:
        super().__init__()
        self._newest_s = 0.0

    def arrived(self, records: Sequence[LogRecord], monotonic_s: float) -> None:
        """An answer came at this moment."""
        stamps = [record.unix_s for record in records if record.unix_s is not None]
        if stamps:
            newest_s = max(stamps)
            late_s = monotonic_s - newest_s
            went_back = newest_s < self._newest_s
            self._offset_s = late_s if self._offset_s is None or went_back else min(self._offset_s, late_s)
            self._newest_s = newest_s

    def at(self, unix_s: float | None, arrival_s: float | None, now_unix_s: float | None) -> Moment | None:
        """When the step was made, on both clocks of this host."""
        if arrival_s is None or now_unix_s is None:
            return None
        monotonic_s = arrival_s if unix_s is None else min(unix_s + (self._offset_s or 0.0), arrival_s)
        return Moment(monotonic_s, now_unix_s - (arrival_s - monotonic_s), STAMP_S if unix_s is None else 0.0)


class IterationPage:
    """The engine, or its ranks, of one page that tells of each step; as a Follower, but with rows of single steps."""

    def __init__(self, name: str, given: Given) -> None:
        self._name, self._given = name, given
        self._engines: LogEngines | None = None
        self._clock = Drained()
        self._newest: dict[int, tuple[float, float]] = {}  # by rank, number and stamp of its last step
        self._facts: Mapping[str, Any] = {}
        self._over: list[Batch] = []
        self._runs = 0
        self.run: str | None = None
        self.waits = False  # to be told only once its server was asked

    def learn(self, facts: Mapping[str, Any], _: bool) -> None:
        """What the server says of itself; it holds for the present run."""
        self.waits, self._facts = False, facts

    def take(
        self, records: Sequence[LogRecord], unix_s: float, monotonic_s: float, place: str | None = None
    ) -> str | None:
        """The steps of one answer, which came at this moment from this ``place``; what hinders, in one line."""
        new = sorted((r for r in records if self._is_new(r)), key=lambda record: record.values.get("iteration", 0.0))
        if any(self._restarted(record) for record in new):
            self.end()
        if self._engines is None and new:
            self._runs += 1
            self.run = f"{place or self._name}|{self._runs}"
            self._engines, self._clock = LogEngines(self.run, clock := Drained()), clock
        self._clock.arrived(new, monotonic_s)
        engines = self._engines
        if engines is None:
            return f"{self._name} {NOTHING_YET}"
        lost = {rank: self._gap(rank, [r for r in new if _rank(r) == rank]) for rank in {_rank(r) for r in new}}
        for record in new:
            engines.take(record, monotonic_s, unix_s)
        for engine in engines.engines:
            engine.lost += lost.get(engine.rank, 0)
        if sum(lost.values()):
            engines.complaints[SHARED.format(count=sum(lost.values()))] = None
        engines.flush(monotonic_s - HELD_S)
        return None

    def drain(self, state: State) -> list[Batch]:
        """What came since the last call: a batch for each rank, those of a run that is over a last time."""
        over, self._over = self._over, []
        if self._engines is None or self.waits:
            return over
        return [*over, *map(self._told, self._engines.drain(state))]

    def end(self) -> None:
        """The run is over."""
        if self._engines is not None:
            self._engines.flush()
            self._over += map(self._told, self._engines.drain(State.ENDED))
        self._engines, self._newest, self._facts, self.run = None, {}, {}, None

    def _told(self, batch: Batch) -> Batch:
        info, given = batch.info, self._given
        if info is None:
            return batch
        info = replace(
            info,
            model_config=given.model_config,
            weight_dtype=given.weight_dtype,
            quantization=given.quantization,
            kv_dtype=given.kv_dtype,
            tensor_parallel=given.tensor_parallel,
            engine_version=given.engine_version,
            instance=info.instance.replace("log-", "metrics-"),
        )
        return replace(batch, info=with_facts(info, self._facts, only_model=True))

    def _is_new(self, record: LogRecord) -> bool:
        """Whether it was not told before: a server that keeps its steps tells them again, with their old stamps."""
        number, stamp_s = self._newest.get(_rank(record), (-1.0, 0.0))
        own = record.values.get("iteration")
        return own is not None and (own > number or (record.unix_s or 0.0) > stamp_s)

    def _restarted(self, record: LogRecord) -> bool:
        return record.values["iteration"] <= self._newest.get(_rank(record), (-1.0, 0.0))[0]

    def _gap(self, rank: int, records: Sequence[LogRecord]) -> int:
        """How many steps between the last ones and these, and among these, were not told."""
        last = self._newest.get(rank, (None, 0.0))[0]
        numbers = [record.values["iteration"] for record in records]
        stamps = [record.unix_s for record in records if record.unix_s is not None]
        self._newest[rank] = (numbers[-1], max(stamps, default=0.0))
        first = numbers[0] - 1 if last is None else last
        missing = numbers[-1] - first - len({number for number in numbers if number > first})
        return int(min(max(missing, 0.0), MOST_LOST))


def _rank(record: LogRecord) -> int:
    return record.ranks.get("dp", 0)
