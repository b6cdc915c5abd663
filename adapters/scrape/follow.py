"""One engine followed from page to page: rows between readings, restarts, falls, stillness."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rooflens.adapters.scrape.asked import with_facts
from rooflens.adapters.scrape.change import Change
from rooflens.adapters.scrape.completions import Completions
from rooflens.adapters.scrape.lives import Life
from rooflens.adapters.scrape.pool import pool_of, positive
from rooflens.adapters.scrape.readings import NAMES_NONE, Reading
from rooflens.adapters.scrape.rows import Row, row_of, table_of
from rooflens.adapters.scrape.standing import has_requests, has_work, load_of, mean_step_s, steps_made
from rooflens.live_records import Progress, State
from rooflens.protocols import Batch
from rooflens.records import EngineInfo

# Readings further apart tell nothing of a window: the gauges at their ends may be of another load.
LONGEST_GAP_S = 60.0
# Rows wait here until they are read: an hour of one every five seconds.
MOST_ROWS = 720
# Where no start of a process is given: everything falls at a restart, and not again soon.
FALLS_APART = 10
# Of anything: an engine finds at most some ten million cached tokens a second, and computes fewer.
MOST_A_SECOND = 1e9
SEVERAL = (
    "several processes answer in turn at this address, each with counters of its own: nothing is computed from them; "
    "start one API server, or set PROMETHEUS_MULTIPROC_DIR for all of them"
)

WITHOUT_RESTART = (
    "without a restart: this interval is left out; several API servers without PROMETHEUS_MULTIPROC_DIR do this, or "
    "the engine's own accounting"
)
UNTOLD = (
    "and the page does not say when its process started: this interval is left out; the engine restarts every few "
    "seconds (look at its log), or several API servers answer in turn (set PROMETHEUS_MULTIPROC_DIR), or it is the "
    "engine's own accounting"
)


@dataclass(frozen=True, slots=True)
class Given:
    """What the caller knows of the engines of a page and the page does not say; fields are those of EngineInfo."""

    model_config: Mapping[str, Any] | None = None
    weight_dtype: str | None = None
    quantization: str | None = None
    kv_dtype: str | None = None
    tensor_parallel: int = 1
    engine_version: str | None = None


class Follower:
    """Turns the readings of one engine into batches."""

    def __init__(self, page: str, given: Given, before: int = 0) -> None:
        """``page`` is where it is told of, ``before`` how many engines that page told of that it tells of no more."""
        self._page, self._given, self._number = page, given, before
        self._base: Reading | None = None
        self._last: Reading | None = None
        self._rows: deque[Row] = deque()
        self._complaints: dict[str, None] = {}
        self._lost = self._sequence = 0
        self._past: list[Batch] = []
        self._since_fall = FALLS_APART
        self._moved_s = self._busy_s = self._worked_s = 0.0
        self._still_s: float | None = None
        self._idle_s: float | None = None
        self._begun: float | None = None
        self._info: EngineInfo | None = None
        self._completions = Completions()
        self.waits = False  # to be told only once its server was asked

    @property
    def run(self) -> str | None:
        """The present run, None before the first reading."""
        return None if self._info is None else self._info.instance

    def learn(self, facts: Mapping[str, Any], only_model: bool) -> None:
        """What the server says of itself; it holds for the present run."""
        self.waits = False
        if self._info is not None:
            self._info = with_facts(self._info, facts, only_model)

    def take(self, reading: Reading, life: Life, started_unix_s: float | None) -> None:
        """The next reading; ``life`` says whether the process is the one of the reading before."""
        before, self._last = self._last, reading
        self._since_fall += 1
        anew = (
            life is Life.SAME
            and None not in (self._begun, reading.get("begun"))
            and self._begun != reading.get("begun")
        )
        if before is None or life is Life.NEW or anew:
            self._begin(reading, started_unix_s)
            return
        self._note_stillness(before, reading)
        if life is Life.SEVERAL:
            self._complain(SEVERAL)
            self._base, self._completions = None, Completions()
            return
        fallen = [key for key in reading.counters if reading.get(key) is not None and _fell(before, reading, key)]
        leapt = [key for key in reading.counters if _leapt(before, reading, key)]
        if fallen or leapt:
            self._completions = Completions()
        self._completions.note(reading)
        if fallen:
            self._judge_fall(before, reading, fallen, started_unix_s)
        elif leapt:
            self._base = reading
            name = sorted(leapt)[0].removesuffix("_sum").removesuffix("_count")
            self._complain(f"{name} rose faster than any engine works: this interval is left out")
        elif self._base is None or reading.monotonic_s - before.monotonic_s > LONGEST_GAP_S:
            self._base = reading
        else:
            self._advance(self._base, reading, started_unix_s)

    def _begin(self, reading: Reading, started_unix_s: float | None) -> None:
        if self._info is not None:
            self._past.append(self._batch(_ENDED))
        self._base = reading
        self._begun = reading.get("begun")
        self._number += 1
        self._completions = Completions()
        self._completions.note(reading)
        self._still_s, self._moved_s, self._busy_s = None, reading.monotonic_s, reading.monotonic_s
        self._worked_s = reading.monotonic_s
        self._idle_s = None if reading.get("running") is None else 0.0
        self._info = self._info_of(reading, started_unix_s)

    def _judge_fall(self, before: Reading, reading: Reading, fallen: list[str], started_unix_s: float | None) -> None:
        """A counter fell: a restart where all of them did and nothing contradicts, else something is wrong."""
        moved = [key for key in reading.counters if before.get(key)]
        whole = all(_fell(before, reading, key) for key in moved if reading.get(key) is not None)
        may_restart = started_unix_s is None and whole and self._since_fall >= FALLS_APART
        self._since_fall = 0
        if may_restart:
            self._begin(reading, started_unix_s)
            return
        self._base = reading
        name = sorted(fallen)[0].removesuffix("_sum").removesuffix("_count")
        self._complain(
            f"{name} went down by {(before.get(sorted(fallen)[0]) or 0) - (reading.get(sorted(fallen)[0]) or 0):g} "
            + (UNTOLD if started_unix_s is None and self._begun is None else WITHOUT_RESTART)
        )

    def _advance(self, base: Reading, reading: Reading, started_unix_s: float | None) -> None:
        """A row where tokens came out; where something else was counted, or requests ran, the interval goes on."""
        if not reading.steps:
            self._base = reading
            return
        alone = reading.one_process or started_unix_s is not None or self._begun is not None
        change = Change(base, reading, exact_steps=alone)
        row = row_of(change, self._sequence + 1)
        if row is None:
            if not _counted(base, reading) and not base.get("running"):
                self._base = reading
            return
        self._base = reading
        self._sequence += 1
        self._rows.append(row)
        if len(self._rows) > MOST_ROWS:
            self._lost += round(self._rows.popleft().columns["resolution_steps"])

    def _note_stillness(self, before: Reading, reading: Reading) -> None:
        """How long requests have been there while neither a counter nor the KV pool moved, or none has been there."""
        now_s = reading.monotonic_s
        watched = (*reading.counters, "kv_used")
        if any(before.get(key) != reading.get(key) for key in watched):
            self._moved_s = now_s
        if not has_work(before):
            self._busy_s = now_s
        if has_requests(before) or has_requests(reading) or _counted(before, reading):
            self._worked_s = now_s
        if reading.get("running") is None:
            self._still_s = self._idle_s = None
            return
        stands = has_work(reading)
        self._still_s = None if stands is None else now_s - max(self._moved_s, self._busy_s) if stands else 0.0
        self._idle_s = now_s - self._worked_s
        if self._still_s and self._still_s <= reading.late_s:  # what runs by the gauges may have ended long ago
            self._still_s, self._idle_s = None, None

    def drain(self) -> list[Batch]:
        """What came since the last call: a batch for each run that a restart ended, then one of the present run."""
        past, self._past = self._past, []
        if self._last is None or self._info is None or self.waits:
            return past
        progress = Progress(
            State.LIVE,
            still_s=self._still_s,
            asleep=self._last.get("awake") == 0,
            idle_s=self._idle_s,
            load=load_of(self._last),
            steps_made=steps_made(self._last),
            mean_step_s=mean_step_s(self._last),
        )
        return [*past, self._batch(progress)]

    def ended(self) -> list[Batch]:
        """As drain, for an engine that its page no longer names."""
        past, self._past = self._past, []
        return [*past, self._batch(_ENDED)]

    def _batch(self, progress: Progress) -> Batch:
        rows, self._rows = list(self._rows), deque()
        complaints, self._complaints = tuple(self._complaints), {}
        lost, self._lost = self._lost, 0
        rate = self._completions.rate()
        derived = (*(rows[-1].derived if rows else ()), *((rate,) if rate is not None else ()))
        return Batch(
            self._info, table_of(rows), lost_steps=lost, derived=derived, complaints=complaints, progress=progress
        )

    def complain(self, complaints: tuple[str, ...]) -> None:
        """What was wrong with the whole page."""
        for complaint in complaints:
            self._complain(complaint)

    def _complain(self, complaint: str) -> None:
        self._complaints[complaint] = None

    def _info_of(self, reading: Reading, started_unix_s: float | None) -> EngineInfo:
        given, pool = self._given, pool_of(reading)
        run = (started_unix_s, self._begun) if started_unix_s or self._begun else (self._page, self._number)
        text = "|".join(map(str, (reading.engine_kind, reading.model_name, reading.engine, *run)))
        model_name = reading.model_name.rstrip("/").rpartition("/")[2]
        caching = {"True": True, "False": False}.get(reading.config.get("enable_prefix_caching", ""))
        return EngineInfo(
            instance="metrics-" + hashlib.sha256(text.encode()).hexdigest()[:12],
            engine=reading.engine_kind,
            engine_version=given.engine_version,
            rank=int(reading.engine) if reading.engine.isdecimal() and len(reading.engine) < 7 else 0,
            start_unix_s=started_unix_s,
            model_name=None if model_name.lower() in NAMES_NONE else model_name,
            model_config=given.model_config,
            weight_dtype=given.weight_dtype,
            quantization=given.quantization,
            kv_dtype=given.kv_dtype or reading.config.get("cache_dtype"),
            kv_blocks=pool.blocks if pool else None,
            block_tokens=pool.block_tokens if pool else positive(reading.config.get("block_size")),
            prefix_caching=caching,
            tensor_parallel=given.tensor_parallel,
            data_parallel=reading.sharing,
            role=reading.role,
        )


_ENDED = Progress(State.ENDED)


def _fell(before: Reading, after: Reading, key: str) -> bool:
    first, last = before.get(key), after.get(key)
    return first is not None and last is not None and last < first


def _leapt(before: Reading, after: Reading, key: str) -> bool:
    first, last = before.get(key), after.get(key)
    span_s = max(after.monotonic_s - before.monotonic_s, 1.0)  # a page read twice in a moment proves nothing
    return first is not None and last is not None and last - first > MOST_A_SECOND * span_s


def _counted(before: Reading, after: Reading) -> bool:
    """Whether anything was counted; the V0 engine counts a step of no token whenever it writes its log."""
    keys = (key for key in after.counters if key != "iteration_tokens_count")
    return any(before.get(key) != after.get(key) for key in keys if None not in (before.get(key), after.get(key)))
