"""What rooflens says of a loop: its bytes, its bounds and its rules' verdicts, as the sidecar would."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from counted import joined_with, model_bytes
from driver import Run
from expected import doubted, judged_by, outcome, read_spread
from synthetic import Shape

from rooflens.analyzer.roofline import Roofline
from rooflens.analyzer.rules import RULES
from rooflens.analyzer.rules.case import Case
from rooflens.analyzer.window_figures import window_figures
from rooflens.calibration_records import Calibration
from rooflens.device_records import WindowCounters
from rooflens.findings import Code, Finding
from rooflens.live_records import SourceKind, Window
from rooflens.model_records import HardwareSpec, StepAnalysis
from rooflens.records import EngineInfo, RooflensError, StepTable

# Those that this benchmark is to tell from each other, and those that would doubt it.
JUDGED = (Code.HOST_OVERHEAD, Code.MEMORY_BOUND_WASTE, Code.THROTTLING, Code.MEASUREMENT_INVALID)


@dataclass(frozen=True)
class Roofs:
    """What the loops are compared with; ``problem`` says in one line why there is no hardware."""

    hardware: HardwareSpec | None
    calibration: Calibration | None
    problem: str | None = None

    def roofline(self, info: EngineInfo | None, calibrated: bool) -> Roofline | None:
        """The roofline of an engine with published kernel tables, or with what was calibrated here."""
        if self.hardware is None or info is None or (calibrated and self.calibration is None):
            return None
        return Roofline.of(info, self.hardware, self.calibration if calibrated else None)


def figures(run: Run, shape: Shape, roofs: Roofs) -> dict[str, Any]:
    """Steps, times and bytes of a loop in SI units, None for what is not known."""
    steps = run.steps
    found: dict[str, Any] = {
        "name": run.case.name,
        "batch": run.case.batch,
        "graphs": run.case.graphs,
        "passes": run.case.passes,
        "paused": run.case.paused,
        "made_for": run.case.made_for,
        "context_tokens": shape.context_tokens,
        "steps": len(steps),
        "step_p50_s": middle(steps, "observed_s"),
        "device_p50_s": middle(steps, "device_s"),
        "recorder_p50_s": middle(steps, "hook_s"),
        "recorder_mean_s": _mean(steps, "hook_s"),
        "bytes_by_hand": shape.step_bytes(run.case.batch),
        "bytes_moved_by_hand": shape.step_bytes(run.case.batch) * run.case.passes,
        "model_bytes": None,
        "floor_s": None,
        "reachable_published_s": None,
        "reachable_calibrated_s": None,
    }
    for calibrated in (False, True):
        roofline = roofs.roofline(run.recording.info, calibrated)
        if roofline is None:
            continue
        analysis = roofline.analyse_all(steps)
        found["model_bytes"] = float(np.median(model_bytes(analysis)))
        found["floor_s"] = float(np.median(analysis.floor_s))
        if analysis.reachable_s is not None and analysis.efficiency is not None:
            origin = "calibrated" if calibrated else "published"
            found[f"reachable_{origin}_s"] = float(np.median(analysis.reachable_s))
            found[f"reachable_{origin}_source"] = analysis.efficiency.source
    return found


def window_of(run: Run, analysis: StepAnalysis | None, problem: str | None, counters: WindowCounters | None) -> Window:
    """All of the loop as one window."""
    steps = run.steps
    start_s, end_s = float(steps["submit_monotonic_s"][0]), float(steps["output_monotonic_s"][-1])
    offset_s = float(steps["unix_s"][-1]) - end_s
    return Window(
        info=run.recording.info,
        source=SourceKind.RING,
        start_unix_s=start_s + offset_s,
        end_unix_s=end_s + offset_s,
        start_monotonic_s=start_s,
        end_monotonic_s=end_s,
        steps=steps,
        analysis=analysis,
        problem=None if analysis else problem,
        events=run.recording.events,
        counters=counters,
    )


def verdicts(run: Run, roofs: Roofs, weight_bytes: int) -> dict[str, Any]:
    """The counters beside the model, and each judged rule's answer, by what was calibrated here where that is known.

    ``weight_bytes`` are read in a pass: how far reads of about so many spread says what the answers are worth.
    """
    roofline = roofs.roofline(run.recording.info, True) or roofs.roofline(run.recording.info, False)
    analysis = roofline.analyse_all(run.steps) if roofline else None
    counters = joined_with(run, analysis, roofs.hardware)
    window = window_of(run, analysis, roofs.problem, counters)
    case = Case((window,), (window_figures(window),), roofline, roofs.hardware)
    spread_ratio = read_spread(roofs.calibration.reads, weight_bytes) if roofs.calibration else None
    said = {str(code): doubted(_said(RULES[code](case)), code, spread_ratio) for code in JUDGED if code in RULES}
    return {"counters": asdict(counters) if counters else None, "read_spread_ratio": spread_ratio, "verdicts": said}


def judged(run: Run, shape: Shape, roofs: Roofs) -> dict[str, Any]:
    """All that is said of a loop, with the finding it was made for against the one that came."""
    loop = figures(run, shape, roofs) | verdicts(run, roofs, shape.weight_bytes)
    return loop | {"outcome": outcome(loop)}


def _said(finding: Finding) -> dict[str, Any]:
    evidence = {fact.name: fact.value for fact in finding.evidence}
    return {
        "status": str(finding.status),
        "summary": finding.summary.removeprefix("cannot tell: "),
        "missing": list(finding.missing),
        "evidence": evidence,
        "judged_by": judged_by(finding.code, evidence),
    }


def middle(steps: StepTable, name: str) -> float | None:
    """The median of a column over the steps where it is known; None where it is not."""
    values = _known(steps, name)
    return float(np.median(values)) if len(values) else None


def _mean(steps: StepTable, name: str) -> float | None:
    values = _known(steps, name)
    return float(values.mean()) if len(values) else None


def _known(steps: StepTable, name: str) -> Any:
    if name not in steps.columns:
        return np.zeros(0)
    return steps[name][steps.where(name)]


def expected_roofs(calibration: Calibration | None, device_name: str | None, read_bytes: int) -> Roofs:
    """The hardware by its name, or of a CPU by its calibration."""
    from rooflens.analyzer.calibrated import hardware_of
    from rooflens.analyzer.hardware import find_hardware

    try:
        if device_name is not None:
            return Roofs(find_hardware(device_name), calibration)
        if calibration is None:
            return Roofs(None, None, "this CPU was not calibrated")
        return Roofs(hardware_of(calibration, read_bytes), calibration)
    except RooflensError as error:
        return Roofs(None, calibration, str(error))
