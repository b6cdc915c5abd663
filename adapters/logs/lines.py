"""Lines of any engine's log into records: the engine is recognised by what the line says.

Written for logs of many gigabytes: a line in which no mark of any table stands costs some microseconds. What stands
beyond LONGEST_LINE characters of a line is not read.
"""

from __future__ import annotations

import time
from operator import itemgetter

from rooflens.adapters.logs import llama_cpp, trtllm_stats
from rooflens.adapters.logs.capacity import Capacities
from rooflens.adapters.logs.marks import Mark, gates_of
from rooflens.adapters.logs.prefix import cleaned, engines_of, ranks_of, source_of, unwrapped
from rooflens.adapters.logs.read import Said, read_line
from rooflens.adapters.logs.table import ENGINES, Fact
from rooflens.adapters.logs.times import stamp
from rooflens.log_records import LogRecord, RecordKind

LONGEST_LINE = 1 << 16  # characters; the rest of a longer line is not read
# Lines about requests: they are many, tell nothing of the engine, and may hold what a user wrote.
OF_REQUESTS = ("HTTP/1.", "HTTP/2", "Received request ", "Added request ", "Finished request ", "prompt_token_ids")


class LineReader:
    """Reads one stream of lines; what spans several lines is kept until it is whole.

    ``engine`` ("vllm", "sglang", "tensorrt-llm", "llama.cpp") narrows it to one engine's lines; None recognises each.
    ``now_unix_s`` is the time no later than which a stamp without a year lies; None is the clock's.
    ValueError for an engine that has no table.
    """

    def __init__(self, engine: str | None = None, now_unix_s: float | None = None) -> None:
        engines = ENGINES if engine is None else (engine,)
        self._gates = gates_of(engines)
        self._stretches = tuple(gate.text for gate in self._gates)
        self._now_unix_s = now_unix_s
        self._timings = llama_cpp.Timings()
        self._capacities = Capacities()

    def take(self, line: str) -> tuple[LogRecord, ...]:
        """The records that this line completes, most often none; never raises for what a line holds."""
        if len(line) > LONGEST_LINE:
            line = line[:LONGEST_LINE]
        found: tuple[Mark, ...] = ()
        if any(map(line.__contains__, self._stretches)):
            held = [mark for gate in self._gates if gate[0] in line for mark in gate[1] if mark[0] in line]
            found = tuple(sorted(held, key=itemgetter(3)) if len(held) > 1 else held)
        if not found or any(sign in line for sign in OF_REQUESTS):
            return self._timings.flush() if self._timings.open else ()
        return self._read(cleaned(line), found)

    def close(self) -> tuple[LogRecord, ...]:
        """What was kept of lines that have not come: the end of the log."""
        return self._timings.flush()

    def _read(self, line: str, found: tuple[Mark, ...]) -> tuple[LogRecord, ...]:
        now = time.time() if self._now_unix_s is None else self._now_unix_s
        stats = any(mark.what == "stats" for mark in found)
        wrapped = unwrapped(line)
        unix_s = None
        if wrapped is not None:
            line, unix_s = cleaned(wrapped[0]), stamp(wrapped[1], now)
        if unix_s is None:
            unix_s = stamp(line, now)
        if stats:
            return trtllm_stats.stats_records(line, unix_s, now)
        if any(mark.what == "timing" for mark in found):
            records = list(self._timings.take(line, unix_s))
        else:
            records = list(self._timings.flush())
        read, first = _said(line, found)
        for (engine, kind), said in read.items():
            records.append(self._record(engine, kind, said, line[:first], unix_s))
        return tuple(records)

    def _record(self, engine: str, kind: RecordKind, said: Said, head: str, unix_s: float | None) -> LogRecord:
        ranks = {**ranks_of(head), **said.ranks}
        engines = engines_of(head)
        if engines is not None:
            said.values["engines"] = float(engines)
        source = source_of(head)
        if source is not None:
            said.words["source"] = source
        if kind is RecordKind.STARTUP:
            self._capacities.check(engine, ranks, said.values, said.words)
        return LogRecord(engine, kind, said.values, said.words, ranks, unix_s, tuple(said.unknown))


def _said(line: str, found: tuple[Mark, ...]) -> tuple[dict[tuple[str, RecordKind], Said], int]:
    """What a line says by engine and kind, and where its own words begin."""
    read: dict[tuple[str, RecordKind], Said] = {}
    first = len(line)
    done: set[int] = set()
    for mark in found:
        what = mark.what
        if isinstance(what, str) or id(what) in done:
            continue
        done.add(id(what))
        at = line.find(mark.text)
        said: Said | None = None
        if isinstance(what, Fact):
            sentence = what.template.read(line)
            said = None if sentence is None else Said(sentence[0], sentence[1], [], {})
        elif at >= 0:
            begin = line.rfind(what.begin, 0, at) if what.begin else at + len(mark.text) if what.after else at
            said = read_line(what, line[begin:]) if begin >= 0 else None
            at = min(at, begin)
        if said is None or at < 0:
            continue
        first = min(first, at)
        held = read.setdefault((mark.engine, what.kind), said)
        if held is not said:
            held.values.update({name: value for name, value in said.values.items() if name not in held.values})
            held.words.update({name: value for name, value in said.words.items() if name not in held.words})
    return read, first
