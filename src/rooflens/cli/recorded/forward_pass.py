"""Dynamo's traces of forward passes (dynamo.fpm.trace.v1): the phases of each engine, beside the floor."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rooflens.adapters.forward_pass.trace import FAMILY, SCHEMA, Told, read_trace
from rooflens.analyzer.figures import Summary
from rooflens.analyzer.roofline import analyse_engine
from rooflens.analyzer.summary import summarise
from rooflens.cli.calibrations import Calibrations
from rooflens.cli.named import config_named, hardware_named
from rooflens.cli.output import one_line
from rooflens.cli.recorded import Asked
from rooflens.cli.report import phase_table, time_text
from rooflens.cli.units import seconds_text
from rooflens.collector.tables import concatenated
from rooflens.pipeline.engine_roof import NO_HARDWARE
from rooflens.protocols import Batch
from rooflens.records import EngineInfo, RooflensError, StepTable

FORMAT = SCHEMA
MOST_SHOWN = 16  # engines of a file as text; --json has all
NO_MODEL = "the trace does not name the model: give --model NAME or its config.json"
NOT_TOLD = (
    "tokens    a message has no drafts and no lengths: tokens, pairs and so the floor are the fewest that fit its sums"
)
TIMES = "times     as the engine measures them: on the device (SGLang), or from output to output (Dynamo's vLLM)"


@dataclass(frozen=True, slots=True)
class _Engine:
    info: EngineInfo
    steps: StepTable
    lost_steps: int
    complaints: tuple[str, ...]
    summary: Summary
    problem: str | None


def is_mine(head: str) -> bool:
    """Whether the first lines name the schema, of this version or another."""
    return any(f'"{FAMILY}v' in line for line in head.splitlines()[:8])


def report(path: Path, asked: Asked) -> tuple[dict[str, Any], str]:
    """The passes of every worker and rank; RooflensError in one line where none can be read."""
    told = Told()
    engines = [_engine(group, asked, told) for group in by_engine(path, told).values()]
    return _as_json(path, told, engines), _text(path, told, engines)


def by_engine(path: Path, told: Told) -> dict[str, list[Batch]]:
    """The passes of each engine, which ``told`` counts; RooflensError in one line where none can be read."""
    try:
        batches = list(read_trace(path, told))
    except OSError as error:
        raise RooflensError(f"{path}: {(error.strerror or 'cannot be read').lower()}") from None
    if not told.passes:
        why = f": {told.wrong.most_common(1)[0][0]}" if told.wrong else ""
        raise RooflensError(f"{path}: no forward pass can be read in {told.lines:,} lines{why}; known is {SCHEMA}")
    groups: dict[str, list[Batch]] = {}
    for batch in batches:
        if batch.info is not None:
            groups.setdefault(batch.info.instance, []).append(batch)
    return groups


def _engine(batches: list[Batch], asked: Asked, told: Told) -> _Engine:
    assert batches[0].info is not None
    config = config_named(asked.model)
    info = replace(batches[0].info, model_config=dict(config) if config else None)
    steps = concatenated([batch.steps for batch in batches])
    hardware = hardware_named(asked.hardware)
    analysis, problem = None, NO_HARDWARE if hardware is None else NO_MODEL if config is None else None
    if hardware is not None and config is not None and len(steps):
        try:
            analysis = analyse_engine(steps, info, hardware, Calibrations(asked.calibration).of_device(hardware, ()))
        except RooflensError as error:
            problem = str(error)
    said = dict.fromkeys(line for batch in batches for line in batch.complaints)
    lost = 0 if told.sampled else sum(batch.lost_steps for batch in batches)
    return _Engine(info, steps, lost, tuple(said), summarise(steps, (), analysis, None, False), problem)


def _text(path: Path, told: Told, engines: list[_Engine]) -> str:
    shown = [engine for engine in engines if len(engine.steps)]
    lines = [f"trace     {path}; {SCHEMA}, {' and '.join(sorted(told.modes))}", _recorded(told)]
    for engine in shown[:MOST_SHOWN]:
        lost = f"; {engine.lost_steps:,} lost" if engine.lost_steps else ""
        lines += ["", f"engine    {engine.info.instance}: {len(engine.steps):,} passes{lost}"]
        lines += phase_table(engine.summary)
        lines += [f"warning   {line}" for line in engine.complaints]
        if engine.summary.measurement_invalid:
            lines.append(
                "measurement_invalid: passes were faster than the floor allows: model, hardware or times are wrong"
            )
    if len(shown) > MOST_SHOWN:
        lines += ["", f"          and {len(shown) - MOST_SHOWN:,} more engines, which --json has"]
    lines += ["", NOT_TOLD, TIMES]
    problems = dict.fromkeys(engine.problem for engine in engines if engine.problem)
    lines += [f"floor     none: {problem}" for problem in problems]
    return "\n".join(map(one_line, [*lines, *_warnings(told)]))


def _recorded(told: Told) -> str:
    span_s = (told.last_unix_s or 0.0) - (told.first_unix_s or 0.0)
    sampled = "; sampled, so passes between them are not in it" if told.sampled else ""
    return (
        f"recorded  {told.passes:,} passes and {told.heartbeats:,} idle messages in {seconds_text(span_s)}"
        f" from {time_text(told.first_unix_s or 0.0)}{sampled}"
    )


def _warnings(told: Told) -> list[str]:
    lines = [f"warning   {times:,} lines were not read: {why}" for why, times in told.wrong.most_common()]
    if told.cut_off:
        lines.append("warning   the file is cut off or damaged: what stood before that was read")
    if told.more_than_kept:
        lines.append(f"warning   only the first {told.passes:,} passes were read")
    return lines


def _as_json(path: Path, told: Told, engines: list[_Engine]) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "file": str(path),
        "lines": told.lines,
        "passes": told.passes,
        "heartbeats": told.heartbeats,
        "wrong": dict(told.wrong),
        "modes": dict(told.modes),
        "sampled": told.sampled,
        "cut_off": told.cut_off,
        "more_than_kept": told.more_than_kept,
        "first_unix_s": told.first_unix_s,
        "last_unix_s": told.last_unix_s,
        "engines": [
            {
                "engine": engine.info.to_json(),
                "lost_steps": engine.lost_steps,
                "complaints": list(engine.complaints),
                **asdict(engine.summary),
                "measurement_invalid": engine.summary.measurement_invalid,
                "floor_problem": engine.problem,
            }
            for engine in engines
        ],
    }
