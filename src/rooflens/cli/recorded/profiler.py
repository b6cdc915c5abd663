"""Profiles with step boundaries: Kineto JSON of torch.profiler, and the SQLite of nsys."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rooflens.cli.bar import Bar
from rooflens.cli.recorded import Asked
from rooflens.records import EngineInfo, RooflensError

if TYPE_CHECKING:
    from rooflens.adapters.profiler.capture import Capture
    from rooflens.adapters.profiler.steps import Track
    from rooflens.analyzer.figures import Summary
    from rooflens.model_records import HardwareSpec
    from rooflens.records import StepTable

SQLITE = "SQLite format 3\0"
DEVICE_NAME = re.compile(r"[A-Za-z0-9 ()+-]{1,96}")  # as a driver gives it: no path
MOST_LISTED = 10_000  # steps of a track in --json
NO_STEPS = (
    "no range of a step is in this profile: record it with vLLM's --profiler-config.profiler torch, SGLang's "
    "/start_profile, TensorRT-LLM's NVTX ranges (TLLM_LLMAPI_ENABLE_NVTX=1) or torch.profiler's step() "
    "(docs/profiles.md)"
)
NO_CONTEXTS = "; vLLM tells them with --profiler-config.detailed_trace_annotation true"
NO_MODEL = "a profile does not name the model: give --model NAME or its config.json"


@dataclass(frozen=True, slots=True)
class Seen:
    """One track with its figures; ``summary`` is None where the ranges do not tell what a step did."""

    track: Track
    steps: StepTable
    summary: Summary | None
    problem: str | None


def is_mine(head: str) -> bool:
    """Whether it is a database, or JSON of Chrome's trace format."""
    if head.startswith(SQLITE):
        return True
    begin = head.lstrip("\ufeff \t\r\n")
    return begin.startswith("{") and ('"traceEvents"' in begin or '"baseTimeNanoseconds"' in begin)


def report(path: Path, asked: Asked) -> tuple[dict[str, Any], str]:
    """The steps of every process and device; RooflensError in one line where there are none."""
    from rooflens.adapters.profiler.steps import tracks_of
    from rooflens.cli.recorded.profile_text import text

    capture = _read(path)
    tracks = tracks_of(capture)
    if not tracks:
        cut = " (the file is cut off or damaged)" if capture.cut_off else ""
        raise RooflensError(f"{path}: {NO_STEPS}{cut}")
    seen = [_seen(capture, track, asked) for track in tracks]
    return _as_json(path, capture, seen), text(path, capture, seen)


def _read(path: Path) -> Capture:
    from rooflens.adapters.profiler.kineto import GZIP, read_kineto
    from rooflens.adapters.profiler.nsys import read_nsys

    bar = Bar(quiet=True)
    words = f"reading {path.name}"
    try:
        with path.open("rb") as opened:
            begin = opened.read(len(SQLITE))
        if begin == SQLITE.encode():
            return read_nsys(path, lambda ratio: bar.tell(words, ratio))
        if begin[:2] == GZIP and _packs_database(path):
            raise RooflensError("a packed database: unpack it first")
        return read_kineto(path, lambda ratio: bar.tell(words, ratio))
    except RooflensError as error:
        raise RooflensError(f"{path}: {error}") from None
    except OSError as error:
        raise RooflensError(f"{path}: {(error.strerror or 'cannot be read').lower()}") from None
    finally:
        bar.end()


def _packs_database(path: Path) -> bool:
    from rooflens.cli.recorded import head_of

    return (head_of(path) or "").startswith(SQLITE)


def _seen(capture: Capture, track: Track, asked: Asked) -> Seen:
    from rooflens.adapters.profiler.table import table_of
    from rooflens.analyzer.summary import summarise

    steps = table_of(track, capture.unix_s)
    if not steps.has("kind"):
        return Seen(track, steps, None, "the ranges do not tell what a step computed")
    analysis, problem = _bounds(steps, asked, capture.device_names.get(track.device))
    return Seen(track, steps, summarise(steps, (), analysis, None, False), problem)


def _bounds(steps: StepTable, asked: Asked, device: str | None) -> tuple[Any, str | None]:
    """The floors of the steps, or why there are none; ``device`` is the name that the profile gives it."""
    from rooflens.analyzer.roofline import analyse_engine
    from rooflens.cli.calibrations import Calibrations
    from rooflens.cli.named import config_named
    from rooflens.pipeline.engine_roof import NO_HARDWARE

    hardware, config = _hardware(asked, device), config_named(asked.model)
    if hardware is None or config is None:
        return None, NO_HARDWARE if hardware is None else NO_MODEL
    info = EngineInfo("profile", "profile", model_config=dict(config), tensor_parallel=asked.devices or 1)
    try:
        return analyse_engine(steps, info, hardware, Calibrations(asked.calibration).of_device(hardware, ())), None
    except RooflensError as error:
        return None, f"{error}{'' if steps.has('context_tokens') else NO_CONTEXTS}"


def _hardware(asked: Asked, device: str | None) -> HardwareSpec | None:
    from rooflens.cli.named import hardware_named

    if asked.hardware or device is None or not DEVICE_NAME.fullmatch(device):
        return hardware_named(asked.hardware)
    try:
        return hardware_named(device)
    except RooflensError:
        return None


def _as_json(path: Path, capture: Capture, seen: list[Seen]) -> dict[str, Any]:
    return {
        "format": capture.format,
        "file": str(path),
        "start_unix_s": capture.unix_s,
        "events": capture.events,
        "odd_events": capture.odd,
        "cut_off": capture.cut_off,
        "tracks": [_track_json(one, capture) for one in seen],
    }


def _track_json(seen: Seen, capture: Capture) -> dict[str, Any]:
    from rooflens.adapters.profiler.boundaries import FAMILIES
    from rooflens.adapters.profiler.capture import HOST
    from rooflens.adapters.profiler.kernels import CLASSES

    track = seen.track
    duration_s = track.end_s - track.begin_s
    worked = track.worked
    listed = range(min(len(track), MOST_LISTED))
    return {
        "process": track.process or None,
        "device": None if track.device == HOST else track.device,
        "device_name": capture.device_names.get(track.device),
        "cut_by": FAMILIES[track.family],
        "steps": len(track),
        "empty_turns": track.empty,
        "steps_without_work": track.without_work,
        "span_s": float(track.end_s[-1] - track.begin_s[0]),
        "within_s": float(duration_s.sum()),
        "busy_s": float(track.busy_s.sum()) if worked else None,
        "gap_s": float((duration_s - track.busy_s).sum()) if worked else None,
        "class_s": dict(zip(CLASSES, track.class_s.sum(axis=0).tolist(), strict=True)) if worked else None,
        "summed_class_s": dict(zip(CLASSES, track.summed_s.tolist(), strict=True)) if worked else None,
        "summary": asdict(seen.summary) if seen.summary else None,
        "floor_problem": seen.problem,
        "listed": [
            {
                "begin_s": float(track.begin_s[row]),
                "duration_s": float(duration_s[row]),
                "busy_s": float(track.busy_s[row]) if worked else None,
                "longest_gap_s": float(track.longest_gap_s[row]) if worked else None,
                "gaps": int(track.gaps[row]) if worked else None,
                "kernels": int(track.kernels[row]) if worked else None,
                "kind": _kind(track, row),
                **(track.ranges[row].boundary.columns or {}),
            }
            for row in listed
        ],
    }


def _kind(track: Track, row: int) -> str | None:
    kind = track.ranges[row].boundary.kind
    return None if kind is None else kind.name.lower()
