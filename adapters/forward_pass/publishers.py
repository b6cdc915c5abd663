"""The engines behind one address: one for each worker and data-parallel rank, with what is missing of its numbers."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from rooflens.adapters.forward_pass.layout import ForwardPass
from rooflens.adapters.forward_pass.rows import columns_of, derived_of
from rooflens.adapters.forward_pass.table import Timed, table_of
from rooflens.live_records import Load, Progress, State
from rooflens.protocols import Batch
from rooflens.records import EngineInfo

MOST_ENGINES = 256  # of one address: worker ids are anybody's words
MOST_ROWS = 65_536  # kept between two reads, of all engines
MOST_SAID = 16  # different complaints between two reads
LARGEST_GAP = 1 << 32  # more cannot have been lost: another counter
FLAPS, FLAP_S = 3, 10.0  # so many restarts in so short a time are two publishers
ENGINES = {"model_step_cuda": "vllm", "execute_model_cuda": "vllm"}  # by the scope, which only vLLM tells
SHARED = "worker id {!r}, rank {}, is used by two publishers at once: give each engine an id of its own"
TOO_MANY = "more than {} engines at one address: the first are read"
LEFT_OUT = "not known here and left out: {}"


@dataclass(slots=True)
class _Engine:
    worker: str
    rank: int
    name: str = "forward-pass"
    last: int | None = None  # the publisher's last number
    steps: int = 0
    lost: int = 0
    until_s: float = 0.0  # the output of the last step that was told
    rested_from_s: float | None = None  # since when it has said that it is idle
    waiting: int | None = None
    heard_s: float = 0.0
    rows: list[tuple[Timed, ForwardPass]] = field(default_factory=list)
    ended: list[Batch] = field(default_factory=list)
    restarts: deque[float] = field(default_factory=lambda: deque(maxlen=FLAPS))
    said: Counter[str] = field(default_factory=Counter)
    is_new: bool = True


class Publishers:
    """Takes messages as they come; ``place`` names the address, without a path."""

    def __init__(self, place: str) -> None:
        self._place = place
        self._engines: dict[tuple[str, int], _Engine] = {}
        self._rows = 0
        self.problem: str | None = None

    def take(self, number: int | None, message: ForwardPass, monotonic_s: float, unix_s: float) -> None:
        """One message, at the moment when it came."""
        key = (message.worker, message.dp_rank)
        engine = self._engines.get(key)
        if engine is None:
            if len(self._engines) >= MOST_ENGINES:
                self.problem = TOO_MANY.format(MOST_ENGINES)
                return
            engine = self._engines[key] = _Engine(plain(message.worker), message.dp_rank)
        self._follow(engine, number, monotonic_s)
        engine.heard_s = monotonic_s
        if message.timing_scope in ENGINES:
            engine.name = ENGINES[message.timing_scope]
        if message.unknown and len(engine.said) < MOST_SAID:
            engine.said[LEFT_OUT.format(", ".join(message.unknown))] += 1
        if message.idle:
            if engine.rested_from_s is None:
                engine.rested_from_s = monotonic_s
            return
        rested_s, engine.rested_from_s = engine.rested_from_s, None
        # A pass that began before the engine said that it had nothing to do: the rest is in its time.
        observed = rested_s is None or monotonic_s - message.wall_time_s >= rested_s
        engine.waiting = None if message.queued is None else _waiting(message)
        if self._rows >= MOST_ROWS:
            engine.lost += 1
            return
        self._rows += 1
        engine.steps += 1
        timed = Timed(engine.steps, monotonic_s, unix_s, columns_of(message, observed))
        engine.rows.append((timed, message))

    def _follow(self, engine: _Engine, number: int | None, now_s: float) -> None:
        """Count what is missing between the last number and this one, and see a publisher that began again."""
        last, engine.last = engine.last, number
        if number is None or last is None:
            return
        if last < number <= last + LARGEST_GAP:
            engine.lost += number - last - 1
            return
        engine.restarts.append(now_s)
        if len(engine.restarts) == FLAPS and now_s - engine.restarts[0] < FLAP_S:
            engine.said[SHARED.format(engine.worker, engine.rank)] += 1
            return
        if not engine.is_new or engine.rows:
            engine.ended.append(self._batch(engine, State.DIED, now_s))
        engine.steps, engine.until_s, engine.waiting, engine.rested_from_s = 0, 0.0, None, None

    def read(self, state: State, now_s: float) -> Iterator[Batch]:
        """What came since the last call: of each engine one batch, after the last one of a life that is over."""
        for engine in self._engines.values():
            ended, engine.ended = engine.ended, []
            yield from ended
            if engine.is_new and not engine.rows and not engine.heard_s:
                continue
            yield self._batch(engine, state, now_s)
        self._rows = 0

    def _batch(self, engine: _Engine, state: State, now_s: float) -> Batch:
        rows, engine.rows = engine.rows, []
        said, engine.said = engine.said, Counter()
        lost, engine.lost = engine.lost, 0
        table = table_of([timed for timed, _ in rows], engine.until_s)
        if rows:
            engine.until_s = float(table["output_monotonic_s"][-1])
        engine.is_new = state in (State.ENDED, State.DIED)
        words = [line if times == 1 else f"{line} ({times:,} times)" for line, times in said.items()]
        return Batch(
            info=EngineInfo(
                instance=f"fpm-{self._place}-{engine.worker or 'worker'}-{engine.rank}",
                engine=engine.name,
                rank=engine.rank,
            ),
            steps=table,
            lost_steps=lost,
            derived=derived_of([message for _, message in rows]),
            complaints=tuple(words),
            progress=self._progress(engine, state, now_s),
        )

    def _progress(self, engine: _Engine, state: State, now_s: float) -> Progress:
        rested_s = engine.rested_from_s
        idle_s = 0.0 if rested_s is None else max(0.0, now_s - rested_s)
        waiting = 0.0 if rested_s is not None else engine.waiting
        load = Load(engine.heard_s, running=0.0 if rested_s is not None else None, waiting=waiting)
        return Progress(state, idle_s=idle_s, load=load)


def _waiting(message: ForwardPass) -> int:
    return message.queued.prefill_requests + message.queued.decode_requests if message.queued else 0


def plain(worker: str) -> str:
    """A worker's id as a name: what it may be made of, and no longer than a name should be."""
    kept = "".join(char if char.isascii() and (char.isalnum() or char in "._-") else "_" for char in worker)
    return kept[-48:]
