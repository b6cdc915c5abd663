"""Recordings of steps that fit in memory: rings, traces of forward passes, and logs that tell of steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

import numpy as np

from rooflens.adapters.forward_pass.trace import Told
from rooflens.adapters.logs.files import LogFiles
from rooflens.adapters.logs.lines import LineReader
from rooflens.analyzer.roofline import deployment_of
from rooflens.cli.recorded import format_of
from rooflens.cli.recorded.forward_pass import by_engine
from rooflens.cli.recorded.places import recordings_at, together
from rooflens.cli.recorded.said import Said
from rooflens.collector.tables import concatenated
from rooflens.live_records import SourceKind
from rooflens.pipeline import read_ring
from rooflens.pipeline.labels import Labels
from rooflens.records import EngineInfo, RingEvent, RooflensError, StepTable
from rooflens.trace_records import RUN_DIGITS, TraceFacts

FORWARD_PASS, LOG = "forward_pass", "log"
NOT_STEPS = "{}: holds no steps: rings, traces, forward-pass traces and logs do"
Tell = Callable[[str, float], None]


@dataclass(frozen=True, slots=True)
class Held:
    """The steps of one engine, with its events at their Unix seconds; ``lost_steps`` were there and are not known."""

    place: str
    facts: TraceFacts
    steps: StepTable
    events: tuple[tuple[float, RingEvent], ...] = ()
    lost_steps: int = 0


def held_at(places: Sequence[str], problems: list[str], tell: Tell) -> Iterator[Held]:
    """The engines of every recording at ``places``, labelled so that no two are called the same.

    Of several recordings one that cannot be read becomes a line in ``problems``; RooflensError for the only one.
    """
    from rooflens.cli.recorded import Asked

    labels = Labels()
    found = together(recordings_at(places), Asked())
    for number, (path, asked) in enumerate(found):
        tell(f"reading {path.name}", number / len(found))
        try:
            yield from (_labelled(each, labels) for each in _read(path, asked.parts or (path,)))
        except RooflensError as error:
            if len(found) == 1:
                raise
            problems.append(str(error))


def _read(path: Path, parts: tuple[Path, ...]) -> Iterator[Held]:
    report = format_of(path)
    if report is None:
        return iter((_ring(path),))
    kind = report.__module__.rpartition(".")[2]
    if kind == FORWARD_PASS:
        return _passes(path)
    if kind == LOG:
        return _log(path, parts)
    raise RooflensError(NOT_STEPS.format(path))


def _ring(path: Path) -> Held:
    recording = read_ring(path)
    facts = _facts(recording.run, recording.info, recording.rank, SourceKind.RING)
    steps, events = recording.steps, recording.events
    stamped: tuple[tuple[float, RingEvent], ...] = ()
    if len(steps):
        moments = steps["output_monotonic_s"]
        for event in events:  # by the step that is nearest, since the wall clock may have been set between two
            nearest = int(np.abs(moments - event.monotonic_s).argmin())
            stamped += ((event.monotonic_s + float(steps["unix_s"][nearest] - moments[nearest]), event),)
    return Held(str(path), facts, steps, stamped, recording.lost_steps)


def _passes(path: Path) -> Iterator[Held]:
    told = Told()
    for instance, group in by_engine(path, told).items():
        info = next(batch.info for batch in group if batch.info is not None)
        steps = concatenated([batch.steps for batch in group])
        lost = 0 if told.sampled else sum(batch.lost_steps for batch in group)
        facts = _facts(_run(f"{path.name}\n{instance}\n{told.first_unix_s}"), info, info.rank, SourceKind.FEED)
        yield Held(str(path), facts, _numbered(steps), (), lost)


def _log(path: Path, parts: tuple[Path, ...]) -> Iterator[Held]:
    said, reader = Said(str(path)), LineReader()
    for line in LogFiles(parts, lambda ratio: None):
        if records := reader.take(line):
            said.take(records)
    said.take(reader.close())
    said.end()
    engines = [(engine, engine.steps()) for engine in said.engines.values() if engine.kept]
    if not engines:
        raise RooflensError(f"{path}: the log tells of no step")
    for engine, steps in engines:
        named = f"{path.name}\n{engine.info.instance}\n{said.first_unix_s}"
        facts = _facts(_run(named), engine.info, engine.info.rank, SourceKind.LOG)
        yield Held(str(path), facts, _numbered(steps), (), engine.rows - engine.kept)


def _run(named: str) -> str:
    return sha256(named.encode()).hexdigest()[:RUN_DIGITS]


def _facts(run: str, info: EngineInfo | None, rank: int, source: SourceKind) -> TraceFacts:
    try:
        devices = deployment_of(info).devices if info else 1
    except RooflensError:
        devices = 1
    host = (info.host if info else None) or "unknown"
    return TraceFacts(run, host, "unknown", str(rank), source, info, devices=devices)


def _labelled(held: Held, labels: Labels) -> Held:
    name, engine = labels.take(held.facts.run, held.facts.info, int(held.facts.engine))
    return replace(held, facts=replace(held.facts, model_name=name, engine=engine))


def _numbered(steps: StepTable) -> StepTable:
    """With sequences that rise, where the source has none."""
    if steps.has("sequence") and bool((np.diff(steps["sequence"]) > 0).all()):
        return steps
    known = {name: mask for name, mask in steps.known.items() if name != "sequence"}
    return StepTable({**steps.columns, "sequence": np.arange(1, len(steps) + 1, dtype=np.int64)}, known)
