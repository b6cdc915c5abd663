"""The roofline of an engine, or in one line why it has none."""

from __future__ import annotations

from rooflens.analyzer.roofline import Roofline, deployment_of
from rooflens.analyzer.untold import UntoldColumn, untold
from rooflens.calibration_records import Calibration
from rooflens.live_records import SourceKind
from rooflens.model_records import HardwareSpec, StepAnalysis
from rooflens.records import EngineInfo, RooflensError, StepTable

NO_HARDWARE = "the hardware is not known: give --hardware ID"
NOT_ITS_HARDWARE = "the engine runs on a CPU, of which the hardware's floor says nothing: give --hardware this-cpu"
NO_INFO = "the engine's facts are missing"


def roofline_of(
    info: EngineInfo | None, hardware: HardwareSpec | None, calibration: Calibration | None
) -> tuple[Roofline | None, str | None]:
    """The roofline, or None and why."""
    if hardware is None:
        return None, NO_HARDWARE
    if info is None:
        return None, NO_INFO
    if info.device == "cpu" and hardware.nvml_names:
        return None, NOT_ITS_HARDWARE
    try:
        return Roofline.of(info, hardware, calibration), None
    except RooflensError as error:
        return None, str(error)


def devices_of(info: EngineInfo | None) -> int:
    """How many devices an engine says that it has together, with bounds or without; 1 where it does not say."""
    try:
        return deployment_of(info).devices if info is not None else 1
    except RooflensError:
        return 1


def analysed(
    roofline: Roofline, steps: StepTable, engine: str, source: SourceKind
) -> tuple[StepAnalysis | None, str | None]:
    """The bounds of these steps, or None and why."""
    try:
        return roofline.analyse_all(steps), None
    except UntoldColumn as error:
        return None, untold(error.column, engine, source)
    except RooflensError as error:
        return None, str(error)
