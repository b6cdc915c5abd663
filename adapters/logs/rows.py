"""Records of a log into engines: one for each rank that it tells of, with its facts and the rows of its steps."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from rooflens.adapters.logs.batches import DecodeLines
from rooflens.adapters.logs.clock import Clock, Moment
from rooflens.adapters.logs.facts import Facts
from rooflens.adapters.logs.intervals import Intervals
from rooflens.adapters.logs.iterations import Iterations
from rooflens.adapters.logs.requests import Requests
from rooflens.adapters.logs.standing import Standing
from rooflens.adapters.scrape.rows import Row, table_of
from rooflens.live_records import Progress, State
from rooflens.log_records import LogRecord, RecordKind
from rooflens.protocols import Batch
from rooflens.records import EngineInfo

MOST_ENGINES = 256
MOST_ROWS = 20_000  # that wait to be read, of one engine: a minute of quick iterations
TOO_MANY = f"the log tells of more than {MOST_ENGINES} engines: those beyond are left out"
TOGETHER = "lines sum up {:g} engines: their step times and contexts are not known"
SPREAD_COLUMNS = ("observed_s", "context_tokens", "context_blocks", "causal_pairs", "prefill_pairs", "kv_blocks_used")
RANKS = ("engine", "dp")  # the numbers that tell engines apart; the others number parts of one
PARTS = ("tp", "pp", "rank", "ep", "cp")
OVER = Progress(State.ENDED)
Key = tuple[str, str, int]  # engine, the pod or service that a runtime names, rank


class LogEngine:
    """One rank of one start of an engine."""

    def __init__(self, key: Key, start: int, facts: Facts) -> None:
        self.key, self.start, self.facts = key, start, facts
        self.engine, self.source, self.rank = key
        self.together = 1.0  # how many engines its lines sum up
        self.lost = self.numbered = 0
        self.part: tuple[int, ...] | None = None  # the lowest of its parts that writes
        self.standing = Standing()
        self.intervals, self.decodes = Intervals(), DecodeLines()
        self.iterations, self.requests = Iterations(self.engine), Requests()
        self.each_step = False
        self._rows: deque[Row] = deque()

    @property
    def worked(self) -> bool:
        """Whether any line told of its work."""
        return self.numbered > 0 or self.standing.seen

    @property
    def config(self) -> dict[str, str]:
        """The pool as labels of an info series would tell it."""
        pool = self.facts.pool
        if pool is None:
            return {}
        found = {"num_gpu_blocks": str(pool[0] + 1), "block_size": str(pool[1])}  # the one set aside is not told
        return {**found, "mamba_block_size": "1"} if self.facts.hybrid else found

    def keep(self, row: Row | None) -> None:
        """Put a row behind those that wait to be read; the oldest is lost where nobody reads them."""
        if row is None or row.columns.get("kind") is None:
            return
        self.numbered += 1
        columns, derived = {**row.columns, "sequence": self.numbered}, row.derived
        if self.together > 1:
            columns = {name: value for name, value in columns.items() if name not in SPREAD_COLUMNS}
            columns["resolution_steps"], derived = columns.get("resolution_steps", 1) * self.together, ()
        self._rows.append(Row(columns, derived))
        if len(self._rows) > MOST_ROWS:
            self.lost += round(self._rows.popleft().columns.get("resolution_steps", 1))

    def flush(self, before_s: float | None = None) -> None:
        """Tell the rows that waited for what may belong to them; only those older than ``before_s`` where given."""
        since_s = self.intervals.open_since_s
        if before_s is None or (since_s is not None and since_s < before_s):
            self.keep_interval(self.intervals.close(self.config, self.numbered + 1))
        since_s = self.iterations.open_since_s
        if before_s is None or (since_s is not None and since_s < before_s):
            self.keep(self.iterations.close())
        for row in self.requests.close(before_s):
            self.keep(row)

    def keep_interval(self, row: Row | None) -> None:
        """Put the row of an interval behind the others, unless each step is told of by itself."""
        if not self.each_step:
            self.keep(row)

    def rows(self) -> list[Row]:
        """The rows since the last call."""
        found, self._rows = list(self._rows), deque()
        return found

    def complaints(self) -> tuple[str, ...]:
        """What was wrong since the last call."""
        found = {**self.intervals.complaints, **self.decodes.complaints, **self.requests.complaints}
        for part in (self.intervals, self.decodes, self.requests):
            part.complaints.clear()
        return tuple(found)


class LogEngines:
    """The engines of one log. Give it every record in order; ``drain`` brings what is new."""

    def __init__(self, place: str, clock: Clock) -> None:
        """``place`` names the log where it matters which: the same engine in the same log is the same run."""
        self.clock = clock
        self.complaints: dict[str, None] = {}
        self._place = place
        self._common = Facts()
        self._engines: dict[Key, LogEngine] = {}
        self._starts = 0
        self._last: LogEngine | None = None
        self._over: list[Batch] = []

    @property
    def engines(self) -> Iterable[LogEngine]:
        """Those that the log has told of since its last start."""
        return self._engines.values()

    @property
    def facts(self) -> Facts:
        """What start-up lines told of all of them."""
        return self._common

    def take(self, record: LogRecord, arrival_s: float | None = None, now_unix_s: float | None = None) -> None:
        """Take one record in; ``arrival_s`` and ``now_unix_s`` are when it was read of a log that is followed."""
        if record.kind is RecordKind.SENSOR:
            return
        moment = self.clock.at(record.unix_s, arrival_s, now_unix_s)
        if record.kind is RecordKind.STARTUP:
            self._start(record)
            return
        engine = self._engine(record)
        if engine is not None:
            self._last = engine
            engine.standing.note(record, moment)
            self._line(engine, record, moment)

    def _start(self, record: LogRecord) -> None:
        """A fact; one that differs after steps were told of is that of another start."""
        if (complaint := record.words.get("complaint")) is not None:
            self.complaints[complaint] = None
        source = record.words.get("source", "")
        numbers = [record.ranks[name] for name in RANKS if name in record.ranks]
        its = [e for e in self._engines.values() if e.source == source and (not numbers or e.rank == numbers[0])]
        if any(engine.worked and engine.facts.anew(record) for engine in its):
            self._end(its)
            its = []
            if not numbers:
                self._common = Facts()
        if not numbers:
            self._common.take(record)
        elif not its and (engine := self._engine(record)) is not None:
            its = [engine]
        for engine in its:
            engine.facts.take(record)

    def _end(self, engines: Iterable[LogEngine]) -> None:
        """Another start took the place of these."""
        for engine in engines:
            engine.flush()
            self._over.append(self._batch(engine, OVER))
            del self._engines[engine.key]
            self._last = None if self._last is engine else self._last
        self._starts += 1

    def _engine(self, record: LogRecord) -> LogEngine | None:
        """The engine that a record is of; None for what is not counted: another part's line, a sum of several."""
        numbered = [record.ranks[name] for name in RANKS if name in record.ranks]
        if not numbered and record.kind in (RecordKind.SPECULATION, RecordKind.PREEMPTION) and self._last is not None:
            return self._last
        together = record.values.get("engines", 1.0)
        key = (record.engine, record.words.get("source", ""), numbered[0] if numbered else 0)
        engine: LogEngine | None = self._engines.get(key)
        if together > 1 and any(other.together == 1 for other in self._engines.values()):
            return None  # they are told of one by one as well
        if engine is None:
            if len(self._engines) >= MOST_ENGINES:
                self.complaints[TOO_MANY] = None
                return None
            engine = self._engines[key] = LogEngine(key, self._starts, Facts(self._common))
        if together > 1:
            engine.together = together
            self.complaints[TOGETHER.format(together)] = None
        part = tuple(record.ranks.get(name, 0) for name in PARTS)
        if engine.part is None or part < engine.part:
            engine.part = part
        return engine if part == engine.part or record.kind is RecordKind.STARTUP else None

    def _line(self, engine: LogEngine, record: LogRecord, moment: Moment | None) -> None:
        values, kind = record.values, record.kind
        if kind is RecordKind.ITERATION:
            engine.each_step = True
            engine.facts.measured(values)
            engine.keep(
                engine.iterations.take(values, record.words, moment, None if engine.facts.hybrid else engine.facts.pool)
            )
        elif kind is RecordKind.INTERVAL and "generated_tokens_per_s" not in values:
            engine.intervals.add(values)  # of the same interval, on a line of its own
        elif kind is RecordKind.INTERVAL:
            engine.keep_interval(engine.intervals.take(values, moment, engine.config, engine.numbered + 1))
        elif kind is RecordKind.DECODE:
            engine.keep(engine.decodes.decode(values, moment, engine.facts, engine.numbered + 1))
        elif kind is RecordKind.PREFILL:
            engine.decodes.prefill(values)
        elif kind is RecordKind.SPECULATION:
            engine.intervals.add(values)
        elif kind is RecordKind.PREEMPTION:
            engine.decodes.preempt(values)
        elif kind is RecordKind.TIMING:
            for row in engine.requests.take(record, moment, engine.facts.get("slots")):
                engine.keep(row)

    def flush(self, before_s: float | None = None) -> None:
        """See LogEngine.flush."""
        for engine in self._engines.values():
            engine.flush(before_s)

    def forget(self) -> None:
        """Nothing that was taken so far is to be told: it was before anybody looked."""
        self._over = []
        for engine in self._engines.values():
            engine.rows()
            engine.complaints()
            engine.lost = 0

    def drain(self, state: State = State.LIVE, now_s: float | None = None) -> list[Batch]:
        """What came since the last call: a batch for each engine, those that another start ended a last time."""
        over, self._over = self._over, []
        return [*over, *(self._batch(engine, self._standing(engine, state, now_s)) for engine in self.engines)]

    def _standing(self, engine: LogEngine, state: State, now_s: float | None) -> Progress:
        pool = engine.facts.pool
        return engine.standing.progress(state, now_s, pool[0] if pool is not None else None)

    def _batch(self, engine: LogEngine, progress: Progress) -> Batch:
        rows = engine.rows()
        lost, engine.lost = engine.lost, 0
        said = (*engine.complaints(), *self.complaints)
        self.complaints = {}
        derived = rows[-1].derived if rows else ()
        info = self.info_of(engine)
        return Batch(
            info,
            table_of(rows),
            lost_steps=lost,
            derived=derived,
            complaints=said,
            progress=progress,
            known_until_monotonic_s=engine.standing.known_until_s,
        )

    def info_of(self, engine: LogEngine) -> EngineInfo:
        """The facts of one engine."""
        of_it = (
            each for each in self._engines.values() if each.engine == engine.engine and each.source == engine.source
        )
        ranks = max(sum(1 for _ in of_it), int(engine.together))
        place = f"{self._place}|{engine.source}"
        return engine.facts.info(place, engine.engine, engine.rank, engine.start, ranks)
