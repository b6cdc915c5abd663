"""Files that Dynamo writes with DYN_FPM_TRACE: JSON lines, plain or gzip, one forward pass each.

The schema is ``dynamo.fpm.trace.v1``. A line is ``{"timestamp": ms since the writer began, "event": EVENT}``, where
EVENT has "schema", "source" with "namespace", "component" and "producer_id", "capture_mode" (sampled or full),
"observed_at_unix_ms" and "fpm", the message by its names; EVENT alone is read too. ``sampled`` keeps the newest pass
of every few seconds: a gap in its numbers is no loss. Sources: see the package.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, cast

from rooflens.adapters.forward_pass.layout import NotReadError, forward_pass
from rooflens.adapters.forward_pass.publishers import Publishers, plain
from rooflens.live_records import State
from rooflens.protocols import Batch

SCHEMA, FAMILY = "dynamo.fpm.trace.v1", "dynamo.fpm.trace."
LONGEST_LINE_BYTES = 1 << 20
BUNCH = 8192  # lines between two hand-overs
MOST_PASSES = 1_000_000  # kept of a file: some 150 bytes each
MOST_SOURCES = 64
GZIP = b"\x1f\x8b"
SAMPLED = "sampled"


@dataclass(slots=True)
class Told:
    """What a file said beside its passes; ``wrong`` counts lines that were not read, by the reason."""

    lines: int = 0
    passes: int = 0
    heartbeats: int = 0
    wrong: Counter[str] = field(default_factory=Counter)
    modes: Counter[str] = field(default_factory=Counter)
    cut_off: bool = False
    more_than_kept: bool = False
    first_unix_s: float | None = None
    last_unix_s: float | None = None

    @property
    def sampled(self) -> bool:
        """Whether some passes were left out on purpose."""
        return self.modes[SAMPLED] > 0


def read_trace(path: Path, told: Told) -> Iterator[Batch]:
    """The passes of a file in bunches, a batch for each worker and rank; fills ``told`` on the way.

    A line that cannot be read is counted, one that is too long is passed over, a packed file that was cut off ends
    where it was cut. OSError where the file cannot be opened.
    """
    sources: dict[str, Publishers] = {}
    with path.open("rb") as raw:
        packed = raw.read(2) == GZIP
        raw.seek(0)
        opened = cast(IO[bytes], gzip.GzipFile(fileobj=raw) if packed else raw)
        for line in _lines(opened, told):
            told.lines += 1
            try:
                _take(line, sources, told)
            except NotReadError as error:
                told.wrong[str(error) if len(told.wrong) < 16 else "otherwise"] += 1
            if told.lines % BUNCH == 0:
                yield from _read(sources)
            if told.passes >= MOST_PASSES:
                told.more_than_kept = True
                break
    yield from _read(sources)


def _read(sources: dict[str, Publishers]) -> Iterator[Batch]:
    for publishers in sources.values():
        yield from publishers.read(State.ENDED, 0.0)


def _lines(opened: IO[bytes], told: Told) -> Iterator[bytes]:
    """Lines without their end, none longer than it may be."""
    while True:
        try:
            line = opened.readline(LONGEST_LINE_BYTES)
            whole = line.endswith(b"\n")
            if not whole and len(line) == LONGEST_LINE_BYTES:
                told.wrong["a line that is too long"] += 1
                while line and not line.endswith(b"\n"):
                    line = opened.readline(LONGEST_LINE_BYTES)
                continue
        except (EOFError, zlib.error, gzip.BadGzipFile):
            told.cut_off = True
            return
        if not line:
            return
        if line.strip():
            yield line


def _take(line: bytes, sources: dict[str, Publishers], told: Told) -> None:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        raise NotReadError("no JSON" if line.endswith(b"\n") else "cut off") from None
    event = record.get("event", record) if isinstance(record, dict) else None
    if not isinstance(event, dict) or not isinstance(event.get("schema"), str):
        raise NotReadError("no record of a forward pass")
    if event["schema"] != SCHEMA:
        known = event["schema"].startswith(FAMILY)
        raise NotReadError(f"schema {plain(event['schema'])}" if known else "another schema")
    observed_ms = event.get("observed_at_unix_ms")
    if isinstance(observed_ms, bool) or not isinstance(observed_ms, int | float) or not 0 <= observed_ms < 1e15:
        raise NotReadError("no observed_at_unix_ms")
    message = forward_pass(event.get("fpm"))
    mode = event.get("capture_mode")
    told.modes[mode if mode in (SAMPLED, "full") else "another mode"] += 1
    unix_s = observed_ms / 1e3
    told.first_unix_s = unix_s if told.first_unix_s is None else min(told.first_unix_s, unix_s)
    told.last_unix_s = unix_s if told.last_unix_s is None else max(told.last_unix_s, unix_s)
    told.passes += not message.idle
    told.heartbeats += message.idle
    place = _place(event.get("source"))
    if place not in sources and len(sources) >= MOST_SOURCES:
        raise NotReadError(f"more than {MOST_SOURCES} sources")
    sources.setdefault(place, Publishers(place)).take(message.counter, message, unix_s, unix_s)


def _place(source: Any) -> str:
    given = source if isinstance(source, dict) else {}
    words = [plain(str(given[name])) for name in ("namespace", "component", "producer_id") if given.get(name)]
    return "/".join(words) or "trace"
