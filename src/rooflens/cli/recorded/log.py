"""Logs of engines: what they say, and the steps or intervals in them beside the floor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from rooflens.adapters.logs.files import LogFiles
from rooflens.adapters.logs.lines import LineReader
from rooflens.analyzer.figures import Summary
from rooflens.analyzer.nearest_model import model_unknown
from rooflens.analyzer.roofline import analyse_engine
from rooflens.analyzer.summary import summarise
from rooflens.analyzer.untold import UntoldColumn, untold
from rooflens.analyzer.window_figures import window_figures
from rooflens.calibration_records import Calibration
from rooflens.cli.bar import Bar
from rooflens.cli.calibrations import Calibrations
from rooflens.cli.named import config_named, hardware_named, is_this_cpu
from rooflens.cli.recorded import Asked
from rooflens.cli.recorded.log_text import text_of
from rooflens.cli.recorded.said import Said
from rooflens.live_records import SourceKind, Window, WindowFigures
from rooflens.model_records import HardwareSpec, StepAnalysis
from rooflens.pipeline.engine_roof import NO_HARDWARE
from rooflens.pipeline.pages import with_model
from rooflens.records import COLUMN_KINDS, EngineInfo, RooflensError, StepTable

FORMAT = "log"
NO_MODEL = "the log does not name the model: give --model NAME or its config.json"
NO_STEPS = "the log tells of no step with its time"
NOTHING = (
    "no line of it can be read: rings, logs of vLLM, SGLang, TensorRT-LLM and llama.cpp, saved metrics pages, "
    "dynamo.fpm.trace.v1, results of benchmarks and texts of nvidia-smi can"
)
PRINTABLE_RATIO = 0.9
NEEDED = ("query_tokens", "generated_tokens", "requests", "observed_s", "submit_monotonic_s", "output_monotonic_s")


@dataclass(frozen=True, slots=True)
class Laid:
    """One engine of a log: ``summary`` where each row is a step, else ``figures`` of its intervals."""

    info: EngineInfo
    rows: int
    steps: StepTable
    complaints: Mapping[str, int]
    summary: Summary | None = None
    figures: WindowFigures | None = None
    analysis: StepAnalysis | None = None
    problem: str | None = None


def is_mine(head: str) -> bool:
    """Whether it is text at all: lines may come that are known, and no other format took it."""
    begin = head.replace("\0", "")[: 1 << 16]
    if head and not begin:
        return True  # a log that was truncated under its writer begins with a hole
    printable = sum(char.isprintable() or char in "\t\r\n\x1b" for char in begin) - begin.count("\ufffd")
    return bool(begin) and printable > PRINTABLE_RATIO * len(begin)


def report(path: Path, asked: Asked) -> tuple[dict[str, Any], str]:
    """What a log says; RooflensError in one line where no line of it can be read."""
    paths = asked.parts or (path,)
    said, files = _read(paths, str(path))
    if not said.counts:
        why = next((f" ({problem})" for problem in files.problems), "")
        raise RooflensError(f"{path}: {NOTHING}{why}")
    hardware, roof = _roof(asked, said)
    engines = [_laid(engine.info, engine.rows, engine.steps(), engine.complaints, asked, hardware, roof)
               for engine in said.engines.values()]  # fmt: skip
    data = {
        "format": FORMAT,
        "log": str(path),
        "files": len(paths),
        "lines": files.lines,
        "problems": list(files.problems),
        **said.to_json(),
        "hardware": asdict(hardware) if hardware else None,
        "engines": [_json(engine) for engine in engines],
    }
    return data, text_of(path, paths, files, said, engines, hardware)


def _read(paths: tuple[Path, ...], place: str) -> tuple[Said, LogFiles]:
    said, reader, bar = Said(place), LineReader(), Bar(quiet=True)
    files = LogFiles(paths, lambda ratio: bar.tell(f"reading {place}", ratio))
    try:
        for line in files:
            if records := reader.take(line):
                said.take(records)
    finally:
        bar.end()
    said.take(reader.close())
    said.end()
    return said, files


def _roof(asked: Asked, said: Said) -> tuple[HardwareSpec | None, Calibration | None]:
    """The named hardware; this machine's CPU is measured for the first model that the log or the user names."""
    calibrations = Calibrations(asked.calibration)
    if is_this_cpu(asked.hardware):
        from rooflens.cli.this_cpu import read_bytes_of, roof_here

        infos = (_with_model(engine.info, asked) for engine in said.engines.values())
        return roof_here(calibrations, next((found for info in infos if (found := read_bytes_of(info))), None))
    named = hardware_named(asked.hardware)
    return named, calibrations.of_device(named, ())


def _with_model(info: EngineInfo, asked: Asked) -> EngineInfo:
    return with_model(info, config_named(asked.model)) or info


def _laid(
    info: EngineInfo,
    rows: int,
    steps: StepTable,
    complaints: Mapping[str, int],
    asked: Asked,
    hardware: HardwareSpec | None,
    calibration: Calibration | None,
) -> Laid:
    info = _with_model(info, asked)
    found = Laid(info, rows, steps, dict(complaints))
    if not len(steps):
        return replace(found, problem=NO_STEPS)
    steps = _whole(steps)
    analysis, problem = _beside(steps, info, hardware, calibration)
    found = replace(found, steps=steps, analysis=analysis, problem=problem)
    single = "resolution_steps" not in steps.columns or bool((steps["resolution_steps"] <= 1).all())
    if single:
        return replace(found, summary=summarise(steps, (), analysis, info.kv_blocks, False))
    return replace(found, figures=window_figures(_window(steps, info, analysis)))


def _beside(
    steps: StepTable, info: EngineInfo, hardware: HardwareSpec | None, calibration: Calibration | None
) -> tuple[StepAnalysis | None, str | None]:
    """The bounds of each row, and in one line why there are none where there are none."""
    if hardware is None or info.model_config is None:
        unknown = model_unknown((info.base_model_name, info.model_name)) or NO_MODEL
        return None, NO_HARDWARE if hardware is None else unknown
    if not bool(steps.where("context_tokens").any()):
        return None, untold("context_tokens", info.engine, SourceKind.LOG)
    try:
        return analyse_engine(steps, info, hardware, calibration), None
    except UntoldColumn as error:
        return None, untold(error.column, info.engine, SourceKind.LOG)
    except RooflensError as error:
        return None, str(error)


def _whole(steps: StepTable) -> StepTable:
    """The table with the columns that every table has; those that the log does not tell are known nowhere."""
    columns, known = dict(steps.columns), dict(steps.known)
    for name in NEEDED:
        if name not in columns:
            columns[name] = np.zeros(len(steps), np.int64 if COLUMN_KINDS[name] == "i" else np.float64)
            known[name] = np.zeros(len(steps), dtype=bool)
    return StepTable(columns, known)


def _window(steps: StepTable, info: EngineInfo, analysis: StepAnalysis | None) -> Window:
    start_s, end_s = float(steps["submit_monotonic_s"].min()), float(steps["output_monotonic_s"].max())
    unix_s = float(steps["unix_s"][-1]) if "unix_s" in steps.columns else 0.0
    return Window(info, SourceKind.LOG, unix_s - (end_s - start_s), unix_s, start_s, end_s, steps, analysis)


def _json(engine: Laid) -> dict[str, Any]:
    found: dict[str, Any] = {
        "engine": engine.info.to_json(),
        "rows": engine.rows,
        "rows_kept": len(engine.steps),
        "complaints": dict(engine.complaints),
        "floor_problem": engine.problem,
        "intervals": None if engine.figures is None else asdict(engine.figures),
        "steps": None if engine.summary is None else asdict(engine.summary),
    }
    if engine.summary is not None:
        found["measurement_invalid"] = engine.summary.measurement_invalid
    return found
